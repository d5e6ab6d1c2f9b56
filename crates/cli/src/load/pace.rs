//! `Pace`: requests at their times, whether or not the server keeps up.
//!
//! With a rate, requests are due at even intervals. One that is due while all connections wait for answers is sent as soon
//! as one of them is free, and its latency counts from when it was due: that is what a user who came then would have waited
//! for. Without that a server that stops for a second would be asked nothing in that second, and would seem to have made
//! one user wait and not a thousand ("coordinated omission").

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::task::{Poll, Waker};
use std::time::{Duration, Instant};

use tidegate::{Remote, task};

/// When requests are due, and who is free to send them.
#[derive(Debug)]
pub(crate) struct Pace {
    /// Batches a second. An interval in whole nanoseconds would be wrong by a thousandth where there are millions.
    per_second: f64,
    begun: Cell<Instant>,
    /// Batches that were sent.
    sent: Cell<u64>,
    free: RefCell<Vec<Remote<Instant>>>,
    waiting: RefCell<Option<Waker>>,
}

impl Pace {
    /// So many batches a second.
    pub(crate) fn new(per_second: f64) -> Self {
        Self {
            per_second,
            begun: Cell::new(Instant::now()),
            sent: Cell::new(0),
            free: RefCell::default(),
            waiting: RefCell::default(),
        }
    }

    /// The first is due now.
    pub(crate) fn begin(&self, now: Instant) {
        self.begun.set(now);
        self.sent.set(0);
    }

    /// When the next batch is due.
    fn due(&self) -> Instant {
        self.due_of(self.sent.get())
    }

    /// When the batch of this number is due.
    fn due_of(&self, number: u64) -> Instant {
        self.begun.get() + Duration::from_secs_f64(number as f64 / self.per_second)
    }

    /// The time of a batch that should have been sent by now, if there is one; it counts as sent.
    pub(crate) fn take_due(&self, now: Instant) -> Option<Instant> {
        let due = self.due();
        if due > now {
            return None;
        }
        self.sent.set(self.sent.get() + 1);
        Some(due)
    }

    /// A connection has nothing to do until its turn.
    pub(crate) fn wait_for_turn(&self, connection: Remote<Instant>) {
        self.free.borrow_mut().push(connection);
        if let Some(waker) = self.waiting.take() {
            waker.wake();
        }
    }

    /// Hands out batches at their times, for as long as somebody asks.
    pub(crate) async fn keep(&self) {
        loop {
            self.somebody_is_free().await;
            let due = self.due();
            // The loop's timers are precise to a millisecond, which would be most of what is measured.
            let left = due.saturating_duration_since(Instant::now());
            if left > TIMER_GRAIN {
                task::sleep(left - TIMER_GRAIN).await;
            }
            while Instant::now() < due {
                another_turn().await;
            }
            // Somebody may have become free in the meantime, and have taken it.
            while let Some(connection) = self.next_free() {
                let Some(due) = self.take_due(Instant::now()) else {
                    self.free.borrow_mut().push(connection);
                    break;
                };
                // One that is gone is none, and the next one has its turn.
                if connection.post(due).is_err() {
                    self.sent.set(self.sent.get() - 1);
                }
            }
        }
    }

    fn next_free(&self) -> Option<Remote<Instant>> {
        self.free.borrow_mut().pop()
    }

    async fn somebody_is_free(&self) {
        poll_fn(|cx| {
            if !self.free.borrow().is_empty() {
                return Poll::Ready(());
            }
            self.waiting.replace(Some(cx.waker().clone()));
            Poll::Pending
        })
        .await;
    }

    /// Batches that should have been sent by `now` and were not, since nobody was free.
    pub(crate) fn unsent(&self, now: Instant) -> u64 {
        let due = now.saturating_duration_since(self.begun.get()).as_secs_f64() * self.per_second;
        (due as u64).saturating_sub(self.sent.get())
    }

    /// How long those have waited by `now`: so many batches at least so long, the oldest first.
    pub(crate) fn waits(&self, now: Instant) -> impl Iterator<Item = (u64, Duration)> {
        let (sent, unsent) = (self.sent.get(), self.unsent(now));
        let steps = unsent.min(WAITS_MAX);
        (0..steps).map(move |step| {
            let (from, to) = (unsent * step / steps, unsent * (step + 1) / steps);
            (to - from, now.saturating_duration_since(self.due_of(sent + to - 1)))
        })
    }
}

/// Lets everybody else on the loop have a turn.
async fn another_turn() {
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

/// How much too late a timer may be.
const TIMER_GRAIN: Duration = Duration::from_millis(2);

/// Different waits of batches that were not sent: as exact as latencies are kept, however many batches there are.
const WAITS_MAX: u64 = 10_000;

#[cfg(test)]
mod tests {
    use super::*;

    fn begun(per_second: f64) -> (Pace, Instant) {
        let (pace, now) = (Pace::new(per_second), Instant::now());
        pace.begin(now);
        (pace, now)
    }

    #[test]
    fn millions_are_due_as_exactly_as_few() {
        for per_second in [3.0, 70_000.0, 3_000_000.0, 7_000_000.0] {
            let (pace, begun) = begun(per_second);
            assert_eq!(pace.unsent(begun + Duration::from_secs(100)), 100 * per_second as u64);
            let due = pace.due_of(100 * per_second as u64);
            assert!(due.saturating_duration_since(begun + Duration::from_secs(100)) < Duration::from_nanos(100));
        }
    }

    #[test]
    fn what_was_not_sent_has_waited_since_it_was_due() {
        let (pace, begun) = begun(10.0);
        // Two are sent, and then nobody is free.
        for _ in 0..2 {
            pace.take_due(begun + Duration::from_millis(150)).expect("it is due");
        }
        let waits: Vec<_> = pace.waits(begun + Duration::from_millis(550)).collect();
        let expected = [350, 250, 150].map(|millis| (1, Duration::from_millis(millis)));
        assert_eq!(waits, expected);
        // However many they are, they are told in so many steps.
        let (pace, begun) = self::begun(1e9);
        let waits: Vec<_> = pace.waits(begun + Duration::from_secs(1000)).collect();
        assert_eq!(waits.iter().map(|(count, _)| count).sum::<u64>(), 1_000_000_000_000);
        assert!(waits.len() as u64 <= WAITS_MAX && waits.is_sorted_by(|(_, one), (_, next)| one > next));
    }
}
