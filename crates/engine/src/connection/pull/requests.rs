//! Requests of a channel's handle that change its connection: closing, pausing, deadlines, rates, another codec or a handler.

use std::rc::Rc;

use tidegate_codec::Pipeline;
use tidegate_sys::Token;

use super::{ChannelState, Half};
use crate::close_reason::CloseReason;
use crate::connection::Switch;
use crate::connection::application::HandlerApplication;
use crate::connection::dispatch::DispatchBudget;
use crate::connection::{Connection, MessageReader as _};
use crate::handler::Handler;
use crate::loop_core::Core;
use crate::peer_deadlines::Deadlines;
use crate::shaping::Shaping;
use crate::slot_entry::Disposition;
use crate::wheel::DeadlineTick;

impl<C: Pipeline> Connection<C, ChannelState> {
    /// Begins to close in good order.
    pub(crate) fn close(&mut self, core: &mut Core, token: Token) {
        if !self.application.intersects(ChannelState::CLOSED) && !self.link.is_closing() {
            self.link.closing = Some(core.done.clone());
            self.schedule_unless_pending(core, token);
        }
    }

    /// Resets the connection, also while it closes in good order.
    pub(crate) fn reset(&mut self, reason: CloseReason) -> Disposition {
        match self.application.intersects(ChannelState::CLOSED) {
            true => Disposition::Keep,
            false => Disposition::Close { reason: Rc::new(reason), reset: true },
        }
    }

    pub(crate) fn shutdown_write(&mut self, core: &mut Core, token: Token) {
        self.link.shut_write();
        self.schedule_unless_pending(core, token);
    }

    pub(crate) fn pause(&mut self, core: &mut Core, token: Token, pause: bool) {
        if self.link.pause(pause) && !pause {
            self.link.resume_codec(&mut self.codec, core);
            self.application.wake_reader();
        }
        self.schedule_unless_pending(core, token);
    }

    /// Sets the deadline of all operations of the channel.
    pub(crate) fn set_deadline(&mut self, core: &mut Core, token: Token, deadline: DeadlineTick) {
        if deadline.is_set() || self.application.writer_state.is_some() {
            self.application.writer_state().deadline = deadline;
        }
        if !self.link.is_closing() {
            self.link.set_deadline(deadline);
        }
        // Waiting tasks have a new deadline.
        self.application.wake_writer();
        self.application.wake_reader();
        self.schedule_unless_pending(core, token);
    }

    /// Gives the connection deadlines of its own.
    pub(crate) fn set_deadlines(&mut self, core: &mut Core, token: Token, deadlines: Deadlines) {
        self.link.set_deadlines(core, token, deadlines);
        self.schedule_unless_pending(core, token);
    }

    /// Shapes the connection from now on.
    pub(crate) fn set_shaping(&mut self, core: &mut Core, token: Token, shaping: &Shaping) {
        self.link.set_shaping(core, token, shaping);
        self.schedule_unless_pending(core, token);
    }

    /// Makes the timer fire by `deadline`, to wake the waiting tasks.
    pub(crate) fn wake_by(&mut self, core: &mut Core, token: Token, deadline: DeadlineTick) {
        let sooner = self.link.deadline.earlier(deadline);
        if sooner != self.link.deadline && !self.link.is_closing() {
            self.link.set_deadline(sooner);
            self.schedule_unless_pending(core, token);
        }
    }

    pub(super) fn is_overdue(&self, core: &Core) -> bool {
        core.wheel.has_passed(self.application.deadline())
    }

    /// Takes note of a handle that was dropped. Returns whether it was the last of a connection that is gone already.
    pub(crate) fn on_handle_dropped(
        &mut self,
        core: &mut Core,
        token: Token,
        half: Half,
        panicking: bool,
    ) -> (bool, Disposition) {
        self.application.forget(half);
        let last = !self.application.intersects(ChannelState::READER | ChannelState::WRITER);
        if self.application.intersects(ChannelState::CLOSED) {
            return (last, Disposition::Keep);
        }
        let mut disposition = Disposition::Keep;
        if panicking && !self.link.is_closing() {
            disposition = self.close_with(core, token, CloseReason::Panicked);
        } else if last {
            self.close(core, token);
        } else if half == Half::Writer {
            self.shutdown_write(core, token);
        }
        (false, disposition)
    }

    /// Whether the connection drains, alone or with its loop.
    pub(crate) fn is_draining(&self, core: &Core) -> bool {
        core.drain.is_under_way() || self.application.intersects(ChannelState::DRAINS)
    }

    pub(crate) fn ignore_drain(&mut self) {
        self.application.set(ChannelState::IGNORES_DRAIN, true);
        self.application.set(ChannelState::DRAIN_DUE, false);
    }

    pub(crate) fn set_split(&mut self, split: bool) {
        self.application.set(ChannelState::SPLIT, split);
        self.application.set(ChannelState::REPLIES_BLOCKED, false);
    }

    /// Continues with another codec, once the output of this one is flushed.
    pub(crate) fn switch<D: Pipeline>(
        &mut self,
        core: &mut Core,
        token: Token,
        to: impl FnOnce(C) -> D + 'static,
    ) -> Disposition {
        if !self.application.intersects(ChannelState::CLOSED) {
            // If that fails, it fails again in the dispatch that follows, which closes the connection: with the new
            // codec, since that is the type that the handle has.
            let _ = self.flush(core, token, &mut DispatchBudget::barrier());
        }
        let state = self.application.for_next_codec();
        Self::switched(Switch::to_application(move |codec| (to(codec), state)))
    }

    /// Continues with a handler and the same codec, once the output until now is flushed. Returns whether it does: of a
    /// closed connection only the handle is left.
    pub(crate) fn become_handler<H: Handler<C>>(
        &mut self,
        core: &mut Core,
        token: Token,
        handler: H,
    ) -> (bool, Disposition) {
        let handler = HandlerApplication(handler);
        self.switch_by(core, token, Switch::to_application(move |codec| (codec, handler)).keeping_codec())
    }

    /// Continues as the switch says, once the output until now is flushed. Returns whether it does: of a closed connection
    /// only the handle is left.
    pub(crate) fn switch_by(&mut self, core: &mut Core, token: Token, switch: Switch<C>) -> (bool, Disposition) {
        if self.application.intersects(ChannelState::CLOSED) {
            return (false, Disposition::Keep);
        }
        self.application.forget(Half::Both);
        if let Err(disposition) = self.flush(core, token, &mut DispatchBudget::barrier()) {
            return (true, disposition);
        }
        (true, Self::switched(switch))
    }
}
