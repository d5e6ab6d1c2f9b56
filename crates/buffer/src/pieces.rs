//! A message of several short pieces, and copying them.
//!
//! The compiler knows the number of pieces, and the lengths of the constant ones, so the copy becomes a few moves.

use std::mem::MaybeUninit;
use std::slice;

use crate::segment::Segment;

/// Two to ten texts, slices or arrays of bytes, or [`Short`] pieces, as a tuple: the argument of
/// [`Outbound::write_pieces`](crate::Outbound::write_pieces).
pub trait Pieces: sealed::Pieces + Copy {}

impl<T: sealed::Pieces + Copy> Pieces for T {}

/// A piece of at most eight bytes, such as a number in digits. One move copies all eight; the next piece overwrites the
/// excess.
///
/// ```
/// use tidegate::buffer::Short;
/// use tidegate::codec::{Outbound, Pool};
///
/// let mut queue = Outbound::new(&Pool::new());
/// queue.write_pieces(("Age: ", Short::new(*b"42......", 2), "\r\n"));
/// queue.flush();
/// assert_eq!(queue.front(), Some(&b"Age: 42\r\n"[..]));
/// ```
#[derive(Debug, Clone, Copy)]
pub struct Short {
    bytes: [u8; SHORT_BYTES],
    length: usize,
}

impl Short {
    /// The first `length` of these bytes; all of them, if it is more.
    #[must_use]
    #[inline]
    pub const fn new(bytes: [u8; SHORT_BYTES], length: usize) -> Self {
        Self { bytes, length: if length < SHORT_BYTES { length } else { SHORT_BYTES } }
    }
}

/// Pieces, and the room they need.
#[derive(Clone, Copy)]
pub(crate) struct SizedPieces<P> {
    pieces: P,
    room: usize,
}

impl<P: Pieces> SizedPieces<P> {
    #[inline(always)]
    pub(crate) fn new(pieces: P) -> Self {
        let mut room = P::SLACK;
        // The same bytes may occur several times, and need not fit into memory together.
        pieces.each(|_, length| room = room.saturating_add(length));
        Self { pieces, room }
    }

    /// The number of their bytes. It is less if they do not fit into memory together.
    #[inline(always)]
    pub(crate) fn length(&self) -> usize {
        self.room - P::SLACK
    }

    /// The room they need: more than their bytes if some of them are [`Short`].
    #[inline(always)]
    pub(crate) fn room(&self) -> usize {
        self.room
    }

    #[inline(always)]
    pub(crate) fn each(&self, mut visit: impl FnMut(&[u8])) {
        self.pieces.each(|bytes, length| visit(&bytes[..length]));
    }

    /// Appends them to `segment` if it has room for all of them; returns whether it did.
    #[inline(always)]
    pub(crate) fn append_to(&self, segment: &Segment) -> bool {
        if self.room > segment.room() {
            return false;
        }
        let mut next = segment.top();
        self.pieces.each(|bytes, length| {
            // SAFETY: the lengths, and the slack of the pieces, add up to at most `room`, and `top` has that much room:
            // no view covers those bytes yet, and no other code writes there, since counts that are not atomic keep the
            // segment on this thread.
            let target = unsafe { slice::from_raw_parts_mut(next.cast(), bytes.len()) };
            copy(bytes, target);
            next = next.wrapping_add(length);
        });
        segment.set_filled(segment.filled() + self.length());
        segment.pool().ledger.count_copy(self.length());
        true
    }
}

/// The size of one move.
const SHORT_BYTES: usize = 8;

/// Copies all of `from`; `to` has room for it. A call would cost more than the copy of a few bytes: two moves that
/// overlap in the middle copy any length between one move and two.
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
        to.copy_from_slice(as_uninitialised(from));
    }
}

/// Copies the first and the last `N` bytes.
#[inline(always)]
fn copy_ends<const N: usize>(from: &[u8], to: &mut [MaybeUninit<u8>]) {
    if let (Some(first), Some(target)) = (from.first_chunk::<N>(), to.first_chunk_mut::<N>()) {
        target.copy_from_slice(as_uninitialised(first));
    }
    if let (Some(last), Some(target)) = (from.last_chunk::<N>(), to.last_chunk_mut::<N>()) {
        target.copy_from_slice(as_uninitialised(last));
    }
}

/// As `MaybeUninit::write_copy_of_slice` of Rust 1.93 sees its source.
#[inline(always)]
fn as_uninitialised(bytes: &[u8]) -> &[MaybeUninit<u8>] {
    // SAFETY: `MaybeUninit<u8>` has the layout of `u8`, and nothing writes through a shared slice of either.
    unsafe { slice::from_raw_parts(bytes.as_ptr().cast(), bytes.len()) }
}

mod sealed {
    use super::{SHORT_BYTES, Short};

    /// A tuple of pieces. It is sealed because a length that changed between two calls would be unsound.
    pub trait Pieces {
        /// The most bytes that the pieces have beyond their lengths.
        const SLACK: usize;

        /// Calls `visit` with the bytes of each piece, and how many of them count.
        fn each(&self, visit: impl FnMut(&[u8], usize));
    }

    pub trait Piece {
        const SLACK: usize = 0;

        fn bytes(&self) -> &[u8];

        /// How many of its bytes count: at least all but the last `SLACK` ones.
        #[inline(always)]
        fn length(&self) -> usize {
            self.bytes().len()
        }
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

    impl Piece for Short {
        const SLACK: usize = SHORT_BYTES;

        #[inline(always)]
        fn bytes(&self) -> &[u8] {
            &self.bytes
        }

        #[inline(always)]
        fn length(&self) -> usize {
            self.length
        }
    }

    macro_rules! pieces {
        ($($name:ident)*) => {
            impl<$($name: Piece),*> Pieces for ($($name,)*) {
                const SLACK: usize = 0 $(+ $name::SLACK)*;

                #[inline(always)]
                #[expect(non_snake_case, reason = "a piece is named like its type")]
                fn each(&self, mut visit: impl FnMut(&[u8], usize)) {
                    let ($($name,)*) = self;
                    $(visit($name.bytes(), $name.length());)*
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
    pieces!(A B C D E F G H I J);
}
