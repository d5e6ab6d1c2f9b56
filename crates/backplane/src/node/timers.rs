//! `Timers`: the deadlines of a node, in order.

use std::collections::BTreeMap;
use std::time::Instant;

use crate::broker::RoomName;

#[derive(Debug, Default)]
pub(super) struct Timers {
    /// By the time, then by the number of the timer.
    timers: BTreeMap<(Instant, u64), Timer>,
    last: u64,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Timer {
    /// A room without members is unsubscribed.
    Close(RoomName),
    /// A history is read again.
    Retry(RoomName),
    /// Joins and leaves are published.
    PresenceWindow,
    /// Leases are renewed.
    Renewal,
    /// Leases of other nodes may have ended.
    Expiry,
}

impl Timers {
    pub(super) fn add(&mut self, at: Instant, timer: Timer) {
        self.last += 1;
        self.timers.insert((at, self.last), timer);
    }

    pub(super) fn next(&self) -> Option<Instant> {
        self.timers.first_key_value().map(|((at, _), _)| *at)
    }

    /// The first timer that is due.
    pub(super) fn pop(&mut self, now: Instant) -> Option<Timer> {
        let entry = self.timers.first_entry().filter(|entry| entry.key().0 <= now)?;
        Some(entry.remove())
    }
}
