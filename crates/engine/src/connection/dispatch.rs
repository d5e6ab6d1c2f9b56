//! One dispatch of a connection: it takes the event in, decodes and handles messages, flushes the output
//! (`sending.rs`), notifies the application of edges, and updates receiving and the timer.
//!
//! Everything is bounded: messages, sends and rounds. A connection with work left continues after the others.
//!
//! The states of closing in good order are in `closing.rs`.

use std::any::{Any, TypeId};
use std::io;
use std::rc::Rc;

use tidegate_buffer::injected::{self, Bug};
use tidegate_buffer::{Outbound, Slice};
use tidegate_codec::work::Work;
use tidegate_codec::{Output, Pipeline, Step};
use tidegate_sys::{Operation, Token};

use super::{Application, Connection, Link, Switch};
use crate::close_reason::CloseReason;
use crate::context::Context;
use crate::group::{Delivery, DeliveryOutcome, Slow};
use crate::handler::{Event, Outcome};
use crate::inspection::Description;
use crate::limits::{MESSAGES_PER_DISPATCH_MAX, SENDS_PER_DISPATCH_MAX, WORK_PER_DISPATCH_MAX};
use crate::loop_core::Core;
use crate::session::{StreamId, StreamRequestKind};
use crate::slot_entry::{Dispatched, Disposition, Reduction, SlotEntry, SlotEvent, SocketState};
use crate::wheel::DeadlineTick;

/// The step after the event is taken in.
pub(super) enum Next {
    /// Decoding, flushing, notifying.
    Process,
    /// The same for a stream that has come with all bytes of its peer (`opening.rs`): after decoding it may be
    /// answered.
    ProcessOpening,
    /// Nothing but the update of receiving and the timer.
    UpdateInterest,
    /// The tasks that were woken; another dispatch follows when they have run, while the bytes are still in the
    /// scratch.
    AwaitTasks,
}

/// The rest of one dispatch's budget.
pub(super) struct DispatchBudget {
    messages: u32,
    pub(super) sends: u32,
    /// The application may be notified that the watched write position is with the kernel.
    watched: bool,
    /// The work of codecs and parsers so far, in this dispatch.
    work: Work,
}

impl DispatchBudget {
    /// For a flush between two codecs: nothing is decoded, and no edge is notified.
    pub(super) fn barrier() -> Self {
        Self { messages: 0, sends: SENDS_PER_DISPATCH_MAX, watched: false, work: Work::begin() }
    }

    /// For the messages of a connection that has failed: nothing is sent.
    pub(super) fn rest() -> Self {
        Self { messages: MESSAGES_PER_DISPATCH_MAX, sends: 0, watched: false, work: Work::begin() }
    }
}

impl<C: Pipeline, A: Application<C>> SlotEntry for Connection<C, A> {
    fn dispatch(&mut self, core: &mut Core, token: Token, event: SlotEvent) -> Disposition {
        if self.is_closed() {
            return self.on_event_after_close(&event);
        }
        if A::IS_SESSION {
            self.application.begin_session_dispatch(core);
        }
        let dispatched = match self.on_event(core, token, event) {
            Ok(next @ (Next::Process | Next::ProcessOpening)) => {
                match self.process(core, token, matches!(next, Next::ProcessOpening)) {
                    Ok(true) => return Disposition::Answered,
                    processed => processed.map(drop),
                }
            }
            Ok(Next::UpdateInterest) => Ok(()),
            Ok(Next::AwaitTasks) => return Disposition::Keep,
            Err(disposition) => Err(disposition),
        };
        let dispatched = dispatched.and_then(|()| self.update_interest(core, token));
        if A::IS_SESSION && self.application.end_session_dispatch(core) {
            self.schedule(core, token);
        }
        dispatched.map_or_else(|disposition| disposition, |()| Disposition::Keep)
    }

    fn outbound(&mut self) -> Option<&mut Outbound> {
        Some(self.link.outbound())
    }

