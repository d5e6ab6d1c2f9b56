//! `UdpProxy`: UDP over HTTP (RFC 9298), for the route of a proxy; and `UdpTunnel`, the tunnel of a client.
//!
//! A request names its target. The proxy looks the target up, opens a socket to it, and accepts the request; the task of the
//! tunnel (`relay.rs`) passes datagrams on in both directions. Which clients may do so, and which targets they reach, is decided
//! by rules whose defaults refuse most (`rules.rs`, `target.rs`, `nat64.rs`).

mod counts;
mod metrics;
mod nat64;
mod relay;
mod rules;
mod target;
mod tunnel;

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use http::StatusCode;
use tidegate_engine::{DatagramChannel, EndpointLimits, NameResolver, Resolve, task};
use tidegate_sys::DatagramOptions;

pub use self::counts::UdpProxyCounts;
use self::counts::{TunnelCounters, TunnelPlace, count};
pub use self::nat64::{InvalidNat64Prefix, Nat64Prefix};
use self::relay::{Relay, UDP_BYTES_MAX};
pub use self::rules::UdpProxyRules;
use self::target::{TargetHost, UdpTarget, is_own};
pub use self::tunnel::UdpTunnel;
use crate::capsules::{CapsuleUpgrade, bad_request};
use crate::client_address::ClientAddress;
use crate::extract::FromRequest;
use crate::request::Request;
use crate::response::{IntoResponse, Response};

/// A request that opens a UDP tunnel (RFC 9298), as an argument of a function whose route has the parameters `target_host` and
/// `target_port`. [`UdpProxy::accept`] makes its response. Other requests are refused with 400 (Bad Request), and those for
/// another protocol as [`CapsuleUpgrade::tunnel`] does.
#[derive(Debug)]
#[must_use = "the tunnel is opened by the response of the proxy"]
pub struct ConnectUdp {
    upgrade: CapsuleUpgrade,
    client: ClientAddress,
    target: UdpTarget,
}

/// A UDP proxy (RFC 9298): clients send datagrams to targets by it, over HTTP/3, HTTP/2 and HTTP/1.1. Clones are the same proxy, of
/// which all loops of a server have one.
///
/// The [rules](UdpProxyRules) decide which clients have tunnels, and to which targets. Middleware in front of the route
/// authenticates clients.
///
/// ```
/// use tidegate::http::{BasicAuth, Router, UdpProxy, UdpProxyRules};
///
/// let mut rules = UdpProxyRules::default();
/// rules.clients = vec!["192.0.2.0/24".parse()?];
/// let proxy = UdpProxy::new(rules);
/// let router = move || {
///     Router::new().get(UdpProxy::PATH, proxy.function()).with(BasicAuth::new("Harbour").user("ebb", "flow"))
/// };
/// # drop(router);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone)]
pub struct UdpProxy {
    rules: Arc<UdpProxyRules>,
    resolver: NameResolver,
    counters: Arc<TunnelCounters>,
}

/// Why a request has no tunnel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TunnelRefusal {
    Client,
    Target,
    Full,
    DnsTimeout,
    Dns,
    Socket,
}

impl<S> FromRequest<S> for ConnectUdp {
    fn from_request(request: &mut Request, state: &Rc<S>) -> Result<Self, Response> {
        let upgrade = CapsuleUpgrade::from_request(request, state)?;
        if let Some(refusal) = upgrade.refusal(PROTOCOL) {
            return Err(refusal);
        }
        let target = match (request.parameter("target_host"), request.parameter("target_port")) {
            (Some(host), Some(port)) => UdpTarget::parse(&host, &port),
            _ => None,
        };
        let target = target.ok_or_else(|| bad_request("the request names no target\n"))?;
        Ok(Self { upgrade, client: request.client(), target })
    }

    fn is_absent(request: &Request) -> bool {
        !request.asks_for_upgrade(PROTOCOL) && request.protocol() != Some(PROTOCOL)
    }
}

impl UdpProxy {
    /// The path that clients use unless they know another one (RFC 9298 §3.4).
    pub const PATH: &str = "/.well-known/masque/udp/{target_host}/{target_port}/";

