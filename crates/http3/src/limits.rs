//! The limits of connections, and the configuration that they share.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::sync::Arc;
use std::time::Duration;

use tidegate_http_stream::{HEAD_BYTES_CEILING, StreamConfig, StreamLimits, Version};
use tidegate_http1 as http1;

use crate::webtransport::WebTransportLimits;

/// Limits on a side's peer. Every default protects; the text names the attack that a limit stops.
///
/// Windows, the number of request streams and the time-outs of the connection are limits of the QUIC connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// Fields of a head or of trailers; beyond it 431. 100. All crumbs of a cookie are one field (RFC 9114 §4.2.1). It
    /// stops a section of one-byte references, which expands in memory.
    pub headers_max: u32,
    /// Bytes of a head or of trailers, as RFC 9114 §4.2.2 counts them: names, values, and 32 for each field. Announced as
    /// SETTINGS_MAX_FIELD_SECTION_SIZE; beyond it 431. 16 KiB, and at most 48 KiB. It stops large heads, also
    /// compressed ones.
    pub head_bytes_max: u32,
    /// Bytes of a field section as it was sent; beyond it 431. 32 KiB. It stops HEADERS frames without end, of which
    /// nothing is kept.
    pub field_section_bytes_max: u32,
    /// Bytes of the body of a message; beyond it 413. 1 MiB. It stops bodies without end.
    pub body_bytes_max: u64,
    /// From the beginning of a request stream to the end of its head; beyond it 408. 30 seconds. It stops streams that are
    /// opened and left, and heads that are sent slowly.
    pub head_timeout: Duration,
    /// How far a body may fall behind `body_rate_min`; beyond it 408. 30 seconds. It stops bodies that are sent slowly.
    pub body_timeout: Duration,
    /// The minimum rate of a body, in bytes per second. 240. It stops bodies that are sent slowly.
    pub body_rate_min: u32,
    /// How long a server keeps a connection without a request; then it sends GOAWAY, and closes with H3_NO_ERROR. 75 seconds.
    /// It stops peers that only occupy a connection, although they send packets. The idle timeout of QUIC is about packets.
    pub idle_timeout: Duration,
    /// How long a server keeps a connection, a tenth more or less; then it sends GOAWAY, and closes with H3_NO_ERROR once the
    /// requests in progress have ended, after [`age_grace`](Self::age_grace) at the latest. No limit. It lets clients of long
    /// connections find new servers.
    pub age_max: Option<Duration>,
    /// How long the requests of a connection that is too old may take to end. 30 seconds.
    pub age_grace: Duration,
    /// Bytes of a stream that are discarded: those of reserved and unknown frames, with their heads, and the heads of
    /// empty DATA frames. 16 KiB on each request stream, and on the control stream between two requests; beyond it the
    /// connection ends with H3_EXCESSIVE_LOAD. It stops streams that never bring a request forward.
    pub reserved_bytes_max: u32,
    /// Settings of the peer; beyond it the connection ends with H3_EXCESSIVE_LOAD. 64. It stops a SETTINGS frame without
    /// end.
    pub settings_max: u32,
    /// Bytes of a frame of the control stream that is not discarded; beyond it the connection ends with
    /// H3_EXCESSIVE_LOAD. 2 KiB. It bounds the memory for frames in pieces.
    pub control_frame_bytes_max: u32,
    /// Unidirectional streams of the peer at a time; beyond it the connection ends with H3_EXCESSIVE_LOAD. 16. It bounds
    /// the memory for streams whose type is not known; QUIC should have the same limit.
    pub uni_streams_max: u32,
    /// Bytes of a unidirectional stream of an unknown type that are discarded before the stream is stopped with
    /// H3_STREAM_CREATION_ERROR. 1 KiB. It stops unknown streams without end.
    pub unknown_stream_bytes_max: u32,
    /// PRIORITY_UPDATE frames that wait for their requests; further ones replace the oldest (RFC 9218 §7.2). 16. It
    /// bounds the memory for priorities of requests that never come.
    pub waiting_priorities_max: u32,
    /// How much abuse a peer may cause; beyond it the connection ends with H3_EXCESSIVE_LOAD. 1,000. One each for a frame
    /// on the control stream, an instruction on a QPACK stream, an unknown stream, a request whose stream is reset
    /// early, and a request that this side is made to refuse or to reset. A completed request takes
    /// [`abuse_credit_per_request`](Self::abuse_credit_per_request) away, and a second
    /// [`abuse_leak_per_second`](Self::abuse_leak_per_second). It stops floods of such frames and rapid resets
    /// (CVE-2023-44487, CVE-2025-8671).
    pub abuse_max: u32,
    /// Abuse that a completed request clears. 8.
    pub abuse_credit_per_request: u32,
    /// Abuse that a second clears. 33.
    pub abuse_leak_per_second: u32,
    /// From which age of a request on its reset by the peer is no abuse: those of closed tabs, and of deadlines. The
    /// stream limit of QUIC bounds how many of them a peer can order in a second. 100 milliseconds. `Duration::MAX` counts
    /// every reset.
    pub abuse_reset_age: Duration,
    /// Bytes of the dynamic QPACK table that a peer may fill: SETTINGS_QPACK_MAX_TABLE_CAPACITY. 0, so there is none, and
    /// at most 1 MiB. With a table each connection of a peer that uses it costs up to as much memory. Beyond the table the
    /// connection ends with QPACK_ENCODER_STREAM_ERROR. A peer that leaves 16 KiB of acknowledgments unread ends it as well.
    pub qpack_table_bytes_max: u32,
    /// Request streams that may wait for entries of that table: SETTINGS_QPACK_BLOCKED_STREAMS. 0. Beyond it the connection
    /// ends with QPACK_DECOMPRESSION_FAILED. It stops streams that wait for entries that never come; each of them also has
    /// the [`head_timeout`](Self::head_timeout).
    pub qpack_blocked_streams_max: u32,
    /// Bytes of the field sections of a connection that wait for entries of that table, or for their rest. 64 KiB. Beyond it
    /// streams are not read, so that further bytes use up the windows of QUIC. It has no effect without a table.
    pub qpack_waiting_bytes_max: u32,
    /// Bytes of the dynamic QPACK table that this side fills, if the peer permits one. 0, so there is none, and at most
    /// 1 MiB. It bounds the memory that a peer makes this side keep by its settings. Lengths show repeated fields, so a
    /// connection that carries heads of several users leaves it at 0 (RFC 9204 §7.1.3).
    pub qpack_encoder_bytes_max: u32,
}

