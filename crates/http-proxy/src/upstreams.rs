//! `Upstreams`: a set of upstreams, with the state that all loops share.

use std::sync::atomic::{AtomicBool, AtomicU16, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use tidegate_engine::{NameResolver, Resolve};
#[cfg(feature = "http3")]
use tidegate_http_upstream::Http3Config;
use tidegate_http_upstream::{ConnectLimits, Connector, ConnectorConfig};
use tidegate_http1::client;
use tidegate_http2 as http2;
use tidegate_sys::Address;
#[cfg(feature = "tls")]
use tidegate_tls::ClientConfig;

use super::check::HealthCheck;
use super::counts::UpstreamCounts;
use super::loop_counts::LoopCounts;
use super::retry::{Retries, RetryBudget};
use super::server_list::{FoundServer, ServerList, UrlEntry};
use super::shares::Shares;
use super::upstreams_error::UpstreamsError;
use super::url::{Place, UpstreamUrl};
use super::waiting::WaitQueue;
use tidegate_l4::{Balance, hash_of};
use tidegate_l4::{Ejection, Health, Millis, millis};

/// A set of upstreams that can answer the same requests. Clones share it, on all loops.
///
/// ```
/// use tidegate::http::proxy::{Balance, Upstreams};
///
/// let upstreams = Upstreams::builder()
///     .server("http://10.0.0.1:8080".parse()?)
///     .weighted("http://10.0.0.2:8080".parse()?, 2)
///     .balance(Balance::LeastConnections)
///     .build()?;
/// assert_eq!(upstreams.len(), 2);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone)]
pub struct Upstreams(pub(super) Arc<Shared>);

/// Limits that protect a proxy from its upstreams. Every default protects.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct UpstreamLimits {
    /// Requests that one upstream has in progress, of all loops; further ones go to another upstream, and where none is
    /// left wait for a while. 1,024. It keeps a slow upstream from taking all connections.
    pub requests_max: u32,
    /// Requests that one upstream has in progress for one client address, of all loops; for an address of IPv6 the first
    /// 64 bits count. Further ones of that client go to another upstream, or wait. 512: it keeps one client that reads
    /// slowly from taking the room of all others. The first requests in progress, an eighth of this number, count for each
    /// client, so one may get so much less. [`requests_max`](Self::requests_max) or more turns it off, as is due
    /// behind a proxy whose clients cannot be told apart.
    pub requests_per_address_max: u32,
    /// Requests that wait, of all loops, until an upstream has room; further ones get 503 at once. 1,024; 0 has none wait.
    pub queued_requests_max: usize,
    /// How long such a request waits; then it gets 503. 5 seconds.
    pub queue_timeout: Duration,
    /// Idle connections that a loop keeps to one upstream. 64.
    pub idle_connections_max: usize,
    /// Requests that an HTTP/1.1 connection has in progress at a time: those with safe methods that one client has
    /// pipelined, at most [`Limits::pipelined_requests_max`](tidegate_http::Limits::pipelined_requests_max) of them.
    /// 16, of 32 at most; 1 never pipelines.
    pub pipelined_requests_max: u8,
    /// Streams that an HTTP/2 or HTTP/3 connection has open at a time, also if the upstream permits more; further requests get
    /// another connection. 128.
    pub streams_per_connection_max: usize,
    /// Requests of one client address that are cancelled within a second, for each loop: a client that has used half of
    /// them has no more requests in progress than are left, and further ones wait, for ten seconds at most; then they get
    /// 429. 200. It stops a client from having upstreams work, and connections made, for nothing (CVE-2023-44487).
    pub cancellations_max: u32,
    /// How many of them come back in a second, beside one for each eight requests that are completed. 33.
    pub cancellations_per_second: u32,
    /// Streams of one HTTP/2 or HTTP/3 connection that are reset at once. Those beyond it stay open, unread, until their reset is
    /// due; once half of the streams are such, the connection takes no further request. 100. It keeps the clients that
    /// cancel requests from having an upstream end the connection, which others share.
    pub resets_max: u32,
    /// Streams of one HTTP/2 or HTTP/3 connection that are reset in a second. 20.
    pub resets_per_second: u32,
    /// The limits of an HTTP/2 connection. The limits of heads, bodies and idle connections are those here.
    pub http2: http2::Limits,
    /// How long an idle connection is kept. 55 seconds: less than most servers do, since a request fails if the server
    /// closes at the same time.
    pub idle_timeout: Duration,
    /// How long connecting may take, the TLS handshake included; then another upstream is tried, or the response is a
    /// 504. 5 seconds.
    pub connect_timeout: Duration,
    /// From the end of the request to the head of the response; beyond it 504. 30 seconds.
    pub response_timeout: Duration,
    /// How long a request that expects `100 Continue` waits for it; then its body is sent, since the upstream may know
    /// nothing of expectations (RFC 9110 §10.1.1). 1 second.
    pub continue_timeout: Duration,
    /// The longest gap between two pieces of the response's body; beyond it the client sees a truncated response. 60
    /// seconds.
    pub body_timeout: Duration,
    /// Bytes of a response's head; beyond it 502. 32 KiB.
    pub head_bytes_max: u32,
    /// Fields of a response's head; beyond it 502. 100.
    pub headers_max: u32,
    /// Bytes of a response's body, of which nothing is kept; beyond it the client sees a truncated response. 1 TiB.
    pub body_bytes_max: u64,
    /// How long a tunnel may be without a byte in either direction. 1 hour.
    pub tunnel_idle_timeout: Duration,
}

