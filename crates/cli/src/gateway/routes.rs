//! From the routes of a configuration to the routers of loops.
//!
//! All loops share `OpenRoutes`: servers, open folders, pages. `RouteTable` has the one in use, and gives each
//! loop its router, again after a reload.

use std::collections::{HashMap, VecDeque};
use std::error::Error;
use std::sync::{Arc, Mutex, PoisonError};

use tidegate::IpNet;
use tidegate::acme::Http01;
use tidegate::http::cache::Cache;
use tidegate::http::proxy::{Edit, Forwarding, Maintenance, Mirror, Proxy, RateLimit, StickyCookie, Upstreams};
use tidegate::http::{
    self, Condition, ContentType, ErrorPage, ErrorPages, Files, IntoResponse, InvalidField, LineLog, Reload, Request,
    RequestFunction, Response, ResponseCompression, Router, Slashes, StatusCode, Template, TlsInfos, TrustedProxies,
    UdpProxy, UdpProxyCounts, Wrapper, with_middleware,
};
use tidegate::metrics::UpstreamGroup;

use super::guards::{Guards, networks};
use super::rate_stores::RateStores;
use super::{conditions, upstreams};
use crate::access_log::AccessLogFormat;
use crate::config::{
    Action, Conditions, Config, ErrorStatuses, FixedResponse, HostRule, PathPlan, Redirect, RequestIdRule, Route,
    StickyRule, UdpProxyRule, Upstream, host_plan,
};
use crate::telemetry::Telemetry;

/// The routes in use, and the way to others.
pub(crate) struct RouteTable {
    access_log: LineLog,
    current: Mutex<Arc<OpenRoutes>>,
    reload: Reload,
}

/// Routes whose servers are known and whose folders are open.
pub(crate) struct OpenRoutes {
    access_log: AccessLogFormat,
    telemetry: Option<Arc<Telemetry>>,
    request_ids: Option<RequestIdRule>,
    slashes: Slashes,
    /// The proxies in front of routes that have none of their own.
    trusted: Vec<IpNet>,
    upstreams: HashMap<String, OpenUpstream>,
    routes: Vec<OpenRoute>,
    /// The paths of each host, each with the routes that are asked in turn.
    hosts: Vec<(String, PathPlan)>,
}

/// The parts that the routes of one loop share.
struct LoopParts<'r> {
    /// By the name of the upstream.
    proxies: HashMap<&'r str, Proxy>,
    /// Async middleware, by the number of the route.
    wrappers: Vec<Vec<Wrapper>>,
    /// The proxies in front of all routes.
    trusted: &'r [IpNet],
}

/// A route, with the parts that all loops share.
struct OpenRoute {
    /// Its place among the routes.
    number: usize,
    route: Route,
    rate: Option<RateLimit>,
    sticky: Option<StickyCookie>,
    mirror: Option<Mirror>,
    guards: Guards,
    files: Option<Files>,
    udp: Option<UdpProxy>,
    error_pages: Vec<(ErrorStatuses, ErrorPage)>,
}

impl RouteTable {
    pub(crate) fn new(routes: OpenRoutes, access_log: &LineLog) -> Self {
        Self { access_log: access_log.clone(), current: Mutex::new(Arc::new(routes)), reload: Reload::new() }
    }

    /// The handle that makes the loops build their routers anew.
    pub(crate) fn reload_handle(&self) -> &Reload {
        &self.reload
    }

    /// Uses other routes from the next request on.
    pub(crate) fn replace(&self, mut routes: OpenRoutes) {
        let mut current = self.lock();
        routes.adopt(&current);
        let before = std::mem::replace(&mut *current, Arc::new(routes));
        drop(current);
        drop(before);
        self.reload.reload();
    }

    /// The upstreams in use, for metrics and the live page.
    pub(crate) fn snapshot(&self) -> Vec<UpstreamGroup> {
        let routes = self.lock().clone();
        let mut groups: Vec<_> = routes.upstreams.iter().map(|(name, open)| open.set.snapshot(name)).collect();
        groups.sort_unstable_by(|one, other| one.name.cmp(&other.name));
        groups
    }

    /// The routes in use.
    pub(crate) fn current(&self) -> Arc<OpenRoutes> {
        self.lock().clone()
    }

