//! Fuzz targets: functions that take any bytes and panic if an invariant is violated.
//!
//! | target | meaning of the bytes | file |
//! |---|---|---|
//! | `lines` `delimiter` `fixed` `length_field` `varint` `json` | a framing's options, then its wire | `framings.rs` |
//! | `filters` | a stack of filters, then its wire, or the plain bytes above it | `filters.rs` |
//! | `http1` | a server's configuration, then requests | `http1.rs` |
//! | `http2` `hpack` | frames to a connection; field blocks | `http2.rs` |
//! | `http3` `qpack` | the wire of a stream, and its split; field sections | `http3.rs` |
//! | `qpack_tables` | instructions and sections for a decoder, answers for an encoder, or both against each other | `qpack_tables.rs` |
//! | `quic` | limits, then datagrams to the endpoint of a server | `quic.rs` |
//! | `client_hello` | the first bytes of a TLS connection | `client_hello.rs` |
//! | `responses` | the requests, then responses to a client | `responses.rs` |
//! | `round_trips` | requests of a client and responses of a server | `round_trips.rs` |
//! | `compress` | an algorithm, then a compressed message; or the message to compress | `compress.rs` |
//! | `proxy_protocol` | a policy, then a PROXY header and lines | `proxy_protocol.rs` |
//! | `socks` | a role and its options, then the wire of the other role | `socks.rs` |
//! | `dns` | a message; the role and the seed of a split, then the wire; or a zone file | `dns.rs` |
//! | `nats` | the role and the seed of a split, then the wire | `nats.rs` |
//! | `memcached` | the role and the seed of a split, then the wire | `memcached.rs` |
//! | `redis` | a role and its limits, then the wire of the other role | `redis.rs` |
//! | `streams` | windows, then frames to a protocol with streams, between commands | `streams.rs` |
//! | `sniff` | the order of rules, then the first bytes of a connection | `sniff.rs` |
//! | `scan` | a head, and the start offset in it | `scan.rs` |
//! | `outbound` | operations on queues that share a pool | `outbound.rs` |
//! | `connections` | two loops on a simulated network, and their actions | `connections.rs` |
//! | `requests` | requests to a server on a simulated network | `requests.rs` |
//! | `services` | requests to an HTTP application | `services.rs` |
//! | `tls` | a TLS role, then its wire; or the changes of a handshake | `tls.rs` |
//! | `websocket` | a role and its options, then frames; or messages to send | `websocket.rs` |
//! | `rings` | the actions of peers on real sockets, on io_uring | `rings.rs` |
//!
//! The targets check invariants that tests check as well, with the same helpers: the contract of codecs, the model of
//! queues, the simulated network. So a target is short, and a failure is a bug of Tidegate and not of the target.
//!
//! `targets/` has a program of each for libFuzzer, `tests/corpora.rs` replays the corpora, and `README.md` describes
//! how to run them. Read next: `choices.rs`.
//!
//! # Files
//!
//! | file | holds |
//! |---|---|
//! | `choices.rs` | `Choices`: the bytes of a fuzzer as decisions |
//! | `framings.rs` | each framing: any split yields the same frames, and decoding reverses encoding |
//! | `filters.rs` | stacks of filters: hostile bytes below, plain ones above |
//! | `http1.rs` | requests to the codec |
//! | `responses.rs` | responses to the codec |
//! | `http2.rs` | frames to HTTP/2 in either role; field blocks |
//! | `http3.rs` | HTTP/3 streams in either role; field sections |
//! | `quic.rs` | datagrams to the endpoint of a QUIC server, with Initials that can be decrypted |
//! | `client_hello.rs` | the reader of a ClientHello, beside that of rustls |
//! | `round_trips.rs` | both roles of the codec against each other |
//! | `proxy_protocol.rs` | PROXY headers, received in both ways |
//! | `qpack_tables.rs` | sections and instructions of dynamic QPACK tables, of both sides |
//! | `websocket.rs` | frames to both roles of WebSocket, and round trips |
//! | `socks.rs` | handshakes of SOCKS, in both roles |
//! | `dns.rs` | DNS: messages that are written again, each split of a stream, zone files |
//! | `nats.rs` | NATS in both roles: each split yields the same operations, which can be sent again |
//! | `memcached.rs` | memcached in both roles: each split yields the same messages, which can be sent again |
//! | `redis.rs` | the wire of both roles of Redis, and round trips |
//! | `compress.rs` | compressed messages of each algorithm, and round trips |
//! | `streams.rs` | frames and commands on a session |
//! | `sniff.rs` | first bytes of a connection to the rules of sniffing, in any order |
//! | `scan.rs` | heads to the scanner at each level, and to httparse |
//! | `outbound.rs` | operations on queues beside the model of their tests |
//! | `connections.rs` | connections on a simulated network; the two sides: `connections/party.rs` |
//! | `services.rs` | requests to an HTTP application: routes, extractors, files, content codings |
//! | `requests.rs` | requests on a simulated network, with deadlines and drains |
//! | `tls.rs` | bytes to both roles of TLS, and changed handshakes |
//! | `rings.rs` | the driver on io_uring, over real sockets with arbitrary peers |

#![forbid(unsafe_code)]

mod choices;
mod client_hello;
mod compress;
mod connections;
mod dns;
mod filters;
mod framings;
mod http1;
mod http2;
mod http3;
mod memcached;
mod nats;
mod outbound;
mod proxy_protocol;
mod qpack_tables;
mod quic;
mod redis;
mod requests;
mod responses;
mod rings;
mod round_trips;
mod scan;
mod services;
mod sniff;
mod socks;
mod streams;
mod tls;
mod websocket;

pub use client_hello::client_hello;
pub use compress::compress;
pub use connections::connections;
pub use dns::dns;
pub use filters::filters;
pub use framings::{delimiter, fixed, json, length_field, lines, varint};
pub use http1::http1;
pub use http2::{hpack, http2};
pub use http3::{http3, qpack};
pub use memcached::memcached;
pub use nats::nats;
pub use outbound::outbound;
pub use proxy_protocol::proxy_protocol;
pub use qpack_tables::qpack_tables;
pub use quic::quic;
pub use redis::redis;
pub use requests::requests;
pub use responses::responses;
pub use rings::rings;
pub use round_trips::round_trips;
pub use scan::scan;
pub use services::services;
pub use sniff::sniff;
pub use socks::socks;
pub use streams::streams;
pub use tls::tls;
pub use websocket::websocket;

/// A target.
pub type Target = fn(&[u8]);

/// All targets, by name.
pub const TARGETS: [(&str, Target); 34] = [
    ("lines", lines),
    ("delimiter", delimiter),
    ("fixed", fixed),
    ("length_field", length_field),
    ("varint", varint),
    ("json", json),
    ("filters", filters),
    ("http1", http1),
    ("http2", http2),
    ("hpack", hpack),
    ("http3", http3),
    ("qpack", qpack),
    ("qpack_tables", qpack_tables),
    ("quic", quic),
    ("client_hello", client_hello),
    ("scan", scan),
    ("sniff", sniff),
    ("outbound", outbound),
    ("compress", compress),
    ("connections", connections),
    ("proxy_protocol", proxy_protocol),
    ("requests", requests),
    ("responses", responses),
    ("rings", rings),
    ("round_trips", round_trips),
    ("socks", socks),
    ("dns", dns),
    ("nats", nats),
    ("memcached", memcached),
    ("redis", redis),
    ("services", services),
    ("streams", streams),
    ("tls", tls),
    ("websocket", websocket),
];
