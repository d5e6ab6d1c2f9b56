//! The limits of connections, and the configuration that they share.

use std::sync::Arc;
use std::time::Duration;

use tidegate_http_stream::{StreamConfig, StreamLimits, Version};
use tidegate_http1 as http1;

use crate::frame::{FRAME_BYTES_MAX, WINDOW_BYTES_DEFAULT};
use crate::hpack::TABLE_BYTES_DEFAULT;

/// Limits on a side's peer. Every default protects; the text names the attack that a limit stops.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// Fields of a head or of trailers; beyond it 431. 100. All crumbs of a cookie are one field (RFC 9113 §8.2.3). It stops a block of one-byte
    /// references to a small field, which expands in memory (the HPACK bomb).
    pub headers_max: u32,
    /// Bytes of a head or of trailers, as RFC 9113 §6.5.2 counts them: names, values, and 32 for each field. Announced as
    /// SETTINGS_MAX_HEADER_LIST_SIZE; beyond it 431. 16 KiB, and at most 48 KiB. It stops large heads, also
    /// compressed ones.
    pub head_bytes_max: u32,
    /// Bytes of a field block as it was sent, in HEADERS and CONTINUATION frames together; beyond it the connection ends
    /// with ENHANCE_YOUR_CALM. 32 KiB. It stops CONTINUATION frames without end (CVE-2024-27316).
    pub field_block_bytes_max: u32,
    /// Bytes of the dynamic table for the peer's fields: SETTINGS_HEADER_TABLE_SIZE. 4 KiB. It bounds the memory of an
    /// idle connection.
    pub header_table_bytes_max: u32,
    /// Streams that the peer may have open at a time: SETTINGS_MAX_CONCURRENT_STREAMS; further ones are refused with
    /// REFUSED_STREAM. 128. It bounds the work that one connection can order.
    pub streams_max: u32,
    /// How much abuse a peer may cause; beyond it the connection ends with ENHANCE_YOUR_CALM. 1,000. One each for
    /// RST_STREAM, in either direction, of a stream that is younger than
    /// [`abuse_reset_age`](Self::abuse_reset_age), and for SETTINGS, PING, PRIORITY, CONTINUATION, an empty DATA
    /// frame, WINDOW_UPDATE of fewer than 16 bytes, an unknown frame, and a frame for a stream that is closed. A
    /// completed request takes [`abuse_credit_per_request`](Self::abuse_credit_per_request) away, and a second
    /// [`abuse_leak_per_second`](Self::abuse_leak_per_second). It stops floods of such frames (CVE-2019-9512, 9515, 9518),
    /// rapid resets (CVE-2023-44487) and streams that the peer makes us reset (CVE-2025-8671). If cancelled requests
    /// exceed it, other requests on the connection are completed before the connection ends.
    pub abuse_max: u32,
    /// Abuse that a completed request clears. 8.
    pub abuse_credit_per_request: u32,
    /// Abuse that a second clears. 33.
    pub abuse_leak_per_second: u32,
    /// From which age of a request on its cancellation by the peer is no abuse: those of closed tabs, and of deadlines.
    /// [`streams_max`](Self::streams_max) bounds how many of them a peer can order in a second. 100 milliseconds.
    /// `Duration::MAX` counts every cancellation.
    pub abuse_reset_age: Duration,
    /// The window of a stream when it opens, in bytes: SETTINGS_INITIAL_WINDOW_SIZE. 64 KiB, and at least 65,535, which
    /// every peer begins with. It bounds the unread bytes of a stream that nothing reads.
    pub stream_window_bytes: u32,
    /// How large the window of a stream becomes if its reader keeps up with the peer, in bytes. 16 MiB. The memory
    /// budget of the loop bounds the waiting bytes of all windows together.
    pub stream_window_bytes_max: u32,
    /// The window of the connection, in bytes. 1 MiB; it grows like those of streams, and when streams that nothing reads
    /// occupy half of it, so that they do not stop the others.
    pub connection_window_bytes: u32,
    /// Bytes of the body of a message; beyond it 413. 1 MiB.
    pub body_bytes_max: u64,
    /// How far a body may fall behind `body_rate_min`; beyond it 408. 30 seconds. It stops bodies that are sent slowly.
    pub body_timeout: Duration,
    /// The minimum rate of a body, in bytes per second. 240. It has none once the response has begun, since the peer
    /// may hold its body back until it sees the response.
    pub body_rate_min: u32,
    /// How long the peer may take for the preface and SETTINGS, for one frame, and from the first frame of a field block to
    /// its last. 30 seconds. DATA of an open stream has [`body_rate_min`](Self::body_rate_min) instead. It stops
    /// connections that begin and never go on, and heads that are sent slowly.
    pub head_timeout: Duration,
    /// How long the peer may take to acknowledge our SETTINGS once its own have come; beyond it the connection ends with
    /// SETTINGS_TIMEOUT (RFC 9113 §6.5.3). 30 seconds. It stops a peer that never accepts our limits, such as the size of
    /// the table for its fields.
    pub settings_timeout: Duration,
    /// After how long without a byte from the peer a connection with open streams sends a PING (RFC 9113 §6.7). `None`,
    /// so never, unless set. It finds peers that vanished without closing their connection, and keeps a silent connection
    /// in the tables of routers between the two. A connection without streams has [`idle_timeout`](Self::idle_timeout)
    /// instead.
    pub ping_interval: Option<Duration>,
    /// How long the peer may take to answer a PING of [`ping_interval`](Self::ping_interval), or to send anything else;
    /// beyond it the connection ends. 20 seconds. The time does not count while bytes wait in the queue of the
    /// connection: the PING is behind them, and the least rate of reading bounds them. For bytes in the kernel it
    /// counts, so give slow readers time for bytes on their way.
    pub ping_timeout: Duration,
    /// How long a connection may be without a stream; beyond it the connection ends with GOAWAY. 75 seconds.
    pub idle_timeout: Duration,
    /// How long a drain waits between the first GOAWAY, which warns the peer, and the second one, which names the last
    /// stream. An acknowledged PING ends the wait. 1 second.
    pub drain_grace: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        let http1 = http1::Limits::default();
        Self {
            headers_max: http1.headers_max,
            head_bytes_max: http1.head_bytes_max,
            field_block_bytes_max: 32 * 1024,
            header_table_bytes_max: TABLE_BYTES_DEFAULT,
            streams_max: 128,
            abuse_max: 1000,
            abuse_credit_per_request: 8,
            abuse_leak_per_second: 33,
            abuse_reset_age: Duration::from_millis(100),
            stream_window_bytes: 64 * 1024,
            stream_window_bytes_max: 16 * 1024 * 1024,
            connection_window_bytes: 1024 * 1024,
            body_bytes_max: http1.body_bytes_max,
            body_timeout: http1.body_timeout,
            body_rate_min: http1.body_rate_min,
            head_timeout: http1.head_timeout,
            settings_timeout: Duration::from_secs(30),
            ping_interval: None,
            ping_timeout: Duration::from_secs(20),
            idle_timeout: http1.idle_timeout,
            drain_grace: http1.drain_grace,
        }
    }
}

