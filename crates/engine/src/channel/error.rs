//! `ChannelError`: why something that was asked of a channel has failed.

use std::fmt;
use std::rc::Rc;

use crate::closed::Closed;

/// Why something that was asked of a channel has failed.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum ChannelError {
    /// The connection is gone, or going, for this reason. Messages that had arrived before were received first.
    Closed(Rc<Closed>),
    /// The deadline has come. Nothing is lost: it can be asked for again.
    Deadline,
    /// The channel was used while the loop visits somebody, by a handler that keeps it. Handlers reach other connections
    /// by [`Remote`](crate::Remote); tasks may use any channel of their loop.
    Busy,
}

impl ChannelError {
    /// Why the connection is gone, if that is what happened.
    #[must_use]
    pub fn closed(&self) -> Option<&Closed> {
        match self {
            Self::Closed(reason) => Some(reason),
            Self::Deadline | Self::Busy => None,
        }
    }
}

impl fmt::Display for ChannelError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Closed(reason) => reason.fmt(f),
            Self::Deadline => f.write_str("the deadline has come"),
            Self::Busy => f.write_str("a channel was used from within a handler; spawn a task that uses it"),
        }
    }
}

impl std::error::Error for ChannelError {}
