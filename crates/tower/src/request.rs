//! From our request to one of the `http` crate.

use std::cell::RefCell;
use std::mem;
use std::ops::Range;

use bytes::{Buf, Bytes, BytesMut};
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Uri, Version, header};
use tidegate_http::{Body, Request};
use tidegate_sys::Address;

use crate::request_body::{RequestBody, ServiceBody};
use crate::response::Exchange;
#[cfg(feature = "upgrade")]
use crate::upgrade::Offer;

/// Adds the connection's extensions to its requests.
pub(crate) type Extend = fn(&Address, &mut http::Extensions);

/// Makes requests of the `http` crate, on one loop.
pub(crate) struct Requests {
    /// Where heads are copied to, one behind the other.
    heads: RefCell<BytesMut>,
    extend: Option<Extend>,
    /// An extended CONNECT for a WebSocket stays one.
    keeps_connect: bool,
}

impl Requests {
    pub(crate) fn new(extend: Option<Extend>, keeps_connect: bool) -> Self {
        Self { heads: RefCell::default(), extend, keeps_connect }
    }

    /// Makes `made`, which is empty, the request of the `http` crate, in its place; returns the parts that its response
    /// needs. `fields` is an empty map that is used again.
    #[inline(always)]
    pub(crate) fn convert<B: ServiceBody>(
        &self,
        (request, body): (Request, Body),
        fields: HeaderMap,
        made: &mut http::Request<B>,
    ) -> Result<Exchange, StatusCode> {
        *made.method_mut() = request.method();
        *made.version_mut() = request.version();
        let (whole, head) = (request.head_bytes(), self.keep(request.head_bytes()));
        let map = made.headers_mut();
        // A map that never had a field has no memory to be dropped.
        mem::forget(mem::replace(map, fields));
        let protocol = request.protocol();
        let is_opening = protocol == Some("websocket") && !self.keeps_connect;
        #[cfg(feature = "upgrade")]
        let mut has_upgrade = false;
        for (name, value) in request.header_bytes() {
            if protocol.is_some() && !is_opening && name == b"upgrade" {
                // HTTP/2 has no such field: it is `:protocol`.
                continue;
            }
            // The codec has checked both; no value has a character that this type does not admit.
            let Some(name) = field_name(name) else { continue };
            #[cfg(feature = "upgrade")]
            {
                has_upgrade |= name == header::UPGRADE;
            }
            let value = match known_value(&name, value) {
                Some(value) => value,
                None => match HeaderValue::from_maybe_shared(head.slice(place(whole, value))) {
                    Ok(value) => value,
                    Err(_) => continue,
                },
            };
            map.append(name, value);
        }
        if is_opening {
            ask_as_http1(made);
        }
        // The last part takes the head itself.
        let target = place(whole, request.target_bytes());
        *made.uri_mut() = uri(only(head, target), request.has_irregular_target()).ok_or(StatusCode::BAD_REQUEST)?;
        if !request.extensions().is_empty() {
            *made.extensions_mut() = request.extensions().clone();
        }
        if let Some(extend) = self.extend {
            extend(request.peer(), made.extensions_mut());
        }
        #[cfg(feature = "protocol")]
        if let Some(protocol) = protocol.filter(|_| !is_opening).and_then(known_protocol) {
            made.extensions_mut().insert(protocol);
        }
        let mut exchange = Exchange::new(made.method(), protocol.is_some());
        #[cfg(feature = "upgrade")]
        if made.method() == Method::CONNECT || has_upgrade && request.asks_for_any_upgrade() {
            exchange.offer = offer(&request, protocol.is_some(), made.extensions_mut());
        }
        self.set_body(&request, body, made.body_mut(), &mut exchange);
        Ok(exchange)
    }

    /// Makes the body of the request, unless it is empty.
    #[inline(always)]
    fn set_body<B: ServiceBody>(&self, request: &Request, body: Body, made: &mut B, exchange: &mut Exchange) {
        let length = request.content_length();
        if length == Some(0) {
            return;
        }
        match body.as_bytes() {
            Some([]) => {}
            Some(bytes) if bytes.len() <= SHORT_BODY_BYTES => *made = B::new(RequestBody::whole(self.keep(bytes))),
            _ => match body.into_bytes() {
                Ok(bytes) => *made = B::new(RequestBody::whole(bytes)),
                Err(body) => {
                    let (body, registered) = RequestBody::register(body, length);
                    (*made, exchange.registered) = (B::new(body), Some(registered));
                }
            },
        }
    }

    /// A copy of a head, or of a short body. A few of them share a piece of memory, which is used again once none is left.
    fn keep(&self, head: &[u8]) -> Bytes {
        let mut heads = self.heads.borrow_mut();
        if heads.capacity() < head.len() {
            heads.reserve(HEADS_BYTES.max(head.len()));
        }
        heads.extend_from_slice(head);
        heads.split().freeze()
    }
}

/// The offer to take the connection over, unless a handshake has a body.
#[cfg(feature = "upgrade")]
fn offer(request: &Request, is_extended: bool, extensions: &mut http::Extensions) -> Option<Box<Offer>> {
    let is_websocket = request.asks_for_upgrade("websocket");
    // An HTTP/1.1 handshake has no body (RFC 6455 §4.1), and the codec switches only behind a whole request.
    let may_switch = !is_websocket || is_extended || request.content_length() == Some(0);
    may_switch.then(|| Offer::make(extensions, is_websocket)).flatten()
}

