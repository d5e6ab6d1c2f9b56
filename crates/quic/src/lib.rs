//! QUIC version 1 (RFC 9000, RFC 9001, RFC 9002) for servers and clients, over quinn-proto.
//!
//! Each stream is a connection as over TCP: it has a codec and a [`Handler`](tidegate_engine::Handler), or it is a
//! [`Channel`](tidegate_engine::Channel). The same application serves both. An [`Endpoint`] is the protocol, free of I/O,
//! with the datagrams of all peers of one socket; the engine runs it on every driver, and in a simulated network.
//!
//! **Back-pressure is by credit.** Bytes that the application has not asked for stay in the windows of their stream and of
//! their connection, so that the peer stops; bytes to send leave their queue as far as the peer's windows and the
//! congestion window go.
//!
//! Read next: `config.rs`, then `endpoint.rs`, and `quinn.rs`, which alone knows quinn-proto.
//!
//! # Files
//!
//! | file | holds |
//! |---|---|
//! | `config.rs` | `ServerConfig`, `ClientConfig`: TLS, limits, admission |
//! | `limits.rs` | `TransportLimits`, with their defaults |
//! | `codes.rs` | `Codes`: the numbers that a peer gets for the causes of a reset |
//! | `endpoint.rs` | `Endpoint`: datagrams, timers, admission, and as a protocol of the engine |
//! | `connection.rs` | one connection of an endpoint: its streams and its state |
//! | `quinn.rs` | the types of quinn-proto that the crate uses, its configuration, and its errors as ours; it alone names quinn-proto |
//! | `connection_ids.rs` | the layout of connection ids |
//! | `generation.rs` | `Generation`: the keys and handshakes that a successor gets |
//! | `refusals.rs` | `Refusals`: the servers that have refused early data |
//! | `short_writes.rs` | `ShortWrites`: the memory that the short writes of a turn share |
//! | `run_length.rs` | `RunLength`: how many datagrams leave as one run |
//! | `qlog.rs` | `QlogFolder`: the events of each connection, as a file |
//! | `watches.rs` | tasks that wait for a connection |
//! | `client.rs` | `Connector`, `Connection`: connecting, and opening streams |
//! | `server_tls.rs` | the TLS of servers, and the sessions for early data |
//! | `incoming.rs` | clients that want to connect: which of them get a handshake |
//! | `kept.rs` | the memory of datagrams that wait |
//! | `counters.rs` | the counts of endpoints, which are [`Counts`] |
//! | `error.rs` | `ConnectionError`, `ConfigError` |

#![forbid(unsafe_code)]

mod client;
mod codes;
mod config;
mod connection;
mod connection_ids;
mod counters;
mod endpoint;
mod error;
mod generation;
mod incoming;
mod kept;
mod limits;
#[cfg(feature = "qlog")]
mod qlog;
mod quinn;
mod refusals;
mod run_length;
mod server_tls;
mod short_writes;
mod watches;

pub use client::{Connection, Connector, OpenStream};
pub use codes::Codes;
pub use config::{Admit, ClientConfig, ServerConfig};
pub use endpoint::Endpoint;
pub use error::{ConfigError, ConnectionError};
pub use limits::TransportLimits;
#[cfg(feature = "qlog")]
pub use qlog::QlogFolder;
pub use tidegate_codec::{Direction, SessionCounts as Counts, SessionNumber};