    fn deliver(&mut self, core: &mut Core, token: Token, delivery: &Delivery) -> (DeliveryOutcome, Disposition) {
        if self.is_closed() {
            return (DeliveryOutcome::Closed, Disposition::Keep);
        }
        if delivery.closes() {
            return (self.close_as_member(core, token, delivery), Disposition::Keep);
        }
        let outcome = self.enqueue_broadcast(core, token, delivery);
        let too_slow = outcome == DeliveryOutcome::Closed;
        (
            outcome,
            if too_slow {
                Disposition::Close { reason: Rc::new(CloseReason::TooSlow), reset: true }
            } else {
                Disposition::Keep
            },
        )
    }

    fn on_closed(mut self: Box<Self>, core: &mut Core, reason: Rc<CloseReason>) -> Option<Box<dyn SlotEntry>> {
        self.link.count_closed(core, &reason);
        if A::IS_SESSION {
            self.application.on_session_closed(&mut self.codec, core, &reason);
        }
        self.link.outbound().clear();
        if !(injected::is_injected(Bug::ClosedEventLost) && matches!(*reason, CloseReason::Broken(_))) {
            self.application.closed(&reason);
        }
        if !self.application.has_handles() {
            return None;
        }
        self.link.closing = Some(reason);
        // Handles can still receive the input that came before; it is copied, so that it does not keep the scratch.
        self.link.input.compact(&core.pool);
        self.codec.compact(&core.pool);
        Some(self)
    }

    fn fail(&mut self, core: &mut Core, token: Token, reason: &mut Option<CloseReason>) -> Disposition {
        if A::PULLS { self.on_task_failed(core, token, reason) } else { Disposition::Keep }
    }

    fn socket_state(&self) -> SocketState {
        if self.is_closed() {
            SocketState::NoSocket
        } else if self.link.is_stream() {
            SocketState::Session
        } else {
            SocketState::Open
        }
    }

    fn stream(&self) -> Option<StreamId> {
        self.link.stream()
    }

    fn transmit(&mut self, act: &mut dyn FnMut(&mut Outbound, bool) -> bool) -> bool {
        self.transmit_queue(act)
    }

    fn is_ending(&self) -> bool {
        self.link.is_ending()
    }

    fn reduction(&self) -> Option<Reduction> {
        self.finished_reduction()
    }

    fn urgency(&self) -> Option<u8> {
        self.codec.urgency()
    }

    fn unread_bytes(&self) -> u32 {
        Self::unread_bytes(self)
    }

    fn memory_bytes(&self) -> usize {
        self.link.memory_bytes() + self.codec.buffered_bytes() + self.codec.input_memory() + self.codec.kept_bytes()
    }

    fn describe(&self, core: &Core) -> Option<Description> {
        (!self.is_closed() && !self.link.is_stream()).then(|| self.description(core))
    }

    fn describe_stream(&self, core: &Core) -> Option<Description> {
        (!self.is_closed() && self.link.is_stream()).then(|| self.description(core))
    }

    fn as_any(&mut self) -> &mut dyn Any {
        self
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }
}

impl<C: Pipeline, A: Application<C>> Connection<C, A> {
    /// The connection goes on with another codec and another application.
    pub(super) fn switched(switch: Switch<C>) -> Disposition {
        Disposition::Switch(Box::new(|entry| {
            let connection = entry.into_any().downcast::<Self>().expect("the connection switches itself");
            let Self { link, codec, application } = *connection;
            drop(application);
            switch.apply(codec, link)
        }))
    }

    /// Queues a group's message. It is flushed at the end of the pass, by the dispatch that then updates receiving
    /// and the timer as well. [`DeliveryOutcome::Closed`] means that the connection has to be cut off.
    fn enqueue_broadcast(&mut self, core: &mut Core, token: Token, delivery: &Delivery) -> DeliveryOutcome {
        if TypeId::of::<C>() != delivery.kind() || self.link.is_closing() || self.link.is_write_shut() {
            return DeliveryOutcome::NotApplicable;
        }
        // Messages of this turn were not offered to the kernel yet, so they do not show that the peer reads slowly.
        let is_unsent = self.link.intersects(Link::SCHEDULED) && !self.link.intersects(Link::SENDING);
        let is_above_cap = self.link.cost(&self.codec) > self.link.settings().limits.water.cap;
        match delivery.slow() {
            Slow::Skip | Slow::Shed if is_unsent && is_above_cap => return DeliveryOutcome::Deferred,
            Slow::Skip if !is_unsent && !self.link.is_writable() => return DeliveryOutcome::Dropped,
            Slow::Shed if is_above_cap => return DeliveryOutcome::Closed,
            Slow::Skip | Slow::Shed => {}
        }
        let blocked = self.codec.status().is_blocked;
        let mut out = Output::new(self.link.outbound(), &core.pool, &core.time);
        if !delivery.write(&mut self.codec, &mut out) {
            return DeliveryOutcome::Dropped;
        }
        self.link.update_level(&self.codec);
        if blocked {
            // The codec may have waited for this before it could decode on.
            self.application.wake_reader();
        }
        self.schedule(core, token);
        DeliveryOutcome::Delivered
    }

