//! `Attempts`: where one request has been tried, and whether it may be tried again.
//!
//! A connection that was refused has carried nothing, so each upstream that is left is tried, whatever the method is. A
//! request that an upstream has not processed (RFC 9113 §8.7) is sent again whatever its method is, also to the same
//! upstream if no other one is left. One that may have been processed is sent again if its method is idempotent. The
//! last kind alone can multiply the work of upstreams, so that alone takes from the [`RetryBudget`].

use std::time::{Duration, Instant};

use super::error::Failure;
use super::retry::RetryBudget;

/// An attempt that did not yield a response.
pub(super) struct FailedAttempt<'a> {
    pub(super) upstream: u64,
    pub(super) failure: &'a Failure,
    /// The connection was there before.
    pub(super) is_pooled: bool,
    /// The connection has answered another request before.
    pub(super) has_answered: bool,
}

/// The attempts of one request.
#[derive(Default)]
pub(super) struct Attempts {
    /// The upstreams that are left out.
    tried: Vec<u64>,
    /// Upstreams that have not processed the request: left out as long as there are others.
    unprocessed: Vec<u64>,
    /// Upstreams that have closed a connection of the pool. They may have closed the others as well, so the next one is
    /// new.
    stale: Vec<u64>,
    /// How often the request was sent again.
    retried: u32,
    /// The request was on a connection that had answered others, and was lost with it.
    was_lost: bool,
    /// When the first connection could not be made.
    unreachable_since: Option<Instant>,
}

impl Attempts {
    /// Whether an upstream is left out.
    pub(super) fn leaves_out(&self, upstream: u64) -> bool {
        self.tried.contains(&upstream) || self.unprocessed.contains(&upstream)
    }

    pub(super) fn are_none(&self) -> bool {
        self.tried.is_empty() && self.unprocessed.is_empty()
    }

    /// No other upstream is left: those that have not processed the request may get it again. Returns whether there are
    /// some.
    pub(super) fn readmit(&mut self) -> bool {
        !std::mem::take(&mut self.unprocessed).is_empty()
    }

    /// Whether a connection of the pool may be used.
    pub(super) fn may_be_pooled(&self, upstream: u64) -> bool {
        !self.stale.contains(&upstream)
    }

    /// Whether the request may be tried again after this. `is_idempotent` is about its method, and `may_restart` says
    /// whether its body, if it has one, can be sent again. Connecting ends `connecting_max` after the first failure.
    pub(super) fn may_follow(
        &mut self,
        failed: &FailedAttempt<'_>,
        (is_idempotent, may_restart): (bool, bool),
        budget: &RetryBudget,
        (now, connecting_max): (Instant, Duration),
    ) -> bool {
        let FailedAttempt { upstream, failure, is_pooled, has_answered } = *failed;
        if budget.is_off() || !may_restart {
            return false;
        }
        if failure.has_carried_nothing() {
            self.tried.push(upstream);
            let since = *self.unreachable_since.get_or_insert(now);
            return now.saturating_duration_since(since) < connecting_max;
        }
        if is_pooled {
            self.stale.push(upstream);
        }
        if failure.is_unprocessed() {
            self.unprocessed.push(upstream);
            self.retried += 1;
            return self.retried <= budget.per_request();
        }
        if !is_pooled {
            self.tried.push(upstream);
        }
        if !failure.may_be_retried() || !(is_idempotent || failure.is_unsent()) {
            return false;
        }
        // Such a connection has earned this by its responses, and is gone now: an overload is not multiplied.
        if is_idempotent && has_answered && failure.is_unanswered() && !std::mem::replace(&mut self.was_lost, true) {
            return true;
        }
        let may_retry = budget.take(self.retried);
        self.retried += 1;
        may_retry
    }
}
