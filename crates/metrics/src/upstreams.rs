//! The upstreams of a gateway, as metrics: snapshots that the gateway makes, and their text.
//!
//! The types are plain numbers, so that a page or a program can show them without the gateway's crate. A gateway bounds
//! the upstreams of a snapshot: those beyond the bound, and those that have left, are one row, `other`. So the labels
//! are bounded however often the addresses of a name change.

use crate::histogram::LatencySnapshot;
use crate::text::{Kind, MetricsText};

/// The upstreams that can answer the same requests, at one moment.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct UpstreamGroup {
    /// The name of the group: the label `group`.
    pub name: String,
    /// Its upstreams, and `other` for those that are not apart.
    pub upstreams: Vec<UpstreamSnapshot>,
    /// The requests that wait for room at any of them.
    pub queue: QueueSnapshot,
}

impl UpstreamGroup {
    /// A group of this name without upstreams.
    #[must_use]
    pub fn new(name: impl Into<String>) -> Self {
        Self { name: name.into(), ..Self::default() }
    }
}

/// The requests that wait until an upstream of a group has room.
#[derive(Debug, Clone, Copy, Default)]
#[non_exhaustive]
pub struct QueueSnapshot {
    /// Those that wait now.
    pub waiting: u64,
    /// Requests that found the queue full.
    pub full: u64,
    /// Requests that waited for the longest time, in vain.
    pub late: u64,
    /// How long those waited that found room.
    pub waits: LatencySnapshot,
}

/// One upstream at one moment. Counts only grow; a gauge is never below zero.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct UpstreamSnapshot {
    /// Its scheme and its address: the label `upstream`. `other` for the sum of those that are not apart.
    pub name: String,
    /// Whether it takes requests; `None` for a sum.
    pub state: Option<UpstreamState>,
    /// Requests in progress.
    pub in_progress: u64,
    /// HTTP/1.1 connections that wait for a request, of all loops.
    pub idle_connections: u64,
    /// HTTP/2 connections, of all loops.
    pub http2_connections: u64,
    /// HTTP/3 connections, of all loops.
    pub http3_connections: u64,
    /// Attempts: how often it was chosen for a request.
    pub attempts: u64,
    /// Those attempts that followed another one of the same request.
    pub retries: u64,
    /// Connections that were made.
    pub connects: u64,
    /// How often it was left out since its responses failed.
    pub ejections: u64,
    /// Responses by class of their status, from 1xx to 5xx.
    pub statuses: [u64; CLASSES],
    /// Attempts that have failed, by reason; the reasons and their order are the same for all upstreams.
    pub failures: Vec<(&'static str, u64)>,
    /// Datagrams of its tunnels (RFC 9297) that the gateway dropped, by the side that they were for and by reason; the pairs and
    /// their order are the same for all upstreams.
    pub dropped_datagrams: Vec<((&'static str, &'static str), u64)>,
    /// From the choice of the upstream to the head of its response.
    pub head_time: LatencySnapshot,
    /// From the choice of the upstream to the end of its response, if that was complete.
    pub whole_time: LatencySnapshot,
}

/// Whether an upstream takes requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum UpstreamState {
    /// It has its full share.
    #[default]
    Up,
    /// It has come back, and its share grows.
    Starting,
    /// It is left out for a while, since its responses failed.
    Ejected,
    /// Active checks have found it down.
    Down,
}

impl UpstreamState {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Up, Self::Starting, Self::Ejected, Self::Down];

    /// The value of the label `state`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Up => "up",
            Self::Starting => "starting",
            Self::Ejected => "ejected",
            Self::Down => "down",
        }
    }

    /// Whether it takes requests.
    #[must_use]
    pub const fn is_available(self) -> bool {
        matches!(self, Self::Up | Self::Starting)
    }
}

impl UpstreamSnapshot {
    /// The name of the sum of those that are not apart.
    pub const OTHER: &str = "other";

