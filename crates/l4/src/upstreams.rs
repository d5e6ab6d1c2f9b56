//! `Upstreams`: servers that can take the same connections or flows, with the state that all loops share.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use tidegate_engine::{NameResolver, Resolve};

use super::balance::{Balance, Balancer, Candidate, hash_of};
use super::health::{Ejection, Health, Millis, millis};

/// Servers that can take the same connections or flows. Clones share them, on all loops.
///
/// ```
/// use tidegate::l4::Upstreams;
///
/// let upstreams = Upstreams::builder().server("tcp://10.0.0.1:5432".parse()?, 1).build();
/// assert_eq!(upstreams.addresses(), ["10.0.0.1:5432".parse()?]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone)]
pub struct Upstreams(pub(crate) Arc<ServerSet>);

/// The place of a server: `tcp://HOST:PORT` or `udp://HOST:PORT`. A name may have several addresses, and each is used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerAddress {
    is_udp: bool,
    host: String,
    port: u16,
}

/// Why a text is not the place of a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum InvalidAddress {
    /// The scheme is neither `tcp` nor `udp`.
    Scheme,
    /// The host is neither an IP address, in brackets if it is one of IPv6, nor a name.
    Host,
    /// The port is no number from 1 to 65,535; there is no default.
    Port,
}

/// Bounds of upstreams. Each default protects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct UpstreamLimits {
    /// How long connecting to one server may take; then the next one is tried. 5 seconds.
    pub connect_timeout: Duration,
    /// Further servers that are tried for one connection. 2. No byte has been passed on until then, so nothing is sent
    /// twice.
    pub retries: u32,
    /// Connections or flows of one server at once, of all loops; further ones go to another server. 65,536. It keeps a
    /// server that is slow from getting all of them.
    pub connections_max: u32,
}

/// How servers are checked: whether they accept a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct ConnectCheck {
    /// Between two checks; 5 seconds.
    pub interval: Duration,
    /// Until a check has failed; 2 seconds.
    pub timeout: Duration,
    /// After how many failures in a row a server gets no connections; 3.
    pub failures: u32,
    /// After how many successes in a row it gets connections again; 2.
    pub successes: u32,
}

/// Makes [`Upstreams`].
#[derive(Debug, Clone, Default)]
#[must_use = "a builder does nothing until it builds"]
pub struct UpstreamsBuilder {
    servers: Vec<(ServerAddress, u32)>,
    balance: Balance,
    ejection: Option<Ejection>,
    limits: UpstreamLimits,
    check: Option<ConnectCheck>,
    resolve_interval: Option<Duration>,
    resolver: NameResolver,
    sends_proxy_header: bool,
}

#[derive(Debug)]
pub(crate) struct ServerSet {
    pub(crate) servers: Vec<(ServerAddress, u32)>,
    pub(crate) limits: UpstreamLimits,
    pub(crate) check: Option<ConnectCheck>,
    pub(crate) resolve_interval: Duration,
    pub(crate) resolver: NameResolver,
    pub(crate) sends_proxy_header: bool,
    ejection: Ejection,
    balancer: Mutex<Balancer>,
    members: Mutex<Arc<[Arc<Member>]>>,
    began: OnceLock<Instant>,
}

/// One address of a server.
#[derive(Debug)]
pub(crate) struct Member {
    /// No two of a process have the same.
    pub(crate) id: u64,
    pub(crate) address: SocketAddr,
    weight: u32,
    hash: u64,
    active: AtomicU32,
    pub(crate) health: Health,
}

/// A connection or a flow that a server has.
#[derive(Debug)]
pub(crate) struct Lease(pub(crate) Arc<Member>);

impl Drop for Lease {
    fn drop(&mut self) {
        self.0.active.fetch_sub(1, Relaxed);
    }
}

impl Upstreams {
    /// Begins a set.
    pub fn builder() -> UpstreamsBuilder {
        UpstreamsBuilder::default()
    }