    /// A proxy with these rules, and the resolver of the process.
    #[must_use]
    pub fn new(rules: UdpProxyRules) -> Self {
        Self { rules: Arc::new(rules), resolver: NameResolver::default(), counters: Arc::default() }
    }

    /// Looks names of targets up with this resolver.
    #[must_use]
    pub fn resolver(self, resolver: NameResolver) -> Self {
        Self { resolver, ..self }
    }

    /// The same proxy with other rules, for a reload: open tunnels count towards the bounds of these rules, and both proxies have
    /// the same [`counts`](Self::counts). A tunnel that is open keeps the rules by which it was opened.
    ///
    /// ```
    /// use tidegate::http::{UdpProxy, UdpProxyRules};
    ///
    /// let proxy = UdpProxy::new(UdpProxyRules::default());
    /// let mut rules = UdpProxyRules::default();
    /// rules.tunnels_max = 64;
    /// let reloaded = proxy.with_rules(rules);
    /// assert_eq!(reloaded.counts(), proxy.counts());
    /// ```
    #[must_use]
    pub fn with_rules(&self, rules: UdpProxyRules) -> Self {
        Self { rules: Arc::new(rules), ..self.clone() }
    }

    /// The function of the proxy's route.
    pub fn function(&self) -> impl AsyncFn(ConnectUdp) -> Response + 'static {
        let proxy = self.clone();
        async move |request: ConnectUdp| proxy.accept(request).await
    }

    /// Opens the tunnel of a request, and returns the response that accepts it. A request that has no tunnel gets 403 (Forbidden) by
    /// the rules, 503 beyond the bounds, 502 (Bad Gateway) or 504 (Gateway Timeout) for a target without an address; its field
    /// `Proxy-Status` (RFC 9209) says why.
    pub async fn accept(&self, request: ConnectUdp) -> Response {
        let ConnectUdp { upgrade, client, target } = request;
        let (place, (socket, target)) = match self.open(client, target).await {
            Ok(opened) => opened,
            Err(refusal) => {
                count(refusal.counter(&self.counters));
                return refusal.into_response();
            }
        };
        count(&self.counters.begun);
        let idle_timeout = self.rules.idle_timeout;
        let upgrade = upgrade.capsule_bytes_max(UDP_BYTES_MAX as u32 + CONTEXT_BYTES_MAX);
        upgrade.tunnel(PROTOCOL, move |tunnel| {
            Relay { tunnel, socket, target, place, idle_timeout, last: task::now() }.run()
        })
    }

    /// The numbers so far.
    #[must_use]
    pub fn counts(&self) -> UdpProxyCounts {
        self.counters.counts()
    }

    async fn open(
        &self,
        client: ClientAddress,
        target: UdpTarget,
    ) -> Result<(TunnelPlace, (DatagramChannel, SocketAddr)), TunnelRefusal> {
        let client = self.rules.client(client).ok_or(TunnelRefusal::Client)?;
        if !self.rules.permits_port(target.port) {
            return Err(TunnelRefusal::Target);
        }
        let place = self.counters.place(client, &self.rules).ok_or(TunnelRefusal::Full)?;
        let addresses = self.addresses(&target).await?;
        // A machine without IPv6 reaches an IPv4 address in its IPv6 form too.
        let canonical = |address: SocketAddr| match address.ip().to_canonical() {
            IpAddr::V4(ip) => SocketAddr::new(ip.into(), address.port()),
            IpAddr::V6(_) => address,
        };
        let permitted = addresses.into_iter().map(canonical);
        let permitted: Vec<_> = permitted.filter(|address| self.rules.permits_ip(address.ip(), &is_own)).collect();
        if permitted.is_empty() {
            return Err(TunnelRefusal::Target);
        }
        let payload_bytes_max = self.rules.datagram_bytes_max;
        // A function begins within a dispatch, where no socket can be opened.
        let opened = task::spawn(async move { open_socket(&permitted, payload_bytes_max) });
        match opened.await {
            Ok(Ok(socket)) => Ok((place, socket)),
            Ok(Err(error)) => {
                // A client chooses a target without a route, and could fill the log.
                use io::ErrorKind::{HostUnreachable, NetworkUnreachable, PermissionDenied};
                if matches!(error.kind(), HostUnreachable | NetworkUnreachable | PermissionDenied) {
                    tracing::debug!(subsystem = "http", %error, "no socket for a UDP tunnel");
                } else {
                    tracing::warn!(subsystem = "http", %error, "no socket for a UDP tunnel");
                }
                Err(TunnelRefusal::Socket)
            }
            Err(_) => Err(TunnelRefusal::Socket),
        }
    }

    async fn addresses(&self, target: &UdpTarget) -> Result<Vec<SocketAddr>, TunnelRefusal> {
        let name = match &target.host {
            TargetHost::Ip(ip) => return Ok(vec![SocketAddr::new(*ip, target.port)]),
            TargetHost::Name(name) => name,
        };
        match task::timeout(self.rules.resolve_timeout, self.resolver.resolve(name, target.port)).await {
            Ok(Ok(addresses)) if !addresses.is_empty() => Ok(addresses),
            Ok(Err(error)) if error.kind() == io::ErrorKind::TimedOut => Err(TunnelRefusal::DnsTimeout),
            Ok(_) => Err(TunnelRefusal::Dns),
            Err(_) => Err(TunnelRefusal::DnsTimeout),
        }
    }
}