    /// Adds the counts of another one.
    pub fn merge(&mut self, other: &Self) {
        for (sum, more) in [
            (&mut self.in_progress, other.in_progress),
            (&mut self.idle_connections, other.idle_connections),
            (&mut self.http2_connections, other.http2_connections),
            (&mut self.http3_connections, other.http3_connections),
            (&mut self.attempts, other.attempts),
            (&mut self.retries, other.retries),
            (&mut self.connects, other.connects),
            (&mut self.ejections, other.ejections),
        ] {
            *sum = sum.wrapping_add(more);
        }
        for (sum, more) in self.statuses.iter_mut().zip(other.statuses) {
            *sum = sum.wrapping_add(more);
        }
        merge_named(&mut self.failures, &other.failures);
        merge_named(&mut self.dropped_datagrams, &other.dropped_datagrams);
        self.head_time.merge(&other.head_time);
        self.whole_time.merge(&other.whole_time);
    }
}

/// Adds counts to those of the same names.
fn merge_named<N: Copy + PartialEq>(sums: &mut Vec<(N, u64)>, others: &[(N, u64)]) {
    for &(name, more) in others {
        match sums.iter_mut().find(|(known, _)| *known == name) {
            Some((_, sum)) => *sum = sum.wrapping_add(more),
            None => sums.push((name, more)),
        }
    }
}

/// Writes the upstreams of some groups. `group` and `upstream` are labels of every sample but those of a queue, which
/// have `group` alone.
///
/// ```
/// use tidegate::metrics::{Format, MetricsText, UpstreamGroup, UpstreamSnapshot, UpstreamState, write_upstreams};
///
/// let mut app = UpstreamSnapshot::default();
/// app.name = "http://10.0.0.1:8080".into();
/// app.state = Some(UpstreamState::Ejected);
/// let mut group = UpstreamGroup::new("app");
/// group.upstreams.push(app);
///
/// let mut text = MetricsText::new(Format::Prometheus);
/// write_upstreams(&[group], &mut text);
/// let sample = "tidegate_upstream_state{group=\"app\",upstream=\"http://10.0.0.1:8080\",state=\"ejected\"} 1\n";
/// assert!(text.finish().contains(sample));
/// ```
pub fn write_upstreams(groups: &[UpstreamGroup], text: &mut MetricsText) {
    write_counters(groups, text);
    write_gauges(groups, text);
    write_times(groups, text);
    write_queues(groups, text);
}

/// Writes the samples of one upstream, which has these labels.
type WriteSamples<'a> = &'a dyn Fn(&mut MetricsText, &[(&str, &str); 2], &UpstreamSnapshot);

/// Reads one count of an upstream.
type ReadCount = fn(&UpstreamSnapshot) -> u64;

fn each(groups: &[UpstreamGroup], text: &mut MetricsText, write: WriteSamples<'_>) {
    for group in groups {
        for upstream in &group.upstreams {
            write(text, &[("group", &group.name), ("upstream", &upstream.name)], upstream);
        }
    }
}

fn write_counters(groups: &[UpstreamGroup], text: &mut MetricsText) {
    let counters: [(&str, &str, ReadCount); 4] = [
        ("tidegate_upstream_attempts", "Requests that upstreams were chosen for.", |upstream| upstream.attempts),
        ("tidegate_upstream_retries", "Attempts behind another one of the same request.", |upstream| upstream.retries),
        ("tidegate_upstream_connects", "Connections to upstreams that were made.", |upstream| upstream.connects),
        ("tidegate_upstream_ejections", "How often upstreams were left out.", |upstream| upstream.ejections),
    ];
    for (name, help, count) in counters {
        text.family(name, Kind::Counter, help);
        each(groups, text, &|text, labels, upstream| text.sample(labels, count(upstream)));
    }
    text.family("tidegate_upstream_responses", Kind::Counter, "Responses of upstreams.");
    each(groups, text, &|text, &[group, upstream], snapshot| {
        for (class, count) in CLASS_NAMES.iter().zip(snapshot.statuses).filter(|(_, count)| *count > 0) {
            text.sample(&[group, upstream, ("status", class)], count);
        }
    });
    text.family("tidegate_upstream_failures", Kind::Counter, "Attempts at upstreams that have failed.");
    each(groups, text, &|text, &[group, upstream], snapshot| {
        for (reason, count) in snapshot.failures.iter().filter(|(_, count)| *count > 0) {
            text.sample(&[group, upstream, ("reason", reason)], count);
        }
    });
    let help = "Datagrams of tunnels that the gateway dropped.";
    text.family("tidegate_upstream_datagrams_dropped", Kind::Counter, help);
    each(groups, text, &|text, &[group, upstream], snapshot| {
        for ((to, reason), count) in snapshot.dropped_datagrams.iter().filter(|(_, count)| *count > 0) {
            text.sample(&[group, upstream, ("to", to), ("reason", reason)], count);
        }
    });
}

