//! `Routes`: forwarded requests and their upstreams, as routers of loops; and its reload.

use std::collections::{BTreeMap, HashMap};
use std::error::Error;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tidegate::http;
use tidegate::http::proxy::{
    Ejection, Forwarding, HealthCheck, Maintenance, Proxy, RateLimit, Retries, UpstreamLimits, Upstreams,
};
use tidegate::http::{LineLog, Reload, Router, Slashes, StatusCode};
use tidegate::metrics;
use tidegate::tls::{ClientConfig, Provider};

use super::config::{Config, GroupLimits, RESPONSE_TIMEOUT_MAX, Route, UpstreamGroup, edits};
use crate::access_log::AccessLogFormat;
use crate::sites::host_key;

/// Where it is read from which requests are passed on.
pub(super) enum Source {
    File(PathBuf),
    /// Flags, which do not change; the certificates that they name do.
    Flags(Config),
}

/// The routes to upstreams, and the source of their configuration.
pub(super) struct Routes {
    source: Source,
    access_log: LineLog,
    current: Mutex<Arc<ResolvedRoutes>>,
    reload: Reload,
}

/// Routes whose upstreams are known.
struct ResolvedRoutes {
    access_log: AccessLogFormat,
    slashes: Slashes,
    upstreams: HashMap<String, Upstreams>,
    routes: Vec<PreparedRoute>,
    /// Checks the upstreams until another file is in use.
    _maintenance: Vec<Maintenance>,
}

struct PreparedRoute {
    route: Route,
    rate: Option<RateLimit>,
}

impl Routes {
    /// More than any upstream may take.
    pub(super) const RESPONSE_TIMEOUT_CEILING: Duration = Duration::from_secs(2 * RESPONSE_TIMEOUT_MAX as u64);

    pub(super) fn new(source: Source, access_log: &LineLog) -> Result<Self, Box<dyn Error>> {
        let current = Mutex::new(Arc::new(ResolvedRoutes::new(source.read()?)?));
        Ok(Self { source, access_log: access_log.clone(), current, reload: Reload::new() })
    }

    /// The handle that makes the loops build their routers anew.
    pub(super) fn reload_handle(&self) -> &Reload {
        &self.reload
    }

    /// Reads the file again, and the certificates that it or a flag names, and logs the outcome in one line. If one has a
    /// mistake, nothing changes.
    pub(super) fn reload(&self) {
        if !self.source.names_files() {
            return;
        }
        match self.source.read().and_then(ResolvedRoutes::new) {
            Ok(prepared) => {
                *self.current.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(prepared);
                self.reload.reload();
                tracing::info!(subsystem = "proxy", "configuration reloaded");
            }
            Err(error) => {
                tracing::error!(subsystem = "proxy", %error, "configuration not reloaded; the old one stays in use");
            }
        }
    }

    /// The upstreams in use, for metrics and the live page.
    pub(super) fn snapshot(&self) -> Vec<metrics::UpstreamGroup> {
        let prepared = self.current.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let mut groups: Vec<_> = prepared.upstreams.iter().map(|(name, set)| set.snapshot(name)).collect();
        groups.sort_unstable_by(|one, other| one.name.cmp(&other.name));
        groups
    }

    /// The router of one loop.
    pub(super) fn router(&self) -> Router {
        let prepared = self.current.lock().unwrap_or_else(PoisonError::into_inner).clone();
        // The routes of a loop share the idle connections of each upstream.
        let proxies: HashMap<_, _> =
            prepared.upstreams.iter().map(|(name, upstreams)| (name.as_str(), Proxy::new(upstreams))).collect();
        let mut by_host: BTreeMap<String, Router> = BTreeMap::new();
        for route in &prepared.routes {
            let proxy = route.proxy(&proxies[route.route.upstream.get_ref().as_str()]);
            let hosts = &route.route.hosts;
            let named = hosts.iter().map(|host| host_key(host.get_ref()));
            let all = if hosts.is_empty() { vec![String::new()] } else { named.collect() };
            for host in all {
                let router = by_host.remove(&host).unwrap_or_default();
                let half_close = route.route.half_close;
                let router = match route.route.prefix() {
                    "" => router.fallback(http::half_close(half_close, proxy.clone())),
                    prefix => router.nest(prefix, Router::new().fallback(http::half_close(half_close, proxy.clone()))),
                };
                by_host.insert(host, router);
            }
        }
        let with_log = |router: Router| {
            let router = router.slashes(prepared.slashes);
            match prepared.access_log.access_log(&self.access_log) {
                Some(log) => router.with(log),
                None => router,
            }
        };
        let rest = by_host.remove("");
        let all = rest.unwrap_or_else(|| Router::new().fallback(|| StatusCode::MISDIRECTED_REQUEST));
        by_host.into_iter().fold(with_log(all), |all, (host, router)| all.host(&host, with_log(router)))
    }
}