    /// The addresses in use. Those of names are missing until the [upkeep](Self::maintain_on_thread) has found them.
    #[must_use]
    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.members().iter().map(|member| member.address).collect()
    }

    /// How many addresses get connections now: those that are neither down nor left out.
    #[must_use]
    pub fn available(&self) -> usize {
        let now = self.millis(Instant::now());
        self.members().iter().filter(|member| member.health.is_available(now)).count()
    }

    pub(crate) fn members(&self) -> Arc<[Arc<Member>]> {
        self.0.members.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Milliseconds since the first call.
    pub(crate) fn millis(&self, now: Instant) -> Millis {
        millis(now.saturating_duration_since(*self.0.began.get_or_init(|| now)))
    }

    /// The server for a connection; `None` if none is left that was not tried.
    pub(crate) fn pick(&self, client: Option<IpAddr>, tried: &[u64], now: Instant) -> Option<Lease> {
        let (members, now) = (self.members(), self.millis(now));
        let is_free = |member: &Member| {
            !tried.contains(&member.id) && member.active.load(Relaxed) < self.0.limits.connections_max
        };
        let candidates = |is_eligible: fn(&Health, Millis) -> bool| -> Vec<Candidate> {
            let candidate = |member: &Arc<Member>| Candidate {
                hash: member.hash,
                weight: (member.weight * member.health.share(self.0.ejection.slow_start, now)).max(1),
                active: member.active.load(Relaxed),
                is_eligible: is_free(member) && is_eligible(&member.health, now),
            };
            members.iter().map(candidate).collect()
        };
        let key = client.map_or(0, hash_of);
        let mut balancer = self.0.balancer.lock().unwrap_or_else(PoisonError::into_inner);
        let place = balancer
            .pick(&candidates(Health::is_available), key)
            .or_else(|| balancer.pick(&candidates(|health, _| health.is_last_resort()), key))?;
        let member = members.get(place)?.clone();
        member.active.fetch_add(1, Relaxed);
        Some(Lease(member))
    }

    /// A server cannot be connected to.
    pub(crate) fn on_failure(&self, failed: &Member, now: Instant) {
        let now = self.millis(now);
        let members = self.members();
        let may_eject = || {
            let others = members.iter().filter(|member| member.id != failed.id);
            let available = others.filter(|member| member.health.is_available(now)).count();
            // One that checks have found down counts as left out.
            let away = members.len().saturating_sub(available);
            available > 0 && away * 100 <= members.len() * self.0.ejection.percent_max as usize
        };
        let time = failed.health.on_failure(&self.0.ejection, now, may_eject);
        if let Some(milliseconds) = time {
            tracing::warn!(subsystem = "l4", upstream = %failed.address, milliseconds, "upstream ejected");
        }
    }

    /// Whether names have to be resolved.
    pub(crate) fn has_names(&self) -> bool {
        self.0.servers.iter().any(|(server, _)| server.ip().is_none())
    }

    /// The addresses that a server has now.
    pub(crate) fn addresses_of(&self, place: usize) -> Vec<SocketAddr> {
        self.members().iter().filter(|member| member.is_of(place)).map(|member| member.address).collect()
    }

    /// Replaces the addresses of the server at a place. An address that stays keeps its health.
    pub(crate) fn set_addresses(&self, place: usize, found: &[SocketAddr]) {
        let mut members = self.0.members.lock().unwrap_or_else(PoisonError::into_inner);
        let mut after: Vec<Arc<Member>> = Vec::new();
        for (number, (server, weight)) in self.0.servers.iter().enumerate() {
            // Those of the other servers stay.
            let own: Vec<_> = match (number == place, server.ip()) {
                (true, _) => found.to_vec(),
                (false, Some(ip)) => vec![SocketAddr::new(ip, server.port)],
                (false, None) => {
                    members.iter().filter(|member| member.is_of(number)).map(|member| member.address).collect()
                }
            };
            for address in own {
                let known = members.iter().find(|member| member.address == address && member.is_of(number)).cloned();
                if !after.iter().any(|member| member.address == address) {
                    after.push(known.unwrap_or_else(|| Arc::new(Member::new(number, address, *weight))));
                }
            }
        }
        *members = after.into();
    }
}

