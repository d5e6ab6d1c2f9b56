//! `Application`: the user of a connection. Either a handler, which is called with each message, or the handles of a
//! channel, which request one message at a time.

use tidegate_buffer::injected::{self, Bug};
use tidegate_codec::Pipeline;

use super::Link;
use crate::close_reason::CloseReason;
use crate::context::Context;
use crate::handler::{Event, Handler, Outcome};
use crate::loop_core::Core;

/// The user of a connection.
pub(crate) trait Application<C: Pipeline>: 'static {
    /// Whether it requests messages instead of being called with them.
    const PULLS: bool;

    /// Whether it is the application of a session.
    const IS_SESSION: bool = false;

    type Post: Send + 'static;

    fn open(&mut self, cx: &mut Context<'_, C, Self::Post>) -> Outcome<C>;

    /// Never called if it pulls.
    fn message(&mut self, message: C::In, cx: &mut Context<'_, C, Self::Post>) -> Outcome<C>;

    fn event(&mut self, event: Event<Self::Post>, cx: &mut Context<'_, C, Self::Post>) -> Outcome<C>;

    fn closed(&mut self, reason: &CloseReason);

    /// If it pulls: whether a reader waits for a message.
    fn wants_message(&self) -> bool {
        false
    }

    /// If it pulls: there may be something to decode, so the waiting reader is woken. Returns whether one was
    /// waiting.
    fn wake_reader(&mut self) -> bool {
        false
    }

    /// If it pulls: whether reading goes on while the connection is unwritable, because back-pressure would stop no
    /// reader.
    fn reads_while_unwritable(&self) -> bool {
        injected::is_injected(Bug::NoBackPressure)
    }

    /// If it pulls: no reader waits for a message, so the loop receives nothing from the peer for a while. Returns
    /// whether a reader was woken and has not polled since: it may wait again in a moment.
    fn suspended(&mut self) -> bool {
        false
    }

    /// Whether a drain concerns it now. A connection that serving tasks made themselves hears of the drain only when
    /// none of these tasks is left.
    fn observes_drain(&self) -> bool {
        true
    }

    /// If it pulls: whether the reader was woken, and has not polled since.
    fn is_reader_notified(&self) -> bool {
        false
    }

    /// If it pulls: bytes of a stream that the application has taken and not finished with.
    fn unfinished_bytes(&self) -> u32 {
        0
    }

    /// If it pulls: the loop drains, and none of the tasks that serve is left.
    fn on_serving_done(&mut self, _knows_its_end: bool) {}

    /// If it pulls: the connection closes. Waiting tasks are woken now, before the orderly close is over.
    fn on_closing(&mut self) {}

    /// If it has handles: whether some are left that still have to learn why the connection is gone.
    fn has_handles(&self) -> bool {
        false
    }

    /// Of a session: it is dispatched.
    fn begin_session_dispatch(&mut self, _core: &mut Core) {}

    /// Of a session: the dispatch is over. Returns whether another one has to follow.
    fn end_session_dispatch(&mut self, _core: &mut Core) -> bool {
        false
    }

    /// Of a session: handles what streams have requested, and writes bytes of streams. Returns whether more could be written, once
    /// these are sent.
    fn transmit(&mut self, _codec: &mut C, _link: &mut Link, _core: &mut Core) -> bool {
        false
    }

    /// Of a session: it is closed, and with it all of its streams.
    fn on_session_closed(&mut self, _codec: &mut C, _core: &mut Core) {}

    /// If it has handles: whether only these are left.
    fn is_closed(&self) -> bool {
        false
    }
}

/// A handler, as an application.
pub(crate) struct HandlerApplication<H>(pub(crate) H);

impl<C: Pipeline, H: Handler<C>> Application<C> for HandlerApplication<H> {
    const PULLS: bool = false;

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
}
