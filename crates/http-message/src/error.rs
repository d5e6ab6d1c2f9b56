//! `BodyError`: why a body cannot be read or written further.

use std::error::Error;
use std::fmt;
use std::rc::Rc;

use tidegate_engine::{ChannelError, CloseReason};

/// Why a body cannot be read or written further.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum BodyError {
    /// The connection is closed, for this reason.
    Closed(Rc<CloseReason>),
    /// The body is longer than the caller, or a limit, allows.
    TooLong,
    /// The bytes are not valid in the content coding that the request names.
    Undecodable,
    /// The exchange that the body belongs to is over.
    Over,
    /// This kind of body cannot be read: it is one that is produced, or a file.
    Unreadable,
    /// The deadline of a client's request has come.
    Deadline,
    /// The protocol cannot express the written message: the body does not have its length, or a field is no trailer.
    Misuse(&'static str),
}

impl fmt::Display for BodyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Closed(reason) => write!(f, "the connection is closed: {reason}"),
            Self::TooLong => f.write_str("the body is too long"),
            Self::Undecodable => f.write_str("the body is not valid in its content coding"),
            Self::Over => f.write_str("the exchange that the body belongs to is over"),
            Self::Unreadable => f.write_str("this body can only be sent"),
            Self::Deadline => f.write_str("the deadline of the request has come"),
            Self::Misuse(text) => f.write_str(text),
        }
    }
}

impl Error for BodyError {}

impl From<ChannelError> for BodyError {
    fn from(error: ChannelError) -> Self {
        match error {
            ChannelError::Closed(reason) => Self::Closed(reason),
            ChannelError::Deadline => Self::Deadline,
            _ => Self::Misuse("the body was used from within a handler; use it in a task"),
        }
    }
}
