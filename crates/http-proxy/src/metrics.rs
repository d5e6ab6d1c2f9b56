//! The counts and states of upstreams, as text for Prometheus.

use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

use tidegate_metrics::{Kind, MetricsText};

use super::upstreams::{Upstream, Upstreams};

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
            for (class, count) in member.counts.responses() {
                text.sample(&[group, upstream, ("status", class)], count);
            }
        });
        text.family("tidegate_upstream_failures", Kind::Counter, "Attempts at upstreams that have failed.");
        each(text, &|text, &[group, upstream], _, member| {
            for (reason, count) in member.counts.failures() {
                text.sample(&[group, upstream, ("reason", reason)], count);
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
