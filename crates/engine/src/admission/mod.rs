//! `Admission`: which peers may connect, and how many connections each of them may have.
//!
//! An acceptor asks the [`AdmissionControl`] of its listener before it makes a connection, on the loop that will serve
//! the connection; the connection's link gives the place back when it is dropped. A refused connection is reset without
//! a byte. A listener without a cap has no control, and pays for none.
//!
//! Peers of Unix sockets have no IP address: they are always admitted and never counted.
//!
//! Read next: `networks.rs`, lists of networks; `table.rs`, the state of each address.

mod networks;
mod table;

use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ipnet::IpNet;
use tidegate_sys::{Address, memory};

use self::networks::Networks;
pub use self::networks::contains_address;
use self::table::{AddressTable, Caps};

/// Which peers may connect to a listener, and how many connections each of them may have.
///
/// An *address* is an IPv4 address, or the first 64 bits of an IPv6 address: one subscriber has at least a /64, so that
/// the rest of the address costs nothing to change. An IPv4-mapped IPv6 address is the IPv4 address. Peers of Unix
/// sockets are always admitted.
///
/// A connection that is refused is reset at once: no byte is read or written. It is counted by its
/// [reason](crate::ListenerCounts::refused) and logged. The default refuses no connection, since behind a load balancer
/// all connections come from a few addresses. `connections_max` and `memory_max` of [`Limits`](crate::Limits) protect a
/// server in any case.
///
/// ```
/// use tidegate::{Admission, ConnectionRate, Listener};
///
/// let admission = Admission {
///     deny: vec!["192.0.2.0/24".parse()?, "2001:db8::/32".parse()?],
///     // The load balancer, whose address has the connections of all clients.
///     exempt: vec!["10.1.0.0/28".parse()?],
///     connections_per_address_max: Some(100),
///     rate_per_address: Some(ConnectionRate::per_second(10).burst(50)),
///     ..Admission::default()
/// };
/// let listener = Listener::bind("127.0.0.1:0")?.admission(admission);
/// # drop(listener);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Admission {
    /// Networks whose peers may connect; all peers if the list is empty, which is the default. It keeps a service of a
    /// private network private, even where a firewall fails.
    pub allow: Vec<IpNet>,
    /// Networks whose peers may not connect, even if `allow` contains them. Default: none. It stops known abusers.
    pub deny: Vec<IpNet>,
    /// Networks whose addresses the two caps below do not apply to, and that are not counted: load balancers, reverse
    /// proxies, health checks. Default: none.
    pub exempt: Vec<IpNet>,
    /// How many connections an address may have at the same time. Default: any number. It stops one peer that opens
    /// connections until the server has none left, idle or slow. Set it above the need of one office or mobile network
    /// behind one address. A closed connection counts for as long as a task keeps its channel.
    pub connections_per_address_max: Option<u32>,
    /// How fast an address may open connections. Default: any rate. It stops one peer that opens and closes connections
    /// to make the server do the work of new ones, such as handshakes.
    pub rate_per_address: Option<ConnectionRate>,
    /// How many addresses the two caps keep track of, on all loops together; about 64 bytes of memory each, only while
    /// they are known. Default: as many as [`Limits::connections_max`](crate::Limits::connections_max) has by default,
    /// so that there is a place for the address of each connection.
    ///
    /// An address is known while it has connections and, if there is a rate, at least until it may open a full burst
    /// again. If all places are taken, a new address takes the place of one without connections, whose rate is
    /// forgotten. If all addresses have connections, the new one is [refused](Refusal::TooManyAddresses).
    pub addresses_max: usize,
}

impl Default for Admission {
    fn default() -> Self {
        Self {
            allow: Vec::new(),
            deny: Vec::new(),
            exempt: Vec::new(),
            connections_per_address_max: None,
            rate_per_address: None,
            addresses_max: memory::descriptors_max().saturating_mul(3).div_euclid(4).min(1 << 20),
        }
    }
}

/// How fast connections may come: a sustained rate, and a burst above it.
///
/// The generic cell rate algorithm (ITU-T I.371) counts: an address that has opened no connection for a while may open
/// `burst` of them at once, and then one for each `interval`. Connections that are refused do not count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConnectionRate {
    /// The time between two connections at the sustained rate.
    pub interval: Duration,
    /// How many connections may come at once, at least one.
    pub burst: u32,
}

impl ConnectionRate {
    /// So many connections per second, and as many at once.
    #[must_use]
    pub const fn per_second(connections: u32) -> Self {
        Self::within(Duration::from_secs(1), connections)
    }

