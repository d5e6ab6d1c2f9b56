//! The answer of a loop to a request for some of its connections.
//!
//! A page has the connections of some slots. If endpoints with sessions are among them, pages with their sessions follow.

use std::ops::Range;
use std::time::Duration;

use crate::inspection::{ConnectionCursor, ConnectionInfo, ConnectionPage, Description, SLOTS_PER_REQUEST};
use crate::loop_core::Core;
use crate::slots::connection_id;

impl Core {
    /// Describes the connections of some slots.
    pub(crate) fn connection_page(&self, event_loop: usize, cursor: ConnectionCursor) -> ConnectionPage {
        let (from, end) = (cursor.slot, self.slots.end());
        let to = from.saturating_add(SLOTS_PER_REQUEST).min(end);
        let next = (to < end).then_some(ConnectionCursor { slot: to, session: None });
        if let Some(first) = cursor.session {
            let last = first.saturating_add(SLOTS_PER_REQUEST);
            let connections = self.sessions_between(event_loop, &(from..to), &(first..last));
            let is_over = last >= self.sessions.end();
            let next = if is_over { next } else { Some(ConnectionCursor { slot: from, session: Some(last) }) };
            return ConnectionPage { connections, next };
        }
        let now = self.time.now();
        let mut has_sessions = false;
        let described = self.slots.iter_between(from, to).filter_map(|(token, entry)| {
            has_sessions |= entry.has_sessions();
            let about = entry.describe(self)?;
            let (id, age) = (connection_id(token), self.ages.age(token.generation, now));
            Some(ConnectionInfo::new(event_loop, id, age, about))
        });
        let connections = described.collect();
        let next = if has_sessions { Some(ConnectionCursor { slot: from, session: Some(0) }) } else { next };
        ConnectionPage { connections, next }
    }

    /// Describes the sessions with these numbers on the loop, of the endpoints in some slots.
    fn sessions_between(&self, event_loop: usize, slots: &Range<u32>, links: &Range<u32>) -> Vec<ConnectionInfo> {
        let mut connections = Vec::new();
        for (_, entry) in self.slots.iter_between(slots.start, slots.end) {
            entry.describe_sessions(self, links.clone(), &mut |session| {
                connections.push(ConnectionInfo::new(event_loop, session.id, session.age, session.about));
            });
        }
        connections
    }
}

impl ConnectionInfo {
    fn new(event_loop: usize, id: u64, age: Duration, about: Description) -> Self {
        Self {
            event_loop,
            id,
            peer: about.peer,
            is_accepted: about.is_accepted,
            age,
            protocols: about.protocols,
            state: about.state,
            inbound_bytes: about.inbound_bytes,
            outbound_bytes: about.outbound_bytes,
        }
    }
}
