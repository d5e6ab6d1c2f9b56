//! `WebSocketUpgrade`: a request that opens a WebSocket, and the response that accepts it.

use std::error::Error;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Poll, ready};

use http::StatusCode;
use tidegate_codec::DynOver;
use tidegate_engine::{Channel, Handler, WriteHalf};
use tidegate_http_message::Upgrade;
use tidegate_http1::InvalidField;
use tidegate_websocket::handshake::{HandshakeError, Offer, VERSION};
use tidegate_websocket::{Config, WebSocket};

use crate::extract::FromRequest;
use crate::request::Request;
use crate::response::{IntoResponse, Response};
use crate::same_site::is_same_site;

/// An open WebSocket, over whatever filters its connection has, such as TLS: the argument of the task that
/// [`WebSocketUpgrade::channel`] starts.
pub type WebSocketChannel = Channel<DynOver<WebSocket>>;

/// A request that opens a WebSocket, as an argument of a function; other requests are refused. The function returns the
/// response that accepts it, and a handler or a task takes over the connection.
///
/// Over HTTP/2 the request is an extended CONNECT (RFC 8441), and the WebSocket has a stream of the connection.
///
/// A script of any site can open a WebSocket to any server, with the cookies of its user. So a request that a browser
/// sends for another site, by its `Origin`, is refused with 403 (Forbidden) unless the application
/// [allows](WebSocketUpgrade::origins) the site.
///
/// ```
/// use tidegate::http::{Config, Router, WebSocketUpgrade};
/// use tidegate::websocket::Message;
/// use tidegate_testkit::Embedded;
///
/// let router = Router::new().get("/ws", |upgrade: WebSocketUpgrade| {
///     upgrade.channel(async |mut channel| {
///         while let Some(message) = channel.recv().await? {
///             if let Message::Text(text) = message {
///                 channel.send(text.into())?;
///             }
///         }
///         Ok::<_, Box<dyn std::error::Error>>(())
///     })
/// });
///
/// let (codec, handler) = Config::new().connections(router)();
/// let mut pipe = Embedded::new(codec, handler);
/// pipe.receive(
///     b"GET /ws HTTP/1.1\r\nHost: sea\r\nConnection: upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
///       Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n\x81\x83\0\0\0\0ebb",
/// );
/// let wire = pipe.take_written();
/// assert!(wire.starts_with(b"HTTP/1.1 101 ") && wire.ends_with(b"\r\n\r\n\x81\x03ebb"));
/// ```
#[derive(Debug)]
#[must_use = "the connection is upgraded by the response that it makes"]
pub struct WebSocketUpgrade {
    offer: Offer,
    config: Arc<Config>,
    protocol: Option<String>,
    /// Whether the `Origin` may open the connection.
    is_allowed: bool,
}

impl<S> FromRequest<S> for WebSocketUpgrade {
    fn from_request(request: &mut Request, _: &Rc<S>) -> Result<Self, Response> {
        let offer = match request.protocol() {
            None => Offer::of_upgrade(request.method().as_str(), request.headers()).map_err(refused)?,
            Some("websocket") => Offer::of_extended_connect(request.headers()).map_err(refused)?,
            // RFC 9220 §3.
            Some(_) => return Err(StatusCode::NOT_IMPLEMENTED.into_response()),
        };
        // The codec could not send the 101: this is a mistake of the client, not of the application.
        if !request.asks_for_any_upgrade() {
            return Err(refused(HandshakeError::Upgrade));
        }
        if request.head().has_body() {
            return Err(Response::text("a WebSocket handshake has no body\n").with_status(StatusCode::BAD_REQUEST));
        }
        let is_allowed = offer.origin().is_none_or(|origin| is_same_site(origin, request.host()));
        Ok(Self { offer, config: Arc::default(), protocol: None, is_allowed })
    }

    fn is_absent(request: &Request) -> bool {
        !request.asks_for_upgrade("websocket")
    }
}

impl WebSocketUpgrade {
    /// The limits of the connection, its pings, and compression; connections share them.
    pub fn config(mut self, config: &Arc<Config>) -> Self {
        self.config = config.clone();
        self
    }

    /// Selects the first of these subprotocols that the client offers.
    pub fn protocols(mut self, supported: &[&str]) -> Self {
        self.protocol = self.offer.select(supported).map(str::to_owned);
        self
    }

    /// The subprotocol that was selected.
    #[must_use]
    pub fn protocol(&self) -> Option<&str> {
        self.protocol.as_deref()
    }