    /// So many connections per minute, and as many at once.
    #[must_use]
    pub const fn per_minute(connections: u32) -> Self {
        Self::within(Duration::from_secs(60), connections)
    }

    /// The same rate with another burst, in connections.
    #[must_use]
    pub const fn burst(self, connections: u32) -> Self {
        Self { burst: connections, ..self }
    }

    /// A rate of none is one connection in that time.
    const fn within(time: Duration, connections: u32) -> Self {
        let connections = if connections == 0 { 1 } else { connections };
        Self { interval: Duration::from_nanos(time.as_nanos() as u64 / connections as u64), burst: connections }
    }
}

/// Why a connection was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Refusal {
    /// Its address is in [`deny`](Admission::deny), or not in [`allow`](Admission::allow).
    Denied,
    /// Its address has [`connections_per_address_max`](Admission::connections_per_address_max) connections.
    TooManyConnections,
    /// Its address opens connections faster than [`rate_per_address`](Admission::rate_per_address).
    TooFast,
    /// [`addresses_max`](Admission::addresses_max) addresses have connections, and this one is another.
    TooManyAddresses,
}

impl Refusal {
    pub(crate) const ALL: [Self; 4] = [Self::Denied, Self::TooManyConnections, Self::TooFast, Self::TooManyAddresses];
}

impl std::fmt::Display for Refusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Denied => "its network may not connect",
            Self::TooManyConnections => "its address has as many connections as one may have",
            Self::TooFast => "its address opens connections too fast",
            Self::TooManyAddresses => "as many addresses as are kept track of have connections",
        })
    }
}

/// The state of an [`Admission`], shared by all loops whose connections count together. A
/// [`Server`](crate::Server) makes one for each; only an application that runs an [`EventLoop`](crate::EventLoop)
/// itself makes it by hand, for [`EventLoop::admission`](crate::EventLoop::admission).
#[derive(Debug)]
pub struct AdmissionControl {
    allow: Option<Networks>,
    deny: Networks,
    exempt: Networks,
    /// `None` if addresses are neither counted nor timed.
    table: Option<AddressTable>,
}

impl AdmissionControl {
    /// The control of these connections; `None` if it would refuse no connection.
    #[must_use]
    pub fn new(admission: &Admission) -> Option<Arc<Self>> {
        let Admission { allow, deny, exempt, connections_per_address_max, rate_per_address, addresses_max } = admission;
        let counts = connections_per_address_max.is_some() || rate_per_address.is_some();
        if allow.is_empty() && deny.is_empty() && !counts {
            return None;
        }
        let caps = Caps {
            connections_max: connections_per_address_max.unwrap_or(u32::MAX),
            rate: *rate_per_address,
            addresses_max: *addresses_max,
        };
        Some(Arc::new(Self {
            allow: (!allow.is_empty()).then(|| Networks::new(allow)),
            deny: Networks::new(deny),
            exempt: Networks::new(exempt),
            table: counts.then(|| AddressTable::new(caps)),
        }))
    }

    /// How many addresses it keeps track of at present.
    #[must_use]
    pub fn addresses(&self) -> usize {
        self.table.as_ref().map_or(0, AddressTable::addresses)
    }

    /// How many connections an address has at present, if they are counted.
    #[must_use]
    pub fn connections(&self, address: IpAddr) -> u32 {
        self.table.as_ref().map_or(0, |table| table.connections(address.to_canonical()))
    }

    /// Whether the lists permit an address, without its counts: for datagrams, which no connection belongs to.
    #[must_use]
    pub fn permits(&self, address: IpAddr) -> bool {
        let ip = address.to_canonical();
        !self.deny.contains(ip) && self.allow.as_ref().is_none_or(|allow| allow.contains(ip))
    }

    /// A connection comes. If it is admitted, its address has one more, until [`release`](Self::release).
    pub(crate) fn admit(&self, peer: &Address, now: Instant) -> Result<(), Refusal> {
        let Some(ip) = canonical(peer) else { return Ok(()) };
        if !self.permits(ip) {
            return Err(Refusal::Denied);
        }
        match &self.table {
            Some(table) if !self.exempt.contains(ip) => table.admit(ip, now),
            _ => Ok(()),
        }
    }

    /// A connection that was admitted is gone.
    pub(crate) fn release(&self, peer: IpAddr) {
        let ip = peer.to_canonical();
        if let Some(table) = &self.table
            && !self.exempt.contains(ip)
        {
            table.release(ip);
        }
    }
}

fn canonical(peer: &Address) -> Option<IpAddr> {
    peer.ip().map(|address| address.ip().to_canonical())
}
