//! A message of several short pieces, and copying them.
//!
//! The number of pieces, and the lengths of those that are constants, are known where it is compiled: so all of it comes
//! to a few moves.

use std::mem::MaybeUninit;
use std::slice;

use crate::segment::Segment;

/// Two to eight texts, or slices or arrays of bytes, as a tuple: what [`Outbound::write_pieces`](crate::Outbound::write_pieces) writes.
pub trait Pieces: sealed::Pieces + Copy {}

impl<T: sealed::Pieces + Copy> Pieces for T {}

/// Pieces, and how many bytes they have together.
pub(crate) struct Measured<P> {
    pieces: P,
    length: usize,
}

impl<P: Pieces> Measured<P> {
    #[inline(always)]
    pub(crate) fn new(pieces: P) -> Self {
        let mut length = 0_usize;
        // They may be the same bytes several times, which need not fit into memory together.
        pieces.each(|piece| length = length.saturating_add(piece.len()));
        Self { pieces, length }
    }

    #[inline(always)]
    pub(crate) fn length(&self) -> usize {
        self.length
    }

    #[inline(always)]
    pub(crate) fn each(&self, visit: impl FnMut(&[u8])) {
        self.pieces.each(visit);
    }

    /// Appends them to `segment`, if that has room for all of them; says whether it did.
    #[inline(always)]
    pub(crate) fn append_to(&self, segment: &Segment) -> bool {
        if self.length > segment.room() {
            return false;
        }
        let mut next = segment.top();
        self.each(|piece| {
            // SAFETY: the lengths add up to `length`, for which there is room from `top` on: nobody sees those bytes yet,
            // and nobody else writes there, since counts that are not atomic keep the segment on this thread.
            let target = unsafe { slice::from_raw_parts_mut(next.cast(), piece.len()) };
            copy(piece, target);
            next = next.wrapping_add(piece.len());
        });
        segment.set_filled(segment.filled() + self.length);
        true
    }
}

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
