//! `Upstreams`: servers that can take the same connections or flows, with the state that all loops share.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use tidegate_engine::{NameResolver, Resolve, ResolvedServer, ResolvingServers};

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
/// `srv+tcp://_postgres._tcp.sea.example` and `srv+udp://` are services (RFC 2782): their servers, ports, weights and
/// priorities are those of their SRV records, which a resolver such as `tidegate::dns::HostResolver` finds. One of a higher priority
/// number gets connections while none of a lower one is available.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ServerAddress {
    is_udp: bool,
    is_service: bool,
    host: String,
    /// 0 for a service.
    port: u16,
}

/// Why a text is not the place of a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum InvalidAddress {
    /// The scheme is none of `tcp`, `udp`, `srv+tcp` and `srv+udp`.
    Scheme,
    /// The host is neither an IP address, in brackets if it is one of IPv6, nor a name.
    Host,
    /// The port is no number from 1 to 65,535; there is no default.
    Port,
    /// A service has a port, or is no name.
    Service,
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
    pub(crate) limits: UpstreamLimits,
    pub(crate) check: Option<ConnectCheck>,
    pub(crate) resolve_interval: Duration,
    pub(crate) resolver: NameResolver,
    pub(crate) sends_proxy_header: bool,
    ejection: Ejection,
    balancer: Mutex<Balancer>,
    list: Mutex<ServerList>,
    /// Whether servers may be added later.
    pub(crate) has_handle: AtomicBool,
    began: OnceLock<Instant>,
}

/// The servers as they were named, and their addresses.
#[derive(Debug)]
struct ServerList {
    servers: Arc<[ListedServer]>,
    /// The addresses of each server by its number. Two servers may have the same one.
    of_servers: HashMap<u64, Vec<Arc<Member>>>,
    /// Each address once, that of the first server which has it.
    members: Arc<[Arc<Member>]>,
}

/// A server as it was named. A server that stays in the list keeps its number.
#[derive(Debug, Clone)]
pub(crate) struct ListedServer {
    pub(crate) number: u64,
    pub(crate) address: ServerAddress,
    pub(crate) weight: u32,
}

/// One address of a server.
#[derive(Debug)]
pub(crate) struct Member {
    /// No two of a process have the same.
    pub(crate) id: u64,
    pub(crate) address: SocketAddr,
    /// The number of the server that it is an address of.
    server: u64,
    weight: AtomicU32,
    /// Of an SRV record; 0 otherwise.
    priority: AtomicU32,
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
        self.list().members.clone()
    }

    fn list(&self) -> MutexGuard<'_, ServerList> {
        self.0.list.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The servers as they were named.
    pub(crate) fn servers(&self) -> Arc<[ListedServer]> {
        self.list().servers.clone()
    }

    /// Changes the servers. Those that stay keep their addresses.
    pub(crate) fn change_servers<T>(&self, change: impl FnOnce(&mut Vec<ListedServer>) -> T) -> T {
        let mut list = self.list();
        let mut servers = list.servers.to_vec();
        let result = change(&mut servers);
        list.servers = servers.into();
        list.update(None);
        result
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
            let may = |member: &&Arc<Member>| is_free(member) && is_eligible(&member.health, now);
            // Of each server with priorities, the lowest number that has an address.
            let mut lowest: HashMap<u64, u32> = HashMap::new();
            if members.iter().any(|member| member.priority() > 0) {
                for member in members.iter().filter(may) {
                    let lowest = lowest.entry(member.server).or_insert(u32::MAX);
                    *lowest = member.priority().min(*lowest);
                }
            }
            let is_first = |member: &Member| lowest.get(&member.server) == Some(&member.priority());
            let candidate = |member: &Arc<Member>| Candidate {
                hash: member.hash,
                weight: (member.weight.load(Relaxed) * member.health.share(self.0.ejection.slow_start, now)).max(1),
                active: member.active.load(Relaxed),
                is_eligible: may(&member) && (member.priority() == 0 || is_first(member)),
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

    /// Whether names have to be resolved, now or later.
    pub(crate) fn has_names(&self) -> bool {
        self.0.has_handle.load(Relaxed) || self.servers().iter().any(|server| server.address.ip().is_none())
    }

    /// The addresses that a server has now, by its number.
    pub(crate) fn known_of(&self, server: u64) -> Vec<ResolvedServer> {
        let list = self.list();
        let known = list.of_servers.get(&server).into_iter().flatten();
        known.map(|member| member.resolved()).collect()
    }

    /// Replaces the addresses of the server with a number. An address that stays keeps its health. A server that has left the
    /// list gets none.
    pub(crate) fn set_addresses(&self, server: u64, found: &[ResolvedServer]) {
        self.list().update(Some((server, found)));
    }
}

impl ServerList {
    /// Makes the addresses of all servers anew: those that were found for one of them, and those that the others have.
    fn update(&mut self, found: Option<(u64, &[ResolvedServer])>) {
        let mut before = std::mem::take(&mut self.of_servers);
        let (mut members, mut seen) = (Vec::new(), HashSet::new());
        for server in self.servers.iter() {
            let known = before.remove(&server.number).unwrap_or_default();
            let own: Vec<ResolvedServer> =
                match (found.filter(|(number, _)| *number == server.number), server.address.ip()) {
                    (Some((_, found)), _) => found.to_vec(),
                    (None, Some(ip)) => vec![SocketAddr::new(ip, server.address.port).into()],
                    (None, None) => known.iter().map(|member| member.resolved()).collect(),
                };
            let own = members_of(server, &own, known);
            members.extend(own.iter().filter(|member| seen.insert(member.address)).cloned());
            self.of_servers.insert(server.number, own);
        }
        self.members = members.into();
    }
}

/// The members of a server at these addresses, with the state of those that are known.
fn members_of(server: &ListedServer, own: &[ResolvedServer], known: Vec<Arc<Member>>) -> Vec<Arc<Member>> {
    let mut known: HashMap<_, _> = known.into_iter().map(|member| (member.address, member)).collect();
    let weight_max = own.iter().map(|one| u32::from(one.weight)).max().unwrap_or_default();
    let member = |resolved: &ResolvedServer| {
        let weight = match u32::from(resolved.weight) {
            _ if !server.address.is_service => server.weight,
            weight if weight_max > WEIGHT_MAX => weight * WEIGHT_MAX / weight_max,
            weight => weight,
        };
        let known = known.remove(&resolved.address);
        let member = known.unwrap_or_else(|| Arc::new(Member::new(server.number, resolved.address)));
        member.weight.store(weight.max(1), Relaxed);
        member.priority.store(resolved.priority.into(), Relaxed);
        member
    };
    own.iter().map(member).collect()
}

impl ListedServer {
    /// A server that no list has had.
    pub(crate) fn new(address: ServerAddress, weight: u32) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Self { number: NEXT.fetch_add(1, Relaxed), address, weight: weight.clamp(1, WEIGHT_MAX) }
    }
}

