//! `Application`: the user of a connection. Either a handler, which is called with each message, or the handles of a
//! channel, which request one message at a time ([`MessageReader`]), or a session, which has streams
//! ([`SessionHooks`]).

use std::rc::Rc;

use tidegate_buffer::injected::{self, Bug};
use tidegate_codec::Pipeline;

use super::switch::{InstallProtocol, Switch};
use super::{Connection, Link};
use crate::close_reason::CloseReason;
use crate::context::Context;
use crate::handler::{Event, Handler, Outcome};
use crate::loop_core::Core;
use crate::slot_entry::SlotEntry;
use crate::unwind::catch_and_log;

/// The last call of an application.
pub(crate) type LastCall = Box<dyn FnOnce(&CloseReason)>;

/// The user of a connection. Every kind of application has these methods.
pub(crate) trait Application<C: Pipeline>: MessageReader + SessionHooks<C> + 'static {
    /// Whether it requests messages instead of being called with them: a [`MessageReader`].
    const PULLS: bool;

    /// Whether it is the application of a session, with [`SessionHooks`].
    const IS_SESSION: bool = false;

    /// Whether it is a handler: its connection has no other user.
    const IS_HANDLER: bool = false;

    /// Whether nothing is left of it but its last call.
    const IS_FINISHED: bool = false;

    type Post: Send + 'static;

    fn open(&mut self, cx: &mut Context<'_, C, Self::Post>) -> Outcome<C>;

    /// Never called if it pulls.
    fn message(&mut self, message: C::In, cx: &mut Context<'_, C, Self::Post>) -> Outcome<C>;

    fn event(&mut self, event: Event<Self::Post>, cx: &mut Context<'_, C, Self::Post>) -> Outcome<C>;

    fn closed(&mut self, reason: &CloseReason);

    /// If it is a handler: it gets no other call than `closed`, if it observes that.
    fn into_last_call(self) -> Option<Box<LastCall>>
    where
        Self: Sized,
    {
        None
    }

    /// If it is called with messages: the codec has failed.
    fn faulted(&mut self, _reason: &CloseReason, _cx: &mut Context<'_, C, Self::Post>) {}

    /// Whether reading goes on while the connection is unwritable, because back-pressure would stop no reader.
    fn reads_while_unwritable(&self) -> bool {
        injected::is_injected(Bug::NoBackPressure)
    }

    /// Whether a drain concerns it now. A connection that serving tasks made themselves hears of the drain only when
    /// none of these tasks is left.
    fn observes_drain(&self) -> bool {
        true
    }

    /// If it has handles: whether some are left that still have to learn why the connection is gone.
    fn has_handles(&self) -> bool {
        false
    }

    /// If it has handles: whether only these are left.
    fn is_closed(&self) -> bool {
        false
    }
}

/// An application that pulls: a channel, whose tasks request one message at a time. Others keep the defaults.
pub(crate) trait MessageReader {
    /// Whether a reader waits for a message.
    fn wants_message(&self) -> bool {
        false
    }

    /// There may be something to decode, so the waiting reader is woken. Returns whether one was waiting.
    fn wake_reader(&mut self) -> bool {
        false
    }

    /// No reader waits for a message, so the loop receives nothing from the peer for a while. Returns whether a reader
    /// was woken and has not polled since: it may wait again in a moment.
    fn suspended(&mut self) -> bool {
        false
    }

    /// Whether the reader was woken, and has not polled since.
    fn is_reader_notified(&self) -> bool {
        false
    }

    /// Bytes of a stream that the application has taken and not finished with.
    fn unfinished_bytes(&self) -> u32 {
        0
    }

    /// The loop drains, and none of the tasks that serve is left.
    fn on_serving_done(&mut self, _reports_finish: bool) {}

    /// The connection closes. Waiting tasks are woken now, before the orderly close is over.
    fn on_closing(&mut self) {}
}

/// The application of a session, which dispatches streams. Others keep the defaults.
pub(crate) trait SessionHooks<C: Pipeline> {
    /// The session is dispatched.
    fn begin_session_dispatch(&mut self, _core: &mut Core) {}

    /// The dispatch is over. Returns whether another one has to follow.
    fn end_session_dispatch(&mut self, _core: &mut Core) -> bool {
        false
    }

    /// Handles the requests of streams, and writes bytes of streams. Returns whether more could be written, once these
    /// are sent.
    fn transmit(&mut self, _codec: &mut C, _link: &mut Link, _core: &mut Core) -> bool {
        false
    }

    /// The session closes, so nothing more is received or sent on its streams. They are closed now, before the orderly
    /// close of the session is over.
    fn on_session_closing(
        &mut self,
        _codec: &mut C,
        _link: &mut Link,
        _core: &mut Core,
        _reason: Option<Rc<CloseReason>>,
    ) {
    }

    /// The session is closed, and with it all of its streams.
    fn on_session_closed(&mut self, _codec: &mut C, _core: &mut Core, _reason: &Rc<CloseReason>) {}
}

/// A handler, as an application.
pub(crate) struct HandlerApplication<H>(pub(crate) H);

impl<C: Pipeline, H: Handler<C>> Application<C> for HandlerApplication<H> {
    const PULLS: bool = false;
    const IS_HANDLER: bool = true;

    type Post = H::Post;

    #[inline]
    fn open(&mut self, cx: &mut Context<'_, C, H::Post>) -> Outcome<C> {
        self.0.open(cx)
    }

    #[inline]
    fn message(&mut self, message: C::In, cx: &mut Context<'_, C, H::Post>) -> Outcome<C> {
        self.0.message(message, cx)
    }

    #[inline]
    fn event(&mut self, event: Event<H::Post>, cx: &mut Context<'_, C, H::Post>) -> Outcome<C> {
        self.0.event(event, cx)
    }

    fn closed(&mut self, reason: &CloseReason) {
        self.0.closed(reason);
    }

    fn into_last_call(self) -> Option<Box<LastCall>> {
        let Self(mut handler) = self;
        if !H::OBSERVES_CLOSE {
            catch_and_log(move || drop(handler));
            return None;
        }
        Some(Box::new(Box::new(move |reason| handler.closed(reason))))
    }

    fn faulted(&mut self, reason: &CloseReason, cx: &mut Context<'_, C, H::Post>) {
        self.0.faulted(reason, cx);
    }
}

impl<H> MessageReader for HandlerApplication<H> {}

impl<C: Pipeline, H> SessionHooks<C> for HandlerApplication<H> {}

impl<C: Pipeline, H: Handler<C>> Connection<C, HandlerApplication<H>> {
    pub(crate) fn new(link: Link, codec: C, handler: H) -> Self {
        Self { link, codec, application: HandlerApplication(handler) }
    }
}

impl<D: Pipeline, A: Application<D>> InstallProtocol for (D, A) {
    fn install(self: Box<Self>, mut link: Link) -> Box<dyn SlotEntry> {
        let (codec, application) = *self;
        link.input.set_escaping(A::PULLS);
        Box::new(Connection { link, codec, application })
    }
}

impl<C: 'static> Switch<C> {
    /// Goes on with the codec and the application that `to` makes of the present codec.
    pub(crate) fn to_application<D: Pipeline, A: Application<D>>(to: impl FnOnce(C) -> (D, A) + 'static) -> Self {
        Self::new(|codec| Box::new(to(codec)))
    }

    /// Goes on with the codec and the handler that `to` makes of the present codec: see [`Outcome::switch`].
    pub fn handler<D: Pipeline, H: Handler<D>>(to: impl FnOnce(C) -> (D, H) + 'static) -> Self {
        Self::to_application(|codec| {
            let (codec, handler) = to(codec);
            (codec, HandlerApplication(handler))
        })
    }
}

impl<C: Pipeline> Outcome<C> {
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
        Self::Switch(Switch::handler(to))
    }
}
