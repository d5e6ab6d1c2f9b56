//! Writing a message of several short pieces in one go.
//!
//! The number of pieces, and the lengths of those that are constants, are known where it is compiled: so all of it comes
//! to one comparison with the room that is left, and some moves.

use std::mem::MaybeUninit;
use std::slice;

use super::{FILL_ROOM_MIN, Outbound};
use crate::entries::{NIL, Part};
use crate::segment::SEGMENT_BYTES;

/// Two to eight texts, or slices or arrays of bytes, as a tuple: what [`Outbound::write_pieces`] writes.
pub trait Pieces: sealed::Pieces + Copy {}

impl<T: sealed::Pieces + Copy> Pieces for T {}

impl Outbound {
    /// Appends copies of all `pieces`, one behind the other: the cheapest way to write a message of a few short pieces.
    /// It need not be in one piece of memory.
    ///
    /// ```
    /// use tidegate_buffer::{Outbound, Pool};
    ///
    /// let mut queue = Outbound::new(&Pool::new());
    /// queue.write_pieces(("Content-Length: ", &4096.to_string()[..], b"\r\n"));
    /// queue.flush();
    /// assert_eq!(queue.front(), Some(&b"Content-Length: 4096\r\n"[..]));
    /// ```
    #[inline]
    pub fn write_pieces(&mut self, pieces: impl Pieces) {
        let mut length = 0_usize;
        // They may be the same bytes several times, which need not fit into memory together.
        pieces.each(|piece| length = length.saturating_add(piece.len()));
        while !self.append_pieces(&pieces, length) {
            if !self.make_room(length) {
                return pieces.each(|piece| self.write(piece));
            }
        }
    }

    /// Appends them to the fill segment, if that has room for all of them.
    #[inline(always)]
    fn append_pieces(&mut self, pieces: &impl Pieces, length: usize) -> bool {
        if self.list.unflushed == NIL {
            return false;
        }
        let mut entries = self.entries();
        let Part::Copied { segment, end, .. } = &mut entries.get_mut(self.list.tail).part else { return false };
        if *end as usize != segment.filled() || length > segment.room() {
            return false;
        }
        let mut next = segment.top();
        pieces.each(|piece| {
            // SAFETY: the lengths add up to `length`, for which there is room from `top` on: nobody sees those bytes yet,
            // and nobody else writes there while this queue, which ends with them, is borrowed.
            let target = unsafe { slice::from_raw_parts_mut(next.cast(), piece.len()) };
            copy(piece, target);
            next = next.wrapping_add(piece.len());
        });
        *end += length as u32;
        segment.set_filled(*end as usize);
        drop(entries);
        self.written += length as u64;
        true
    }

    /// Begins a fill segment with room for so much, unless it would waste what is left of the last one, or there are no such
    /// segments.
    #[cold]
    fn make_room(&mut self, length: usize) -> bool {
        let would_fit = || self.tail_segment(length.max(FILL_ROOM_MIN)).is_some();
        let wastes = length > WHOLE_BYTES_MAX && self.tail_segment(WHOLE_BYTES_MAX).is_some() && !would_fit();
        let makes = (1..=SEGMENT_BYTES).contains(&length) && !wastes;
        if makes {
            self.push_fill(length);
        }
        makes
    }
}

/// Pieces that have more bytes together than this go into what room there is.
const WHOLE_BYTES_MAX: usize = 256;

/// Copies all of `from`, for which `to` has as much room. A call would cost more than to copy a few bytes: two moves that
/// overlap in the middle copy any length between that of one and that of both.
#[inline(always)]
fn copy(from: &[u8], to: &mut [MaybeUninit<u8>]) {
    let length = from.len();
    if length <= 16 {
        match length {
            8.. => copy_ends::<8>(from, to),
            4.. => copy_ends::<4>(from, to),
            2.. => copy_ends::<2>(from, to),
            _ => copy_ends::<1>(from, to),
        }
    } else if length <= 32 {
        copy_ends::<16>(from, to);
    } else if length <= 64 {
        copy_ends::<32>(from, to);
    } else {
        to.write_copy_of_slice(from);
    }
}

/// Copies the first and the last `N` bytes.
#[inline(always)]
fn copy_ends<const N: usize>(from: &[u8], to: &mut [MaybeUninit<u8>]) {
    if let (Some(first), Some(target)) = (from.first_chunk::<N>(), to.first_chunk_mut::<N>()) {
        target.write_copy_of_slice(first);
    }
    if let (Some(last), Some(target)) = (from.last_chunk::<N>(), to.last_chunk_mut::<N>()) {
        target.write_copy_of_slice(last);
    }
}

mod sealed {
    /// A tuple of pieces. It is sealed because a length that changed between two calls would be unsound.
    pub trait Pieces {
        fn each(&self, visit: impl FnMut(&[u8]));
    }

    pub trait Piece {
        fn bytes(&self) -> &[u8];
    }

    impl Piece for &[u8] {
        #[inline(always)]
        fn bytes(&self) -> &[u8] {
            self
        }
    }

    impl Piece for &str {
        #[inline(always)]
        fn bytes(&self) -> &[u8] {
            self.as_bytes()
        }
    }

    impl<const N: usize> Piece for &[u8; N] {
        #[inline(always)]
        fn bytes(&self) -> &[u8] {
            *self
        }
    }

    macro_rules! pieces {
        ($($name:ident)*) => {
            impl<$($name: Piece),*> Pieces for ($($name,)*) {
                #[inline(always)]
                #[expect(non_snake_case, reason = "a piece is named like its type")]
                fn each(&self, mut visit: impl FnMut(&[u8])) {
                    let ($($name,)*) = self;
                    $(visit($name.bytes());)*
                }
            }
        };
    }

    pieces!(A B);
    pieces!(A B C);
    pieces!(A B C D);
    pieces!(A B C D E);
    pieces!(A B C D E F);
    pieces!(A B C D E F G);
    pieces!(A B C D E F G H);
}
