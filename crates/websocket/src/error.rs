//! The errors of a connection, sorted by blame, and the close code of each.

use std::fmt;

use tidegate_codec::{Blame, Fault};

use crate::close::CloseCode;

/// Why a connection fails, or why a message cannot be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Error {
    /// The peer broke the protocol.
    Peer(Violation),
    /// A limit was reached.
    Limit(Exceeded),
    /// The application sent a message that the protocol cannot express, at least not now. Nothing was written.
    Caller(Misuse),
    /// The memory for compression is not there.
    System,
}

/// How a peer broke the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Violation {
    /// A reserved bit is set that no extension gives a meaning here.
    ReservedBits,
    /// The opcode is reserved.
    Opcode(u8),
    /// A client's frame is not masked.
    Unmasked,
    /// A server's frame is masked.
    Masked,
    /// The length of a frame is not in its shortest form, or has its top bit set.
    Length,
    /// A control frame is longer than 125 bytes.
    ControlTooLong,
    /// A control frame is fragmented.
    ControlFragmented,
    /// A frame continues no message.
    NothingToContinue,
    /// A message begins within another.
    MessageUnfinished,
    /// A text, or the reason of a close frame, is not UTF-8.
    Utf8,
    /// The payload of a close frame has one byte.
    CloseLength,
    /// The code of a close frame may not be on the wire.
    CloseCode(u16),
    /// A compressed message is corrupt.
    Deflate,
    /// The peer ended the stream within a message.
    Truncated,
}

/// A limit that was reached: see [`Config`](crate::Config).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Exceeded {
    /// A message is longer than `message_bytes_max`.
    MessageBytes,
    /// A compressed message expands more than `ratio_max` times.
    Ratio,
    /// A message has more than `empty_frames_max` frames without payload.
    EmptyFrames,
    /// The peer sent more than `control_frames_max` control frames within a second.
    ControlFrames,
    /// The peer did not complete a message within `message_timeout`, and sent less than `message_rate_min`.
    MessageTimeout,
    /// The peer sent nothing within `pong_timeout` after a ping.
    PongTimeout,
    /// The peer did not complete the closing handshake within `close_timeout`.
    CloseTimeout,
}

/// A message that cannot be sent, at least not now.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Misuse {
    /// This side has sent its close frame.
    Closed,
    /// A message begins before the last piece of another, or a piece has another kind than the first one.
    MessageUnfinished,
    /// The payload of a ping or pong is longer than 125 bytes.
    ControlTooLong,
    /// The code of a close frame may not be on the wire.
    CloseCode(u16),
    /// The reason of a close frame is longer than 123 bytes.
    CloseReason,
    /// The bytes of text pieces are not UTF-8 together.
    Utf8,
    /// The frames of a client are masked, each with a key of its own, so a client has no broadcast.
    ClientBroadcast,
    /// The bytes are no broadcast of this codec.
    NoBroadcast,
}

impl Error {
    /// The code of the close frame that the peer gets; `None` if there is none.
    #[must_use]
    pub fn close_code(&self) -> Option<CloseCode> {
        match self {
            Self::Peer(Violation::Truncated) | Self::Caller(_) => None,
            Self::Peer(Violation::Utf8 | Violation::Deflate) => Some(CloseCode::INVALID_DATA),
            Self::Peer(_) => Some(CloseCode::PROTOCOL_ERROR),
            Self::Limit(Exceeded::MessageBytes | Exceeded::Ratio) => Some(CloseCode::TOO_BIG),
            Self::Limit(Exceeded::EmptyFrames | Exceeded::ControlFrames | Exceeded::MessageTimeout) => {
                Some(CloseCode::POLICY_VIOLATION)
            }
            // The peer reads nothing, or has closed already.
            Self::Limit(Exceeded::PongTimeout | Exceeded::CloseTimeout) => None,
            Self::System => Some(CloseCode::INTERNAL_ERROR),
        }
    }
}

impl Fault for Error {
    fn blame(&self) -> Blame {
        match self {
            Self::Peer(_) => Blame::Peer,
            Self::Limit(_) => Blame::Limit,
            Self::Caller(_) => Blame::Caller,
            Self::System => Blame::System,
        }
    }
}

impl From<Violation> for Error {
    fn from(violation: Violation) -> Self {
        Self::Peer(violation)
    }
}

impl From<Exceeded> for Error {
    fn from(exceeded: Exceeded) -> Self {
        Self::Limit(exceeded)
    }
}

impl From<Misuse> for Error {
    fn from(misuse: Misuse) -> Self {
        Self::Caller(misuse)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Peer(violation) => return violation.fmt(f),
            Self::Caller(misuse) => return misuse.fmt(f),
            Self::Limit(exceeded) => return exceeded.fmt(f),
            Self::System => "the memory to compress a WebSocket message is not there",
        })
    }
}

impl std::error::Error for Error {}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::ReservedBits => "a reserved bit of a WebSocket frame is set",
            Self::Opcode(opcode) => return write!(f, "the opcode {opcode} of a WebSocket frame is reserved"),
            Self::Unmasked => "a client sent a WebSocket frame that is not masked",
            Self::Masked => "a server sent a masked WebSocket frame",
            Self::Length => "the length of a WebSocket frame is not in its shortest form",
            Self::ControlTooLong => "a WebSocket control frame is longer than 125 bytes",
            Self::ControlFragmented => "a WebSocket control frame is fragmented",
            Self::NothingToContinue => "a WebSocket frame continues no message",
            Self::MessageUnfinished => "a WebSocket message begins within another",
            Self::Utf8 => "a WebSocket text is not UTF-8",
            Self::CloseLength => "the payload of a WebSocket close frame has one byte",
            Self::CloseCode(code) => return write!(f, "the WebSocket close code {code} may not be on the wire"),
            Self::Deflate => "a compressed WebSocket message is corrupt",
            Self::Truncated => "the peer ended the stream within a WebSocket message",
        })
    }
}

impl fmt::Display for Exceeded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::MessageBytes => "a WebSocket message is too long",
            Self::Ratio => "a compressed WebSocket message expands too much",
            Self::EmptyFrames => "a WebSocket message has too many empty frames",
            Self::ControlFrames => "the peer sent too many WebSocket control frames within a second",
            Self::MessageTimeout => "the peer did not complete a WebSocket message in time",
            Self::PongTimeout => "the peer sent nothing in time after a WebSocket ping",
            Self::CloseTimeout => "the peer did not complete the WebSocket closing handshake in time",
        })
    }
}

impl fmt::Display for Misuse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Closed => "the WebSocket closing handshake has begun",
            Self::MessageUnfinished => "a WebSocket message in pieces is not finished",
            Self::ControlTooLong => "the payload of a WebSocket ping or pong has at most 125 bytes",
            Self::CloseCode(code) => return write!(f, "the WebSocket close code {code} may not be sent"),
            Self::CloseReason => "the reason of a WebSocket close frame has at most 123 bytes",
            Self::Utf8 => "the pieces of a WebSocket text are not UTF-8",
            Self::ClientBroadcast => "a WebSocket client has no broadcast, since it masks each frame",
            Self::NoBroadcast => "the bytes are no WebSocket broadcast",
        })
    }
}

impl std::error::Error for Misuse {}
