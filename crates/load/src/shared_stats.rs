//! `SharedStats`: the counts that all loops share, which the progress display reads.

use std::collections::BTreeMap;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use hdrhistogram::Histogram;

use super::results::Errors;

/// The counts that all loops and the progress bar share.
#[derive(Debug)]
pub(crate) struct SharedStats {
    pub(super) requests: AtomicU64,
    pub(super) errors: AtomicU64,
    /// Connection attempts that succeeded, and that failed.
    pub(super) connected: AtomicU64,
    pub(super) unconnected: AtomicU64,
    /// The length of the first good response, or [`UNKNOWN`].
    pub(super) length: AtomicU64,
    /// Whether responses may differ in their lengths.
    pub(super) any_length: bool,
    /// The requests that are left to send, if their number is given.
    left: Option<AtomicU64>,
    /// Broadcasts are stamped with the time since then.
    pub(super) epoch: Instant,
    pub(super) author: u64,
    /// Connections that receive messages.
    pub(super) opened: AtomicU64,
    /// A live table is shown.
    is_watched: AtomicBool,
    /// The figures so far, by the number of the loop.
    live: Mutex<BTreeMap<usize, LiveFigures>>,
}

/// The figures so far, for the live table.
#[derive(Debug, Clone, Default)]
pub(crate) struct LiveFigures {
    pub(crate) latency: Option<Histogram<u64>>,
    pub(crate) statuses: BTreeMap<u16, u64>,
    pub(crate) errors: Errors,
}

impl SharedStats {
    /// `total` is the number of requests of all loops, if it is given.
    pub(crate) fn new(any_length: bool, total: Option<u64>) -> Self {
        Self {
            left: total.map(AtomicU64::new),
            requests: AtomicU64::new(0),
            errors: AtomicU64::new(0),
            connected: AtomicU64::new(0),
            unconnected: AtomicU64::new(0),
            length: AtomicU64::new(UNKNOWN),
            any_length,
            epoch: Instant::now(),
            author: RandomState::new().hash_one(0),
            opened: AtomicU64::new(0),
            is_watched: AtomicBool::new(false),
            live: Mutex::default(),
        }
    }

    /// How many connections that receive messages have been opened.
    pub(crate) fn opened(&self) -> u64 {
        self.opened.load(Ordering::Relaxed)
    }

    /// Whether the number of requests is given.
    pub(crate) fn has_total(&self) -> bool {
        self.left.is_some()
    }

    /// The requests that are left to send, if their number is given.
    pub(crate) fn left(&self) -> Option<u64> {
        self.left.as_ref().map(|left| left.load(Ordering::Relaxed))
    }

    /// Takes up to `count` of the requests that are left.
    pub(crate) fn take_requests(&self, count: u32) -> u32 {
        let Some(left) = &self.left else { return count };
        let taken = |left: u64| Some(left - left.min(count.into()));
        let before = left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, taken).unwrap_or(0);
        before.min(count.into()) as u32
    }

    /// Gives requests back that the server has not processed.
    pub(crate) fn return_requests(&self, count: u32) {
        if let Some(left) = &self.left {
            left.fetch_add(count.into(), Ordering::Relaxed);
        }
    }

    /// Whether loops publish their figures for a live table.
    pub(crate) fn set_watched(&self, is_watched: bool) {
        self.is_watched.store(is_watched, Ordering::Relaxed);
    }

    /// Publishes the figures of the loop with this number, if a live table is shown.
    pub(crate) fn show_live(&self, index: usize, figures: impl FnOnce() -> LiveFigures) {
        if self.is_watched.load(Ordering::Relaxed) {
            self.live.lock().unwrap_or_else(PoisonError::into_inner).insert(index, figures());
        }
    }

    /// The figures that the loops have published last.
    pub(crate) fn live(&self) -> LiveFigures {
        let mut sum = LiveFigures::default();
        for one in self.live.lock().unwrap_or_else(PoisonError::into_inner).values() {
            match (&mut sum.latency, &one.latency) {
                // Both have the same precision, so that one can be added to the other.
                (Some(latency), Some(other)) => drop(latency.add(other)),
                (latency, other) => *latency = other.clone(),
            }
            for (status, count) in &one.statuses {
                *sum.statuses.entry(*status).or_default() += count;
            }
            sum.errors += one.errors;
        }
        sum
    }

    /// Responses so far, and errors.
    pub(crate) fn read(&self) -> (u64, u64) {
        (self.requests.load(Ordering::Relaxed), self.errors.load(Ordering::Relaxed))
    }

    /// Whether any connection attempt of any loop has succeeded.
    pub(crate) fn has_connected(&self) -> bool {
        self.connected.load(Ordering::Relaxed) > 0
    }

    /// Whether at least so many connection attempts have failed, and none has succeeded.
    pub(crate) fn is_hopeless(&self, connections: usize) -> bool {
        !self.has_connected() && self.unconnected.load(Ordering::Relaxed) >= connections.max(1) as u64
    }
}

/// No good response has come yet.
pub(super) const UNKNOWN: u64 = u64::MAX;

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::super::counters::WorkerStats;
    use super::*;

    #[test]
    fn the_server_is_unreachable_only_if_no_thread_has_connected() {
        let shared = Arc::new(SharedStats::new(false, None));
        let (one, other) = (WorkerStats::new(shared.clone()), WorkerStats::new(shared.clone()));
        one.unconnected();
        assert!(!shared.is_hopeless(2), "the other thread has not tried");
        other.unconnected();
        assert!(shared.is_hopeless(2));
        other.connected();
        assert!(!shared.is_hopeless(2), "the first thread may try again");
    }

    #[test]
    fn the_requests_that_are_left_are_taken_once() {
        let shared = SharedStats::new(false, Some(10));
        assert_eq!([8, 8, 8].map(|count| shared.take_requests(count)), [8, 2, 0]);
        shared.return_requests(3);
        assert_eq!((shared.take_requests(2), shared.take_requests(2), shared.left()), (2, 1, Some(0)));
        let endless = SharedStats::new(false, None);
        assert_eq!((endless.take_requests(8), endless.left()), (8, None));
    }
}
