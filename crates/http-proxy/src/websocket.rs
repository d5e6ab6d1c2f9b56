//! `Handshake`: a WebSocket or a tunnel of capsules that an HTTP/2 client opens by an extended CONNECT (RFC 8441), for an HTTP/1.1
//! upstream; and [`answer_to`], for the opposite.
//!
//! The bytes of a tunnel of capsules (RFC 9297), such as one of UDP (RFC 9298), are the same over all versions, and its handshake
//! has no fields of one version alone. Datagrams are those of QUIC on each side that has them
//! (`tidegate_http::gateway::CapsuleRelayTunnel`).
//!
//! In HTTP/1.1 a GET asks for the same by `Upgrade`, with a key that the response has to answer (RFC 6455 §4.1). The proxy
//! chooses the key and checks the answer, or answers that of the client; the rest of the handshake, such as subprotocols and
//! extensions, is between the ends.

#[cfg(feature = "websocket")]
use std::sync::Arc;

use tidegate_http1::{Fields, Method, RequestHead, ResponseHead};
#[cfg(feature = "websocket")]
use tidegate_websocket::handshake::{Request, accept_value};

use super::fields;

/// The handshake of a protocol that both extended CONNECT and `Upgrade` ask for.
#[derive(Debug)]
pub(super) struct Handshake {
    protocol: &'static str,
    /// The part that the WebSocket handshake of HTTP/1.1 alone has.
    key: Option<HandshakeKey>,
}

/// A key, and the answer that accepts it.
#[derive(Debug)]
struct HandshakeKey {
    key: String,
    accept: String,
}

impl Handshake {
    /// The protocol that the value of `:protocol` names, and of `Upgrade` (RFC 8441 §5).
    pub(super) const WEBSOCKET: &str = "websocket";

    /// The handshake of a protocol, with a key of its own; `None` if the proxy does not know how HTTP/1.1 asks for the protocol
    /// (RFC 9220 §3), and for a WebSocket in a build without it.
    pub(super) fn of(protocol: &str) -> Option<Self> {
        if protocol == Self::WEBSOCKET {
            return Some(Self { protocol: Self::WEBSOCKET, key: Some(HandshakeKey::new()?) });
        }
        let protocol = CAPSULE_PROTOCOLS.into_iter().find(|known| *known == protocol)?;
        Some(Self { protocol, key: None })
    }

    /// The protocol.
    pub(super) fn protocol(&self) -> &'static str {
        self.protocol
    }

    /// The name of a protocol on a stream: the value of `:protocol` is compared as it is by some servers.
    pub(super) fn name_on_streams(protocol: &str) -> &str {
        let mut known = CAPSULE_PROTOCOLS.into_iter().chain([Self::WEBSOCKET]);
        known.find(|known| known.eq_ignore_ascii_case(protocol)).unwrap_or(protocol)
    }

    /// Whether an HTTP/1.1 request for this protocol becomes an extended CONNECT without any other change.
    pub(super) fn has_capsules(protocol: &str) -> bool {
        CAPSULE_PROTOCOLS.iter().any(|known| known.eq_ignore_ascii_case(protocol))
    }

    /// Adds the key to the fields of a request.
    pub(super) fn add(&self, fields: &mut Fields) {
        if let Some(HandshakeKey { key, .. }) = &self.key {
            fields::push(fields, KEY.as_bytes(), key.as_bytes());
        }
    }

    /// Adds the answer to the key of a client to the fields of a response.
    pub(super) fn add_answer(fields: &mut Fields, answer: &str) {
        fields::push(fields, ACCEPT.as_bytes(), answer.as_bytes());
    }

    /// Whether a response has the answer to the key, once, if there is a key.
    pub(super) fn is_accepted_by(&self, head: &ResponseHead) -> bool {
        let Some(HandshakeKey { accept, .. }) = &self.key else { return true };
        let mut answers = head.headers().filter(|(name, _)| Self::has(name));
        answers.next().is_some_and(|(_, value)| value.trim_ascii() == accept.as_bytes()) && answers.next().is_none()
    }

    /// Whether a field belongs to the HTTP/1.1 handshake alone, so that HTTP/2 does not have it.
    pub(super) fn has(name: &[u8]) -> bool {
        [KEY, ACCEPT].iter().any(|known| fields::is_same(known.as_bytes(), name))
    }
}

impl HandshakeKey {
    #[cfg(feature = "websocket")]
    fn new() -> Option<Self> {
        let request = Request::new(Arc::default());
        let (_, key) = request.fields().find(|(name, _)| name.eq_ignore_ascii_case(KEY))?;
        Some(Self { key: key.to_owned(), accept: accept_value(key.as_bytes()) })
    }

    #[cfg(not(feature = "websocket"))]
    fn new() -> Option<Self> {
        None
    }
}

/// The answer to the key of an HTTP/1.1 client that asks for a WebSocket, whose upstream gets an extended CONNECT.
/// `None` if the handshake is not one of RFC 6455 §4.1, or in a build without WebSocket: there is exactly one key, of
/// 16 bytes in base64.
pub(super) fn answer_to(head: &RequestHead) -> Option<String> {
    let mut keys = head.headers().filter(|(name, _)| name.eq_ignore_ascii_case(KEY.as_bytes()));
    let (key, is_only) = (keys.next()?.1.trim_ascii(), keys.next().is_none());
    (is_only && head.method() == Method::Get).then_some(key).and_then(accept)
}

#[cfg(feature = "websocket")]
fn accept(key: &[u8]) -> Option<String> {
    let is_encoded = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/');
    let digits = key.strip_suffix(b"==")?;
    (digits.len() == 22 && digits.iter().all(is_encoded)).then(|| accept_value(key))
}

#[cfg(not(feature = "websocket"))]
fn accept(_: &[u8]) -> Option<String> {
    None
}

/// Protocols of capsules that HTTP/1.1 asks for by a GET with `Upgrade` (RFC 9298 §3.2, RFC 9484 §4.3).
const CAPSULE_PROTOCOLS: [&str; 2] = ["connect-udp", "connect-ip"];
const KEY: &str = "Sec-WebSocket-Key";
const ACCEPT: &str = "Sec-WebSocket-Accept";
