//! `CloseReason`: why a connection is closed.

use std::error::Error;
use std::fmt;
use std::io;
use std::rc::Rc;

use tidegate_codec::mux::ResetCause;
use tidegate_codec::{Blame, Fault};

/// Why a connection is closed.
#[derive(Debug)]
#[non_exhaustive]
pub enum CloseReason {
    /// The handler, the channel or the protocol was done.
    Done,
    /// The application reset the connection on purpose: [`Channel::abort`](crate::Channel::abort) or
    /// [`Outcome::Abort`](crate::Outcome::Abort). The peer sees a reset.
    Aborted,
    /// A stream was reset with a number of its protocol.
    StreamReset {
        /// The number.
        code: u64,
        /// Whether the peer has reset it, or the application ([`Channel::reset`](crate::Channel::reset) or
        /// [`Outcome::Reset`](crate::Outcome::Reset)).
        by_peer: bool,
    },
    /// The peer broke the connection, or the network did.
    Broken(io::Error),
    /// The peer broke the protocol, or a limit of it was reached.
    Protocol(Box<dyn Fault>),
    /// The handler failed, or the task that served the connection.
    Failed(Box<dyn Error>),
    /// A deadline of the application has passed.
    Deadline,
    /// The handler panicked, or the codec, or the task that had the channel.
    Panicked,
    /// The peer took no byte for longer than [`Limits::write_timeout`](crate::Limits::write_timeout), or took bytes in
    /// that time at less than [`Limits::write_rate_min`](crate::Limits::write_rate_min).
    WriteTimeout,
    /// No byte moved for [`Deadlines::idle_timeout`](crate::Deadlines::idle_timeout).
    IdleTimeout,
    /// The peer did not complete a message in [`Deadlines::read_timeout`](crate::Deadlines::read_timeout), and sent less
    /// than [`Deadlines::read_rate_min`](crate::Deadlines::read_rate_min) meanwhile.
    ReadTimeout,
    /// The handshakes of filters took longer than
    /// [`Deadlines::handshake_timeout`](crate::Deadlines::handshake_timeout).
    HandshakeTimeout,
    /// The connection had reached [`Deadlines::age_max`](crate::Deadlines::age_max), and did not end within its grace.
    AgeTimeout,
    /// The peer made the protocol reply, and did not read the replies.
    RepliesUnread,
    /// The loop's memory was used up, and no other connection had more bytes waiting.
    Shed,
    /// The peer read more slowly than messages came to a [`Group`](crate::Group) that sheds such members.
    TooSlow,
    /// The deadline of a drain has passed.
    Drained,
    /// The loop ended.
    LoopEnded,
}

impl CloseReason {
    /// The party to blame; `None` if the connection closed in good order or as the application wanted.
    #[must_use]
    pub fn blame(&self) -> Option<Blame> {
        match self {
            Self::Done
            | Self::Aborted
            | Self::StreamReset { by_peer: false, .. }
            | Self::LoopEnded
            | Self::IdleTimeout => None,
            Self::Broken(_) | Self::StreamReset { .. } => Some(Blame::Peer),
            Self::Protocol(fault) => Some(fault.blame()),
            Self::Failed(_) | Self::Panicked => Some(Blame::Caller),
            Self::Deadline
            | Self::WriteTimeout
            | Self::ReadTimeout
            | Self::HandshakeTimeout
            | Self::AgeTimeout
            | Self::RepliesUnread
            | Self::Shed
            | Self::TooSlow
            | Self::Drained => Some(Blame::Limit),
        }
    }

    /// The cause that a session sends to the peer if it closes a stream for this reason before both sides have ended
    /// it.
    pub(crate) fn reset_cause(&self) -> Option<ResetCause> {
        match self {
            Self::Done => Some(ResetCause::Unneeded),
            Self::StreamReset { by_peer: true, .. } | Self::Broken(_) => None,
            Self::StreamReset { code, .. } => Some(ResetCause::Code(*code)),
            Self::Aborted
            | Self::Deadline
            | Self::WriteTimeout
            | Self::IdleTimeout
            | Self::ReadTimeout
            | Self::HandshakeTimeout
            | Self::AgeTimeout => Some(ResetCause::Cancelled),
            Self::Protocol(fault) => fault.reset_cause().or(match fault.blame() {
                Blame::Peer => Some(ResetCause::Violation),
                _ => Some(ResetCause::Failed),
            }),
            Self::Failed(_) | Self::Panicked => Some(ResetCause::Failed),
            Self::RepliesUnread | Self::Shed | Self::TooSlow | Self::Drained | Self::LoopEnded => {
                Some(ResetCause::Refused)
            }
        }
    }