    /// The caches in use, each with the hosts and the path of its route.
    pub(crate) fn caches(&self) -> Vec<(String, Cache)> {
        let routes = self.lock().clone();
        let mut caches: Vec<(String, Cache)> = Vec::new();
        for open in &routes.routes {
            let Some(cache) = &open.guards.cache else { continue };
            let name = open.route.name();
            let others = caches.iter().filter(|(other, _)| *other == name || other.starts_with(&format!("{name} #")));
            let number = others.count() + 1;
            caches.push((if number > 1 { format!("{name} #{number}") } else { name }, cache.clone()));
        }
        caches
    }

    /// The figures of the UDP proxies in use, each with the hosts and the path of its route.
    pub(crate) fn udp_proxies(&self) -> Vec<(String, UdpProxyCounts)> {
        let routes = self.lock().clone();
        let of_route = |open: &OpenRoute| Some((open.route.name(), open.udp.as_ref()?.counts()));
        let mut named: Vec<(String, UdpProxyCounts)> = routes.routes.iter().filter_map(of_route).collect();
        for number in 1..named.len() {
            let (before, rest) = named.split_at_mut(number);
            let same = before.iter().filter(|(name, _)| name.split(" #").next() == Some(&*rest[0].0)).count();
            if same > 0 {
                rest[0].0.push_str(&format!(" #{}", same + 1));
            }
        }
        named
    }

    /// The router of a listener that has one function for all requests.
    pub(crate) fn router_of<M>(&self, function: impl RequestFunction<(), M>, http01: &[Http01]) -> Router {
        let routes = self.lock().clone();
        routes.with_front(Router::new().fallback(function), &self.access_log, http01)
    }

