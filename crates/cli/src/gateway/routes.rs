//! From the routes of a configuration to the routers of loops.
//!
//! All loops share `OpenRoutes`: servers, open folders, pages. `RouteTable` has the one in use, and gives each
//! loop its router, again after a reload.

use std::collections::HashMap;
use std::error::Error;
use std::sync::{Arc, Mutex, PoisonError};

use tidegate::Bytes;
use tidegate::http::proxy::{Forwarding, Maintenance, Proxy, RateLimit, Upstreams};
use tidegate::http::{
    self, ContentType, ErrorPages, Files, IntoResponse, InvalidField, LineLog, Reload, Request, RequestFunction,
    Response, ResponseCompression, Router, Slashes, StatusCode, Wrapper, with_middleware,
};
use tidegate::metrics::UpstreamGroup;

use super::guards::{Guards, RateStores, networks};
use super::{conditions, upstreams};
use crate::access_log::AccessLogFormat;
use crate::config::{Action, Conditions, Config, FixedResponse, HostRule, PathPlan, Redirect, Route, host_plan};

/// The routes in use, and the way to others.
pub(crate) struct RouteTable {
    access_log: LineLog,
    current: Mutex<Arc<OpenRoutes>>,
    reload: Reload,
}

/// Routes whose servers are known and whose folders are open.
pub(crate) struct OpenRoutes {
    access_log: AccessLogFormat,
    slashes: Slashes,
    upstreams: HashMap<String, Upstreams>,
    routes: Vec<OpenRoute>,
    /// The paths of each host, each with the routes that are asked in turn.
    hosts: Vec<(String, PathPlan)>,
    /// Checks the servers until another configuration is in use.
    _maintenance: Vec<Maintenance>,
}

/// The parts that the routes of one loop share.
struct LoopParts<'r> {
    /// By the name of the upstream.
    proxies: HashMap<&'r str, Proxy>,
    /// Async middleware, by the number of the route.
    wrappers: Vec<Vec<Wrapper>>,
}

