//! The deadlines of one connection: which timer is armed, and whether a peer is late when it fires.
//!
//! A slot has one timer. It is the soonest of: the codec's deadline, the application's, and the time by which the
//! peer has to take a byte or to end the connection. A peer is late only if its bytes have not come: where the loop
//! could not read or decode them yet, the deadline is postponed.

use std::time::Duration;

use tidegate_codec::{Output, Pipeline};
use tidegate_sys::Token;

use super::dispatch::{Dispatched, Exit};
use super::{Application, Connection, Link};
use crate::close_reason::CloseReason;
use crate::handler::Event;
use crate::limits::GRACE_CHECK_INTERVAL;
use crate::loop_core::Core;
use crate::wheel::DeadlineTick;

impl<C: Pipeline, A: Application<C>> Connection<C, A> {
    /// The timer has fired.
    pub(super) fn on_timer(&mut self, core: &mut Core, token: Token) -> Dispatched<C> {
        if self.link.is_closing() && self.link.is_shut() {
            let overdue = core.wheel.has_passed(self.link.progress) || core.wheel.has_passed(self.link.deadline);
            return if overdue { Err(self.close_now()) } else { Ok(()) };
        }
        if core.wheel.has_passed(self.link.progress) {
            let unacknowledged = (!self.link.is_stream()).then(|| core.driver.unacknowledged(token)).flatten();
            if self.link.update_acknowledged(unacknowledged) {
                // Slowly, but the peer reads: what it took came out of the kernel's buffer, which did not need ours
                // yet.
                self.link.progress = DeadlineTick::NEVER;
            } else {
                return Err(Exit::Close { reason: self.close_reason_or(CloseReason::WriteTimeout), reset: true });
            }
        }
        if self.link.is_closing() {
            return Ok(());
        }
        let now = core.time.now();
        let due = self.codec.poll_timeout().filter(|at| *at <= now && self.awaits_peer());
        if due.is_some_and(|at| !self.has_grace(core, token, now.saturating_duration_since(at))) {
            let mut out = Output::new(self.link.outbound(), &core.pool, &core.time);
            let handled = self.codec.handle_timeout(&mut out);
            self.link.close_on_error(handled);
        }
        if core.wheel.has_passed(self.link.deadline) {
            if core.was_delayed() && self.has_grace(core, token, core.wheel.since(self.link.deadline)) {
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
        let undecoded = self.link.intersects(Link::HAS_BACKLOG) && !self.link.input.is_empty() && self.may_decode();
        core.allows_grace(late) && (undecoded || self.link.intersects(Link::RECEIVING) && core.driver.has_input(token))
    }

    /// Whether the loop waits for bytes of the peer. While decoding is suspended, by the application or because the
    /// peer does not read, no deadline of the protocol counts; nor until the codec knows that decoding goes on.
    pub(super) fn awaits_peer(&self) -> bool {
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
        }
        timer
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
            Some(timeout) if !self.link.progress.is_set() => {
                let is_stream = self.link.is_stream();
                if !is_stream && core.driver.is_sending(token) {
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
