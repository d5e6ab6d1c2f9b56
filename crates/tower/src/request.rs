//! From our request to one of the `http` crate.

use std::cell::RefCell;

use bytes::{Bytes, BytesMut};
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, Uri};
use tidegate_http::Request;
use tidegate_sys::Address;

use crate::request_body::{RequestBody, ServiceBody};
use crate::response::Exchange;
#[cfg(feature = "upgrade")]
use crate::upgrade::Offer;

/// What of a connection becomes an extension of its requests.
pub(crate) type Extend = fn(&Address, &mut http::Extensions);

/// Makes requests of the `http` crate, on one loop.
pub(crate) struct Requests {
    /// Where heads are copied to, one behind the other.
    heads: RefCell<BytesMut>,
    extend: Option<Extend>,
}

impl Requests {
    pub(crate) fn new(extend: Option<Extend>) -> Self {
        Self { heads: RefCell::default(), extend }
    }

    /// The request of the `http` crate, and what its response needs of it. `fields` is an empty map that is used again.
    #[inline(always)]
    pub(crate) fn convert<B: ServiceBody>(
        &self,
        request: Request,
        fields: HeaderMap,
    ) -> Result<(http::Request<B>, Exchange), StatusCode> {
        let mut made = http::Request::new(B::empty());
        *made.method_mut() = request.method();
        *made.version_mut() = request.version();
        let whole = request.head_bytes();
        let head = self.keep(whole);
        *made.uri_mut() = uri(part(&head, whole, request.target_bytes())).ok_or(StatusCode::BAD_REQUEST)?;
        let mut map = fields;
        let protocol = request.protocol();
        for (name, value) in request.header_bytes() {
            if protocol.is_some() && name == b"upgrade" {
                // HTTP/2 has no such field: it is `:protocol`.
                continue;
            }
            // The codec has checked both; no value has a character that this type does not admit.
            let Ok(name) = HeaderName::from_bytes(name) else { continue };
            let Ok(value) = HeaderValue::from_maybe_shared(part(&head, whole, value)) else { continue };
            map.append(name, value);
        }
        *made.headers_mut() = map;
        if !request.extensions().is_empty() {
            *made.extensions_mut() = request.extensions().clone();
        }
        if let Some(extend) = self.extend {
            extend(request.peer(), made.extensions_mut());
        }
        #[cfg(feature = "protocol")]
        if let Some(protocol) = protocol.and_then(known_protocol) {
            made.extensions_mut().insert(protocol);
        }
        let mut exchange = Exchange::new(made.method(), protocol.is_some());
        #[cfg(feature = "upgrade")]
        if made.method() == http::Method::CONNECT || request.asks_for_any_upgrade() {
            exchange.offer = Offer::make(made.extensions_mut());
        }
        let length = request.content_length();
        if length != Some(0) {
            let (body, registered) = RequestBody::register(request.into_body(), length);
            (*made.body_mut(), exchange.registered) = (B::new(body), Some(registered));
        }
        Ok((made, exchange))
    }

    /// A copy of a head. A few heads share a piece of memory, which is used again once none of them is left.
    fn keep(&self, head: &[u8]) -> Bytes {
        let mut heads = self.heads.borrow_mut();
        if heads.capacity() < head.len() {
            heads.reserve(HEADS_BYTES.max(head.len()));
        }
        heads.extend_from_slice(head);
        heads.split().freeze()
    }
}

/// The piece of `shared` at the place that `part` has in `whole`, of which `shared` is a copy.
fn part(shared: &Bytes, whole: &[u8], part: &[u8]) -> Bytes {
    let start = part.as_ptr().addr() - whole.as_ptr().addr();
    shared.slice(start..start + part.len())
}

fn uri(target: Bytes) -> Option<Uri> {
    if target.first() != Some(&b'/') {
        return Uri::from_maybe_shared(target).ok();
    }
    Some(Uri::from(PathAndQuery::from_maybe_shared(target).ok()?))
}

/// How much memory heads share: a service that keeps a value of one keeps as much.
const HEADS_BYTES: usize = 4 * 1024;

/// The protocol of an extended CONNECT as hyper's servers report it. The type takes constants alone.
#[cfg(feature = "protocol")]
fn known_protocol(name: &str) -> Option<hyper::ext::Protocol> {
    let known = ["websocket", "webtransport", "connect-udp", "connect-ip", "connect-tcp"];
    known.into_iter().find(|known| *known == name).map(hyper::ext::Protocol::from_static)
}
