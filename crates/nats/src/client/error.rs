//! `ClientError`: why a call has no result, and whether the message may have been processed.

use std::error::Error;
use std::fmt;

use crate::error::NatsError;

/// Why a call of the client has no result.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum ClientError {
    /// The message cannot be expressed: a subject with a space or a wildcard, a header with a line break.
    Invalid(NatsError),
    /// The message is longer than the server accepts (`max_payload`), or than
    /// [`payload_bytes_max`](crate::ProtocolLimits::payload_bytes_max).
    TooLong {
        /// The bytes of its headers and payload.
        bytes: usize,
        /// The limit.
        bytes_max: u64,
    },
    /// No server has the message. It may be sent again.
    NotSent(Failure),
    /// The message was sent, and no reply came. It may have been processed, and may not.
    MaybeProcessed(Failure),
    /// Nothing subscribes to the subject of the request: no service runs.
    NoResponders,
}

/// The cause of [`ClientError::NotSent`] and [`ClientError::MaybeProcessed`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Failure {
    /// Too many messages, bytes, requests or subscriptions wait already: [`ClientLimits`](crate::ClientLimits).
    QueueFull,
    /// The deadline has passed.
    Deadline,
    /// The connection broke, or the server has closed it.
    ConnectionLost,
    /// The server refuses the client: its user, password, token or key.
    Refused,
    /// The client was drained.
    Drained,
    /// The loop of the client has ended.
    LoopEnded,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::QueueFull => "too much waits already",
            Self::Deadline => "the deadline has passed",
            Self::ConnectionLost => "the connection was lost",
            Self::Refused => "the server refuses the client: check its credentials",
            Self::Drained => "the client was drained",
            Self::LoopEnded => "the event loop of the client has ended",
        })
    }
}

impl fmt::Display for ClientError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Invalid(error) => write!(f, "the message cannot be sent: {error}"),
            Self::TooLong { bytes, bytes_max } => {
                write!(
                    f,
                    "the message has {bytes} bytes, and the server accepts {bytes_max}: send less, or raise max_payload"
                )
            }
            Self::NotSent(failure) => write!(f, "the message was not sent: {failure}"),
            Self::MaybeProcessed(failure) => write!(f, "the message may have been processed: {failure}"),
            Self::NoResponders => f.write_str("nothing subscribes to the subject of the request: start its service"),
        }
    }
}

impl Error for ClientError {}
