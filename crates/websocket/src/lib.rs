//! WebSocket (RFC 6455) with permessage-deflate (RFC 7692), free of I/O, in both roles.
//!
//! | for | there is |
//! |---|---|
//! | the connection after its handshake | [`WebSocket`], a codec of [`Message`]s |
//! | limits, pings, compression | [`Config`] and [`Deflate`] |
//! | the handshake of a server | [`handshake::Offer`]: the request's offer, and the fields of the response |
//! | the handshake of a client | [`handshake::Request`]: the fields of the request, and the check of the response |
//! | peers that send too many messages | [`MessageRate`] |
//! | many connections that get the same message | [`WebSocket`] is a [`Broadcast`](tidegate_codec::Broadcast): encoded once, compressed once |
//!
//! A message is unmasked where it was received, and yielded as a view of those bytes if it came in one frame. Text is
//! checked as it arrives, so invalid text closes the connection before its end. A frame that is too long is refused by
//! its header. A peer that breaks the protocol gets a close frame with the code for it.
//!
//! Read next: `codec.rs`, the state of a connection and its inbound half; then `encode.rs`, `frame.rs` and
//! `permessage_deflate.rs`.
//!
//! # Files
//!
//! | file | holds |
//! |---|---|
//! | `codec.rs` | `WebSocket`, the codec: the state of a connection, and its inbound half |
//! | `encode.rs` | the outbound half; messages for many connections, in both forms |
//! | `frame.rs` | headers of frames |
//! | `mask.rs` | masking, and the keys of a client |
//! | `utf8.rs` | whether text is UTF-8, as it arrives |
//! | `partial.rs` | a message that is fragmented, compressed or yielded in pieces, in its middle |
//! | `permessage_deflate.rs` | the parameters of compression, and the contexts of a connection |
//! | `role.rs` | `Role`: the side of a connection |
//! | `message.rs` | `Message`, `Text`, `Piece` |
//! | `rate.rs` | `MessageRate`: how many messages a peer may send |
//! | `close.rs` | `Close`, `CloseCode` |
//! | `config.rs` | `Config`, `Deflate`: limits, pings, compression |
//! | `handshake/` | the opening handshake without HTTP: a server's (`offer.rs`), a client's (`request.rs`), negotiation (`extensions.rs`), lists in fields (`fields.rs`) |
//! | `error.rs` | errors by blame, and the close code of each |

#![forbid(unsafe_code)]

mod close;
mod codec;
mod config;
mod encode;
mod error;
mod frame;
pub mod handshake;
mod mask;
mod message;
mod partial;
mod permessage_deflate;
mod rate;
mod role;
mod utf8;

pub use close::{Close, CloseCode};
pub use codec::WebSocket;
pub use config::{Config, Deflate};
pub use error::{Error, Exceeded, Misuse, Violation};
pub use message::{Kind, Message, Piece, Text};
pub use permessage_deflate::Parameters;
pub use rate::MessageRate;
pub use role::Role;
