//! The deadlines of one connection: which timer is armed, and whether a peer is late when it fires.
//!
//! A slot has one timer. It is the soonest of: the codec's deadline, the application's, and the time by which the
//! peer has to take a byte or to end the connection. A peer is late only if its bytes have not come: where the loop
//! could not read or decode them yet, the deadline is postponed.
//!
//! A connection with [`Deadlines`](crate::Deadlines) has more of them: their state is in the loop's table
//! (`peer_deadlines.rs`) and is brought up to date at the end of each dispatch.

use std::rc::Rc;
use std::time::Duration;

use tidegate_codec::{Output, Pipeline};
use tidegate_sys::Token;

use super::{Application, Connection, Link};
use crate::close_reason::CloseReason;
use crate::handler::Event;
use crate::limits::GRACE_CHECK_INTERVAL;
use crate::loop_core::Core;
use crate::peer_deadlines::{DeadlineState, Deadlines, Period};
use crate::slot_entry::{Dispatched, Disposition};
use crate::wheel::DeadlineTick;

impl<C: Pipeline, A: Application<C>> Connection<C, A> {
    /// The timer has fired.
    pub(super) fn on_timer(&mut self, core: &mut Core, token: Token) -> Dispatched {
        if self.link.intersects(Link::SHAPED) {
            self.release_shaped(core, token);
        }
        if self.link.is_closing() && self.link.is_shut() {
            let overdue = core.wheel.has_passed(self.link.progress) || core.wheel.has_passed(self.link.deadline);
            return if overdue { Err(self.close_now()) } else { Ok(()) };
        }
        if core.wheel.has_passed(self.link.progress) {
            let unacknowledged = (!self.link.is_stream()).then(|| core.driver.unacknowledged(token)).flatten();
            if self.link.update_acknowledged(unacknowledged) || self.was_session_held(core) {
                // Slowly, but the peer reads: its bytes came out of the kernel's buffer, which did not need ours yet.
                // Or we did not send.
                self.link.progress = DeadlineTick::NEVER;
            } else {
                return Err(Disposition::Close {
                    reason: self.close_reason_or(CloseReason::WriteTimeout),
                    reset: true,
                });
            }
        }
        if self.link.is_closing() {
            return Ok(());
        }
        let now = core.time.now();
        let due = self.codec.poll_timeout().filter(|at| *at <= now && self.awaits_peer());
        if due.is_some() && self.was_session_held(core) {
            // Bytes that the peer sent in time may wait behind bytes that we did not receive.
            self.link.resume_codec(&mut self.codec, core);
        } else if due.is_some_and(|at| !self.has_grace(core, token, now.saturating_duration_since(at))) {
            let (outbound, input) = self.link.queues();
            let mut out = Output::new(outbound, &core.pool, &core.time);
            if let Err(fault) = self.codec.handle_timeout(input, &mut out) {
                self.on_codec_fault(core, token, fault);
            }
        }
        if core.deadline_states.is_used() {
            let view = self.view();
            if self.link.on_peer_deadlines(core, token, &view)? {
                self.drain(core, token)?;
            }
            if self.link.is_closing() {
                return Ok(());
            }
        }
        if core.wheel.has_passed(self.link.deadline) {
            if core.lag.was_delayed() && self.has_grace(core, token, core.wheel.since(self.link.deadline)) {
                // The application may wait for the very bytes that have come.
                return Ok(());
            }
            self.link.deadline = DeadlineTick::NEVER;
            self.notify(core, token, Event::Deadline)?;
        }
        Ok(())
    }

    /// Whether a peer that is late by so much is excused: its bytes have come, and the loop has not read or not decoded
    /// them yet. Bytes that the application does not want are no excuse.
    fn has_grace(&self, core: &mut Core, token: Token, late: Duration) -> bool {
        self.link.has_grace(core, token, late, self.may_decode())
    }

    /// Whether the loop waits for bytes of the peer. While decoding is suspended, by the application or because the
    /// peer does not read, no deadline of the protocol counts; nor until the codec knows that decoding goes on; nor while
    /// shaping holds receives back.
    pub(super) fn awaits_peer(&self) -> bool {
        if self.link.is_shaped_and_not_receiving() {
            return false;
        }
        let blocked = !self.link.is_writable() || self.link.intersects(Link::EDGE_DUE);
        let reads = !blocked || self.application.reads_while_unwritable();
        let wanted = !A::PULLS || self.application.wants_message();
        (!self.link.intersects(Link::PAUSED) && reads && wanted) || self.wants_input()
    }

    /// When the timer is to fire next.
    pub(super) fn next_timer(&mut self, core: &mut Core, token: Token) -> DeadlineTick {
        let mut timer = self.progress_deadline(core, token);
        if self.link.is_closing() {
            if self.link.is_shut() {
                timer = timer.earlier(self.link.deadline);
            }
        } else {
            // A deadline that has come already was postponed.
            let again = core.time.now() + GRACE_CHECK_INTERVAL;
            timer = timer.earlier(match self.link.deadline {
                passed if core.wheel.has_passed(passed) => core.wheel.tick(again),
                ahead => ahead,
            });
            if self.awaits_peer()
                && let Some(at) = self.codec.poll_timeout()
            {
                timer = timer.earlier(core.wheel.tick(if at <= core.time.now() { again } else { at }));
            }
            if core.deadline_states.is_used() {
                timer = timer.earlier(self.next_peer_deadline(core, token));
            }
        }
        timer
    }

