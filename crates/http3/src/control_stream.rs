//! The control stream of the peer (RFC 9114 §6.2.1): whole frames out of bytes that come in pieces.
//!
//! A frame is kept until it is complete, up to a limit. Reserved and unknown frames are discarded as they come.

use crate::error::{Error, Exceeded, Violation};
use crate::frame::{FrameHead, is_of_http2, kind};
use crate::limits::Limits;

#[derive(Debug)]
pub(crate) struct ControlStream {
    /// The head of a frame that is not complete, or its payload.
    buffer: Vec<u8>,
    /// The frame whose payload comes.
    head: Option<FrameHead>,
    /// Bytes of a discarded frame that are to come.
    skip_left: u64,
    /// Bytes that may be discarded.
    reserved_left: u32,
    has_settings: bool,
}

/// A frame of a control stream.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ControlFrame {
    pub(crate) kind: u64,
    /// Empty if the frame is discarded.
    pub(crate) payload: Vec<u8>,
}

impl ControlStream {
    pub(crate) fn new(limits: &Limits) -> Self {
        Self {
            buffer: Vec::new(),
            head: None,
            skip_left: 0,
            reserved_left: limits.reserved_bytes_max,
            has_settings: false,
        }
    }

    /// A request is complete, so that further bytes may be discarded.
    pub(crate) fn credit(&mut self, limits: &Limits) {
        self.reserved_left = limits.reserved_bytes_max;
    }

    /// Reads from `bytes` up to the end of a frame. `None` once they are used up.
    pub(crate) fn read(&mut self, bytes: &mut &[u8], limits: &Limits) -> Result<Option<ControlFrame>, Error> {
        loop {
            let skipped = bytes.len().min(usize::try_from(self.skip_left).unwrap_or(usize::MAX));
            *bytes = &bytes[skipped..];
            self.skip_left -= skipped as u64;
            if let Some(head) = self.head {
                let missing = (head.length as usize).saturating_sub(self.buffer.len());
                let (piece, rest) = bytes.split_at(missing.min(bytes.len()));
                self.buffer.extend_from_slice(piece);
                *bytes = rest;
                if piece.len() < missing {
                    return Ok(None);
                }
                self.head = None;
                return Ok(Some(ControlFrame { kind: head.kind, payload: std::mem::take(&mut self.buffer) }));
            }
            let Some((&byte, rest)) = bytes.split_first() else { return Ok(None) };
            *bytes = rest;
            self.buffer.push(byte);
            let Some((head, head_bytes)) = FrameHead::read(&self.buffer) else { continue };
            self.buffer.clear();
            if let Some(frame) = self.begin(head, head_bytes, limits)? {
                return Ok(Some(frame));
            }
        }
    }

    /// The head of a frame is complete. A frame that is discarded is returned at once.
    fn begin(&mut self, head: FrameHead, head_bytes: usize, limits: &Limits) -> Result<Option<ControlFrame>, Error> {
        if !self.has_settings && head.kind != kind::SETTINGS {
            return Err(Violation::MissingSettings.into());
        }
        match head.kind {
            kind::SETTINGS if self.has_settings => return Err(Violation::FrameUnexpected.into()),
            kind::SETTINGS => self.has_settings = true,
            kind::DATA | kind::HEADERS | kind::PUSH_PROMISE => return Err(Violation::FrameUnexpected.into()),
            kind if is_of_http2(kind) => return Err(Violation::FrameUnexpected.into()),
            kind::CANCEL_PUSH | kind::GOAWAY | kind::MAX_PUSH_ID => {}
            kind::PRIORITY_UPDATE | kind::PRIORITY_UPDATE_OF_PUSH => {}
            kind => {
                let cost = head.length.saturating_add(head_bytes as u64);
                let left = u64::from(self.reserved_left).checked_sub(cost).ok_or(Exceeded::ReservedBytes)?;
                (self.reserved_left, self.skip_left) = (left as u32, head.length);
                return Ok(Some(ControlFrame { kind, payload: Vec::new() }));
            }
        }
        if head.length > limits.control_frame_bytes_max.into() {
            return Err(Exceeded::ControlFrame.into());
        }
        self.head = Some(head);
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frames(pieces: &[&[u8]], limits: &Limits) -> Result<Vec<ControlFrame>, Error> {
        let (mut stream, mut frames) = (ControlStream::new(limits), Vec::new());
        for mut piece in pieces.iter().copied() {
            while let Some(frame) = stream.read(&mut piece, limits)? {
                frames.push(frame);
            }
        }
        Ok(frames)
    }

    #[test]
    fn frames_are_the_same_at_every_split() {
        // SETTINGS, a reserved frame with two bytes, GOAWAY.
        let wire = [4, 2, 6, 1, 0x21, 2, 9, 9, 7, 1, 0];
        let limits = Limits::default();
        let whole = frames(&[&wire], &limits).expect("three frames");
        assert_eq!(whole.iter().map(|frame| frame.kind).collect::<Vec<_>>(), [4, 0x21, 7]);
        for split in 0..=wire.len() {
            assert_eq!(frames(&[&wire[..split], &wire[split..]], &limits).as_ref(), Ok(&whole), "{split}");
        }
        let bytes: Vec<_> = wire.chunks(1).collect();
        assert_eq!(frames(&bytes, &limits), Ok(whole));
    }

    #[test]
    fn discarded_bytes_have_a_bound() {
        let limits = Limits { reserved_bytes_max: 100, ..Limits::default() };
        let reserved = |length: u8| [&[4, 0, 0x21, 0x40, length][..], &vec![0; length.into()]].concat();
        assert!(frames(&[&reserved(97)], &limits).is_ok());
        assert_eq!(frames(&[&reserved(98)], &limits), Err(Exceeded::ReservedBytes.into()));
        let endless = [4, 0, 0x21, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff];
        assert_eq!(frames(&[&endless], &limits), Err(Exceeded::ReservedBytes.into()));
    }

    #[test]
    fn a_frame_that_is_kept_has_a_bound() {
        let limits = Limits { control_frame_bytes_max: 8, ..Limits::default() };
        assert_eq!(frames(&[&[4, 9]], &limits), Err(Exceeded::ControlFrame.into()));
        assert!(frames(&[&[4, 8]], &limits).is_ok());
    }
}
