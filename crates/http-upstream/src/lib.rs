//! One way out, for the client and for the proxy: connections to HTTP servers, and the exchanges on them.
//!
//! | to | see |
//! |---|---|
//! | make a connection: TCP, TLS and ALPN, SOCKS, CONNECT, PROXY header | [`Connector`], [`Target`] |
//! | send one request on it | [`ChannelExchange`], or [`ExchangeChannel`] below it |
//! | share an HTTP/2 connection | [`Http2Connection`], [`StreamPlace`] |
//! | keep connections by their origin | [`Pool`], [`Origin`] |
//! | send a request again | [`Retry`], [`is_idempotent`] |
//!
//! Read next: `connect.rs`, from a target to a connection; `exchange.rs`, one request on its connection; `pool.rs`.

#![forbid(unsafe_code)]

mod channel;
mod codec;
mod connect;
mod connection;
mod error;
mod exchange;
mod forward_proxy;
mod http2;
mod origin;
mod pool;
mod resets;
mod resolve;
mod retry;
mod shared;
mod socks;
mod target;
mod tunnel;

pub use self::channel::ExchangeChannel;
pub use self::codec::{ClientCodec, ClientFilter, ExchangeCodec};
pub use self::connect::{ConnectLimits, Connected, Connector, ConnectorConfig, FromChannel};
pub use self::connection::{Connection, Http1, Lease};
pub use self::error::{Phase, ProxyError, UpstreamError};
pub use self::exchange::{ChannelExchange, ClientExchange, ExchangeFailure, Release};
pub use self::forward_proxy::{ForwardProxy, ProxyKind, basic_credentials};
pub use self::http2::{Http2Connection, OpenFailure, StreamPlace};
pub use self::origin::{Origin, default_port};
pub use self::pool::{Checkout, Pool, PoolLimits};
pub use self::resolve::{Resolve, Resolving, SystemResolver};
pub use self::retry::{Retry, is_idempotent};
pub use self::shared::StreamLease;
pub use self::target::{Addresses, Target, Versions};
