//! `Handshake`: a WebSocket that an HTTP/2 client opens by an extended CONNECT (RFC 8441), for an HTTP/1.1 upstream;
//! and [`answer_to`], for the opposite.
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

/// The part of the handshake that HTTP/1.1 alone has.
#[derive(Debug)]
pub(super) struct Handshake {
    key: String,
    accept: String,
}

impl Handshake {
    /// The protocol that the value of `:protocol` names, and of `Upgrade` (RFC 8441 §5).
    pub(super) const PROTOCOL: &str = "websocket";

    /// A handshake with a key of its own; `None` in a build without WebSocket.
    #[cfg(feature = "websocket")]
    pub(super) fn new() -> Option<Self> {
        let request = Request::new(Arc::default());
        let (_, key) = request.fields().find(|(name, _)| name.eq_ignore_ascii_case(KEY))?;
        Some(Self { key: key.to_owned(), accept: accept_value(key.as_bytes()) })
    }

    #[cfg(not(feature = "websocket"))]
    pub(super) fn new() -> Option<Self> {
        None
    }

    /// Adds the key to the fields of a request.
    pub(super) fn add(&self, fields: &mut Fields) {
        fields::push(fields, KEY.as_bytes(), self.key.as_bytes());
    }

    /// Adds the answer to the key of a client to the fields of a response.
    pub(super) fn add_answer(fields: &mut Fields, answer: &str) {
        fields::push(fields, ACCEPT.as_bytes(), answer.as_bytes());
    }

    /// Whether a response has the answer to the key, once.
    pub(super) fn is_accepted_by(&self, head: &ResponseHead) -> bool {
        let mut answers = head.headers().filter(|(name, _)| Self::has(name));
        answers.next().is_some_and(|(_, value)| value.trim_ascii() == self.accept.as_bytes())
            && answers.next().is_none()
    }

    /// Whether a field belongs to the HTTP/1.1 handshake alone, so that HTTP/2 does not have it.
    pub(super) fn has(name: &[u8]) -> bool {
        [KEY, ACCEPT].iter().any(|known| fields::is_same(known.as_bytes(), name))
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

const KEY: &str = "Sec-WebSocket-Key";
const ACCEPT: &str = "Sec-WebSocket-Accept";