impl Default for UpstreamLimits {
    fn default() -> Self {
        Self {
            requests_max: 1_024,
            requests_per_address_max: 512,
            queued_requests_max: 1_024,
            queue_timeout: Duration::from_secs(5),
            idle_connections_max: 64,
            pipelined_requests_max: 16,
            streams_per_connection_max: 128,
            cancellations_max: 200,
            cancellations_per_second: 33,
            resets_max: 100,
            resets_per_second: 20,
            http2: http2::Limits::default(),
            idle_timeout: Duration::from_secs(55),
            connect_timeout: Duration::from_secs(5),
            response_timeout: Duration::from_secs(30),
            continue_timeout: Duration::from_secs(1),
            body_timeout: Duration::from_secs(60),
            head_bytes_max: 32 * 1024,
            headers_max: 100,
            body_bytes_max: 1 << 40,
            tunnel_idle_timeout: Duration::from_secs(3_600),
        }
    }
}

#[derive(Debug)]
pub(super) struct Shared {
    pub(super) servers: ServerList,
    pub(super) rules: UrlRules,
    /// Whether the servers may change: [`Upstreams::handle`].
    pub(super) has_handle: AtomicBool,
    pub(super) balance: Balance,
    pub(super) ejection: Ejection,
    pub(super) limits: UpstreamLimits,
    pub(super) budget: RetryBudget,
    pub(super) check: Option<HealthCheck>,
    pub(super) resolve_interval: Duration,
    pub(super) resolver: NameResolver,
    /// Connections begin with a PROXY header about the client.
    pub(super) sends_proxy_header: bool,
    pub(super) connector: Connector,
    pub(super) waiting: Arc<WaitQueue>,
    /// Requests for which there was no upstream.
    pub(super) counts: UpstreamCounts,
    /// The counts of upstreams that have left the set.
    pub(super) departed: Arc<UpstreamCounts>,
    began: OnceLock<Instant>,
}

/// Which URLs a set may have.
#[derive(Debug, Clone, Copy)]
pub(super) struct UrlRules {
    has_tls: bool,
    sends_proxy_header: bool,
    /// Names are resolved by the system.
    is_of_system: bool,
}

impl UrlRules {
    pub(super) fn check(self, url: &UpstreamUrl) -> Result<(), UpstreamsError> {
        let is_socket = matches!(&url.place, Place::Address(address) if address.ip().is_none());
        match url {
            _ if url.is_secure && !self.has_tls => Err(UpstreamsError::NoTls),
            _ if self.sends_proxy_header && (url.is_secure || url.is_http2 || is_socket) => {
                Err(UpstreamsError::ProxyHeader)
            }
            _ if self.is_of_system && matches!(url.place, Place::Service(_)) => Err(UpstreamsError::Service),
            _ => Ok(()),
        }
    }
}

