//! `RequestBudget`: the requests of `-n`. All loops share the number that is left, and each loop notices when the last
//! of its own requests is over.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Poll, Waker};
use std::time::Instant;

use super::counters::SharedStats;

/// The part of a loop in the requests of `-n`. Without `-n` it is never used up.
#[derive(Debug)]
pub(crate) struct RequestBudget {
    shared: Arc<SharedStats>,
    /// Requests of this loop that were sent and are not over.
    in_flight: Cell<u64>,
    /// When the last one was over.
    over_at: Cell<Option<Instant>>,
    waiting: RefCell<Option<Waker>>,
}

impl RequestBudget {
    pub(crate) fn new(shared: Arc<SharedStats>) -> Self {
        Self { shared, in_flight: Cell::new(0), over_at: Cell::new(None), waiting: RefCell::default() }
    }

    /// Takes up to `count` requests to send.
    pub(crate) fn take(&self, count: u32) -> u32 {
        let taken = self.shared.take_requests(count);
        self.in_flight.set(self.in_flight.get() + u64::from(taken));
        taken
    }

    /// Requests are over: answered, or failed.
    pub(crate) fn finish(&self, count: u32) {
        if count > 0 && self.shared.has_total() {
            self.in_flight.set(self.in_flight.get().saturating_sub(count.into()));
            self.over_at.set(Some(Instant::now()));
            self.notice();
        }
    }

    /// Requests were not processed: they are sent again.
    pub(crate) fn give_back(&self, count: u32) {
        self.shared.return_requests(count);
        self.in_flight.set(self.in_flight.get().saturating_sub(count.into()));
    }

    /// Whether no request is left, neither to send nor in flight on this loop.
    pub(crate) fn is_used_up(&self) -> bool {
        self.shared.left() == Some(0) && self.in_flight.get() == 0
    }

    fn notice(&self) {
        if self.is_used_up()
            && let Some(waker) = self.waiting.take()
        {
            waker.wake();
        }
    }

    /// Waits until the budget is used up. Returns when the last request of this loop was over; none may have had one.
    pub(crate) async fn used_up(&self) -> Option<Instant> {
        poll_fn(|cx| {
            if self.is_used_up() {
                return Poll::Ready(self.over_at.get());
            }
            self.waiting.replace(Some(cx.waker().clone()));
            Poll::Pending
        })
        .await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loop_is_done_when_nothing_is_left_and_its_own_requests_are_over() {
        let shared = Arc::new(SharedStats::new(false, Some(5)));
        let (one, other) = (RequestBudget::new(shared.clone()), RequestBudget::new(shared));
        assert_eq!((one.take(3), other.take(3)), (3, 2));
        assert!(!one.is_used_up() && !other.is_used_up());
        other.finish(2);
        assert!(!one.is_used_up() && other.is_used_up());
        // The server closed before it processed one of them.
        one.give_back(1);
        one.finish(2);
        assert!(!one.is_used_up());
        assert_eq!(one.take(3), 1);
        one.finish(1);
        assert!(one.is_used_up());
    }
}
