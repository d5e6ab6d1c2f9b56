//! Tidegate: an asynchronous, event-driven network application framework.
//!
//! For gateways, brokers, proxies, push servers, game and IoT backends: many connections, custom protocols, little
//! memory. A connection costs memory only while bytes are in it, and back-pressure is the default.
//!
//! | noun | meaning |
//! |---|---|
//! | [`Codec`] | one protocol, free of I/O: bytes in, messages out; messages in, bytes out |
//! | [`Filter`] | bytes to bytes, both ways, free of I/O; [`Over`] puts a codec over it |
//! | [`Handler`] | the application on one connection: gets events, returns an [`Outcome`] |
//! | [`Channel`] | the same connection as an async handle, for straight-line code |
//! | [`task`] | futures on the loop's own thread: spawn, sleep, timeouts; [`blocking`] for work that would block it |
//! | [`Server`] | an address and its event loops, one per core |
//! | [`Client`] | the address to connect to; returns a [`Channel`], or runs a [`Handler`] on the connection |
//! | [`Group`], [`Room`] | connections on any loop that get the same messages; with presence and history |
//!
//! A server that echoes every line:
//!
//! ```no_run
//! use tidegate::framing::Lines;
//! use tidegate::{Context, Handler, Outcome, Server, Slice};
//!
//! struct Echo;
//!
//! impl Handler<Lines> for Echo {
//!     type Post = ();
//!
//!     fn message(&mut self, line: Slice, cx: &mut Context<'_, Lines>) -> Outcome<Lines> {
//!         cx.send(line.into()).into()
//!     }
//! }
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let server = Server::bind("127.0.0.1:7000")?.start(|| (Lines::default(), Echo))?;
//! println!("listening on {}", server.address());
//! server.wait();
//! # Ok(())
//! # }
//! ```
//!
//! The same with a channel: an async task pulls each line instead of receiving a callback:
//!
//! ```no_run
//! use tidegate::framing::Lines;
//! use tidegate::{Channel, Server};
//!
//! async fn echo(mut channel: Channel<Lines>) -> Result<(), Box<dyn std::error::Error>> {
//!     while let Some(line) = channel.recv().await? {
//!         channel.send(line.into())?;
//!     }
//!     Ok(())
//! }
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! Server::bind("127.0.0.1:7000")?.serve(Lines::default, echo)?.wait();
//! # Ok(())
//! # }
//! ```
//!
//! Import items by name, as these examples do. `use tidegate::*` makes `#[test]` ambiguous with the attribute of std, and
//! `http` and `metrics` with the crates of these names.
//!
//! This root lists the items that applications use. The rest is in modules:
//!
//! | module | for |
//! |---|---|
//! | [`framing`] | codecs for common framings: lines, length fields, delimiters |
//! | [`http1`] | HTTP/1.1, server and client |
//! | `http2`, by the feature of that name | HTTP/2: connections, streams, HPACK |
//! | `http3`, by the feature of that name | HTTP/3: connections, streams, QPACK; without QUIC |
//! | `acme`, by the feature of that name | automatic certificates: issued and renewed while a server runs |
//! | `admin`, by the feature of that name | metrics, health and a live page of a running server, on a listener of its own |
//! | `metrics`, by the feature of that name | the counts of loops, and HTTP requests, as text for Prometheus |
//! | `proxy_protocol`, by the feature `proxy-protocol` | the PROXY protocol: the address of a client behind a proxy |
//! | `quic`, by the feature of that name | QUIC: servers and clients whose streams are connections |
//! | `redis`, by the feature of that name | the protocol of Redis in both roles, and a server handler |
//! | `backplane`, by the feature of that name | rooms over several processes, on Redis or NATS |
//! | `l4`, by the feature of that name | forwarding below HTTP: TCP, TLS by its server name, UDP |
//! | `socks`, by the feature of that name | SOCKS 4, 4a and 5: clients of a proxy, and the proxy |
//! | `nats`, by the feature of that name | the NATS client protocol: a client with JetStream, and a broker |
//! | `dns`, by the feature of that name | DNS: messages, a resolver with its cache, servers, zone files |
//! | `memcached`, by the feature of that name | memcached, text and meta commands, both sides |
//! | [`sniff`] | several protocols on one port: rules that recognise them by the first bytes |
//! | `bytelog` | by the feature `bytelog`: the bytes of any stage, as hex dumps in the log and as a file for Wireshark |
//! | `tls` | TLS 1.2 and 1.3, server and client, with the feature `tls` |
//! | `websocket`, by the feature of that name | WebSocket, both roles, with compression |
//! | `compress` | gzip, deflate, brotli and zstd with the feature of that name; snappy and lz4 with theirs |
//! | [`codec`] | the author of a codec or a filter: [`codec::Input`], [`codec::Output`], [`codec::Step`], [`codec::Fault`](trait@codec::Fault) |
//! | `compat` | connections as tokio and futures-io streams, codecs over tokio streams; with the features `tokio-io` and `futures-io` |
//! | [`buffer`] | queues, pools and the ledger of memory |
//! | [`sys`] | the author of a driver, and applications that run an [`EventLoop`] themselves |
//! | [`engine`] | types that are rarely named, such as the futures of a [`Channel`] and the counts of a server |
//!
//! Protocols and handlers are tested without a network: see `tidegate-testkit`. The repository has a guide, which
//! starts with a first codec, in `docs/guide`.

