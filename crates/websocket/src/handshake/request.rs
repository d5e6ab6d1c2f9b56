//! `Request`: the request of a client, and the check of the response.

use std::hash::{BuildHasher as _, RandomState};
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::extensions;
use super::fields::{has_token, token};
use super::offer::KEY_BYTES;
use super::{HandshakeError, VERSION, accept_value};
use crate::codec::WebSocket;
use crate::config::Config;

/// A client's request: its fields, and the response that it expects.
///
/// ```
/// use std::sync::Arc;
/// use tidegate::websocket::Config;
/// use tidegate::websocket::handshake::{Request, accept_value};
///
/// let request = Request::new(Arc::new(Config::default())).protocol("telemetry")?;
/// let key = request.fields().find(|(name, _)| *name == "Sec-WebSocket-Key").expect("it has a key").1;
///
/// let accept = accept_value(key.as_bytes());
/// let response: [(&str, &[u8]); 4] = [
///     ("Connection", b"upgrade"),
///     ("Upgrade", b"WebSocket"),
///     ("Sec-WebSocket-Accept", accept.as_bytes()),
///     ("Sec-WebSocket-Protocol", b"telemetry"),
/// ];
/// let (codec, protocol) = request.complete(101, response)?;
/// assert_eq!(protocol.as_deref(), Some("telemetry"));
/// # drop(codec);
/// # Ok::<(), tidegate::websocket::handshake::HandshakeError>(())
/// ```
#[derive(Debug, Clone)]
pub struct Request {
    key: String,
    protocols: String,
    extensions: Option<String>,
    config: Arc<Config>,
}

impl Request {
    /// A request with a new key, which offers compression if the configuration has it.
    #[must_use]
    pub fn new(config: Arc<Config>) -> Self {
        // The key prevents that a cache or a server of another protocol answers; it is no secret (RFC 6455 §1.3).
        let random = RandomState::new();
        let halves = [random.hash_one(0).to_ne_bytes(), random.hash_one(1).to_ne_bytes()];
        const { assert!(size_of::<[[u8; 8]; 2]>() == KEY_BYTES) };
        let extensions = config.deflate.as_ref().map(extensions::offer);
        Self { key: STANDARD.encode(halves.as_flattened()), protocols: String::new(), extensions, config }
    }

    /// Offers a subprotocol, after those before in preference.
    ///
    /// # Errors
    /// [`HandshakeError::Protocol`] if it is no token, or is offered already.
    pub fn protocol(mut self, protocol: &str) -> Result<Self, HandshakeError> {
        if token(protocol.as_bytes()).is_none() || self.offers(protocol) {
            return Err(HandshakeError::Protocol);
        }
        if !self.protocols.is_empty() {
            self.protocols.push_str(", ");
        }
        self.protocols.push_str(protocol);
        Ok(self)
    }

    fn offers(&self, protocol: &str) -> bool {
        self.protocols.split(", ").any(|offered| offered == protocol)
    }

    /// The fields of the request, beside those of any upgrade: `Connection` and `Upgrade`.
    pub fn fields(&self) -> impl Iterator<Item = (&'static str, &str)> {
        let always = [("Sec-WebSocket-Version", VERSION), ("Sec-WebSocket-Key", &*self.key)];
        let protocols = (!self.protocols.is_empty()).then_some(("Sec-WebSocket-Protocol", &*self.protocols));
        let extensions = self.extensions.as_deref().map(|value| ("Sec-WebSocket-Extensions", value));
        always.into_iter().chain(protocols).chain(extensions)
    }

    /// Checks the response, and returns the codec of the connection with the subprotocol.
    ///
    /// # Errors
    /// [`HandshakeError`]: the connection has to be closed.
    pub fn complete<'a>(
        &self,
        status: u16,
        fields: impl IntoIterator<Item = (&'a str, &'a [u8])>,
    ) -> Result<(WebSocket, Option<Box<str>>), HandshakeError> {
        if status != 101 {
            return Err(HandshakeError::Status(status));
        }
        let (mut has_upgrade, mut has_connection) = (false, false);
        let (mut accept, mut protocol, mut extensions) = (None, None, Vec::new());
        for (name, value) in fields {
            let is = |known: &str| name.eq_ignore_ascii_case(known);
            if is("upgrade") {
                has_upgrade |= has_token(value, "websocket");
            } else if is("connection") {
                has_connection |= has_token(value, "upgrade");
            } else if is("sec-websocket-accept") {
                if accept.replace(value).is_some() {
                    return Err(HandshakeError::Accept);
                }
            } else if is("sec-websocket-protocol") {
                if protocol.replace(value).is_some() {
                    return Err(HandshakeError::Protocol);
                }
            } else if is("sec-websocket-extensions") {
                extensions.push(value);
            }
        }
        if !has_upgrade || !has_connection {
            return Err(HandshakeError::Upgrade);
        }
        if accept.map(<[u8]>::trim_ascii) != Some(accept_value(self.key.as_bytes()).as_bytes()) {
            return Err(HandshakeError::Accept);
        }
        let protocol = match protocol {
            None => None,
            Some(value) => {
                let selected = token(value.trim_ascii()).filter(|selected| self.offers(selected));
                Some(selected.ok_or(HandshakeError::Protocol)?.into())
            }
        };
        let deflate = extensions::agreed(extensions.into_iter(), self.config.deflate.as_ref())?;
        Ok((WebSocket::client(self.config.clone(), deflate), protocol))
    }
}
