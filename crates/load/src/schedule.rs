//! `Schedule`: sends requests at scheduled times, whether or not the server keeps up.
//!
//! With a rate, requests are due at even intervals. A request that is due while all connections wait for responses is
//! sent as soon as a connection is free. Its latency starts at the scheduled send time: a user arriving then would have
//! waited that long. Otherwise a server that stalls for a second would get no requests in that second, and one user
//! would seem to have waited instead of a thousand ("coordinated omission").

use std::cell::{Cell, RefCell};
use std::fmt;
use std::future::poll_fn;
use std::rc::Weak;
use std::task::{Poll, Waker};
use std::time::{Duration, Instant};

use tidegate::{Remote, task};

/// The schedule of a load, and the connections that are free to send.
#[derive(Debug)]
pub(crate) struct Schedule {
    /// Batches per second. An interval in whole nanoseconds would be wrong by a thousandth at millions per second.
    per_second: f64,
    /// Until then the rate grows evenly from zero, in seconds.
    ramp: f64,
    begun: Cell<Instant>,
    /// Batches sent so far.
    sent: Cell<u64>,
    free: RefCell<Vec<Waiter>>,
    waiting: RefCell<Option<Waker>>,
}

/// A connection that waits until its next requests are due.
#[derive(Debug)]
pub(crate) enum Waiter {
    Handler(Remote<Instant>),
    Task(Weak<dyn TakesTurn>),
}

/// A connection whose task sends the requests.
pub(crate) trait TakesTurn: fmt::Debug {
    /// Requests are due. Returns `false` if another connection has to send them.
    fn post(&self, due: Instant) -> bool;
}

impl Waiter {
    /// Passes the scheduled time of requests on. Returns `false` if the connection is over.
    fn post(&self, due: Instant) -> bool {
        match self {
            Self::Handler(remote) => remote.post(due).is_ok(),
            Self::Task(connection) => connection.upgrade().is_some_and(|connection| connection.post(due)),
        }
    }
}

impl Schedule {
    /// A schedule of `per_second` batches per second, which are reached after the time `ramp`.
    pub(crate) fn new(per_second: f64, ramp: Duration) -> Self {
        Self {
            per_second,
            ramp: ramp.as_secs_f64(),
            begun: Cell::new(Instant::now()),
            sent: Cell::new(0),
            free: RefCell::default(),
            waiting: RefCell::default(),
        }
    }

    /// Starts the schedule: the first batch is due now.
    pub(crate) fn begin(&self, now: Instant) {
        self.begun.set(now);
        self.sent.set(0);
    }

    /// The scheduled time of the next batch.
    fn due(&self) -> Instant {
        self.due_of(self.sent.get())
    }

    /// The scheduled time of the batch with this number.
    fn due_of(&self, number: u64) -> Instant {
        let (number, of_ramp) = (number as f64, self.per_second * self.ramp / 2.0);
        let seconds = if number < of_ramp {
            (2.0 * self.ramp * number / self.per_second).sqrt()
        } else {
            number / self.per_second + self.ramp / 2.0
        };
        self.begun.get() + Duration::from_secs_f64(seconds)
    }

    /// How many batches are due within these seconds.
    fn due_within(&self, seconds: f64) -> f64 {
        if seconds < self.ramp {
            self.per_second * seconds * seconds / (2.0 * self.ramp)
        } else {
            self.per_second * (seconds - self.ramp / 2.0)
        }
    }

    /// Takes the next batch if it is due by `now`, and returns its scheduled time. The batch counts as sent.
    pub(crate) fn take_due(&self, now: Instant) -> Option<Instant> {
        let due = self.due();
        if due > now {
            return None;
        }
        self.sent.set(self.sent.get() + 1);
        Some(due)
    }

    /// Gives a batch back that was not sent: the next connection takes it.
    pub(crate) fn give_back(&self) {
        self.sent.set(self.sent.get() - 1);
    }

    /// Registers a connection as free to send.
    pub(crate) fn wait_for_turn(&self, connection: Waiter) {
        self.free.borrow_mut().push(connection);
        if let Some(waker) = self.waiting.take() {
            waker.wake();
        }
    }

