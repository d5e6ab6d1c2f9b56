//! The memory that sessions keep beside their streams, in the ledger of the loop.
//!
//! An endpoint is one entry of the loop, with the memory of its largest session: so the loop compares that session with other
//! connections, and not the sum of many small ones. The loop sheds an entry again until enough is free.

use std::collections::HashMap;

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
        self.kept_of_sessions().into_values().max().unwrap_or(0)
    }

    /// The bytes that each session keeps.
    fn kept_of_sessions(&self) -> HashMap<SessionNumber, usize> {
        let mut sessions = HashMap::new();
        if self.kept.bytes() > 0 {
            self.base.endpoint.each_kept(&mut |number, bytes| *sessions.entry(number).or_default() += bytes);
        }
        sessions
    }

    /// Takes memory of the session that keeps the most, and of others that keep at least half as much, until enough is free: its
    /// datagrams, which may be lost at any time, or else the session.
    #[cold]
    pub(super) fn shed(&mut self, core: &mut Core, token: Token) {
        let mut sessions: Vec<_> = self.kept_of_sessions().into_iter().collect();
        sessions.sort_unstable_by_key(|(number, bytes)| (std::cmp::Reverse(*bytes), *number));
        let least = sessions.first().map_or(0, |(_, bytes)| *bytes).div_ceil(2).max(1);
        let (mut shed, mut ended) = (0, 0);
        for (number, _) in sessions.into_iter().take_while(|(_, bytes)| *bytes >= least) {
            if shed > 0 && core.pool.ledger().used() <= used_after_shedding(core.pool.ledger()) {
                break;
            }
            let before = self.kept.bytes();
            self.base.endpoint.drop_datagrams(number);
            self.charge_kept();
            if self.kept.bytes() >= before {
                self.end_session_for(core, number, Some(ResetCause::Refused), &CloseReason::Shed);
                self.charge_kept();
                ended += 1;
            }
            shed += 1;
        }
        if ended > 0 {
            tracing::warn!(subsystem = "engine", sessions = ended, "the memory budget is used up: sessions were ended");
        }
        if shed > 0 {
            // The protocol has datagrams for their peers.
            core.queues.schedule_session(token);
        }
    }
}
