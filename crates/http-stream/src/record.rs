//! Records: messages between a stream's codec and its connection's codec, in the stream's bytes.
//!
//! **Inbound** a record is a frame: its head of nine bytes, and its content. That of DATA is the frame of the wire, with
//! its padding, so no byte is copied. That of HEADERS has the decoded head as text.
//!
//! **Outbound** a record is a head of twelve bytes, and its content: the fields of a head or of trailers as lines, or
//! bytes of a body. Only those of a body count against windows. The connection encodes fields when it writes them,
//! since the references of the compression depend on the order on the wire.

use std::io::IoSlice;
use std::mem::MaybeUninit;

use tidegate_buffer::{Gathered, Outbound};

use crate::frame_head::{FrameHead, HEAD_BYTES, flag, kind};

/// The head of an outbound record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Record {
    /// The kind.
    pub kind: RecordKind,
    /// The stream ends behind it.
    pub ends: bool,
    /// The status of a head of a response.
    pub status: u16,
    /// Bytes of the content.
    pub length: u64,
}

/// The kind of an outbound record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RecordKind {
    /// The head of a response: lines of fields.
    Response,
    /// The head of a request: the lines of its pseudo-fields, and those of its fields.
    Request,
    /// Trailers: lines of fields.
    Trailers,
    /// Bytes of a body.
    Data,
}

impl Record {
    /// The bytes of the head.
    #[must_use]
    #[inline]
    pub fn bytes(self) -> [u8; RECORD_BYTES] {
        let mut bytes = [0; RECORD_BYTES];
        bytes[0] = match self.kind {
            RecordKind::Response => 0,
            RecordKind::Request => 1,
            RecordKind::Trailers => 2,
            RecordKind::Data => 3,
        };
        bytes[1] = self.ends.into();
        bytes[2..4].copy_from_slice(&self.status.to_le_bytes());
        bytes[4..].copy_from_slice(&self.length.to_le_bytes());
        bytes
    }

    /// The head of the record that is next in a queue of a stream.
    #[must_use]
    #[inline]
    pub fn peek(queue: &Outbound) -> Option<Self> {
        let mut copy = [0; RECORD_BYTES];
        let bytes: &[u8; RECORD_BYTES] = match queue.front().and_then(|front| front.first_chunk()) {
            Some(bytes) => bytes,
            None => {
                copy_front(queue, &mut copy)?;
                &copy
            }
        };
        Some(Self::read(bytes))
    }

    /// The head of the record at the start of `bytes`, its content, and the rest.
    #[must_use]
    #[inline]
    pub fn split(bytes: &[u8]) -> Option<(Self, &[u8], &[u8])> {
        let (head, rest) = bytes.split_first_chunk()?;
        let record = Self::read(head);
        let (content, rest) = rest.split_at_checked(usize::try_from(record.length).ok()?)?;
        Some((record, content, rest))
    }

    #[inline]
    fn read(bytes: &[u8; RECORD_BYTES]) -> Self {
        let &[kind, ends, low, high, ref length @ ..] = bytes;
        let kind = match kind {
            0 => RecordKind::Response,
            1 => RecordKind::Request,
            2 => RecordKind::Trailers,
            _ => RecordKind::Data,
        };
        let status = u16::from_le_bytes([low, high]);
        Self { kind, ends: ends != 0, status, length: u64::from_le_bytes(*length) }
    }

    /// The content of the record that is next in a queue, if it lies in one piece behind its head.
    #[must_use]
    #[inline]
    pub fn content(self, queue: &Outbound) -> Option<&[u8]> {
        queue.front()?.get(RECORD_BYTES..RECORD_BYTES + self.length as usize)
    }

    /// Removes the head and the content of a record, and calls `read` with the content.
    pub fn take_content<T>(self, queue: &mut Outbound, read: impl FnOnce(&[u8]) -> T) -> Option<T> {
        let length = RECORD_BYTES + self.length as usize;
        let value = match self.content(queue) {
            Some(content) => read(content),
            None => {
                let mut copy = vec![0; length];
                copy_front(queue, &mut copy)?;
                read(&copy[RECORD_BYTES..])
            }
        };
        queue.advance(length as u64);
        Some(value)
    }
}

/// Writes the head of the inbound record of a head or of trailers into the place in front of its text.
///
/// # Panics
/// If `text` has no place of [`HEAD_BYTES`] at its start.
#[inline]
pub fn write_head_record(text: &mut [u8], ends: bool) {
    let flags = if ends { flag::END_STREAM } else { 0 };
    let length = (text.len() - HEAD_BYTES) as u32;
    text[..HEAD_BYTES].copy_from_slice(&FrameHead { length, kind: kind::HEADERS, flags, stream: 0 }.bytes());
}

/// Copies the first bytes of a queue, unless it has fewer.
#[cold]
fn copy_front(queue: &Outbound, to: &mut [u8]) -> Option<()> {
    // As behind the last record of a queue.
    if queue.pending() < to.len() as u64 {
        return None;
    }
    let mut parts: Vec<MaybeUninit<IoSlice<'_>>> = Vec::new();
    parts.resize_with(PARTS_MIN + to.len() / PART_BYTES_MIN, MaybeUninit::uninit);
    let Gathered::Parts(parts) = queue.gather(&mut parts, to.len()) else { return None };
    let mut left = to;
    for part in parts {
        let (place, rest) = left.split_at_mut_checked(part.len())?;
        place.copy_from_slice(part);
        left = rest;
    }
    left.is_empty().then_some(())
}

/// Bytes of the head of an outbound record.
pub const RECORD_BYTES: usize = 12;

/// In how many parts a record may lie, beside one for each `PART_BYTES_MIN`: all but the first and the last are whole
/// segments, of 4 KiB.
const PARTS_MIN: usize = 64;
const PART_BYTES_MIN: usize = 1024;

#[cfg(test)]
mod tests {
    use tidegate_buffer::Pool;

    use super::*;

    #[test]
    fn content_in_many_parts_is_read_whole() {
        let pool = Pool::new();
        let mut queue = Outbound::new(&pool);
        let lines = b"tide: ebb\r\n".repeat(40_000);
        let record = Record { kind: RecordKind::Trailers, ends: true, status: 0, length: lines.len() as u64 };
        queue.write_pieces((&record.bytes()[..], &lines[..], &[][..]));
        queue.flush();
        assert_eq!(Record::peek(&queue), Some(record));
        assert_eq!(record.take_content(&mut queue, |content| content == lines), Some(true));
        assert!(queue.is_empty());
    }
}
