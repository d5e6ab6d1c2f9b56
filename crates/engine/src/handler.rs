//! `Handler`: the application on one connection.

use std::error::Error;
use std::future::Future;

use tidegate_codec::Pipeline;

use crate::channel::{Channel, start};
use crate::close_reason::CloseReason;
use crate::connection::{Application, ChannelState, HandlerApplication, InstallProtocol};
use crate::context::Context;

/// The application on one connection: it gets events, one at a time, and answers each with an [`Outcome`].
///
/// A handler is never re-entered. What it sends is queued, and leaves once it has returned and the input is used up.
/// If it panics, its connection is closed and no other is affected.
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

    /// The connection is open. If a filter below has a handshake, no bytes can be exchanged before
    /// [`Event::Established`]; messages that the handler sends earlier are queued until then.
    fn open(&mut self, _cx: &mut Context<'_, C, Self::Post>) -> Outcome<C> {
        Outcome::Continue
    }

    /// A message has arrived.
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
    /// Another thread has posted this.
    Posted(P),
    /// No further message will come: the peer shut down its sending side, or the protocol ended. It may still read.
    ReadClosed,
    /// The handshake is over.
    Established,
    /// The server drains: finish what is under way, begin nothing new.
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

/// What a handler wants to happen next.
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

    /// Continues with the codec and the handler that `to` makes of the present codec. The new handler's
    /// [`open`](Handler::open) is called. The old codec's output is sent first. Bytes that the old codec has not
    /// decoded go to the new one. A pause, blocked writes, a deadline and a watched position end with the old handler.
    ///
    /// ```
    /// use tidegate::framing::{LengthField, Lines};
    /// use tidegate::{Context, Handler, Outcome, Slice};
    /// use tidegate_testkit::Embedded;
    ///
    /// /// Reads lines until one of them says `BINARY`.
    /// struct Text;
    ///
    /// impl Handler<Lines> for Text {
    ///     type Post = ();
    ///
    ///     fn message(&mut self, line: Slice, _: &mut Context<'_, Lines>) -> Outcome<Lines> {
    ///         match &*line {
    ///             b"BINARY" => Outcome::switch(|_| (LengthField::new(2), Binary)),
    ///             _ => Outcome::Continue,
    ///         }
    ///     }
    /// }
    ///
    /// /// Sends frames back.
    /// struct Binary;
    ///
    /// impl Handler<LengthField> for Binary {
    ///     type Post = ();
    ///
    ///     fn message(&mut self, frame: Slice, cx: &mut Context<'_, LengthField>) -> Outcome<LengthField> {
    ///         cx.send(frame.into()).into()
    ///     }
    /// }
    ///
    /// let mut pipe = Embedded::new(Lines::new(), Text);
    /// pipe.receive(b"hello\nBINARY\n\x00\x03ebb");
    /// assert_eq!(pipe.take_written(), b"\x00\x03ebb");
    /// ```
    pub fn switch<D: Pipeline, H: Handler<D>>(to: impl FnOnce(C) -> (D, H) + 'static) -> Self {
        Self::Switch(Switch::new(to))
    }
}

impl<C: Pipeline> Outcome<C> {
    /// Continues as a channel: with the codec that `to` makes of the present codec, and a task that runs `serve`.
    /// Everything else is as for [`switch`](Outcome::switch), and the task behaves as one of
    /// [`Server::serve`](crate::Server::serve).
    ///
    /// ```
    /// use tidegate::framing::{LengthField, Lines};
    /// use tidegate::{Channel, Context, Handler, Outcome, Slice};
    /// use tidegate_testkit::Embedded;
    ///
    /// /// Reads lines until one of them says `BINARY`.
    /// struct Text;
    ///
    /// impl Handler<Lines> for Text {
    ///     type Post = ();
    ///
    ///     fn message(&mut self, line: Slice, _: &mut Context<'_, Lines>) -> Outcome<Lines> {
    ///         match &*line {
    ///             b"BINARY" => Outcome::channel(|_| LengthField::new(2), binary),
    ///             _ => Outcome::Continue,
    ///         }
    ///     }
    /// }
    ///
    /// /// Sends frames back.
    /// async fn binary(mut channel: Channel<LengthField>) -> Result<(), Box<dyn std::error::Error>> {
    ///     while let Some(frame) = channel.recv().await? {
    ///         channel.send(frame.into())?;
    ///     }
    ///     Ok(())
    /// }
    ///
    /// let mut pipe = Embedded::new(Lines::new(), Text);
    /// pipe.receive(b"hello\nBINARY\n\x00\x03ebb");
    /// assert_eq!(pipe.take_written(), b"\x00\x03ebb");
    /// ```
    pub fn channel<D, F, E>(to: impl FnOnce(C) -> D + 'static, serve: impl FnOnce(Channel<D>) -> F + 'static) -> Self
    where
        D: Pipeline,
        F: Future<Output = Result<(), E>> + 'static,
        E: Into<Box<dyn Error>> + 'static,
    {
        Self::Switch(Switch::to_application(|codec| {
            (to(codec), ChannelState::with_start(|local, token| start(local, token, serve)))
        }))
    }
}

impl<C: Pipeline, T, E: Into<Box<dyn Error>>> From<Result<T, E>> for Outcome<C> {
    fn from(result: Result<T, E>) -> Self {
        result.map_or_else(Self::fail, |_| Self::Continue)
    }
}

/// A change of codec and handler in the middle of a connection; made by [`Outcome::switch`].
pub struct Switch<C> {
    to: Box<dyn FnOnce(C) -> Box<dyn InstallProtocol>>,
}

impl<C: Pipeline> Switch<C> {
    fn new<D: Pipeline, H: Handler<D>>(to: impl FnOnce(C) -> (D, H) + 'static) -> Self {
        Self {
            to: Box::new(|codec| {
                let (codec, handler) = to(codec);
                Box::new((codec, HandlerApplication(handler)))
            }),
        }
    }

    pub(crate) fn to_application<D: Pipeline, A: Application<D>>(to: impl FnOnce(C) -> (D, A) + 'static) -> Self {
        Self { to: Box::new(|codec| Box::new(to(codec))) }
    }

    pub(crate) fn apply(self, codec: C) -> Box<dyn InstallProtocol> {
        (self.to)(codec)
    }
}

impl<C> std::fmt::Debug for Switch<C> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Switch")
    }
}
