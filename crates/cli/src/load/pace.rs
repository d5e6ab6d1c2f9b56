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
    /// Between one volley and the next.
    interval: Duration,
    begun: Cell<Instant>,
    /// Volleys that were sent.
    sent: Cell<u64>,
    free: RefCell<Vec<Remote<Instant>>>,
    waiting: RefCell<Option<Waker>>,
}

impl Pace {
    /// So many volleys a second.
    pub(crate) fn new(per_second: f64) -> Self {
        Self {
            interval: Duration::from_secs_f64(1.0 / per_second),
            begun: Cell::new(Instant::now()),
            sent: Cell::new(0),
            free: RefCell::default(),
            waiting: RefCell::default(),
        }
    }

    /// When the next volley is due.
    fn due(&self) -> Instant {
        // Not a multiple of the rounded interval only: that of nanoseconds is exact enough for hours.
        self.begun.get() + self.interval.mul_f64(self.sent.get() as f64)
    }

    /// The time of a volley that should have been sent by now, if there is one; it counts as sent.
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

    /// Hands out volleys at their times, for as long as somebody asks.
    pub(crate) async fn keep(&self) {
        self.begun.set(Instant::now());
        self.sent.set(0);
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

    /// Volleys that should have been sent by `now` and were not, since nobody was free.
    pub(crate) fn unsent(&self, now: Instant) -> u64 {
        let due = now.saturating_duration_since(self.begun.get()).as_secs_f64() / self.interval.as_secs_f64();
        (due as u64).saturating_sub(self.sent.get())
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
