//! `MemoryGuard`: keeps a loop within its budget, and gives memory back after a burst.

use std::time::{Duration, Instant};

use tidegate_buffer::Ledger;
use tidegate_sys::memory;

use crate::limits::EXHAUSTED_PAUSE;
use crate::loop_core::Core;
use crate::slot_entry::{SlotEntry, SlotEvent, SocketState};

/// What a loop remembers of its memory from turn to turn.
#[derive(Default)]
pub(crate) struct MemoryGuard {
    burst: Burst,
    exhausted: bool,
    /// The last walk over all connections found too few bytes to shed.
    failed_shed: Option<FailedShed>,
}

impl MemoryGuard {
    /// Whether the budget was used up when the last turn ended.
    pub(crate) fn is_exhausted(&self) -> bool {
        self.exhausted
    }

    /// Sheds connections while the budget is used up, those with most bytes waiting first, until an eighth of it is
    /// free again.
    pub(crate) fn check(&mut self, core: &mut Core, paused: bool) {
        let is_exhausted = core.pool.ledger().is_exhausted();
        if !paused && !is_exhausted {
            return;
        }
        // The memory of closed connections comes back with the driver's last completion for each.
        let mut closing_memory = core.closing_memory();
        if is_exhausted && self.must_shed(core, closing_memory) {
            closing_memory = self.shed(core, closing_memory);
        }
        // Receiving goes on as soon as the budget is not used up, not only when an eighth of it is free: the rest may
        // be partial messages, which have to be read to their end before memory is freed.
        let pause = core.pool.ledger().is_exhausted();
        if pause && !self.exhausted && closing_memory == 0 {
            core.log.out_of_memory(core.time.now());
        }
        self.exhausted = pause;
        core.driver.pause_receives(pause);
    }

    /// Whether a walk over all connections may find one to shed. The loop makes no walk while the memory that closed
    /// connections give back suffices. After a walk that found too little, the loop waits until more memory is in use
    /// or [`EXHAUSTED_PAUSE`] is over.
    fn must_shed(&self, core: &Core, closing_memory: usize) -> bool {
        let ledger = core.pool.ledger();
        let is_repeated = self.failed_shed.as_ref().is_some_and(|failed_shed| {
            let since = core.time.now().saturating_duration_since(failed_shed.at);
            ledger.used() <= failed_shed.used && since < EXHAUSTED_PAUSE
        });
        ledger.used() > used_after_shedding(ledger) + closing_memory && !is_repeated
    }

    /// Sheds connections. Returns the bytes that closed connections give back later, `closing_memory` included.
    fn shed(&mut self, core: &mut Core, mut closing_memory: usize) -> usize {
        let enough = used_after_shedding(core.pool.ledger());
        // Shedding a connection without memory frees nothing.
        let bytes = |entry: &dyn SlotEntry, token| entry.memory_bytes() + core.charges.of(token);
        let entries = core.slots.iter().map(|(token, entry)| (entry, bytes(entry, token), token));
        let entries = entries.filter(|(entry, bytes, _)| *bytes > 0 && entry.socket_state() != SocketState::Closing);
        let mut by_bytes: Vec<_> = entries.map(|(_, bytes, token)| (bytes, token)).collect();
        by_bytes.sort_unstable();
        self.failed_shed = loop {
            let used = core.pool.ledger().used();
            if used <= enough + closing_memory {
                break None;
            }
            let Some((bytes, token)) = by_bytes.pop() else { break Some(FailedShed { used, at: core.time.now() }) };
            core.dispatch(token, SlotEvent::Shed);
            let returned = used.saturating_sub(core.pool.ledger().used());
            closing_memory += bytes.saturating_sub(returned);
        };
        closing_memory
    }

    /// Nothing is to be done: the moment to give memory back after a burst. Returns how long the loop may sleep until
    /// it is to try again, if a burst was over too soon after the last.
    pub(crate) fn before_sleep(&mut self, core: &mut Core) -> Option<Duration> {
        let used = core.slots.len() * CONNECTION_BYTES + core.pool.ledger().used();
        if self.burst.is_over(used) { self.give_back(core, used) } else { None }
    }

    #[cold]
    fn give_back(&mut self, core: &mut Core, used: usize) -> Option<Duration> {
        let wait = self.burst.until_give_back(used, core.time.now());
        if wait.is_zero() {
            core.groups.sweep(&mut core.slots);
            core.pool.trim();
            memory::give_back();
            return None;
        }
        Some(wait)
    }
}

/// The memory in use after a walk that found too little to shed, and the time of that walk.
struct FailedShed {
    used: usize,
    at: Instant,
}

/// Shedding ends when this many bytes are in use: an eighth of the budget is free then.
fn used_after_shedding(ledger: &Ledger) -> usize {
    ledger.budget() - ledger.budget() / 8
}

/// Detects that much memory was in use and little is now.
///
/// Messages of many bytes look like bursts that follow each other closely. If their memory went back each time, each of
/// them would be written to pages that the kernel has to clear first.
#[derive(Debug, Default)]
struct Burst {
    peak: usize,
    /// When memory was given back last.
    given_back: Option<Instant>,
}

impl Burst {
    fn is_over(&mut self, used: usize) -> bool {
        self.peak = self.peak.max(used);
        self.peak >= BURST_BYTES_MIN && used <= self.peak / 4
    }

    /// How long to wait after a burst until memory is given back. If it is not to wait, memory counts as given back.
    fn until_give_back(&mut self, used: usize, now: Instant) -> Duration {
        let since = self.given_back.map_or(GIVE_BACK_PAUSE, |at| now.saturating_duration_since(at));
        let wait = GIVE_BACK_PAUSE.saturating_sub(since);
        if wait.is_zero() {
            (self.peak, self.given_back) = (used, Some(now));
        }
        wait
    }
}

/// What a connection costs, roughly, beside its buffers.
const CONNECTION_BYTES: usize = 320;

/// Less than this is not worth a walk over the allocator's free lists.
const BURST_BYTES_MIN: usize = 512 * 1024;

/// Memory is given back at most this often.
const GIVE_BACK_PAUSE: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_goes_back_after_a_burst_and_at_most_once_a_second() {
        let (mut burst, begun) = (Burst::default(), Instant::now());
        let mut at = |milliseconds, used| {
            let now = begun + Duration::from_millis(milliseconds);
            burst.is_over(used).then(|| burst.until_give_back(used, now))
        };
        let much = 2 * BURST_BYTES_MIN;
        assert_eq!([at(0, much), at(0, much / 2)], [None, None]);
        assert_eq!([at(0, 0), at(0, 0)], [Some(Duration::ZERO), None], "at once, and once");
        assert_eq!([at(100, much), at(100, 0)], [None, Some(Duration::from_millis(900))]);
        assert_eq!([at(999, much), at(999, 0)], [None, Some(Duration::from_millis(1))]);
        assert_eq!([at(1_500, much), at(1_500, 0)], [None, Some(Duration::ZERO)]);
        assert_eq!(at(9_000, BURST_BYTES_MIN - 1), None);
        assert_eq!(at(9_000, 0), None, "that was little");
    }
}