#![forbid(unsafe_code)]

#[cfg(all(feature = "dns", any(feature = "http-client", feature = "http-server")))]
mod dns_over_https;
#[doc(hidden)]
pub mod entry;
#[cfg(all(feature = "http-server", feature = "redis"))]
mod redis_rate_store;

pub use bytes::Bytes;
/// Automatic certificates (ACME): issued and renewed while a server runs.
#[cfg(feature = "acme")]
#[doc(inline)]
pub use tidegate_acme as acme;
/// The administrative server: metrics, health, and a live page of a running server.
#[cfg(feature = "admin")]
#[doc(inline)]
pub use tidegate_admin as admin;
/// Rooms over several processes.
#[cfg(feature = "backplane")]
#[doc(inline)]
pub use tidegate_backplane as backplane;
/// Bytes and their owners: the queue of a connection, its input, and the memory that both take.
#[doc(inline)]
pub use tidegate_buffer as buffer;
pub use tidegate_buffer::{Slice, WaterMarks};
/// The bytes of any stage of a pipeline: hex dumps in the log, and capture files for Wireshark.
#[cfg(feature = "bytelog")]
#[doc(inline)]
pub use tidegate_bytelog as bytelog;
/// For the author of a codec or a filter: the traits, their arguments, and their results.
#[doc(inline)]
pub use tidegate_codec as codec;
pub use tidegate_codec::{Codec, Encoded, Endpoint, Filter, Over, framing, sniff};
/// Connections as tokio and futures-io streams, and codecs over tokio streams.
#[cfg(any(feature = "futures-io", feature = "tokio-io"))]
#[doc(inline)]
pub use tidegate_compat as compat;
/// Compression: state machines for messages, and a filter for connections.
#[cfg(any(feature = "brotli", feature = "gzip", feature = "lz4", feature = "snappy", feature = "zstd"))]
#[doc(inline)]
pub use tidegate_compress as compress;
/// DNS: messages, a resolver with its cache, servers, zone files.
#[cfg(feature = "dns")]
#[doc(inline)]
pub use tidegate_dns as dns;
/// All of the engine: the items of the crate root, and types that an application rarely names, such as the futures of a
/// [`Channel`].
#[doc(inline)]
pub use tidegate_engine as engine;
/// The tokio runtime in which loops run.
#[cfg(feature = "tokio")]
pub use tidegate_engine::TokioRuntime;
pub use tidegate_engine::{
    Account, Admission, Backend, BlockingError, Channel, ChannelError, Client, CloseReason, ConnectError,
    ConnectionCharge, ConnectionRate, Context, DatagramChannel, Deadlines, EndpointLimits, EndpointListener,
    EndpointWaker, Event, EventLoop, Group, Handler, IpNet, Limits, Listener, LoadBalancing, Member, Outcome,
    PortableError, Position, PostError, Protocol, ProtocolIndex, Protocols, PublishError, Rate, ReadHalf, Remote, Room,
    RoomError, RoomEvent, RoomLimits, RoomNotice, RoomSubscriber, Rooms, RoomsSummary, SendError, Server, ServerEnd,
    ServerHandle, ServiceManager, Session, Shaping, Slow, StartError, Supervisor, UserLimits, Users, Visit, WriteHalf,
    blocking, task,
};
/// HTTP/1.1.
#[cfg(feature = "http1")]
#[doc(inline)]
pub use tidegate_http1 as http1;
#[cfg(feature = "http2")]
#[doc(inline)]
pub use tidegate_http2 as http2;
#[cfg(feature = "http3")]
#[doc(inline)]
pub use tidegate_http3 as http3;
/// Forwarding below HTTP: TCP, TLS by its server name, UDP.
#[cfg(feature = "l4")]
#[doc(inline)]
pub use tidegate_l4 as l4;
/// The compiler names the wrong argument of a router's function.
///
/// ```
/// use tidegate::http::{Path, Router, State};
///
/// struct Harbours(Vec<String>);
///
/// #[tidegate::debug_function]
/// async fn name(State(harbours): State<Harbours>, Path(number): Path<usize>) -> Option<String> {
///     harbours.0.get(number).cloned()
/// }
///
/// let router = Router::with_state(Harbours(vec!["Bremen".into()])).get("/{number}", name);
/// # drop(router);
/// ```
#[cfg(feature = "http-server")]
pub use tidegate_macros::debug_function;
/// Runs an async `main` on an event loop of its own: on it tasks, clients, timers and channels work.
///
/// ```
/// use std::time::Duration;
///
/// use tidegate::{StartError, task};
///
/// #[tidegate::main]
/// async fn main() -> Result<(), StartError> {
///     task::sleep(Duration::from_millis(1)).await;
///     Ok(())
/// }
/// ```
///
/// A program that only serves awaits the end of its servers:
///
/// ```no_run
/// use tidegate::framing::Lines;
/// use tidegate::{Channel, ChannelError, Server, StartError};
///
/// async fn echo(mut channel: Channel<Lines>) -> Result<(), ChannelError> {
///     while let Some(line) = channel.recv().await? {
///         channel.send(line.into())?;
///     }
///     Ok(())
/// }
///
/// #[tidegate::main]
/// async fn main() -> Result<(), StartError> {
///     Server::bind("127.0.0.1:7000")?.serve(Lines::default, echo)?.ended().await;
///     Ok(())
/// }
/// ```
pub use tidegate_macros::main;
/// Runs an async test on an event loop of its own. Write it as `#[tidegate::test]`: with `use tidegate::*` a plain
/// `#[test]` is ambiguous, error E0659, until `use core::prelude::v1::test` decides for that of std.
///
/// ```
/// #[tidegate::test]
/// async fn tasks_run() {
///     assert_eq!(tidegate::task::spawn(async { 6 * 7 }).await, Ok(42));
/// }
/// # fn main() {}
/// ```
pub use tidegate_macros::test;
/// The memcached protocol: text and meta commands, client and server.
#[cfg(feature = "memcached")]
#[doc(inline)]
pub use tidegate_memcached as memcached;
/// The counts of a server's loops, and the HTTP requests that they answer, as text for Prometheus.
#[cfg(feature = "metrics")]
#[doc(inline)]
pub use tidegate_metrics as metrics;
/// The NATS client protocol.
#[cfg(feature = "nats")]
#[doc(inline)]
pub use tidegate_nats as nats;
/// The PROXY protocol.
#[cfg(feature = "proxy-protocol")]
#[doc(inline)]
pub use tidegate_proxy_protocol as proxy_protocol;
/// QUIC: servers and clients whose streams are connections.
#[cfg(feature = "quic")]
#[doc(inline)]
pub use tidegate_quic as quic;
/// The protocol of Redis: RESP2 and RESP3.
#[cfg(feature = "redis-codec")]
#[doc(inline)]
pub use tidegate_redis as redis;
/// SOCKS 4, 4a and 5.
#[cfg(feature = "socks")]
#[doc(inline)]
pub use tidegate_socks as socks;
/// Sockets and drivers: for the author of a driver, and for an application that runs an [`EventLoop`] itself.
#[doc(inline)]
pub use tidegate_sys as sys;
pub use tidegate_sys::{Address, ListenOptions, SocketOptions};
/// TLS 1.2 and 1.3.
#[cfg(any(feature = "tls-aws-lc-rs", feature = "tls-ring"))]
#[doc(inline)]
pub use tidegate_tls as tls;
/// Tower services, such as an axum router.
#[cfg(feature = "tower")]
#[doc(inline)]
pub use tidegate_tower as tower;
/// An axum router, in place of `axum::serve`.
#[cfg(feature = "axum")]
#[doc(inline)]
pub use tidegate_tower::axum;
/// WebSocket.
#[cfg(feature = "websocket")]
#[doc(inline)]
pub use tidegate_websocket as websocket;