    /// The offer of the client.
    #[must_use]
    pub fn offer(&self) -> &Offer {
        &self.offer
    }

    /// Allows these sites as well, such as `https://sea.example`.
    pub fn origins(mut self, allowed: &[&str]) -> Self {
        let is_listed = |origin: &[u8]| allowed.iter().any(|allowed| origin.eq_ignore_ascii_case(allowed.as_bytes()));
        self.is_allowed |= self.offer.origin().is_some_and(is_listed);
        self
    }

    /// Allows every site: for connections that need no cookies.
    pub fn any_origin(mut self) -> Self {
        self.is_allowed = true;
        self
    }

    /// Accepts the request. A task serves the connection, as one of a server of channels does.
    #[must_use]
    pub fn channel<F, E>(self, serve: impl FnOnce(WebSocketChannel) -> F + 'static) -> Response
    where
        F: Future<Output = Result<(), E>> + 'static,
        E: Into<Box<dyn Error>> + 'static,
    {
        self.accept(|codec| Upgrade::channel(codec, serve))
    }

    /// Accepts the request. A task serves the connection that only sends: the client's messages are read and dropped,
    /// so the codec sends pings and sees their answers, and notices a client that closes or is gone. Then the task is
    /// dropped where it waits. A channel that never receives would send no pings.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tidegate::http::{Router, WebSocketUpgrade};
    /// use tidegate::task;
    ///
    /// let router = Router::new().get("/clock", |upgrade: WebSocketUpgrade| {
    ///     upgrade.push(async |mut writer| {
    ///         for second in 0_u64.. {
    ///             writer.send(second.to_string().into())?;
    ///             // The client has to read before the next one is sent.
    ///             writer.ready().await?;
    ///             task::sleep(Duration::from_secs(1)).await;
    ///         }
    ///         Ok::<_, Box<dyn std::error::Error>>(())
    ///     })
    /// });
    /// # drop(router);
    /// ```
    #[must_use]
    pub fn push<F, E>(self, serve: impl FnOnce(WriteHalf<DynOver<WebSocket>>) -> F + 'static) -> Response
    where
        F: Future<Output = Result<(), E>> + 'static,
        E: Into<Box<dyn Error>> + 'static,
    {
        self.channel(async move |channel: Channel<DynOver<WebSocket>>| {
            let (mut reader, writer) = channel.split();
            let mut serving = pin!(serve(writer));
            poll_fn(|cx| {
                if let Poll::Ready(served) = serving.as_mut().poll(cx) {
                    return Poll::Ready(served.map_err(Into::into));
                }
                for _ in 0..DROPPED_PER_POLL_MAX {
                    match ready!(reader.poll_recv(cx)) {
                        Ok(Some(_)) => {}
                        Ok(None) => return Poll::Ready(Ok(())),
                        Err(error) => return Poll::Ready(Err(error.into())),
                    }
                }
                cx.waker().wake_by_ref();
                Poll::Pending
            })
            .await
        })
    }

    /// Accepts the request. A handler serves the connection, which then has the memory of no task.
    #[must_use]
    pub fn handler<H: Handler<DynOver<WebSocket>>>(self, handler: H) -> Response {
        self.accept(|codec| Upgrade::handler(codec, handler))
    }

    fn accept(self, upgrade: impl FnOnce(WebSocket) -> Upgrade) -> Response {
        if !self.is_allowed {
            return StatusCode::FORBIDDEN.into_response();
        }
        let accepted = self.offer.accept(&self.config, self.protocol.as_deref());
        let response: Result<Response, InvalidField> = Response::upgrade("websocket", upgrade(accepted.codec()))
            .and_then(|response| {
                accepted.fields().try_fold(response, |response, (name, value)| response.header(name, value))
            });
        response.into_response()
    }
}

/// The response to a request that is no handshake.
fn refused(error: HandshakeError) -> Response {
    let status = StatusCode::from_u16(error.status()).unwrap_or(StatusCode::BAD_REQUEST);
    let response = Response::text(format!("{error}\n")).with_status(status);
    let with_fields = match error {
        HandshakeError::Version | HandshakeError::Upgrade => response
            .header("Upgrade", "websocket")
            .and_then(|response| response.header("Sec-WebSocket-Version", VERSION)),
        HandshakeError::Method => response.header("Allow", "GET"),
        _ => Ok(response),
    };
    with_fields.into_response()
}

/// Messages of a client that are dropped before other tasks have their turn.
const DROPPED_PER_POLL_MAX: usize = 64;
