//! `Cursor`: a cursor at the end of a queue.

use crate::outbound::Outbound;

/// A cursor at the end of an [`Outbound`]. Dropping it commits the bytes put. The caller may put more than it
/// requested: the cursor continues in the next segment.
pub struct Cursor<'q> {
    queue: &'q mut Outbound,
    next: *mut u8,
    room: usize,
    put: usize,
}

impl<'q> Cursor<'q> {
    /// `next` is followed by `room` claimed bytes of the fill segment of `queue`.
    #[inline]
    pub(crate) fn new(queue: &'q mut Outbound, next: *mut u8, room: usize) -> Self {
        Self { queue, next, room, put: 0 }
    }

    /// Appends a copy of `bytes`.
    #[inline]
    pub fn put(&mut self, bytes: &[u8]) {
        if bytes.len() <= self.room {
            self.put_fast_path(bytes);
        } else {
            self.put_slow_path(bytes);
        }
    }

    #[inline]
    fn put_fast_path(&mut self, bytes: &[u8]) {
        assert!(bytes.len() <= self.room);
        // SAFETY: `next` is followed by `room` bytes of the fill segment that this cursor has claimed: no view covers
        // them and no other writer uses them, so `bytes` is not among them. The tail entry keeps the segment alive.
        unsafe { self.next.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
        // SAFETY: at most `room` bytes on, so within the segment or at its end.
        self.next = unsafe { self.next.add(bytes.len()) };
        self.room -= bytes.len();
        self.put += bytes.len();
        self.queue.count_copy(bytes.len());
    }

    /// Has `fill` write into the next `length` bytes, and appends as many of them as it returns.
    ///
    /// # Panics
    /// If there is less room, or if `fill` returns more than `length`.
    pub(crate) fn put_with<E>(
        &mut self,
        length: usize,
        is_initialised: bool,
        fill: impl FnOnce(&mut [u8]) -> Result<usize, E>,
    ) -> Result<usize, E> {
        assert!(length <= self.room);
        if !is_initialised {
            // SAFETY: `next` is followed by `room` bytes that this cursor has claimed, as in `put_fast_path`.
            unsafe { self.next.write_bytes(0, length) };
        }
        // SAFETY: as above, so no view covers the bytes, and no code but `fill` reaches them while `self` is borrowed.
        // They are initialised: the line above has done it, or the segment is.
        let space = unsafe { std::slice::from_raw_parts_mut(self.next, length) };
        let count = fill(space)?;
        assert!(count <= length, "{count} bytes written in a space of {length}");
        // SAFETY: `count <= length <= room`, so within the segment or at its end.
        self.next = unsafe { self.next.add(count) };
        self.room -= count;
        self.put += count;
        Ok(count)
    }

    #[cold]
    fn put_slow_path(&mut self, bytes: &[u8]) {
        self.commit();
        self.queue.write(bytes);
        (self.next, self.room) = self.queue.claim_fill(0).expect("the last write may grow");
    }

    /// Counts the bytes put as written, and releases the claim on the remaining room.
    #[inline]
    fn commit(&mut self) {
        self.queue.commit(std::mem::take(&mut self.put));
    }
}

impl Drop for Cursor<'_> {
    #[inline]
    fn drop(&mut self) {
        self.commit();
        // A cursor through which nothing was put must not leave an entry in an empty queue.
        if self.queue.is_empty() {
            self.queue.release_unused();
        }
    }
}
