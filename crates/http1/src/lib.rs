//! HTTP/1.1 (RFC 9112) for servers and clients, free of I/O: bytes in, messages out, and the other way round.
//!
//! [`Server`] is a [`Codec`](tidegate_codec::Codec). It yields [`Incoming`] and takes [`Outgoing`]. A request head is
//! parsed once, strictly, into a [`RequestHead`] of 32 bytes: a view of its bytes and a few spans. Fields are read
//! when they are asked for. A [`Response`] is encoded straight into the outbound queue. Neither allocates.
//! [`Client`] is the same seen from the other end: it takes [`client::Outgoing`], a [`Request`] say, and yields
//! [`client::Incoming`], which begins with a [`ResponseHead`].
//!
//! What this crate refuses to do: repair a message. What RFC 9112 leaves open between two readings is an error that
//! closes the connection, because the next hop may read it the other way.
//!
//! On a server one request at a time is under way on a connection. Pipelined requests wait in the input until the response
//! before them is complete, so responses cannot get out of order, and nothing has to be queued for them. A client may have
//! several requests under way, as many as its limits allow.
//!
//! Read next: `server.rs`, the state machine; then `parse.rs` and `body.rs` for what comes in, `encode.rs` for what
//! goes out; and `client.rs` for the other role. `error.rs` says which error tells the peer what.

#![forbid(unsafe_code)]

mod body;
pub mod client;
mod encode;
mod error;
mod fast_path;
mod fields;
mod head;
mod limits;
mod parse;
mod response;
mod runs;
mod server;
mod status;

pub use body::Trailers;
pub use client::{Client, InvalidRequest, Request, ResponseHead, StreamedRequest};
pub use error::{Error, Exceeded, Misuse, Violation};
pub use fields::{Fields, InvalidField};
pub use head::{BodyLength, Headers, Method, RequestHead, Version};
pub use limits::{Config, Limits};
pub use response::{Body, Chunk, ContentType, Interim, Outgoing, Response, StreamedResponse};
pub use server::{Incoming, Server};
pub use status::Status;
