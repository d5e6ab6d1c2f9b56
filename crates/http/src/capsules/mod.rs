//! `CapsuleUpgrade`: a request that opens a tunnel of capsules and HTTP datagrams (RFC 9297), for a protocol of the
//! application's own.
//!
//! The tunnel is the same over all versions: an upgrade over HTTP/1.1, and extended CONNECT over HTTP/2 and HTTP/3. Over HTTP/3
//! its datagrams are those of QUIC if both sides accept them, and capsules otherwise.

mod client;
mod relay;
mod tunnel;

use std::error::Error;
use std::future::Future;
use std::rc::Rc;

use http::StatusCode;
use tidegate_http_message::Upgrade;
use tidegate_http1::InvalidField;
use tidegate_http3::CapsuleCodec;

pub use self::client::{CapsuleClient, CapsuleConnection, ExtendedConnectError};
pub use self::relay::{CapsuleRelayTunnel, DatagramDrop};
pub use self::tunnel::{CapsuleReader, CapsuleTunnel, CapsuleWriter};
use crate::extract::FromRequest;
use crate::request::Request;
use crate::response::{IntoResponse, Response};

/// A request that opens a tunnel of capsules, as an argument of a function; a request that asks for no other protocol is
/// refused with 400 (Bad Request). The function returns the response that accepts it, and a task serves the tunnel.
///
/// Over HTTP/3 datagrams come as those of QUIC if the listener [accepts](crate::Config::http_datagrams) them.
///
/// ```
/// use tidegate::http::{CapsuleUpgrade, Router};
/// use tidegate::http3::Capsule;
///
/// // Sends back each datagram.
/// let router = Router::new().get("/gauge", |upgrade: CapsuleUpgrade| {
///     upgrade.tunnel("tide-gauge", async |mut tunnel| {
///         while let Some(capsule) = tunnel.recv().await? {
///             if let Capsule::Datagram(payload) = capsule {
///                 tunnel.send_datagram(&payload)?;
///             }
///         }
///         Ok::<_, Box<dyn std::error::Error>>(())
///     })
/// });
/// # drop(router);
/// ```
#[derive(Debug)]
#[must_use = "the tunnel is opened by the response that it makes"]
pub struct CapsuleUpgrade {
    /// The protocols that the request asks for.
    protocols: Vec<Box<str>>,
    /// The request is an extended CONNECT.
    is_extended_connect: bool,
    has_body: bool,
    capsule_bytes_max: u32,
    reads_others: bool,
}

impl<S> FromRequest<S> for CapsuleUpgrade {
    fn from_request(request: &mut Request, _: &Rc<S>) -> Result<Self, Response> {
        if !request.asks_for_any_upgrade() {
            return Err(bad_request("the request asks for no other protocol\n"));
        }
        let protocols = match request.protocol() {
            Some(protocol) => vec![protocol.into()],
            None => request.upgrade_tokens().map(Box::from).collect(),
        };
        Ok(Self {
            protocols,
            is_extended_connect: request.protocol().is_some(),
            has_body: request.protocol().is_none() && request.head().has_body(),
            capsule_bytes_max: CAPSULE_BYTES_MAX,
            reads_others: false,
        })
    }

    fn is_absent(request: &Request) -> bool {
        !request.asks_for_any_upgrade()
    }
}

impl CapsuleUpgrade {
    /// Whether the request asks for this protocol. Case does not matter.
    #[must_use]
    pub fn asks_for(&self, protocol: &str) -> bool {
        self.protocols.iter().any(|asked| asked.eq_ignore_ascii_case(protocol))
    }

    /// How many bytes the value of a capsule may have; 16 KiB unless set. Beyond it the tunnel is reset. It bounds the memory for
    /// capsules in pieces.
    pub fn capsule_bytes_max(mut self, bytes: u32) -> Self {
        self.capsule_bytes_max = bytes;
        self
    }

    /// The tunnel yields capsules of types that this crate does not know, as [`Capsule::Other`](tidegate_http3::Capsule::Other).
    /// They are discarded, unless set.
    pub fn other_capsules(mut self) -> Self {
        self.reads_others = true;
        self
    }

    /// Accepts the request for this protocol. A task serves the tunnel. When it returns, this side of the tunnel ends.
    ///
    /// A request for another protocol gets 501 (Not Implemented) over HTTP/2 and HTTP/3 (RFC 9220 §3), and 426 (Upgrade Required)
    /// over HTTP/1.1; one with a body gets 400.
    #[must_use]
    pub fn tunnel<F, E>(self, protocol: &str, serve: impl FnOnce(CapsuleTunnel) -> F + 'static) -> Response
    where
        F: Future<Output = Result<(), E>> + 'static,
        E: Into<Box<dyn Error>> + 'static,
    {
        if let Some(refusal) = self.refusal(protocol) {
            return refusal;
        }
        let codec = CapsuleCodec::new(self.capsule_bytes_max).read_others(self.reads_others);
        let upgrade = Upgrade::channel(codec, move |channel| serve(CapsuleTunnel::new(channel)));
        let response: Result<Response, InvalidField> =
            Response::upgrade(protocol, upgrade).and_then(|response| response.header("Capsule-Protocol", "?1"));
        response.into_response()
    }

    /// The response to a request that cannot have the tunnel.
    pub(crate) fn refusal(&self, protocol: &str) -> Option<Response> {
        if self.has_body {
            return Some(bad_request("the request of a tunnel has no body\n"));
        }
        if self.asks_for(protocol) {
            return None;
        }
        if self.is_extended_connect {
            return Some(StatusCode::NOT_IMPLEMENTED.into_response());
        }
        // Bytes behind the request may be capsules that the client sends without waiting: they are no requests (RFC 9931).
        let response = Response::status(StatusCode::UPGRADE_REQUIRED).close();
        Some(response.header("Upgrade", protocol).into_response())
    }
}

pub(crate) fn bad_request(text: &'static str) -> Response {
    Response::text(text).with_status(StatusCode::BAD_REQUEST)
}

/// Of a capsule, unless set.
const CAPSULE_BYTES_MAX: u32 = 16 * 1024;
