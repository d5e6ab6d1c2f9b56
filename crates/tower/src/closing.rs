//! `ClosingHandshake`: the end of a service's WebSocket when the server drains.
//!
//! The service has the stream, and its library writes the frames, so the close frame (RFC 6455 §5.5.1) of a server that
//! goes away is put between two frames of the service: a control frame may stand there, also within a message that comes in
//! several. Nothing of the service follows it. The connection ends when the peer has answered, or a while later.

use std::cell::{Cell, RefCell};
use std::future::pending;
use std::time::Duration;

use tidegate_engine::task;

/// How far a WebSocket has closed. Of another protocol it does nothing.
pub(crate) struct ClosingHandshake {
    is_websocket: bool,
    drains: Cell<bool>,
    /// The close frame was sent, by the service or here.
    has_closed: Cell<bool>,
    outbound: RefCell<Frames>,
    inbound: RefCell<Frames>,
}

impl ClosingHandshake {
    pub(crate) fn new(is_websocket: bool) -> Self {
        Self {
            is_websocket,
            drains: Cell::new(false),
            has_closed: Cell::new(false),
            outbound: RefCell::default(),
            inbound: RefCell::default(),
        }
    }

    /// Waits until the loop drains, and then until the peer has had its time to answer.
    pub(crate) async fn at_drain(&self) {
        if !self.is_websocket {
            return pending().await;
        }
        task::draining().await;
        self.drains.set(true);
        task::sleep(ANSWER_TIME).await;
    }

    /// The close frame, once, when it is due: the server drains, and no frame of the service is incomplete.
    pub(crate) fn take_frame(&self) -> Option<&'static [u8]> {
        let outbound = self.outbound.borrow();
        let may_close = self.is_websocket && !self.has_closed.get() && !outbound.has_close;
        let is_due = self.drains.get() && may_close && outbound.is_between();
        is_due.then(|| {
            self.has_closed.set(true);
            GOING_AWAY
        })
    }

    /// The part of the service's bytes that may be sent.
    pub(crate) fn admit<'a>(&self, bytes: &'a [u8]) -> &'a [u8] {
        if !self.is_websocket {
            return bytes;
        }
        if self.has_closed.get() {
            return &[];
        }
        let mut frames = self.outbound.borrow_mut();
        let mut end = 0;
        while end < bytes.len() {
            end += frames.advance(&bytes[end..]);
            if self.drains.get() && frames.is_between() && !frames.has_close {
                // The close frame comes next.
                break;
            }
        }
        &bytes[..end]
    }

    /// Bytes of the peer on their way to the service.
    pub(crate) fn on_received(&self, bytes: &[u8]) {
        if self.is_websocket {
            let mut frames = self.inbound.borrow_mut();
            let mut end = 0;
            while end < bytes.len() {
                end += frames.advance(&bytes[end..]);
            }
        }
    }

    /// Whether both sides have closed, so that the connection is over.
    pub(crate) fn is_answered(&self) -> bool {
        let inbound = self.inbound.borrow();
        self.has_closed.get() && inbound.has_close && inbound.is_between()
    }
}

/// The position in one direction of a WebSocket: between two frames, or within one.
#[derive(Debug, Default)]
struct Frames {
    head: [u8; HEAD_BYTES_MAX],
    head_bytes: usize,
    /// Payload bytes of the frame that are missing.
    left: u64,
    has_close: bool,
}

impl Frames {
    fn is_between(&self) -> bool {
        self.head_bytes == 0 && self.left == 0
    }

    /// Takes bytes up to the end of the frame that they begin with, or continue. Returns how many it took.
    fn advance(&mut self, bytes: &[u8]) -> usize {
        let mut taken = 0;
        while self.left == 0 {
            let Some(&byte) = bytes.get(taken) else { return taken };
            self.head[self.head_bytes] = byte;
            self.head_bytes += 1;
            taken += 1;
            if let Some(length) = payload_length(&self.head[..self.head_bytes]) {
                self.has_close |= self.head[0] & OPCODE == CLOSE;
                (self.head_bytes, self.left) = (0, length);
                if length == 0 {
                    return taken;
                }
            }
        }
        let rest = usize::try_from(self.left).unwrap_or(usize::MAX).min(bytes.len() - taken);
        self.left -= rest as u64;
        taken + rest
    }
}

