//! `Application`: who uses a connection. Either a handler, which is called with each message, or the handles of a
//! channel, which ask for one message at a time.

use tidegate_codec::Codec;

use crate::close_reason::CloseReason;
use crate::context::Context;
use crate::handler::{Event, Handler, Outcome};

/// Who uses a connection.
pub(crate) trait Application<C: Codec>: 'static {
    /// Whether it asks for messages instead of being called with them.
    const PULLS: bool;

    type Post: Send + 'static;

    fn open(&mut self, cx: &mut Context<'_, C, Self::Post>) -> Outcome<C>;

    /// Never called if it pulls.
    fn message(&mut self, message: C::In, cx: &mut Context<'_, C, Self::Post>) -> Outcome<C>;

    fn event(&mut self, event: Event<Self::Post>, cx: &mut Context<'_, C, Self::Post>) -> Outcome<C>;

    fn closed(&mut self, reason: &CloseReason);

    /// If it pulls: whether somebody waits for a message.
    fn wants_message(&self) -> bool {
        false
    }

    /// If it pulls: there may be something to decode, so whoever waits for a message is woken. Says whether somebody
    /// was.
    fn wake_reader(&mut self) -> bool {
        false
    }

    /// If it pulls: whether reading goes on while the connection is unwritable, because nobody would be held back.
    fn reads_freely(&self) -> bool {
        false
    }

    /// If it pulls: nobody waits for a message, so the peer is not heard for a while. Says whether somebody was woken
    /// who has not come back yet, and who may wait again in a moment.
    fn suspended(&mut self) -> bool {
        false
    }

    /// Whether a drain is about it: what tasks that serve have connected themselves is told when none of them is left.
    fn heeds_drain(&self) -> bool {
        true
    }

    /// If it pulls: the loop drains, and none of the tasks that serve is left.
    fn serving_done(&mut self, _knows_its_end: bool) {}

    /// If it pulls: the connection closes, which whoever waits wants to know before the farewell is over.
    fn closing(&mut self) {}

    /// If it pulls: whether handles are left that have to be told why the connection is gone.
    fn outlives(&self) -> bool {
        false
    }

    /// If it pulls: whether only the handles are left.
    fn is_gone(&self) -> bool {
        false
    }
}

/// A handler, as an application.
pub(crate) struct HandlerApplication<H>(pub(crate) H);

impl<C: Codec, H: Handler<C>> Application<C> for HandlerApplication<H> {
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