impl Member {
    /// The number of the server is in the low bits of the number of the member.
    fn new(server: usize, address: SocketAddr, weight: u32) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let id = NEXT.fetch_add(1, Relaxed) << SERVER_BITS | (server as u64 & SERVER_MASK);
        Self { id, address, weight, hash: hash_of(address), active: AtomicU32::new(0), health: Health::default() }
    }

    fn is_of(&self, server: usize) -> bool {
        self.id & SERVER_MASK == server as u64 & SERVER_MASK
    }
}

impl UpstreamsBuilder {
    /// Adds a server with its weight, which is its share of the connections, compared with the other servers.
    pub fn server(mut self, server: ServerAddress, weight: u32) -> Self {
        self.servers.push((server, weight.clamp(1, WEIGHT_MAX)));
        self
    }

    /// Which server gets a connection; each in turn, unless set. With [`Balance::ConsistentHash`] the key is the address of
    /// the client.
    pub fn balance(mut self, balance: Balance) -> Self {
        self.balance = balance;
        self
    }

    /// When a server that fails is left out for a while; [`Ejection::default_for`] the kind of the first server, unless set.
    /// The last one that is left stays in use, whatever share may be left out.
    pub fn ejection(mut self, ejection: Ejection) -> Self {
        self.ejection = Some(ejection);
        self
    }

    /// Bounds of the servers.
    pub fn limits(mut self, limits: UpstreamLimits) -> Self {
        self.limits = limits;
        self
    }

    /// Checks whether the servers accept connections; of no use for UDP.
    pub fn check(mut self, check: ConnectCheck) -> Self {
        self.check = Some(check);
        self
    }

    /// Until names are resolved again, at the latest; 30 seconds. A resolver with TTLs is asked again when that of the
    /// addresses is over, once a second at most.
    pub fn resolve_interval(mut self, interval: Duration) -> Self {
        self.resolve_interval = Some(interval);
        self
    }

    /// Resolves names in the place of the process's [default](tidegate_engine::DefaultResolver).
    pub fn resolver(mut self, resolver: impl Resolve + Send + Sync) -> Self {
        self.resolver = NameResolver::new(resolver);
        self
    }

    /// Connections begin with a PROXY header, version 2, with the addresses of the client.
    pub fn send_proxy_header(mut self) -> Self {
        self.sends_proxy_header = true;
        self
    }

    /// Makes the set. Names have no address until the [upkeep](Upstreams::maintain_on_thread) runs.
    #[must_use]
    pub fn build(self) -> Upstreams {
        let is_udp = self.servers.first().is_some_and(|(server, _)| server.is_udp);
        let upstreams = Upstreams(Arc::new(ServerSet {
            servers: self.servers,
            limits: self.limits,
            check: self.check,
            resolve_interval: self.resolve_interval.unwrap_or(RESOLVE_INTERVAL),
            resolver: self.resolver,
            sends_proxy_header: self.sends_proxy_header,
            ejection: self.ejection.unwrap_or_else(|| Ejection::default_for(is_udp)),
            balancer: Mutex::new(Balancer::new(self.balance)),
            members: Mutex::new([].into()),
            began: OnceLock::new(),
        }));
        for (place, (server, _)) in upstreams.0.servers.iter().enumerate() {
            if let Some(ip) = server.ip() {
                upstreams.set_addresses(place, &[SocketAddr::new(ip, server.port)]);
            }
        }
        upstreams
    }
}

