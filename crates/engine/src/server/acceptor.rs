//! Accepting: one entry per listener, which makes a connection from each accepted stream.
//!
//! Accepting never spins, and no error ends it. It pauses when descriptors or memory run out, and when the server has
//! as many connections as it may have; the streams wait in the kernel meanwhile.
//!
//! The listener's caps are applied on the loop that serves a stream: a refused one is reset, and its place is free.
//!
//! Where loops hand connections to each other, a stream is counted first and then given to the loop that has the
//! fewest. A stream that comes from another loop was counted there, so it becomes a connection at once. An acceptor
//! that ends waits for the streams that are in transit.

use std::any::Any;
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tidegate_buffer::injected::{self, Bug};
use tidegate_sys::{Accepted, Operation, Token};

use crate::admission::Refusal;
use crate::close_reason::CloseReason;
use crate::connection::{Link, MakeConnection, Settings};
use crate::limits::{ACCEPT_PAUSE, FULL_PAUSE};
use crate::load_balancing::{HandoffConnection, HandoffReceiver};
use crate::loop_core::Core;
use crate::slot_entry::{Disposition, SlotEntry, SlotEvent};

pub(crate) struct Acceptor<M> {
    settings: Rc<Settings>,
    make: M,
    paused: bool,
    /// Streams that were accepted after other loops had filled the server.
    waiting: VecDeque<Accepted>,
    /// Where streams from other loops arrive, if this listener receives them.
    handoffs: Option<HandoffReceiver>,
    /// Nothing more is accepted.
    ending: bool,
}

impl<M: MakeConnection> Acceptor<M> {
    pub(crate) fn new(settings: Rc<Settings>, make: M, handoffs: Option<HandoffReceiver>) -> Self {
        Self { settings, make, paused: false, waiting: VecDeque::new(), handoffs, ending: false }
    }

    fn on_accepted(&mut self, core: &mut Core, token: Token, accepted: Accepted) {
        self.waiting.push_back(accepted);
        self.admit_waiting(core);
        if self.is_full() || !self.waiting.is_empty() {
            self.pause(core, token, FULL_PAUSE);
        }
    }

    /// Makes connections from the streams that wait, as far as there is room for them; from all of them when the
    /// listener is about to close, since no other acceptor would serve them.
    fn admit_waiting(&mut self, core: &mut Core) {
        while let Some(accepted) = self.waiting.pop_front() {
            let is_full = self.settings.live.fetch_add(1, Ordering::Relaxed) >= self.settings.limits.connections_max;
            if is_full && !self.ending && !core.drain.is_under_way() {
                self.settings.live.fetch_sub(1, Ordering::Relaxed);
                return self.waiting.push_front(accepted);
            }
            let Some(handle) = &self.settings.handle else {
                self.admit(core, accepted);
                continue;
            };
            // The others receive the drain event at the same time.
            let kept = if core.drain.is_under_way() { Some(accepted) } else { handle.hand_over(accepted) };
            if let Some(accepted) = kept {
                handle.add_connection();
                self.admit(core, accepted);
            }
        }
    }

    /// Makes a connection from a stream that was counted.
    fn admit(&mut self, core: &mut Core, accepted: Accepted) {
        if let Some(admission) = &self.settings.admission
            && let Err(refusal) = admission.admit(&accepted.peer, core.time.now())
        {
            return self.refuse(core, accepted, refusal);
        }
        core.counters.accepted += 1;
        // From here on the link counts: if the code below panics, the link gives the place back.
        let link = Link::new(self.settings.clone(), &accepted.peer, &core.pool);
        if let Err(error) = self.make.make_connection(core, link, accepted.socket, &accepted.peer) {
            core.counters.accepts_failed += 1;
            core.log.accept_failed(core.time.now(), &error);
        }
    }

    /// Resets a stream that was counted, and gives its place back.
    #[cold]
    fn refuse(&self, core: &mut Core, accepted: Accepted, refusal: Refusal) {
        self.settings.live.fetch_sub(1, Ordering::Relaxed);
        if let Some(handle) = &self.settings.handle {
            handle.remove_connection();
        }
        core.counters.refused += 1;
        if let Some(counts) = &self.settings.counts {
            counts.count_refused(refusal);
        }
        core.log.refused(core.time.now(), &accepted.peer, refusal);
        // A driver that does not take the stream drops it, which closes it.
        let _ = core.reset_socket(accepted.socket);
    }

    /// Another loop has sent a stream.
    fn on_posted(&mut self, core: &mut Core, post: Box<dyn Any + Send>) {
        if let Some(accepted) = post.downcast::<HandoffConnection>().ok().and_then(|handed| handed.into_accepted()) {
            self.admit(core, accepted);
        }
    }

    /// Closes, once no stream from another loop is in transit.
    fn close_after_handoffs(&mut self, core: &mut Core, token: Token) -> Disposition {
        self.ending = true;
        self.admit_waiting(core);
        if self.handoffs.as_ref().is_some_and(HandoffReceiver::shut) {
            self.pause(core, token, FULL_PAUSE);
            return Disposition::Keep;
        }
        Disposition::close(CloseReason::Done)
    }

    fn is_full(&self) -> bool {
        self.settings.live.load(Ordering::Relaxed) >= self.settings.limits.connections_max
    }

    fn pause(&mut self, core: &mut Core, token: Token, pause: Duration) {
        if !self.paused {
            self.paused = true;
            core.driver.submit(token, Operation::Accept(false));
        }
        let tick = core.wheel.tick_after(core.time.now(), pause);
        core.set_timer(token, tick);
    }

    fn retry(&mut self, core: &mut Core, token: Token) {
        self.admit_waiting(core);
        if self.is_full() || !self.waiting.is_empty() {
            return self.pause(core, token, FULL_PAUSE);
        }
        self.paused = false;
        if !injected::is_injected(Bug::AcceptNotResumed) {
            core.driver.submit(token, Operation::Accept(true));
        }
    }
}

impl<M: MakeConnection> SlotEntry for Acceptor<M> {
    fn dispatch(&mut self, core: &mut Core, token: Token, event: SlotEvent) -> Disposition {
        match event {
            SlotEvent::Accepted(Ok(accepted)) => self.on_accepted(core, token, accepted),
            SlotEvent::Accepted(Err(error)) => {
                core.counters.accepts_failed += 1;
                core.log.accept_failed(core.time.now(), &error);
                self.pause(core, token, ACCEPT_PAUSE);
            }
            SlotEvent::Posted(post) => {
                self.on_posted(core, post);
                if self.ending {
                    return self.close_after_handoffs(core, token);
                }
            }
            SlotEvent::Timer if self.ending => return self.close_after_handoffs(core, token),
            SlotEvent::Timer => self.retry(core, token),
            // `make` panicked: that stream is lost. The timer resumes the waiting streams and accepting.
            SlotEvent::Panicked => self.pause(core, token, ACCEPT_PAUSE),
            SlotEvent::Drain | SlotEvent::Failed(_) => return self.close_after_handoffs(core, token),
            SlotEvent::DrainTimeout => return Disposition::close(CloseReason::Done),
            _ => {}
        }
        Disposition::Keep
    }

    fn as_any(&mut self) -> &mut dyn Any {
        self
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }
}
