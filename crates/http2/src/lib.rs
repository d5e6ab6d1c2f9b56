//! HTTP/2 (RFC 9113, RFC 7541) for servers and clients, free of I/O.
//!
//! [`Connection`] is a [`Mux`](tidegate_codec::mux::Mux): it decodes frames into the events of streams, and writes what
//! streams have to send, by priority (RFC 9218) and within the windows of the peer. [`ServerStream`] and [`ClientStream`]
//! are the codecs of one stream: their messages are those of [`tidegate_http1`], so an application is the same over both
//! versions.
//! [`hpack`] is the compression of fields, which has a use of its own.
//!
//! A head is decoded once, into one block of text, and read in place. The checks of RFC 9113 §8 come before, those of
//! HTTP/1.1 after, so a message is refused by one version if it is by the other.
//!
//! Every limit has a default that protects; [`Limits`] names the attack that each stops.
//!
//! Read next: `connection.rs`, then `inbound.rs` for what each frame does, `field_block.rs` and `head.rs` for heads,
//! `outbound.rs` for what is written, and `record.rs` for what lies between a connection and its streams.

#![forbid(unsafe_code)]

mod abuse_bucket;
mod client_stream;
mod connection;
mod error;
mod field_block;
mod frame;
mod head;
pub mod hpack;
mod inbound;
mod keep_alive;
mod limits;
mod outbound;
mod priority;
mod recently_reset;
mod record;
mod server_stream;
mod stream_state;
mod tunnel;

pub use client_stream::ClientStream;
pub use connection::Connection;
pub use error::{Error, Exceeded, Violation};
pub use frame::ErrorCode;
pub use limits::{Config, HEAD_BYTES_CEILING, Limits};
pub use server_stream::ServerStream;
pub use stream_state::StreamState;
pub use tunnel::Tunnel;