impl ServerAddress {
    /// Whether it is a server of datagrams.
    #[must_use]
    pub fn is_udp(&self) -> bool {
        self.is_udp
    }

    pub(crate) fn name(&self) -> (&str, u16) {
        (&self.host, self.port)
    }

    pub(crate) fn ip(&self) -> Option<IpAddr> {
        self.host.parse().ok()
    }
}

impl FromStr for ServerAddress {
    type Err = InvalidAddress;

    fn from_str(text: &str) -> Result<Self, InvalidAddress> {
        let (scheme, rest) = text.split_once("://").ok_or(InvalidAddress::Scheme)?;
        let is_udp = match scheme {
            "tcp" => false,
            "udp" => true,
            _ => return Err(InvalidAddress::Scheme),
        };
        let (host, port) = rest.rsplit_once(':').ok_or(InvalidAddress::Port)?;
        let is_number = !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit());
        let port = if is_number { port.parse().ok() } else { None };
        let port = port.filter(|port| *port > 0).ok_or(InvalidAddress::Port)?;
        let in_brackets = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
        let host = match in_brackets {
            Some(ip) => ip.parse::<std::net::Ipv6Addr>().map_err(|_| InvalidAddress::Host)?.to_string(),
            None if is_name(host) => host.to_ascii_lowercase(),
            None => return Err(InvalidAddress::Host),
        };
        Ok(Self { is_udp, host, port })
    }
}

fn is_name(text: &str) -> bool {
    let is_byte = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    let is_label = |label: &str| (1..=63).contains(&label.len()) && label.bytes().all(is_byte);
    text.len() <= 253 && text.strip_suffix('.').unwrap_or(text).split('.').all(is_label)
}

impl fmt::Display for ServerAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.is_udp { "udp" } else { "tcp" };
        match self.ip() {
            Some(IpAddr::V6(ip)) => write!(f, "{scheme}://[{ip}]:{}", self.port),
            _ => write!(f, "{scheme}://{}:{}", self.host, self.port),
        }
    }
}

impl fmt::Display for InvalidAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Scheme => "it begins with tcp:// or udp://",
            Self::Host => "the host is neither an IP address nor a name; one of IPv6 is in brackets",
            Self::Port => "it ends with a port, a number from 1 to 65535",
        })
    }
}

impl std::error::Error for InvalidAddress {}

impl Default for UpstreamLimits {
    fn default() -> Self {
        Self { connect_timeout: Duration::from_secs(5), retries: 2, connections_max: 65_536 }
    }
}

impl Default for ConnectCheck {
    fn default() -> Self {
        Self { interval: Duration::from_secs(5), timeout: Duration::from_secs(2), failures: 3, successes: 2 }
    }
}

/// The largest weight of a server.
pub const WEIGHT_MAX: u32 = 1_000;

const RESOLVE_INTERVAL: Duration = Duration::from_secs(30);
const SERVER_BITS: u32 = 16;
const SERVER_MASK: u64 = (1 << SERVER_BITS) - 1;

#[cfg(test)]
mod tests {
    use super::*;

    fn set(text: &[&str]) -> Upstreams {
        let servers = text.iter().map(|text| text.parse().expect("an address"));
        servers.fold(Upstreams::builder(), |builder, server| builder.server(server, 1)).build()
    }

    #[test]
    fn the_place_of_a_server_has_a_scheme_a_host_and_a_port() {
        for text in ["tcp://10.0.0.1:1", "udp://[::1]:53", "tcp://db.example:5432", "udp://a_b:65535"] {
            assert_eq!(text.parse::<ServerAddress>().map(|server| server.to_string()), Ok(text.to_owned()));
        }
        for (text, error) in [
            ("10.0.0.1:1", InvalidAddress::Scheme),
            ("http://10.0.0.1:1", InvalidAddress::Scheme),
            ("tcp://10.0.0.1", InvalidAddress::Port),
            ("tcp://10.0.0.1:0", InvalidAddress::Port),
            ("tcp://10.0.0.1:65536", InvalidAddress::Port),
            ("tcp://10.0.0.1:+1", InvalidAddress::Port),
            ("tcp://::1:53", InvalidAddress::Host),
            ("tcp://a b:53", InvalidAddress::Host),
            ("tcp://:53", InvalidAddress::Host),
        ] {
            assert_eq!(text.parse::<ServerAddress>(), Err(error), "{text}");
        }
    }

