//! `InboundFrames`: the frames that the peer sends on a request stream. A section with references to the table is rewritten;
//! everything else passes.
//!
//! A section that needs no table passes as it comes. One that waits for entries is not read on.

use tidegate_codec::ReadEnd;

use super::waiting::{PIECE_BYTES_MAX, WaitingBytes};
use crate::frame::{FrameHead, kind};
use crate::limits::Limits;
use crate::qpack::{QpackError, SectionState, TableDecoder};
use crate::varint;

#[derive(Debug, Default)]
pub(super) struct InboundFrames {
    /// Bytes that pass before the head of the next frame.
    pass_left: u64,
    /// A frame of which a part was read, and the bytes read behind its begin.
    partial: Vec<u8>,
    /// Bytes for the reader.
    ready: Vec<u8>,
    /// How many of them it has.
    taken: usize,
    /// The end of the stream, behind all of them.
    end: Option<ReadEnd>,
    /// Bytes that are counted for this stream.
    counted: usize,
    /// The bytes of the section that is being collected, with the head of its frame.
    section: Option<usize>,
}

/// The next step of a reader.
#[derive(Debug)]
pub(super) enum InboundStep {
    /// The reader has so many bytes.
    Read(usize, ReadEnd),
    /// Bytes of QUIC are read into the reader's space, and [`InboundFrames::pass`] follows.
    Pass,
    /// At most so many bytes of QUIC are read, and [`InboundFrames::collect`] follows.
    Collect(usize),
    /// The frame waits. A byte of QUIC is read, to find out whether the peer has reset the stream, and
    /// [`InboundFrames::collect`] follows.
    Wait,
}

/// The state that the frames of a connection share.
pub(super) struct Shared<'a> {
    pub(super) table: &'a mut TableDecoder,
    pub(super) waiting: &'a mut WaitingBytes,
    pub(super) limits: &'a Limits,
}

impl InboundFrames {
    /// Whether the peer's message was read to its end, so that nothing of it is left to decode.
    pub(super) fn has_ended(&self) -> bool {
        self.end == Some(ReadEnd::Ended) && self.partial.is_empty()
    }

    /// The next step for a reader with `space`.
    pub(super) fn step(
        &mut self,
        stream: u64,
        space: &mut [u8],
        shared: &mut Shared<'_>,
    ) -> Result<InboundStep, QpackError> {
        loop {
            if self.taken < self.ready.len() {
                return Ok(self.take_ready(space, shared.waiting));
            }
            if self.partial.is_empty() {
                return Ok(match self.end {
                    Some(end) => InboundStep::Read(0, end),
                    None if self.pass_left > 0 => InboundStep::Pass,
                    None => InboundStep::Collect(shared.waiting.piece_bytes(shared.limits.qpack_waiting_bytes_max)),
                });
            }
            let go_on = self.advance(stream, shared)?;
            self.count(shared.waiting);
            match go_on {
                Advance::Ready => {}
                Advance::Wait if self.end.is_some() => return Ok(InboundStep::Read(0, ReadEnd::Blocked)),
                Advance::Wait => return Ok(InboundStep::Wait),
                // The stream ends within a frame, which its reader finds out.
                Advance::More if self.end.is_some() => self.ready.append(&mut self.partial),
                Advance::More => {
                    let missing = self.section.map_or(usize::MAX, |bytes| bytes - self.partial.len());
                    let piece = shared.waiting.piece_bytes(shared.limits.qpack_waiting_bytes_max);
                    // The rest of a section has room.
                    return Ok(InboundStep::Collect(if self.section.is_some() { missing } else { piece }));
                }
            }
        }
    }

    fn take_ready(&mut self, space: &mut [u8], waiting: &mut WaitingBytes) -> InboundStep {
        let rest = self.ready.get(self.taken..).unwrap_or_default();
        let count = rest.len().min(space.len());
        space[..count].copy_from_slice(&rest[..count]);
        self.taken += count;
        if self.taken == self.ready.len() {
            (self.ready, self.taken) = (Vec::new(), 0);
            self.count(waiting);
        }
        InboundStep::Read(count, ReadEnd::More)
    }

    /// Bytes of QUIC were read into the reader's space. Returns those that are for it, and the state behind them.
    pub(super) fn pass(&mut self, read: &[u8], end: ReadEnd) -> (usize, ReadEnd) {
        let passed = self.pass_left.min(read.len() as u64) as usize;
        self.pass_left -= passed as u64;
        let behind = &read[passed..];
        if behind.is_empty() && !is_over(end) {
            return (passed, end);
        }
        self.collect(behind, end);
        if passed == 0 && behind.is_empty() { (0, end) } else { (passed, ReadEnd::More) }
    }

