//! `MemoryGuard`: keeps a loop within its budget, and gives memory back after a burst.

use std::collections::BinaryHeap;
use std::time::{Duration, Instant};

use tidegate_buffer::Ledger;
use tidegate_sys::{Token, memory};

use crate::limits::EXHAUSTED_PAUSE;
use crate::loop_core::Core;
use crate::slot_entry::{SlotEntry, SlotEvent, SocketState};

/// A loop's memory state from turn to turn.
#[derive(Default)]
pub(crate) struct MemoryGuard {
    burst: Burst,
    resident: Resident,
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
        // A loop may be too busy to sleep as long as a burst lasts.
        self.burst.note(used(core));
        let is_exhausted = core.pool.ledger().is_exhausted();
        if !paused && !is_exhausted {
            return;
        }
        // The memory of closed connections comes back with the driver's last completion for each.
        let mut closing_memory = core.drain.closing_memory();
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
        let entries = core.slots.iter().map(|(token, entry)| (entry, bytes_of(core, entry, token), token));
        let entries = entries.filter(|(entry, bytes, _)| *bytes > 0 && entry.socket_state() != SocketState::Closing);
        let mut by_bytes: BinaryHeap<_> = entries.map(|(_, bytes, token)| (bytes, token)).collect();
        self.failed_shed = loop {
            let used = core.pool.ledger().used();
            if used <= enough + closing_memory {
                break None;
            }
            let Some((bytes, token)) = by_bytes.pop() else { break Some(FailedShed { used, at: core.time.now() }) };
            core.dispatch(token, SlotEvent::Shed);
            let returned = used.saturating_sub(core.pool.ledger().used());
            let endpoint = core.slots.get(token).filter(|entry| entry.has_sessions());
            match endpoint.map(|entry| bytes_of(core, entry, token)) {
                // An endpoint ends its largest sessions, and may have others.
                Some(left) if (1..bytes).contains(&left) => by_bytes.push((left, token)),
                Some(_) => {}
                None => closing_memory += bytes.saturating_sub(returned),
            }
        };
        closing_memory
    }

    /// Nothing is to be done: the moment to give memory back after a burst. Returns how long the loop may sleep until
    /// it is to try again, if a burst was over too soon after the last.
    pub(crate) fn before_sleep(&mut self, core: &mut Core) -> Option<Duration> {
        let used = used(core);
        if self.burst.is_over(used) {
            return self.give_back(core, used);
        }
        let moved = core.counters.transferred_bytes();
        if self.resident.is_due(moved) { self.check_resident(core, moved) } else { None }
    }

    #[cold]
    fn give_back(&mut self, core: &mut Core, used: usize) -> Option<Duration> {
        let wait = self.burst.until_give_back(used, core.time.now());
        if wait.is_zero() {
            core.groups.sweep(&mut core.slots);
            core.pool.trim();
            memory::give_back();
            self.resident.given_back();
            return None;
        }
        Some(wait)
    }

    /// The allocator may keep memory that the ledger has never seen: that of applications.
    #[cold]
    fn check_resident(&mut self, core: &Core, moved: u64) -> Option<Duration> {
        let wait = self.resident.until_check(core.time.now(), moved);
        if wait.is_zero() {
            self.resident.check(memory::resident_bytes, memory::give_back);
            return None;
        }
        Some(wait)
    }
}

/// Bytes that shedding an entry frees.
fn bytes_of(core: &Core, entry: &dyn SlotEntry, token: Token) -> usize {
    entry.memory_bytes() + core.charges.of(token)
}

/// The memory of a loop, roughly.
fn used(core: &Core) -> usize {
    core.slots.len() * CONNECTION_BYTES + core.pool.ledger().used()
}

/// The memory in use after a walk that found too little to shed, and the time of that walk.
struct FailedShed {
    used: usize,
    at: Instant,
}

