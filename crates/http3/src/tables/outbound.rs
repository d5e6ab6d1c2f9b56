//! `OutboundFrames`: the frames that this side sends on a request stream. Sections get references to the table; everything
//! else passes.
//!
//! QUIC may take a part of a rewritten frame. The last byte of the frame is taken of the caller only then when QUIC has taken the
//! rewritten one, so the caller keeps the stream open until then.

use tidegate_codec::WriteRefused;

use crate::frame::{FrameHead, kind};

/// Where frames go.
pub(super) trait SectionSink {
    /// Appends a section with references to `out`.
    fn encode(&mut self, section: &[u8], out: &mut Vec<u8>);

    /// Passes bytes to QUIC. Returns how many it has taken.
    fn write(&mut self, bytes: &[u8]) -> Result<usize, WriteRefused>;
}

#[derive(Debug, Default)]
pub(super) struct OutboundFrames {
    /// Bytes that pass before the head of the next frame.
    pass_left: u64,
    /// A frame that the caller has written in part.
    partial: Vec<u8>,
    /// Bytes in place of a frame whose last byte is not taken.
    pending: Vec<u8>,
}

impl OutboundFrames {
    /// Whether so many bytes pass as they are.
    pub(super) fn passes(&self, bytes: usize) -> bool {
        self.pending.is_empty() && self.partial.is_empty() && self.pass_left >= bytes as u64
    }

    /// Bytes were passed.
    pub(super) fn on_passed(&mut self, bytes: usize) {
        self.pass_left = self.pass_left.saturating_sub(bytes as u64);
    }

    /// Takes bytes of the caller. Returns how many.
    pub(super) fn write(&mut self, bytes: &[u8], sink: &mut impl SectionSink) -> Result<usize, WriteRefused> {
        let mut taken = 0;
        while let Some(rest) = bytes.get(taken..).filter(|rest| !rest.is_empty()) {
            if !self.pending.is_empty() {
                let written = sink.write(&self.pending)?;
                self.pending.drain(..written);
                if !self.pending.is_empty() {
                    break;
                }
                (self.pending, taken) = (Vec::new(), taken + 1);
            } else if self.pass_left > 0 {
                let piece = &rest[..self.pass_left.min(rest.len() as u64) as usize];
                let written = sink.write(piece)?;
                self.on_passed(written);
                taken += written;
                if written < piece.len() {
                    break;
                }
            } else {
                taken += self.begin(rest, sink);
            }
        }
        Ok(taken)
    }

    /// Takes bytes of the frame that begins or goes on. Returns how many. Those of a frame that is complete are pending, and its last
    /// byte is left to the caller.
    fn begin(&mut self, rest: &[u8], sink: &mut impl SectionSink) -> usize {
        let mut taken = 0;
        loop {
            let whole = match FrameHead::read(&self.partial) {
                Some((FrameHead { kind: kind::HEADERS, length }, head_bytes)) => head_bytes + length as usize,
                Some((head, head_bytes)) if self.partial.len() == head_bytes => {
                    // Its head was taken but for the last byte.
                    (self.pending, self.pass_left) = (std::mem::take(&mut self.partial), head.length);
                    return taken - 1;
                }
                _ => self.partial.len() + 1,
            };
            let missing = whole - self.partial.len();
            let piece = rest.get(taken..).unwrap_or_default();
            let piece = &piece[..missing.min(piece.len())];
            self.partial.extend_from_slice(piece);
            taken += piece.len();
            if piece.len() < missing {
                return taken;
            }
            if let Some((FrameHead { kind: kind::HEADERS, length }, head_bytes)) = FrameHead::read(&self.partial)
                && self.partial.len() == head_bytes + length as usize
            {
                let mut section = Vec::with_capacity(self.partial.len());
                sink.encode(&self.partial[head_bytes..], &mut section);
                FrameHead { kind: kind::HEADERS, length: section.len() as u64 }.write(&mut self.pending);
                self.pending.append(&mut section);
                self.partial = Vec::new();
                return taken - 1;
            }
        }
    }
}