    /// The connection's state outside of its link.
    fn view(&self) -> View {
        View {
            codec_bytes: self.codec.input_memory(),
            awaits_peer: self.awaits_peer(),
            may_decode: self.may_decode(),
            is_close_delimited: self.codec.status().is_close_delimited,
        }
    }

    /// With most dispatches nothing changes but the time when a byte moved last, which makes no deadline come sooner: then
    /// the timer stays as it is armed, and the deadlines are computed when it fires.
    fn note_movement(&mut self, core: &mut Core, token: Token) -> Option<DeadlineTick> {
        let armed = core.timer(token);
        if !armed.is_set() || core.wheel.has_passed(armed) || self.link.intersects(Link::HANDSHAKE) {
            return None;
        }
        if !self.link.input.is_empty() || self.codec.input_memory() > 0 {
            return None;
        }
        let state = core.deadline_states.get_mut(token.slot).filter(|state| !state.reads_since.is_set())?;
        if self.link.intersects(Link::RECEIVED | Link::SENT) {
            self.link.set(Link::RECEIVED | Link::SENT, false);
            state.moved = core.wheel.tick(core.time.now());
        }
        Some(armed)
    }

    /// When the next of them comes.
    #[inline(never)]
    fn next_peer_deadline(&mut self, core: &mut Core, token: Token) -> DeadlineTick {
        if let Some(armed) = self.note_movement(core, token) {
            return armed;
        }
        if !self.link.has_peer_deadlines(core) {
            return DeadlineTick::NEVER;
        }
        let view = self.view();
        self.link.next_peer_deadline(core, token, &view)
    }

    /// By when the peer has to do something: take a byte, or end the connection.
    fn progress_deadline(&mut self, core: &Core, token: Token) -> DeadlineTick {
        let limits = &self.link.settings().limits;
        let timeout = if !self.link.outbound_is_empty() || self.buffered_bytes() > 0 {
            Some(limits.write_timeout)
        } else if self.link.is_closing() && self.link.is_shut() {
            Some(limits.linger_timeout)
        } else {
            None
        };
        match timeout {
            None => self.link.progress = DeadlineTick::NEVER,
            // The next dispatch is this turn's, sends, and comes here again: the kernel need not be asked before. One that has
            // sent already may be scheduled each time, as its budget is used up: the kernel takes no more of its bytes.
            Some(_)
                if !self.link.progress.is_set()
                    && self.link.intersects(Link::SCHEDULED)
                    && !self.link.intersects(Link::SENDING) =>
            {
                return DeadlineTick::NEVER;
            }
            Some(timeout) if !self.link.progress.is_set() => {
                let is_stream = self.link.is_stream();
                if self.is_send_held(core, token) || !is_stream && core.driver.is_sending(token) {
                    return DeadlineTick::NEVER;
                }
                if !self.link.is_shut() {
                    let unacknowledged = (!is_stream).then(|| core.driver.unacknowledged(token)).flatten();
                    self.link.update_acknowledged(unacknowledged);
                }
                self.link.progress = core.wheel.tick_after(core.time.now(), timeout);
            }
            Some(_) => {}
        }
        self.link.progress
    }
}

/// The part of a connection that is the same whatever its codec and its application are: it is compiled once.
impl Link {
    /// As for a connection; `may_decode` says whether decoding may go on.
    fn has_grace(&self, core: &mut Core, token: Token, late: Duration, may_decode: bool) -> bool {
        let undecoded = self.intersects(Self::HAS_BACKLOG) && !self.input.is_empty() && may_decode;
        core.lag.allows_grace(late) && (undecoded || self.intersects(Self::RECEIVING) && core.driver.has_input(token))
    }

    /// Whether the connection has [`Deadlines`](crate::Deadlines) at present.
    pub(super) fn has_peer_deadlines(&self, core: &Core) -> bool {
        let settings = self.settings();
        (settings.has_deadlines || self.intersects(Self::HANDSHAKE) || core.deadline_states.has_own())
            && !self.is_stream()
    }

