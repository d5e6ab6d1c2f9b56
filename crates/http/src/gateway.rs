//! The part of a server that a gateway needs beside the public interface: `tidegate-http-proxy` and `tidegate-http-cache` are
//! written against it.

use std::rc::Rc;

use tidegate_buffer::Pool;
use tidegate_http_message::Body;
use tidegate_http1::{Config, Fields, Limits, RequestHead};
use tidegate_sys::Address;

#[cfg(feature = "connect-udp")]
pub use crate::capsules::{CapsuleRelayTunnel, DatagramDrop};
pub use crate::client_of::{client_of, counted_ip};
pub use crate::cookie_value::{all_of as cookies, of as cookie};
use crate::endpoint::{Call, ChosenFields, InterimQueue, begun};
pub use crate::endpoint::{InterimHandler, InterimWriter, TrustTest};
pub use crate::exchange_note::{EndCause, ExchangeNote};
use crate::extract::BodyUse;
pub use crate::field_names::{has_prefix, is_of_connection, is_same};
pub use crate::middleware::address_key;
pub use crate::normal_path::{normal_path_of, strip_prefix};
use crate::response::ResponseOrigin;
pub use crate::serving::order::PipelineSlot;
use crate::{BoxResponseFuture, Endpoint, Request, RequestSpan, Response, TlsInfo, TraceContext};

/// A function that passes requests on to other servers, and their interim responses back. Paths reach it as they were sent.
///
/// One that `needs_destination` asks for the address that the client has connected to; the requests of any other one may be
/// in progress side by side on one connection.
pub fn endpoint(
    call: impl Fn(Request, InterimWriter) -> BoxResponseFuture + 'static,
    needs_destination: bool,
) -> Endpoint {
    let is_pipelined = !needs_destination;
    let call = InterimHandler { call: Box::new(call), needs_destination, is_pipelined, at_once: None };
    Endpoint { is_gateway: true, ..Endpoint::new(Call::Interim(call), BodyUse::Streamed) }
}

/// The same function, which sends some request fields on with values that its own request does not have, such as
/// `X-Forwarded-For`: a cache in front of it cannot know which of them belongs to a response. It passes on `X-Forwarded-Proto`
/// and its like of the requests that it `trusts`; `None` if it trusts none.
#[must_use]
pub fn with_chosen_fields(
    endpoint: Endpoint,
    is_chosen: impl Fn(&[u8]) -> bool + 'static,
    trusts: Option<Rc<TrustTest>>,
) -> Endpoint {
    let chosen = ChosenFields { is_chosen: Box::new(is_chosen), trusts };
    Endpoint { chosen_fields: Some(Rc::new(chosen)), ..endpoint }
}

/// The test by which a function trusts a request's peer, if it trusts any: see [`with_chosen_fields`].
#[must_use]
pub fn trust_of(endpoint: &Endpoint) -> Option<Rc<TrustTest>> {
    endpoint.chosen_fields.as_ref()?.trusts.clone()
}

/// A request as its codec yields it, of a client without TLS.
pub fn request(head: RequestHead, peer: Address) -> Request {
    Request::new(head, peer, false, None)
}

/// A function that stands before another one, as a cache does. `answer` answers a request within the dispatch in which it
/// comes, or leaves it to `call`, which may pass it on to the other one.
pub fn in_front(
    endpoint: Endpoint,
    answer: impl Fn(&Request) -> Option<Response> + 'static,
    call: impl Fn(Request, FunctionBehind, InterimWriter) -> BoxResponseFuture + 'static,
) -> Endpoint {
    let (body, is_gateway, half_close) = (endpoint.body, endpoint.is_gateway, endpoint.half_close.get());
    let (needs_destination, is_pipelined) = match &endpoint.call {
        Call::Interim(function) => (function.needs_destination, function.is_pipelined),
        _ => (false, false),
    };
    let (limits, collects_late) = (endpoint.limits.clone(), endpoint.collects_late);
    let has_middleware = endpoint.has_middleware;
    let chosen_fields = endpoint.chosen_fields.clone();
    let behind = FunctionBehind(Rc::new(endpoint));
    let call = Box::new(move |request: Request, interims| -> BoxResponseFuture {
        if request.is_refused() {
            let behind = behind.clone();
            return Box::pin(async move { behind.call(request, interims).await });
        }
        call(request, behind.clone(), interims)
    });
    let call = InterimHandler { call, needs_destination, is_pipelined, at_once: Some(Box::new(answer)) };
    let front = Endpoint {
        is_gateway,
        limits,
        collects_late,
        has_middleware,
        chosen_fields,
        ..Endpoint::new(Call::Interim(call), body)
    };
    front.half_close.set(half_close);
    front
}

/// A function behind another one.
#[derive(Debug, Clone)]
pub struct FunctionBehind(Rc<Endpoint>);

impl FunctionBehind {
    /// Whether it sends a request field of this name on with a value that its request does not have.
    #[must_use]
    pub fn chooses_field(&self, name: &[u8]) -> bool {
        self.0.chosen_fields.as_ref().is_some_and(|chosen| (chosen.is_chosen)(name))
    }

