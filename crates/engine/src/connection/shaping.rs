//! Shaping of one connection: its charges, its pauses in both directions, and their ends.
//!
//! A connection that may not send looks like one whose driver has no room: the rest of its queue waits. A connection that
//! may not receive keeps the driver from receiving. Either ends when the timer of its slot fires. The buckets are in the
//! loop's table (`crate::shaping`).

use std::time::Duration;

use tidegate_buffer::ReceiveHint;
use tidegate_codec::Pipeline;
use tidegate_sys::Token;

use super::{Application, Connection, Link};
use crate::limits::SEND_BYTES_MAX;
use crate::loop_core::Core;
use crate::wheel::DeadlineTick;

impl<C: Pipeline, A: Application<C>> Connection<C, A> {
    /// The connection opens: it has the shaping of its listener or client.
    #[cold]
    pub(super) fn begin_shaping(&mut self, core: &mut Core, token: Token) {
        let shaping = self.link.settings().limits.shaping;
        self.link.set_shaping(core, token, &shaping);
    }

    /// Bytes have come. After the end of our side they are discarded, and count for nothing.
    #[cold]
    pub(super) fn charge_received(&mut self, core: &mut Core, token: Token, bytes: usize) {
        if !(self.link.is_closing() && self.link.is_shut()) {
            core.shaping.received(token.slot, bytes, core.time.now());
        }
    }

    /// How many bytes the next send may take. If `None`, the rest of the queue waits: for that the peer is not to blame.
    #[cold]
    pub(super) fn admit_send(&mut self, core: &mut Core, token: Token) -> Option<usize> {
        let wanted = self.link.outbound().pending().clamp(1, SEND_BYTES_MAX as u64);
        let admitted = core.shaping.admit_send(token.slot, wanted, core.time.now());
        if admitted.is_none() {
            self.link.set(Link::SENDING, true);
            self.link.progress = DeadlineTick::NEVER;
        }
        admitted.map(|bytes| bytes as usize)
    }

    /// Whether a connection that is to receive may. Bytes that are discarded always come.
    #[cold]
    pub(super) fn may_receive(&self, core: &Core, token: Token) -> bool {
        self.link.is_closing() && self.link.is_shut() || !core.shaping.is_receive_held(token.slot)
    }

    /// The end of a dispatch of a shaped connection: how large its next receive should be, and when its timer fires.
    #[cold]
    pub(super) fn update_shaped(&mut self, core: &mut Core, token: Token, timer: DeadlineTick) -> DeadlineTick {
        if self.link.intersects(Link::RECEIVING) && !self.link.is_closing() {
            let bytes_max = core.shaping.receive_bytes_max(token.slot, core.time.now());
            core.driver.hint_receive(token, ReceiveHint { bytes_max, ..self.codec.receive_hint().unwrap_or_default() });
        }
        match core.shaping.next_release(token.slot) {
            Some(at) => timer.earlier(core.wheel.tick(at)),
            None => timer,
        }
    }

    /// The timer has fired: the connection receives and sends again, if it is time. Its peer has as long as before.
    #[cold]
    pub(super) fn release_shaped(&mut self, core: &mut Core, token: Token) {
        let now = core.time.now();
        let released = core.shaping.release(token.slot, now);
        if released.send.is_some() {
            self.link.set(Link::SENDING, false);
        }
        if released.receive.is_some() && !self.link.is_closing() {
            self.link.resume_codec(&mut self.codec, core);
        }
        let held = released.receive.max(released.send);
        if let Some(held) = held
            && let Some(state) = core.deadline_states.get_mut(token.slot)
        {
            state.moved = core.wheel.tick(now);
            if self.link.intersects(Link::HANDSHAKE) && state.reads_since.is_set() && held > Duration::ZERO {
                state.reads_since = state.reads_since.after(held);
            }
        }
    }

    /// Whether shaping holds sends back.
    #[inline]
    pub(super) fn is_send_held(&self, core: &Core, token: Token) -> bool {
        self.link.intersects(Link::SHAPED) && core.shaping.is_send_held(token.slot)
    }

    /// Of a stream: whether shaping holds its session back, or did until a moment ago.
    #[cold]
    pub(super) fn was_session_held(&self, core: &Core) -> bool {
        core.shaping.is_used()
            && self
                .link
                .stream()
                .and_then(|stream| core.sessions.of(stream))
                .is_some_and(|(session, _)| core.shaping.was_held_lately(session.slot, core.time.now()))
    }
}

impl Link {
    /// Whether shaping holds receives or sends back.
    pub(super) fn is_held(&self, core: &Core, token: Token) -> bool {
        self.intersects(Self::SHAPED)
            && (core.shaping.is_receive_held(token.slot) || core.shaping.is_send_held(token.slot))
    }
}
