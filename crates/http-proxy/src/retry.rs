//! `RetryBudget`: how many requests may be sent a second time, so that retries do not multiply an overload.

use std::sync::atomic::{AtomicI64, Ordering::Relaxed};

/// Which requests are sent again to another upstream after a failure, and how many.
///
/// A request is sent again only if the client has received nothing, its body can be sent again, and the method is
/// idempotent (RFC 9110 §9.2.2) or the upstream has not processed it. A body can be sent again if no byte of it was
/// passed on, or if it has at most 64 KiB and the method is idempotent or the upstream speaks HTTP/2.
///
/// These are not taken from the budget, since they cannot multiply an overload:
///
/// - A connection that cannot be made has carried nothing: each upstream that is left is tried, for as long as
///   [`response_timeout`](super::UpstreamLimits::response_timeout) at most.
/// - A request that an HTTP/2 upstream has not processed (REFUSED_STREAM, or GOAWAY with a lower last stream; RFC 9113
///   §8.7) is sent again `per_request` times, also to the same upstream if there is no other.
/// - A request with an idempotent method is sent again once if it was on a connection that had answered others and ended
///   before its response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Retries {
    /// How often one request is sent again; 2. 0 turns all of this off.
    pub per_request: u32,
    /// How many requests may be sent again for each hundred that come; 20.
    pub percent: u32,
    /// How many may be sent again beyond that at once, for times with few requests; 10.
    pub reserve: u32,
}

impl Default for Retries {
    fn default() -> Self {
        Self { per_request: 2, percent: 20, reserve: 10 }
    }
}

/// The rest of the retries that requests have earned. All loops share it.
#[derive(Debug)]
pub(super) struct RetryBudget {
    /// Hundredths of a retry.
    left: AtomicI64,
    rules: Retries,
}

impl RetryBudget {
    pub(super) fn new(rules: Retries) -> Self {
        Self { left: AtomicI64::new(i64::from(rules.reserve) * RETRY), rules }
    }

    /// Whether no request is sent again.
    pub(super) fn is_off(&self) -> bool {
        self.rules.per_request == 0
    }

    /// How often one request is sent again.
    pub(super) fn per_request(&self) -> u32 {
        self.rules.per_request
    }

    /// A request has come.
    pub(super) fn earn(&self) {
        let max = i64::from(self.rules.reserve.max(1)) * RETRY;
        if self.left.load(Relaxed) < max {
            self.left.fetch_add(i64::from(self.rules.percent), Relaxed);
        }
    }

    /// Takes a retry, for a request that was sent again `retried` times; `false` if there is none.
    pub(super) fn take(&self, retried: u32) -> bool {
        if retried >= self.rules.per_request {
            return false;
        }
        let took =
            self.left.fetch_update(Relaxed, Relaxed, |left| if left >= RETRY { Some(left - RETRY) } else { None });
        took.is_ok()
    }
}

/// A retry, in hundredths.
const RETRY: i64 = 100;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_earn_retries_beyond_the_reserve() {
        let budget = RetryBudget::new(Retries { per_request: 2, percent: 20, reserve: 3 });
        assert_eq!((0..10).filter(|_| budget.take(0)).count(), 3);
        (0..9).for_each(|_| budget.earn());
        assert_eq!((0..10).filter(|_| budget.take(0)).count(), 1);
        (0..1_000).for_each(|_| budget.earn());
        assert_eq!((0..10).filter(|_| budget.take(0)).count(), 3, "unused retries do not pile up");
    }

    #[test]
    fn one_request_is_sent_again_a_few_times_only() {
        let budget = RetryBudget::new(Retries::default());
        assert!(budget.take(0) && budget.take(1) && !budget.take(2));
        let off = RetryBudget::new(Retries { per_request: 0, ..Retries::default() });
        assert!(!off.take(0));
    }
}
