//! Synthetic figures for the tests.

use std::collections::BTreeMap;
use std::sync::LazyLock;
use std::time::Duration;

use hdrhistogram::Histogram;

use crate::redis::{CommandCounts, RedisCounts};
use crate::results::{CpuTime, Errors, HeldConnections, HttpVersion, Interval, LoadResults, Parameters, Protocol};

/// A load of zero duration without responses.
pub(super) fn empty() -> LoadResults {
    LoadResults {
        parameters: Parameters {
            url: "http://127.0.0.1:8080/plaintext".to_owned(),
            method: "GET".to_owned(),
            backend: "uring",
            threads: 1,
            connections: 256,
            idle: 0,
            pipeline: 1,
            version: HttpVersion::Http1,
            streams: None,
            rate: None,
            duration: Duration::from_secs(2),
            total: None,
            never_read: false,
            protocol: Protocol::Http,
            broadcast: false,
            subscribers: 0,
        },
        elapsed: Duration::ZERO,
        requests: 0,
        good: 0,
        statuses: BTreeMap::new(),
        redis: RedisCounts::default(),
        bytes_read: 0,
        latency: nothing(),
        errors: Errors::default(),
        idle: HeldConnections::default(),
        stuck: HeldConnections::default(),
        goaways: 0,
        refused: 0,
        unanswered: 0,
        connecting: 0,
        unsent: 0,
        baseline: None,
        cpu: CpuTime::default(),
        over_time: Vec::new(),
        thread_rates: Vec::new(),
    }
}

/// Thirty seconds under load: most responses take 2 ms, some ten times that, and in the middle there is a pause.
pub(super) fn busy() -> LoadResults {
    let (mut latency, mut over_time, mut requests) = (nothing(), Vec::new(), 0);
    // Two million latencies, once a process.
    static INTERVALS: LazyLock<Vec<Interval>> = LazyLock::new(|| (0..30).map(interval).collect());
    for interval in INTERVALS.iter().cloned() {
        latency.add(&interval.latency).expect("it grows");
        requests += interval.requests;
        over_time.push(interval);
    }
    // The loop ended a little late.
    over_time.push(Interval { until: Duration::from_millis(30_003), requests: 12, latency: nothing() });
    let thread_rates = over_time[..30].iter().map(|interval| interval.requests as f64).collect();
    LoadResults {
        parameters: Parameters { duration: Duration::from_secs(30), ..empty().parameters },
        elapsed: Duration::from_millis(30_003),
        requests: requests + 12,
        good: requests + 12,
        statuses: BTreeMap::from([(200, requests + 12)]),
        bytes_read: requests * 133,
        latency,
        cpu: CpuTime { user: Duration::from_secs(4), system: Duration::from_secs(11) },
        over_time,
        thread_rates,
        ..empty()
    }
}

/// Two seconds of fast responses with similar latencies, and a gap without responses.
pub(super) fn quick() -> LoadResults {
    let mut figures = empty();
    for tenth in 1..=20_u64 {
        let mut interval = Interval { until: Duration::from_millis(tenth * 100), requests: 0, latency: nothing() };
        if !(8..12).contains(&tenth) {
            interval.requests = 700 + tenth;
            for n in 0..interval.requests {
                interval.latency.record(110_000 + n * n % 70_001).expect("it grows");
            }
        }
        figures.requests += interval.requests;
        figures.latency.add(&interval.latency).expect("it grows");
        figures.over_time.push(interval);
    }
    let statuses = BTreeMap::from([(200, figures.requests)]);
    LoadResults {
        elapsed: Duration::from_secs(2),
        bytes_read: figures.requests * 133,
        good: figures.requests,
        statuses,
        ..figures
    }
}

/// A load of Redis commands, some of which fail.
pub(super) fn redis() -> LoadResults {
    let mut figures = busy();
    figures.parameters.url = "redis://127.0.0.1:6379/".to_owned();
    figures.parameters.protocol = Protocol::Redis;
    figures.parameters.pipeline = 16;
    figures.statuses.clear();
    figures.errors.reply = 7;
    let command = |name: &str, replies, nulls, errors| CommandCounts { name: name.to_owned(), replies, nulls, errors };
    figures.redis.commands = vec![command("get", 80_000, 60_000, 0), command("incr", 20_000, 0, 7)];
    for _ in 0..7 {
        figures.redis.errors.count(b"WRONGTYPE Operation against a key holding the wrong kind of value");
    }
    figures.redis.resp3 = 64;
    figures
}

fn interval(second: u32) -> Interval {
    // Sums of sines: pseudo-noise that is equal in every run.
    let wave = |step: f64| (f64::from(second) * step).sin() + (f64::from(second) * step * 2.7 + 1.0).sin();
    let (slow, usual) = (second == 17, 2.1e6 + 2e5 * wave(0.7));
    let requests = if slow { 31_000 } else { (87_000.0 + 2_500.0 * wave(1.3)) as u64 };
    let mut latency = nothing();
    for n in 0..requests {
        // Spread by the golden ratio, then bent into a hump with a tail.
        let at = (n as f64 * 0.618_033_988_749_895).fract().clamp(0.0001, 0.9999);
        let hump = (at / (1.0 - at)).powf(0.22);
        let tail = if at > 0.97 { 1.0 + ((at - 0.97) / 0.03).powi(4) * 6.0 } else { 1.0 };
        let pause = if slow { 1.0 + 40.0 * (n as f64 / requests as f64).powi(3) } else { 1.0 };
        let value = usual * hump * tail * pause;
        latency.record(value as u64).expect("it grows");
    }
    Interval { until: Duration::from_secs(u64::from(second) + 1), requests, latency }
}

fn nothing() -> Histogram<u64> {
    Histogram::new(3).expect("three digits are allowed")
}
