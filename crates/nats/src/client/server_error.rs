//! `ServerError`: an error that a server has sent (`-ERR`), and its meaning.

use std::fmt;

use bytes::Bytes;

/// An error that a server has sent.
#[derive(Clone, PartialEq, Eq)]
pub struct ServerError {
    text: Bytes,
}

/// The meaning of a [`ServerError`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ServerErrorKind {
    /// The client may not publish to a subject, or not subscribe to it. The connection stays.
    Permissions,
    /// A subject is malformed. The connection stays.
    InvalidSubject,
    /// The client has too many subscriptions. The connection stays.
    TooManySubscriptions,
    /// The client has read too slowly; the server closes the connection.
    SlowConsumer,
    /// The client has not answered PING; the server closes the connection.
    StaleConnection,
    /// User, password, token, key or certificate are wrong, expired, or were revoked; the server closes the connection.
    Authorization,
    /// The server demands TLS; it closes the connection.
    TlsRequired,
    /// The server has too many connections; it closes this one.
    TooManyConnections,
    /// The message was longer than the server accepts; it closes the connection.
    PayloadTooLong,
    /// The server has understood an operation otherwise than the client; it closes the connection.
    Protocol,
    /// Any other error.
    Other,
}

impl ServerErrorKind {
    pub(crate) const ALL: [Self; 11] = [
        Self::Permissions,
        Self::InvalidSubject,
        Self::TooManySubscriptions,
        Self::SlowConsumer,
        Self::StaleConnection,
        Self::Authorization,
        Self::TlsRequired,
        Self::TooManyConnections,
        Self::PayloadTooLong,
        Self::Protocol,
        Self::Other,
    ];

    /// Its name in metrics.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Permissions => "permissions",
            Self::InvalidSubject => "invalid_subject",
            Self::TooManySubscriptions => "too_many_subscriptions",
            Self::SlowConsumer => "slow_consumer",
            Self::StaleConnection => "stale_connection",
            Self::Authorization => "authorization",
            Self::TlsRequired => "tls_required",
            Self::TooManyConnections => "too_many_connections",
            Self::PayloadTooLong => "payload_too_long",
            Self::Protocol => "protocol",
            Self::Other => "other",
        }
    }
}

impl ServerError {
    /// The error with this text, with its quotes or without.
    pub(crate) fn new(text: &[u8]) -> Self {
        let text = text.strip_prefix(b"'").unwrap_or(text);
        Self { text: Bytes::copy_from_slice(text.strip_suffix(b"'").unwrap_or(text)) }
    }

    /// The text without its quotes.
    #[must_use]
    pub fn text(&self) -> &[u8] {
        &self.text
    }

    /// The meaning of the text.
    #[must_use]
    pub fn kind(&self) -> ServerErrorKind {
        use ServerErrorKind as Kind;
        const TEXTS: &[(&str, ServerErrorKind)] = &[
            ("permissions violation", Kind::Permissions),
            ("invalid subject", Kind::InvalidSubject),
            ("invalid publish subject", Kind::InvalidSubject),
            ("maximum subscriptions exceeded", Kind::TooManySubscriptions),
            ("slow consumer", Kind::SlowConsumer),
            ("stale connection", Kind::StaleConnection),
            ("authorization violation", Kind::Authorization),
            ("authorization timeout", Kind::Authorization),
            ("authentication timeout", Kind::Authorization),
            ("authentication expired", Kind::Authorization),
            ("user authentication", Kind::Authorization),
            ("account authentication", Kind::Authorization),
            ("secure connection", Kind::TlsRequired),
            ("maximum connections exceeded", Kind::TooManyConnections),
            ("maximum account active connections exceeded", Kind::TooManyConnections),
            ("maximum payload", Kind::PayloadTooLong),
            ("parser error", Kind::Protocol),
            ("unknown protocol operation", Kind::Protocol),
            ("invalid client protocol", Kind::Protocol),
            ("maximum control line exceeded", Kind::Protocol),
        ];
        let is =
            |start: &str| self.text.get(..start.len()).is_some_and(|text| text.eq_ignore_ascii_case(start.as_bytes()));
        TEXTS.iter().find(|(start, _)| is(start)).map_or(Kind::Other, |(_, kind)| *kind)
    }

    /// The filter that the client may not subscribe to, if the error is about that.
    #[must_use]
    pub fn refused_filter(&self) -> Option<&[u8]> {
        const START: &[u8] = b"permissions violation for subscription to \"";
        let start = self.text.get(..START.len()).filter(|start| start.eq_ignore_ascii_case(START))?;
        let rest = &self.text[start.len()..];
        rest.iter().position(|byte| *byte == b'"').map(|end| &rest[..end])
    }
}

impl fmt::Debug for ServerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}\"", self.text.escape_ascii())
    }
}

impl fmt::Display for ServerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.text.escape_ascii())
    }
}

impl std::error::Error for ServerError {}
