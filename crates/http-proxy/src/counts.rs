//! `UpstreamCounts`: the responses and failures of one upstream, for metrics; and how often its failures are logged.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

use tidegate_http1::Status;

use super::error::FailureKind;
use super::health::Millis;

#[derive(Debug, Default)]
pub(super) struct UpstreamCounts {
    /// By class.
    responses: [AtomicU64; CLASSES.len()],
    failures: [AtomicU64; FailureKind::ALL.len()],
    /// From when on another line is logged.
    log_at: AtomicU64,
    /// Lines that were not logged since the last one.
    unlogged: AtomicU32,
}

impl UpstreamCounts {
    pub(super) fn on_response(&self, status: Status) {
        let class = usize::from(status.code() / 100).clamp(1, CLASSES.len()) - 1;
        self.responses[class].fetch_add(1, Relaxed);
    }

    pub(super) fn on_failure(&self, kind: FailureKind) {
        self.failures[kind as usize].fetch_add(1, Relaxed);
    }

    /// The responses that there were, by the class of their status.
    pub(super) fn responses(&self) -> impl Iterator<Item = (&'static str, u64)> {
        CLASSES.into_iter().zip(self.responses.iter().map(|count| count.load(Relaxed))).filter(|(_, count)| *count > 0)
    }

    /// The failures that there were, by their reason.
    pub(super) fn failures(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let counts = self.failures.iter().map(|count| count.load(Relaxed));
        FailureKind::ALL.into_iter().map(FailureKind::name).zip(counts).filter(|(_, count)| *count > 0)
    }

    /// Whether a line may be logged, and then how many were not since the last one.
    pub(super) fn may_log(&self, now: Millis) -> Option<u32> {
        let log_at = self.log_at.load(Relaxed);
        let next = now.saturating_add(LOG_INTERVAL);
        if log_at > now || self.log_at.compare_exchange(log_at, next, Relaxed, Relaxed).is_err() {
            self.unlogged.fetch_add(1, Relaxed);
            return None;
        }
        Some(self.unlogged.swap(0, Relaxed))
    }
}

/// How often a failure of one upstream is logged at most, in milliseconds.
const LOG_INTERVAL: Millis = 1_000;

const CLASSES: [&str; 5] = ["1xx", "2xx", "3xx", "4xx", "5xx"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_line_a_second_says_how_many_there_were() {
        let counts = UpstreamCounts::default();
        assert_eq!([0, 0, 999, 1_000, 1_500].map(|now| counts.may_log(now)), [Some(0), None, None, Some(2), None]);
    }
}
