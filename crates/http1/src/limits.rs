//! The limits of a server, and the configuration that its connections share.

use std::time::Duration;

use crate::fields::is_value;
use crate::refusals::Refusals;
use crate::status::Status;

/// Limits on the messages that a server accepts. Every default protects.
///
/// The memory of a connection has a bound: the codec buffers at most `head_bytes_max` bytes of an incomplete head. It
/// yields a body piece by piece as it arrives, so `body_bytes_max` bounds the body that an application receives, not
/// the codec's buffer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of a request line without its line end; beyond it 414, or 501 if its method has more than 32 bytes. 8 KiB.
    pub request_line_bytes_max: u32,
    /// Bytes of a head, request line and all line ends included; beyond it 431. 16 KiB, and never 64 KiB or more.
    pub head_bytes_max: u32,
    /// Fields of a head; beyond it 431. 100.
    pub headers_max: u32,
    /// Bytes of a body, chunk extensions included; beyond it 413. 1 MiB.
    pub body_bytes_max: u64,
    /// Bytes of one chunk extension. 256.
    pub chunk_extension_bytes_max: u32,
    /// Bytes of all trailer fields; beyond it 431. 4 KiB, and never 64 KiB or more.
    pub trailer_bytes_max: u32,
    /// Bytes of an unread body that the codec skips to reach the next request; beyond it the connection closes. 64 KiB.
    pub skip_bytes_max: u64,
    /// From the first byte of a head to its last; beyond it 408. 30 seconds.
    pub head_timeout: Duration,
    /// How far a body may fall behind `body_rate_min`; beyond it 408. It also bounds the gap between two pieces.
    /// Lateness adds up: a peer that sends nothing times out after this long, a peer at half the rate after twice as
    /// long, and a peer just below the rate much later. 30 seconds.
    pub body_timeout: Duration,
    /// The minimum rate of a body, in bytes per second; 0 means that any byte restarts the time-out. Each piece reduces
    /// lateness by its size over this rate, and earns no credit for later. 240.
    pub body_rate_min: u32,
    /// From a response to the first byte of the next request; beyond it the connection closes without a response. Also
    /// from a response that grants another protocol until the application installs that protocol. 75 seconds.
    pub idle_timeout: Duration,
    /// How long an idle connection waits for one more request when the server drains: a request that is in flight
    /// already gets a response, and that response is the last. The time counts from the start of the drain, or from a
    /// response that was sent too early to announce the close. `idle_timeout` applies as well. 1 second, which is
    /// several round trips around the world.
    pub drain_grace: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            request_line_bytes_max: 8 * 1024,
            head_bytes_max: 16 * 1024,
            headers_max: 100,
            body_bytes_max: 1024 * 1024,
            chunk_extension_bytes_max: 256,
            trailer_bytes_max: 4 * 1024,
            skip_bytes_max: 64 * 1024,
            head_timeout: Duration::from_secs(30),
            body_timeout: Duration::from_secs(30),
            body_rate_min: 240,
            idle_timeout: Duration::from_secs(75),
            drain_grace: Duration::from_secs(1),
        }
    }
}

impl Limits {
    fn check(&self) {
        assert!(self.head_bytes_max <= HEAD_BYTES_CEILING, "head_bytes_max stays below 64 KiB");
        assert!(self.request_line_bytes_max < self.head_bytes_max, "a request line has to fit into its head");
        assert!(self.request_line_bytes_max >= REQUEST_LINE_FLOOR, "the shortest request line has to be allowed");
        assert!(self.chunk_extension_bytes_max <= self.head_bytes_max, "a chunk extension is shorter than a head");
        assert!(self.trailer_bytes_max <= HEAD_BYTES_CEILING, "trailer_bytes_max stays below 64 KiB");
    }
}