/// Makes an extended CONNECT for a WebSocket the HTTP/1.1 request that it replaces (RFC 8441 §5): services route it by
/// GET, and look for the fields of the handshake. The client has no key, and sees no answer to one.
#[cold]
fn ask_as_http1<B>(made: &mut http::Request<B>) {
    (*made.method_mut(), *made.version_mut()) = (Method::GET, Version::HTTP_11);
    let fields = made.headers_mut();
    fields.insert(header::CONNECTION, const { HeaderValue::from_static("upgrade") });
    fields.insert(header::UPGRADE, const { HeaderValue::from_static("websocket") });
    fields.insert(header::SEC_WEBSOCKET_KEY, const { HeaderValue::from_static(NO_KEY) });
}

/// A key as RFC 6455 §4.1 has it, for services that check its length.
const NO_KEY: &str = "AAAAAAAAAAAAAAAAAAAAAA==";

/// The place of a part of a head in the whole.
fn place(whole: &[u8], part: &[u8]) -> Range<usize> {
    let start = part.as_ptr().addr() - whole.as_ptr().addr();
    start..start + part.len()
}

/// One part of a head alone, without another count of its memory.
fn only(mut head: Bytes, place: Range<usize>) -> Bytes {
    head.truncate(place.end);
    head.advance(place.start);
    head
}

/// The name of a field. The names that most requests have are known as they are usually written.
#[inline]
fn field_name(name: &[u8]) -> Option<HeaderName> {
    Some(match name {
        b"te" => header::TE,
        b"Host" | b"host" => header::HOST,
        b"Accept" | b"accept" => header::ACCEPT,
        b"Cookie" | b"cookie" => header::COOKIE,
        b"Connection" | b"connection" => header::CONNECTION,
        b"User-Agent" | b"user-agent" => header::USER_AGENT,
        b"Content-Type" | b"content-type" => header::CONTENT_TYPE,
        b"Authorization" | b"authorization" => header::AUTHORIZATION,
        b"Content-Length" | b"content-length" => header::CONTENT_LENGTH,
        b"Accept-Encoding" | b"accept-encoding" => header::ACCEPT_ENCODING,
        b"Accept-Language" | b"accept-language" => header::ACCEPT_LANGUAGE,
        b"grpc-timeout" => const { HeaderName::from_static("grpc-timeout") },
        b"grpc-encoding" => const { HeaderName::from_static("grpc-encoding") },
        b"grpc-accept-encoding" => const { HeaderName::from_static("grpc-accept-encoding") },
        name => return HeaderName::from_bytes(name).ok(),
    })
}

/// The values that some fields usually have, which share no memory with the head.
#[inline]
fn known_value(name: &HeaderName, value: &[u8]) -> Option<HeaderValue> {
    let known = match value {
        b"trailers" if *name == header::TE => const { HeaderValue::from_static("trailers") },
        b"application/grpc" if *name == header::CONTENT_TYPE => const { HeaderValue::from_static("application/grpc") },
        b"keep-alive" if *name == header::CONNECTION => const { HeaderValue::from_static("keep-alive") },
        b"close" if *name == header::CONNECTION => const { HeaderValue::from_static("close") },
        _ => return None,
    };
    Some(known)
}

fn uri(target: Bytes, is_irregular: bool) -> Option<Uri> {
    if is_irregular {
        return strict_uri(target.clone()).or_else(|| strict_uri(encoded(&target).into()));
    }
    strict_uri(target)
}

fn strict_uri(target: Bytes) -> Option<Uri> {
    if target.first() != Some(&b'/') {
        return Uri::from_maybe_shared(target).ok();
    }
    Some(Uri::from(PathAndQuery::from_maybe_shared(target).ok()?))
}

/// A target whose bytes that no URI has are escapes (RFC 3986 §2.1): the type admits some of them, and neither `<`, `>`
/// and a backtick nor bytes that are not UTF-8. A service that decodes it reads the client's bytes.
#[cold]
fn encoded(target: &[u8]) -> Vec<u8> {
    let mut encoded = Vec::with_capacity(3 * target.len());
    for &byte in target {
        if byte.is_ascii_graphic() && !b"\"<>\\^`{|}".contains(&byte) {
            encoded.push(byte);
        } else {
            encoded.extend([b'%', HEX[usize::from(byte >> 4)], HEX[usize::from(byte & 15)]]);
        }
    }
    encoded
}

const HEX: &[u8; 16] = b"0123456789ABCDEF";

/// Bodies up to this length lie with the heads.
const SHORT_BODY_BYTES: usize = 256;

/// How much memory heads share: a service that keeps a value of one keeps as much.
const HEADS_BYTES: usize = 4 * 1024;

/// The protocol of an extended CONNECT as hyper's servers report it. The type takes constants alone.
#[cfg(feature = "protocol")]
fn known_protocol(name: &str) -> Option<hyper::ext::Protocol> {
    let known = ["websocket", "webtransport", "connect-udp", "connect-ip", "connect-tcp"];
    known.into_iter().find(|known| *known == name).map(hyper::ext::Protocol::from_static)
}
