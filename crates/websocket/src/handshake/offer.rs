//! `Offer`: a client's request as a server sees it, and the server's answer.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::extensions::{self, ExtensionParameters};
use super::fields::{has_token, list, token};
use super::{HandshakeError, VERSION, accept_value};
use crate::codec::WebSocket;
use crate::config::Config;
use crate::permessage_deflate::Parameters;

/// A client's offer in its request; empty by default.
///
/// ```
/// use std::sync::Arc;
/// use tidegate::websocket::Config;
/// use tidegate::websocket::handshake::Offer;
///
/// let fields: [(&str, &[u8]); 5] = [
///     ("Connection", b"Upgrade"),
///     ("Upgrade", b"websocket"),
///     ("Sec-WebSocket-Version", b"13"),
///     ("Sec-WebSocket-Key", b"dGhlIHNhbXBsZSBub25jZQ=="),
///     ("Sec-WebSocket-Protocol", b"chat, telemetry"),
/// ];
/// let offer = Offer::of_upgrade("GET", fields)?;
/// let protocol = offer.select(&["telemetry", "tide"]);
/// let accepted = offer.accept(&Arc::new(Config::default()), protocol);
/// let mut fields = accepted.fields();
/// assert_eq!(fields.next(), Some(("Sec-WebSocket-Accept", "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=")));
/// assert_eq!(fields.next(), Some(("Sec-WebSocket-Protocol", "telemetry")));
/// let codec = accepted.codec();
/// # drop((fields, codec));
/// # Ok::<(), tidegate::websocket::handshake::HandshakeError>(())
/// ```
#[derive(Debug, Clone, Default)]
pub struct Offer {
    /// `None` over HTTP/2, which has no key.
    key: Option<Box<[u8]>>,
    protocols: Vec<Box<str>>,
    origin: Option<Box<[u8]>>,
    deflate: Vec<ExtensionParameters>,
}

impl Offer {
    /// The offer of an HTTP/1.1 request, with its fields in order.
    ///
    /// # Errors
    /// [`HandshakeError`], whose [`status`](HandshakeError::status) the response has.
    pub fn of_upgrade<'a>(
        method: &str,
        fields: impl IntoIterator<Item = (&'a str, &'a [u8])>,
    ) -> Result<Self, HandshakeError> {
        let mut parser = Parser::default();
        for (name, value) in fields {
            parser.field(name, value)?;
        }
        if method != "GET" {
            return Err(HandshakeError::Method);
        }
        if !parser.has_upgrade || !parser.has_connection {
            return Err(HandshakeError::Upgrade);
        }
        if parser.version.as_deref() != Some(VERSION.as_bytes()) {
            return Err(HandshakeError::Version);
        }
        let is_key = |key: &[u8]| STANDARD.decode(key).is_ok_and(|bytes| bytes.len() == KEY_BYTES);
        if !parser.offer.key.as_deref().is_some_and(is_key) {
            return Err(HandshakeError::Key);
        }
        Ok(parser.offer)
    }

    /// The offer of an HTTP/2 extended CONNECT (RFC 8441) with `:protocol` `websocket`.
    ///
    /// # Errors
    /// [`HandshakeError`].
    pub fn of_extended_connect<'a>(
        fields: impl IntoIterator<Item = (&'a str, &'a [u8])>,
    ) -> Result<Self, HandshakeError> {
        let mut parser = Parser::default();
        for (name, value) in fields {
            parser.field(name, value)?;
        }
        if parser.version.as_deref() != Some(VERSION.as_bytes()) {
            return Err(HandshakeError::Version);
        }
        parser.offer.key = None;
        Ok(parser.offer)
    }

    /// The subprotocols that the client offers, in its order of preference.
    pub fn protocols(&self) -> impl Iterator<Item = &str> {
        self.protocols.iter().map(|protocol| &**protocol)
    }

    /// The first of these subprotocols that the client offers.
    #[must_use]
    pub fn select<'p>(&self, supported: &[&'p str]) -> Option<&'p str> {
        supported.iter().find(|supported| self.protocols().any(|offered| offered == **supported)).copied()
    }

    /// The `Origin` of the request: the site whose script opens the connection. A browser sends it, and it is the only
    /// protection from scripts of other sites, which connect with the cookies of the user. A client that is no browser
    /// may send none, or a wrong one.
    #[must_use]
    pub fn origin(&self) -> Option<&[u8]> {
        self.origin.as_deref()
    }

    /// Accepts the offer with a subprotocol of it, or with none. One that the client does not offer is left out, since a
    /// client would end the connection.
    #[must_use]
    pub fn accept(&self, config: &Arc<Config>, protocol: Option<&str>) -> OfferResponse {
        let deflate = config.deflate.as_ref().and_then(|settings| extensions::answer(&self.deflate, settings));
        OfferResponse {
            accept: self.key.as_deref().map(accept_value),
            protocol: protocol.filter(|chosen| self.protocols().any(|offered| offered == *chosen)).map(Into::into),
            deflate,
            config: config.clone(),
        }
    }
}