/// Shedding ends when this many bytes are in use: an eighth of the budget is free then.
pub(crate) fn used_after_shedding(ledger: &Ledger) -> usize {
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
    #[inline]
    fn note(&mut self, used: usize) {
        self.peak = self.peak.max(used);
    }

    fn is_over(&mut self, used: usize) -> bool {
        self.note(used);
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

/// The resident memory of the process, which the allocator may keep after applications have freed it.
///
/// When it is looked at depends on the bytes that the loop has moved, and never on its size: a simulated loop turns at the
/// same times in each run.
#[derive(Debug, Default)]
struct Resident {
    /// The bytes that the loop had moved at the last look.
    moved: u64,
    looked: Option<Instant>,
    /// The resident memory after memory was given back.
    kept: u64,
    /// Looks that are left out, since giving back has freed little.
    skipped: u32,
    skips: u32,
}

impl Resident {
    /// Whether enough has happened since the last look.
    fn is_due(&self, moved: u64) -> bool {
        moved.wrapping_sub(self.moved) >= MOVED_BYTES_MIN
    }

    /// How long to wait until the next look. If it is not to wait, it counts as done.
    fn until_check(&mut self, now: Instant, moved: u64) -> Duration {
        let since = self.looked.map_or(GIVE_BACK_PAUSE, |at| now.saturating_duration_since(at));
        let wait = GIVE_BACK_PAUSE.saturating_sub(since);
        if wait.is_zero() {
            (self.looked, self.moved) = (Some(now), moved);
        }
        wait
    }

    /// Gives memory back if much more is resident than after the last time.
    fn check(&mut self, resident: impl Fn() -> Option<u64>, give_back: impl Fn()) {
        if self.skipped < self.skips {
            self.skipped += 1;
            return;
        }
        let Some(before) = resident() else { return };
        self.kept = if self.kept == 0 { before } else { self.kept.min(before) };
        let growth = before - self.kept;
        if growth < RESIDENT_GROWTH_MIN.max(self.kept / 4) {
            return;
        }
        give_back();
        let after = resident().unwrap_or(before);
        // Memory that is in use is no reason to walk over the free lists each second.
        let has_freed = before.saturating_sub(after) >= growth / 4;
        (self.skipped, self.skips) = (0, if has_freed { 0 } else { (2 * self.skips + 1).min(SKIPS_MAX) });
        self.kept = after;
    }

    fn given_back(&mut self) {
        (self.skipped, self.skips) = (0, 0);
    }
}

/// The loop looks at the resident memory after it has moved so many bytes.
const MOVED_BYTES_MIN: u64 = 1024 * 1024;

/// Less growth of the resident memory is not worth a walk over the allocator's free lists.
const RESIDENT_GROWTH_MIN: u64 = 8 * 1024 * 1024;

/// Looks that are left out at most.
const SKIPS_MAX: u32 = 63;

/// The rough cost of a connection beside its buffers.
const CONNECTION_BYTES: usize = 320;

/// Less than this is not worth a walk over the allocator's free lists.
const BURST_BYTES_MIN: usize = 512 * 1024;

/// Memory is given back at most this often.
const GIVE_BACK_PAUSE: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_during_which_the_loop_does_not_sleep_counts() {
        let mut burst = Burst::default();
        burst.note(2 * BURST_BYTES_MIN);
        assert!(burst.is_over(0));
    }

    #[test]
    fn resident_memory_is_given_back_when_it_has_grown_and_less_often_if_that_frees_little() {
        use std::cell::Cell;

        const MIB: u64 = 1 << 20;
        let (mut guard, resident, calls) = (Resident::default(), Cell::new(20 * MIB), Cell::new(0));
        let mut look = |at_look: u64, after: u64| {
            resident.set(at_look);
            let before = calls.get();
            let give_back = || {
                calls.set(calls.get() + 1);
                resident.set(after);
            };
            guard.check(|| Some(resident.get()), give_back);
            calls.get() > before
        };
        assert!(!look(20 * MIB, 0) && !look(27 * MIB, 0), "too little growth");
        assert!(look(60 * MIB, 22 * MIB) && !look(25 * MIB, 0) && look(60 * MIB, 22 * MIB));
        // The application needs it.
        assert!(look(120 * MIB, 118 * MIB));
        let given_back: Vec<bool> = (1..8).map(|step| look((118 + 40 * step) * MIB, (118 + 40 * step) * MIB)).collect();
        assert_eq!(given_back, [false, true, false, false, false, true, false]);
    }

    #[test]
    fn resident_memory_is_looked_at_once_a_second_after_enough_bytes() {
        let (mut guard, begun) = (Resident::default(), Instant::now());
        assert!(!guard.is_due(MOVED_BYTES_MIN - 1) && guard.is_due(MOVED_BYTES_MIN));
        assert_eq!(guard.until_check(begun, MOVED_BYTES_MIN), Duration::ZERO);
        assert!(!guard.is_due(MOVED_BYTES_MIN));
        let later = begun + Duration::from_millis(400);
        assert_eq!(guard.until_check(later, 3 * MOVED_BYTES_MIN), Duration::from_millis(600));
        assert!(guard.is_due(3 * MOVED_BYTES_MIN));
    }

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