impl Default for Limits {
    fn default() -> Self {
        let stream = StreamLimits::default();
        Self {
            headers_max: stream.headers_max,
            head_bytes_max: stream.head_bytes_max,
            field_section_bytes_max: 32 * 1024,
            body_bytes_max: stream.body_bytes_max,
            head_timeout: stream.head_timeout,
            body_timeout: stream.body_timeout,
            body_rate_min: stream.body_rate_min,
            idle_timeout: http1::Limits::default().idle_timeout,
            age_max: None,
            age_grace: Duration::from_secs(30),
            reserved_bytes_max: 16 * 1024,
            settings_max: 64,
            control_frame_bytes_max: 2 * 1024,
            uni_streams_max: 16,
            unknown_stream_bytes_max: 1024,
            waiting_priorities_max: 16,
            abuse_max: 1000,
            abuse_credit_per_request: 8,
            abuse_leak_per_second: 33,
            abuse_reset_age: Duration::from_millis(100),
            qpack_table_bytes_max: 0,
            qpack_blocked_streams_max: 0,
            qpack_waiting_bytes_max: 64 * 1024,
            qpack_encoder_bytes_max: 0,
        }
    }
}

impl Limits {
    fn check(&self) {
        assert!(self.head_bytes_max <= HEAD_BYTES_CEILING, "head_bytes_max is at most 48 KiB");
        assert!(self.field_section_bytes_max <= SECTION_BYTES_CEILING, "field_section_bytes_max is at most 1 MiB");
        assert!(self.control_frame_bytes_max <= SECTION_BYTES_CEILING, "control_frame_bytes_max is at most 1 MiB");
        assert!(self.uni_streams_max >= UNI_STREAMS_MIN, "a peer has three streams of its own");
        assert!(self.qpack_table_bytes_max <= SECTION_BYTES_CEILING, "qpack_table_bytes_max is at most 1 MiB");
        assert!(self.qpack_encoder_bytes_max <= SECTION_BYTES_CEILING, "qpack_encoder_bytes_max is at most 1 MiB");
    }

    /// Whether one of the two dynamic QPACK tables is permitted.
    pub(crate) fn has_tables(&self) -> bool {
        self.qpack_table_bytes_max > 0 || self.qpack_encoder_bytes_max > 0
    }

    /// Bytes of a field section in a HEADERS frame that [`RequestStream`](crate::RequestStream) gets. One that had references to
    /// a dynamic table has grown.
    pub(crate) fn rewritten_section_bytes_max(&self) -> u32 {
        let expansion = if self.qpack_table_bytes_max > 0 { self.head_bytes_max } else { 0 };
        self.field_section_bytes_max + expansion
    }

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
}

/// The bounds of HTTP datagrams that were received and not read. Each has a default that protects. Their bytes count in the memory
/// of the loop (`memory_max`) as well: when that is used up, the connections with the most of them lose all that wait.
///
/// ```
/// use tidegate::http3::HttpDatagramLimits;
///
/// let limits = HttpDatagramLimits { connection_bytes_max: 64 * 1024, ..HttpDatagramLimits::default() };
/// assert_eq!(limits.request_bytes_max, 64 * 1024);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HttpDatagramLimits {
    /// Bytes of the datagrams of a request, 32 more for each; above that the oldest is dropped. 64 KiB. It bounds the memory
    /// for datagrams that the application does not read.
    pub request_bytes_max: u32,
    /// Bytes of the datagrams that came before a task reads those of their request, of all requests of a connection, 48 more for
    /// each; above that the oldest is dropped. 16 KiB. It bounds the memory for datagrams of requests that want none.
    pub early_bytes_max: u32,
    /// Bytes of both, of all requests of a connection. A request of a connection above that loses its oldest datagram for a new
    /// one; one without any loses the new one. 256 KiB. It bounds the memory that a peer with many requests makes this side keep.
    pub connection_bytes_max: u32,
}

