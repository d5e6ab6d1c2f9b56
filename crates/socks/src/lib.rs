//! SOCKS 4, 4a and 5 (RFC 1928, RFC 1929): a client asks a proxy to connect it to a target, by address or by name.
//!
//! | for | there is |
//! |---|---|
//! | asking a proxy | [`Client`], a codec that yields one message: where the proxy connected to, or a [`Refusal`] |
//! | being the proxy | [`Server`], a codec that yields credentials and the target, and encodes an [`Answer`] to each |
//! | the target | [`Target`], a [`Host`] and a port |
//!
//! Both codecs end by a switch: after their last message the application continues the connection with another codec,
//! which gets all bytes behind the handshake. So the connection that remains has neither the state nor the time of this
//! crate.
//!
//! CONNECT is the command. A server replies to BIND and UDP ASSOCIATE with "command not supported". There is no
//! encryption: passwords cross the network in the clear. Neither side repairs anything: a message that is not exactly
//! as specified ends the connection.
//!
//! Read next: `server.rs` and `client.rs`, the two state machines; then `v4.rs` and `v5.rs` for the formats.
//!
//! # Files
//!
//! | file | holds |
//! |---|---|
//! | `client.rs` | `Client`, the codec towards a proxy |
//! | `server.rs` | `Server`, the codec of a proxy; `Config` |
//! | `message.rs` | `Event`, a message to a server; `Answer`, the application's answer |
//! | `target.rs` | `Target`, a host and a port |
//! | `refusal.rs` | `Refusal`, why a proxy does not connect, and its codes |
//! | `v4.rs` | the bytes of versions 4 and 4a |
//! | `v5.rs` | the bytes of version 5 |
//! | `error.rs` | errors by blame |

#![forbid(unsafe_code)]

mod client;
mod error;
mod message;
mod refusal;
mod server;
mod target;
mod v4;
mod v5;

pub use client::Client;
pub use error::{Error, Exceeded, Misuse, Violation};
pub use message::{Answer, Credentials, Event, Request, Version};
pub use refusal::Refusal;
pub use server::{Authentication, Config, Server};
pub use target::{Host, Target};