/// A socket to the first of these addresses to which this machine has a way. The kernel drops datagrams of others.
fn open_socket(addresses: &[SocketAddr], payload_bytes_max: u16) -> io::Result<(DatagramChannel, SocketAddr)> {
    let mut last = io::Error::from(io::ErrorKind::AddrNotAvailable);
    for address in addresses {
        let any = match address {
            SocketAddr::V4(_) => IpAddr::from(Ipv4Addr::UNSPECIFIED),
            SocketAddr::V6(_) => IpAddr::from(Ipv6Addr::UNSPECIFIED),
        };
        let options = DatagramOptions {
            peer: Some(*address),
            payload_bytes_max: payload_bytes_max.max(1),
            ..DatagramOptions::default()
        };
        match DatagramChannel::bind(SocketAddr::new(any, 0), &options, SOCKET_LIMITS) {
            Ok(socket) => return Ok((socket, *address)),
            Err(error) => last = error,
        }
    }
    Err(last)
}

impl TunnelRefusal {
    fn counter(self, counters: &TunnelCounters) -> &AtomicU64 {
        match self {
            Self::Client => &counters.refused_clients,
            Self::Target => &counters.refused_targets,
            Self::Full => &counters.refused_full,
            Self::DnsTimeout | Self::Dns => &counters.refused_names,
            Self::Socket => &counters.refused_sockets,
        }
    }
}

impl IntoResponse for TunnelRefusal {
    fn into_response(self) -> Response {
        let (status, error) = match self {
            Self::Client => (StatusCode::FORBIDDEN, "http_request_denied"),
            Self::Target => (StatusCode::FORBIDDEN, "destination_ip_prohibited"),
            Self::Full => (StatusCode::SERVICE_UNAVAILABLE, "connection_limit_reached"),
            Self::DnsTimeout => (StatusCode::GATEWAY_TIMEOUT, "dns_timeout"),
            Self::Dns => (StatusCode::BAD_GATEWAY, "dns_error"),
            Self::Socket => (StatusCode::BAD_GATEWAY, "destination_ip_unroutable"),
        };
        Response::status(status).header("Proxy-Status", format!("tidegate; error={error}")).into_response()
    }
}

/// The name of the protocol.
const PROTOCOL: &str = "connect-udp";

/// The longest form of a context.
const CONTEXT_BYTES_MAX: u32 = 8;

/// The limits of the socket of a tunnel: a few batches, since each tunnel has its own.
const SOCKET_LIMITS: EndpointLimits =
    EndpointLimits { waiting_max: 256, waiting_bytes_max: 1024 * 1024, unread_max: 256 };
