//! HTTP/2 (RFC 9113, RFC 7541) for servers and clients, free of I/O.
//!
//! [`Connection`] is a [`Mux`](tidegate_codec::mux::Mux): it decodes frames into the events of streams, and writes the
//! streams' output, by priority (RFC 9218) and within the windows of the peer. [`ServerStream`] and [`ClientStream`]
//! are the codecs of one stream: their messages are those of [`tidegate_http1`], so an application is the same over
//! both versions. [`hpack`] is the compression of fields, which has a use of its own.
//!
//! A head is decoded once, into one block of text, and read in place. The checks of RFC 9113 §8 come before, the
//! HTTP/1.1 checks after, so a message is refused by one version if it is by the other.
//!
//! Every limit has a default that protects; [`Limits`] names the attack that each stops.
//!
//! Read next: `connection.rs`, then `inbound.rs` for received frames, `field_block.rs` for heads, `outbound.rs` for
//! sent ones. The crate `http-stream` has the parts that HTTP/3 shares: the text of heads (`head.rs`), the codecs of streams, and
//! the records between a connection and its streams (`record.rs`).
//!
//! # Files
//!
//! | file | holds |
//! |---|---|
//! | `connection.rs` | `Connection`, the codec of a connection in either role: phases, settings, drain, deadlines |
//! | `inbound.rs` | the effect of each received frame |
//! | `field_block.rs` | field blocks: HEADERS and CONTINUATION, requests, responses, trailers; heads that come again (decision 100) |
//! | `partial_block.rs` | a field block between its frames |
//! | `outbound.rs` | the output of streams; repeated heads (decision 90) |
//! | `stream_state.rs` | per-stream state of a connection |
//! | `hpack/` | the compression of fields: `Decoder`, `Encoder`, the tables (`static_table.rs`, `table.rs`) |
//! | `keep_alive.rs` | `KeepAlive`: PINGs to a silent peer |
//! | `recently_reset.rs` | streams that are over on this side alone: late frames, and a deferred RST_STREAM |
//! | `frame.rs` | heads, types and flags of frames; `ErrorCode` |
//! | `limits.rs` | limits, and the configuration that connections share |
//! | `error.rs` | errors by blame, and the code of each |

#![forbid(unsafe_code)]

mod connection;
mod error;
mod field_block;
mod frame;
pub mod hpack;
mod inbound;
mod keep_alive;
mod limits;
mod outbound;
mod partial_block;
mod recently_reset;
mod stream_state;

pub use connection::Connection;
pub use error::{Error, Exceeded, Violation};
pub use frame::ErrorCode;
pub use limits::{Config, Limits};
pub use stream_state::StreamState;
pub use tidegate_http_stream::{ClientStream, HEAD_BYTES_CEILING, ServerStream, Tunnel};