    #[test]
    fn a_server_that_was_tried_or_is_full_is_left_out() {
        let now = Instant::now();
        let upstreams = set(&["tcp://10.0.0.1:1", "tcp://10.0.0.2:1"]);
        let first = upstreams.pick(None, &[], now).expect("a server");
        let second = upstreams.pick(None, &[first.0.id], now).expect("a server");
        assert_ne!(first.0.address, second.0.address);
        assert!(upstreams.pick(None, &[first.0.id, second.0.id], now).is_none());
        let limits = UpstreamLimits { connections_max: 1, ..UpstreamLimits::default() };
        let full = Upstreams::builder().server("tcp://10.0.0.1:1".parse().expect("one"), 1).limits(limits).build();
        let lease = full.pick(None, &[], now);
        assert!(lease.is_some() && full.pick(None, &[], now).is_none());
        drop(lease);
        assert!(full.pick(None, &[], now).is_some());
    }

    #[test]
    fn a_server_that_fails_is_ejected_unless_it_is_the_only_one() {
        let now = Instant::now();
        let upstreams = set(&["tcp://10.0.0.1:1", "tcp://10.0.0.2:1"]);
        let failed = upstreams.members()[0].clone();
        (0..5).for_each(|_| upstreams.on_failure(&failed, now));
        let picked: Vec<_> = (0..4).map(|_| upstreams.pick(None, &[], now).expect("one").0.address).collect();
        assert!(picked.iter().all(|address| *address != failed.address), "{picked:?}");
        let alone = set(&["tcp://10.0.0.1:1"]);
        let only = alone.members()[0].clone();
        (0..20).for_each(|_| alone.on_failure(&only, now));
        assert!(alone.pick(None, &[], now).is_some());
    }

    #[test]
    fn no_more_than_the_permitted_share_is_ejected_at_once() {
        let now = Instant::now();
        for (scheme, percent_max, expected) in
            [("udp", None, 2), ("tcp", None, 1), ("tcp", Some(50), 2), ("tcp", Some(25), 3), ("udp", Some(0), 4)]
        {
            let servers = (1..=4).map(|last| format!("{scheme}://10.0.0.{last}:1").parse().expect("an address"));
            let mut builder = servers.fold(Upstreams::builder(), |builder, server| builder.server(server, 1));
            if let Some(percent_max) = percent_max {
                builder = builder.ejection(Ejection { percent_max, ..Ejection::default() });
            }
            let upstreams = builder.build();
            for member in upstreams.members().iter() {
                (0..20).for_each(|_| upstreams.on_failure(member, now));
            }
            assert_eq!(upstreams.available(), expected, "{scheme} {percent_max:?}");
        }
    }

    #[test]
    fn an_address_that_stays_keeps_its_state_when_a_name_is_resolved_again() {
        let upstreams = set(&["tcp://db.example:5432", "tcp://10.0.0.9:1"]);
        let address = |last: u8| SocketAddr::from(([10, 0, 0, last], 5432));
        upstreams.set_addresses(0, &[address(1), address(2)]);
        let ids: Vec<_> = upstreams.members().iter().map(|member| member.id).collect();
        upstreams.set_addresses(0, &[address(2), address(3)]);
        let members = upstreams.members();
        assert_eq!(upstreams.addresses(), [address(2), address(3), "10.0.0.9:1".parse().expect("an address")]);
        assert_eq!((members[0].id, members[2].id), (ids[1], ids[2]));
    }
}
