//! `ClientError`: why a command has no reply that its caller can use, and whether it may have been executed.

use std::error::Error;
use std::fmt;

use bytes::Bytes;

use crate::client::error_kind::ErrorKind;

/// Why a command has no result.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum ClientError {
    /// No server has executed the command. It may be sent again.
    NotSent(Failure),
    /// The command was sent, and no reply came. The server may have executed it, and may not.
    MaybeExecuted(Failure),
    /// The server has answered with an error.
    Reply(ErrorReply),
    /// The reply is of another type than the caller demands.
    Type(WrongType),
}

/// The cause of [`ClientError::NotSent`] and [`ClientError::MaybeExecuted`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Failure {
    /// Too many commands or bytes wait already: [`ClientLimits`](crate::ClientLimits).
    QueueFull,
    /// The deadline of the command has passed.
    Deadline,
    /// The connection broke, or the server has closed it, or the client had to drop it because the replies no longer
    /// matched their commands.
    ConnectionLost,
    /// The server has refused the name, the password, the database or the version.
    Refused,
    /// The loop of the client has ended.
    LoopEnded,
    /// More of the reply waits for its reader than the caller has allowed: [`Call::wire`](crate::Call::wire).
    ReplyTooLong,
    /// The keys of the command belong to different slots of the cluster. Give them a common part in braces, or send a
    /// command for each.
    CrossSlot,
    /// The client does not know which server of the cluster the command concerns: give its key to
    /// [`Call::key`](crate::Call::key), or choose the server by [`Client::node_of`](crate::Client::node_of) or
    /// [`Client::masters`](crate::Client::masters).
    NoKey,
    /// No server of the cluster has the slot of the command's keys, or the sentinels know no master.
    NoMaster,
    /// The servers of the cluster have redirected the command too often.
    TooManyRedirects,
}

/// An error that a server has sent.
#[derive(Clone, PartialEq, Eq)]
pub struct ErrorReply(Bytes);

/// A reply of another type than demanded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WrongType {
    /// The Rust type, or what a reply of it looks like.
    pub expected: &'static str,
}

impl ErrorReply {
    pub(crate) fn new(text: Bytes) -> Self {
        Self(text)
    }

    /// The text, its code included.
    #[must_use]
    pub fn text(&self) -> &[u8] {
        &self.0
    }

    /// The first word, such as `ERR`, `WRONGTYPE`, `READONLY`, `LOADING` or `MOVED`.
    #[must_use]
    pub fn code(&self) -> &[u8] {
        self.0.split(|byte| *byte == b' ').next().unwrap_or_default()
    }

    /// The meaning of the code for the caller.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        ErrorKind::of_code(self.code())
    }
}

impl fmt::Debug for ErrorReply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}\"", self.0.escape_ascii())
    }
}

impl fmt::Display for ErrorReply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0.escape_ascii())
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::QueueFull => "too many commands wait already",
            Self::Deadline => "the deadline has passed",
            Self::ConnectionLost => "the connection was lost",
            Self::Refused => "the server refuses the client",
            Self::LoopEnded => "the event loop of the client has ended",
            Self::ReplyTooLong => "the reply is longer than the limit of its reader",
            Self::CrossSlot => "its keys belong to different slots: give them a common part in braces",
            Self::NoKey => "its key is not known: give it to Call::key, or choose a server",
            Self::NoMaster => "no server has the slot of its keys",
            Self::TooManyRedirects => "the servers redirect it in circles",
        })
    }
}

impl fmt::Display for WrongType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the reply is no {}", self.expected)
    }
}

impl fmt::Display for ClientError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotSent(failure) => write!(f, "the command was not sent: {failure}"),
            Self::MaybeExecuted(failure) => write!(f, "the command may have been executed: {failure}"),
            Self::Reply(error) => write!(f, "the server answers: {error}"),
            Self::Type(error) => error.fmt(f),
        }
    }
}

impl Error for ClientError {}
impl Error for ErrorReply {}
impl Error for WrongType {}

impl From<WrongType> for ClientError {
    fn from(error: WrongType) -> Self {
        Self::Type(error)
    }
}