/// One address of an upstream.
#[derive(Debug)]
pub(super) struct Upstream {
    /// No two upstreams of a process have the same.
    pub(super) id: u64,
    url: UpstreamUrl,
    pub(super) address: Address,
    /// Its scheme and its address, for logs and metrics.
    pub(super) name: Arc<str>,
    pub(super) counts: UpstreamCounts,
    /// Connections in the pools of the loops.
    pub(super) idle_connections: LoopCounts,
    /// Those over HTTP/2 or HTTP/3.
    pub(super) shared_connections: LoopCounts,
    departed: Arc<UpstreamCounts>,
    /// The name that its certificate has to have.
    pub(super) host: String,
    pub(super) authority: String,
    pub(super) is_secure: bool,
    /// It speaks HTTP/2 by prior knowledge.
    pub(super) is_http2: bool,
    /// It speaks HTTP/3 alone.
    pub(super) is_http3: bool,
    weight: AtomicU32,
    priority: AtomicU16,
    pub(super) hash: u64,
    /// Requests in progress.
    pub(super) active: AtomicU32,
    /// Those of each client address, if the share of one is bounded.
    shares: Shares,
    waiting: Arc<WaitQueue>,
    pub(super) health: Health,
    /// Until when it gets no pipelined requests, since it did not answer such a request.
    unpipelined_until: AtomicU64,
}

/// Makes [`Upstreams`].
#[derive(Debug, Clone, Default)]
#[must_use = "a builder does nothing until it builds"]
pub struct UpstreamsBuilder {
    urls: Vec<(UpstreamUrl, u32)>,
    balance: Balance,
    ejection: Ejection,
    retries: Retries,
    limits: UpstreamLimits,
    check: Option<HealthCheck>,
    resolve_interval: Option<Duration>,
    resolve_timeout: Option<Duration>,
    resolver: NameResolver,
    sends_proxy_header: bool,
    may_be_empty: bool,
    is_http1_only: bool,
    #[cfg(feature = "tls")]
    tls: Option<ClientConfig>,
    #[cfg(feature = "http3")]
    http3: Http3Config,
}

impl Upstreams {
    /// A builder without upstreams.
    pub fn builder() -> UpstreamsBuilder {
        UpstreamsBuilder::default()
    }

    /// Upstreams of equal weight with the default settings.
    ///
    /// # Errors
    /// If a text is not the URL of an upstream, or as [`UpstreamsBuilder::build`].
    pub fn new<'a>(urls: impl IntoIterator<Item = &'a str>) -> Result<Self, Box<dyn std::error::Error>> {
        let mut builder = Self::builder();
        for url in urls {
            builder = builder.server(url.parse()?);
        }
        Ok(builder.build()?)
    }

    /// How many addresses there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.members().len()
    }

    /// Whether there are none, since no name has an address.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl Shared {
    pub(super) fn members(&self) -> Arc<[Arc<Upstream>]> {
        self.servers.members()
    }

    /// The set in words, for the log of a request that none of it could take.
    #[cold]
    pub(super) fn names(&self) -> String {
        match &*self.members() {
            [] => "no name has an address".into(),
            [one] => one.name.to_string(),
            [first, others @ ..] => format!("{} and {} others", first.name, others.len()),
        }
    }

    pub(super) fn generation(&self) -> u64 {
        self.servers.generation()
    }

    /// The time that health counts in.
    pub(super) fn millis(&self, now: Instant) -> Millis {
        millis(now.saturating_duration_since(*self.began.get_or_init(|| now)))
    }

    /// A request to an upstream has failed.
    pub(super) fn on_failure(&self, upstream: &Upstream, now: Instant, is_unreachable: bool) {
        let now = self.millis(now);
        if is_unreachable {
            self.want_lookup(upstream);
        }
        let may_eject = || {
            let members = self.members();
            let is_other = |member: &Upstream| member.id != upstream.id && member.health.is_available(now);
            if is_unreachable && members.iter().any(|member| is_other(member)) {
                return true;
            }
            let away = members.iter().filter(|member| !member.health.is_available(now)).count() + 1;
            away * 100 <= members.len() * self.ejection.percent_max as usize
        };
        if let Some(time) = upstream.health.on_failure(&self.ejection, now, may_eject) {
            upstream.counts.on_ejection();
            tracing::warn!(subsystem = "proxy", upstream = %upstream.address, milliseconds = time, "upstream ejected");
        }
    }

    /// An address of a name cannot be connected to: the name may have others by now.
    fn want_lookup(&self, upstream: &Upstream) {
        for entry in &*self.servers.urls() {
            if entry.url.has_lookup() && upstream.is_of(&entry.url) {
                entry.wants_lookup.store(true, Ordering::Relaxed);
            }
        }
    }
}