/// HTTP for applications: a server of functions, [`client`](http::client), which sends requests to other servers, and
/// `proxy`, which passes them on; `cache`, which stores responses.
#[cfg(any(feature = "http-client", feature = "http-server"))]
pub mod http {
    #[cfg(all(feature = "dns", feature = "http-client"))]
    pub use crate::dns_over_https::name_server;
    #[cfg(all(feature = "dns", feature = "http-server"))]
    pub use crate::dns_over_https::{DNS_PATH, dns_router};
    #[cfg(all(feature = "http-server", feature = "redis"))]
    pub use crate::redis_rate_store::RedisRateStore;
    #[cfg(feature = "http-server")]
    #[doc(inline)]
    pub use tidegate_http::*;
    #[cfg(feature = "http-auth")]
    #[doc(inline)]
    pub use tidegate_http_auth as auth;
    #[cfg(feature = "http-server")]
    #[doc(inline)]
    pub use tidegate_http_cache as cache;
    #[cfg(feature = "http-client")]
    #[doc(inline)]
    pub use tidegate_http_client as client;
    #[cfg(feature = "http-client")]
    #[doc(inline)]
    pub use tidegate_http_client::Client;
    #[cfg(feature = "http-server")]
    #[doc(inline)]
    pub use tidegate_http_proxy as proxy;
}

/// The examples in the README are compiled.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
