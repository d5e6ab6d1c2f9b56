//! `Figures`: what a load came to. The threads of the load count, `report/` shows it.

use std::ops::AddAssign;
use std::time::Duration;

use hdrhistogram::Histogram;

/// What a load came to, over all its threads.
#[derive(Debug)]
pub(crate) struct Figures {
    /// What was asked for.
    pub(crate) asked: Asked,
    /// How long the load lasted, from the first request to the last moment that was counted.
    pub(crate) elapsed: Duration,
    /// Responses that were complete and as they should be.
    pub(crate) requests: u64,
    /// Bytes received, heads included.
    pub(crate) bytes_read: u64,
    /// From the request to the end of its response, in nanoseconds. With a rate, requests that were not answered when the load
    /// ended are among them, with what they had waited.
    pub(crate) latency: Histogram<u64>,
    /// What went wrong.
    pub(crate) errors: Errors,
    /// Connections that do nothing.
    pub(crate) idle: Held,
    /// Connections that have asked and never read.
    pub(crate) stuck: Held,
    /// CPU time of the load itself: it has measured itself where this is as much as the time that passed.
    pub(crate) cpu: CpuTime,
    /// What happened in each interval, the oldest first. Each thread counts apart, and intervals are added up here.
    pub(crate) over_time: Vec<Interval>,
    /// Requests a second of each thread in each interval: what wrk calls Req/Sec.
    pub(crate) thread_rates: Vec<f64>,
    /// Requests that were under way at the end: sent and not answered, as there are some at every end.
    pub(crate) unanswered: u64,
    /// Connections that were being made at the end.
    pub(crate) connecting: u64,
    /// With a rate: requests that were due before the end and not sent, since every connection waited for answers.
    pub(crate) unsent: u64,
}

impl Figures {
    /// Before anything is added.
    pub(crate) fn nothing(asked: Asked, cpu: CpuTime) -> Self {
        Self {
            asked,
            elapsed: Duration::ZERO,
            requests: 0,
            bytes_read: 0,
            latency: Histogram::new(3).expect("HdrHistogram takes up to five digits"),
            errors: Errors::default(),
            idle: Held::default(),
            stuck: Held::default(),
            cpu,
            over_time: Vec::new(),
            thread_rates: Vec::new(),
            unanswered: 0,
            connecting: 0,
            unsent: 0,
        }
    }
}

/// What was asked for, as it is told again.
#[derive(Debug, Clone)]
pub(crate) struct Asked {
    pub(crate) url: String,
    pub(crate) method: String,
    pub(crate) backend: &'static str,
    pub(crate) threads: usize,
    pub(crate) connections: usize,
    /// Connections that do nothing.
    pub(crate) idle: usize,
    pub(crate) pipeline: usize,
    /// Requests a second over all connections, if they are sent at their times and not when there is room.
    pub(crate) rate: Option<f64>,
    pub(crate) duration: Duration,
    /// Connections never read.
    pub(crate) never_read: bool,
}

/// Requests that were not answered as they should be, by kind, and connections that were not made.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Errors {
    /// Connections that could not be made.
    pub(crate) connect: u64,
    /// Connections that broke while an answer was waited for: resets.
    pub(crate) read: u64,
    /// Requests that could not be sent.
    pub(crate) write: u64,
    /// Requests that were not answered in time.
    pub(crate) timeout: u64,
    /// Answers with a status other than 2xx and 3xx.
    pub(crate) status: u64,
    /// Answers of another length than the first.
    pub(crate) length: u64,
    /// Connections on which something came that is no answer in HTTP/1.1.
    pub(crate) invalid: u64,
    /// Connections that were closed in good order although answers were owed.
    pub(crate) closed: u64,
}

impl Errors {
    /// All of them.
    pub(crate) fn total(&self) -> u64 {
        let Self { connect, read, write, timeout, status, length, invalid, closed } = self;
        connect + read + write + timeout + status + length + invalid + closed
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
    }
}

/// Connections that are only held.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Held {
    /// There at the end.
    pub(crate) held: u64,
    /// Closed by the server before.
    pub(crate) lost: u64,
}

/// CPU time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct CpuTime {
    pub(crate) user: Duration,
    pub(crate) system: Duration,
}

/// A piece of the time.
#[derive(Debug, Clone)]
pub(crate) struct Interval {
    /// When it ended, since the load began.
    pub(crate) until: Duration,
    pub(crate) requests: u64,
    /// Of the answers that came in it, in nanoseconds.
    pub(crate) latency: Histogram<u64>,
}

impl AddAssign for Held {
    fn add_assign(&mut self, other: Self) {
        self.held += other.held;
        self.lost += other.lost;
    }
}