impl Limits {
    fn stream(&self) -> StreamLimits {
        StreamLimits {
            headers_max: self.headers_max,
            head_bytes_max: self.head_bytes_max,
            body_bytes_max: self.body_bytes_max,
            head_timeout: self.head_timeout,
            body_timeout: self.body_timeout,
            body_rate_min: self.body_rate_min,
        }
    }

    fn check(&self) {
        assert!(self.field_block_bytes_max >= FRAME_BYTES_MAX, "a field block may have one frame");
        assert!(self.header_table_bytes_max <= TABLE_BYTES_CEILING, "header_table_bytes_max is at most 64 KiB");
        assert!(self.stream_window_bytes >= WINDOW_BYTES_DEFAULT, "no peer knows of a smaller window when it begins");
        assert!(self.stream_window_bytes <= self.stream_window_bytes_max, "a window does not begin above its maximum");
        assert!(self.stream_window_bytes_max <= WINDOW_BYTES_CEILING, "a window is at most 1 GiB");
        assert!(self.ping_interval != Some(Duration::ZERO), "ping_interval is above zero");
        assert!((64 * 1024..=WINDOW_BYTES_CEILING).contains(&self.connection_window_bytes), "64 KiB up to 1 GiB");
    }
}

/// The configuration that all connections of one side share.
///
/// ```
/// use std::sync::Arc;
/// use tidegate::http2::{Config, Connection, Limits};
///
/// let config = Arc::new(Config::new(Limits { streams_max: 32, ..Limits::default() }).server_name("Harbour"));
/// let connection = Connection::server(config);
/// # drop(connection);
/// ```
#[derive(Debug, Clone)]
pub struct Config {
    limits: Limits,
    stream: Arc<StreamConfig>,
}

