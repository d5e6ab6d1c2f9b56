//! The opening handshake (RFC 6455 §4), free of I/O and of any HTTP: fields in, fields out.
//!
//! | for | there is |
//! |---|---|
//! | a server | [`Offer`], made of the request; [`OfferResponse`], the fields of the response and the codec |
//! | a client | [`Request`], the fields of the request, and the check of the response |
//!
//! The check of an `Origin` is that of the application: [`Offer::origin`] has it.

mod extensions;
mod fields;
mod offer;
mod request;

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use sha1::{Digest as _, Sha1};

pub use self::offer::{Offer, OfferResponse};
pub use self::request::Request;

/// The value of `Sec-WebSocket-Accept` for a `Sec-WebSocket-Key`.
///
/// ```
/// use tidegate::websocket::handshake;
///
/// assert_eq!(handshake::accept_value(b"dGhlIHNhbXBsZSBub25jZQ=="), "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
/// ```
#[must_use]
pub fn accept_value(key: &[u8]) -> String {
    let mut hash = Sha1::new();
    hash.update(key);
    hash.update(GUID);
    STANDARD.encode(hash.finalize())
}

/// Why a handshake fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum HandshakeError {
    /// The method of the request is not GET.
    Method,
    /// The request does not ask for an upgrade to WebSocket, or the response does not grant it.
    Upgrade,
    /// The version is not 13; a server replies 426 with `Sec-WebSocket-Version: 13`.
    Version,
    /// The key is missing, repeated or not 16 bytes in base64.
    Key,
    /// There is more than one `Origin`, of which a check and the application might see different ones (RFC 6454 §7.3).
    Origin,
    /// The response does not have the value that belongs to the key.
    Accept,
    /// A field with subprotocols is malformed, or the response selects one that the request does not offer.
    Protocol,
    /// The response has an extension that the request does not offer, or invalid parameters.
    Extension,
    /// The status of the response is not 101.
    Status(u16),
}

impl HandshakeError {
    /// The status of a server's response to such a request.
    #[must_use]
    pub fn status(self) -> u16 {
        match self {
            Self::Method => 405,
            Self::Version | Self::Upgrade => 426,
            _ => 400,
        }
    }
}

impl fmt::Display for HandshakeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Method => "the method of a WebSocket handshake is not GET",
            Self::Upgrade => "the fields of an upgrade to WebSocket are missing",
            Self::Version => "the WebSocket version is not 13",
            Self::Key => "the WebSocket key is not 16 bytes in base64",
            Self::Origin => "the WebSocket handshake has more than one Origin",
            Self::Accept => "the WebSocket server did not answer to the key",
            Self::Protocol => "a WebSocket subprotocol is malformed, or was not offered",
            Self::Extension => "a WebSocket extension was not offered, or has invalid parameters",
            Self::Status(status) => return write!(f, "the WebSocket server replied with the status {status}"),
        })
    }
}

impl std::error::Error for HandshakeError {}

const GUID: &[u8] = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11";

/// The version of RFC 6455.
pub const VERSION: &str = "13";
