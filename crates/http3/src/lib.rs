//! HTTP/3 (RFC 9114) and QPACK (RFC 9204), for servers and clients, free of I/O and without QUIC.
//!
//! [`Connection`] is the state of a connection beside its request streams: the control stream of this side, the
//! unidirectional streams of the peer, SETTINGS, GOAWAY, priorities (RFC 9218). [`RequestStream`] is the filter between the
//! frames of one request stream and the codec of a stream, which HTTP/2 has as well: [`ServerStream`] and
//! [`ClientStream`] stack both. Their messages are those of [`tidegate_http1`], so an application is the same over all
//! versions.
//!
//! A QUIC connection drives them: it passes the bytes of each stream, and resets streams and closes the connection with
//! the codes of the errors. [`StreamError`] ends a stream, or by [`StreamError::connection`] the connection.
//!
//! The crate refuses server push in both roles, dynamic tables unless the limits permit them, and every frame that a stream
//! does not allow. Every limit has a default that protects; [`Limits`] names the attack that each stops.
//!
//! Read next: `request_stream.rs` for messages, `connection.rs` for the rest, then the crate `http-stream`.
//!
//! # Files
//!
//! | file | holds |
//! |---|---|
//! | `connection.rs` | `Connection`: unidirectional streams, SETTINGS, GOAWAY, priorities, in either role |
//! | `endpoint.rs` | `Endpoint`: the connections of a QUIC endpoint |
//! | `early.rs` | requests in early data, until they may be served; in `early/` the methods of `Endpoint` |
//! | `control_stream.rs` | frames of the peer's control stream, in pieces |
//! | `request_stream.rs` | `RequestStream`: between frames and the records of a stream's codec |
//! | `requests.rs` | the requests of a connection that are open, and when they came |
//! | `streams.rs` | the pipelines of a request stream |
//! | `section.rs` | HEADERS frames of this side |
//! | `qpack.rs` | QPACK; in `qpack/` the decoder (`decoder.rs`), the encoder (`encoder.rs`), the static table (`static_table.rs`), instructions (`instructions.rs`), dynamic tables (`table.rs`, `table_decoder.rs`, `table_encoder.rs`) |
//! | `tables/` | dynamic tables at the edge of an endpoint: frames in (`inbound.rs`) and out (`outbound.rs`) of each stream (`streams.rs`), a bound for bytes that wait (`waiting.rs`) |
//! | `lifetime.rs` | when a server ends a connection |
//! | `settings.rs` | SETTINGS |
//! | `datagram.rs`, `capsule.rs`, `capsule_relay.rs` | HTTP datagrams, the capsule protocol (RFC 9297), and its codec for a gateway |
//! | `request_datagrams.rs` | the datagrams of requests that are no sessions of WebTransport |
//! | `kept.rs` | memory that connections keep beside streams |
//! | `webtransport/` | sessions of WebTransport, their streams and datagrams |
//! | `frame.rs` | heads and types of frames, reserved values |
//! | `varint.rs` | variable-length integers |
//! | `limits.rs` | limits, and the configuration that connections share |
//! | `error.rs` | errors by blame, and the code of each |

#![forbid(unsafe_code)]

mod capsule;
mod capsule_relay;
mod connection;
mod control_stream;
pub mod datagram;
mod early;
mod endpoint;
mod error;
mod frame;
mod kept;
mod lifetime;
mod limits;
pub mod qpack;
mod request_datagrams;
mod request_stream;
mod requests;
mod section;
mod settings;
mod streams;
mod tables;
pub mod varint;
pub mod webtransport;

pub use capsule::{Capsule, CapsuleCodec, CapsuleError};
pub use capsule_relay::{CapsuleRelay, RelayPiece};
pub use connection::{Admission, Connection, Event};
pub use endpoint::Endpoint;
pub use error::{Error, ErrorCode, Exceeded, StreamError, Violation};
pub use limits::{Config, HttpDatagramLimits, Limits, UNI_STREAMS_MIN};
pub use request_stream::RequestStream;
pub use settings::Settings;
pub use streams::{ClientStream, ServerStream, client_stream, server_stream};
pub use tidegate_http_stream::{HEAD_BYTES_CEILING, Priority, Tunnel};
