//! The message memory of both old designs. It stands for the pooled allocator in servers with those designs.
//!
//! Each message has its own range, reference-counted and recycled. Ranges are adjacent in segments that all connections
//! of a loop share, so that a short message costs no more than its bytes. That is less work than the size classes of
//! Netty's allocator; in return a pending message keeps its segment alive, which has room for thirty short ones.

use crate::entries::Part;
use crate::pieces::{Pieces, SizedPieces};
use crate::pool::Pool;
use crate::segment::{SEGMENT_BYTES, Segment};

/// The memory of the next messages of a loop.
#[derive(Default)]
pub(crate) struct Messages {
    current: Option<Segment>,
}

impl Messages {
    /// A message of a copy of `bytes`.
    #[inline]
    pub(crate) fn copy(&mut self, bytes: &[u8], pool: &Pool) -> Part {
        let segment = self.with_room(bytes.len(), pool);
        let start = segment.filled() as u32;
        segment.append(bytes);
        Part::Copied { segment, start, end: start + bytes.len() as u32 }
    }

    /// A message of copies of all `pieces`.
    #[inline(always)]
    pub(crate) fn gather(&mut self, pieces: &SizedPieces<impl Pieces>, pool: &Pool) -> Part {
        let segment = self.with_room(pieces.room(), pool);
        let start = segment.filled() as u32;
        pieces.append_to(&segment);
        Part::Copied { segment, start, end: start + pieces.length() as u32 }
    }

    /// An empty message with room for at least `length` bytes.
    #[inline]
    pub(crate) fn empty(&mut self, length: usize, pool: &Pool) -> Part {
        let segment = self.with_room(length, pool);
        let start = segment.filled() as u32;
        Part::Copied { segment, start, end: start }
    }

    /// Frees the segment if it has no messages: called whenever a queue becomes empty.
    pub(crate) fn release_all(&mut self) {
        if self.current.as_ref().is_some_and(Segment::is_unique) {
            self.current = None;
        }
    }

    /// Starts a new segment for the next message.
    pub(crate) fn turn_over(&mut self) {
        self.current = None;
    }

    #[inline]
    fn with_room(&mut self, length: usize, pool: &Pool) -> Segment {
        match &self.current {
            Some(segment) if segment.room() >= length => segment.clone(),
            _ => self.next(length, pool),
        }
    }

    #[cold]
    fn next(&mut self, length: usize, pool: &Pool) -> Segment {
        if length > SEGMENT_BYTES {
            return pool.segment_for(length);
        }
        self.current.insert(pool.segment()).clone()
    }
}
