//! The errors of a connection, sorted by blame, and the code that the peer receives for each in GOAWAY.

use std::fmt;

use tidegate_codec::{Blame, Fault};

use crate::frame::ErrorCode;
use crate::hpack::HpackError;

/// Why a connection ends early.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Error {
    /// The peer broke the protocol.
    Peer(Violation),
    /// A limit was reached.
    Limit(Exceeded),
}

/// How a peer broke the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Violation {
    /// The connection does not begin with the preface, or its first frame is not SETTINGS (RFC 9113 §3.4).
    Preface,
    /// A frame is longer than SETTINGS_MAX_FRAME_SIZE, or has a length that its type cannot have (RFC 9113 §4.2).
    FrameSize,
    /// A frame concerns a stream that its type cannot concern: the connection, or a particular one.
    FrameStream,
    /// The padding is longer than the frame (RFC 9113 §6.1).
    Padding,
    /// A frame concerns a stream that was never opened (RFC 9113 §5.1).
    IdleStream,
    /// A frame other than PRIORITY concerns a stream that is closed (RFC 9113 §5.1).
    ClosedStream,
    /// A stream has a number that the side that opens it cannot use, or one that is not above all before (RFC 9113
    /// §5.1.1).
    StreamId,
    /// A frame other than CONTINUATION within a field block, or CONTINUATION outside of one (RFC 9113 §6.10).
    Continuation,
    /// A field block cannot be decoded (RFC 9113 §4.3).
    Hpack(HpackError),
    /// A setting has a value that it cannot have (RFC 9113 §6.5.2).
    Setting,
    /// SETTINGS_INITIAL_WINDOW_SIZE is above 2^31 − 1.
    WindowSetting,
    /// A WINDOW_UPDATE of 0 for the connection (RFC 9113 §6.9).
    EmptyUpdate,
    /// The window of the connection, or of a stream by SETTINGS, exceeds 2^31 − 1 bytes (RFC 9113 §6.9.1).
    WindowOverflow,
    /// More bytes than the window of the connection or of a stream allows.
    WindowExceeded,
    /// PUSH_PROMISE, which a client must not send, and which our client does not allow (RFC 9113 §8.4).
    Push,
    /// A stream depends on itself (RFC 7540 §5.3.1).
    SelfDependency,
    /// GOAWAY with a higher stream than the one before (RFC 9113 §6.8).
    GoAwayOrder,
    /// The peer stopped sending within a frame.
    Truncated,
}

/// Which limit was reached; see [`Limits`](crate::Limits).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Exceeded {
    /// The peer sent much that brings no request forward.
    Abuse,
    /// A field block is too long to be decoded.
    FieldBlock,
    /// The peer opened and reset too many streams, or made us reset them.
    Resets,
    /// The preface or the first SETTINGS took too long.
    Time,
    /// A frame or a field block took too long.
    FrameTime,
    /// The peer did not acknowledge SETTINGS in time (RFC 9113 §6.5.3).
    SettingsTime,
    /// The peer did not answer a PING in time.
    PingTime,
}

impl Error {
    /// The code that the peer receives in GOAWAY.
    #[must_use]
    pub fn code(self) -> ErrorCode {
        match self {
            Self::Peer(violation) => match violation {
                Violation::FrameSize => ErrorCode::FRAME_SIZE_ERROR,
                Violation::ClosedStream => ErrorCode::STREAM_CLOSED,
                Violation::Hpack(_) => ErrorCode::COMPRESSION_ERROR,
                Violation::WindowSetting | Violation::WindowOverflow | Violation::WindowExceeded => {
                    ErrorCode::FLOW_CONTROL_ERROR
                }
                _ => ErrorCode::PROTOCOL_ERROR,
            },
            Self::Limit(Exceeded::Time | Exceeded::SettingsTime) => ErrorCode::SETTINGS_TIMEOUT,
            // No code is about it, and the peer has broken no rule.
            Self::Limit(Exceeded::PingTime) => ErrorCode::NO_ERROR,
            Self::Limit(_) => ErrorCode::ENHANCE_YOUR_CALM,
        }
    }

    /// The error in words.
    #[must_use]
    pub const fn text(self) -> &'static str {
        match self {
            Self::Peer(violation) => match violation {
                Violation::Preface => "the connection does not begin with the preface and SETTINGS",
                Violation::FrameSize => "a frame has a length that it cannot have",
                Violation::FrameStream => "a frame concerns a stream that it cannot concern",
                Violation::Padding => "the padding of a frame is longer than the frame",
                Violation::IdleStream => "a frame concerns a stream that was never opened",
                Violation::ClosedStream => "a frame concerns a stream that is closed",
                Violation::StreamId => "a stream was opened with a number that it cannot have",
                Violation::Continuation => "a field block is not continued, or CONTINUATION continues none",
                Violation::Hpack(_) => "a field block cannot be decoded",
                Violation::Setting => "a setting has a value that it cannot have",
                Violation::WindowSetting => "the initial window is larger than allowed",
                Violation::EmptyUpdate => "a window update of 0 bytes",
                Violation::WindowOverflow => "a window exceeds its maximum",
                Violation::WindowExceeded => "more bytes than a window allows",
                Violation::Push => "PUSH_PROMISE, which is not allowed",
                Violation::SelfDependency => "a stream depends on itself",
                Violation::GoAwayOrder => "GOAWAY with a higher stream than before",
                Violation::Truncated => "the peer stopped sending within a frame",
            },
            Self::Limit(exceeded) => match exceeded {
                Exceeded::Abuse => "too many frames that bring no request forward",
                Exceeded::FieldBlock => "a field block is too long",
                Exceeded::Resets => "too many streams were reset",
                Exceeded::Time => "the preface or the first SETTINGS took too long",
                Exceeded::FrameTime => "a frame or a field block took too long",
                Exceeded::SettingsTime => "SETTINGS were not acknowledged in time",
                Exceeded::PingTime => "a PING was not answered in time",
            },
        }
    }
}

impl From<Violation> for Error {
    #[cold]
    fn from(violation: Violation) -> Self {
        Self::Peer(violation)
    }
}

impl From<Exceeded> for Error {
    #[cold]
    fn from(exceeded: Exceeded) -> Self {
        Self::Limit(exceeded)
    }
}

impl From<HpackError> for Error {
    #[cold]
    fn from(error: HpackError) -> Self {
        Self::Peer(Violation::Hpack(error))
    }
}

impl Fault for Error {
    fn blame(&self) -> Blame {
        match self {
            Self::Peer(_) => Blame::Peer,
            Self::Limit(_) => Blame::Limit,
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text())?;
        if let Self::Peer(Violation::Hpack(error)) = self {
            write!(f, ": {error}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Error {}