    /// Writes the last message of a group that closes its members, and begins to close. A slow peer is bounded by the
    /// deadlines of sending, and the message is one at most.
    #[cold]
    fn close_as_member(&mut self, core: &mut Core, token: Token, delivery: &Delivery) -> DeliveryOutcome {
        if self.link.is_closing() {
            return DeliveryOutcome::NotApplicable;
        }
        if TypeId::of::<C>() == delivery.kind() && !self.link.is_write_shut() && !delivery.is_empty() {
            let mut out = Output::new(self.link.outbound(), &core.pool, &core.time);
            // A codec that refuses it closes without it.
            delivery.write(&mut self.codec, &mut out);
            self.link.update_level(&self.codec);
        }
        self.link.close_in_order();
        self.schedule(core, token);
        DeliveryOutcome::Delivered
    }

    /// Takes in the event.
    #[inline]
    fn on_event(&mut self, core: &mut Core, token: Token, event: SlotEvent) -> Dispatched<Next> {
        match event {
            SlotEvent::Received(bytes) => return Ok(self.take_in(core, token, bytes)),
            SlotEvent::ReceivedLast(bytes) => {
                self.link.set(Link::PEER_ENDED, true);
                return Ok(self.take_in(core, token, bytes));
            }
            SlotEvent::OpenedWith(bytes) => {
                self.take_in_opening(core, token, bytes)?;
                return Ok(Next::ProcessOpening);
            }
            SlotEvent::Sent(result) => self.on_sent(core, token, result)?,
            SlotEvent::Scheduled => self.link.set(Link::SCHEDULED, false),
            event => return self.on_rare_event(core, token, event),
        }
        Ok(Next::Process)
    }

    /// Takes in bytes of the peer.
    #[inline]
    fn take_in(&mut self, core: &mut Core, token: Token, bytes: Slice) -> Next {
        self.on_received(core, token, bytes);
        if A::PULLS && self.may_decode() && self.application.wake_reader() && core.dispatch_after_tasks(token) {
            // Its next dispatch is known: actions of the tasks request no other.
            self.link.set(Link::SCHEDULED, true);
            return Next::AwaitTasks;
        }
        Next::Process
    }

    fn on_received(&mut self, core: &mut Core, token: Token, bytes: Slice) {
        if self.link.is_stream() {
            self.link.set(Link::CONSUMED, true);
        } else {
            core.counters.received_bytes += bytes.len() as u64;
            core.last_received = bytes.len();
            self.link.set(Link::RECEIVED, true);
            if self.link.intersects(Link::SHAPED) {
                self.charge_received(core, token, bytes.len());
            }
        }
        if self.link.is_shut() && self.link.is_closing() {
            // The peer is still busy sending, and has probably not read our last answer yet.
            self.link.progress = DeadlineTick::NEVER;
        }
        // Once the connection is closing, bytes are only of use to a handshake that our last bytes wait for.
        if !self.link.is_closing() || self.wants_input() {
            self.link.input.append(bytes, &core.pool);
        }
    }

