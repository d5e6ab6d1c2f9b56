//! `UpstreamCounts`: the responses and failures of one upstream, for metrics; and how often its failures are logged.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::time::Instant;

use tidegate_http1::Status;
use tidegate_metrics::{Kind, MetricsText};

use super::error::FailureKind;
use super::health::Millis;
use super::upstreams::{Upstream, Upstreams};

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

impl Upstreams {
    /// Writes the counts of the upstreams of some sets, each set by its name: the counters
    /// `tidegate_upstream_responses_total`, by class of the status, and `tidegate_upstream_failures_total`, by reason;
    /// the gauges `tidegate_upstream_requests`, those in progress, and `tidegate_upstream_available`, which is 0 while
    /// an upstream is ejected or down. An attempt that is followed by another one counts as well.
    ///
    /// | reason | is |
    /// |---|---|
    /// | `connect` | no connection could be made |
    /// | `timeout` | the connection, or the head of the response, was late |
    /// | `closed` | the connection ended before the head of the response |
    /// | `refused` | the upstream has not processed the request, and said so |
    /// | `protocol` | the request or the response does not fit the protocol |
    /// | `body` | the response ended within its body |
    ///
    /// ```
    /// use tidegate::http::proxy::Upstreams;
    /// use tidegate::metrics::{Format, MetricsText};
    ///
    /// let app = Upstreams::new(["http://10.0.0.1:8080"])?;
    /// let mut text = MetricsText::new(Format::Prometheus);
    /// Upstreams::write_metrics(&[("app", &app)], &mut text);
    /// let sample = "tidegate_upstream_available{group=\"app\",upstream=\"http://10.0.0.1:8080\"} 1\n";
    /// assert!(text.finish().contains(sample));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn write_metrics(sets: &[(&str, &Self)], text: &mut MetricsText) {
        let members = |set: &Self| set.0.members();
        let all: Vec<_> = sets.iter().map(|(name, set)| (*name, set, members(set))).collect();
        let each = |text: &mut MetricsText, write: &WriteSamples| {
            for (name, set, members) in &all {
                for member in &**members {
                    write(text, &[("group", name), ("upstream", &member.name)], set, member);
                }
            }
        };
        text.family("tidegate_upstream_responses", Kind::Counter, "Responses of upstreams.");
        each(text, &|text, &[group, upstream], _, member| {
            for (class, count) in CLASSES.iter().zip(&member.counts.responses) {
                let count = count.load(Relaxed);
                if count > 0 {
                    text.sample(&[group, upstream, ("status", class)], count);
                }
            }
        });
        text.family("tidegate_upstream_failures", Kind::Counter, "Attempts at upstreams that have failed.");
        each(text, &|text, &[group, upstream], _, member| {
            for (kind, count) in FailureKind::ALL.iter().zip(&member.counts.failures) {
                let count = count.load(Relaxed);
                if count > 0 {
                    text.sample(&[group, upstream, ("reason", kind.name())], count);
                }
            }
        });
        text.family("tidegate_upstream_requests", Kind::Gauge, "Requests that upstreams have in progress.");
        each(text, &|text, labels, _, member| text.sample(labels, member.active.load(Relaxed)));
        text.family("tidegate_upstream_available", Kind::Gauge, "Whether upstreams are neither ejected nor down.");
        each(text, &|text, labels, set, member| {
            let now = set.0.millis(Instant::now());
            text.sample(labels, u8::from(member.health.is_available(now)));
        });
    }
}

/// Writes the samples of one upstream, which has these labels.
type WriteSamples = dyn Fn(&mut MetricsText, &[(&str, &str); 2], &Upstreams, &Upstream);

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