impl Upstream {
    pub(super) fn new(url: &UpstreamUrl, server: &FoundServer, set: &Shared) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let address = server.address.clone();
        Self {
            id: NEXT.fetch_add(1, Ordering::Relaxed),
            hash: hash_of(address.to_string()),
            name: url.at(&address).into(),
            counts: UpstreamCounts::default(),
            idle_connections: LoopCounts::default(),
            shared_connections: LoopCounts::default(),
            departed: set.departed.clone(),
            url: url.clone(),
            address,
            host: url.host(),
            authority: url.authority(),
            is_secure: url.is_secure,
            is_http2: url.is_http2,
            is_http3: url.is_http3,
            weight: AtomicU32::new(server.weight),
            priority: AtomicU16::new(server.priority),
            active: AtomicU32::new(0),
            shares: Shares::default(),
            waiting: set.waiting.clone(),
            health: Health::default(),
            unpipelined_until: AtomicU64::new(0),
        }
    }

    /// Whether its connections carry streams in any case.
    pub(super) fn has_streams(&self) -> bool {
        self.is_http2 || self.is_http3
    }

    /// Whether it has room for a request of a client.
    #[inline]
    pub(super) fn has_room(&self, client: Option<u64>, limits: &UpstreamLimits) -> bool {
        let (active, share) = (self.active.load(Ordering::SeqCst), limits.requests_per_address_max);
        let has_share = |client| self.shares.of_client_at_most(client, active) < share;
        active < limits.requests_max && (active < share || client.is_none_or(has_share))
    }

    /// Returns the client if its share counts the request.
    #[inline]
    pub(super) fn begin_request(&self, client: Option<u64>, share: u32) -> Option<u64> {
        let others = self.active.fetch_add(1, Ordering::SeqCst);
        let client = client.filter(|_| Shares::counts(others, share))?;
        self.shares.add(client);
        Some(client)
    }

    #[inline]
    pub(super) fn end_request(&self, client: Option<u64>) {
        if let Some(client) = client {
            self.shares.remove(client);
        }
        self.active.fetch_sub(1, Ordering::SeqCst);
        self.waiting.on_room();
    }

    /// Logs why a client does not get a response of this upstream, once a second at most.
    #[cold]
    pub(super) fn log_failure(&self, error: &str, now: Millis) {
        if let Some(unlogged) = self.counts.may_log(now) {
            tracing::warn!(subsystem = "proxy", upstream = %self.name, %error, unlogged, "request failed");
        }
    }

    /// Whether it gets pipelined requests.
    pub(super) fn may_pipeline(&self, now: impl FnOnce() -> Millis) -> bool {
        let until = self.unpipelined_until.load(Ordering::Relaxed);
        until == 0 || until <= now()
    }

    /// It has not answered a pipelined request in time. It may not know pipelines, or just be slow.
    #[cold]
    pub(super) fn pause_pipelining(&self, now: Millis) {
        self.unpipelined_until.store(now.saturating_add(millis(PIPELINING_PAUSE)), Ordering::Relaxed);
    }

    /// Its share of the requests, compared with the others.
    #[inline]
    pub(super) fn weight(&self) -> u32 {
        self.weight.load(Ordering::Relaxed)
    }

    /// It gets no request while one of the same URL and of a lower number is available.
    #[inline]
    pub(super) fn priority(&self) -> u16 {
        self.priority.load(Ordering::Relaxed)
    }

    /// Takes the weight and the priority that were found. Returns whether they have changed.
    pub(super) fn set_share(&self, server: &FoundServer) -> bool {
        let weight = self.weight.swap(server.weight, Ordering::Relaxed);
        let priority = self.priority.swap(server.priority, Ordering::Relaxed);
        (weight, priority) != (server.weight, server.priority)
    }

    pub(super) fn is_of(&self, url: &UpstreamUrl) -> bool {
        self.url.is_same(url)
    }

    pub(super) fn is_of_same_url(&self, other: &Self) -> bool {
        self.url.is_same(&other.url)
    }

    pub(super) fn is_same(&self, other: &Self) -> bool {
        (self.is_secure, self.is_http2, self.is_http3) == (other.is_secure, other.is_http2, other.is_http3)
            && self.authority == other.authority
            && self.address == other.address
    }
}

