//! What a client accepts, and what all its connections share.

use std::time::Duration;

use super::request::InvalidRequest;
use crate::limits::HEAD_BYTES_CEILING;
use crate::parse;

/// What a client accepts from a peer. Every default protects.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of a head, status line and all line ends included. 32 KiB, and never 64 KiB or more.
    pub head_bytes_max: u32,
    /// Fields of a head. 100.
    pub headers_max: u32,
    /// Bytes of a body; what chunk extensions take counts. The codec yields a body piece by piece and holds none of it.
    /// 1 GiB.
    pub body_bytes_max: u64,
    /// Bytes of one chunk extension. 256.
    pub chunk_extension_bytes_max: u32,
    /// Bytes of all trailer fields. 4 KiB, and never 64 KiB or more.
    pub trailer_bytes_max: u32,
    /// Interim responses to one request. 16.
    pub interim_max: u8,
    /// Requests that wait for their responses at a time, up to 32. 1: the next request waits for the response before. More
    /// is pipelining, which is for requests that may be sent twice (RFC 9112 §9.3.2).
    pub pipeline_max: u8,
    /// From the end of a request, or the response before, to the end of a response's head. 60 seconds. A request has ended
    /// when none of it waits in the queue that it was written to: what a filter below or the kernel still has to send is
    /// not seen from here.
    pub head_timeout: Duration,
    /// How long a body may make us wait from one piece to the next; with a least rate, how far it may fall behind that. 30
    /// seconds.
    pub body_timeout: Duration,
    /// The least rate at which a body has to come, in bytes per second; 0 if any byte is as good as many. 0: a client chooses
    /// whom it asks, and streams of events, watches and long polls say little for long.
    pub body_rate_min: u32,
    /// How long a connection stays that has nothing to do. 60 seconds: less than most servers wait, since a request that
    /// meets the end of its connection fails.
    pub idle_timeout: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            head_bytes_max: 32 * 1024,
            headers_max: 100,
            body_bytes_max: 1 << 30,
            chunk_extension_bytes_max: 256,
            trailer_bytes_max: 4 * 1024,
            interim_max: 16,
            pipeline_max: 1,
            head_timeout: Duration::from_secs(60),
            body_timeout: Duration::from_secs(30),
            body_rate_min: 0,
            idle_timeout: Duration::from_secs(60),
        }
    }
}

impl Limits {
    fn check(&self) {
        assert!(self.head_bytes_max <= HEAD_BYTES_CEILING, "head_bytes_max stays below 64 KiB");
        assert!(self.trailer_bytes_max <= HEAD_BYTES_CEILING, "trailer_bytes_max stays below 64 KiB");
        assert!(self.chunk_extension_bytes_max <= self.head_bytes_max, "a chunk extension is shorter than a head");
        assert!((1..=PIPELINE_CEILING).contains(&self.pipeline_max), "pipeline_max is 1 to 32");
    }
}

/// What all connections of a client to one host share. Connections hold it by `Arc`.
#[derive(Debug, Clone)]
pub struct Config {
    limits: Limits,
    /// `Host: ` and its line end, or nothing.
    host: Box<[u8]>,
}

impl Config {
    /// These limits, and no host: each request has to say which it asks.
    ///
    /// # Panics
    /// If the limits contradict each other.
    #[must_use]
    pub fn new(limits: Limits) -> Self {
        limits.check();
        Self { limits, host: Box::default() }
    }

    /// The host that requests ask unless they say otherwise, with its port unless that is the usual one.
    ///
    /// # Errors
    /// If it is no host.
    pub fn host(self, host: &str) -> Result<Self, InvalidRequest> {
        Ok(Self { host: host_line(host)?.into(), ..self })
    }

    /// The limits.
    #[must_use]
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    pub(super) fn host_line(&self) -> &[u8] {
        &self.host
    }
}

impl Default for Config {
    fn default() -> Self {
        Self::new(Limits::default())
    }
}

/// The field that names a host, which may be empty where the target has no authority (RFC 9112 §3.2).
pub(super) fn host_line(host: &str) -> Result<Vec<u8>, InvalidRequest> {
    if parse::is_host(host.as_bytes()) { Ok(format!("Host: {host}\r\n").into()) } else { Err(InvalidRequest::Host) }
}

/// Who waits for which response is noted in two bits each.
pub(super) const PIPELINE_CEILING: u8 = 32;
