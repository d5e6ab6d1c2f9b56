//! The jobs: names, operations, and rounds.

use crate::{codecs, crowds, drivers, http, http3, queue, routes, streams, timers, turns, websocket};

/// A job whose instructions are counted.
pub(crate) struct Job {
    /// Its name among the stored figures.
    pub(crate) name: &'static str,
    /// A description of one operation.
    pub(crate) operation: &'static str,
    /// Operations in a round.
    per_round: usize,
    /// Warm-up rounds, until all buffers have their final size.
    warm_up: usize,
    /// Counted rounds.
    counted: usize,
    run: fn(rounds: usize),
    /// The reason why it cannot run here, if any.
    lack: fn() -> Option<String>,
}

impl Job {
    pub(crate) fn run(&self, rounds: usize) {
        (self.run)(rounds);
    }

    /// Why it cannot run here, if it cannot.
    pub(crate) fn lack(&self) -> Option<String> {
        (self.lack)()
    }

    /// The same job with few connections, if this is the one with many.
    /// Its figure may differ from that of the other job by so many percent.
    pub(crate) fn same_with_few(&self) -> Option<(&'static Self, f64)> {
        SIZES.iter().find_map(|(few, many, percent_max)| {
            let name = self.name.strip_suffix(many)?;
            let found = JOBS.iter().find(|job| job.name.strip_suffix(few) == Some(name))?;
            Some((found, *percent_max))
        })
    }

    /// The same job, with a check of its prerequisites.
    const fn unless(mut self, lack: fn() -> Option<String>) -> Self {
        self.lack = lack;
        self
    }

    /// The rounds of the short and of the long run, whose difference is counted.
    pub(crate) const fn rounds(&self) -> [usize; 2] {
        [self.warm_up, self.warm_up + self.counted]
    }

    /// The operations of the long run beyond those of the short one.
    pub(crate) const fn operations(&self) -> usize {
        self.counted * self.per_round
    }

    pub(crate) fn find(name: &str) -> Option<&'static Self> {
        JOBS.iter().chain(UNSTORED).find(|job| job.name == name)
    }
}

const fn job(name: &'static str, operation: &'static str, per_round: usize, run: fn(usize)) -> Job {
    // Nearly equal numbers of operations, so that infrequent work, such as a full segment, counts alike.
    let counted = 4_096 / per_round;
    Job { name, operation, per_round, warm_up: counted / 4, counted, run, lack: || None }
}

/// The suffixes of the names of jobs with few and with many connections, streams, or routes, and the percentage by which the
/// figures of the two may differ.
const SIZES: [(&str, &str, f64); 3] = [("-100", "-15000", 2.0), ("-0", "-999", 2.0), ("-10", "-10000", 10.0)];

