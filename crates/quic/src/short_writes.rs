//! `ShortWrites`: the short writes of one turn, in memory that they share.
//!
//! The machine keeps the bytes of a write until the peer has acknowledged them, in memory of their own. Most responses are
//! short, and dozens of them leave in one turn, so the allocator would have as many blocks. Here they share a piece, which
//! waits for the acknowledgement of the last one.
//!
//! **A piece is short**, since a peer that acknowledges all but one of its writes keeps all of it. A stream shares its first short
//! write alone, so a peer keeps at most one piece for each stream that it may have open. The first write of a turn has memory of
//! its own, so that a stream alone costs its own bytes.

use bytes::{Bytes, BytesMut};

/// The memory for the short writes of an endpoint. Between turns it has none.
#[derive(Debug, Default)]
pub(crate) struct ShortWrites {
    piece: BytesMut,
    /// There was a short write in this turn.
    has_any: bool,
}

impl ShortWrites {
    /// A copy of `bytes` that shares its memory; `None` if they have to have memory of their own.
    pub(crate) fn copy(&mut self, bytes: &[u8]) -> Option<Bytes> {
        if bytes.len() > SHORT_BYTES_MAX || !std::mem::replace(&mut self.has_any, true) {
            return None;
        }
        if self.piece.capacity() < bytes.len() {
            self.piece = BytesMut::with_capacity(PIECE_BYTES);
        }
        self.piece.extend_from_slice(bytes);
        Some(self.piece.split().freeze())
    }

    /// The turn is over.
    pub(crate) fn end_turn(&mut self) {
        if self.has_any {
            *self = Self::default();
        }
    }
}

/// The longest write that shares its memory.
const SHORT_BYTES_MAX: usize = 256;

/// The length of a piece. For blocks of 1,008 bytes and more the allocator of glibc first joins all of its short free blocks.
const PIECE_BYTES: usize = 960;

const _: () = assert!(SHORT_BYTES_MAX * 3 <= PIECE_BYTES);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_write_of_a_turn_and_long_ones_have_memory_of_their_own() {
        let mut writes = ShortWrites::default();
        for _ in 0..2 {
            assert_eq!(writes.copy(b"ebb"), None);
            assert_eq!(writes.copy(b"flow").as_deref(), Some(&b"flow"[..]));
            assert_eq!(writes.copy(&[7; SHORT_BYTES_MAX + 1]), None);
            assert_eq!(writes.copy(&[7; SHORT_BYTES_MAX]).as_deref(), Some(&[7; SHORT_BYTES_MAX][..]));
            writes.end_turn();
        }
        assert_eq!(writes.piece.capacity(), 0);
    }

    #[test]
    fn writes_lie_side_by_side_in_a_piece_of_bounded_length() {
        let mut writes = ShortWrites::default();
        assert_eq!(writes.copy(b""), None);
        let copies: Vec<Bytes> = (0..50).filter_map(|number| writes.copy(&[number; 100])).collect();
        assert!(copies.iter().zip(0..).all(|(copy, number)| **copy == [number; 100]));
        let starts: Vec<usize> = copies.iter().map(|copy| copy.as_ptr().addr()).collect();
        let runs = starts.chunks(PIECE_BYTES / 100);
        assert!(runs.clone().all(|run| run.windows(2).all(|pair| pair[1] == pair[0] + 100)), "{starts:?}");
        assert_eq!(runs.count(), 6);
    }
}