/// The length of a payload, if the head of its frame is complete (RFC 6455 §5.2).
fn payload_length(head: &[u8]) -> Option<u64> {
    let (&second, rest) = head.get(1..)?.split_first()?;
    let mask_bytes = if second & MASKED == 0 { 0 } else { 4 };
    let (length, length_bytes) = match second & !MASKED {
        126 => (u64::from(u16::from_be_bytes(*rest.first_chunk()?)), 2),
        127 => (u64::from_be_bytes(*rest.first_chunk()?), 8),
        length => (length.into(), 0),
    };
    (rest.len() == length_bytes + mask_bytes).then_some(length)
}

/// A close frame of a server with the code 1001.
const GOING_AWAY: &[u8] = &[0x88, 2, 0x03, 0xe9];

const OPCODE: u8 = 0x0f;
const CLOSE: u8 = 8;
const MASKED: u8 = 0x80;

/// Two bytes, eight of a length, four of a mask.
const HEAD_BYTES_MAX: usize = 14;

/// How long after the drain began a WebSocket may stay: as long as the peer of one of ours may take to answer.
const ANSWER_TIME: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(opcode: u8, masked: bool, length: usize) -> Vec<u8> {
        let bit = if masked { MASKED } else { 0 };
        let mut frame = vec![0x80 | opcode];
        match length {
            0..=125 => frame.push(bit | length as u8),
            126..=65_535 => {
                frame.push(bit | 126);
                frame.extend_from_slice(&(length as u16).to_be_bytes());
            }
            _ => {
                frame.push(bit | 127);
                frame.extend_from_slice(&(length as u64).to_be_bytes());
            }
        }
        frame.extend_from_slice(&[1, 2, 3, 4][..if masked { 4 } else { 0 }]);
        frame.resize(frame.len() + length, 0x88);
        frame
    }

    #[test]
    fn frames_end_where_they_end_however_their_bytes_are_split() {
        for masked in [false, true] {
            let lengths = [0, 1, 125, 126, 65_535, 65_536];
            let wire: Vec<u8> = lengths.iter().flat_map(|length| frame(2, masked, *length)).collect();
            for step in [1, 2, 3, 7, 13, 1000, wire.len()] {
                let (mut frames, mut ends) = (Frames::default(), 0);
                for piece in wire.chunks(step) {
                    let mut taken = 0;
                    while taken < piece.len() {
                        taken += frames.advance(&piece[taken..]);
                        ends += usize::from(frames.is_between());
                    }
                }
                assert_eq!((ends, frames.has_close), (lengths.len(), false), "{step} bytes at a time");
            }
            let close = frame(8, masked, 2);
            let mut frames = Frames::default();
            assert_eq!(frames.advance(&close), close.len());
            assert!(frames.has_close && frames.is_between());
        }
    }

    #[test]
    fn a_close_frame_goes_between_two_frames_and_nothing_behind_it() {
        let closing = ClosingHandshake::new(true);
        let wire = [frame(1, false, 200), frame(1, false, 3)].concat();
        assert_eq!(closing.admit(&wire[..100]), &wire[..100]);
        closing.drains.set(true);
        assert_eq!(closing.take_frame(), None, "a frame is incomplete");
        assert_eq!(closing.admit(&wire[100..]), &wire[100..204]);
        assert_eq!(closing.take_frame(), Some(GOING_AWAY));
        assert_eq!(closing.admit(&wire), b"");
        assert_eq!(closing.take_frame(), None);
        closing.on_received(&frame(1, true, 3));
        assert!(!closing.is_answered());
        closing.on_received(&frame(8, true, 2));
        assert!(closing.is_answered());
    }

    #[test]
    fn a_service_that_closes_by_itself_is_left_alone() {
        let closing = ClosingHandshake::new(true);
        let close = frame(8, false, 2);
        assert_eq!(closing.admit(&close), close);
        closing.drains.set(true);
        assert_eq!(closing.take_frame(), None);
        let closing = ClosingHandshake::new(false);
        closing.drains.set(true);
        assert_eq!(closing.admit(b"not a WebSocket"), b"not a WebSocket");
        assert_eq!((closing.take_frame(), closing.is_answered()), (None, false));
    }
}
