//! `UpstreamCounts`: the attempts, responses, failures and times of one upstream, for metrics; and how often its failures
//! are logged.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

#[cfg(feature = "connect-udp")]
use tidegate_http::gateway::DatagramDrop;
use tidegate_http1::Status;
use tidegate_metrics::{SharedHistogram, UpstreamSnapshot};

use super::error::FailureKind;
use tidegate_l4::Millis;

#[derive(Debug, Default)]
pub(super) struct UpstreamCounts {
    /// How often it was chosen for a request.
    attempts: AtomicU64,
    /// Those that followed another attempt of the same request.
    retries: AtomicU64,
    connects: AtomicU64,
    ejections: AtomicU64,
    /// By class.
    responses: [AtomicU64; CLASSES],
    failures: [AtomicU64; FailureKind::ALL.len()],
    /// Datagrams of its tunnels that were not passed on, by side and reason.
    dropped_datagrams: [AtomicU64; DROPPED_DATAGRAMS.len()],
    head_time: SharedHistogram,
    whole_time: SharedHistogram,
    /// From when on another line is logged.
    log_at: AtomicU64,
    /// Lines that were not logged since the last one.
    unlogged: AtomicU32,
}

impl UpstreamCounts {
    #[inline]
    pub(super) fn on_attempt(&self, is_retry: bool) {
        self.attempts.fetch_add(1, Relaxed);
        if is_retry {
            self.retries.fetch_add(1, Relaxed);
        }
    }

    pub(super) fn on_connect(&self) {
        self.connects.fetch_add(1, Relaxed);
    }

    pub(super) fn on_ejection(&self) {
        self.ejections.fetch_add(1, Relaxed);
    }

    /// The head of a response has come, so long after the choice of the upstream.
    pub(super) fn on_head(&self, status: Status, took: Duration) {
        let class = usize::from(status.code() / 100).clamp(1, CLASSES) - 1;
        self.responses[class].fetch_add(1, Relaxed);
        self.head_time.add(took);
    }

    /// The response was complete, so long after the choice of the upstream.
    pub(super) fn on_end(&self, took: Duration) {
        self.whole_time.add(took);
    }

    pub(super) fn on_failure(&self, kind: FailureKind) {
        self.failures[kind as usize].fetch_add(1, Relaxed);
    }

    /// A datagram of a tunnel was not passed on.
    #[cfg(feature = "connect-udp")]
    pub(super) fn on_dropped_datagram(&self, to: TunnelSide, reason: DatagramDrop) {
        let reason = match reason {
            DatagramDrop::TooLong => "too_long",
            DatagramDrop::NoRoom => "no_room",
            DatagramDrop::WithinCapsule => "within_capsule",
            _ => "closed",
        };
        if let Some(at) = DROPPED_DATAGRAMS.iter().position(|known| *known == (to.name(), reason)) {
            self.dropped_datagrams[at].fetch_add(1, Relaxed);
        }
    }

    /// The counts so far, without those that the upstream itself has.
    pub(super) fn snapshot(&self, name: &str) -> UpstreamSnapshot {
        let mut snapshot = UpstreamSnapshot::default();
        snapshot.name = name.to_owned();
        snapshot.attempts = self.attempts.load(Relaxed);
        snapshot.retries = self.retries.load(Relaxed);
        snapshot.connects = self.connects.load(Relaxed);
        snapshot.ejections = self.ejections.load(Relaxed);
        snapshot.statuses = self.responses.each_ref().map(|count| count.load(Relaxed));
        let failures = self.failures.iter().map(|count| count.load(Relaxed));
        snapshot.failures = FailureKind::ALL.into_iter().map(FailureKind::name).zip(failures).collect();
        let dropped = self.dropped_datagrams.iter().map(|count| count.load(Relaxed));
        snapshot.dropped_datagrams = DROPPED_DATAGRAMS.into_iter().zip(dropped).collect();
        snapshot.head_time = self.head_time.snapshot();
        snapshot.whole_time = self.whole_time.snapshot();
        snapshot
    }

    /// Adds the counts of an upstream that has left.
    pub(super) fn merge(&self, left: &Self) {
        let add = |sum: &AtomicU64, more: &AtomicU64| {
            sum.fetch_add(more.load(Relaxed), Relaxed);
        };
        add(&self.attempts, &left.attempts);
        add(&self.retries, &left.retries);
        add(&self.connects, &left.connects);
        add(&self.ejections, &left.ejections);
        self.responses.iter().zip(&left.responses).for_each(|(sum, more)| add(sum, more));
        self.failures.iter().zip(&left.failures).for_each(|(sum, more)| add(sum, more));
        self.dropped_datagrams.iter().zip(&left.dropped_datagrams).for_each(|(sum, more)| add(sum, more));
        self.head_time.merge(&left.head_time.snapshot());
        self.whole_time.merge(&left.whole_time.snapshot());
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

/// The side of a tunnel that a datagram was for.
#[cfg(feature = "connect-udp")]
#[derive(Debug, Clone, Copy)]
pub(super) enum TunnelSide {
    Client,
    Upstream,
}

#[cfg(feature = "connect-udp")]
impl TunnelSide {
    const fn name(self) -> &'static str {
        match self {
            Self::Client => "client",
            Self::Upstream => "upstream",
        }
    }
}

/// The side and the reason of datagrams that are dropped.
const DROPPED_DATAGRAMS: [(&str, &str); 8] = [
    ("client", "too_long"),
    ("client", "no_room"),
    ("client", "within_capsule"),
    ("client", "closed"),
    ("upstream", "too_long"),
    ("upstream", "no_room"),
    ("upstream", "within_capsule"),
    ("upstream", "closed"),
];

/// Classes of statuses, from 1xx to 5xx.
const CLASSES: usize = 5;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_line_a_second_says_how_many_there_were() {
        let counts = UpstreamCounts::default();
        assert_eq!([0, 0, 999, 1_000, 1_500].map(|now| counts.may_log(now)), [Some(0), None, None, Some(2), None]);
    }
}
