//! `WebTransportUpgrade`: a request that opens a session of WebTransport, and the response that accepts it.

mod client;
mod serve;
mod session;

use std::error::Error;
use std::future::Future;
use std::rc::Rc;

use http::StatusCode;
use tidegate_http_message::Upgrade;
use tidegate_http1 as http1;
use tidegate_http3::CapsuleCodec;

pub use self::client::{WebTransportClient, WebTransportError};
pub use self::session::{WebTransportClose, WebTransportSession};
use crate::extract::FromRequest;
use crate::request::Request;
use crate::response::{IntoResponse, Response};
use crate::same_site::is_same_site;

/// A request that opens a session of WebTransport over HTTP/3, as an argument of a function; other requests are refused. The
/// function returns the response that accepts it, and a task serves the session.
///
/// The listener has to [permit](crate::Config::webtransport) sessions. As for a
/// [WebSocket](crate::WebSocketUpgrade), a request that a browser sends for another site, by its `Origin`, is refused with 403
/// (Forbidden) unless the application [allows](WebTransportUpgrade::origins) the site.
///
/// ```
/// use tidegate::http::{Router, WebTransportUpgrade};
/// use tidegate::task;
///
/// // Sends back each stream, and each datagram.
/// let router = Router::new().get("/echo", |upgrade: WebTransportUpgrade| {
///     upgrade.session(async |session| {
///         let datagrams = session.clone();
///         task::spawn(async move {
///             while let Some(datagram) = datagrams.recv_datagram().await {
///                 datagrams.send_datagram(&datagram)?;
///             }
///             Ok::<_, tidegate::engine::SessionError>(())
///         });
///         while let Some(mut stream) = session.accept_bidirectional().await {
///             task::spawn(async move {
///                 while let Some(bytes) = stream.recv().await? {
///                     stream.send(bytes.into())?;
///                 }
///                 stream.close().await
///             });
///         }
///         Ok::<_, Box<dyn std::error::Error>>(())
///     })
/// });
/// # drop(router);
/// ```
#[derive(Debug)]
#[must_use = "the session is opened by the response that it makes"]
pub struct WebTransportUpgrade {
    origin: Option<Box<[u8]>>,
    /// Whether the `Origin` may open the session.
    is_allowed: bool,
    /// The client knows draft 2, and expects the server to say so.
    is_draft2: bool,
    capsule_bytes_max: u32,
}

impl<S> FromRequest<S> for WebTransportUpgrade {
    fn from_request(request: &mut Request, _: &Rc<S>) -> Result<Self, Response> {
        if !is_webtransport(request) {
            // RFC 9220 §3.
            return Err(StatusCode::NOT_IMPLEMENTED.into_response());
        }
        let origin = request.header("origin").map(Box::from);
        let is_allowed = origin.as_deref().is_none_or(|origin| is_same_site(origin, request.host()));
        let is_draft2 = request.header("sec-webtransport-http3-draft02").is_some();
        Ok(Self { origin, is_allowed, is_draft2, capsule_bytes_max: CAPSULE_BYTES_MAX })
    }

    fn is_absent(request: &Request) -> bool {
        !is_webtransport(request)
    }
}

impl WebTransportUpgrade {
    /// The origin of the page that opens the session, if a browser sends the request.
    #[must_use]
    pub fn origin(&self) -> Option<&[u8]> {
        self.origin.as_deref()
    }

    /// Allows these sites as well, such as `https://sea.example`.
    pub fn origins(mut self, allowed: &[&str]) -> Self {
        let is_listed = |origin: &[u8]| allowed.iter().any(|allowed| origin.eq_ignore_ascii_case(allowed.as_bytes()));
        self.is_allowed |= self.origin().is_some_and(is_listed);
        self
    }

    /// Allows every site: for sessions that need no cookies.
    pub fn any_origin(mut self) -> Self {
        self.is_allowed = true;
        self
    }

    /// How many bytes a capsule of the session may have; 16 KiB unless set. Beyond it the session ends with H3_EXCESSIVE_LOAD. It
    /// bounds the memory for capsules in pieces.
    pub fn capsule_bytes_max(mut self, bytes: u32) -> Self {
        self.capsule_bytes_max = bytes;
        self
    }

    /// Accepts the request. A task serves the session. When it returns, the session closes with the code 0, and after an error
    /// its streams are reset.
    ///
    /// A connection that has as many sessions as [permitted](crate::Config::webtransport) resets the request with
    /// H3_REQUEST_REJECTED, and `serve` is not called.
    #[must_use]
    pub fn session<F, E>(self, serve: impl FnOnce(WebTransportSession) -> F + 'static) -> Response
    where
        F: Future<Output = Result<(), E>> + 'static,
        E: Into<Box<dyn Error>> + 'static,
    {
        if !self.is_allowed {
            return StatusCode::FORBIDDEN.into_response();
        }
        let codec = CapsuleCodec::new(self.capsule_bytes_max).for_session();
        let upgrade = Upgrade::channel(codec, move |channel| serve::serve(channel, serve));
        let mut response = Response::upgrade("webtransport", upgrade);
        if self.is_draft2 {
            response = response.and_then(|response| response.header("Sec-WebTransport-HTTP3-Draft", "draft02"));
        }
        response.into_response()
    }
}

/// Whether a request opens a session. The newest draft has another token for its own variant.
fn is_webtransport(request: &Request) -> bool {
    request.head().version() == http1::Version::Http3
        && matches!(request.protocol(), Some("webtransport" | "webtransport-h3"))
}

/// Of a capsule, unless set.
const CAPSULE_BYTES_MAX: u32 = 16 * 1024;
