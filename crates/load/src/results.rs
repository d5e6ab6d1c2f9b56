//! `LoadResults`: the results of a load. The threads of the load count, `report/` prints.

use std::collections::BTreeMap;
use std::ops::AddAssign;
use std::time::Duration;

use hdrhistogram::Histogram;

use super::baseline::Baseline;
use super::redis::RedisCounts;

/// The results of a load, over all its threads.
#[derive(Debug)]
pub(crate) struct LoadResults {
    /// The parameters of the load.
    pub(crate) parameters: Parameters,
    /// The duration of the load, from its start to the last sample.
    pub(crate) elapsed: Duration,
    /// Complete responses, whatever their status. With Redis replies, with broadcasts deliveries.
    pub(crate) requests: u64,
    /// Those that were good.
    pub(crate) good: u64,
    /// HTTP responses by status.
    pub(crate) statuses: BTreeMap<u16, u64>,
    /// Replies of Redis.
    pub(crate) redis: RedisCounts,
    /// Bytes received, heads included.
    pub(crate) bytes_read: u64,
    /// From the request to the end of its response, in nanoseconds. With a rate, latency starts at the scheduled send
    /// time, and unanswered requests are included.
    pub(crate) latency: Histogram<u64>,
    /// Errors by kind.
    pub(crate) errors: Errors,
    /// Idle connections.
    pub(crate) idle: HeldConnections,
    /// Connections that have sent requests and never read.
    pub(crate) stuck: HeldConnections,
    /// With HTTP/2 and HTTP/3: connections on which the server has sent GOAWAY.
    pub(crate) goaways: u64,
    /// With HTTP/2 and HTTP/3: requests that the server did not process, and that were sent again. A request counts each time.
    pub(crate) refused: u64,
    /// CPU time of the load generator. If it is as long as the elapsed time, the load generator was the bottleneck.
    pub(crate) cpu: CpuTime,
    /// The results of each interval, oldest first, summed over the threads.
    pub(crate) over_time: Vec<Interval>,
    /// Requests per second of each thread in each interval: wrk's Req/Sec.
    pub(crate) thread_rates: Vec<f64>,
    /// Requests in flight at the end: sent and not answered, as at the end of every load.
    pub(crate) unanswered: u64,
    /// Connection attempts in progress at the end.
    pub(crate) connecting: u64,
    /// With a rate: requests that were due before the end and not sent, since every connection waited for responses.
    pub(crate) unsent: u64,
    /// The results of an earlier load to compare with.
    pub(crate) baseline: Option<Baseline>,
}

impl LoadResults {
    /// Empty figures.
    pub(crate) fn nothing(parameters: Parameters, cpu: CpuTime) -> Self {
        Self {
            parameters,
            elapsed: Duration::ZERO,
            requests: 0,
            good: 0,
            statuses: BTreeMap::new(),
            redis: RedisCounts::default(),
            bytes_read: 0,
            latency: Histogram::new(3).expect("HdrHistogram takes up to five digits"),
            errors: Errors::default(),
            idle: HeldConnections::default(),
            stuck: HeldConnections::default(),
            goaways: 0,
            refused: 0,
            cpu,
            over_time: Vec::new(),
            thread_rates: Vec::new(),
            unanswered: 0,
            connecting: 0,
            unsent: 0,
            baseline: None,
        }
    }
}

/// The parameters of the load, as the report repeats them.
#[derive(Debug, Clone)]
pub(crate) struct Parameters {
    pub(crate) url: String,
    pub(crate) method: String,
    pub(crate) backend: &'static str,
    pub(crate) threads: usize,
    pub(crate) connections: usize,
    /// Idle connections.
    pub(crate) idle: usize,
    pub(crate) pipeline: usize,
    /// The HTTP version.
    pub(crate) version: HttpVersion,
    /// With HTTP/2 and HTTP/3: streams that each connection keeps open.
    pub(crate) streams: Option<u32>,
    /// Requests per second over all connections, if the load has a rate.
    pub(crate) rate: Option<f64>,
    /// How long it lasts, unless the number of requests is given and comes first.
    pub(crate) duration: Duration,
    /// The number of requests, if it is given.
    pub(crate) total: Option<u64>,
    /// Whether connections never read.
    pub(crate) never_read: bool,
    pub(crate) protocol: Protocol,
    /// Responses are deliveries of messages.
    pub(crate) broadcast: bool,
    /// With Redis: connections that subscribe.
    pub(crate) subscribers: usize,
}

/// The protocol of a load.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Protocol {
    Http,
    /// Requests are messages of a WebSocket.
    WebSocket,
    /// Requests are commands.
    Redis,
}

impl Protocol {
    /// The name in the output of `--json`.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::WebSocket => "websocket",
            Self::Redis => "redis",
        }
    }
}

/// The HTTP version that a load speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HttpVersion {
    Http1,
    Http2,
    Http3,
}

impl HttpVersion {
    /// The name in reports.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Http1 => "HTTP/1.1",
            Self::Http2 => "HTTP/2",
            Self::Http3 => "HTTP/3",
        }
    }

    /// Whether each request has a stream of its own.
    pub(crate) fn has_streams(self) -> bool {
        self != Self::Http1
    }
}

/// Failed requests and failed connection attempts, by kind.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Errors {
    /// Failed connection attempts.
    pub(crate) connect: u64,
    /// Connections that broke with responses outstanding: resets.
    pub(crate) read: u64,
    /// Requests that could not be sent.
    pub(crate) write: u64,
    /// Requests that were not answered in time.
    pub(crate) timeout: u64,
    /// Responses with a status other than 2xx and 3xx.
    pub(crate) status: u64,
    /// Responses of another length than the first.
    pub(crate) length: u64,
    /// Connections with input that is no valid HTTP response; with HTTP/2 and HTTP/3, also streams.
    pub(crate) invalid: u64,
    /// Connections that the server closed in good order with responses outstanding.
    pub(crate) closed: u64,
    /// With HTTP/2 and HTTP/3: streams that the server has reset, without those of requests that were sent again.
    pub(crate) reset: u64,
    /// Error replies of Redis.
    pub(crate) reply: u64,
}

impl Errors {
    /// The sum over all kinds.
    pub(crate) fn total(&self) -> u64 {
        let Self { connect, read, write, timeout, status, length, invalid, closed, reset, reply } = self;
        connect + read + write + timeout + status + length + invalid + closed + reset + reply
    }
}

impl AddAssign for Errors {
    fn add_assign(&mut self, other: Self) {
        self.connect += other.connect;
        self.read += other.read;
        self.write += other.write;
        self.timeout += other.timeout;
        self.status += other.status;
        self.length += other.length;
        self.invalid += other.invalid;
        self.closed += other.closed;
        self.reset += other.reset;
        self.reply += other.reply;
    }
}

/// Connections that are idle or never read.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct HeldConnections {
    /// Established at the end.
    pub(crate) held: u64,
    /// Closed by the server before the end.
    pub(crate) lost: u64,
}

/// CPU time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CpuTime {
    /// Time in user space.
    pub user: Duration,
    /// Time in the kernel.
    pub system: Duration,
}

/// The results of one interval.
#[derive(Debug, Clone)]
pub(crate) struct Interval {
    /// The end of the interval, since the load began.
    pub(crate) until: Duration,
    pub(crate) requests: u64,
    /// Latencies of the responses in the interval, in nanoseconds.
    pub(crate) latency: Histogram<u64>,
}

impl AddAssign for HeldConnections {
    fn add_assign(&mut self, other: Self) {
        self.held += other.held;
        self.lost += other.lost;
    }
}
