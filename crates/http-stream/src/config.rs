//! The limits of streams, and the configuration that they share.

use std::sync::Arc;
use std::time::Duration;

use tidegate_http1 as http1;

/// StreamLimits on the messages of a stream's peer. Every default protects; the text names the attack that a limit stops.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StreamLimits {
    /// Fields of a head or of trailers; beyond it 431. 100. All crumbs of a cookie are one field (RFC 9113 §8.2.3). It
    /// stops a block of one-byte references to a small field, which expands in memory.
    pub headers_max: u32,
    /// Bytes of a head or of trailers, as RFC 9113 §6.5.2 and RFC 9114 §4.2.2 count them: names, values, and 32 for each
    /// field; beyond it 431. 16 KiB, and at most 48 KiB. It stops large heads, also compressed ones.
    pub head_bytes_max: u32,
    /// Bytes of the body of a message; beyond it 413. 1 MiB. It stops bodies without end.
    pub body_bytes_max: u64,
    /// From the beginning of a stream to the end of its head; beyond it 408. 30 seconds. It stops streams that are opened and
    /// left. An HTTP/2 stream begins with its head, so this is for HTTP/3.
    pub head_timeout: Duration,
    /// How far a body may fall behind `body_rate_min`; beyond it 408. 30 seconds. It stops bodies that are sent slowly.
    pub body_timeout: Duration,
    /// The minimum rate of a body, in bytes per second. 240. It stops bodies that are sent slowly.
    pub body_rate_min: u32,
}

impl Default for StreamLimits {
    fn default() -> Self {
        let http1 = http1::Limits::default();
        Self {
            headers_max: http1.headers_max,
            head_bytes_max: http1.head_bytes_max,
            body_bytes_max: http1.body_bytes_max,
            head_timeout: http1.head_timeout,
            body_timeout: http1.body_timeout,
            body_rate_min: http1.body_rate_min,
        }
    }
}

/// The version that a stream belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Version {
    /// HTTP/2: a flag of the last frame ends a message.
    #[default]
    Http2,
    /// HTTP/3: the end of the stream ends a message.
    Http3,
}

impl Version {
    /// The name of the protocol.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Http2 => "HTTP/2",
            Self::Http3 => "HTTP/3",
        }
    }
}

/// The configuration that all streams of a server's side share. An HTTP/2 or HTTP/3 connection's configuration creates
/// it.
#[derive(Debug, Clone)]
pub struct StreamConfig {
    limits: StreamLimits,
    version: Version,
    server_name: Box<str>,
    alt_svc: Box<str>,
    /// For heads, which the HTTP/1.1 parser checks once more.
    pub(crate) http1: Arc<http1::Config>,
    continue_by_hand: bool,
    extended_connect: bool,
    pub(crate) refusals: http1::Refusals,
}

impl StreamConfig {
    /// A configuration with these limits and the server name `Tidegate`.
    ///
    /// # Panics
    /// If `head_bytes_max` is above [`HEAD_BYTES_CEILING`].
    #[must_use]
    pub fn new(limits: StreamLimits, version: Version) -> Self {
        assert!(limits.head_bytes_max <= HEAD_BYTES_CEILING, "head_bytes_max is at most 48 KiB");
        let head_bytes_max = limits.head_bytes_max + HEAD_LINE_BYTES;
        let http1 = http1::Config::new(http1::Limits {
            // The fields for the host and for the protocol of an extended CONNECT, which are pseudo-fields here.
            headers_max: limits.headers_max.saturating_add(2),
            request_line_bytes_max: head_bytes_max - 1,
            head_bytes_max,
            body_bytes_max: limits.body_bytes_max,
            ..http1::Limits::default()
        });
        Self {
            limits,
            version,
            server_name: "Tidegate".into(),
            alt_svc: Box::default(),
            http1: Arc::new(http1),
            continue_by_hand: false,
            extended_connect: false,
            refusals: http1::Refusals::new(),
        }
    }

    /// Sets the value of the `Server` field; an empty name omits the field.
    ///
    /// # Panics
    /// If `name` cannot be the value of a field.
    #[must_use]
    pub fn server_name(self, name: &str) -> Self {
        drop(http1::Config::default().server_name(name));
        Self { server_name: name.into(), ..self }
    }

    /// Sets the value of an `Alt-Svc` field of HTTP/2 responses, as [`http1::Config::alt_svc`] does.
    ///
    /// # Panics
    /// If `value` cannot be the value of a field.
    #[must_use]
    pub fn alt_svc(self, value: &str) -> Self {
        drop(http1::Config::default().alt_svc(value));
        Self { alt_svc: value.into(), ..self }
    }

    /// Leaves `100 Continue` to the application, as [`http1::Config::continue_by_hand`] does.
    #[must_use]
    pub fn continue_by_hand(self, by_hand: bool) -> Self {
        Self { continue_by_hand: by_hand, ..self }
    }

    /// Whether a server allows extended CONNECT (RFC 8441, RFC 9220). No, unless set.
    #[must_use]
    pub fn extended_connect(self, is_allowed: bool) -> Self {
        Self { extended_connect: is_allowed, ..self }
    }

    /// Refuses targets with bytes that no URI has, as [`http1::Config::strict_targets`] does.
    #[must_use]
    pub fn strict_targets(self, strict: bool) -> Self {
        let http1 = (*self.http1).clone().strict_targets(strict);
        Self { http1: Arc::new(http1), ..self }
    }

    /// Counts the requests that the codec refuses with a status, as [`http1::Config::count_refusals`] does.
    #[must_use]
    pub fn count_refusals(self, refusals: &http1::Refusals) -> Self {
        Self { refusals: refusals.clone(), ..self }
    }

    /// The limits.
    #[must_use]
    pub fn limits(&self) -> &StreamLimits {
        &self.limits
    }

    /// The version of the connection.
    #[must_use]
    pub fn version(&self) -> Version {
        self.version
    }

    /// The value of the `Server` field.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.server_name
    }

    /// The value of the `Alt-Svc` field; empty if there is none.
    #[must_use]
    pub fn alternatives(&self) -> &str {
        &self.alt_svc
    }

    /// Whether extended CONNECT is allowed.
    #[must_use]
    pub fn extends_connect(&self) -> bool {
        self.extended_connect
    }

    /// The counts of refused requests.
    #[must_use]
    pub fn refusals(&self) -> &http1::Refusals {
        &self.refusals
    }

    pub(crate) fn continues_by_hand(&self) -> bool {
        self.continue_by_hand
    }
}

impl Default for StreamConfig {
    fn default() -> Self {
        Self::new(StreamLimits::default(), Version::default())
    }
}

/// The most that [`StreamLimits::head_bytes_max`] may be: positions within a head have 16 bits, and the text of one is a little
/// longer than its list.
pub const HEAD_BYTES_CEILING: u32 = 48 * 1024;

/// The bytes of a head's text beside its field list: the version and line ends.
const HEAD_LINE_BYTES: u32 = 256;
