//! The NATS client protocol, in both roles: a client with JetStream, and a broker for core NATS.
//!
//! | for | there is |
//! |---|---|
//! | a server | [`ServerCodec`]: [`IncomingClientOperation`]s in, [`ServerOperation`]s out |
//! | a client | [`ClientCodec`]: [`IncomingServerOperation`]s in, [`ClientOperation`]s out |
//! | a message | [`MessageView`], a view of the received bytes; [`Message`], a copy for any thread; [`OutgoingMessage`]; [`Headers`] |
//! | subjects | [`is_subject`], [`is_filter`], [`matches_subject`] |
//! | the JSON of INFO and CONNECT | [`ServerInfo`], [`ConnectInfo`] |
//! | TLS that begins after INFO | [`StartTls`] |
//! | a connection to a server or a cluster | [`Client`], from any thread; [`Subscriber`] has messages; [`ReplyFuture`] a reply |
//! | streams | [`JetStream`], by its API subjects; [`History`], the messages after a sequence |
//! | a server's connection | [`Handler`], and the [`Broker`] of all loops |
//! | bounds | [`ProtocolLimits`], [`ClientLimits`], [`BrokerConfig`] |
//! | errors | [`NatsError`], sorted by blame; [`ClientError`], which says whether a message may have been processed; [`ServerError`] |
//!
//! The codecs know neither sockets nor the loop. Only the modules `server` and `client` do.
//!
//! Read next: `line.rs` and `message_view.rs`, which both roles share; then `server_codec.rs` and `client_codec.rs`.
//!
//! # Files
//!
//! | file | holds |
//! |---|---|
//! | `line.rs` | the control line: its end, its operation, its arguments |
//! | `message_view.rs` | `MessageView`: a message, read in place |
//! | `pending_input.rs` | how far a codec has read the operation at hand |
//! | `limits.rs` | `ProtocolLimits` |
//! | `server_codec.rs` | `ServerCodec`, the codec of a server |
//! | `client_codec.rs` | `ClientCodec`, the codec of a client |
//! | `outgoing.rs` | `ClientOperation`, `ServerOperation` and `OutgoingMessage`, checked and written |
//! | `headers.rs` | `Headers`: the header block of a message |
//! | `subject.rs` | subjects, filters, and which match |
//! | `info.rs` | the JSON of INFO and CONNECT |
//! | `start_tls.rs` | `StartTls`: a TLS filter behind INFO |
//! | `error.rs` | errors by blame |
//! | `client/` | `Client`: its handles and calls: `handle.rs`, how it starts: `builder.rs`, configuration and bounds: `config.rs`, `credentials.rs`; the state that threads share: `shared.rs`; requests: `results.rs`; one connection: `connection.rs`; connecting again: `supervisor.rs`, the servers: `servers.rs`; subscribers: `subscriber.rs`, their events: `subscriber_queue.rs`, a subscription: `subscription.rs`; messages: `message.rs`; events: `events.rs`; numbers for metrics: `counts.rs`; errors: `error.rs`, `server_error.rs` |
//! | `jetstream/` | streams: `context.rs`, their JSON and errors: `api.rs`, their messages in order: `history.rs` |
//! | `server/` | the broker: `broker.rs`, its subscriptions: `trie.rs`; one connection: `handler.rs`, its messages: `outbox.rs` |

#![forbid(unsafe_code)]

mod client;
mod client_codec;
mod error;
mod headers;
mod info;
mod jetstream;
mod limits;
mod line;
mod message_view;
mod outgoing;
mod pending_input;
mod server;
mod server_codec;
mod start_tls;
mod subject;

#[cfg(feature = "nkeys")]
pub use client::NkeyError;
pub use client::{
    Client, ClientBuilder, ClientCounts, ClientError, ClientEvent, ClientEvents, ClientLimits, ClientMetric,
    Credentials, Failure, Message, OperationPipeline, ReplyFuture, ServerAddress, ServerError, ServerErrorKind,
    Subscriber, SubscriberCounts, SubscriberEvent, Subscriptions,
};
pub use client_codec::{ClientCodec, IncomingServerOperation};
pub use error::NatsError;
pub use headers::{Headers, HeadersView};
pub use info::{ConnectInfo, ServerInfo};
pub use jetstream::{
    ApiError, History, JetStream, JetStreamError, PublishAck, PublishOptions, Republish, StoredMessage, StreamConfig,
    StreamInfo, StreamState,
};
pub use limits::ProtocolLimits;
pub use message_view::MessageView;
pub use outgoing::{ClientOperation, OutgoingMessage, ServerOperation};
pub use server::{Broker, BrokerConfig, BrokerCounts, Handler, WakeUp};
pub use server_codec::{IncomingClientOperation, ServerCodec};
pub use start_tls::{StartTls, StartTlsError};
pub use subject::{is_filter, is_subject, matches_subject};
