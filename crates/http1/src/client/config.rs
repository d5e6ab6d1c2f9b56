//! The limits of a client, and the configuration that its connections share.

use std::time::Duration;

use super::request::InvalidRequest;
use crate::limits::HEAD_BYTES_CEILING;
use crate::parse;

/// Limits on the messages that a client accepts. Every default protects.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of a head, status line and all line ends included. 32 KiB, and never 64 KiB or more.
    pub head_bytes_max: u32,
    /// Fields of a head. 100.
    pub headers_max: u32,
    /// Bytes of a body, chunk extensions included. The codec yields a body piece by piece and buffers none of it.
    /// 1 GiB.
    pub body_bytes_max: u64,
    /// Bytes of one chunk extension. 256.
    pub chunk_extension_bytes_max: u32,
    /// Bytes of all trailer fields. 4 KiB, and never 64 KiB or more.
    pub trailer_bytes_max: u32,
    /// Interim responses to one request. 16.
    pub interim_max: u8,
    /// How many requests may wait for their responses at a time, up to 32. 1: the next request waits for the previous
    /// response. More is pipelining, which is only for requests that may be sent twice (RFC 9112 §9.3.2).
    pub pipeline_max: u8,
    /// From the end of a request, or of the previous response, to the end of a response's head. 60 seconds. A request
    /// ends when its queue is empty: the codec does not see bytes that a filter below or the kernel still has to send.
    pub head_timeout: Duration,
    /// The longest gap between two pieces of a body; with a minimum rate, how far the body may fall behind it. 30
    /// seconds.
    pub body_timeout: Duration,
    /// The minimum rate of a body, in bytes per second; 0 means that any byte restarts the time-out. 0: a client
    /// chooses its servers, and event streams, watches and long polls send little for a long time.
    pub body_rate_min: u32,
    /// How long an idle connection stays open. 60 seconds: less than most servers wait, since a request fails if the
    /// server closes the connection at the same time.
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

/// The configuration that all connections of a client to one host share by `Arc`.
#[derive(Debug, Clone)]
pub struct Config {
    limits: Limits,
    /// The line of the `Host` field, or nothing.
    host: Box<[u8]>,
    trims_names: bool,
    first_receive_bytes_max: u32,
}

impl Config {
    /// A configuration with these limits and without a host: each request must name its host.
    ///
    /// # Panics
    /// If the limits contradict each other.
    #[must_use]
    pub fn new(limits: Limits) -> Self {
        limits.check();
        Self { limits, host: Box::default(), trims_names: false, first_receive_bytes_max: u32::MAX }
    }

    /// Sets the host of requests that name none, with its port unless that is the default one.
    ///
    /// # Errors
    /// If `host` is no valid host.
    pub fn host(self, host: &str) -> Result<Self, InvalidRequest> {
        Ok(Self { host: host_line(host)?.into(), ..self })
    }

    /// Removes white space between a field's name and its colon from response heads, as a proxy has to (RFC 9112 §5.1).
    /// Unless set, such a response is refused.
    #[must_use]
    pub fn trim_field_names(self, trims: bool) -> Self {
        Self { trims_names: trims, ..self }
    }

    /// Bounds how many bytes one receive brings while a response begins, which are its head and the first 64 KiB of its
    /// body: for an application that stops reading as soon as it has a piece that no peer takes. A connection that has
    /// served long responses receives 64 KiB at a time otherwise. Unset there is no bound.
    #[must_use]
    pub fn first_receive_bytes_max(self, bytes_max: u32) -> Self {
        Self { first_receive_bytes_max: bytes_max, ..self }
    }

    /// The limits.
    #[must_use]
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    pub(super) fn trims_field_names(&self) -> bool {
        self.trims_names
    }

    pub(super) fn first_receive_bytes(&self) -> Option<u32> {
        Some(self.first_receive_bytes_max).filter(|bytes_max| *bytes_max < u32::MAX)
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

/// The line of the `Host` field. The host may be empty where the target has no authority (RFC 9112 §3.2).
pub(super) fn host_line(host: &str) -> Result<Vec<u8>, InvalidRequest> {
    if parse::is_host(host.as_bytes()) {
        Ok([b"Host: ", host.as_bytes(), b"\r\n"].concat())
    } else {
        Err(InvalidRequest::Host)
    }
}

/// The kinds of the waiting requests are 2 bits each in a `u64`.
pub(super) const PIPELINE_CEILING: u8 = 32;
