//! `Watchdog`: detects a loop whose turn does not end.
//!
//! A handler, or a task, that does not yield stops everything else on its loop, and the loop cannot report that: it
//! hangs too. So one thread for each server checks all its loops twice a second. A loop publishes one number: the turn
//! that it is busy with, or none while it waits. A loop that is busy with the same turn for longer than
//! [`STALL_MIN`] is counted and logged, once for each such turn, while it still hangs. Time is measured here: a
//! loop pays two stores a turn.
//!
//! A turn that was long and did end is logged by the loop itself, in `event_loop.rs`.

use std::io;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

use crate::counters::PublishedCounters;
use crate::limits::STALL_MIN;
use crate::unwind::catch_and_log;

/// The thread that checks the loops. Dropping this ends it at once.
#[derive(Debug)]
pub(crate) struct Watchdog {
    stop: Arc<StopSignal>,
    thread: Option<JoinHandle<()>>,
}

impl Watchdog {
    /// Watches loops, which are numbered as they come.
    ///
    /// # Errors
    /// The system's, if it has no thread.
    pub(crate) fn start(loops: impl IntoIterator<Item = Arc<PublishedCounters>>) -> io::Result<Self> {
        Self::start_with(loops, CHECK_INTERVAL)
    }

    fn start_with(loops: impl IntoIterator<Item = Arc<PublishedCounters>>, every: Duration) -> io::Result<Self> {
        let signal = Arc::new(StopSignal::default());
        let mut watched: Vec<_> = loops.into_iter().map(LoopObservation::new).collect();
        let stop = signal.clone();
        let thread = Builder::new().name("tidegate-watch".into()).stack_size(STACK_BYTES).spawn(move || {
            while !stop.is_set_within(every) {
                let now = Instant::now();
                for (number, watched) in watched.iter_mut().enumerate() {
                    if let Some(busy) = watched.check(now) {
                        log_stall(number, busy, watched.published.activity().current().as_deref());
                    }
                }
            }
        })?;
        Ok(Self { stop: signal, thread: Some(thread) })
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        self.stop.set();
        if let Some(thread) = self.thread.take() {
            // A panic of the user's subscriber is caught; nothing else in the thread can panic.
            let _ = thread.join();
        }
    }
}

/// Ends the thread, even in the middle of its sleep.
#[derive(Debug, Default)]
struct StopSignal {
    ended: Mutex<bool>,
    changed: Condvar,
}

impl StopSignal {
    fn set(&self) {
        *self.ended.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.changed.notify_one();
    }

    fn is_set_within(&self, timeout: Duration) -> bool {
        let ended = self.ended.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.changed.wait_timeout_while(ended, timeout, |ended| !*ended);
        *waited.unwrap_or_else(PoisonError::into_inner).0
    }
}

/// One loop, as the thread last saw it.
struct LoopObservation {
    published: Arc<PublishedCounters>,
    /// The turn that the loop was busy with at the last check, and since when that is known.
    seen: Option<(u64, Instant)>,
    /// Whether that turn was logged.
    logged: bool,
}

impl LoopObservation {
    fn new(published: Arc<PublishedCounters>) -> Self {
        Self { published, seen: None, logged: false }
    }

    /// Checks the loop. A turn that takes too long is counted once, and the return value is how long the thread has
    /// observed it: up to [`CHECK_INTERVAL`] less than it has taken.
    fn check(&mut self, now: Instant) -> Option<Duration> {
        let turn = self.published.busy_turn();
        let since = match self.seen {
            Some((seen, since)) if turn == Some(seen) => since,
            _ => {
                self.seen = turn.map(|turn| (turn, now));
                self.logged = false;
                return None;
            }
        };
        let busy = now.saturating_duration_since(since);
        if self.logged || busy < STALL_MIN {
            return None;
        }
        self.logged = true;
        turn.inspect(|turn| self.published.count_stall(*turn));
        Some(busy)
    }
}

fn log_stall(number: usize, busy: Duration, activity: Option<&str>) {
    catch_and_log(|| {
        tracing::error!(
            subsystem = "watchdog",
            event_loop = number,
            busy_ms = busy.as_millis() as u64,
            activity,
            reason = "a handler or a task does not yield",
            "loop stalled"
        );
    });
}

/// How often the thread checks the loops.
const CHECK_INTERVAL: Duration = Duration::from_millis(500);
/// A check needs next to no stack; the user's subscriber prints the line. Untouched pages cost address space only.
const STACK_BYTES: usize = 256 * 1024;

#[cfg(test)]
mod tests {
    use super::*;

    const HALF: Duration = Duration::from_millis(500);

    #[test]
    fn a_turn_that_does_not_end_is_logged_once() {
        let published = Arc::new(PublishedCounters::default());
        let (mut watched, start) = (LoopObservation::new(published.clone()), Instant::now());
        published.begin_turn(7);
        assert_eq!(watched.check(start), None);
        assert_eq!(watched.check(start + HALF), None);
        assert_eq!(watched.check(start + 2 * HALF), Some(2 * HALF));
        assert_eq!(watched.check(start + 3 * HALF), None);
        assert_eq!((published.read().stalls, published.read().is_stalled), (1, true));
        // The next long turn is reported again.
        published.end_turn();
        assert!(!published.read().is_stalled);
        published.begin_turn(8);
        assert!(!published.read().is_stalled);
        for at in 4..6 {
            assert_eq!(watched.check(start + at * HALF), None);
        }
        assert_eq!(watched.check(start + 6 * HALF), Some(2 * HALF));
        assert_eq!(published.read().stalls, 2);
    }

    #[test]
    fn a_loop_that_waits_or_takes_short_turns_is_not_reported() {
        let published = Arc::new(PublishedCounters::default());
        let (mut watched, start) = (LoopObservation::new(published.clone()), Instant::now());
        for at in 0..100 {
            assert_eq!(watched.check(start + at * HALF), None, "it sleeps");
        }
        for turn in 1..100 {
            published.begin_turn(turn);
            assert_eq!(watched.check(start + (100 + turn as u32) * HALF), None, "it is always busy, and gets on");
            published.end_turn();
        }
        assert_eq!(published.read().stalls, 0);
    }

    #[test]
    fn dropping_the_watchdog_does_not_wait_for_the_next_check() {
        // Otherwise this takes an hour.
        drop(Watchdog::start_with([Arc::default()], Duration::from_secs(3600)).unwrap());
    }
}