pub(crate) const JOBS: &[Job] = &[
    job("decode", "a request with 3 fields", codecs::DEPTH, codecs::decode_plaintext),
    job("decode-short", "a request with 1 field", codecs::DEPTH, codecs::decode_short),
    job("decode-browser", "a request with 25 fields", codecs::DEPTH, codecs::decode_browser),
    job("decode-response", "a response with 13 bytes of body", codecs::DEPTH, codecs::decode_response),
    job("encode", "the usual response", codecs::DEPTH, codecs::encode_response),
    job("encode-request", "a request without fields", codecs::DEPTH, codecs::encode_request),
    job("push-flush", "1 response of 133 bytes: write, flush, gather, advance", 1, queue::one),
    job("push-flush-256", "1 of 256 such responses", queue::MANY, queue::many),
    job("timer", "a deadline: armed, moved twice, come; 3 visits", timers::MANY, timers::deadline),
    job("timer-sleep", "a task that sleeps and wakes", timers::MANY, timers::sleep),
    job("turn-1", "1 request, from receive to send", 1, turns::handled::<1>),
    job("turn-1-of-64", "1 request on each of 64 connections", turns::CROWD, turns::crowd),
    job("turn-16", "1 of 16 pipelined requests", 16, turns::handled::<16>),
    job("turn-256", "1 of 256 pipelined requests", 256, turns::handled::<256>),
    job("turn-256-short", "1 of 256 pipelined requests with 1 field", 256, turns::handled_short::<256>),
    job("channel-1", "1 request, by a task", 1, turns::pulled::<1>),
    job("channel-16", "1 of 16 pipelined requests, by a task", 16, turns::pulled::<16>),
    job("channel-256", "1 of 256 pipelined requests, by a task", 256, turns::pulled::<256>),
    job("http-sync", "1 of 16 pipelined requests, by a function that is not async", 16, http::sync::<16>),
    job("http-router", "the same behind a router", 16, http::routed::<16>),
    job("hosts-10", "the same with 10 routes of one host", 16, routes::of_hosts::<1, 16>),
    job("hosts-10000", "the same with 10 routes of each of 1,000 hosts", 16, routes::of_hosts::<1_000, 16>),
    job("paths-10", "the same with 10 routes", 16, routes::of_paths::<10, 16>),
    job("paths-10000", "the same with 10,000 routes", 16, routes::of_paths::<10_000, 16>),
    job("conditions-10", "the same with 10 routes whose conditions do not hold", 16, routes::of_conditions::<10, 16>),
    job("conditions-10000", "the same with 10,000 such routes", 16, routes::of_conditions::<10_000, 16>),
    job(
        "route-added",
        "1 of 4,096 routes added to a router, half of them with conditions",
        4_096,
        routes::made::<4_096>,
    ),
    job("http-async", "the same by an async function", 16, http::async_::<16>),
    job("http-wrapped", "the same in async middleware that does not wait", 16, http::wrapped::<16>),
    job("http-awaits", "the same by an async function that waits once", 16, http::awaits::<16>),
    job("http2-sync", "1 of 100 requests over HTTP/2, by a function that is not async", 100, http::http2::<100>),
    job("http2-sync-1", "1 request over HTTP/2, by a function that is not async", 1, http::http2::<1>),
    job("http-sync-1", "1 request, by a function that is not async", 1, http::sync::<1>),
    job("http-async-1", "1 request, by an async function", 1, http::async_::<1>),
    job("http-wrapped-1", "1 request, by an async function in async middleware", 1, http::wrapped::<1>),
    job("http-awaits-1", "1 request, by an async function that waits once", 1, http::awaits::<1>),
    job("http-suspends-1", "1 request, by an async function that its task waits for", 1, http::suspends::<1>),
    job(
        "http-fields",
        "1 of 16 pipelined requests, by a function with the fields of a stored response",
        16,
        http::fields::<16>,
    ),
    job("http-fields-1", "1 request, by a function with the fields of a stored response", 1, http::fields::<1>),
    job("cache-hit", "1 of 16 pipelined requests, by a stored response", 16, http::cached::<16>),
    job("cache-hit-1", "1 request, by a stored response", 1, http::cached::<1>),
    job("ws-5", "1 message of 5 bytes over WebSocket, sent back", 1, websocket::echo::<5, 1>),
    job("ws-5-16", "1 of 16 such messages", 16, websocket::echo::<5, 16>),
    job("ws-64k", "1 message of 64 KiB over WebSocket, sent back", 1, websocket::echo::<65_536, 1>),
    job("proxy-1", "1 request, passed on to an upstream", 1, http::proxied::<1>),
    job("proxy-features", "the same with a log, an id, two edits and a rate limit", 1, http::proxied_with_features),
    job("proxy-16", "1 of 16 pipelined requests, passed on to an upstream", 16, http::proxied::<16>),
    job("lines-100", "1 of 100 pipelined lines", streams::STREAMS, streams::pipelined),
    job("streams-100", "1 line on each of 100 streams", streams::STREAMS, streams::one_on_each),
    job("unread-0", "1 line on the only stream of a session", 1, streams::beside_unread::<0>),
    job("unread-999", "1 line, beside 999 streams that are not read", 1, streams::beside_unread::<999>),
    job("close-100", "a connection closed, of 100", crowds::ENDS, crowds::close::<100>),
    job("close-15000", "a connection closed, of 15,000", crowds::ENDS, crowds::close::<15_000>),
    job("hold-100", "receiving held back for a turn, 100 connections", 1, crowds::hold::<100>),
    job("hold-15000", "receiving held back for a turn, 15,000 connections", 1, crowds::hold::<15_000>),
    job("shed-100", "a turn while a connection that was shed closes, of 100", 1, crowds::shed::<100>),
    job("shed-15000", "a turn while a connection that was shed closes, of 15,000", 1, crowds::shed::<15_000>),
    job("epoll-close-100", "a socket closed, of 100 on epoll", 1, drivers::close_on_epoll::<100>)
        .unless(drivers::lack_of_descriptors),
    job("epoll-close-15000", "a socket closed, of 15,000 on epoll", 1, drivers::close_on_epoll::<15_000>)
        .unless(drivers::lack_of_descriptors),
    job("epoll-hold-100", "receiving held back once, 100 sockets on epoll", 1, drivers::hold_on_epoll::<100>)
        .unless(drivers::lack_of_descriptors),
    job("epoll-hold-15000", "receiving held back once, 15,000 sockets on epoll", 1, drivers::hold_on_epoll::<15_000>)
        .unless(drivers::lack_of_descriptors),
    job("uring-close-100", "a socket closed, of 100 on io_uring", 1, drivers::close_on_uring::<100>)
        .unless(drivers::lack_of_uring),
    job("uring-close-15000", "a socket closed, of 15,000 on io_uring", 1, drivers::close_on_uring::<15_000>)
        .unless(drivers::lack_of_uring),
    job("uring-hold-100", "receiving held back once, 100 sockets on io_uring", 1, drivers::hold_on_uring::<100>)
        .unless(drivers::lack_of_uring),
    job(
        "uring-hold-15000",
        "receiving held back once, 15,000 sockets on io_uring",
        1,
        drivers::hold_on_uring::<15_000>,
    )
    .unless(drivers::lack_of_uring),
];

/// Jobs whose figures are not stored: they run by their name only.
const UNSTORED: &[Job] = &[job(
    "http3-sync",
    "1 request on each of 64 streams of 8 connections over HTTP/3, by a function that is not async",
    64 * http3::CONNECTIONS,
    http3::sync::<64>,
)];
