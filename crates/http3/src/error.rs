//! The errors of connections and of request streams, sorted by blame, and the code of each.

use std::fmt;

use tidegate_codec::mux::ResetCause;
use tidegate_codec::{Blame, Fault};

use crate::qpack::QpackError;

/// A code of RESET_STREAM, STOP_SENDING and CONNECTION_CLOSE (RFC 9114 §8.1, RFC 9204 §6).
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct ErrorCode(pub u64);

#[expect(missing_docs, reason = "they are named as in the standard, without their prefix H3")]
impl ErrorCode {
    pub const DATAGRAM_ERROR: Self = Self(0x33);
    pub const NO_ERROR: Self = Self(0x100);
    pub const GENERAL_PROTOCOL_ERROR: Self = Self(0x101);
    pub const INTERNAL_ERROR: Self = Self(0x102);
    pub const STREAM_CREATION_ERROR: Self = Self(0x103);
    pub const CLOSED_CRITICAL_STREAM: Self = Self(0x104);
    pub const FRAME_UNEXPECTED: Self = Self(0x105);
    pub const FRAME_ERROR: Self = Self(0x106);
    pub const EXCESSIVE_LOAD: Self = Self(0x107);
    pub const ID_ERROR: Self = Self(0x108);
    pub const SETTINGS_ERROR: Self = Self(0x109);
    pub const MISSING_SETTINGS: Self = Self(0x10a);
    pub const REQUEST_REJECTED: Self = Self(0x10b);
    pub const REQUEST_CANCELLED: Self = Self(0x10c);
    pub const REQUEST_INCOMPLETE: Self = Self(0x10d);
    pub const MESSAGE_ERROR: Self = Self(0x10e);
    pub const CONNECT_ERROR: Self = Self(0x10f);
    pub const VERSION_FALLBACK: Self = Self(0x110);
    pub const QPACK_DECOMPRESSION_FAILED: Self = Self(0x200);
    pub const QPACK_ENCODER_STREAM_ERROR: Self = Self(0x201);
    pub const QPACK_DECODER_STREAM_ERROR: Self = Self(0x202);
    pub const WEBTRANSPORT_SESSION_GONE: Self = Self(0x170d_7b68);
    pub const WEBTRANSPORT_BUFFERED_STREAM_REJECTED: Self = Self(0x3994_bd84);
}

impl ErrorCode {
    /// The name, if the standard has one.
    #[must_use]
    pub const fn name(self) -> Option<&'static str> {
        Some(match self {
            Self::DATAGRAM_ERROR => "H3_DATAGRAM_ERROR",
            Self::NO_ERROR => "H3_NO_ERROR",
            Self::GENERAL_PROTOCOL_ERROR => "H3_GENERAL_PROTOCOL_ERROR",
            Self::INTERNAL_ERROR => "H3_INTERNAL_ERROR",
            Self::STREAM_CREATION_ERROR => "H3_STREAM_CREATION_ERROR",
            Self::CLOSED_CRITICAL_STREAM => "H3_CLOSED_CRITICAL_STREAM",
            Self::FRAME_UNEXPECTED => "H3_FRAME_UNEXPECTED",
            Self::FRAME_ERROR => "H3_FRAME_ERROR",
            Self::EXCESSIVE_LOAD => "H3_EXCESSIVE_LOAD",
            Self::ID_ERROR => "H3_ID_ERROR",
            Self::SETTINGS_ERROR => "H3_SETTINGS_ERROR",
            Self::MISSING_SETTINGS => "H3_MISSING_SETTINGS",
            Self::REQUEST_REJECTED => "H3_REQUEST_REJECTED",
            Self::REQUEST_CANCELLED => "H3_REQUEST_CANCELLED",
            Self::REQUEST_INCOMPLETE => "H3_REQUEST_INCOMPLETE",
            Self::MESSAGE_ERROR => "H3_MESSAGE_ERROR",
            Self::CONNECT_ERROR => "H3_CONNECT_ERROR",
            Self::VERSION_FALLBACK => "H3_VERSION_FALLBACK",
            Self::QPACK_DECOMPRESSION_FAILED => "QPACK_DECOMPRESSION_FAILED",
            Self::QPACK_ENCODER_STREAM_ERROR => "QPACK_ENCODER_STREAM_ERROR",
            Self::QPACK_DECODER_STREAM_ERROR => "QPACK_DECODER_STREAM_ERROR",
            Self::WEBTRANSPORT_SESSION_GONE => "WEBTRANSPORT_SESSION_GONE",
            Self::WEBTRANSPORT_BUFFERED_STREAM_REJECTED => "WEBTRANSPORT_BUFFERED_STREAM_REJECTED",
            _ => return None,
        })
    }
}

