//! `RecentlyReset`: a connection's record of streams that are over on this side, and not yet for the peer.

use std::time::Instant;

/// The numbers of streams that were reset last: as many as the peer may have open, since it may send on all of them
/// before it knows.
#[derive(Debug, Default)]
pub(crate) struct RecentlyReset {
    ids: Vec<u32>,
    /// The oldest, once there is no room for more.
    next: usize,
    /// How many bytes the last of them have announced that are still to come, by their numbers.
    announced: Vec<(u32, u64)>,
    /// Those whose RST_STREAM is not written yet, and when it is due; the oldest first.
    deferred: Vec<(u32, Instant)>,
}

impl RecentlyReset {
    pub(crate) fn contains(&self, id: u32) -> bool {
        self.ids.contains(&id)
    }

    pub(crate) fn remember(&mut self, id: u32, ids_max: usize) {
        if self.contains(id) {
            return;
        }
        if self.ids.len() < ids_max {
            self.ids.push(id);
            return;
        }
        self.ids[self.next] = id;
        self.next = (self.next + 1) % ids_max;
    }

    pub(crate) fn forget(&mut self, id: u32) {
        // Zero is no stream, and keeps the order of the others.
        self.ids.iter_mut().filter(|known| **known == id).for_each(|known| *known = 0);
        self.announced.retain(|(known, _)| *known != id);
        self.take_deferred(id);
    }

    /// Takes note of the bytes that a stream has announced and not sent.
    pub(crate) fn expect(&mut self, id: u32, bytes: u64) {
        if self.announced.len() == ANNOUNCED_MAX {
            self.announced.remove(0);
        }
        self.announced.push((id, bytes));
    }

    /// Counts bytes for a stream. Returns whether they agree with the peer's announced length.
    pub(crate) fn receive(&mut self, id: u32, bytes: u64, ends: bool) -> bool {
        let Some(at) = self.announced.iter().position(|(stream, _)| *stream == id) else { return true };
        match self.announced[at].1.checked_sub(bytes) {
            Some(left) if !ends || left == 0 => {
                self.announced[at].1 = left;
                true
            }
            _ => {
                self.announced.remove(at);
                false
            }
        }
    }

    /// Takes note of an RST_STREAM that is to be written later. Returns the stream whose one is to be written now, since
    /// there is no room for more.
    pub(crate) fn defer_reset(&mut self, id: u32, until: Instant) -> Option<u32> {
        let oldest = (self.deferred.len() == DEFERRED_MAX).then(|| self.deferred.remove(0).0);
        self.deferred.push((id, until));
        oldest
    }

    /// Whether the RST_STREAM of a stream was deferred. It is not from now on.
    pub(crate) fn take_deferred(&mut self, id: u32) -> bool {
        let at = self.deferred.iter().position(|(stream, _)| *stream == id);
        at.map(|at| self.deferred.remove(at)).is_some()
    }

    /// A stream whose RST_STREAM is to be written by now.
    pub(crate) fn take_due(&mut self, now: Instant) -> Option<u32> {
        let is_due = self.deadline().is_some_and(|due| due <= now);
        is_due.then(|| self.deferred.remove(0).0)
    }

    /// A stream whose RST_STREAM was deferred.
    pub(crate) fn take_oldest(&mut self) -> Option<u32> {
        (!self.deferred.is_empty()).then(|| self.deferred.remove(0).0)
    }

    /// When the next RST_STREAM is due.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.deferred.first().map(|(_, due)| *due)
    }
}

/// For how many streams a connection knows how long the rest of their body is.
const ANNOUNCED_MAX: usize = 16;

/// For how many streams RST_STREAM is written later.
const DEFERRED_MAX: usize = 16;