struct OpenRoute {
    /// Its place among the routes.
    number: usize,
    route: Route,
    rate: Option<RateLimit>,
    guards: Guards,
    files: Option<Files>,
    error_pages: Vec<(StatusCode, Bytes)>,
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
        let mut groups: Vec<_> = routes.upstreams.iter().map(|(name, set)| set.snapshot(name)).collect();
        groups.sort_unstable_by(|one, other| one.name.cmp(&other.name));
        groups
    }

    /// The router of one loop.
    pub(crate) fn router(&self) -> Router {
        let routes = self.lock().clone();
        routes.router(&self.access_log)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Arc<OpenRoutes>> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl OpenRoutes {
    /// Opens folders, reads pages and finds upstreams. Checks of the upstreams begin with [`maintain`](Self::maintain).
    pub(crate) fn open(config: &Config) -> Result<Self, Box<dyn Error>> {
        let mut sets = HashMap::new();
        for group in &config.upstreams {
            sets.insert(group.name.value.clone(), upstreams::build(group)?);
        }
        let mut stores = RateStores::default();
        let open = |(number, route)| OpenRoute::open(number, route, &mut stores);
        let routes = config.routes.iter().enumerate().map(open).collect::<Result<_, _>>()?;
        Ok(Self {
            access_log: config.access_log.clone(),
            slashes: config.slashes.slashes(),
            upstreams: sets,
            routes,
            hosts: host_plan(&config.routes),
            _maintenance: Vec::new(),
        })
    }

    /// Takes over the parts of routes before these that a new configuration need not make anew.
    fn adopt(&mut self, before: &Self) {
        for OpenRoute { route, guards, .. } in &mut self.routes {
            let _ = before.routes.iter().any(|other| guards.adopt(route, &other.guards, &other.route));
        }
    }

    /// Checks the upstreams from now on, until these routes are dropped.
    pub(crate) fn maintain(mut self) -> std::io::Result<Self> {
        let started = self.upstreams.values().map(Upstreams::maintain_on_thread);
        self._maintenance = started.collect::<Result<_, _>>()?;
        Ok(self)
    }

    fn router(&self, access_log: &LineLog) -> Router {
        // The routes of a loop share the idle connections of each upstream.
        let proxies = self.upstreams.iter().map(|(name, set)| (name.as_str(), Proxy::new(set))).collect();
        let wrappers = self.routes.iter().map(|route| route.guards.of_loop()).collect();
        let of_loop = LoopParts { proxies, wrappers };
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
            if let Some(log) = self.access_log.access_log(access_log) {
                router = router.with(log);
            }
            if host.is_empty() {
                all = Some(router);
            } else {
                named.push((host, router));
            }
        }
        let all = all.unwrap_or_else(|| Router::new().fallback(|| StatusCode::MISDIRECTED_REQUEST));
        named.into_iter().fold(all, |all, (host, router)| all.host(host, router))
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

impl OpenRoute {
    fn open(number: usize, route: &Route, stores: &mut RateStores) -> Result<Self, Box<dyn Error>> {
        let files = match &route.action {
            Some(Action::Folder(folder)) => {
                let opened = || Files::new(&folder.value)?.follow_symlinks(route.files.symlinks);
                let files = opened().map_err(|error| format!("cannot open {}: {error}", folder.value.display()))?;
                Some(with_rules(files, route))
            }
            _ => None,
        };
        let mut error_pages = Vec::new();
        for page in &route.error_pages {
            let path = &page.path.value;
            let body = std::fs::read(path).map_err(|error| format!("cannot read {}: {error}", path.display()))?;
            error_pages.push((page.status, body.into()));
        }
        let rate = route.proxying.rate_per_address.map(RateLimit::new);
        Ok(Self { number, route: route.clone(), rate, guards: Guards::new(route, stores)?, files, error_pages })
    }

    /// Adds the route for one path, or for all that have no route.
    fn add_to(&self, router: Router, path: &str, of_loop: &LoopParts<'_>) -> Router {
        let (proxies, wrappers) = (&of_loop.proxies, &*of_loop.wrappers[self.number]);
        let half_close = self.route.proxying.half_close;
        match (&self.route.action, &self.files) {
            (Some(Action::Upstream(name)), _) => match proxies.get(name.value.as_str()) {
                Some(proxy) => {
                    let function = http::half_close(half_close, self.proxy(proxy));
                    match &self.guards.cache {
                        Some(cache) => self.add(router, path, wrappers, cache.wrap(function)),
                        None => self.add(router, path, wrappers, function),
                    }
                }
                None => self.add(router, path, wrappers, || StatusCode::BAD_GATEWAY),
            },
            (Some(Action::Redirect(redirect)), _) => {
                let Redirect { to, template, status } = redirect.clone();
                let code = StatusCode::from_u16(status).unwrap_or(StatusCode::PERMANENT_REDIRECT);
                match template.and_then(|template| http::Redirect::new(code, template).ok()) {
                    Some(redirect) => self.add(router, path, wrappers, redirect),
                    None => self
                        .add(router, path, wrappers, move |request: Request| redirected(&to, status, request.query())),
                }
            }
            (Some(Action::Respond(response)), _) => {
                let response = response.clone();
                self.add(router, path, wrappers, move || fixed(&response))
            }
            (_, Some(files)) => self.add(router, path, wrappers, files.clone()),
            _ => self.add(router, path, wrappers, || StatusCode::NOT_FOUND),
        }
    }

    /// Adds a function with the middleware of the route.
    fn add<M>(
        &self,
        router: Router,
        path: &str,
        wrappers: &[Wrapper],
        function: impl RequestFunction<(), M>,
    ) -> Router {
        let mut function = with_middleware(function);
        if self.files.is_some() && self.route.files.compression || self.route.guards.compress {
            function = function.with(ResponseCompression::new());
        }
        if !self.error_pages.is_empty() {
            let pages = self.error_pages.iter().cloned();
            function = function.with(pages.fold(ErrorPages::new(), |all, (status, page)| all.page(status, page)));
        }
        let function = self.guards.around(function, &self.route, wrappers);
        let conditions = conditions::of(&self.route.conditions);
        match (path.is_empty(), conditions.is_empty()) {
            (true, true) => router.fallback(function),
            (true, false) => router.fallback_if(conditions, function),
            (false, true) => router.any(path, function),
            (false, false) => router.any_if(path, conditions, function),
        }
    }

    /// The proxy of the route, on one loop.
    fn proxy(&self, upstream: &Proxy) -> Proxy {
        let rules = &self.route.proxying;
        let mut forwarding = Forwarding::default();
        forwarding.x_forwarded = rules.x_forwarded;
        forwarding.forwarded = rules.forwarded;
        forwarding.trusted = networks(&rules.trusted);
        let mut proxy = upstream.clone().forwarding(forwarding).hash_key(rules.hash_key.clone());
        proxy = match &rules.host {
            HostRule::Keep => proxy,
            HostRule::OfUpstream => proxy.host_of_upstream(),
            HostRule::Name(name) => proxy.host(name),
        };
        if let Some(prefix) = self.route.path.value.prefix().filter(|prefix| rules.strip_path && !prefix.is_empty()) {
            proxy = proxy.strip_prefix(prefix);
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
        if let Some(cookie) = &self.route.guards.sticky {
            proxy = proxy.sticky(cookie.clone());
        }
        match &self.rate {
            Some(rate) => proxy.rate_limit(rate),
            None => proxy,
        }
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
