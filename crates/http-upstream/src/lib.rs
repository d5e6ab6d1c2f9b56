//! One way out, for the client and for the proxy: connections to HTTP servers, and the exchanges on them.
//!
//! | to | see |
//! |---|---|
//! | make a connection: TCP, TLS and ALPN, SOCKS, CONNECT, PROXY header | [`Connector`], [`Target`] |
//! | send one request on it | [`ChannelExchange`], or [`ExchangeChannel`] below it |
//! | share an HTTP/2 or HTTP/3 connection | [`UpstreamSession`], [`StreamPlace`] |
//! | keep connections by their origin | [`Pool`], [`Origin`] |
//! | send a request again | [`Retry`], [`is_idempotent`] |
//!
//! Read next: `connect.rs`, from a target to a connection; `exchange.rs`, one request on its connection; `pool.rs`.
//!
//! # Files
//!
//! | file | holds |
//! |---|---|
//! | `target.rs` | `Target`: the server of a connection, and the way to it; `ServiceEndpoint` |
//! | `connect.rs` | `Connector`: from a target to a connection, in the version that the server chooses |
//! | `any_channel.rs` | `AnyChannel`: a connection, by the filters below it |
//! | `tunnel.rs` | tunnels through HTTP proxies |
//! | `socks.rs` | tunnels through SOCKS proxies |
//! | `forward_proxy.rs` | `ForwardProxy`: the address, the protocol and the credentials of a proxy |
//! | `codec.rs` | `ExchangeCodec`, `ClientCodec`: the pipelines that carry exchanges |
//! | `channel.rs` | `ExchangeChannel`: the channel of an exchange, whole or split |
//! | `exchange.rs` | `ClientExchange`: one request and its response; `Release`: where its channel goes at its end |
//! | `session.rs` | `UpstreamSession`: an HTTP/2 or HTTP/3 connection, and the places of its streams |
//! | `http3.rs` | HTTP/3: QUIC connections, and the session of one |
//! | `resets.rs` | `Resets`: how many streams of a connection are reset, and the streams whose reset waits |
//! | `retry.rs` | `Retry`: whether a request may be sent again |
//! | `origin.rs` | `Origin`: the target of a request, and the key of the pool |
//! | `pool.rs` | `Pool`: connections by origin, and the requests that wait for them |
//! | `idle_watch.rs` | `IdleWatch`: the task that waits for all idle connections of a pool, of a client or of a proxy |
//! | `connection.rs` | `Connection`: an HTTP/1.1 connection of the pool; `Lease`: its place there |
//! | `shared.rs` | an HTTP/2 or HTTP/3 connection in the pool, and its places for streams |
//! | `error.rs` | `UpstreamError`: why there is no connection |

#![forbid(unsafe_code)]

mod any_channel;
mod channel;
mod codec;
mod connect;
mod connection;
mod error;
mod exchange;
mod forward_proxy;
#[cfg(feature = "http3")]
mod http3;
mod idle_watch;
mod origin;
mod pool;
mod resets;
mod retry;
mod session;
mod shared;
mod socks;
mod target;
mod tunnel;

pub use self::channel::ExchangeChannel;
pub use self::codec::{ClientCodec, ClientFilter, ExchangeCodec, http_error, is_cut_off};
pub use self::connect::{ConnectLimits, Connected, Connector, ConnectorConfig, FromChannel};
pub use self::connection::{Connection, Http1, Lease};
pub use self::error::{Phase, ProxyError, UpstreamError};
pub use self::exchange::{ChannelExchange, ClientExchange, ExchangeFailure, Release};
pub use self::forward_proxy::{ForwardProxy, ProxyKind, basic_credentials};
#[cfg(feature = "http3")]
pub use self::http3::{Http3Config, UdpSockets};
pub use self::idle_watch::{IdleWatch, WatchedPool};
pub use self::origin::{Origin, default_port};
pub use self::pool::{Checkout, Pool, PoolLimits};
pub use self::retry::{Retry, is_idempotent};
pub use self::session::{FromStream, OpenFailure, StreamPlace, UpstreamSession};
pub use self::shared::{SharedHandle, StreamLease};
pub use self::target::{Addresses, ServiceEndpoint, Target, Versions};
