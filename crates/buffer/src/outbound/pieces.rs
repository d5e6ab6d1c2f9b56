//! Writes a message of several short pieces at once: one comparison with the remaining room, and some moves.

use super::{FILL_ROOM_MIN, Outbound};
use crate::entries::{NIL, Part};
use crate::pieces::{Pieces, SizedPieces};
use crate::segment::SEGMENT_BYTES;

impl Outbound {
    /// Appends copies of all `pieces`, one behind the other: the cheapest way to write a message of a few short pieces.
    /// They need not be contiguous in memory.
    ///
    /// ```
    /// use tidegate::codec::{Outbound, Pool};
    ///
    /// let mut queue = Outbound::new(&Pool::new());
    /// queue.write_pieces(("Content-Length: ", &4096.to_string()[..], b"\r\n"));
    /// queue.flush();
    /// assert_eq!(queue.front(), Some(&b"Content-Length: 4096\r\n"[..]));
    /// ```
    #[inline]
    pub fn write_pieces(&mut self, pieces: impl Pieces) {
        let pieces = SizedPieces::new(pieces);
        if !self.append_pieces(&pieces) {
            self.write_behind(pieces);
        }
    }

    /// Outlined, so that the common path stays short.
    #[inline(never)]
    fn write_behind(&mut self, pieces: SizedPieces<impl Pieces>) {
        let has_room = pieces.length() > 0 && self.make_room(pieces.room()) && self.append_pieces(&pieces);
        if !has_room {
            pieces.each(|piece| self.write(piece));
        }
    }

    /// Appends them to the fill segment, if that has room for all of them.
    #[inline(always)]
    fn append_pieces(&mut self, pieces: &SizedPieces<impl Pieces>) -> bool {
        if self.list.unflushed == NIL {
            return false;
        }
        let mut entries = self.entries();
        let Part::Copied { segment, end, .. } = &mut entries.get_mut(self.list.tail).part else { return false };
        if *end as usize != segment.filled() || !pieces.append_to(segment) {
            return false;
        }
        *end += pieces.length() as u32;
        drop(entries);
        self.written += pieces.length() as u64;
        true
    }

    /// Starts a fill segment with room for `length` bytes, unless that would waste the rest of the last one, or no
    /// segment is that long.
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

/// Pieces with more bytes in total than this go into the room that is left.
const WHOLE_BYTES_MAX: usize = 256;