/// An upstream that has left its set, once its last request has ended: counters of the set do not go down.
impl Drop for Upstream {
    fn drop(&mut self) {
        self.departed.merge(&self.counts);
    }
}

impl UpstreamsBuilder {
    /// Adds an upstream with the weight 1.
    pub fn server(self, url: UpstreamUrl) -> Self {
        self.weighted(url, 1)
    }

    /// Adds an upstream with a weight, from 1 to 1,000. One whose name has several addresses has it for each.
    ///
    /// # Panics
    /// If the weight is beyond that.
    pub fn weighted(mut self, url: UpstreamUrl, weight: u32) -> Self {
        assert!((1..=WEIGHT_MAX).contains(&weight), "a weight is 1 to 1000");
        self.urls.push((url, weight));
        self
    }

    /// The set may begin without upstreams: for one that a [handle](Upstreams::handle) fills. Requests get 503 until then.
    pub fn allow_empty(mut self) -> Self {
        self.may_be_empty = true;
        self
    }

    /// Which upstream gets the next request: [`Balance::RoundRobin`] unless set.
    pub fn balance(mut self, balance: Balance) -> Self {
        self.balance = balance;
        self
    }

    /// When an upstream whose responses fail is left out.
    pub fn ejection(mut self, ejection: Ejection) -> Self {
        self.ejection = ejection;
        self
    }

    /// Which requests are sent again after a failure.
    pub fn retries(mut self, retries: Retries) -> Self {
        self.retries = retries;
        self
    }

    /// The limits that protect the proxy from its upstreams.
    pub fn limits(mut self, limits: UpstreamLimits) -> Self {
        self.limits = limits;
        self
    }

    /// Checks each upstream by requests of the proxy's own, while [`Upstreams::maintain`] or its thread runs.
    pub fn health_check(mut self, check: HealthCheck) -> Self {
        self.check = Some(check);
        self
    }

    /// How often names are resolved again at least, while [`Upstreams::maintain`] or its thread runs; 30 seconds unless set.
    /// A name is resolved again before that, at most once a second, when the TTL of its addresses is over, if the resolver
    /// has TTLs, or if one of them cannot be connected to. A name that cannot be resolved keeps its addresses, and is tried
    /// again after 5 seconds at most.
    pub fn resolve_interval(mut self, interval: Duration) -> Self {
        self.resolve_interval = Some(interval);
        self
    }

    /// How long [`build`](Self::build) waits for the addresses of names; 5 seconds unless set. It keeps a server of names
    /// that does not answer from stopping the start of a proxy.
    pub fn resolve_timeout(mut self, timeout: Duration) -> Self {
        self.resolve_timeout = Some(timeout);
        self
    }

    /// Resolves names in the place of the process's [default](tidegate_engine::DefaultResolver). Then [`build`](Self::build)
    /// resolves none: [`Upstreams::maintain`] does when it begins, and [`Upstreams::resolve`].
    pub fn resolver(mut self, resolver: impl Resolve + Send + Sync) -> Self {
        self.resolver = NameResolver::new(resolver);
        self
    }

