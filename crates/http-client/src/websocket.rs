//! `WebSocketBuilder`: opens a WebSocket from a client.

use std::fmt;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use http::uri::Scheme;
use http::{Method, Uri};
use tidegate_codec::DynOver;
use tidegate_engine::Channel;
use tidegate_sys::Address;
use tidegate_websocket::handshake::{HandshakeError, Request as Handshake};
use tidegate_websocket::{Config, WebSocket};

use super::core::ClientCore;
use super::error::ClientError;
use super::request::RequestBuilder;
use super::uri;

/// A WebSocket that a client has opened, over whatever filters its connection has, such as TLS.
pub type WebSocketChannel = Channel<DynOver<WebSocket>>;

/// The opening of a WebSocket: a URI, fields, subprotocols, and limits.
///
/// The connection goes the way of any request of the client: addresses, TLS, deadlines and proxies are those of its
/// [builder](crate::ClientBuilder). Through an HTTP proxy it is a tunnel (CONNECT), with `ws` as with `wss` (RFC 6455
/// §4.1). Redirects are not followed. An open WebSocket no longer counts among the connections of the client.
///
/// A mistake in a step is the error of [`open`](Self::open).
///
/// ```
/// use tidegate::http::{Client, Router, Server, WebSocketUpgrade};
/// use tidegate::websocket::Message;
/// use tidegate::{Backend, EventLoop};
///
/// let router = || {
///     Router::new().get("/ws", |upgrade: WebSocketUpgrade| {
///         upgrade.protocols(&["tide"]).channel(async |mut channel| {
///             while let Some(message) = channel.recv().await? {
///                 channel.send(message)?;
///             }
///             Ok::<_, Box<dyn std::error::Error>>(())
///         })
///     })
/// };
/// let server = Server::bind("127.0.0.1:0")?.start(router)?;
/// let uri = format!("ws://{}/ws", server.address());
/// EventLoop::on(Backend::Auto)?.block_on(async move {
///     let (mut channel, protocol) = Client::new().websocket(&uri).protocol("tide").open_with_protocol().await?;
///     assert_eq!(protocol.as_deref(), Some("tide"));
///     channel.send("ebb".into())?;
///     let Some(Message::Text(text)) = channel.recv().await? else { return Err("no text".into()) };
///     assert_eq!(text, "ebb");
///     Ok::<_, Box<dyn std::error::Error>>(())
/// })??;
/// # server.drain(std::time::Duration::ZERO);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "a WebSocket does nothing until it is opened"]
pub struct WebSocketBuilder {
    request: RequestBuilder,
    config: Arc<Config>,
    protocols: Vec<String>,
}

impl WebSocketBuilder {
    pub(super) fn new(client: Rc<ClientCore>, text: &str) -> Self {
        let uri = uri::parse_uri(text).and_then(uri_of_http);
        let request = RequestBuilder::of_uri(client, Method::GET, uri).redirects(false).through_tunnel();
        Self { request, config: Arc::default(), protocols: Vec::new() }
    }

    fn change(mut self, change: impl FnOnce(RequestBuilder) -> RequestBuilder) -> Self {
        self.request = change(self.request);
        self
    }

    /// The limits of the connection, its pings, and compression, which is offered if the configuration has it;
    /// connections share them.
    pub fn config(mut self, config: &Arc<Config>) -> Self {
        self.config = config.clone();
        self
    }

    /// Offers a subprotocol, after those before in preference.
    pub fn protocol(mut self, protocol: impl Into<String>) -> Self {
        self.protocols.push(protocol.into());
        self
    }

    /// Adds a field to the request, as [`RequestBuilder::header`]. The fields of the handshake itself are errors.
    pub fn header(self, name: impl AsRef<str>, value: impl AsRef<[u8]>) -> Self {
        self.change(|request| request.header(name, value))
    }

    /// The value of `Host` in the place of the host of the URI.
    pub fn host(self, host: impl Into<String>) -> Self {
        self.change(|request| request.host(host))
    }

    /// Connects to this address in the place of the host of the URI, as [`RequestBuilder::at`].
    pub fn at(self, address: impl Into<Address>) -> Self {
        self.change(|request| request.at(address))
    }

    /// A name and a password (RFC 7617).
    pub fn basic_auth(self, name: &str, password: &str) -> Self {
        self.change(|request| request.basic_auth(name, password))
    }