impl Config {
    /// A configuration with these limits and the server name `Tidegate`.
    ///
    /// # Panics
    /// If the limits contradict each other.
    #[must_use]
    pub fn new(limits: Limits) -> Self {
        limits.check();
        let stream = StreamConfig::new(limits.stream(), Version::Http2);
        Self { limits, stream: Arc::new(stream) }
    }

    fn map(self, to: impl FnOnce(StreamConfig) -> StreamConfig) -> Self {
        Self { stream: Arc::new(to(Arc::unwrap_or_clone(self.stream))), ..self }
    }

    /// Sets the value of the `Server` field; an empty name omits the field.
    ///
    /// # Panics
    /// If `name` cannot be the value of a field.
    #[must_use]
    pub fn server_name(self, name: &str) -> Self {
        self.map(|stream| stream.server_name(name))
    }

    /// Sets the value of an `Alt-Svc` field (RFC 7838), as [`http1::Config::alt_svc`] does.
    ///
    /// # Panics
    /// If `value` cannot be the value of a field.
    #[must_use]
    pub fn alt_svc(self, value: &str) -> Self {
        self.map(|stream| stream.alt_svc(value))
    }

    /// Leaves `100 Continue` to the application, as [`http1::Config::continue_by_hand`] does.
    #[must_use]
    pub fn continue_by_hand(self, by_hand: bool) -> Self {
        self.map(|stream| stream.continue_by_hand(by_hand))
    }

    /// Whether a server allows extended CONNECT (RFC 8441), which opens WebSockets: it announces
    /// SETTINGS_ENABLE_CONNECT_PROTOCOL. No, unless set: the application of a CONNECT may expect a host as its target.
    #[must_use]
    pub fn extended_connect(self, is_allowed: bool) -> Self {
        self.map(|stream| stream.extended_connect(is_allowed))
    }

    /// Refuses targets with bytes that no URI has, as [`http1::Config::strict_targets`] does.
    #[must_use]
    pub fn strict_targets(self, strict: bool) -> Self {
        self.map(|stream| stream.strict_targets(strict))
    }

    /// Counts the requests that the codec refuses with a status, as [`http1::Config::count_refusals`] does. A request that
    /// it refuses by RST_STREAM has none.
    #[must_use]
    pub fn count_refusals(self, refusals: &http1::Refusals) -> Self {
        self.map(|stream| stream.count_refusals(refusals))
    }

    /// The limits.
    #[must_use]
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// The configuration of the streams, for [`ServerStream`](crate::ServerStream).
    #[must_use]
    pub fn stream(&self) -> &Arc<StreamConfig> {
        &self.stream
    }

    /// The values of `Server` and `Alt-Svc`; an empty one is omitted.
    pub(crate) fn own_values(&self) -> [&str; 2] {
        [self.stream.name(), self.stream.alternatives()]
    }

    pub(crate) fn extends_connect(&self) -> bool {
        self.stream.extends_connect()
    }
}

impl Default for Config {
    fn default() -> Self {
        Self::new(Limits::default())
    }
}

const TABLE_BYTES_CEILING: u32 = 64 * 1024;

const WINDOW_BYTES_CEILING: u32 = 1 << 30;