    /// The router of one loop. It answers these challenges of certificates.
    pub(crate) fn router(&self, http01: &[Http01]) -> Router {
        let routes = self.lock().clone();
        routes.router(&self.access_log, http01)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Arc<OpenRoutes>> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl OpenRoutes {
    /// Opens folders, reads pages and finds upstreams. Checks of the upstreams begin with [`maintain`](Self::maintain).
    ///
    /// Upstreams of `before` whose settings are the same are kept with their health, and so are the counts and the stored
    /// responses of routes.
    pub(crate) fn open(config: &Config, before: Option<&Self>) -> Result<Self, Box<dyn Error>> {
        let mut sets = HashMap::new();
        for group in config.upstreams.iter().filter(|group| group.l4_servers.is_empty()) {
            let kept = before.and_then(|before| before.upstreams.get(&group.name.value));
            let opened = match kept.filter(|kept| kept.is_of(group)) {
                Some(kept) => kept.clone(),
                None => OpenUpstream::open(group)?,
            };
            sets.insert(group.name.value.clone(), opened);
        }
        let mut known: HashMap<String, VecDeque<&OpenRoute>> = HashMap::new();
        for open in before.iter().flat_map(|before| &before.routes) {
            known.entry(identity(&open.route)).or_default().push_back(open);
        }
        let mut stores = RateStores::default();
        let mut open = |(number, route)| {
            let before = known.get_mut(&identity(route)).and_then(VecDeque::pop_front);
            OpenRoute::open(number, route, before, &mut stores).map(|open| open.with_mirror(&sets))
        };
        let routes = config.routes.iter().enumerate().map(&mut open).collect::<Result<_, _>>()?;
        let kept = before.and_then(|before| before.telemetry.clone());
        let telemetry = config.telemetry.as_ref().map(|settings| match kept.filter(|kept| kept.is_of(settings)) {
            Some(kept) => Ok(kept),
            None => Telemetry::open(settings),
        });
        Ok(Self {
            access_log: config.access_log.clone(),
            telemetry: telemetry.transpose()?,
            request_ids: config.request_ids.clone(),
            slashes: config.slashes.slashes(),
            trusted: config.trusted.clone(),
            upstreams: sets,
            routes,
            hosts: host_plan(&config.routes),
        })
    }

    /// Takes over the parts of routes before these that a new configuration need not make anew.
    fn adopt(&mut self, before: &Self) {
        let before: Vec<_> = before.routes.iter().filter(|before| before.route.jwt.is_some()).collect();
        for OpenRoute { route, guards, .. } in self.routes.iter_mut().filter(|open| open.route.jwt.is_some()) {
            let _ = before.iter().any(|other| guards.adopt(route, &other.guards, &other.route));
        }
    }

    /// Checks the upstreams from now on, and exports spans, until these routes are dropped.
    pub(crate) fn maintain(mut self) -> std::io::Result<Self> {
        for open in self.upstreams.values_mut().filter(|open| open.maintenance.is_none()) {
            open.maintenance = Some(Arc::new(open.set.maintain_on_thread()?));
        }
        self.telemetry.iter().try_for_each(|telemetry| telemetry.start())?;
        Ok(self)
    }

    fn router(&self, access_log: &LineLog, http01: &[Http01]) -> Router {
        // The routes of a loop share the idle connections of each upstream, also with those before a reload.
        let proxies = self.upstreams.iter().map(|(name, open)| (name.as_str(), Proxy::new(&open.set))).collect();
        let wrappers = self.routes.iter().map(|route| route.guards.of_loop()).collect();
        let of_loop = LoopParts { proxies, wrappers, trusted: &self.trusted };
        let mut all = None;
        let mut named = Vec::new();
        for (host, paths) in &self.hosts {
            let mut router = Router::new().slashes(self.slashes);
            for (path, numbers) in paths {
                router =
                    numbers.iter().fold(router, |router, number| self.routes[*number].add_to(router, path, &of_loop));
                if let Some(allow) = self.allow(numbers)
                    && !is_below(path, paths)
                {
                    let refused =
                        move || Response::status(StatusCode::METHOD_NOT_ALLOWED).header("Allow", allow.as_str());
                    router = if path.is_empty() { router.fallback(refused) } else { router.any(path, refused) };
                }
            }
            router = self.with_front(router, access_log, http01);
            if paths.iter().flat_map(|(_, numbers)| numbers).any(|number| reads_tls(&self.routes[*number].route)) {
                router = router.with(TlsInfos::new());
            }
            if host.is_empty() {
                all = Some(router);
            } else {
                named.push((host, router));
            }
        }
        let misdirected =
            || self.with_front(Router::new().fallback(|| StatusCode::MISDIRECTED_REQUEST), access_log, http01);
        let all = all.unwrap_or_else(misdirected);
        named.into_iter().fold(all, |all, (host, router)| all.host(host, router))
    }

    /// A router whose requests have clients, numbers and spans and are logged, if the file says so, and which answers challenges of
    /// certificates.
    fn with_front(&self, mut router: Router, access_log: &LineLog, http01: &[Http01]) -> Router {
        if !self.trusted.is_empty() {
            router = router.with(TrustedProxies::new(networks(&self.trusted)));
        }
        if let Some(ids) = self.request_ids.as_ref().and_then(|rule| rule.ids().ok()) {
            router = router.with(ids);
        }
        if let Some(telemetry) = &self.telemetry {
            router = router.with(telemetry.request_spans());
        }
        if let Some(mut log) = self.access_log.access_log(access_log) {
            if self.routes.iter().any(|open| open.own_proxies(&self.trusted).is_some()) {
                log = log.proxies_of_functions();
            }
            router = router.with(log);
        }
        http01.iter().cloned().fold(router, Router::with)
    }

    /// The methods of the routes of one path, if they are all that decides.
    fn allow(&self, numbers: &[usize]) -> Option<String> {
        let conditions = || numbers.iter().map(|number| &self.routes[*number].route.conditions);
        let is_of_methods = conditions().all(Conditions::is_of_methods);
        is_of_methods.then(|| conditions::allow(conditions().flat_map(|conditions| &conditions.methods)))
    }
}

/// Whether a request for the path may get a route of a prefix above it.
fn is_below(path: &str, paths: &PathPlan) -> bool {
    let has = |wanted: &str| paths.binary_search_by(|(other, _)| other.as_str().cmp(wanted)).is_ok();
    let mut above = path.strip_suffix("/{*rest}").unwrap_or(path).trim_end_matches('/');
    while let Some(slash) = above.rfind('/') {
        above = &above[..slash];
        if has(&format!("{above}/{{*rest}}")) {
            return true;
        }
    }
    !path.is_empty() && has("")
}

/// An upstream of the file, and its upkeep.
#[derive(Clone)]
struct OpenUpstream {
    group: Upstream,
    /// The file of `ca`, as it was read.
    authorities: Option<Vec<u8>>,
    set: Upstreams,
    /// Checks the servers, and finds their addresses again, until no routes in use have them.
    maintenance: Option<Arc<Maintenance>>,
}

impl OpenUpstream {
    fn open(group: &Upstream) -> Result<Self, Box<dyn Error>> {
        // Read before it is used: if it changes in between, the next reload uses it again.
        let authorities = upstreams::authorities(group);
        Ok(Self { group: group.clone(), authorities, set: upstreams::build(group)?, maintenance: None })
    }

    /// Whether it has these settings, and the file of `ca` is the same.
    fn is_of(&self, group: &Upstream) -> bool {
        self.group == *group && self.authorities == upstreams::authorities(group)
    }
}

/// The identity of a route: its hosts, its path and its conditions.
fn identity(route: &Route) -> String {
    let hosts: Vec<_> = route.hosts.iter().map(|host| &host.value).collect();
    format!("{hosts:?} {:?} {:?}", route.path.value, route.conditions)
}

/// The rules of a route that is a UDP proxy.
fn udp_rule(route: &Route) -> Option<&UdpProxyRule> {
    match &route.action {
        Some(Action::ConnectUdp(rule)) => Some(rule),
        _ => None,
    }
}

/// Whether a value of the route has parameters of TLS connections.
fn reads_tls(route: &Route) -> bool {
    let edits = route.proxying.request_edits.iter().chain(&route.proxying.response_edits);
    let template = match &route.action {
        Some(Action::Redirect(redirect)) => redirect.template.as_ref(),
        _ => None,
    };
    edits.into_iter().any(Edit::reads_tls) || template.is_some_and(Template::reads_tls)
}

impl OpenRoute {
    /// A route whose place `before` had.
    fn open(
        number: usize,
        route: &Route,
        before: Option<&Self>,
        stores: &mut RateStores,
    ) -> Result<Self, Box<dyn Error>> {
        let files = match &route.action {
            Some(Action::Folder(folder)) => {
                let opened = || Files::new(&folder.value)?.follow_symlinks(route.files.symlinks);
                let files = opened().map_err(|error| format!("cannot open {}: {error}", folder.value.display()))?;
                Some(with_rules(files, route))
            }
            _ => None,
        };
        let udp = udp_rule(route).map(|rule| match before.and_then(|before| before.udp.as_ref()) {
            Some(proxy) => proxy.with_rules(rule.rules.clone()),
            None => UdpProxy::new(rule.rules.clone()),
        });
        let mut error_pages = Vec::new();
        for page in &route.error_pages {
            let path = &page.path.value;
            let body = std::fs::read(path).map_err(|error| format!("cannot read {}: {error}", path.display()))?;
            let is_json = path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("json"));
            let page_body = if is_json { ErrorPage::json(body) } else { ErrorPage::html(body) };
            error_pages.push((page.statuses, page_body));
        }
        let per_address = route.proxying.rate_per_address;
        let kept_rate = before.filter(|before| before.route.proxying.rate_per_address == per_address);
        let rate = kept_rate.map_or_else(|| per_address.map(RateLimit::new), |before| before.rate.clone());
        let kept_sticky = before.filter(|before| before.route.guards.sticky == route.guards.sticky);
        let sticky = match (kept_sticky, &route.guards.sticky) {
            (Some(before), _) => before.sticky.clone(),
            (None, rule) => rule.as_ref().map(StickyRule::cookie).transpose()?,
        };
        let guards = Guards::new(route, before.map(|before| (&before.route, &before.guards)), stores)?;
        Ok(Self { number, route: route.clone(), rate, sticky, mirror: None, guards, files, udp, error_pages })
    }

    /// The mirror is one for all paths and hosts of the route, so that a loop bounds the copies of all of them.
    fn with_mirror(mut self, upstreams: &HashMap<String, OpenUpstream>) -> Self {
        let rule = self.route.proxying.mirror.as_ref();
        self.mirror = rule.and_then(|rule| Some(rule.mirror(&upstreams.get(&rule.upstream.value)?.set)));
        self
    }

    /// The proxies in front of it, if they are others than those of the file.
    fn own_proxies(&self, of_file: &[IpNet]) -> Option<TrustedProxies> {
        let own = self.route.proxying.trusted.as_deref().filter(|own| *own != of_file)?;
        Some(TrustedProxies::new(networks(own)))
    }

    /// Adds the route for one path, or for all that have no route.
    fn add_to(&self, router: Router, path: &str, of_loop: &LoopParts<'_>) -> Router {
        let proxies = &of_loop.proxies;
        let half_close = self.route.proxying.half_close;
        match (&self.route.action, &self.files) {
            (Some(Action::Upstream(name)), _) => match proxies.get(name.value.as_str()) {
                Some(proxy) => {
                    let function = http::half_close(half_close, self.proxy(proxy));
                    match &self.guards.cache {
                        Some(cache) => self.add(router, path, of_loop, cache.wrap(function)),
                        None => self.add(router, path, of_loop, function),
                    }
                }
                None => self.add(router, path, of_loop, || StatusCode::BAD_GATEWAY),
            },
            (Some(Action::Redirect(redirect)), _) => {
                let Redirect { to, template, status } = redirect.clone();
                let code = StatusCode::from_u16(status).unwrap_or(StatusCode::PERMANENT_REDIRECT);
                match template.and_then(|template| http::Redirect::new(code, template).ok()) {
                    Some(redirect) => self.add(router, path, of_loop, redirect),
                    None => self
                        .add(router, path, of_loop, move |request: Request| redirected(&to, status, request.query())),
                }
            }
            (Some(Action::Respond(response)), _) => {
                let response = response.clone();
                self.add(router, path, of_loop, move || fixed(&response))
            }
            (Some(Action::ConnectUdp(_)), _) => match &self.udp {
                Some(udp) => self.add(router, path, of_loop, udp.function()),
                None => self.add(router, path, of_loop, || StatusCode::NOT_FOUND),
            },
            (_, Some(files)) => self.add(router, path, of_loop, files.clone()),
            _ => self.add(router, path, of_loop, || StatusCode::NOT_FOUND),
        }
    }

    /// Adds a function with the middleware of the route.
    fn add<M>(
        &self,
        router: Router,
        path: &str,
        of_loop: &LoopParts<'_>,
        function: impl RequestFunction<(), M>,
    ) -> Router {
        let mut function = with_middleware(function);
        if let Some(proxies) = self.own_proxies(of_loop.trusted) {
            function = function.with(proxies);
        }
        if self.files.is_some() && self.route.files.compression || self.route.guards.compress {
            function = function.with(ResponseCompression::new());
        }
        if !self.error_pages.is_empty() {
            let pages =
                self.error_pages.iter().cloned().fold(ErrorPages::new(), |all, (statuses, page)| match statuses {
                    ErrorStatuses::One(status) => all.page(status, page),
                    ErrorStatuses::OfClients => all.client_errors(page),
                    ErrorStatuses::OfServers => all.server_errors(page),
                });
            function = function.with(if self.route.intercepts_errors { pages.forwarded() } else { pages });
        }
        let function = self.guards.around(function, &self.route, &of_loop.wrappers[self.number]);
        let mut router = router;
        if let Some(cors) = self.route.cors.as_ref().and_then(|rule| rule.cors.clone())
            && let Some(conditions) = conditions::of_preflight(&self.route)
        {
            let permission = with_middleware(|| StatusCode::NO_CONTENT).with(cors);
            router = register(router, path, conditions, permission);
        }
        let conditions = conditions::of(&self.route);
        let is_proxy = matches!(self.route.action, Some(Action::Upstream(_)));
        // A proxy bounds the body itself, so that its response passes the middleware of the route.
        let body_bytes = self.route.guards.body_bytes.filter(|_| !is_proxy);
        if self.route.guards.timeout.is_none() && body_bytes.is_none() {
            return register(router, path, conditions, function);
        }
        let mut limited = http::route(function);
        if let Some(timeout) = self.route.guards.timeout {
            limited = limited.timeout(timeout);
        }
        if let Some(bytes) = body_bytes {
            limited = limited.body_bytes_max(bytes);
        }
        register(router, path, conditions, limited)
    }

    /// The proxy of the route, on one loop.
    fn proxy(&self, upstream: &Proxy) -> Proxy {
        let rules = &self.route.proxying;
        let mut forwarding = Forwarding::default();
        forwarding.x_forwarded = rules.x_forwarded;
        forwarding.forwarded = rules.forwarded;
        forwarding.trusted = networks(rules.trusted.as_deref().unwrap_or_default());
        let mut proxy = upstream.clone().forwarding(forwarding).hash_key(rules.hash_key.clone());
        proxy = match &rules.host {
            HostRule::Keep => proxy,
            HostRule::OfUpstream => proxy.host_of_upstream(),
            HostRule::Name(name) => proxy.host(name),
        };
        if let Some(prefix) = self.route.path.value.prefix().filter(|prefix| rules.strip_path && !prefix.is_empty()) {
            proxy = proxy.strip_prefix(prefix);
        }
        // They were checked when the file was read.
        let rewrites = rules.rewrites.iter().filter_map(|rule| rule.rewrite().ok());
        proxy = rewrites.fold(proxy, Proxy::rewrite);
        if let Some(mirror) = &self.mirror {
            proxy = proxy.mirror(mirror.clone());
        }
        if let Some(bytes) = self.route.guards.body_bytes {
            proxy = proxy.request_body_bytes_max(bytes);
        }
        if let Some(timeout) = rules.response_timeout {
            proxy = proxy.response_timeout(timeout);
        }
        proxy = rules.request_edits.iter().fold(proxy, |proxy, edit| proxy.edit_request(edit.clone()));
        proxy = rules.response_edits.iter().fold(proxy, |proxy, edit| proxy.edit_response(edit.clone()));
        if let Some(protocols) = &rules.upgrades {
            proxy = proxy.upgrades(protocols.iter().map(String::as_str));
        }
        if rules.connect {
            proxy = proxy.pass_connect();
        }
        if let Some(cookie) = &self.sticky {
            proxy = proxy.sticky(cookie.clone());
        }
        match &self.rate {
            Some(rate) => proxy.rate_limit(rate),
            None => proxy,
        }
    }
}

/// Adds a function for the requests of a path that meet conditions; of a fallback the path is empty.
fn register<M>(
    router: Router,
    path: &str,
    conditions: Vec<Condition>,
    function: impl RequestFunction<(), M>,
) -> Router {
    match (path.is_empty(), conditions.is_empty()) {
        (true, true) => router.fallback(function),
        (true, false) => router.fallback_if(conditions, function),
        (false, true) => router.any(path, function),
        (false, false) => router.any_if(path, conditions, function),
    }
}

/// The files of a folder, as the route serves them.
fn with_rules(files: Files, route: &Route) -> Files {
    let rules = &route.files;
    let mut files = files.listing(rules.listing).dot_files(rules.dot_files).precompressed(rules.precompressed);
    if !rules.index {
        files = files.index(None);
    }
    match &rules.cache_control {
        Some(value) => files.cache_control(value),
        None => files,
    }
}

/// A redirect, which keeps the query.
fn redirected(to: &str, status: u16, query: Option<&str>) -> Response {
    let status = StatusCode::from_u16(status).unwrap_or(StatusCode::PERMANENT_REDIRECT);
    let (place, fragment) = to.split_at(to.find('#').unwrap_or(to.len()));
    let target = match query {
        Some(query) if !place.contains('?') => format!("{place}?{query}{fragment}"),
        _ => to.to_owned(),
    };
    Response::status(status).header("Location", target).into_response()
}

/// A response of the file, whose fields were checked.
fn fixed(response: &FixedResponse) -> Result<Response, InvalidField> {
    let has_type = response.headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("content-type"));
    let mut made = Response::status(response.status).body(response.body.clone());
    if !has_type && !response.body.is_empty() {
        made = made.content_type(ContentType::TEXT);
    }
    response.headers.iter().try_fold(made, |made, (name, value)| made.header(name, value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_upstream_with_authorities_is_the_same_until_their_file_changes() {
        let folder = std::env::temp_dir().join(format!("tidegate-authorities-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let (file, ca) = (folder.join("gateway.toml"), folder.join("ca.pem"));
        let text = "[[upstream]]\nname = \"app\"\nservers = [\"https://10.0.0.1\"]\nca = \"ca.pem\"\n\
                    [[route]]\nupstream = \"app\"\n";
        std::fs::write(&file, text).unwrap();
        let key = rcgen::generate_simple_self_signed(["sea".to_owned()]).unwrap();
        std::fs::write(&ca, key.cert.pem()).unwrap();
        let group = Config::load(&file).unwrap().upstreams.remove(0);
        let open = OpenUpstream::open(&group).unwrap();
        assert!(open.is_of(&group));
        std::fs::write(&ca, format!("{}\n", key.cert.pem())).unwrap();
        assert!(!open.is_of(&group));
        std::fs::remove_dir_all(&folder).unwrap();
        assert!(!open.is_of(&group));
    }

    #[test]
    fn the_query_of_a_redirect_comes_before_its_fragment() {
        for (to, query, expected) in [
            ("/new", None, "/new"),
            ("/new", Some("a=b"), "/new?a=b"),
            ("/new#part", Some("a=b"), "/new?a=b#part"),
            ("/new#part?", Some("a=b"), "/new?a=b#part?"),
            ("/new?c=d#part", Some("a=b"), "/new?c=d#part"),
        ] {
            let response = redirected(to, 308, query);
            assert_eq!(response.field("location"), Some(expected.as_bytes()), "{to} {query:?}");
        }
    }
}
