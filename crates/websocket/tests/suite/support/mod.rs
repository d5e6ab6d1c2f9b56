//! Frames byte by byte, independent of the codec.

use std::sync::Arc;

use tidegate_codec::{Codec, Output};
use tidegate_websocket::{Config, Deflate, Message, Parameters, WebSocket};

pub(crate) const CONTINUATION: u8 = 0;
pub(crate) const TEXT: u8 = 1;
pub(crate) const BINARY: u8 = 2;
pub(crate) const CLOSE: u8 = 8;
pub(crate) const PING: u8 = 9;
pub(crate) const PONG: u8 = 10;
/// The bits of a first byte.
pub(crate) const FIN: u8 = 0x80;
pub(crate) const RSV1: u8 = 0x40;

const KEY: [u8; 4] = [0x37, 0xFA, 0x21, 0x3D];

/// A frame with this first byte.
pub(crate) fn frame(first: u8, payload: &[u8], is_masked: bool) -> Vec<u8> {
    let mut bytes = vec![first];
    let bit = if is_masked { 0x80 } else { 0 };
    match payload.len() {
        length @ 0..=125 => bytes.push(bit | length as u8),
        length @ 126..=65_535 => {
            bytes.push(bit | 126);
            bytes.extend_from_slice(&(length as u16).to_be_bytes());
        }
        length => {
            bytes.push(bit | 127);
            bytes.extend_from_slice(&(length as u64).to_be_bytes());
        }
    }
    if is_masked {
        bytes.extend_from_slice(&KEY);
        bytes.extend(payload.iter().zip(KEY.iter().cycle()).map(|(byte, key)| byte ^ key));
    } else {
        bytes.extend_from_slice(payload);
    }
    bytes
}

/// A frame of a client.
pub(crate) fn masked(first: u8, payload: &[u8]) -> Vec<u8> {
    frame(first, payload, true)
}

/// A frame of a server.
pub(crate) fn plain(first: u8, payload: &[u8]) -> Vec<u8> {
    frame(first, payload, false)
}

/// A close frame's payload.
pub(crate) fn code(code: u16, reason: &str) -> Vec<u8> {
    [&code.to_be_bytes(), reason.as_bytes()].concat()
}

/// The frames in these bytes, as `first byte, payload`, unmasked.
pub(crate) fn frames(mut bytes: &[u8]) -> Vec<(u8, Vec<u8>)> {
    let mut frames = Vec::new();
    while let [first, second, rest @ ..] = bytes {
        let (length, rest) = match second & 0x7F {
            126 => (u16::from_be_bytes(rest[..2].try_into().unwrap()) as usize, &rest[2..]),
            127 => (u64::from_be_bytes(rest[..8].try_into().unwrap()) as usize, &rest[8..]),
            short => (short as usize, rest),
        };
        let (key, rest) = if second & 0x80 == 0 { (&[0; 4][..], rest) } else { rest.split_at(4) };
        let payload = rest[..length].iter().zip(key.iter().cycle()).map(|(byte, key)| byte ^ key).collect();
        frames.push((*first, payload));
        bytes = &rest[length..];
    }
    assert!(bytes.is_empty(), "the bytes end within a frame");
    frames
}

/// Replies without their masks, which are random.
pub(crate) fn unmasked(bytes: &[u8]) -> Vec<u8> {
    frames(bytes).iter().flat_map(|(first, payload)| plain(*first, payload)).collect()
}

pub(crate) fn config() -> Config {
    Config::default()
}

pub(crate) fn server() -> WebSocket {
    WebSocket::server(Arc::new(config()), None)
}

pub(crate) fn client() -> WebSocket {
    WebSocket::client(Arc::new(config()), None)
}

/// A configuration that compresses everything.
pub(crate) fn deflating() -> Config {
    let mut deflate = Deflate::default();
    deflate.compress_bytes_min = 0;
    let mut config = config();
    config.deflate = Some(deflate);
    config
}

/// The agreed parameters of a handshake of two such sides.
pub(crate) fn without_takeover() -> Parameters {
    Parameters { server_no_context_takeover: true, client_no_context_takeover: true, ..Parameters::default() }
}

/// Sends every message back.
pub(crate) fn echo(message: Message, codec: &mut WebSocket, out: &mut Output<'_>) {
    match message {
        Message::Ping(_) | Message::Pong(_) | Message::Close(_) => {}
        message => codec.encode(message, out).expect("a received message may be sent"),
    }
}
