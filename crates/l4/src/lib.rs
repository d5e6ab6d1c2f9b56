//! Forwarding below HTTP: TCP, TLS by its server name, and UDP; and the parts that proxies share, balance and health of
//! upstreams.
//!
//! | type | passes on |
//! |---|---|
//! | [`TcpForwarder`] | connections, each to one of several [`Upstreams`]; with [`Routes::by_name`] by the server name of TLS |
//! | [`UdpForwarder`] | datagrams, by flows |
//!
//! Neither terminates TLS: the ClientHello is read, and passed on as it came. Decision 159 has the reasons.
//!
//! Read next: `tcp.rs`, then `upstreams.rs`, `client_hello.rs` and `udp.rs`.
//!
//! # Files
//!
//! | file | holds |
//! |---|---|
//! | `tcp.rs` | `TcpForwarder`: the way of a connection |
//! | `opening.rs` | `Opening`: the codec of a connection until its upstream is known |
//! | `client_hello.rs` | the server name of a ClientHello |
//! | `routes.rs` | `Routes`: upstreams by server names |
//! | `udp.rs` | `UdpForwarder`: datagrams by flows |
//! | `upstreams.rs` | `Upstreams`: the servers, with the state that loops share |
//! | `handle.rs` | `UpstreamsHandle`: changes the servers while connections go on |
//! | `maintenance.rs` | `Maintenance`: checks of servers, and their names |
//! | `balance.rs` | `Balance`: which upstream is next |
//! | `health.rs` | `Ejection`; the health of one upstream, and its share |
//! | `tunnel.rs` | `Tunnel`: two connections, joined as bytes |

#![forbid(unsafe_code)]

mod balance;
mod client_hello;
mod handle;
mod health;
mod maintenance;
mod opening;
mod routes;
mod tcp;
mod tunnel;
mod udp;
mod upstreams;

pub use self::balance::{Balance, Balancer, Candidate, hash_of};
pub use self::client_hello::{ClientHello, HelloError, read_client_hello};
pub use self::handle::{TooManyServers, UpstreamsHandle};
pub use self::health::{Ejection, Health, Millis, millis};
pub use self::maintenance::Maintenance;
pub use self::opening::{Opened, Opening, OpeningError};
pub use self::routes::{InvalidName, Routes};
pub use self::tcp::{ForwardError, TcpCounts, TcpForwarder, TcpLimits};
pub use self::tunnel::Tunnel;
pub use self::udp::{UdpCounts, UdpForwarder, UdpRules};
pub use self::upstreams::{
    ConnectCheck, InvalidAddress, ServerAddress, UpstreamLimits, Upstreams, UpstreamsBuilder, WEIGHT_MAX,
};