    /// The deadlines of this connection, with their state brought up to date.
    fn peer_deadlines(&mut self, core: &mut Core, token: Token, view: &View) -> Option<(Deadlines, PeerTimes)> {
        if !self.has_peer_deadlines(core) {
            return None;
        }
        let own = core.deadline_states.own(token.slot);
        let deadlines = own.as_deref().copied().unwrap_or(self.settings().limits.deadlines);
        let shakes_hands = self.intersects(Self::HANDSHAKE);
        let (has_received, has_sent) = (self.take(Self::RECEIVED), self.take(Self::SENT));
        let is_shaking = shakes_hands && deadlines.handshake_timeout.is_some();
        if !(is_shaking || deadlines.outlast_the_handshake()) {
            core.deadline_states.remove_state(token.slot);
            return None;
        }
        let now = core.wheel.tick(core.time.now());
        let mut state = core.deadline_states.get(token.slot).unwrap_or_else(|| {
            let seed = u64::from(token.generation) << 32 | u64::from(token.slot);
            let begin = |age| core.deadline_states.begin_age(token.slot, now, age);
            let expires = deadlines.age(seed).map_or(DeadlineTick::NEVER, begin);
            DeadlineState::new(now, expires)
        });
        let is_held = self.is_held(core, token);
        if has_received || has_sent || is_held {
            state.moved = now;
        }
        let undecoded = self.input.len() + view.codec_bytes;
        if shakes_hands {
            // The time of the handshake goes on.
        } else if undecoded == 0 || !view.awaits_peer {
            state.reads_since = DeadlineTick::NEVER;
        } else if !state.reads_since.is_set() || has_received && undecoded <= core.last_received {
            // Nothing that came before is left: a message has begun with these bytes.
            state.reads_since = now;
            state.set_received(0);
        } else if has_received {
            state.set_received(state.received().saturating_add(core.last_received as u32));
        }
        let states = &mut core.deadline_states;
        state.expires = states.end_of_age(token.slot, state.expires, &core.wheel);
        let mut reading =
            |time| states.end_of((token.slot, Period::Reading), &mut state.reads_since, time, &core.wheel);
        let (handshake, read) = match shakes_hands {
            // It goes on when the connection is released (`shaping.rs`).
            true if is_held => (DeadlineTick::NEVER, DeadlineTick::NEVER),
            true => (reading(deadlines.handshake_timeout), DeadlineTick::NEVER),
            false => (DeadlineTick::NEVER, reading(deadlines.read_timeout)),
        };
        let idle = states.end_of((token.slot, Period::Idle), &mut state.moved, deadlines.idle_timeout, &core.wheel);
        states.set(token.slot, state);
        Some((deadlines, PeerTimes { idle, read, handshake, state }))
    }

    /// When the next of them comes.
    fn next_peer_deadline(&mut self, core: &mut Core, token: Token, view: &View) -> DeadlineTick {
        let Some((_, times)) = self.peer_deadlines(core, token, view) else { return DeadlineTick::NEVER };
        match times.idle.earlier(times.read).earlier(times.handshake).earlier(times.state.expires) {
            // It was postponed.
            passed if core.wheel.has_passed(passed) => core.wheel.tick(core.time.now() + GRACE_CHECK_INTERVAL),
            ahead => ahead,
        }
    }

    /// The timer has fired, perhaps for one of them. Returns whether the connection drains.
    #[cold]
    fn on_peer_deadlines(&mut self, core: &mut Core, token: Token, view: &View) -> Dispatched<bool> {
        let Some((deadlines, PeerTimes { idle, read, handshake, mut state })) = self.peer_deadlines(core, token, view)
        else {
            return Ok(false);
        };
        if self.is_peer_late(core, token, handshake, view) {
            return Err(Disposition::reset(CloseReason::HandshakeTimeout));
        }
        if self.is_peer_late(core, token, read, view) {
            if state.received() < deadlines.read_bytes_min() {
                self.closing = Some(Rc::new(CloseReason::ReadTimeout));
                return Ok(false);
            }
            state.reads_since = core.wheel.tick(core.time.now());
            state.set_received(0);
            core.deadline_states.set(token.slot, state);
        }
        if self.is_peer_late(core, token, idle, view) {
            self.closing = Some(Rc::new(CloseReason::IdleTimeout));
            return Ok(false);
        }
        if core.wheel.has_passed(state.expires) {
            if state.is_drained() {
                let reset = !self.outbound_is_empty() || view.is_close_delimited;
                return Err(Disposition::Close { reason: Rc::new(CloseReason::AgeTimeout), reset });
            }
            state.set_drained();
            let now = core.wheel.tick(core.time.now());
            state.expires = core.deadline_states.begin_age(token.slot, now, deadlines.age_grace);
            core.deadline_states.set(token.slot, state);
            return Ok(true);
        }
        Ok(false)
    }

    /// Whether a deadline has passed, and no byte has come that was not read yet.
    fn is_peer_late(&self, core: &mut Core, token: Token, deadline: DeadlineTick, view: &View) -> bool {
        core.wheel.has_passed(deadline) && !self.has_grace(core, token, core.wheel.since(deadline), view.may_decode)
    }
}

/// A connection's state outside of its link.
struct View {
    /// Bytes that the codec keeps and has not decoded.
    codec_bytes: usize,
    awaits_peer: bool,
    may_decode: bool,
    is_close_delimited: bool,
}

/// When the peer of a connection is late.
struct PeerTimes {
    idle: DeadlineTick,
    read: DeadlineTick,
    handshake: DeadlineTick,
    state: DeadlineState,
}
