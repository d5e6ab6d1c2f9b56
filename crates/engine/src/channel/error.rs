//! `ChannelError`: why an operation on a channel has failed.

use std::error::Error;
use std::fmt;
use std::rc::Rc;

use crate::close_reason::CloseReason;
use crate::context::SendError;
use crate::portable_error::PortableError;

/// Why an operation on a channel has failed.
///
/// It stays on its loop: it is not `Send`, because [`CloseReason::Failed`] keeps the application's own error as it is.
/// For another thread, or for an error type that has to be `Send`, as that of `anyhow`, there is
/// [`into_send`](Self::into_send).
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

    /// The same error with its text and the texts of its sources, as one that is `Send` and `Sync`.
    ///
    /// ```
    /// use tidegate::framing::Lines;
    /// use tidegate::{Channel, ChannelError, PortableError};
    ///
    /// /// `anyhow::Result<()>` converts a `PortableError` by `?` as well.
    /// async fn echo(mut channel: Channel<Lines>) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    ///     while let Some(line) = channel.recv().await.map_err(ChannelError::into_send)? {
    ///         channel.send(line.into()).map_err(|error| error.into_send())?;
    ///     }
    ///     Ok(())
    /// }
    /// # let _ = echo;
    /// # let _: Option<PortableError> = None;
    /// ```
    #[must_use]
    pub fn into_send(self) -> PortableError {
        let blame = self.closed().and_then(CloseReason::blame);
        PortableError::new(&self, blame)
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