    /// Begins connections with a header of the PROXY protocol, version 2, which names the client and the address that the
    /// client has connected to: those of the connection here, or those that a trusted proxy in front has reported. Such a
    /// connection is for one request, since the next may come from another client.
    pub fn send_proxy_header(mut self) -> Self {
        self.sends_proxy_header = true;
        self
    }

    /// Whether upstreams of `https` are offered HTTP/2 (ALPN); they are, unless set. Requests share an HTTP/2
    /// connection.
    pub fn http2(mut self, offers: bool) -> Self {
        self.is_http1_only = !offers;
        self
    }

    /// The settings of connections to upstreams with the scheme `https+h3`. The limits of heads, bodies and idle connections
    /// are those of [`limits`](Self::limits).
    #[cfg(feature = "http3")]
    pub fn http3(mut self, http3: Http3Config) -> Self {
        self.http3 = http3;
        self
    }

    /// How upstreams with the schemes `https` and `https+h3` are connected to.
    #[cfg(feature = "tls")]
    pub fn tls(mut self, tls: ClientConfig) -> Self {
        self.tls = Some(tls);
        self
    }

    /// The set. Names are resolved beside each other, by the system's resolver up to 32 of them, which blocks until all are, or
    /// for [`resolve_timeout`](Self::resolve_timeout). One that has no address then is resolved again later. Of the
    /// addresses of a name the first 64 are used.
    ///
    /// # Errors
    /// [`UpstreamsError`].
    pub fn build(self) -> Result<Upstreams, UpstreamsError> {
        if self.urls.is_empty() && !self.may_be_empty {
            return Err(UpstreamsError::None);
        }
        let resolve_timeout = self.resolve_timeout.unwrap_or(Duration::from_secs(5));
        #[cfg(feature = "tls")]
        let has_tls = self.tls.is_some();
        #[cfg(not(feature = "tls"))]
        let has_tls = false;
        let is_of_system = self.resolver.is_of_system();
        let rules = UrlRules { has_tls, sends_proxy_header: self.sends_proxy_header, is_of_system };
        self.urls.iter().try_for_each(|(url, _)| rules.check(url))?;
        let limits = &self.limits;
        if limits.head_bytes_max >= 64 * 1024 || limits.head_bytes_max < 1024 {
            return Err(UpstreamsError::Limits);
        }
        #[cfg_attr(not(feature = "http3"), expect(unused_mut, reason = "only HTTP/3 is added later"))]
        let mut connector = connector(
            limits,
            !self.is_http1_only,
            #[cfg(feature = "tls")]
            self.tls,
        );
        let has_http3 = self.urls.iter().any(|(url, _)| url.is_http3);
        #[cfg(feature = "http3")]
        if has_http3 {
            if self.http3.transport.early_data {
                return Err(UpstreamsError::EarlyData);
            }
            connector.set_http3(http3_config(limits, self.http3)).map_err(|_| UpstreamsError::Quic)?;
        }
        if has_http3 && !connector.has_http3() {
            return Err(UpstreamsError::NoHttp3);
        }
        let upstreams = Upstreams(Arc::new(Shared {
            servers: ServerList::default(),
            rules,
            has_handle: AtomicBool::new(false),
            waiting: Arc::default(),
            counts: UpstreamCounts::default(),
            departed: Arc::default(),
            balance: self.balance,
            ejection: self.ejection,
            budget: RetryBudget::new(self.retries),
            limits: self.limits,
            check: self.check,
            resolve_interval: self.resolve_interval.unwrap_or(Duration::from_secs(30)),
            resolver: self.resolver,
            sends_proxy_header: self.sends_proxy_header,
            connector,
            began: OnceLock::new(),
        }));
        let urls = self.urls.into_iter().map(|(url, weight)| UrlEntry::new(url, weight)).collect();
        upstreams.0.servers.change(&upstreams.0, |entries| *entries = urls);
        upstreams.set_first_servers(resolve_timeout);
        Ok(upstreams)
    }
}

