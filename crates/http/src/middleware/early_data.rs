//! `EarlyData`: requests that an attacker may have sent again get 425.

use http::StatusCode;

use super::Middleware;
use crate::request::Request;
use crate::response::{IntoResponse, Response};

/// Refuses requests that came in early data (0-RTT) with 425 Too Early (RFC 8470): those with `Early-Data: 1`, which this
/// server has added over HTTP/3, or a server in front. The client sends such a request again after its handshake. Use it for
/// routes on which a copy of a request does harm.
///
/// ```
/// use tidegate::http::{EarlyData, Router};
///
/// // A server in front may pass every method early.
/// let orders = Router::new().get("/", || "orders").post("/", || "ordered").with(EarlyData::refuse_unsafe());
/// let tickets = Router::new().get("/", || "one ticket less").with(EarlyData::refuse());
/// # drop((orders, tickets));
/// ```
#[derive(Debug, Clone, Copy)]
pub struct EarlyData {
    allows_safe: bool,
}

impl EarlyData {
    /// All early requests are refused.
    #[must_use]
    pub fn refuse() -> Self {
        Self { allows_safe: false }
    }

    /// Early requests are refused unless their method is safe: GET, HEAD and OPTIONS.
    #[must_use]
    pub fn refuse_unsafe() -> Self {
        Self { allows_safe: true }
    }
}

impl Middleware for EarlyData {
    fn before(&self, request: &mut Request) -> Result<(), Response> {
        let is_early = request.header("early-data").is_some();
        let is_safe = matches!(request.method().as_str(), "GET" | "HEAD" | "OPTIONS");
        if is_early && !(self.allows_safe && is_safe) {
            return Err(StatusCode::TOO_EARLY.into_response());
        }
        Ok(())
    }
}
