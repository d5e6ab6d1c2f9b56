//! `Handler`: the application on one connection.

use std::error::Error;

use tidegate_codec::Pipeline;

use crate::close_reason::CloseReason;
use crate::connection::Switch;
use crate::context::Context;

/// The application on one connection: it gets events, one at a time, and answers each with an [`Outcome`].
///
/// A handler is never re-entered. Its messages are queued, and leave once it has returned and the input is used up. If
/// it panics, its connection is closed and no other is affected.
///
/// ```
/// use tidegate::framing::Lines;
/// use tidegate::{Context, Handler, Outcome, Slice};
///
/// /// Answers every line with itself.
/// struct Echo;
///
/// impl Handler<Lines> for Echo {
///     type Post = ();
///
///     fn message(&mut self, line: Slice, cx: &mut Context<'_, Lines>) -> Outcome<Lines> {
///         match cx.send(line.into()) {
///             Ok(_) => Outcome::Continue,
///             Err(error) => Outcome::fail(error),
///         }
///     }
/// }
/// ```
pub trait Handler<C: Pipeline>: 'static {
    /// The type that other threads may post to it, through a [`Remote`](crate::Remote).
    type Post: Send + 'static;

    /// Whether [`closed`](Self::closed) has an effect. If not, `false` saves memory: a stream of a session whose response is
    /// complete, and that waits for its peer, drops its handler.
    const OBSERVES_CLOSE: bool = true;

    /// The connection is open. If a filter below has a handshake, no bytes can be exchanged before
    /// [`Event::Established`]; messages that the handler sends earlier are queued until then.
    fn open(&mut self, _cx: &mut Context<'_, C, Self::Post>) -> Outcome<C> {
        Outcome::Continue
    }

    /// A message has arrived. The messages that came before the connection failed arrive as well, though nothing that the
    /// handler sends then leaves.
    fn message(&mut self, message: C::In, cx: &mut Context<'_, C, Self::Post>) -> Outcome<C>;

    /// An event other than a message.
    ///
    /// By default the end of the peer's stream, and a drain of the server, close the connection once everything was
    /// sent. A protocol that knows its own end, as HTTP does, is left to find it. A handler that overrides this method
    /// replaces that default: a connection that answers [`Event::ReadClosed`] with [`Outcome::Continue`] stays open
    /// until the handler [shuts down its own side](Context::shutdown_write) as well, or the peer resets the connection.
    fn event(&mut self, event: Event<Self::Post>, cx: &mut Context<'_, C, Self::Post>) -> Outcome<C> {
        event.by_default(cx)
    }

    /// The codec has failed, or a filter below it, for this reason, and the connection begins to close: the codec's
    /// output is still sent. [`closed`](Self::closed) follows when all is over.
    fn faulted(&mut self, _reason: &CloseReason, _cx: &mut Context<'_, C, Self::Post>) {}

    /// The connection is closed, for this reason. It is the handler's last call.
    fn closed(&mut self, _reason: &CloseReason) {}
}

/// The events that a handler receives besides messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event<P> {
    /// The connection was unwritable and is writable again. It comes at most once per turn.
    Writable,
    /// The kernel has all bytes up to the watched position.
    Flushed,
    /// The deadline that the handler set has come.
    Deadline,
    /// The dispatch is over within which the handler has asked for this by
    /// [`notify_after_dispatch`](Context::notify_after_dispatch): the messages that came with it were delivered.
    DispatchOver,
    /// The future of a [`HandlerTask`](crate::task::HandlerTask) is complete.
    TaskFinished,
    /// Another thread has posted this.
    Posted(P),
    /// No further message will come: the peer shut down its sending side, or the protocol ended. It may still read.
    ReadClosed,
    /// The peer has shut down its sending side, as the handler has asked by [`watch_end`](Context::watch_end). Messages
    /// may have come before, and wait to be decoded.
    HungUp,
    /// The handshake is over.
    Established,
    /// The server drains: finish the work in progress, begin no new work.
    Drain,
}

impl<P: Send + 'static> Event<P> {
    /// The default outcome: for the events that a handler's own [`event`](Handler::event) does not handle.
    pub fn by_default<C: Pipeline>(self, cx: &Context<'_, C, P>) -> Outcome<C> {
        match self {
            Self::ReadClosed | Self::Drain if !cx.codec().status().reports_finish => Outcome::Close,
            _ => Outcome::Continue,
        }
    }
}

/// The next step that a handler requests.
///
/// A `Result` converts into an outcome: `cx.send(message).into()` continues, or closes the connection because of the
/// error.
#[derive(Debug)]
pub enum Outcome<C> {
    /// Go on.
    Continue,
    /// Close the connection once everything was sent.
    Close,
    /// Reset the connection at once, and drop the pending output. The peer sees a reset and not the end of the stream.
    /// A gateway does this when its other side was reset. The reason is [`CloseReason::Aborted`].
    Abort,
    /// Reset a stream of a session with a number of its protocol; on a connection of its own this is `Abort`. The reason
    /// is [`CloseReason::StreamReset`].
    Reset(u64),
    /// Close the connection once everything was sent, and report the error. Where only the end of the connection ends a
    /// message, as with lines or raw bytes, the connection is reset instead, so that the peer does not take a truncated
    /// message for a complete one.
    Fail(Box<dyn Error>),
    /// Go on with another codec and another handler. The new codec decodes the bytes that were read already.
    Switch(Switch<C>),
}

impl<C: Pipeline> Outcome<C> {
    /// Closes the connection because of `error`, once everything was sent.
    pub fn fail(error: impl Into<Box<dyn Error>>) -> Self {
        Self::Fail(error.into())
    }
}

impl<C: Pipeline, T, E: Into<Box<dyn Error>>> From<Result<T, E>> for Outcome<C> {
    fn from(result: Result<T, E>) -> Self {
        result.map_or_else(Self::fail, |_| Self::Continue)
    }
}