impl std::error::Error for ErrorCode {}

impl fmt::Debug for ErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for ErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => f.write_str(name),
            None => write!(f, "error {:#x}", self.0),
        }
    }
}

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
    /// A frame that the stream, its state or the role of the peer does not allow (RFC 9114 §4.1, §7).
    FrameUnexpected,
    /// A frame that its stream cuts off, or whose payload does not have the form of its type (RFC 9114 §7.1).
    FrameLayout,
    /// The control stream does not begin with SETTINGS (RFC 9114 §6.2.1).
    MissingSettings,
    /// A setting comes twice, has a value that it cannot have, or a number that is reserved for HTTP/2 (RFC 9114 §7.2.4).
    Settings,
    /// The control stream, or a QPACK stream, was closed (RFC 9114 §6.2.1, RFC 9204 §4.2).
    ClosedCriticalStream,
    /// A second stream of a type that a connection has once, or a stream that the role of the peer cannot open.
    StreamCreation,
    /// GOAWAY that grows, MAX_PUSH_ID that shrinks, or a number that no stream or push has.
    Id,
    /// A field section cannot be decoded (RFC 9204 §2.2).
    Qpack(QpackError),
    /// An instruction on the encoder stream that the permitted table does not allow (RFC 9204 §4.3).
    EncoderStream,
    /// An instruction on the decoder stream about something that was never sent (RFC 9204 §4.4).
    DecoderStream,
    /// A datagram without the number of a stream (RFC 9297 §2.1).
    Datagram,
}

/// Which limit was reached; see [`Limits`](crate::Limits).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Exceeded {
    /// The peer sent much that brings no request forward.
    Abuse,
    /// SETTINGS with too many settings.
    Settings,
    /// A frame of the control stream is too long.
    ControlFrame,
    /// The reserved and unknown frames of a stream have too many bytes.
    ReservedBytes,
    /// Too many unidirectional streams.
    UniStreams,
}

impl Error {
    /// The code of CONNECTION_CLOSE.
    #[must_use]
    pub fn code(self) -> ErrorCode {
        match self {
            Self::Peer(violation) => match violation {
                Violation::FrameUnexpected => ErrorCode::FRAME_UNEXPECTED,
                Violation::FrameLayout => ErrorCode::FRAME_ERROR,
                Violation::MissingSettings => ErrorCode::MISSING_SETTINGS,
                Violation::Settings => ErrorCode::SETTINGS_ERROR,
                Violation::ClosedCriticalStream => ErrorCode::CLOSED_CRITICAL_STREAM,
                Violation::StreamCreation => ErrorCode::STREAM_CREATION_ERROR,
                Violation::Id => ErrorCode::ID_ERROR,
                Violation::Qpack(_) => ErrorCode::QPACK_DECOMPRESSION_FAILED,
                Violation::EncoderStream => ErrorCode::QPACK_ENCODER_STREAM_ERROR,
                Violation::DecoderStream => ErrorCode::QPACK_DECODER_STREAM_ERROR,
                Violation::Datagram => ErrorCode::DATAGRAM_ERROR,
            },
            Self::Limit(_) => ErrorCode::EXCESSIVE_LOAD,
        }
    }