    /// Decodes, flushes and notifies, in rounds, until there is nothing left to do or the budget is used up. Returns
    /// whether all is done but sending, which only a stream can be that is `opening` ([`Next::ProcessOpening`]).
    fn process(&mut self, core: &mut Core, token: Token, mut opening: bool) -> Dispatched<bool> {
        let mut budget = DispatchBudget {
            messages: MESSAGES_PER_DISPATCH_MAX,
            sends: SENDS_PER_DISPATCH_MAX,
            watched: true,
            work: Work::begin(),
        };
        loop {
            let starved = self.decode(core, token, &mut budget)?;
            if std::mem::take(&mut opening) {
                if self.is_answered(core) || (self.codec.buffered_bytes() > 0 && self.finish_answer(core)) {
                    return Ok(true);
                }
                if self.link.outbound_is_empty() {
                    // A stream that waits keeps no memory of the answer before.
                    self.link.outbound().clear();
                }
            }
            self.link.set(Link::HAS_BACKLOG, !starved);
            if !self.link.is_closing() && self.codec.status().is_finished {
                self.link.closing = Some(core.done.clone());
            }
            if !A::PULLS && std::mem::take(&mut core.has_spawned) && self.awaits_task(core, token) {
                return Err(Disposition::Keep);
            }
            self.flush(core, token, &mut budget)?;
            let notified = self.notify_edges(core, token, &mut budget)?;
            if budget.messages == 0 || budget.sends == 0 {
                if !self.link.take(Link::SCHEDULED) {
                    core.queues.continue_later(token);
                }
                self.link.set(Link::SCHEDULED, true);
                return Ok(false);
            }
            if !notified && (starved || !self.may_decode()) {
                return Ok(false);
            }
        }
    }

    /// The handler waits for a future, which the loop polls as soon as the dispatch is over. Returns whether the
    /// dispatch goes on after that, so that the rest of the input stays where it is, and one flush sends all replies.
    fn awaits_task(&mut self, core: &mut Core, token: Token) -> bool {
        if !core.may_await_tasks || self.link.is_stream() || self.link.is_closing() || !core.dispatch_after_tasks(token)
        {
            return false;
        }
        self.link.set(Link::SCHEDULED, true);
        true
    }

    /// Whether another message may be decoded now.
    #[inline]
    pub(super) fn may_decode(&self) -> bool {
        !self.link.is_closing()
            && !self.link.intersects(Link::PAUSED | Link::READ_CLOSED)
            && (self.link.is_writable() || self.application.reads_while_unwritable())
    }

    /// Decodes and handles messages. Returns whether it stopped for want of input.
    pub(super) fn decode(&mut self, core: &mut Core, token: Token, budget: &mut DispatchBudget) -> Dispatched<bool> {
        if self.link.intersects(Link::HANDSHAKE) {
            self.advance_handshake(core, token)?;
        }
        if self.has_become_writable() && !self.application.reads_while_unwritable() {
            // The application no longer blocks the connection: bytes that came meanwhile are not late.
            self.link.resume_codec(&mut self.codec, core);
        }
        while !A::PULLS && self.may_decode() && budget.messages > 0 {
            let ended = self.link.intersects(Link::PEER_ENDED);
            let (outbound, input) = self.link.queues();
            let before = (outbound.written(), self.codec.buffered_bytes());
            let mut reply = Output::new(outbound, &core.pool, &core.time);
            let step =
                if ended { self.codec.decode_eof(input, &mut reply) } else { self.codec.decode(input, &mut reply) };
            // Each message of the handler is compared with the water marks when it is sent.
            if outbound.written() != before.0 || self.codec.buffered_bytes() > before.1 {
                self.link.update_level(&self.codec);
                self.check_replies()?;
            }
            // The other cases are distinguished later: the test for a message is one comparison then.
            let Ok(Step::Message(message)) = step else {
                if matches!(step, Ok(Step::NeedMore)) {
                    return Ok(true);
                }
                self.on_decode_end(core, token, step)?;
                continue;
            };
            budget.messages -= 1;
            core.counters.messages += u64::from(!A::IS_SESSION);
            // Not through `call`: a message that passes through a closure is copied once more.
            let mut context = Context::new(&mut self.codec, &mut self.link, core, token);
            match self.application.message(message, &mut context) {
                // `Continue` has nothing to drop.
                outcome @ Outcome::Continue => std::mem::forget(outcome),
                outcome => self.apply_outcome(core, token, outcome)?,
            }
            if budget.work.nanos() >= WORK_PER_DISPATCH_MAX {
                budget.messages = 0;
                self.note_work(core, token);
            }
        }
        if (A::PULLS || !self.may_decode()) && self.wants_input() {
            self.drive_handshake(core);
            if self.link.intersects(Link::PEER_ENDED) && !self.link.is_closing() && !self.codec.is_established() {
                self.fail_handshake(core);
            }
        }
        Ok(A::PULLS)
    }

