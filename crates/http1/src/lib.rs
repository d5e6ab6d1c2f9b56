//! HTTP/1.1 (RFC 9112) for servers and clients, free of I/O: it decodes bytes into messages, and encodes messages.
//!
//! [`Server`] is a [`Codec`](tidegate_codec::Codec). It yields [`Incoming`] and takes [`Outgoing`]. A request head is
//! parsed once, strictly, into a [`RequestHead`] of 32 bytes: a view of its bytes and a few spans. Fields are looked up
//! on demand. A [`Response`] is encoded straight into the outbound queue. Neither allocates.
//! [`Client`] is the other role: it takes [`client::Outgoing`], such as a [`Request`], and yields
//! [`client::Incoming`], which begins with a [`ResponseHead`].
//!
//! This crate never repairs a message. Where RFC 9112 permits two readings the message is an error that closes the
//! connection, because the next hop may read it the other way.
//!
//! On a server, one request at a time is in progress on a connection. Pipelined requests wait in the input until the
//! response before them is complete, so responses stay in order and need no queue. An application that keeps them in order
//! itself may [read ahead](Server::read_ahead). A client may have several requests
//! in progress, up to its limits.
//!
//! Read next: `server.rs`, the state machine; then `parse.rs` and `body.rs` for decoding, `encode.rs` for encoding; and
//! `client.rs` for the other role. `error.rs` maps each error to the status that the peer receives.
//!
//! # Files
//!
//! | file | holds |
//! |---|---|
//! | `server.rs` | `Server`, the codec: the state of one connection, and its inbound half |
//! | `pipelined_methods.rs` | `PipelinedMethods`: the requests that a server has yielded behind the one in progress |
//! | `progress.rs` | the states of a server's connection that lie in its flags, as tables |
//! | `refusals.rs` | `Refusals`: how many requests codecs have refused |
//! | `parse.rs` | from bytes to a head, in one strict pass |
//! | `runs.rs` | where runs of allowed bytes end, in short or rare input |
//! | `head.rs` | `RequestHead`, parsed once and read in place |
//! | `body.rs` | inbound bodies of both roles, and trailers |
//! | `client.rs` | `Client`, the codec of the other role, and its inbound half; in `client/` response heads (`head.rs`), requests (`request.rs`), their encoding (`encode.rs`), limits (`config.rs`) |
//! | `response.rs` | the responses of an application |
//! | `encode.rs` | the outbound half of the server |
//! | `fast_path.rs` | the fast path of most responses |
//! | `fields.rs` | extra fields of a message, checked when they are made |
//! | `status.rs` | status codes and their lines |
//! | `error.rs` | errors by blame, and the status of each |
//! | `limits.rs` | limits, and the state that connections share |

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
mod pipelined_methods;
mod progress;
mod refusals;
mod response;
mod runs;
mod server;
mod status;

pub use body::Trailers;
pub use client::{Client, InvalidRequest, Request, ResponseHead, StreamedRequest};
pub use error::{Error, Exceeded, Misuse, Violation};
#[doc(hidden)]
pub use fields::OwnFields;
pub use fields::{Fields, InvalidField};
pub use head::{BodyLength, Headers, Method, RequestHead, Version};
pub use limits::{Config, Limits};
pub use parse::HeadLayout;
pub use refusals::{Refusal, Refusals};
pub use response::{Body, Chunk, ContentType, Interim, Outgoing, Parts, Response, StreamedResponse};
pub use server::{Incoming, Server};
pub use status::Status;
