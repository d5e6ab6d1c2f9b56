//! The memory that sessions keep beside their streams, in the ledger of the loop.
//!
//! An endpoint is one entry of the loop, with the memory of its largest session: so the loop compares that session with other
//! connections, and not the sum of many small ones. The loop sheds an entry again until enough is free.

use tidegate_codec::mux::ResetCause;
use tidegate_codec::{SessionNumber, StreamEndpoint};
use tidegate_sys::Token;

use super::sessions::SessionsEntry;
use crate::close_reason::CloseReason;
use crate::loop_core::Core;
use crate::memory_guard::used_after_shedding;

impl<E: StreamEndpoint + 'static> SessionsEntry<E> {
    /// Counts the memory of the sessions as it is now.
    pub(super) fn charge_kept(&mut self) {
        self.kept.resize(self.base.endpoint.kept_bytes());
    }

    /// The bytes of the session that keeps the most.
    pub(super) fn largest_kept(&self) -> usize {
        let mut largest = 0;
        if self.kept.bytes() > 0 {
            self.base.endpoint.each_kept(&mut |_, bytes| largest = largest.max(bytes));
        }
        largest
    }

    /// Ends the session that keeps the most, and others that keep at least half as much, until enough memory is free.
    #[cold]
    pub(super) fn shed(&mut self, core: &mut Core, token: Token) {
        let least = self.largest_kept().div_ceil(2).max(1);
        let mut sessions: Vec<(usize, SessionNumber)> = Vec::new();
        self.base.endpoint.each_kept(&mut |number, bytes| {
            if bytes >= least {
                sessions.push((bytes, number));
            }
        });
        sessions.sort_unstable_by_key(|(bytes, _)| std::cmp::Reverse(*bytes));
        let mut ended = 0;
        for (_, number) in sessions {
            if ended > 0 && core.pool.ledger().used() <= used_after_shedding(core.pool.ledger()) {
                break;
            }
            self.end_session_for(core, number, Some(ResetCause::Refused), &CloseReason::Shed);
            self.charge_kept();
            ended += 1;
        }
        if ended > 0 {
            tracing::warn!(subsystem = "engine", sessions = ended, "the memory budget is used up: sessions were ended");
            // The protocol has datagrams for their peers.
            core.queues.schedule(token);
        }
    }
}
