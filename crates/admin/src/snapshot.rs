//! `Snapshot`: the figures of the live page at one moment, as JSON. The page computes rates from two of them.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Serialize;
use tidegate_engine::{Counts, Refusal, RoomSummary, RoomsSummary, TurnTimes};
use tidegate_metrics::{HttpMetrics, LatencySnapshot, UpstreamGroup, UpstreamSnapshot, UpstreamState, closed_by_cause};

use crate::figures::{BackplaneFigures, Figures};

/// The figures of a server.
#[derive(Debug, Serialize)]
pub(crate) struct Snapshot {
    /// Milliseconds since the administrative server has started, by a clock that never jumps.
    at: u64,
    version: &'static str,
    backend: &'static str,
    is_draining: bool,
    listeners: Vec<ListenerFigures>,
    loops: Vec<LoopFigures>,
    /// Closed connections by cause.
    closed: BTreeMap<&'static str, u64>,
    requests: RequestFigures,
    /// The upstreams of a gateway; absent without one.
    #[serde(skip_serializing_if = "Option::is_none")]
    upstreams: Option<UpstreamFigures>,
    /// The rooms of the application; absent without any.
    #[serde(skip_serializing_if = "Option::is_none")]
    rooms: Option<RoomsFigures>,
    #[serde(skip_serializing_if = "Option::is_none")]
    backplane: Option<BackplaneFigures>,
}

#[derive(Debug, Serialize)]
struct RoomsFigures {
    total: usize,
    members: usize,
    /// The largest first.
    rows: Vec<RoomRow>,
}

#[derive(Debug, Serialize)]
struct RoomRow {
    name: String,
    members: usize,
    elsewhere: usize,
    messages: u64,
}

#[derive(Debug, Serialize)]
struct ListenerFigures {
    label: String,
    addresses: Vec<String>,
    connections: usize,
    accepted: u64,
    refused: u64,
}

#[derive(Debug, Serialize)]
struct LoopFigures {
    connections: u64,
    streams: u64,
    accepted: u64,
    accepts_failed: u64,
    messages: u64,
    received: u64,
    sent: u64,
    memory: u64,
    /// Absent if it is not limited.
    budget: Option<u64>,
    turns: u64,
    slow_turns: u64,
    stalls: u64,
    longest_turn_us: u128,
    busy_us: u128,
    /// Turns by powers of two of microseconds.
    turn_times: Vec<u64>,
    handshakes: u64,
    handshakes_failed: u64,
}

#[derive(Debug, Serialize)]
struct RequestFigures {
    statuses: [u64; 5],
    latency: Vec<u64>,
    /// The busiest routes first.
    routes: Vec<RouteFigures>,
    /// Upper bounds of latency, in microseconds; the last bucket has none.
    bounds_us: Vec<u128>,
}

#[derive(Debug, Serialize)]
struct RouteFigures {
    route: String,
    method: &'static str,
    statuses: [u64; 5],
    latency: Vec<u64>,
}

#[derive(Debug, Serialize)]
struct UpstreamFigures {
    /// The busiest first.
    rows: Vec<UpstreamRow>,
    /// How many there are.
    total: usize,
    queues: Vec<QueueRow>,
}

#[derive(Debug, Serialize)]
struct UpstreamRow {
    group: String,
    name: String,
    state: Option<&'static str>,
    in_progress: u64,
    idle: u64,
    shared: u64,
    attempts: u64,
    retries: u64,
    connects: u64,
    ejections: u64,
    statuses: [u64; 5],
    failures: BTreeMap<&'static str, u64>,
    dropped_datagrams: u64,
    /// The time to the head of the response.
    latency: Vec<u64>,
}

#[derive(Debug, Serialize)]
struct QueueRow {
    group: String,
    waiting: u64,
    refused: u64,
}

impl Snapshot {
    pub(crate) fn of(figures: &Figures, at: Duration) -> Self {
        let Figures { requests, upstreams, .. } = figures;
        let server = figures.server();
        let counts = server.counts();
        let mut closed = BTreeMap::new();
        for (cause, count) in counts.iter().flat_map(closed_by_cause) {
            *closed.entry(cause).or_default() += count;
        }
        Self {
            at: u64::try_from(at.as_millis()).unwrap_or(u64::MAX),
            version: env!("CARGO_PKG_VERSION"),
            backend: server.backend(),
            is_draining: server.is_draining(),
            listeners: server
                .listeners()
                .iter()
                .map(|listener| ListenerFigures {
                    label: listener.label().to_owned(),
                    addresses: listener.addresses().iter().map(ToString::to_string).collect(),
                    connections: listener.counts().connections(),
                    accepted: listener.counts().accepted(),
                    refused: REFUSALS.iter().map(|reason| listener.counts().refused(*reason)).sum(),
                })
                .collect(),
            loops: counts.iter().map(LoopFigures::of).collect(),
            closed,
            requests: RequestFigures::of(requests),
            upstreams: upstreams.as_ref().map(|read| UpstreamFigures::of(&read())),
            rooms: figures.rooms.as_ref().map(|read| RoomsFigures::of(read())),
            backplane: figures.backplane.as_ref().map(|read| read()),
        }
    }

