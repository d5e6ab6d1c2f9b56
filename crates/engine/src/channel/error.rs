//! `ChannelError`: why something that was asked of a channel has failed.

use std::error::Error;
use std::fmt;
use std::rc::Rc;

use crate::close_reason::CloseReason;
use crate::context::SendError;

/// Why something that was asked of a channel has failed.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum ChannelError {
    /// The connection is gone, or going, for this reason. Messages that had arrived before were received first.
    Closed(Rc<CloseReason>),
    /// The deadline has come. Nothing is lost: it can be asked for again.
    Deadline,
    /// A message was not queued, since too much waits already; of [`SendError::Full`], without the message.
    Full,
    /// The protocol cannot say a message; of [`SendError::Codec`].
    Codec(Rc<dyn Error>),
    /// The channel was used while the loop visits somebody, by a handler that keeps it. Handlers reach other connections
    /// by [`Remote`](crate::Remote); tasks may use any channel of their loop.
    Busy,
}

impl ChannelError {
    /// Why the connection is gone, if that is what happened.
    #[must_use]
    pub fn closed(&self) -> Option<&CloseReason> {
        match self {
            Self::Closed(reason) => Some(reason),
            Self::Deadline | Self::Full | Self::Codec(_) | Self::Busy => None,
        }
    }
}

impl fmt::Display for ChannelError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Closed(reason) => reason.fmt(f),
            Self::Deadline => f.write_str("the deadline has come"),
            Self::Full => f.write_str("too much waits to be sent; await ready before sending more"),
            Self::Codec(error) => error.fmt(f),
            Self::Busy => f.write_str("a channel was used from within a handler; spawn a task that uses it"),
        }
    }
}

impl Error for ChannelError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Codec(error) => error.source(),
            _ => None,
        }
    }
}

/// So that a session which returns a `ChannelError` can use `?` on both `recv` and `send`. The message is dropped.
impl<M, E: Error + 'static> From<SendError<M, E>> for ChannelError {
    fn from(error: SendError<M, E>) -> Self {
        match error {
            SendError::Full(_) => Self::Full,
            SendError::Closed(_) => Self::Closed(Rc::new(CloseReason::Done)),
            SendError::Busy(_) => Self::Busy,
            SendError::Panicked => Self::Closed(Rc::new(CloseReason::Panicked)),
            SendError::Codec(error) => Self::Codec(Rc::new(error)),
        }
    }
}