    /// A few messages were much work: the next ones wait behind those of light connections. A stream has no socket; its
    /// session has done the same work.
    #[cold]
    fn note_work(&self, core: &mut Core, token: Token) {
        if !self.link.is_stream() {
            core.driver.note_work(token);
        }
    }

    /// Decoding has come to an end, in order or with an error.
    #[cold]
    fn on_decode_end(&mut self, core: &mut Core, token: Token, step: Result<Step<C::In>, C::Error>) -> Dispatched {
        match step {
            Ok(Step::Message(_) | Step::NeedMore) => {}
            Ok(Step::End) => {
                self.link.set(Link::READ_CLOSED, true);
                if injected::is_injected(Bug::EofReportedTwice) {
                    self.notify(core, token, Event::ReadClosed)?;
                }
                self.notify(core, token, Event::ReadClosed)?;
            }
            Err(fault) => self.on_codec_fault(core, token, fault),
        }
        Ok(())
    }

    /// The codec has failed while bytes or time came: the connection closes, and the application learns why at once.
    #[cold]
    pub(super) fn on_codec_fault(&mut self, core: &mut Core, token: Token, fault: C::Error) {
        self.link.close_on_error(Err(fault));
        if let Some(reason) = self.link.closing.clone() {
            let mut context = Context::new(&mut self.codec, &mut self.link, core, token);
            self.application.faulted(&reason, &mut context);
        }
    }

    /// The peer has ended within the handshake, so the queued messages can never leave. The error would be the next
    /// message's result, but no task may request that message: a task that waits for room or for a flush does not.
    #[cold]
    fn fail_handshake(&mut self, core: &Core) {
        let (outbound, input) = self.link.queues();
        let ended = self.codec.decode_eof(input, &mut Output::new(outbound, &core.pool, &core.time));
        self.link.close_on_error(ended.map(drop));
    }

    /// Whether the codec wants bytes even if the application wants no messages. While the peer does not read the
    /// waiting wire bytes, the codec does not elicit more from it.
    pub(super) fn wants_input(&self) -> bool {
        !self.codec.is_established()
            && !self.link.intersects(Link::READ_FAILED)
            && self.link.wire_cost() <= self.link.settings().limits.water.replies_cap
    }

    /// The handshake comes before the first message, and so does the event that reports its end.
    #[cold]
    fn advance_handshake(&mut self, core: &mut Core, token: Token) -> Dispatched {
        if self.wants_input() {
            self.drive_handshake(core);
        }
        if self.codec.is_established() {
            self.link.set(Link::HANDSHAKE, false);
            core.counters.handshakes += 1;
            self.notify(core, token, Event::Established)?;
        }
        Ok(())
    }

    #[cold]
    fn drive_handshake(&mut self, core: &Core) {
        let (outbound, input) = self.link.queues();
        let pumped = self.codec.drive_handshake(input, &mut Output::new(outbound, &core.pool, &core.time));
        self.link.close_on_error(pumped);
    }

    /// The codec has replied: the water marks do not stop it in the middle of that, so there is a cap.
    pub(super) fn check_replies(&self) -> Dispatched {
        if self.link.cost(&self.codec) > self.link.settings().limits.water.replies_cap {
            return Err(Disposition::reset(CloseReason::RepliesUnread));
        }
        Ok(())
    }

    /// Notifies the application of edges since the last notification. Returns whether there was one.
    fn notify_edges(&mut self, core: &mut Core, token: Token, budget: &mut DispatchBudget) -> Dispatched<bool> {
        if self.link.is_closing() {
            return Ok(false);
        }
        let mut notified = false;
        if self.link.intersects(Link::HANDSHAKE) && self.codec.is_established() {
            self.link.set(Link::HANDSHAKE, false);
            core.counters.handshakes += 1;
            self.notify(core, token, Event::Established)?;
            notified = true;
        }
        if self.link.is_watching() && self.watched_is_sent() {
            if std::mem::take(&mut budget.watched) {
                self.link.stop_watching();
                self.notify(core, token, Event::Flushed)?;
                notified = true;
            } else {
                self.schedule(core, token);
            }
        }
        if self.has_become_writable() {
            if !self.application.reads_while_unwritable() {
                // At once, even if the event comes a turn later: bytes that come before it are decoded before.
                self.link.resume_codec(&mut self.codec, core);
            }
            if self.link.admits_edge(core.counters.turns) {
                self.link.set(Link::EDGE_DUE, false);
                if injected::is_injected(Bug::WritableTwice) {
                    self.notify(core, token, Event::Writable)?;
                }
                self.notify(core, token, Event::Writable)?;
                notified = true;
            } else {
                // Once a turn, or writing and notifying would alternate without end.
                self.schedule(core, token);
            }
        }
        Ok(notified)
    }

