//! `FramedError`: why an operation on a codec over a stream failed.

use std::error::Error;
use std::fmt;
use std::io;

use tidegate_codec::{Blame, Fault};

/// Why an operation on a [`Framed`](super::Framed) failed.
#[derive(Debug)]
#[non_exhaustive]
pub enum FramedError<E> {
    /// The peer broke the protocol, or a limit of it was reached. The codec's last bytes were sent, and our side was
    /// shut down.
    Protocol(E),
    /// The stream failed.
    Io(io::Error),
    /// The stream took no byte for longer than [`FramedLimits::write_timeout`](super::FramedLimits::write_timeout).
    WriteTimeout,
    /// The application failed, and only the end of the stream ends the message: the caller must reset the stream, so
    /// that the peer does not take a part for the whole. Nothing more was written.
    ResetRequired,
    /// A message was not queued: too many bytes wait already.
    Full,
    /// A message was not queued: our side is closed, or closing.
    Closed,
    /// A message was not queued: the protocol cannot express it.
    Codec(E),
}

impl<E: Fault> Fault for FramedError<E> {
    fn blame(&self) -> Blame {
        match self {
            Self::Protocol(error) => error.blame(),
            Self::Io(_) => Blame::Peer,
            Self::WriteTimeout | Self::Full => Blame::Limit,
            Self::ResetRequired | Self::Closed | Self::Codec(_) => Blame::Caller,
        }
    }
}

impl<E: fmt::Display> fmt::Display for FramedError<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Protocol(error) | Self::Codec(error) => error.fmt(f),
            Self::Io(error) => write!(f, "the stream failed: {error}"),
            Self::WriteTimeout => f.write_str("the stream took no byte before the write deadline"),
            Self::ResetRequired => f.write_str("the application failed within a message that only a reset can cut off"),
            Self::Full => f.write_str("too much waits to be sent; await ready before sending more"),
            Self::Closed => f.write_str("the connection closes, nothing more can be sent"),
        }
    }
}

impl<E: Error + 'static> Error for FramedError<E> {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Protocol(error) | Self::Codec(error) => error.source(),
            Self::Io(error) => Some(error),
            Self::WriteTimeout | Self::ResetRequired | Self::Full | Self::Closed => None,
        }
    }
}
