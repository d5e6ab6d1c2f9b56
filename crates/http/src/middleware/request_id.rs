//! `RequestIds`: an id for each request, which its response, logs and further requests carry.

use std::cell::Cell;
use std::fmt;
use std::hash::{BuildHasher, RandomState};

use tidegate_proxy_protocol::Networks;

use super::{Middleware, RequestInfo};
use crate::request::Request;
use crate::response::Response;

/// Gives each request an id: that of its field `X-Request-Id`, or a new one. The response carries it in the same field.
/// Functions find it among the request's [`extensions`](crate::Request::extensions), as a [`RequestId`].
///
/// A reverse proxy passes it on to its upstreams.
///
/// A value of a peer is taken if it is 1 to 128 letters, digits, `-`, `_`, `.`, `:`, `/`, `+` or `=`. Behind proxies of
/// your own, use [`trusting`](Self::trusting); behind none, [`ignoring_peers`](Self::ignoring_peers).
pub struct RequestIds {
    trusted: Trusted,
    seed: RandomState,
    next: Cell<u64>,
}

/// The peers whose ids are taken.
#[derive(Debug)]
enum Trusted {
    All,
    Some(Networks),
    None,
}

/// The id of a request.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct RequestId(Box<str>);

impl RequestId {
    /// The id, as the field `X-Request-Id` has it.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl RequestIds {
    /// Takes the ids of peers.
    #[must_use]
    pub fn new() -> Self {
        Self { trusted: Trusted::All, seed: RandomState::new(), next: Cell::new(0) }
    }

    /// Gives each request a new id, whatever the peer has sent.
    #[must_use]
    pub fn ignoring_peers(self) -> Self {
        Self { trusted: Trusted::None, ..self }
    }

    /// Takes the ids of peers in these networks alone, and gives the requests of all others new ones.
    ///
    /// ```
    /// use tidegate::http::{RequestIds, Router};
    /// use tidegate::proxy_protocol::Networks;
    ///
    /// let ids = RequestIds::new().trusting(Networks::local());
    /// let router = Router::new().get("/", || "hello").with(ids);
    /// # drop(router);
    /// ```
    #[must_use]
    pub fn trusting(self, networks: Networks) -> Self {
        Self { trusted: Trusted::Some(networks), ..self }
    }

    fn trusts(&self, request: &Request) -> bool {
        match &self.trusted {
            Trusted::All => true,
            Trusted::Some(networks) => networks.contains(request.peer().ip().map(|address| address.ip())),
            Trusted::None => false,
        }
    }

    /// 128 bits that no other request has: a keyed hash of a number.
    fn generate(&self) -> RequestId {
        let number = self.next.get();
        self.next.set(number.wrapping_add(1));
        let id = format!("{:016x}{:016x}", self.seed.hash_one((number, 0)), self.seed.hash_one((number, 1)));
        RequestId(id.into())
    }
}

impl Default for RequestIds {
    fn default() -> Self {
        Self::new()
    }
}

impl Middleware for RequestIds {
    fn before(&self, request: &mut Request) -> Result<(), Response> {
        let given = request.header_str(FIELD).filter(|id| is_id(id) && self.trusts(request));
        let id = given.map_or_else(|| self.generate(), |id| RequestId(id.into()));
        request.extensions_mut().insert(id);
        Ok(())
    }

    fn after(&self, info: &RequestInfo, response: &mut Response) {
        if let Some(id) = info.request().extensions().get::<RequestId>()
            && response.field(FIELD).is_none()
        {
            response.add_header(FIELD, id.as_str()).expect("it was checked, or made here");
        }
    }
}

fn is_id(text: &str) -> bool {
    (1..=ID_BYTES_MAX).contains(&text.len())
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.:/+=".contains(&byte))
}

impl fmt::Debug for RequestIds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RequestIds").field("trusted", &self.trusted).finish_non_exhaustive()
    }
}

const FIELD: &str = "X-Request-Id";
const ID_BYTES_MAX: usize = 128;