    /// Whether the connection is writable again and the application was not notified yet.
    pub(super) fn has_become_writable(&self) -> bool {
        self.link.intersects(Link::EDGE_DUE) && self.link.is_writable()
    }

    /// Ends a dispatch: no memory of the scratch is kept, receiving is switched as it should be, and one timer is
    /// armed (`deadlines.rs`).
    fn update_interest(&mut self, core: &mut Core, token: Token) -> Dispatched {
        if injected::is_injected(Bug::PartialInputLost) {
            let rest = self.link.input.len();
            self.link.input.consume(rest);
        }
        self.link.input.compact(&core.pool);
        self.codec.compact(&core.pool);
        if A::PULLS && self.link.is_closing() {
            self.application.on_closing();
        }
        if A::IS_SESSION && self.link.is_closing() {
            let reason = self.link.closing.clone();
            self.application.on_session_closing(&mut self.codec, &mut self.link, core, reason);
        }
        if A::PULLS && !self.application.wants_message() && self.application.suspended() {
            self.schedule(core, token);
        }
        if self.link.is_stream() {
            self.report_unread(core);
        } else {
            self.update_receiving(core, token);
        }
        let mut timer = self.next_timer(core, token);
        if self.link.intersects(Link::SHAPED) {
            timer = self.update_shaped(core, token, timer);
        }
        core.set_timer(token, timer);
        Ok(())
    }

    /// Of a stream: reports the bytes that the application has finished with to the session. A handler that has left
    /// bytes takes them in a later dispatch, which may receive nothing and has to report as well.
    #[cold]
    fn report_unread(&mut self, core: &mut Core) {
        if let Some(stream) = self.link.stream()
            && !self.application.is_reader_notified()
            && self.link.take(Link::CONSUMED)
        {
            core.request(stream, StreamRequestKind::Unread);
            self.link.set(Link::CONSUMED, !A::PULLS && self.unread_bytes() > 0);
        }
    }

    #[inline]
    fn update_receiving(&mut self, core: &mut Core, token: Token) {
        let mut receive = self.wants_receive();
        if self.link.intersects(Link::SHAPED) {
            receive &= self.may_receive(core, token);
        }
        if receive != self.link.intersects(Link::RECEIVING) {
            self.link.set(Link::RECEIVING, receive);
            core.driver.submit(token, Operation::Receive(receive));
        }
        if receive && let Some(hint) = self.codec.receive_hint() {
            core.driver.hint_receive(token, hint);
        }
    }

    /// Of a stream: the bytes whose window is not granted again yet. A message that the application works on is unread.
    /// A part of a message is not: the codec bounds it, and waits for the rest.
    fn unread_bytes(&self) -> u32 {
        let wants_more =
            if A::PULLS { self.application.wants_message() } else { !self.link.intersects(Link::HAS_BACKLOG) };
        let is_blocked = || !self.link.input.is_empty() && self.codec.status().is_blocked;
        if wants_more && self.may_decode() && !is_blocked() {
            return 0;
        }
        self.link.input.len() as u32 + self.application.unfinished_bytes()
    }

    fn wants_receive(&self) -> bool {
        if self.link.intersects(Link::PEER_ENDED) {
            return false;
        }
        if self.link.is_closing() {
            // To see the peer's end; and for a handshake that our last bytes wait for.
            return self.link.is_shut() || self.wants_input();
        }
        // Bytes that were read already are decoded first: neither a flood of tiny messages nor the bytes after a
        // request that has not been answered yet must pile up.
        let read = !self.link.input.is_empty() || self.codec.input_memory() > 0;
        let full = self.link.intersects(Link::HAS_BACKLOG) || (read && self.codec.status().is_blocked);
        let wanted = !A::PULLS || self.application.wants_message();
        (self.may_decode() && wanted && !full) || self.wants_input()
    }