/// The answer of a server.
#[derive(Debug, Clone)]
pub struct OfferResponse {
    accept: Option<String>,
    protocol: Option<Box<str>>,
    deflate: Option<(Parameters, String)>,
    config: Arc<Config>,
}

impl OfferResponse {
    /// The fields of the response, beside those of any upgrade.
    pub fn fields(&self) -> impl Iterator<Item = (&'static str, &str)> {
        let accept = self.accept.as_deref().map(|value| ("Sec-WebSocket-Accept", value));
        let protocol = self.protocol.as_deref().map(|value| ("Sec-WebSocket-Protocol", value));
        let extensions = self.deflate.as_ref().map(|(_, value)| ("Sec-WebSocket-Extensions", &**value));
        [accept, protocol, extensions].into_iter().flatten()
    }

    /// The subprotocol.
    #[must_use]
    pub fn protocol(&self) -> Option<&str> {
        self.protocol.as_deref()
    }

    /// The codec of the connection.
    #[must_use]
    pub fn codec(&self) -> WebSocket {
        WebSocket::server(self.config.clone(), self.deflate.as_ref().map(|(agreed, _)| *agreed))
    }
}

#[derive(Default)]
struct Parser {
    has_upgrade: bool,
    has_connection: bool,
    version: Option<Box<[u8]>>,
    offer: Offer,
}

impl Parser {
    fn field(&mut self, name: &str, value: &[u8]) -> Result<(), HandshakeError> {
        let is = |known: &str| name.eq_ignore_ascii_case(known);
        if is("upgrade") {
            self.has_upgrade |= has_token(value, "websocket");
        } else if is("connection") {
            self.has_connection |= has_token(value, "upgrade");
        } else if is("sec-websocket-version") {
            if self.version.replace(value.trim_ascii().into()).is_some() {
                return Err(HandshakeError::Version);
            }
        } else if is("sec-websocket-key") {
            if self.offer.key.replace(value.trim_ascii().into()).is_some() {
                return Err(HandshakeError::Key);
            }
        } else if is("origin") {
            if self.offer.origin.replace(value.trim_ascii().into()).is_some() {
                return Err(HandshakeError::Origin);
            }
        } else if is("sec-websocket-protocol") {
            for element in list(value) {
                let protocol = token(element).ok_or(HandshakeError::Protocol)?;
                if self.offer.protocols().any(|known| known == protocol) {
                    return Err(HandshakeError::Protocol);
                }
                if self.offer.protocols.len() == PROTOCOLS_MAX {
                    return Err(HandshakeError::Protocol);
                }
                self.offer.protocols.push(protocol.into());
            }
        } else if is("sec-websocket-extensions") {
            let left = OFFERS_MAX - self.offer.deflate.len();
            self.offer.deflate.extend(extensions::offers(value).take(left));
        }
        Ok(())
    }
}

/// The bytes of a key.
pub(super) const KEY_BYTES: usize = 16;

/// How many subprotocols a client may offer.
const PROTOCOLS_MAX: usize = 32;

/// How many offers of permessage-deflate are considered.
const OFFERS_MAX: usize = 8;
