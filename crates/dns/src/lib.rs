//! DNS: messages, a resolver and its cache free of I/O; lookups on event loops, servers, a forwarder, zone files.
//!
//! | for | there is |
//! |---|---|
//! | a received message | [`MessageView`], a checked view of bytes; [`Message`], the same with the bytes; [`RecordView`], [`RecordData`] |
//! | a message to send | [`MessageWriter`], which compresses names; [`EncodedMessage`] |
//! | names and records | [`Name`], [`NameView`]; [`Question`], [`Record`], [`Rdata`] with its presentation form |
//! | EDNS | [`Edns`], [`EdnsView`]: payloads, cookies, padding, extended errors |
//! | a stream | [`ServerCodec`] and [`ClientCodec`]: messages behind their lengths |
//! | lookups without I/O | [`Resolver`], over servers by index; [`Cache`] and [`SharedCache`] |
//! | lookups on a loop | [`StubResolver`], which asks [`NameServer`]s over UDP and TCP, or by requests |
//! | the resolver of a process | [`HostResolver`], by the files of the system, with a stub for each loop |
//! | files of the system | [`ResolvConf`], [`Hosts`] |
//! | a server | [`server::DnsServer`] over UDP and TCP, [`server::LoopHandlers`] for other transports; [`server::QueryHandler`], [`server::Responder`], [`server::Forwarder`], [`server::RateLimiter`] |
//! | a zone | [`Zone`], from a zone file |
//! | bounds | [`ProtocolLimits`], [`ResolverConfig`], [`CacheConfig`], [`server::RateLimits`], [`ZoneLimits`] |
//! | errors | [`DnsError`], sorted by blame; [`LookupError`]; [`ZoneError`], with line and column |
//!
//! The codecs, the resolver and zones know neither sockets nor the loop. Only `client/` and `server/` do. Time
//! is an argument.
//!
//! Sources: RFC 1034, 1035, 2181, 2308, 3597, 4343, 6891, 7766, 7830, 7873, 8467, 8767, 8914, 9460, 9520, 9619, 9715.
//!
//! Read next: `message_view.rs` and `layout.rs`, then `resolver/mod.rs`.
//!
//! # Files
//!
//! | file | holds |
//! |---|---|
//! | `name.rs` | `Name`: a name of its own memory |
//! | `name_view.rs` | `NameView`: a name within a message, through its pointers |
//! | `numbers.rs` | record types, classes, operation codes, response codes |
//! | `header.rs` | `Header` |
//! | `message_view.rs` | `MessageView`, `Message`, `RecordView`: a message, checked once |
//! | `layout.rs` | the fields of each record type's data, in one table |
//! | `record_data.rs` | `RecordData`: those fields as views |
//! | `records.rs` | `Question`, `Record`, `Rdata`: with memory of their own |
//! | `edns.rs` | the OPT record |
//! | `message_writer.rs` | `MessageWriter`, `EncodedMessage`: compression of names |
//! | `stream_codecs.rs` | `ServerCodec`, `ClientCodec` |
//! | `limits.rs` | `ProtocolLimits`, payloads of datagrams |
//! | `error.rs` | `DnsError` |
//! | `text/` | presentation form: tokens: `lexer.rs`, data from tokens: `parse.rs`, data as text: `write.rs`, service parameters: `svc_params.rs`, encodings: `encodings.rs` |
//! | `resolv_conf.rs` | `ResolvConf`: servers, search list, options |
//! | `hosts.rs` | `Hosts` |
//! | `cache.rs` | `Cache`: sets of records within a budget |
//! | `resolver/` | `Resolver`: limits: `config.rs`, results: `answer.rs`, queries: `attempts.rs`, responses: `receiving.rs`, its meaning: `response.rs`, servers: `upstream.rs`, the cache: `shared_cache.rs`, `from_cache.rs`, random numbers: `query_random.rs` |
//! | `client/` | `StubResolver`; its servers: `name_server.rs`, sockets: `sockets.rs`, connections: `connection.rs`, timers: `timer.rs`, hosts and services: `host_lookup.rs`, HTTPS records: `https_lookup.rs`; `HostResolver`: `host_resolver.rs`, files: `system_files.rs` |
//! | `server/` | `Responder`, the rules of all responses; a whole server: `builder.rs`, its limits: `limits.rs`, the handlers of its loops: `loop_handlers.rs`, queries: `query_handler.rs`, datagrams: `datagrams.rs`, runs of them: `response_runs.rs`, limits of their responses: `rate_limit.rs`, a connection: `handler.rs`, other servers' answers: `forwarder.rs`, in wire form: `encoded_answers.rs`, counts: `counters.rs` |
//! | `zone/` | `Zone`; its files: `parse.rs`, errors: `error.rs`, answers: `answer.rs` |

#![forbid(unsafe_code)]

mod cache;
mod client;
mod edns;
mod error;
mod header;
mod hosts;
mod layout;
mod limits;
mod message_view;
mod message_writer;
mod name;
mod name_view;
mod numbers;
mod record_data;
mod records;
mod resolv_conf;
mod resolver;
pub mod server;
mod stream_codecs;
mod text;
mod zone;

pub use cache::{Cache, CacheConfig, Cached};
pub use client::{Exchanging, HostResolver, IDLE, NameServer, ResponsePipeline, StubResolver};
pub use edns::{COOKIE, Cookie, EXTENDED_ERROR, Edns, EdnsView, ExtendedError, PADDING};
pub use error::DnsError;
pub use header::Header;
pub use hosts::Hosts;
pub use limits::{ProtocolLimits, UDP_PAYLOAD_BYTES, UDP_PAYLOAD_BYTES_MAX, UDP_PAYLOAD_BYTES_MIN};
pub use message_view::{Message, MessageView, QuestionView, RecordView};
pub use message_writer::{EncodedMessage, MessageWriter, Section};
pub use name::{LABEL_BYTES_MAX, NAME_BYTES_MAX, Name};
pub use name_view::NameView;
pub use numbers::{Class, Opcode, RecordType, ResponseCode};
pub use record_data::{Naptr, RecordData, Soa, Svcb, Texts};
pub use records::{Question, Rdata, Record};
pub use resolv_conf::{ResolvConf, ServerAddress};
pub use resolver::{
    Answer, Lookup, LookupError, LookupId, Resolver, ResolverConfig, ResolverCounts, ResolverServer, SharedCache,
    Transmit, Transport,
};
pub use stream_codecs::{ClientCodec, ServerCodec, format_error};
pub use zone::{Zone, ZoneAnswer, ZoneError, ZoneErrorKind, ZoneLimits};
