//! Lets the caller write, or read a file, to where the bytes are sent from, without a buffer in between.

use std::mem::MaybeUninit;

use super::Outbound;
use crate::cursor::Cursor;
use crate::entries::{NIL, Part};
use crate::file_region::FileRegion;
use crate::pool::{LARGE_BYTES_MIN, SPARSE_PART};
use crate::segment::{LARGE_SEGMENT_BYTES, SEGMENT_BYTES};
use crate::slice::Slice;
use crate::types::{Gathered, LoadError};

impl Outbound {
    /// Has `fill` write into `length` contiguous bytes at the end of the queue, appends as many of them as it returns,
    /// and returns that number. An encoder of a length that is known only afterwards, such as an encrypted record,
    /// writes its bytes there once, where they are sent from.
    ///
    /// `length` is a bound: of space that `fill` does not use, the queue keeps at most three times the bytes that it
    /// does use, or the rest of one segment. The space lies behind earlier writes where that has room; otherwise it is
    /// in another segment, which the pool recycles up to [`LARGE_SEGMENT_BYTES`]. The space is initialised with unspecified content.
    ///
    /// ```
    /// use tidegate::codec::{Outbound, Pool};
    ///
    /// let mut queue = Outbound::new(&Pool::new());
    /// let written = queue.write_with(100, |space| {
    ///     space[..4].copy_from_slice(b"flow");
    ///     Ok::<_, std::convert::Infallible>(4)
    /// });
    /// queue.flush();
    /// assert_eq!((written, queue.front()), (Ok(4), Some(&b"flow"[..])));
    /// ```
    ///
    /// # Errors
    /// The error of `fill`; nothing is appended then.
    ///
    /// # Panics
    /// If `fill` returns more than `length`, or if `length` exceeds 4 GiB.
    pub fn write_with<E>(
        &mut self,
        length: usize,
        fill: impl FnOnce(&mut [u8]) -> Result<usize, E>,
    ) -> Result<usize, E> {
        if let Some((next, room)) = self.claim_fill(length) {
            return Cursor::new(self, next, room).put_with(length, false, fill);
        }
        let before = (self.list.tail, self.list.unflushed);
        let (next, room, is_initialised) = self.new_space(length);
        let written = Cursor::new(self, next, room).put_with(length, is_initialised, fill);
        let count = *written.as_ref().unwrap_or(&0);
        let space = if room > SEGMENT_BYTES { room } else { length };
        if count == 0 || count < space / SPARSE_PART {
            self.move_out_of_tail(before);
        }
        written
    }

    /// If a piece of a file is the first flushed entry, loads up to `bytes_max` of its bytes into memory in its place,
    /// for filters that must see them. Returns whether it did. `read` receives the file and an offset, and fills as
    /// much as it can.
    ///
    /// # Errors
    /// [`LoadError::Short`] if the file ends within the region, [`LoadError::Read`] if reading fails. The queue is
    /// unchanged.
    ///
    /// # Panics
    /// If both `bytes_max` and the region exceed 4 GiB.
    pub fn load_file(
        &mut self,
        bytes_max: usize,
        read: impl FnOnce(&FileRegion, &mut [u8]) -> std::io::Result<usize>,
    ) -> Result<bool, LoadError> {
        let Gathered::File(region) = self.gather(&mut [MaybeUninit::uninit()], 1) else { return Ok(false) };
        let length = usize::try_from(region.length).unwrap_or(usize::MAX).min(bytes_max.max(1));
        let segment = self.pool_ref().segment_for(length);
        // SAFETY: the segment has at least `length` bytes and no other holder.
        unsafe { segment.base().write_bytes(0, length) };
        // SAFETY: as above, and the line above has initialised them. `read` has no access to the segment.
        let bytes = unsafe { std::slice::from_raw_parts_mut(segment.base(), length) };
        let filled = match read(&region, bytes).map_err(LoadError::Read)? {
            0 => return Err(LoadError::Short),
            filled => filled.min(length),
        };
        segment.set_filled(filled);
        let loaded = Slice::new(segment, 0, filled);
        let loaded = if filled < length / SPARSE_PART { self.pool_ref().copy(&loaded) } else { loaded };
        let mut entries = self.entries();
        entries.get_mut(self.list.head).part.advance(loaded.len() as u64);
        let index = entries.insert(Part::Slice(loaded));
        entries.get_mut(index).next = self.list.head;
        drop(entries);
        self.list.head = index;
        self.count_entry();
        if self.second_is_spent() {
            self.unlink_spent_second();
        }
        Ok(true)
    }

    /// Appends a copied entry with room for `length` bytes, and claims them. Returns their start, the room, and whether
    /// its bytes are initialised.
    fn new_space(&mut self, length: usize) -> (*mut u8, usize, bool) {
        let mut is_initialised = false;
        if length <= SEGMENT_BYTES {
            self.push_fill(length);
        } else {
            let segment = self.tail_segment(length).unwrap_or_else(|| match length {
                // Less would leave the segment sparse.
                LARGE_BYTES_MIN..=LARGE_SEGMENT_BYTES => self.pool().large_segment(),
                _ => self.pool().segment_for(length),
            });
            is_initialised = segment.is_initialised();
            let at = segment.filled() as u32;
            self.push(Part::Copied { segment, start: at, end: at });
        }
        let (next, room) = self.claim_fill(length).expect("there is room for as much");
        (next, room, is_initialised)
    }

    /// Moves a short write into a fresh segment: behind the bytes before it if that has room, otherwise into memory of
    /// its size if the segment is large. So neither a refused nor a small write leaves a segment, or an entry without
    /// bytes. `before` has the tail and the first unflushed entry before the write.
    #[cold]
    fn move_out_of_tail(&mut self, before: (u32, u32)) {
        let ((last, unflushed), tail) = (before, self.list.tail);
        if tail == NIL {
            // The cursor has released the empty queue.
            return;
        }
        let mut entries = self.entries();
        let Part::Copied { segment, start, end } = &entries.get(tail).part else { return };
        let (fresh, start, end) = (segment.clone(), *start as usize, *end as usize);
        if start < end && start > 0 {
            // The segment is not a fresh one.
            return;
        }
        let bytes = fresh.view(start, end);
        let mut shared = None;
        if last != NIL
            && let Part::Copied { segment, end, .. } = &mut entries.get_mut(last).part
            && *end as usize == segment.filled()
            && segment.room() >= bytes.len()
        {
            if unflushed == NIL {
                shared = Some(segment.clone());
            } else {
                *end += segment.append(bytes) as u32;
                drop(entries);
                return self.unlink_tail(before);
            }
        }
        if bytes.is_empty() {
            drop(entries);
            return self.unlink_tail(before);
        }
        let own = match shared {
            Some(shared) => shared,
            None if fresh.capacity() > SEGMENT_BYTES => self.pool_ref().segment_for(bytes.len()),
            None => return,
        };
        let start = own.filled() as u32;
        own.append(bytes);
        let part = Part::Copied { start, end: own.filled() as u32, segment: own };
        let sparse = std::mem::replace(&mut entries.get_mut(tail).part, part);
        // Drop it after the borrow of the store ends.
        drop(entries);
        drop(sparse);
    }
}