impl Source {
    fn read(&self) -> Result<Config, Box<dyn Error>> {
        match self {
            Self::File(path) => Ok(Config::read(path)?),
            Self::Flags(config) => {
                let mut config = config.clone();
                config.check(Path::new("")).map_err(|(_, text)| text)?;
                Ok(config)
            }
        }
    }

    /// Whether files configure the routes: the configuration, or the certificates of authorities, which are those of
    /// the system if no flag names any.
    fn names_files(&self) -> bool {
        match self {
            Self::File(_) => true,
            Self::Flags(config) => config.upstream.iter().any(|group| group.get_ref().is_secure()),
        }
    }
}

impl ResolvedRoutes {
    fn new(config: Config) -> Result<Self, Box<dyn Error>> {
        let mut upstreams = HashMap::new();
        let mut maintenance = Vec::new();
        for group in config.upstream {
            let group = group.into_inner();
            let built = built(&group)?;
            maintenance.push(built.maintain_on_thread()?);
            upstreams.insert(group.name.into_inner(), built);
        }
        let mut routes = Vec::new();
        for route in config.route {
            let route = route.into_inner();
            let rate = route.rate().map_err(|(_, text)| text)?.map(RateLimit::new);
            routes.push(PreparedRoute { route, rate });
        }
        let (access_log, slashes) = (config.access_log, config.slashes.slashes());
        Ok(Self { access_log, slashes, upstreams, routes, _maintenance: maintenance })
    }
}

/// Checks the names in a file, without a request to an upstream.
pub(super) fn check(config: Config) -> Result<String, Box<dyn Error>> {
    let what = format!("{} upstreams, {} routes", config.upstream.len(), config.route.len());
    for group in config.upstream {
        built(&group.into_inner())?;
    }
    for route in config.route {
        route.into_inner().rate().map_err(|(_, text)| text)?;
    }
    Ok(what)
}

/// The upstreams of a group.
fn built(group: &UpstreamGroup) -> Result<Upstreams, Box<dyn Error>> {
    let mut builder = Upstreams::builder().balance(group.balance.balance());
    for server in &group.servers {
        let (url, weight) = server.get_ref().parts();
        builder = builder.weighted(url.parse()?, weight);
    }
    if group.send_proxy {
        builder = builder.send_proxy_header();
    }
    if group.is_secure() {
        let provider = Provider::aws_lc_rs();
        let tls = match &group.ca {
            Some(ca) => ClientConfig::builder_with_root_file(&provider, ca.get_ref())?,
            None => ClientConfig::builder_with_platform_roots(&provider)?,
        };
        builder = builder.tls(tls.alpn(["http/1.1"]).build()?);
    }
    if let Some(given) = &group.health_check {
        let given = given.get_ref();
        let mut check = HealthCheck::default();
        check.path = given.path.clone().unwrap_or(check.path);
        check.host.clone_from(&given.host);
        check.interval = seconds(given.interval, check.interval);
        check.timeout = seconds(given.timeout, check.timeout);
        check.failures = given.failures.unwrap_or(check.failures);
        check.successes = given.successes.unwrap_or(check.successes);
        builder = builder.health_check(check);
    }
    if let Some(interval) = &group.resolve_interval {
        builder = builder.resolve_interval(Duration::from_secs((*interval.get_ref()).into()));
    }
    let (given, mut ejection) = (&group.ejection, Ejection::default());
    ejection.failures = given.failures.unwrap_or(ejection.failures);
    ejection.time = seconds(given.time, ejection.time);
    ejection.time_max = seconds(given.time_max, ejection.time_max);
    ejection.percent_max = given.percent_max.unwrap_or(ejection.percent_max);
    ejection.slow_start = seconds(given.slow_start, ejection.slow_start);
    let (given, mut retries) = (&group.retries, Retries::default());
    retries.per_request = given.per_request.unwrap_or(retries.per_request);
    retries.percent = given.percent.unwrap_or(retries.percent);
    retries.reserve = given.reserve.unwrap_or(retries.reserve);
    Ok(builder.ejection(ejection).retries(retries).limits(limits(&group.limits)).build()?)
}