    /// A bearer token (RFC 6750).
    pub fn bearer_auth(self, token: &str) -> Self {
        self.change(|request| request.bearer_auth(token))
    }

    /// How long opening may take, from now to the response of the server, in the place of
    /// [`request_timeout`](crate::ClientLimits::request_timeout). The default has no such limit: those of each
    /// step stop a server that does not answer.
    pub fn timeout(self, timeout: Duration) -> Self {
        self.change(|request| request.timeout(timeout))
    }

    /// Opens the WebSocket. Dropping the future closes the connection.
    ///
    /// # Errors
    /// [`ClientError`]; [`ClientError::WebSocket`] if the server refuses the handshake, or answers it wrongly.
    ///
    /// # Panics
    /// If no event loop runs on this thread.
    pub async fn open(self) -> Result<WebSocketChannel, ClientError> {
        Ok(self.open_with_protocol().await?.0)
    }

    /// The same, with the subprotocol that the server has selected, if it has.
    ///
    /// # Errors
    /// As for [`open`](Self::open).
    ///
    /// # Panics
    /// As for [`open`](Self::open).
    pub async fn open_with_protocol(self) -> Result<(WebSocketChannel, Option<Box<str>>), ClientError> {
        let mut handshake = Handshake::new(self.config);
        for protocol in &self.protocols {
            handshake = handshake.protocol(protocol).map_err(ClientError::WebSocket)?;
        }
        let request = handshake.fields().try_fold(self.request, |request, (name, value)| {
            if request.has_header(name) {
                return Err(ClientError::WebSocket(HandshakeError::Upgrade));
            }
            Ok(request.header(name, value))
        })?;
        let response = request.upgrade("websocket").send().await?;
        let head = response.head();
        let fields = head.headers().filter_map(|(name, value)| Some((str::from_utf8(name).ok()?, value)));
        let completed = handshake.complete(head.status().code(), fields);
        // Dropping the response closes a connection whose server did not answer as it has to.
        let (codec, protocol) = completed.map_err(ClientError::WebSocket)?;
        match response.into_channel(codec) {
            Ok(channel) => Ok((channel, protocol)),
            Err(_) => Err(ClientError::WebSocket(HandshakeError::Upgrade)),
        }
    }
}

impl fmt::Debug for WebSocketBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WebSocketBuilder")
            .field("request", &self.request)
            .field("protocols", &self.protocols)
            .finish_non_exhaustive()
    }
}

/// The URI of the request: `ws` is `http`, and `wss` is `https` (RFC 6455 §3).
fn uri_of_http(uri: Uri) -> Result<Uri, ClientError> {
    let scheme = uri.scheme_str().ok_or(ClientError::Uri)?;
    // A scheme is the same in either case (RFC 3986 §3.1).
    let is_one_of = |names: [&str; 2]| names.iter().any(|name| scheme.eq_ignore_ascii_case(name));
    let scheme = if is_one_of(["ws", "http"]) {
        Scheme::HTTP
    } else if is_one_of(["wss", "https"]) {
        Scheme::HTTPS
    } else {
        return Err(ClientError::Scheme);
    };
    let mut parts = uri.into_parts();
    parts.scheme = Some(scheme);
    parts.path_and_query.get_or_insert_with(|| http::uri::PathAndQuery::from_static("/"));
    Uri::from_parts(parts).map_err(|_| ClientError::Uri)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_uri_of_a_websocket_has_one_of_four_schemes() {
        for (text, expected) in [
            ("ws://sea.example/a?b", "http://sea.example/a?b"),
            ("wss://sea.example:8443", "https://sea.example:8443/"),
            ("WSS://user:word@[::1]/", "https://user:word@[::1]/"),
            ("http://sea.example/", "http://sea.example/"),
        ] {
            let uri = text.parse().map_err(|_| ClientError::Uri).and_then(uri_of_http).expect(text);
            assert_eq!(uri.to_string(), expected, "{text}");
        }
        for text in ["ftp://sea.example/", "/ws", "sea.example"] {
            let uri = text.parse().map_err(|_| ClientError::Uri).and_then(uri_of_http);
            assert!(matches!(uri, Err(ClientError::Scheme | ClientError::Uri)), "{text}");
        }
    }
}