    pub(crate) fn to_json(&self) -> String {
        serde_json::to_string(self).expect("it has numbers and texts only")
    }
}

impl LoopFigures {
    fn of(counts: &Counts) -> Self {
        Self {
            connections: counts.connections,
            streams: counts.streams,
            accepted: counts.accepted,
            accepts_failed: counts.accepts_failed,
            messages: counts.messages,
            received: counts.received_bytes,
            sent: counts.sent_bytes,
            memory: counts.memory_bytes,
            budget: Some(counts.memory_budget_bytes).filter(|&bytes| bytes > 0 && bytes < 1 << 53),
            turns: counts.turns,
            slow_turns: counts.slow_turns,
            stalls: counts.stalls,
            longest_turn_us: counts.longest_turn.as_micros(),
            busy_us: counts.busy_time.as_micros(),
            turn_times: counts.turn_times.buckets().to_vec(),
            handshakes: counts.handshakes,
            handshakes_failed: counts.handshakes_failed,
        }
    }
}

impl RequestFigures {
    fn of(requests: &HttpMetrics) -> Self {
        let mut all = requests.snapshot();
        let (mut statuses, mut latency) = ([0; 5], LatencySnapshot::default());
        for series in &all {
            for (sum, count) in statuses.iter_mut().zip(series.statuses) {
                *sum += count;
            }
            latency.merge(&series.latency);
        }
        all.sort_by_key(|series| std::cmp::Reverse(series.statuses.iter().sum::<u64>()));
        all.truncate(ROUTES_SHOWN_MAX);
        let routes = all.into_iter().map(|series| RouteFigures {
            route: series.route.to_string(),
            method: series.method,
            statuses: series.statuses,
            latency: series.latency.buckets().to_vec(),
        });
        let bounds = (0..).map_while(LatencySnapshot::bound).map(|bound| bound.as_micros());
        Self { statuses, latency: latency.buckets().to_vec(), routes: routes.collect(), bounds_us: bounds.collect() }
    }
}

impl UpstreamFigures {
    fn of(groups: &[UpstreamGroup]) -> Self {
        let mut all: Vec<(&str, &UpstreamSnapshot)> = Vec::new();
        for group in groups {
            all.extend(group.upstreams.iter().map(|upstream| (&*group.name, upstream)));
        }
        // One that takes no requests is shown however idle it is.
        let is_up = |upstream: &UpstreamSnapshot| upstream.state.is_none_or(UpstreamState::is_available);
        all.sort_by_key(|(_, upstream)| (is_up(upstream), std::cmp::Reverse(upstream.attempts)));
        let total = all.len();
        all.truncate(UPSTREAMS_SHOWN_MAX);
        all.sort_by_key(|(group, upstream)| (*group, std::cmp::Reverse(upstream.attempts)));
        let queues = groups.iter().map(|group| QueueRow {
            group: group.name.clone(),
            waiting: group.queue.waiting,
            refused: group.queue.full + group.queue.late,
        });
        Self { rows: all.into_iter().map(UpstreamRow::of).collect(), total, queues: queues.collect() }
    }
}

impl RoomsFigures {
    fn of(summary: RoomsSummary) -> Self {
        let row = |room: RoomSummary| RoomRow {
            name: room.name,
            members: room.members,
            elsewhere: room.members_elsewhere,
            messages: room.messages,
        };
        let rows = summary.largest.into_iter().take(ROOMS_SHOWN_MAX).map(row).collect();
        Self { total: summary.rooms, members: summary.members, rows }
    }
}

impl UpstreamRow {
    fn of((group, upstream): (&str, &UpstreamSnapshot)) -> Self {
        Self {
            group: group.to_owned(),
            name: upstream.name.clone(),
            state: upstream.state.map(UpstreamState::name),
            in_progress: upstream.in_progress,
            idle: upstream.idle_connections,
            shared: upstream.http2_connections + upstream.http3_connections,
            attempts: upstream.attempts,
            retries: upstream.retries,
            connects: upstream.connects,
            ejections: upstream.ejections,
            statuses: upstream.statuses,
            failures: upstream.failures.iter().copied().filter(|(_, count)| *count > 0).collect(),
            dropped_datagrams: upstream.dropped_datagrams.iter().map(|(_, count)| count).sum(),
            latency: upstream.head_time.buckets().to_vec(),
        }
    }
}

/// Upstreams of the page.
const UPSTREAMS_SHOWN_MAX: usize = 40;

/// Rooms of the page.
const ROOMS_SHOWN_MAX: usize = 20;

/// Routes of the page.
const ROUTES_SHOWN_MAX: usize = 20;

const REFUSALS: [Refusal; 4] =
    [Refusal::Denied, Refusal::TooManyConnections, Refusal::TooFast, Refusal::TooManyAddresses];

// The page draws as many rows.
const _: () = assert!(size_of::<TurnTimes>() == 24 * 8);
