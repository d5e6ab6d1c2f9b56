//! `ChannelError`: why an operation on a channel has failed.

use std::error::Error;
use std::fmt;
use std::rc::Rc;

use crate::close_reason::CloseReason;
use crate::context::SendError;

/// Why an operation on a channel has failed.
///
/// It stays on its loop: it is not `Send`, because [`CloseReason::Failed`] keeps the application's own error as it is.
/// For another thread take a part of it: the text, or the match of [`closed`](Self::closed).
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum ChannelError {
    /// The connection is closed, or closing, for this reason. Messages that had arrived before were received first.
    Closed(Rc<CloseReason>),
    /// The deadline has passed. No message is lost: the operation can be repeated.
    Deadline,
    /// A message was not queued, because too many bytes wait already. From [`SendError::Full`], without the message.
    Full,
    /// The protocol cannot express a message. From [`SendError::Codec`].
    Codec(Rc<dyn Error>),
    /// A handler that keeps the channel used it during a dispatch. Handlers reach other connections by
    /// [`Remote`](crate::Remote); tasks may use any channel of their loop.
    Busy,
}

impl ChannelError {
    /// The reason why the connection is closed, if that is the error.
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

/// A session that returns a `ChannelError` can use `?` on both `recv` and `send`. The message is dropped.
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
