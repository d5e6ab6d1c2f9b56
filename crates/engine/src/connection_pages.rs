//! The answer of a loop to a request for some of its connections.

use crate::inspection::{ConnectionCursor, ConnectionInfo, ConnectionPage, SLOTS_PER_REQUEST};
use crate::loop_core::Core;
use crate::slots::connection_id;

impl Core {
    /// Describes the connections of some slots.
    pub(crate) fn connection_page(&self, event_loop: usize, cursor: ConnectionCursor) -> ConnectionPage {
        let (from, end) = (cursor.0, self.slots.end());
        let to = from.saturating_add(SLOTS_PER_REQUEST).min(end);
        let now = self.time.now();
        let described = self.slots.iter_between(from, to).filter_map(|(token, entry)| {
            let about = entry.describe(self)?;
            Some(ConnectionInfo {
                event_loop,
                id: connection_id(token),
                peer: about.peer,
                is_accepted: about.is_accepted,
                age: self.ages.age(token.generation, now),
                protocols: about.protocols,
                state: about.state,
                inbound_bytes: about.inbound_bytes,
                outbound_bytes: about.outbound_bytes,
            })
        });
        let connections = described.collect();
        ConnectionPage { connections, next: (to < end).then_some(ConnectionCursor(to)) }
    }
}