    /// Calls the handler and follows its outcome.
    #[inline]
    pub(super) fn call(
        &mut self,
        core: &mut Core,
        token: Token,
        call: impl FnOnce(&mut A, &mut Context<'_, C, A::Post>) -> Outcome<C>,
    ) -> Dispatched {
        let mut context = Context::new(&mut self.codec, &mut self.link, core, token);
        match call(&mut self.application, &mut context) {
            Outcome::Continue => Ok(()),
            outcome => self.apply_outcome(core, token, outcome),
        }
    }

    /// Notifies the application of an event, unless the connection closes: then `closed` is the only call left.
    #[inline(never)]
    pub(super) fn notify(&mut self, core: &mut Core, token: Token, event: Event<A::Post>) -> Dispatched {
        if self.link.is_closing() {
            return Ok(());
        }
        self.call(core, token, |application, cx| application.event(event, cx))
    }

    #[cold]
    fn apply_outcome(&mut self, core: &mut Core, token: Token, outcome: Outcome<C>) -> Dispatched {
        match outcome {
            Outcome::Continue => {}
            Outcome::Close => self.link.closing = Some(core.done.clone()),
            Outcome::Abort => return Err(Disposition::reset(CloseReason::Aborted)),
            Outcome::Reset(code) => return Err(Disposition::reset(CloseReason::StreamReset { code, by_peer: false })),
            Outcome::Fail(error) if self.codec.status().is_close_delimited => {
                return Err(Disposition::reset(CloseReason::Failed(error)));
            }
            Outcome::Fail(error) => self.fail_codec(core, Rc::new(CloseReason::Failed(error))),
            Outcome::Switch(switch) => {
                // A barrier: the old codec's output is sent before the new one's.
                self.flush(core, token, &mut DispatchBudget::barrier())?;
                if !self.link.is_closing() {
                    return Err(Self::switched(switch));
                }
            }
        }
        Ok(())
    }

    #[inline(never)]
    pub(super) fn schedule(&mut self, core: &mut Core, token: Token) {
        if !self.link.take(Link::SCHEDULED) {
            core.queues.schedule(token);
        }
        self.link.set(Link::SCHEDULED, true);
    }

    /// The connection broke; if it was closing, the reason is known already. A peer that can still see it gets a
    /// reset: our system may have failed, and the peer must not take truncated bytes for complete ones.
    pub(super) fn on_io_error(&mut self, error: io::Error) -> Disposition {
        Disposition::Close { reason: self.close_reason_or(CloseReason::Broken(error)), reset: true }
    }

    /// Why the connection was being closed, if it was; but `Done` does not count while bytes are left.
    pub(super) fn close_reason_or(&mut self, other: impl Into<Rc<CloseReason>>) -> Rc<CloseReason> {
        let undone = !self.link.outbound_is_empty() || self.buffered_bytes() > 0;
        match self.link.closing.take() {
            Some(reason) if !(undone && matches!(*reason, CloseReason::Done)) => reason,
            _ => other.into(),
        }
    }

    /// The end of closing in good order.
    pub(super) fn close_now(&mut self) -> Disposition {
        let reason = self.link.closing.take().unwrap_or_else(|| Rc::new(CloseReason::Done));
        Disposition::Close { reason, reset: false }
    }
}

impl Link {
    /// Compiled once, and not for each pipeline.
    #[inline(never)]
    fn count_closed(&mut self, core: &mut Core, reason: &CloseReason) {
        if self.is_stream() {
            core.counters.streams -= 1;
            self.leave_session();
            return;
        }
        core.counters.connections -= 1;
        core.counters.count_closed(reason.cause());
        core.counters.handshakes_failed += u64::from(self.intersects(Self::HANDSHAKE));
        if reason.blame().is_some() {
            let (now, peer) = (core.time.now(), self.peer(&core.sessions));
            if self.intersects(Self::HANDSHAKE) {
                core.log.closed_in_handshake(now, &peer, reason);
            } else {
                core.log.closed(now, &peer, reason);
            }
        }
    }
}