impl Member {
    fn new(server: u64, address: SocketAddr) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Self {
            id: NEXT.fetch_add(1, Relaxed),
            address,
            server,
            weight: AtomicU32::new(1),
            priority: AtomicU32::new(0),
            hash: hash_of(address),
            active: AtomicU32::new(0),
            health: Health::default(),
        }
    }

    fn priority(&self) -> u32 {
        self.priority.load(Relaxed)
    }

    fn resolved(&self) -> ResolvedServer {
        let (priority, weight) = (self.priority() as u16, self.weight.load(Relaxed) as u16);
        ResolvedServer { address: self.address, priority, weight }
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
    /// addresses is over, once a second at most. After a failed lookup the next one follows after a second; the pause doubles
    /// with each further one, up to that time.
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
        let servers = self.servers.into_iter().map(|(address, weight)| ListedServer::new(address, weight));
        let mut list = ServerList { servers: servers.collect(), of_servers: HashMap::new(), members: [].into() };
        list.update(None);
        Upstreams(Arc::new(ServerSet {
            limits: self.limits,
            check: self.check,
            resolve_interval: self.resolve_interval.unwrap_or(RESOLVE_INTERVAL),
            resolver: self.resolver,
            sends_proxy_header: self.sends_proxy_header,
            ejection: self.ejection.unwrap_or_else(|| Ejection::default_for(is_udp)),
            balancer: Mutex::new(Balancer::new(self.balance)),
            list: Mutex::new(list),
            has_handle: AtomicBool::new(false),
            began: OnceLock::new(),
        }))
    }
}

impl ServerAddress {
    /// Whether it is a server of datagrams.
    #[must_use]
    pub fn is_udp(&self) -> bool {
        self.is_udp
    }

    /// Looks up the addresses of a name, or of a service.
    pub(crate) fn look_up(&self, resolver: &NameResolver) -> ResolvingServers {
        if self.is_service {
            resolver.resolve_service(&self.host)
        } else {
            resolver.resolve_servers(&self.host, self.port)
        }
    }

    pub(crate) fn is_service(&self) -> bool {
        self.is_service
    }

    pub(crate) fn ip(&self) -> Option<IpAddr> {
        self.host.parse().ok()
    }
}

impl FromStr for ServerAddress {
    type Err = InvalidAddress;

