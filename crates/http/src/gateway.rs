//! The part of a server that a gateway needs beside the public interface: `tidegate-http-proxy` is written against it.

use tidegate_http1::RequestHead;
use tidegate_sys::Address;

use crate::endpoint::Call;
pub use crate::endpoint::{InterimHandler, InterimWriter};
pub use crate::exchange_note::{EndCause, ExchangeNote};
use crate::extract::BodyUse;
pub use crate::normal_path::strip_prefix;
pub use crate::serving::order::PipelineSlot;
use crate::{BoxResponseFuture, Endpoint, Request};

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
