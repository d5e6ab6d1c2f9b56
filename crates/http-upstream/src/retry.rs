//! `Retry`: whether a request may be sent again.

/// Whether a request without a response may be sent again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Retry {
    /// The server may have processed it, and more.
    Never,
    /// The server may have processed it.
    IfIdempotent,
    /// The server has not processed it.
    Always,
    /// The server has not processed it, and wants it by HTTP/1.1.
    ByHttp1,
}

/// Whether a second request of this method does no more than one (RFC 9110 §9.2.2).
#[must_use]
pub fn is_idempotent(method: &str) -> bool {
    matches!(method, "GET" | "HEAD" | "PUT" | "DELETE" | "OPTIONS" | "TRACE")
}