/// The connector to the upstreams of a set.
fn connector(
    limits: &UpstreamLimits,
    offers_http2: bool,
    #[cfg(feature = "tls")] tls: Option<ClientConfig>,
) -> Connector {
    let streams = client::Limits {
        head_bytes_max: limits.head_bytes_max,
        headers_max: limits.headers_max,
        body_bytes_max: limits.body_bytes_max,
        head_timeout: limits.response_timeout,
        body_timeout: limits.body_timeout,
        idle_timeout: limits.idle_timeout,
        ..client::Limits::default()
    };
    let http2 = http2::Limits {
        head_bytes_max: limits.head_bytes_max.min(http2::HEAD_BYTES_CEILING),
        headers_max: limits.headers_max,
        body_bytes_max: limits.body_bytes_max,
        idle_timeout: limits.idle_timeout,
        ..limits.http2.clone()
    };
    let pipeline_max = limits.pipelined_requests_max.clamp(1, 32);
    Connector::new(ConnectorConfig {
        http1: client::Config::new(client::Limits { pipeline_max, ..streams.clone() })
            .trim_field_names(true)
            .first_receive_bytes_max(FIRST_RECEIVE_BYTES_MAX),
        streams,
        http2: Some(http2),
        offers_http2,
        resets: [limits.resets_max, limits.resets_per_second],
        limits: ConnectLimits {
            connect_timeout: limits.connect_timeout,
            // Addresses are known here.
            resolve_timeout: limits.connect_timeout,
            addresses_max: 1,
            // No upstream has an alternative.
            http3_head_start: Duration::ZERO,
            engine: tidegate_engine::Limits::default(),
        },
        #[cfg(feature = "tls")]
        tls,
    })
}

/// The HTTP/3 settings for the upstreams of a set.
#[cfg(feature = "http3")]
fn http3_config(limits: &UpstreamLimits, mut config: Http3Config) -> Http3Config {
    config.limits.head_bytes_max = limits.head_bytes_max.min(http2::HEAD_BYTES_CEILING);
    config.limits.headers_max = limits.headers_max;
    config.limits.body_bytes_max = limits.body_bytes_max;
    config.transport.idle_timeout = Some(limits.idle_timeout);
    config
}

/// How long an upstream gets no pipelined requests after one that it did not answer in time.
const PIPELINING_PAUSE: Duration = Duration::from_secs(600);

/// The largest weight.
pub const WEIGHT_MAX: u32 = 1_000;