    /// Whether a stream is reset for this reason, and not ended behind its bytes: its protocol has a number for the error.
    pub(crate) fn resets_stream(&self) -> bool {
        let Self::Protocol(fault) = self else { return false };
        fault.reset_cause().is_some_and(|cause| cause != ResetCause::Unneeded)
    }

    /// Why the streams of a session close that is over. It is made once for all of them: they may be many.
    pub(crate) fn of_streams(why: Option<&dyn fmt::Display>) -> Rc<Self> {
        let text = match why {
            Some(why) => format!("its session is closed: {why}"),
            None => "its session is closed".to_owned(),
        };
        Rc::new(Self::Broken(io::Error::new(io::ErrorKind::ConnectionAborted, text)))
    }

    pub(crate) fn cause(&self) -> Cause {
        match self {
            Self::Done => Cause::Done,
            Self::Aborted | Self::StreamReset { by_peer: false, .. } => Cause::Aborted,
            Self::Broken(_) | Self::StreamReset { .. } => Cause::Broken,
            Self::Protocol(_) => Cause::Protocol,
            Self::Failed(_) => Cause::Failed,
            Self::Deadline => Cause::Deadline,
            Self::Panicked => Cause::Panicked,
            Self::WriteTimeout => Cause::WriteTimeout,
            Self::IdleTimeout => Cause::IdleTimeout,
            Self::ReadTimeout => Cause::ReadTimeout,
            Self::HandshakeTimeout => Cause::HandshakeTimeout,
            Self::AgeTimeout => Cause::AgeTimeout,
            Self::RepliesUnread => Cause::RepliesUnread,
            Self::Shed => Cause::Shed,
            Self::TooSlow => Cause::TooSlow,
            Self::Drained | Self::LoopEnded => Cause::Drained,
        }
    }
}

impl fmt::Display for CloseReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Done => f.write_str("done"),
            Self::Aborted => f.write_str("the application reset the connection"),
            Self::StreamReset { code, by_peer: true } => write!(f, "the peer reset the stream with code {code}"),
            Self::StreamReset { code, .. } => write!(f, "the application reset the stream with code {code}"),
            Self::Broken(error) => write!(f, "the connection broke: {error}"),
            Self::Protocol(fault) => fault.fmt(f),
            Self::Failed(error) => write!(f, "the handler failed: {error}"),
            Self::Deadline => f.write_str("the application's deadline had come"),
            Self::Panicked => f.write_str("the handler panicked"),
            Self::WriteTimeout => f.write_str("the peer took too few bytes before the write deadline"),
            Self::IdleTimeout => f.write_str("no byte moved before the idle deadline"),
            Self::ReadTimeout => f.write_str("the peer sent too little of a message before the read deadline"),
            Self::HandshakeTimeout => f.write_str("the handshake was not complete before its deadline"),
            Self::AgeTimeout => f.write_str("the connection had reached its age, and did not end in time"),
            Self::RepliesUnread => f.write_str("the peer does not read the replies that it causes"),
            Self::Shed => f.write_str("shed: the memory budget is used up, and this connection had most bytes waiting"),
            Self::TooSlow => f.write_str("the peer read more slowly than its group was sent messages"),
            Self::Drained => f.write_str("the deadline of the drain had come"),
            Self::LoopEnded => f.write_str("the event loop ended"),
        }
    }
}

/// The causes that are counted, as an index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cause {
    Done,
    Aborted,
    Broken,
    Protocol,
    Failed,
    Deadline,
    Panicked,
    WriteTimeout,
    IdleTimeout,
    ReadTimeout,
    HandshakeTimeout,
    AgeTimeout,
    RepliesUnread,
    Shed,
    TooSlow,
    Drained,
}

pub(crate) const CAUSES: usize = Cause::Drained as usize + 1;
