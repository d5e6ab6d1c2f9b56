//! The part of a server that a gateway needs beside the public interface: `tidegate-http-proxy` is written against it.

use std::rc::Rc;

use tidegate_http1::RequestHead;
use tidegate_sys::Address;

pub use crate::cookie_value::of as cookie;
use crate::endpoint::Call;
use crate::endpoint::InterimQueue;
pub use crate::endpoint::{InterimHandler, InterimWriter};
use crate::extract::BodyUse;
pub use crate::field_names::{has_prefix, is_of_connection, is_same};
pub use crate::middleware::address_key;
pub use crate::normal_path::{normal_path_of, strip_prefix};
pub use crate::serving::order::PipelineSlot;
pub use crate::upstream_note::UpstreamNote;
use crate::{BoxResponseFuture, Endpoint, Request, RequestId, Response};

/// A function that passes requests on to other servers, and their interim responses back. Paths reach it as they were sent.
///
/// One that `needs_destination` asks for the address that the client has connected to; the requests of any other one may be
/// in progress side by side on one connection.
pub fn endpoint(
    call: impl Fn(Request, InterimWriter) -> BoxResponseFuture + 'static,
    needs_destination: bool,
) -> Endpoint {
    let call = InterimHandler { call: Box::new(call), needs_destination, is_pipelined: !needs_destination };
    Endpoint { is_gateway: true, ..Endpoint::new(Call::Interim(call), BodyUse::Streamed) }
}

/// A request as its codec yields it, of a client without TLS.
pub fn request(head: RequestHead, peer: Address) -> Request {
    Request::new(head, peer, false, None)
}

/// Marks a response as that of an upstream, which this server has not made.
#[must_use]
pub fn forwarded(mut response: Response) -> Response {
    response.is_forwarded = true;
    response
}

/// A copy of a request without its body, and without the values that middleware has added but its id.
#[must_use]
pub fn copy_of_head(request: &Request) -> Request {
    let head = request.head().clone().detach();
    let mut copy = Request::new(head, request.peer().clone(), request.is_secure(), request.route_parts());
    if let Some(id) = request.extensions().get::<RequestId>() {
        copy.extensions_mut().insert(id.clone());
    }
    copy
}

/// Drops the interim responses of an exchange without a client.
#[must_use]
pub fn no_interims() -> InterimWriter {
    InterimWriter::Handler { interims: Rc::new(InterimQueue::default()), slot: None }
}