/// The limits of an upstream, with the defaults of those that the file does not set.
fn limits(given: &GroupLimits) -> UpstreamLimits {
    let mut limits = UpstreamLimits::default();
    limits.requests_max = given.requests.unwrap_or(limits.requests_max);
    let per_address_max = given.requests_per_address.unwrap_or(limits.requests_per_address_max);
    limits.requests_per_address_max = per_address_max;
    limits.queued_requests_max = given.queued_requests.map_or(limits.queued_requests_max, |count| count as usize);
    limits.queue_timeout = seconds(given.queue_timeout, limits.queue_timeout);
    limits.idle_connections_max = given.idle_connections.map_or(limits.idle_connections_max, |count| count as usize);
    limits.pipelined_requests_max = given.pipelined_requests.unwrap_or(limits.pipelined_requests_max);
    limits.cancellations_max = given.cancellations.unwrap_or(limits.cancellations_max);
    limits.cancellations_per_second = given.cancellations_per_second.unwrap_or(limits.cancellations_per_second);
    limits.resets_max = given.resets.unwrap_or(limits.resets_max);
    limits.resets_per_second = given.resets_per_second.unwrap_or(limits.resets_per_second);
    limits.idle_timeout = seconds(given.idle_timeout, limits.idle_timeout);
    limits.connect_timeout = seconds(given.connect_timeout, limits.connect_timeout);
    limits.response_timeout = seconds(given.response_timeout, limits.response_timeout);
    limits.body_timeout = seconds(given.body_timeout, limits.body_timeout);
    limits.tunnel_idle_timeout = seconds(given.tunnel_idle_timeout, limits.tunnel_idle_timeout);
    limits
}

fn seconds(set: Option<u32>, default: Duration) -> Duration {
    set.map_or(default, |set| Duration::from_secs(set.into()))
}

impl PreparedRoute {
    /// The proxy of a route, on one loop. The file was checked.
    fn proxy(&self, upstream: &Proxy) -> Proxy {
        let route = &self.route;
        let mut forwarding = Forwarding::default();
        forwarding.x_forwarded = route.x_forwarded;
        forwarding.forwarded = route.forwarded;
        forwarding.trusted = route.networks().unwrap_or_default();
        let mut proxy = upstream.clone().forwarding(forwarding).hash_key(route.key().unwrap_or_default());
        proxy = match route.host.as_ref().map(|host| host.get_ref().as_str()) {
            None | Some("keep") => proxy,
            Some("upstream") => proxy.host_of_upstream(),
            Some(name) => proxy.host(name),
        };
        if route.strip_path && !route.prefix().is_empty() {
            proxy = proxy.strip_prefix(route.prefix());
        }
        if let Some(seconds) = route.response_timeout {
            proxy = proxy.response_timeout(Duration::from_secs(seconds.into()));
        }
        for edit in edits(route.request_headers.as_ref()).unwrap_or_default() {
            proxy = proxy.edit_request(edit);
        }
        for edit in edits(route.response_headers.as_ref()).unwrap_or_default() {
            proxy = proxy.edit_response(edit);
        }
        if let Some(protocols) = &route.upgrades {
            proxy = proxy.upgrades(protocols.iter().map(String::as_str));
        }
        if route.connect {
            proxy = proxy.pass_connect();
        }
        match &self.rate {
            Some(rate) => proxy.rate_limit(rate),
            None => proxy,
        }
    }
}
