//! `RetainedBytes`: the bytes of a request's body that the function may still have in memory.
//!
//! An application takes a body piece by piece, and copies the bytes that it keeps: an axum extractor appends to its own
//! buffer, and so does a gRPC decoder. So the copies are estimated. The estimate ends with the exchange at the latest,
//! and no piece counts once the function is seen to work on pieces: it asks for the next one in a later turn than that
//! in which it got the last.

use std::time::Instant;

use tidegate_engine::{Account, ConnectionCharge};

/// How the bytes of a body make messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Framing {
    /// All of the body may be collected.
    #[default]
    Opaque,
    /// Messages with a prefix of five bytes: gRPC. One message is collected at a time.
    Grpc,
}

impl Framing {
    pub(crate) fn of(content_type: Option<&[u8]>) -> Self {
        let is_grpc = content_type.is_some_and(|value| value.starts_with(b"application/grpc"));
        if is_grpc { Self::Grpc } else { Self::Opaque }
    }
}

/// The part of its request's body that the function of the exchange in progress has received.
#[derive(Default)]
pub(crate) struct RetainedBytes {
    charge: Option<ConnectionCharge>,
    framing: Framing,
    /// The turn in which the function got the last piece, if it has not asked for another one since.
    last: Option<Instant>,
    /// The function works on pieces, or has begun to respond.
    is_streamed: bool,
    messages: Messages,
    /// Bytes that are held until the exchange is over, however they are read.
    whole: Option<ConnectionCharge>,
}

impl RetainedBytes {
    pub(crate) fn new(framing: Framing) -> Self {
        Self { framing, ..Self::default() }
    }

    /// The function asks for the next piece.
    pub(crate) fn on_asked(&mut self, now: Instant) {
        if self.last.take().is_some_and(|last| last != now) && self.framing == Framing::Opaque {
            self.stop();
        }
    }

    /// The function has got a piece, of which it may keep a copy.
    pub(crate) fn add(&mut self, piece: &[u8], now: Instant, account: impl FnOnce() -> Option<Account>) {
        if self.is_streamed {
            return;
        }
        self.last = Some(now);
        let bytes = match self.framing {
            Framing::Opaque => self.charge.as_ref().map_or(0, ConnectionCharge::bytes) + piece.len(),
            Framing::Grpc => self.messages.add(piece),
        };
        match &mut self.charge {
            Some(charge) => charge.resize(bytes),
            none => *none = account().map(|account| account.charge(bytes)),
        }
    }

    /// The function has all of its body, in memory of ours.
    pub(crate) fn keep(&mut self, charge: ConnectionCharge) {
        self.whole = Some(charge);
    }

    /// The head of the response goes out: later reads are reads for the response.
    pub(crate) fn on_response(&mut self) {
        if self.framing == Framing::Opaque {
            self.stop();
        }
    }

    fn stop(&mut self) {
        (self.charge, self.is_streamed) = (None, true);
    }
}

/// Follows gRPC messages.
#[derive(Default)]
struct Messages {
    prefix: [u8; PREFIX_BYTES],
    prefix_length: u8,
    /// Bytes of the current message that are still to come.
    left: u64,
    /// Bytes of the current message, or of the last one.
    held: usize,
}

impl Messages {
    /// Takes a piece, and returns the bytes of the current message so far, or of the last one.
    fn add(&mut self, mut piece: &[u8]) -> usize {
        while !piece.is_empty() {
            if self.left > 0 {
                let count = usize::try_from(self.left).unwrap_or(usize::MAX).min(piece.len());
                self.left -= count as u64;
                self.held += count;
                piece = &piece[count..];
                continue;
            }
            self.prefix[usize::from(self.prefix_length)] = piece[0];
            self.prefix_length += 1;
            piece = &piece[1..];
            if usize::from(self.prefix_length) == PREFIX_BYTES {
                let [_compressed, length @ ..] = self.prefix;
                (self.left, self.held, self.prefix_length) = (u32::from_be_bytes(length).into(), 0, 0);
            }
        }
        self.held
    }
}

/// A flag, and the length of the message.
const PREFIX_BYTES: usize = 5;

#[cfg(test)]
mod tests {
    use super::Messages;

    #[test]
    fn a_message_counts_until_the_next_one_begins_in_whatever_pieces_it_comes() {
        let wire = [&[0, 0, 0, 1, 0][..], &[7; 256], &[0, 0, 0, 0, 0], &[1, 0, 0, 0, 9], b"ebb"].concat();
        for size in 1..wire.len() {
            let (mut messages, mut most) = (Messages::default(), 0);
            for piece in wire.chunks(size) {
                most = most.max(messages.add(piece));
            }
            assert_eq!((messages.held, messages.left), (3, 6), "pieces of {size} bytes");
            assert!(most <= 256 && (size > 5 || most == 256), "pieces of {size} bytes: {most}");
        }
    }
}