    /// Whether it passes on fields such as `X-Forwarded-Proto` of a request.
    #[must_use]
    pub fn trusts(&self, request: &Request) -> bool {
        trust_of(&self.0).is_some_and(|trusts| trusts(request))
    }

    /// The response of the function.
    pub async fn call(&self, mut request: Request, interims: InterimWriter) -> Response {
        if let Some(response) = self.0.refusal_of(&mut request) {
            return response;
        }
        match &self.0.call {
            Call::Sync(call) => call(request),
            Call::Async(call) => begun(|cx| call(request, cx)).await,
            Call::Interim(function) => (function.call)(request, interims).await,
            Call::Polled(call) => {
                let body = request.take_body();
                begun(|cx| call(request, body, cx)).await
            }
        }
    }
}

/// The same request without a body, without the fields that `keeps` leaves out, and with further ones; `None` if it is too
/// large then. A `detached` one has nothing of its client's connection but its id: for a function that goes on when the client has left.
pub fn with_fields(
    request: &Request,
    keeps: impl Fn(&[u8]) -> bool,
    further: &[(&str, &[u8])],
    detached: bool,
) -> Option<Request> {
    let head = request.head();
    let line = head.bytes().iter().position(|&byte| byte == b'\n')? + 1;
    let mut text = Vec::with_capacity(head.bytes().len() + 128);
    text.extend_from_slice(&head.bytes()[..line]);
    let further = further.iter().map(|(name, value)| (name.as_bytes(), *value));
    for (name, value) in head.headers().filter(|(name, _)| keeps(name)).chain(further) {
        for piece in [name, b": ", value, b"\r\n"] {
            text.extend_from_slice(piece);
        }
    }
    text.extend_from_slice(b"\r\n");
    let head = UNLIMITED.with(|config| head.with_text(Pool::new().copy(&text), config)).ok()?;
    let mut other = Request::new(head, request.peer().clone(), request.is_secure(), request.route_parts());
    if detached {
        if let Some(id) = request.id() {
            other.set_id(id.clone());
        }
        if let Some(client) = request.named_client() {
            other.set_client(client);
        }
    } else {
        other.copy_parts_of(request);
    }
    Some(other)
}

/// The longest head of all, whatever the limits are.
const HEAD_BYTES_MAX: u32 = u16::MAX as u32;

thread_local! {
    /// For a head that the limits of its server have admitted: none of them applies once more, but for the longest head of all.
    static UNLIMITED: Config = Config::new(Limits {
        request_line_bytes_max: HEAD_BYTES_MAX - 1,
        head_bytes_max: HEAD_BYTES_MAX,
        headers_max: u32::MAX,
        ..Limits::default()
    });
}

/// The note in which the access log of a request wants to have its facts.
#[must_use]
pub fn note(request: &Request) -> Option<&ExchangeNote> {
    request.note()
}

/// The fields of a response, but for `Content-Type` of a function: see [`Response::field`].
#[must_use]
pub fn fields(response: &Response) -> &Fields {
    &response.fields
}

/// The status of a response.
#[must_use]
pub fn status(response: &Response) -> tidegate_http1::Status {
    response.status
}

/// Whether a response is that of an upstream: see [`forwarded`].
#[must_use]
pub fn is_forwarded(response: &Response) -> bool {
    response.origin.is_upstream()
}

/// Takes the body of a response.
pub fn take_body(response: &mut Response) -> Body {
    std::mem::take(&mut response.body)
}

/// Marks a response as that of an upstream, which this server has not made.
#[must_use]
#[inline]
pub fn forwarded(mut response: Response) -> Response {
    response.origin = ResponseOrigin::Upstream;
    response
}

/// Marks a response of an upstream whose last `Set-Cookie` the gateway has added, for one client.
#[must_use]
pub fn with_cookie(mut response: Response) -> Response {
    response.origin = ResponseOrigin::UpstreamWithCookie;
    response
}

/// Whether the last `Set-Cookie` of a response is that of the gateway: see [`with_cookie`].
#[must_use]
pub fn has_cookie(response: &Response) -> bool {
    response.origin == ResponseOrigin::UpstreamWithCookie
}

/// The trace that middleware has found in a request, or begun.
#[must_use]
pub fn trace_context(request: &Request) -> Option<&TraceContext> {
    request.made_extensions()?.get()
}

/// The span of the request, if middleware has made one.
#[must_use]
pub fn request_span(request: &Request) -> Option<&RequestSpan> {
    request.made_extensions()?.get()
}

/// A copy of a request without its body, and without the values that middleware has added but its id and the parameters of its
/// TLS connection.
#[must_use]
pub fn copy_of_head(request: &Request) -> Request {
    let head = request.head().clone().detach();
    let mut copy = Request::new(head, request.peer().clone(), request.is_secure(), request.route_parts());
    if let Some(id) = request.id() {
        copy.set_id(id.clone());
    }
    if let Some(client) = request.named_client() {
        copy.set_client(client);
    }
    if let Some(tls) = request.extensions().get::<TlsInfo>() {
        copy.extensions_mut().insert(tls.clone());
    }
    copy
}

/// Drops the interim responses of an exchange without a client.
#[must_use]
pub fn no_interims() -> InterimWriter {
    InterimWriter::Handler { interims: Rc::new(InterimQueue::default()), slot: None }
}