    /// The error in words.
    #[must_use]
    pub const fn text(self) -> &'static str {
        match self {
            Self::Peer(violation) => match violation {
                Violation::FrameUnexpected => "a frame that its stream or the state of it does not allow",
                Violation::FrameLayout => "a frame is cut off, or its payload does not have the form of its type",
                Violation::MissingSettings => "the control stream does not begin with SETTINGS",
                Violation::Settings => "a setting comes twice, or has a number or a value that it cannot have",
                Violation::ClosedCriticalStream => "a critical stream was closed",
                Violation::StreamCreation => "a stream was opened that a connection cannot have",
                Violation::Id => "a frame has a number that it cannot have",
                Violation::Qpack(_) => "a field section cannot be decoded",
                Violation::EncoderStream => "an instruction needs another dynamic table than there is",
                Violation::DecoderStream => "an instruction concerns something that was never sent",
                Violation::Datagram => "a datagram without the number of a stream",
            },
            Self::Limit(exceeded) => match exceeded {
                Exceeded::Abuse => "too many frames that bring no request forward",
                Exceeded::Settings => "too many settings",
                Exceeded::ControlFrame => "a frame of the control stream is too long",
                Exceeded::ReservedBytes => "reserved frames have too many bytes",
                Exceeded::UniStreams => "too many unidirectional streams",
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

impl From<QpackError> for Error {
    #[cold]
    fn from(error: QpackError) -> Self {
        Self::Peer(Violation::Qpack(error))
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
        if let Self::Peer(Violation::Qpack(error)) = self {
            write!(f, ": {error}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Error {}

/// Why a request stream ends early.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum StreamError {
    /// The message is malformed (RFC 9114 §4.1.2): its stream is reset, and the connection continues.
    Malformed,
    /// The stream ends without a request (RFC 9114 §4.1): it is reset, and the connection continues.
    Incomplete,
    /// A field section exceeds a limit. A server has written 431 and ends its side in good order; a client resets the
    /// stream.
    HeadTooLarge {
        /// 431 was written.
        is_answered: bool,
    },
    /// The connection ends.
    Connection(Error),
}

impl StreamError {
    /// The error of the connection, if the connection ends.
    #[must_use]
    pub const fn connection(self) -> Option<Error> {
        match self {
            Self::Connection(error) => Some(error),
            _ => None,
        }
    }

    /// The code of RESET_STREAM and STOP_SENDING, or of CONNECTION_CLOSE.
    /// [`ErrorCode::NO_ERROR`] means that this side ends with FIN, and that STOP_SENDING has this code.
    #[must_use]
    pub fn code(self) -> ErrorCode {
        match self {
            Self::Malformed => ErrorCode::MESSAGE_ERROR,
            Self::Incomplete => ErrorCode::REQUEST_INCOMPLETE,
            Self::HeadTooLarge { is_answered: true } => ErrorCode::NO_ERROR,
            Self::HeadTooLarge { is_answered: false } => ErrorCode::EXCESSIVE_LOAD,
            Self::Connection(error) => error.code(),
        }
    }
}

impl From<Error> for StreamError {
    #[cold]
    fn from(error: Error) -> Self {
        Self::Connection(error)
    }
}

impl From<Violation> for StreamError {
    #[cold]
    fn from(violation: Violation) -> Self {
        Self::Connection(Error::Peer(violation))
    }
}

impl Fault for StreamError {
    fn blame(&self) -> Blame {
        match self {
            Self::Malformed | Self::Incomplete => Blame::Peer,
            Self::HeadTooLarge { .. } => Blame::Limit,
            Self::Connection(error) => error.blame(),
        }
    }

    fn reset_cause(&self) -> Option<ResetCause> {
        let code = self.code();
        Some(match self {
            // The response is complete.
            _ if code == ErrorCode::NO_ERROR => ResetCause::Unneeded,
            Self::Connection(_) => ResetCause::Session(code.0),
            _ => ResetCause::Code(code.0),
        })
    }
}

impl fmt::Display for StreamError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Malformed => f.write_str("the message is malformed"),
            Self::Incomplete => f.write_str("the stream ends without a request"),
            Self::HeadTooLarge { .. } => f.write_str(HEAD_TOO_LARGE),
            Self::Connection(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for StreamError {}

/// The text of [`StreamError::HeadTooLarge`].
pub(crate) const HEAD_TOO_LARGE: &str = "a field section is too large";