    /// Posts batches to free connections at the scheduled times, without end.
    pub(crate) async fn keep(&self) {
        loop {
            self.free_connection().await;
            let due = self.due();
            // The loop's timers are precise to a millisecond only, so the last part is a busy wait.
            let left = due.saturating_duration_since(Instant::now());
            if left > TIMER_GRAIN {
                task::sleep(left - TIMER_GRAIN).await;
            }
            while Instant::now() < due {
                next_iteration().await;
            }
            // A connection that became free in the meantime may have taken the batch.
            while let Some(connection) = self.next_free() {
                let Some(due) = self.take_due(Instant::now()) else {
                    self.free.borrow_mut().push(connection);
                    break;
                };
                // The connection has closed: the batch goes to the next one.
                if !connection.post(due) {
                    self.give_back();
                }
            }
        }
    }

    fn next_free(&self) -> Option<Waiter> {
        self.free.borrow_mut().pop()
    }

    async fn free_connection(&self) {
        poll_fn(|cx| {
            if !self.free.borrow().is_empty() {
                return Poll::Ready(());
            }
            self.waiting.replace(Some(cx.waker().clone()));
            Poll::Pending
        })
        .await;
    }

    /// Batches that were due by `now` and were not sent, since no connection was free.
    pub(crate) fn unsent(&self, now: Instant) -> u64 {
        let due = self.due_within(now.saturating_duration_since(self.begun.get()).as_secs_f64());
        (due as u64).saturating_sub(self.sent.get())
    }

    /// How long the unsent batches have waited by `now`: pairs of a count and the least wait of these, oldest first.
    pub(crate) fn waits(&self, now: Instant) -> impl Iterator<Item = (u64, Duration)> {
        let (sent, unsent) = (self.sent.get(), self.unsent(now));
        let steps = unsent.min(WAITS_MAX);
        (0..steps).map(move |step| {
            let (from, to) = (unsent * step / steps, unsent * (step + 1) / steps);
            (to - from, now.saturating_duration_since(self.due_of(sent + to - 1)))
        })
    }
}

/// Yields to the loop for one iteration.
pub(crate) async fn next_iteration() {
    let mut has_waited = false;
    poll_fn(|cx| {
        if std::mem::replace(&mut has_waited, true) {
            return Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

/// How late a timer may fire.
const TIMER_GRAIN: Duration = Duration::from_millis(2);

/// The maximum number of pairs that `waits` returns: as precise as the histograms, for any number of batches.
const WAITS_MAX: u64 = 10_000;

#[cfg(test)]
mod tests {
    use super::*;

    fn begun(per_second: f64) -> (Schedule, Instant) {
        let (schedule, now) = (Schedule::new(per_second, Duration::ZERO), Instant::now());
        schedule.begin(now);
        (schedule, now)
    }

    #[test]
    fn the_schedule_is_exact_at_millions_per_second() {
        for per_second in [3.0, 70_000.0, 3_000_000.0, 7_000_000.0] {
            let (schedule, begun) = begun(per_second);
            assert_eq!(schedule.unsent(begun + Duration::from_secs(100)), 100 * per_second as u64);
            let due = schedule.due_of(100 * per_second as u64);
            assert!(due.saturating_duration_since(begun + Duration::from_secs(100)) < Duration::from_nanos(100));
        }
    }

    #[test]
    fn the_rate_grows_evenly_until_the_end_of_the_ramp() {
        let (schedule, begun) = (Schedule::new(100.0, Duration::from_secs(10)), Instant::now());
        schedule.begin(begun);
        for (seconds, expected) in [(0, 0), (1, 5), (5, 125), (10, 500), (11, 600), (20, 1500)] {
            let (at, grain) = (begun + Duration::from_secs(seconds), Duration::from_millis(1));
            assert_eq!(schedule.unsent(at + grain), expected, "{seconds}");
            assert!(schedule.due_of(expected).max(at) - schedule.due_of(expected).min(at) < grain, "{seconds}");
        }
    }

    #[test]
    fn an_unsent_batch_waits_since_its_scheduled_time() {
        let (schedule, begun) = begun(10.0);
        // Two are sent, and then no connection is free.
        for _ in 0..2 {
            schedule.take_due(begun + Duration::from_millis(150)).expect("it is due");
        }
        let waits: Vec<_> = schedule.waits(begun + Duration::from_millis(550)).collect();
        let expected = [350, 250, 150].map(|millis| (1, Duration::from_millis(millis)));
        assert_eq!(waits, expected);
        // The number of steps is bounded.
        let (schedule, begun) = self::begun(1e9);
        let waits: Vec<_> = schedule.waits(begun + Duration::from_secs(1000)).collect();
        assert_eq!(waits.iter().map(|(count, _)| count).sum::<u64>(), 1_000_000_000_000);
        assert!(waits.len() as u64 <= WAITS_MAX && waits.is_sorted_by(|(_, one), (_, next)| one > next));
    }
}