impl Default for HttpDatagramLimits {
    fn default() -> Self {
        Self { request_bytes_max: 64 * 1024, early_bytes_max: 16 * 1024, connection_bytes_max: 256 * 1024 }
    }
}

/// The configuration that all connections of one side share.
///
/// ```
/// use std::sync::Arc;
/// use tidegate::http3::{Config, Connection, Limits};
///
/// let config = Arc::new(Config::new(Limits { headers_max: 64, ..Limits::default() }).server_name("Harbour"));
/// let connection = Connection::server(config);
/// # drop(connection);
/// ```
#[derive(Debug, Clone)]
pub struct Config {
    limits: Limits,
    stream: Arc<StreamConfig>,
    grease: Option<u64>,
    datagrams: bool,
    datagram_limits: HttpDatagramLimits,
    webtransport: Option<WebTransportLimits>,
}

impl Config {
    /// A configuration with these limits and the server name `Tidegate`.
    ///
    /// # Panics
    /// If the limits contradict each other.
    #[must_use]
    pub fn new(limits: Limits) -> Self {
        limits.check();
        let stream = Arc::new(StreamConfig::new(limits.stream(), Version::Http3));
        let grease = Some(RandomState::new().hash_one(0));
        let (datagrams, datagram_limits, webtransport) = (false, HttpDatagramLimits::default(), None);
        Self { limits, stream, grease, datagrams, datagram_limits, webtransport }
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

    /// Leaves `100 Continue` to the application, as [`http1::Config::continue_by_hand`] does.
    #[must_use]
    pub fn continue_by_hand(self, by_hand: bool) -> Self {
        self.map(|stream| stream.continue_by_hand(by_hand))
    }

    /// Whether a server allows extended CONNECT (RFC 9220), which opens WebSockets: it announces
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

    /// Counts the requests that the codec refuses with a status, as [`http1::Config::count_refusals`] does. A request
    /// whose stream is reset has none.
    #[must_use]
    pub fn count_refusals(self, refusals: &http1::Refusals) -> Self {
        self.map(|stream| stream.count_refusals(refusals))
    }

    /// Whether HTTP datagrams (RFC 9297) are accepted: SETTINGS_H3_DATAGRAM. No, unless set; QUIC has to accept DATAGRAM
    /// frames as well.
    #[must_use]
    pub fn datagrams(self, are_accepted: bool) -> Self {
        Self { datagrams: are_accepted, ..self }
    }

    /// Bounds the datagrams of requests, and accepts them as [`datagrams`](Self::datagrams) does.
    #[must_use]
    pub fn datagram_limits(self, limits: HttpDatagramLimits) -> Self {
        Self { datagram_limits: limits, ..self.datagrams(true) }
    }

    /// Permits sessions of WebTransport within these limits, on extended CONNECT and with HTTP datagrams, which it permits as
    /// well: SETTINGS announce all of that with the numbers that browsers need. QUIC has to accept DATAGRAM frames and so many
    /// more unidirectional streams.
    #[must_use]
    pub fn webtransport(self, limits: WebTransportLimits) -> Self {
        Self { webtransport: Some(limits), ..self.datagrams(true).extended_connect(true) }
    }

    /// The seed of the reserved setting and the reserved frame that each connection sends, so that peers keep ignoring
    /// unknown ones (RFC 9114 §7.2.8). It is random unless set; `None` sends none.
    #[must_use]
    pub fn grease(self, seed: Option<u64>) -> Self {
        Self { grease: seed, ..self }
    }

    /// The limits.
    #[must_use]
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// The configuration of the streams.
    #[must_use]
    pub fn stream(&self) -> &Arc<StreamConfig> {
        &self.stream
    }

    pub(crate) fn grease_seed(&self) -> Option<u64> {
        self.grease
    }

    pub(crate) fn webtransport_limits(&self) -> Option<&WebTransportLimits> {
        self.webtransport.as_ref()
    }

    pub(crate) fn accepts_datagrams(&self) -> bool {
        self.datagrams
    }

    pub(crate) fn limits_of_datagrams(&self) -> HttpDatagramLimits {
        self.datagram_limits
    }
}

impl Default for Config {
    fn default() -> Self {
        Self::new(Limits::default())
    }
}

const SECTION_BYTES_CEILING: u32 = 1024 * 1024;

/// The unidirectional streams that QUIC has to permit a peer at least (RFC 9114 §6.2): its control stream and its two QPACK
/// streams.
pub const UNI_STREAMS_MIN: u32 = 3;
