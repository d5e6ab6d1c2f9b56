//! Lets the caller write, or read a file, to where the bytes are sent from, without a buffer in between.

use std::mem::MaybeUninit;

use super::Outbound;
use crate::cursor::Cursor;
use crate::entries::NIL;
use crate::part::{FileRegion, Part};
use crate::segment::{LARGE_SEGMENT_BYTES, SEGMENT_BYTES, Segment};
use crate::slice::Slice;
use crate::types::{Gathered, LoadError};

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
        if let Some((next, room)) = self.claim_fill(length) {
            return Cursor::new(self, next, room).put_with(length, false, fill);
        }
        let (next, room, is_initialised) = self.new_large_fill(length);
        let written = Cursor::new(self, next, room).put_with(length, is_initialised, fill);
        if *written.as_ref().unwrap_or(&0) < length / SPARSE_PART {
            self.move_out_of_tail();
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
        if self.list.unflushed == NIL {
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

/// Bytes that fill less than this part of the segment in which they were written are moved out.
const SPARSE_PART: usize = 4;
