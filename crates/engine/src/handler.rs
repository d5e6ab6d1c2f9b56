//! `Handler`: the application on one connection.

use std::error::Error;
use std::future::Future;

use tidegate_codec::Codec;

use crate::channel::Channel;
use crate::close_reason::CloseReason;
use crate::connection::{Application, ChannelState, HandlerApplication, InstallProtocol};
use crate::context::Context;
use crate::server::serve::start;

/// The application on one connection: it gets events, one at a time, and answers each with an [`Outcome`].
///
/// A handler is never re-entered. What it sends is queued, and leaves once it has returned and the input is used up.
/// If it panics, its connection is closed and no other is affected.
///
/// ```
/// use tidegate_codec::framing::Lines;
/// use tidegate_codec::Slice;
/// use tidegate_engine::{Context, Handler, Outcome};
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
pub trait Handler<C: Codec>: 'static {
    /// What other threads may post to it, through a [`Remote`](crate::Remote).
    type Post: Send + 'static;

    /// The connection is there. With a handshake below, nothing can be exchanged before
    /// [`Event::Established`], but what is sent is kept until then.
    fn open(&mut self, _cx: &mut Context<'_, C, Self::Post>) -> Outcome<C> {
        Outcome::Continue
    }

    /// A message has arrived.
    fn message(&mut self, message: C::In, cx: &mut Context<'_, C, Self::Post>) -> Outcome<C>;

    /// Something else has happened.
    ///
    /// By default the end of the peer's stream, and the wish of the application to drain, close the connection once
    /// everything was sent; except that a protocol which knows its own end, as HTTP does, is left to find it. Whoever
    /// writes this method does that by itself: a connection that answers [`Event::ReadClosed`] with
    /// [`Outcome::Continue`] stays open until it [ends its own side](Context::shutdown_write) as well, or the peer resets
    /// it.
    fn event(&mut self, event: Event<Self::Post>, cx: &mut Context<'_, C, Self::Post>) -> Outcome<C> {
        event.by_default(cx)
    }

    /// The connection is gone, and why. Nothing more will be told.
    fn closed(&mut self, _reason: &CloseReason) {}
}

/// What a handler is told beside messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event<P> {
    /// The connection was unwritable and is writable again. Told once per turn at most.
    Writable,
    /// Everything up to the watched mark is with the kernel.
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
    /// What happens unless a handler decides otherwise: for the events that a handler of its own
    /// [`event`](Handler::event) does not care about.
    pub fn by_default<C: Codec>(self, cx: &Context<'_, C, P>) -> Outcome<C> {
        match self {
            Self::ReadClosed | Self::Drain if !cx.codec().knows_its_end() => Outcome::Close,
            _ => Outcome::Continue,
        }
    }
}

/// What a handler wants to happen next.
///
/// The result of something that may fail can be turned into one: `cx.send(message).into()` goes on, or closes the
/// connection because of the error.
#[derive(Debug)]
pub enum Outcome<C> {
    /// Go on.
    Continue,
    /// Close the connection once everything was sent.
    Close,
    /// Reset the connection at once, and drop what waits to be sent. The peer sees that the stream was cut off, and not its
    /// end: what a gateway does when the other side of it was reset. The reason is [`CloseReason::Aborted`].
    Abort,
    /// Close it once everything was sent, and report the error. Where only the end of the connection ends a message, as
    /// with lines or raw bytes, the connection is reset instead, so that the peer does not take a part for the whole.
    Fail(Box<dyn Error>),
    /// Go on with another codec and another handler. Bytes that were read already come along.
    Switch(Switch<C>),
}

impl<C: Codec> Outcome<C> {
    /// Closes the connection because of `error`, once everything was sent.
    pub fn fail(error: impl Into<Box<dyn Error>>) -> Self {
        Self::Fail(error.into())
    }

    /// Goes on with the codec and the handler that `to` makes of the present codec. The new handler is told
    /// [`open`](Handler::open). What the old codec has said leaves first; bytes that it has not decoded are the new
    /// one's; a pause, a hold, a deadline and a watched mark end with the old handler.
    ///
    /// ```
    /// use tidegate_codec::Slice;
    /// use tidegate_codec::framing::{LengthField, Lines};
    /// use tidegate_engine::{Context, Handler, Outcome};
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
    /// assert_eq!(pipe.written(), b"\x00\x03ebb");
    /// ```
    pub fn switch<D: Codec, H: Handler<D>>(to: impl FnOnce(C) -> (D, H) + 'static) -> Self {
        Self::Switch(Switch::new(to))
    }
}

impl<C: Codec> Outcome<C> {
    /// Goes on as a channel: with the codec that `to` makes of the present codec, and a task that runs `serve`. Everything
    /// else is as for [`switch`](Outcome::switch), and the task is as one of [`Server::serve`](crate::Server::serve).
    ///
    /// ```
    /// use tidegate_codec::Slice;
    /// use tidegate_codec::framing::{LengthField, Lines};
    /// use tidegate_engine::{Channel, Context, Handler, Outcome};
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
    /// assert_eq!(pipe.written(), b"\x00\x03ebb");
    /// ```
    pub fn channel<D, F, E>(to: impl FnOnce(C) -> D + 'static, serve: impl FnOnce(Channel<D>) -> F + 'static) -> Self
    where
        D: Codec,
        F: Future<Output = Result<(), E>> + 'static,
        E: Into<Box<dyn Error>> + 'static,
    {
        Self::Switch(Switch::to_application(|codec| {
            (to(codec), ChannelState::starting(|local, token| start(local, token, serve)))
        }))
    }
}

impl<C: Codec, T, E: Into<Box<dyn Error>>> From<Result<T, E>> for Outcome<C> {
    fn from(result: Result<T, E>) -> Self {
        result.map_or_else(Self::fail, |_| Self::Continue)
    }
}

/// A change of codec and handler in the middle of a connection; made by [`Outcome::switch`].
pub struct Switch<C> {
    to: Box<dyn FnOnce(C) -> Box<dyn InstallProtocol>>,
}

impl<C: Codec> Switch<C> {
    fn new<D: Codec, H: Handler<D>>(to: impl FnOnce(C) -> (D, H) + 'static) -> Self {
        Self {
            to: Box::new(|codec| {
                let (codec, handler) = to(codec);
                Box::new((codec, HandlerApplication(handler)))
            }),
        }
    }

    pub(crate) fn to_application<D: Codec, A: Application<D>>(to: impl FnOnce(C) -> (D, A) + 'static) -> Self {
        Self { to: Box::new(|codec| Box::new(to(codec))) }
    }

    pub(crate) fn succeed(self, codec: C) -> Box<dyn InstallProtocol> {
        (self.to)(codec)
    }
}

impl<C> std::fmt::Debug for Switch<C> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Switch")
    }
}