/// The configuration that all connections of a server share by `Arc`: limits, the server's name, and choices that
/// the RFCs leave to the server.
///
/// ```
/// use std::sync::Arc;
/// use tidegate::http1::{Config, Limits, Server};
///
/// let limits = Limits { body_bytes_max: 16 * 1024 * 1024, ..Limits::default() };
/// let config = Arc::new(Config::new(limits).server_name("Harbour"));
/// let connection = Server::new(Arc::clone(&config));
/// # drop(connection);
/// ```
#[derive(Debug, Clone)]
pub struct Config {
    limits: Limits,
    /// The bytes after a status line, up to the date.
    after_status: Box<[u8]>,
    /// The status line of a 200, the most common one, and the same bytes after it.
    ok_start: Box<[u8]>,
    /// The same for a connection that stays open, with the lines of `keep_alive` before them.
    kept_ok_start: Box<[u8]>,
    /// Names the idle timeout: lines that each begin with the end of the line before; empty if it is not named.
    keep_alive: Box<[u8]>,
    server_name: Box<str>,
    /// The line of `Alt-Svc`, with the end of the line before it; empty if there is none.
    alt_svc: Box<[u8]>,
    continue_by_hand: bool,
    length_required: bool,
    detects_http2: bool,
    strict_targets: bool,
    refusals: Refusals,
}

impl Config {
    /// A configuration with these limits and the server name `Tidegate`.
    ///
    /// # Panics
    /// If the limits contradict each other.
    #[must_use]
    pub fn new(limits: Limits) -> Self {
        limits.check();
        let is_set = limits.idle_timeout != Limits::default().idle_timeout;
        let nameless = Self {
            limits,
            after_status: Box::default(),
            ok_start: Box::default(),
            kept_ok_start: Box::default(),
            keep_alive: Box::default(),
            server_name: Box::default(),
            alt_svc: Box::default(),
            continue_by_hand: false,
            length_required: false,
            detects_http2: false,
            strict_targets: false,
            refusals: Refusals::new(),
        };
        nameless.server_name("Tidegate").keep_alive_hint(is_set)
    }

    /// Sets the value of the `Server` field; an empty name omits the field.
    ///
    /// # Panics
    /// If `name` cannot be the value of a field.
    #[must_use]
    pub fn server_name(self, name: &str) -> Self {
        assert!(is_value(name.as_bytes()), "a server's name is the value of a field");
        Self { server_name: name.into(), ..self }.with_starts()
    }

    /// Sets the value of an `Alt-Svc` field (RFC 7838), which names other protocols at which the server answers as well; an
    /// empty one omits the field, as it is by default.
    ///
    /// # Panics
    /// If `value` cannot be the value of a field.
    #[must_use]
    pub fn alt_svc(self, value: &str) -> Self {
        assert!(is_value(value.as_bytes()), "alternative services are the value of a field");
        let line = if value.is_empty() { String::new() } else { format!("\r\nAlt-Svc: {value}") };
        Self { alt_svc: line.into_bytes().into(), ..self }.with_starts()
    }

    /// Whether responses name the idle timeout, as `Keep-Alive: timeout=N` and `Connection: keep-alive`, where N is a second
    /// below [`idle_timeout`](Limits::idle_timeout) and at least 1. Clients that read it, such as those of Node.js, send no
    /// request at the moment at which the server closes the connection, which would lose the request. Yes, unless set, if
    /// `idle_timeout` is not the default one; a response then has about 50 bytes more. Few clients send a request after exactly
    /// the 75 s of the default, so its responses stay short, as those of nginx do; Node.js and Apache, which close after 5 s,
    /// always name that. A server whose clients keep connections for minutes sets it. A timeout of less than a second has no
    /// name.
    #[must_use]
    pub fn keep_alive_hint(self, is_sent: bool) -> Self {
        let seconds = self.limits.idle_timeout.as_secs();
        let keep_alive = match is_sent && seconds > 0 {
            true => format!("\r\nKeep-Alive: timeout={}\r\nConnection: keep-alive", (seconds - 1).max(1)),
            false => String::new(),
        };
        Self { keep_alive: keep_alive.into_bytes().into(), ..self }.with_starts()
    }