    fn from_str(text: &str) -> Result<Self, InvalidAddress> {
        let (scheme, rest) = text.split_once("://").ok_or(InvalidAddress::Scheme)?;
        let (is_udp, is_service) = match scheme {
            "tcp" => (false, false),
            "udp" => (true, false),
            "srv+tcp" => (false, true),
            "srv+udp" => (true, true),
            _ => return Err(InvalidAddress::Scheme),
        };
        if is_service {
            let is_service = is_name(rest) && rest.parse::<IpAddr>().is_err();
            let host = rest.to_ascii_lowercase();
            return if is_service {
                Ok(Self { is_udp, is_service, host, port: 0 })
            } else {
                Err(InvalidAddress::Service)
            };
        }
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
        Ok(Self { is_udp, is_service, host, port })
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
            _ if self.is_service => write!(f, "srv+{scheme}://{}", self.host),
            Some(IpAddr::V6(ip)) => write!(f, "{scheme}://[{ip}]:{}", self.port),
            _ => write!(f, "{scheme}://{}:{}", self.host, self.port),
        }
    }
}

impl fmt::Display for InvalidAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Scheme => "it begins with tcp://, udp://, srv+tcp:// or srv+udp://",
            Self::Host => "the host is neither an IP address nor a name; one of IPv6 is in brackets",
            Self::Port => "it ends with a port, a number from 1 to 65535",
            Self::Service => "a service is a name without a port, as in srv+tcp://_postgres._tcp.sea.example",
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

#[cfg(test)]
mod tests {
    use super::*;

    fn set(text: &[&str]) -> Upstreams {
        let servers = text.iter().map(|text| text.parse().expect("an address"));
        servers.fold(Upstreams::builder(), |builder, server| builder.server(server, 1)).build()
    }

    #[test]
    fn the_place_of_a_server_has_a_scheme_a_host_and_a_port() {
        for text in ["tcp://10.0.0.1:1", "udp://[::1]:53", "tcp://db.example:5432", "srv+tcp://_pg._tcp.a"] {
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
            ("srv://_pg._tcp.a", InvalidAddress::Scheme),
            ("srv+tcp://_pg._tcp.a:5432", InvalidAddress::Service),
            ("srv+udp://10.0.0.1", InvalidAddress::Service),
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
        let name = upstreams.servers()[0].number;
        upstreams.set_addresses(name, &[address(1).into(), address(2).into()]);
        let ids: Vec<_> = upstreams.members().iter().map(|member| member.id).collect();
        upstreams.set_addresses(name, &[address(2).into(), address(3).into()]);
        let members = upstreams.members();
        assert_eq!(upstreams.addresses(), [address(2), address(3), "10.0.0.9:1".parse().expect("an address")]);
        assert_eq!((members[0].id, members[2].id), (ids[1], ids[2]));
    }

    #[test]
    fn an_address_of_two_servers_stays_when_one_of_them_is_removed() {
        let upstreams = set(&["tcp://one.example:1", "tcp://two.example:1"]);
        let address = SocketAddr::from(([10, 0, 0, 1], 1));
        for server in upstreams.servers().iter() {
            upstreams.set_addresses(server.number, &[address.into()]);
        }
        assert_eq!(upstreams.addresses(), [address]);
        assert!(upstreams.handle().remove(&"tcp://one.example:1".parse().expect("an address")));
        assert_eq!(upstreams.addresses(), [address]);
        assert!(upstreams.handle().remove(&"tcp://two.example:1".parse().expect("an address")));
        assert_eq!(upstreams.addresses(), []);
    }

    #[test]
    fn servers_of_a_higher_priority_number_wait_for_those_of_a_lower_one() {
        let now = Instant::now();
        let upstreams = set(&["srv+tcp://_pg._tcp.sea.example"]);
        let server =
            |host: u8, priority, weight| ResolvedServer { address: ([10, 0, 0, host], 5432).into(), priority, weight };
        upstreams.set_addresses(upstreams.servers()[0].number, &[server(1, 1, 3), server(2, 1, 1), server(3, 2, 1)]);
        let picked: Vec<_> = (0..8).map(|_| upstreams.pick(None, &[], now).expect("one").0.address.ip()).collect();
        let count = |host: u8| picked.iter().filter(|ip| **ip == IpAddr::from([10, 0, 0, host])).count();
        assert_eq!([count(1), count(2), count(3)], [6, 2, 0], "{picked:?}");
        let tried: Vec<_> = upstreams.members()[..2].iter().map(|member| member.id).collect();
        assert_eq!(upstreams.pick(None, &tried, now).expect("the last").0.address.ip(), IpAddr::from([10, 0, 0, 3]));
    }
}