    /// Bytes of QUIC were read.
    pub(super) fn collect(&mut self, read: &[u8], end: ReadEnd) {
        self.partial.extend_from_slice(read);
        if is_over(end) {
            self.end = Some(end);
        }
        if let ReadEnd::Reset(_) = end {
            // The bytes before it are of no use.
            (self.partial, self.pass_left) = (Vec::new(), 0);
        }
    }

    /// Handles the frame that has begun.
    fn advance(&mut self, stream: u64, shared: &mut Shared<'_>) -> Result<Advance, QpackError> {
        let Some((head, head_bytes)) = FrameHead::read(&self.partial) else { return Ok(Advance::More) };
        if head.kind != kind::HEADERS {
            self.pass_frame(head_bytes as u64 + head.length);
            return Ok(Advance::Ready);
        }
        if head.length > shared.limits.field_section_bytes_max.into() {
            self.pass_too_large(head_bytes, head.length);
            return Ok(Advance::Ready);
        }
        let whole = head_bytes + head.length as usize;
        let section = &self.partial[head_bytes..whole.min(self.partial.len())];
        match shared.table.check(stream, section)? {
            // Its reader refuses a section that ends within its start.
            SectionState::Incomplete if self.partial.len() < whole => return Ok(Advance::More),
            SectionState::Static | SectionState::Incomplete => {
                self.pass_frame(whole as u64);
                return Ok(Advance::Ready);
            }
            SectionState::Blocked => return Ok(Advance::Wait),
            SectionState::Ready => {}
        }
        if self.section.is_none() {
            let more = whole.saturating_sub(self.partial.len());
            if !shared.waiting.begin(stream, more, shared.limits.qpack_waiting_bytes_max) {
                return Ok(Advance::Wait);
            }
            self.section = Some(whole);
        }
        if self.partial.len() < whole {
            return Ok(Advance::More);
        }
        self.end_section(shared.waiting);
        self.rewrite(stream, head_bytes..whole, shared)?;
        Ok(Advance::Ready)
    }

    fn rewrite(
        &mut self,
        stream: u64,
        place: std::ops::Range<usize>,
        shared: &mut Shared<'_>,
    ) -> Result<(), QpackError> {
        let mut section = Vec::with_capacity(2 * place.len());
        let end = place.end;
        let is_whole =
            shared.table.rewrite(stream, &self.partial[place], shared.limits.head_bytes_max, &mut section)?;
        self.partial.drain(..end);
        self.release_partial();
        let length = if is_whole { section.len() as u64 } else { varint::MAX };
        FrameHead { kind: kind::HEADERS, length }.write(&mut self.ready);
        if is_whole {
            self.ready.append(&mut section);
        }
        Ok(())
    }

    /// A frame passes as it is.
    fn pass_frame(&mut self, bytes: u64) {
        let here = bytes.min(self.partial.len() as u64) as usize;
        self.ready.extend(self.partial.drain(..here));
        self.pass_left = bytes - here as u64;
        self.release_partial();
    }

    /// A section above the limit: the reader sees a length that it refuses, also if it takes sections that have grown.
    fn pass_too_large(&mut self, head_bytes: usize, length: u64) {
        FrameHead { kind: kind::HEADERS, length: varint::MAX }.write(&mut self.ready);
        self.partial.drain(..head_bytes);
        self.pass_frame(length);
    }

    fn release_partial(&mut self) {
        if self.partial.is_empty() {
            self.partial = Vec::new();
        }
    }

    fn end_section(&mut self, waiting: &mut WaitingBytes) {
        if self.section.take().is_some() {
            waiting.end();
        }
    }

    /// Counts the bytes that wait: a section that is being collected counts whole.
    fn count(&mut self, waiting: &mut WaitingBytes) {
        let bytes = self.section.unwrap_or_default().max(self.partial.len()) + self.ready.len();
        waiting.change(self.counted, bytes);
        self.counted = bytes;
    }

    /// The stream is over.
    pub(super) fn release(mut self, stream: u64, waiting: &mut WaitingBytes) {
        self.end_section(waiting);
        (self.partial, self.ready) = (Vec::new(), Vec::new());
        self.count(waiting);
        waiting.remove(stream);
    }
}

/// The outcome of a step on the frame that has begun.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Advance {
    /// There are bytes for the reader, or bytes that pass.
    Ready,
    /// The frame needs more bytes.
    More,
    /// The frame waits for entries, or for room.
    Wait,
}

fn is_over(end: ReadEnd) -> bool {
    matches!(end, ReadEnd::Ended | ReadEnd::Reset(_))
}

const _: () = assert!(PIECE_BYTES_MAX <= 4096, "a piece is read into the stack");
