//! Events that do not come with every message, apart from those that do (`dispatch.rs`): the beginning of a connection,
//! its end, a change of its codec or its application, timers, posts and drains.
//!
//! One function takes in one kind of event, and returns the next step. They are apart in the program as well, so that
//! the frequent events stay close together in the cache.

use std::any::Any;
use std::rc::Rc;

use tidegate_buffer::injected::{self, Bug};
use tidegate_codec::{Lifecycle, Output, Pipeline};
use tidegate_sys::Token;

use super::dispatch::Next;
use super::{Application, Connection, Link};
use crate::close_reason::CloseReason;
use crate::handler::Event;
use crate::loop_core::Core;
use crate::slot_entry::{Dispatched, Disposition, SlotEvent};

impl<C: Pipeline, A: Application<C>> Connection<C, A> {
    /// Takes in an event that does not come with every message.
    #[cold]
    pub(super) fn on_rare_event(&mut self, core: &mut Core, token: Token, event: SlotEvent) -> Dispatched<Next> {
        match event {
            SlotEvent::Opened => self.on_opened(core, token)?,
            SlotEvent::Switched => self.on_switched(core, token)?,
            SlotEvent::ApplicationReplaced => self.on_application_replaced(core, token)?,
            SlotEvent::Ended => self.on_peer_ended()?,
            SlotEvent::HungUp => self.notify(core, token, Event::HungUp)?,
            SlotEvent::StreamReset(code) => self.on_stream_reset(code)?,
            SlotEvent::SessionClosed(reason) => return Err(self.on_session_closed(reason)),
            SlotEvent::Failed(error) => return Err(self.on_failure(core, token, error)),
            SlotEvent::Timer => self.on_timer(core, token)?,
            SlotEvent::Posted(post) => return self.on_posted(core, token, post),
            SlotEvent::TaskFinished => return self.on_task_finished(core, token),
            SlotEvent::DispatchOver => self.notify(core, token, Event::DispatchOver)?,
            SlotEvent::Drain => self.drain(core, token)?,
            SlotEvent::ServingDone => self.on_serving_done(core),
            SlotEvent::DrainTimeout => return Err(self.on_drain_timeout()),
            SlotEvent::Shed => return Err(Disposition::reset(CloseReason::Shed)),
            SlotEvent::Panicked => self.on_panicked(core)?,
            // `on_event` takes in the frequent ones; entries of other kinds get the last three.
            SlotEvent::Received(_)
            | SlotEvent::ReceivedLast(_)
            | SlotEvent::OpenedWith(_)
            | SlotEvent::Sent(_)
            | SlotEvent::Scheduled
            | SlotEvent::Accepted(_)
            | SlotEvent::Connected(_)
            | SlotEvent::Closed
            | SlotEvent::Datagrams(_)
            | SlotEvent::TransmitRoom
            | SlotEvent::DatagramErrors(_) => {}
        }
        Ok(Next::Process)
    }

    fn on_opened(&mut self, core: &mut Core, token: Token) -> Dispatched {
        match self.link.stream() {
            Some(_) => core.counters.streams += 1,
            None => core.counters.connections += 1,
        }
        if self.link.settings().is_shaped && !self.link.is_stream() {
            self.begin_shaping(core, token);
        }
        self.open(core, token)
    }

    /// The codec and the application get the connection.
    pub(super) fn open(&mut self, core: &mut Core, token: Token) -> Dispatched {
        let opened = self.notify_codec(core, Lifecycle::Opened);
        self.link.close_on_error(opened);
        self.link.set(Link::HANDSHAKE, !self.codec.is_established());
        if self.link.has_peer_deadlines(core) {
            core.deadline_states.set_used();
        }
        self.call(core, token, |application, cx| application.open(cx))
    }

    fn on_switched(&mut self, core: &mut Core, token: Token) -> Dispatched {
        self.link.reset_for_next_handler();
        self.open(core, token)?;
        if core.drain.is_under_way() {
            self.on_switch_in_drain(core, token)?;
        }
        Ok(())
    }

    fn on_application_replaced(&mut self, core: &mut Core, token: Token) -> Dispatched {
        self.link.reset_for_next_handler();
        // A task that did not request a message had suspended decoding.
        self.link.resume_codec(&mut self.codec, core);
        self.call(core, token, |application, cx| application.open(cx))
    }

