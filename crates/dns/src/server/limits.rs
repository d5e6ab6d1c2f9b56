//! `ServerLimits`: the limits of a server.

use std::time::Duration;

use tidegate_engine::{Deadlines, Limits};

use super::rate_limit::RateLimits;

/// The limits that protect a [`DnsServer`](super::DnsServer). Those in flight concern responses that a handler gives
/// [later](super::Reply::Later).
///
/// ```
/// use tidegate::dns::server::ServerLimits;
///
/// let limits = ServerLimits { in_flight_max: 100, ..ServerLimits::default() };
/// assert_eq!(limits.idle_timeout.as_secs(), 30);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ServerLimits {
    /// Rates of responses in datagrams, against amplification by forged sources: those of [`RateLimits`] unless set. Peers
    /// of the same machine are not limited. `None` is for networks in which no source can be forged.
    pub rates: Option<RateLimits>,
    /// Queries in datagrams and on connections that wait for their responses, on each loop; 4,096. Further ones get an answer
    /// of the cache or SERVFAIL: a flood of names that no cache has does not fill the memory.
    pub in_flight_max: usize,
    /// The same of one client, which is an IPv4 address or an IPv6 /64; 1,024. One client does not take all places.
    pub in_flight_per_client_max: usize,
    /// Queries of one connection that wait for their responses; 128. The loop reads on when one is answered.
    pub in_flight_per_connection_max: usize,
    /// Bytes of the kernel's buffer for received datagrams (SO_RCVBUF), on each loop; 1 MiB, or the kernel's maximum
    /// (`net.core.rmem_max`) if that is less. `None` for the kernel's default, which has room for some 270 queries: a burst of more is
    /// lost while the loop works on a batch or the machine is busy.
    pub receive_buffer_bytes: Option<usize>,
    /// Connections of all clients; 4,096. Further ones wait in the kernel.
    pub connections_max: usize,
    /// Connections of one address; 64. Further ones are reset.
    pub connections_per_address_max: u32,
    /// How long a connection may be without a byte in either direction; 30 s (RFC 7766 §6.2.3).
    pub idle_timeout: Duration,
    /// How long a message may take to arrive that has begun; 5 s. It stops a length whose message never comes.
    pub read_timeout: Duration,
    /// How long a connection may be without progress while responses wait to be read; 10 s.
    pub write_timeout: Duration,
}

impl Default for ServerLimits {
    fn default() -> Self {
        Self {
            rates: Some(RateLimits::default()),
            in_flight_max: 4_096,
            in_flight_per_client_max: 1_024,
            in_flight_per_connection_max: 128,
            receive_buffer_bytes: Some(1 << 20),
            connections_max: 4_096,
            connections_per_address_max: 64,
            idle_timeout: Duration::from_secs(30),
            read_timeout: Duration::from_secs(5),
            write_timeout: Duration::from_secs(10),
        }
    }
}

impl ServerLimits {
    /// The limits of the connections.
    pub(super) fn of_engine(&self) -> Limits {
        let deadlines = Deadlines {
            idle_timeout: Some(self.idle_timeout),
            read_timeout: Some(self.read_timeout),
            ..Deadlines::default()
        };
        let (connections_max, write_timeout) = (self.connections_max.max(1), self.write_timeout);
        Limits { connections_max, write_timeout, deadlines, ..Limits::default() }
    }
}