fn write_gauges(groups: &[UpstreamGroup], text: &mut MetricsText) {
    text.family("tidegate_upstream_requests", Kind::Gauge, "Requests that upstreams have in progress.");
    each(groups, text, &|text, labels, upstream| text.sample(labels, upstream.in_progress));
    text.family("tidegate_upstream_available", Kind::Gauge, "Whether upstreams are neither ejected nor down.");
    each(groups, text, &|text, labels, upstream| {
        if let Some(state) = upstream.state {
            text.sample(labels, u8::from(state.is_available()));
        }
    });
    text.family("tidegate_upstream_state", Kind::Gauge, "The health of upstreams: 1 for the state that they are in.");
    each(groups, text, &|text, &[group, upstream], snapshot| {
        for state in UpstreamState::ALL.into_iter().filter(|_| snapshot.state.is_some()) {
            let labels = [group, upstream, ("state", state.name())];
            text.sample(&labels, u8::from(snapshot.state == Some(state)));
        }
    });
    text.family("tidegate_upstream_connections", Kind::Gauge, "Connections to upstreams that the pool has.");
    each(groups, text, &|text, &[group, upstream], snapshot| {
        text.sample(&[group, upstream, ("kind", "idle")], snapshot.idle_connections);
        text.sample(&[group, upstream, ("kind", "http2")], snapshot.http2_connections);
        text.sample(&[group, upstream, ("kind", "http3")], snapshot.http3_connections);
    });
}

fn write_times(groups: &[UpstreamGroup], text: &mut MetricsText) {
    let help = "Time from the choice of an upstream to the head of its response.";
    text.family("tidegate_upstream_head_seconds", Kind::Histogram, help);
    each(groups, text, &|text, labels, upstream| write_histogram(text, labels, &upstream.head_time));
    let help = "Time from the choice of an upstream to the end of its response.";
    text.family("tidegate_upstream_whole_seconds", Kind::Histogram, help);
    each(groups, text, &|text, labels, upstream| write_histogram(text, labels, &upstream.whole_time));
}

fn write_queues(groups: &[UpstreamGroup], text: &mut MetricsText) {
    text.family("tidegate_upstream_queue", Kind::Gauge, "Requests that wait until an upstream has room.");
    for group in groups {
        text.sample(&[("group", &group.name)], group.queue.waiting);
    }
    let help = "Requests that waited for room in vain, or found the queue full.";
    text.family("tidegate_upstream_queue_refused", Kind::Counter, help);
    for group in groups {
        text.sample(&[("group", &group.name), ("reason", "full")], group.queue.full);
        text.sample(&[("group", &group.name), ("reason", "timeout")], group.queue.late);
    }
    text.family("tidegate_upstream_queue_seconds", Kind::Histogram, "How long requests waited that found room.");
    for group in groups {
        write_histogram(text, &[("group", &group.name)], &group.queue.waits);
    }
}

/// Every fourth bound: powers of four.
fn write_histogram(text: &mut MetricsText, labels: &[(&str, &str)], times: &LatencySnapshot) {
    let bounds = times.buckets().iter().enumerate().map(|(at, count)| (LatencySnapshot::bound(at), *count));
    text.histogram(labels, bounds, times.sum(), |at| at % 4 == 0);
}

const CLASSES: usize = 5;
const CLASS_NAMES: [&str; CLASSES] = ["1xx", "2xx", "3xx", "4xx", "5xx"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sum_of_two_upstreams_has_all_counts_of_both() {
        let one = UpstreamSnapshot {
            attempts: 3,
            statuses: [0, 2, 0, 0, 1],
            failures: vec![("connect", 1), ("body", 0)],
            dropped_datagrams: vec![(("client", "no_room"), 2)],
            ..UpstreamSnapshot::default()
        };
        let mut sum = UpstreamSnapshot { failures: vec![("body", 4)], ..UpstreamSnapshot::default() };
        sum.merge(&one);
        sum.merge(&one);
        assert_eq!((sum.attempts, sum.statuses), (6, [0, 4, 0, 0, 2]));
        assert_eq!(sum.failures, [("body", 4), ("connect", 2)]);
        assert_eq!(sum.dropped_datagrams, [(("client", "no_room"), 4)]);
    }
}