    /// The peer sends no more.
    fn on_peer_ended(&mut self) -> Dispatched {
        self.link.set(Link::PEER_ENDED, true);
        if self.link.is_shut() && self.link.is_closing() {
            return Err(self.close_now());
        }
        self.application.wake_reader();
        Ok(())
    }

    fn on_stream_reset(&self, code: u64) -> Dispatched {
        let has_ended = self.link.intersects(Link::PEER_ENDED) && self.link.is_shut();
        if has_ended && !injected::is_injected(Bug::ResetAfterEnd) {
            // Both sides have ended it already: received bytes stay.
            return Ok(());
        }
        Err(Disposition::reset(CloseReason::StreamReset { code, by_peer: true }))
    }

    /// The session of the stream is closed, or will receive nothing more.
    fn on_session_closed(&mut self, reason: Rc<CloseReason>) -> Disposition {
        Disposition::Close { reason: self.close_reason_or(reason), reset: true }
    }

    fn on_posted(&mut self, core: &mut Core, token: Token, post: Box<dyn Any + Send>) -> Dispatched<Next> {
        if let Ok(post) = post.downcast() {
            self.notify(core, token, Event::Posted(*post))?;
        }
        // Posts come in batches: their output is flushed once, at the end of the pass.
        self.schedule(core, token);
        Ok(Next::UpdateInterest)
    }

    fn on_task_finished(&mut self, core: &mut Core, token: Token) -> Dispatched<Next> {
        self.notify(core, token, Event::TaskFinished)?;
        // Another task of the handler runs with those that run now; no dispatch waits for it.
        core.has_spawned = false;
        if core.pending_reader != Some(token) {
            self.continue_after_task(core, token);
        }
        Ok(Next::AwaitTasks)
    }

    /// The handler's output leaves at the end of the pass. If there are more messages, others come first: each may be
    /// one that the handler waits for.
    fn continue_after_task(&mut self, core: &mut Core, token: Token) {
        if self.link.input.is_empty() {
            return self.schedule(core, token);
        }
        if !self.link.take(Link::SCHEDULED) {
            core.queues.continue_later(token);
        }
        self.link.set(Link::SCHEDULED, true);
    }

    pub(super) fn drain(&mut self, core: &mut Core, token: Token) -> Dispatched {
        if self.link.is_closing() {
            return Ok(());
        }
        if self.application.observes_drain() {
            self.drain_codec(core);
        }
        self.notify(core, token, Event::Drain)
    }

    /// The connection has changed its protocol during a drain, of which the new codec and the new handler know nothing.
    /// A channel knows of it.
    #[cold]
    fn on_switch_in_drain(&mut self, core: &mut Core, token: Token) -> Dispatched {
        if A::PULLS {
            if self.application.observes_drain() && !self.link.is_closing() {
                self.drain_codec(core);
            }
            return Ok(());
        }
        self.drain(core, token)
    }

    /// None of the tasks that serve is left: now a drain also concerns the connections that they made.
    fn on_serving_done(&mut self, core: &mut Core) {
        if !self.link.is_closing() && !self.application.observes_drain() {
            self.drain_codec(core);
        }
        self.application.on_serving_done(self.codec.status().reports_finish);
    }

    fn drain_codec(&mut self, core: &mut Core) {
        let drained = self.notify_codec(core, Lifecycle::Drain);
        self.link.close_on_error(drained);
    }

    /// The deadline of the drain has come: bytes that are left are lost.
    fn on_drain_timeout(&mut self) -> Disposition {
        let reset = !self.link.outbound_is_empty() || self.codec.status().is_close_delimited;
        Disposition::Close { reason: Rc::new(CloseReason::Drained), reset }
    }

    /// The last dispatch panicked.
    fn on_panicked(&mut self, core: &Core) -> Dispatched {
        if self.codec.status().is_close_delimited {
            return Err(Disposition::reset(CloseReason::Panicked));
        }
        self.fail_codec(core, Rc::new(CloseReason::Panicked));
        Ok(())
    }

    /// The application failed: the codec writes its error reply, if it has one, and the connection closes.
    pub(super) fn fail_codec(&mut self, core: &Core, reason: Rc<CloseReason>) {
        self.link.closing = Some(reason);
        let failed = self.notify_codec(core, Lifecycle::Fail);
        self.link.close_on_error(failed);
    }

    fn notify_codec(&mut self, core: &Core, event: Lifecycle) -> Result<(), C::Error> {
        self.codec.on(event, &mut Output::new(self.link.outbound(), &core.pool, &core.time))
    }
}
