//! Lets the caller write where the bytes are sent from, without a buffer in between.

use super::Outbound;
use crate::cursor::Cursor;
use crate::part::Part;
use crate::segment::{LARGE_SEGMENT_BYTES, SEGMENT_BYTES, Segment};

impl Outbound {
    /// Has `fill` write into `length` contiguous bytes at the end of the queue, appends as many of them as it returns,
    /// and returns that number. An encoder of a length that is known only afterwards, such as an encrypted record,
    /// writes its bytes there once, where they are sent from.
    ///
    /// `length` is a bound: space that `fill` does not use costs nothing afterwards. Up to [`SEGMENT_BYTES`] it lies
    /// behind earlier short writes where that has room; more than that has a segment of its own, which the pool
    /// recycles up to [`LARGE_SEGMENT_BYTES`]. The space is initialised with unspecified content.
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
        if length <= SEGMENT_BYTES {
            return self.writer(length).put_with(length, false, fill);
        }
        let (next, room, is_initialised) = match self.claim_fill(length) {
            // The tail has room for as much only if it is a segment of a record.
            Some((next, room)) => (next, room, false),
            None => self.new_large_fill(length),
        };
        let written = Cursor::new(self, next, room).put_with(length, is_initialised, fill);
        if *written.as_ref().unwrap_or(&0) < length / SPARSE_PART {
            self.move_out_of_tail();
        }
        written
    }

    /// Appends a copied entry with room for `length` bytes, more than a usual segment has, and claims them.
    fn new_large_fill(&mut self, length: usize) -> (*mut u8, usize, bool) {
        let pool = self.pool();
        let segment = if length <= LARGE_SEGMENT_BYTES { pool.large_segment() } else { pool.segment_for(length) };
        let is_initialised = segment.is_initialised();
        self.push(Part::Copied { segment, start: 0, end: 0 });
        let (next, room) = self.claim_fill(length).expect("there is room for as much");
        (next, room, is_initialised)
    }

    /// Copies what little the tail has into memory of its size, so that it does not keep a large segment.
    #[cold]
    fn move_out_of_tail(&mut self) {
        if self.list.unflushed == crate::entries::NIL {
            return;
        }
        let pool = self.pool_ref();
        let mut entries = pool.shared().entries.borrow_mut();
        let Part::Copied { segment, start, end } = &mut entries.get_mut(self.list.tail).part else { return };
        let own: Segment = pool.segment_for((*end - *start) as usize);
        own.append(segment.view(*start as usize, *end as usize));
        (*start, *end) = (0, own.filled() as u32);
        let large = std::mem::replace(segment, own);
        // Drop it after the borrow of the store ends.
        drop(entries);
        drop(large);
    }
}

/// Of a large segment, what fills less than this part of it is moved out.
const SPARSE_PART: usize = 4;