/// How many bytes one receive brings while a response begins: the bytes that a client without reads makes a stream
/// keep.
const FIRST_RECEIVE_BYTES_MAX: u32 = 16 * 1024;

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use super::*;

    fn address(last: u8) -> Address {
        SocketAddr::from(([10, 0, 0, last], 80)).into()
    }

    #[test]
    fn an_address_that_stays_keeps_its_health() {
        // With a resolver of its own, a set looks up nothing as it is built.
        let upstreams = Upstreams::builder().server("http://app.test".parse().unwrap());
        let upstreams = upstreams.resolver(tidegate_engine::SystemResolver).build().unwrap();
        upstreams.0.servers.set_addresses(&upstreams.0, &[(0, vec![address(1)])]);
        let first = upstreams.0.members()[0].clone();
        let generation = upstreams.0.generation();
        upstreams.0.servers.set_addresses(&upstreams.0, &[(0, vec![address(1), address(2), address(2)])]);
        let members = upstreams.0.members();
        assert_eq!(members.len(), 2);
        assert!(Arc::ptr_eq(&first, &members[0]));
        assert_ne!(generation, upstreams.0.generation());
        upstreams.0.servers.set_addresses(&upstreams.0, &[]);
        assert_eq!(upstreams.len(), 2, "a name that is not resolved keeps its addresses");
        upstreams.0.servers.set_addresses(&upstreams.0, &[(0, vec![])]);
        assert!(upstreams.is_empty());
    }

    #[test]
    fn a_url_that_a_set_has_twice_is_one_however_often_names_are_resolved() {
        let upstreams = Upstreams::new(["http://10.0.0.1", "http://10.0.0.1", "http://10.0.0.2"]).unwrap();
        for _ in 0..10 {
            upstreams.0.servers.set_addresses(&upstreams.0, &[]);
            upstreams.0.servers.set_addresses(&upstreams.0, &[(1, vec![address(1)])]);
        }
        assert_eq!(upstreams.len(), 2);
    }

    #[test]
    fn the_members_of_a_url_are_next_to_each_other() {
        // The choice by priority relies on it. A set may have a URL twice, and addresses are found in any order.
        let urls = ["http://app.test", "http://10.0.0.9", "http://app.test", "http://other.test"];
        let builder = urls.iter().fold(Upstreams::builder(), |builder, url| builder.server(url.parse().unwrap()));
        let upstreams = builder.resolver(tidegate_engine::SystemResolver).build().unwrap();
        let found = [(2, vec![1, 2]), (3, vec![1]), (0, vec![2, 3]), (2, vec![3, 1, 4]), (3, vec![5, 1])];
        for (place, addresses) in found {
            let addresses = addresses.into_iter().map(address).collect();
            upstreams.0.servers.set_addresses(&upstreams.0, &[(place, addresses)]);
            let members = upstreams.0.members();
            let urls: std::collections::HashSet<_> = members.iter().map(|member| member.authority.clone()).collect();
            assert_eq!(members.chunk_by(|one, other| one.is_of_same_url(other)).count(), urls.len());
        }
        assert_eq!(upstreams.len(), 6);
    }

    #[test]
    fn two_unix_sockets_are_two_upstreams() {
        let upstreams = Upstreams::new(["unix:/a", "unix:/b", "unix+h2c:/a", "unix:/b"]).unwrap();
        assert_eq!(upstreams.len(), 3);
        let members = upstreams.0.members();
        assert_eq!(members.iter().map(|member| member.is_http2).collect::<Vec<_>>(), [false, false, true]);
        upstreams.0.servers.set_addresses(&upstreams.0, &[]);
        assert_eq!(upstreams.len(), 3);
    }

    #[test]
    fn upstreams_that_refuse_connections_are_ejected_while_another_one_is_there() {
        let upstreams = Upstreams::new(["http://10.0.0.1", "http://10.0.0.2", "http://10.0.0.3"]).unwrap();
        let (members, now) = (upstreams.0.members(), Instant::now());
        for member in &*members {
            (0..20).for_each(|_| upstreams.0.on_failure(member, now, true));
        }
        let away = members.iter().map(|member| !member.health.is_available(0)).collect::<Vec<_>>();
        assert_eq!(away, [true, true, false], "the last one stays");
    }

    #[test]
    fn a_set_with_impossible_options_is_refused() {
        let url = |text: &str| text.parse::<UpstreamUrl>().unwrap();
        assert_eq!(Upstreams::builder().build().err(), Some(UpstreamsError::None));
        let secure = Upstreams::builder().server(url("https://10.0.0.1")).build();
        assert_eq!(secure.err(), Some(UpstreamsError::NoTls));
        let unix = Upstreams::builder().server(url("unix:/a")).send_proxy_header().build();
        assert_eq!(unix.err(), Some(UpstreamsError::ProxyHeader));
        let limits = UpstreamLimits { head_bytes_max: 1 << 20, ..UpstreamLimits::default() };
        let large = Upstreams::builder().server(url("http://10.0.0.1")).limits(limits).build();
        assert_eq!(large.err(), Some(UpstreamsError::Limits));
    }

    #[test]
    fn at_most_half_of_the_upstreams_are_ejected() {
        let upstreams = Upstreams::new(["http://10.0.0.1", "http://10.0.0.2", "http://10.0.0.3"]).unwrap();
        let (members, now) = (upstreams.0.members(), Instant::now());
        for member in &*members {
            (0..20).for_each(|_| upstreams.0.on_failure(member, now, false));
        }
        let away = members.iter().filter(|member| !member.health.is_available(0)).count();
        assert_eq!(away, 1, "half of three is one");
    }
}