    fn with_starts(self) -> Self {
        let name = &self.server_name;
        let server = if name.is_empty() { String::new() } else { format!("Server: {name}\r\n") };
        let mut after_status = server.into_bytes();
        if let Some(line) = self.alt_svc.strip_prefix(b"\r\n") {
            after_status.extend_from_slice(line);
            after_status.extend_from_slice(b"\r\n");
        }
        after_status.extend_from_slice(b"Date: ");
        let status = Status::OK.line().expect("200 has a reason").as_bytes();
        let ok_start = [status, &after_status].concat();
        let kept_ok_start = match status.strip_suffix(b"\r\n") {
            Some(line) if !self.keep_alive.is_empty() => [line, &self.keep_alive, b"\r\n", &after_status].concat(),
            _ => ok_start.clone(),
        };
        let [after_status, ok_start, kept_ok_start] = [after_status, ok_start, kept_ok_start].map(Into::into);
        Self { after_status, ok_start, kept_ok_start, ..self }
    }

    /// Leaves `100 Continue` to the application, which sends [`Outgoing::Continue`](crate::Outgoing::Continue). Unless
    /// this is set the codec sends it at once. The application must decide within
    /// [`body_timeout`](Limits::body_timeout), or the peer receives 408.
    #[must_use]
    pub fn continue_by_hand(self, by_hand: bool) -> Self {
        Self { continue_by_hand: by_hand, ..self }
    }

    /// Refuses POST, PUT and PATCH without a body length with 411. By default such a request has no body (RFC 9112
    /// §6.3).
    #[must_use]
    pub fn length_required(self, required: bool) -> Self {
        Self { length_required: required, ..self }
    }

    /// Reports a connection that begins with the HTTP/2 preface (RFC 9113 §3.4), by
    /// [`Incoming::Preface`](crate::Incoming::Preface), so that the application can go on with the codec of that
    /// version. By default such a connection is refused, as one of a version that is not known.
    #[must_use]
    pub fn detect_http2(self, detects: bool) -> Self {
        Self { detects_http2: detects, ..self }
    }

    /// Refuses targets with bytes that no URI has (RFC 3986 §2), such as `|`, `^` and raw UTF-8, or with a `%` without two
    /// hexadecimal digits after it, with 400. By default a target has any byte but control characters, the space, and `#`,
    /// since browsers and other user agents send such targets; the codec passes them on as they came.
    #[must_use]
    pub fn strict_targets(self, strict: bool) -> Self {
        Self { strict_targets: strict, ..self }
    }

    /// Counts the requests that the codec refuses, and the status that the peer receives. An application does not see
    /// them: its handler gets no message.
    #[must_use]
    pub fn count_refusals(self, refusals: &Refusals) -> Self {
        Self { refusals: refusals.clone(), ..self }
    }

    /// The limits.
    #[must_use]
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// The line of `Alt-Svc`, with the end of the line before it.
    pub(crate) fn alternatives(&self) -> &[u8] {
        &self.alt_svc
    }

    pub(crate) fn after_status(&self) -> &[u8] {
        &self.after_status
    }

    pub(crate) fn ok_start(&self) -> &[u8] {
        &self.ok_start
    }

    pub(crate) fn kept_ok_start(&self) -> &[u8] {
        &self.kept_ok_start
    }

    /// Lines for a connection that stays open, each after the end of the line before.
    pub(crate) fn keep_alive(&self) -> &[u8] {
        &self.keep_alive
    }

    pub(crate) fn refusals(&self) -> &Refusals {
        &self.refusals
    }

    pub(crate) fn continues_by_hand(&self) -> bool {
        self.continue_by_hand
    }

    pub(crate) fn detects_http2(&self) -> bool {
        self.detects_http2
    }

    pub(crate) fn has_strict_targets(&self) -> bool {
        self.strict_targets
    }

    pub(crate) fn requires_length(&self) -> bool {
        self.length_required
    }
}

impl Default for Config {
    fn default() -> Self {
        Self::new(Limits::default())
    }
}

/// Spans within a head have 16 bits.
pub(crate) const HEAD_BYTES_CEILING: u32 = u16::MAX as u32;

/// `GET / HTTP/1.1`.
const REQUEST_LINE_FLOOR: u32 = 14;
