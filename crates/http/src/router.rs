//! `Router`: from the method and the path of a request to a function.

mod list;

use std::collections::HashMap;
use std::fmt;
use std::rc::Rc;
use std::time::Duration;

use foldhash::fast::RandomState;
use http::Method;
use tidegate_engine::activity::Activity;
use tidegate_http1::{self as http1, Fields, RequestHead, Status};
use tidegate_metrics::HttpRecorder;
use tidegate_sys::Address;

use crate::condition::Condition;
use crate::conditional::{Choice, ConditionalRoutes};
use crate::endpoint::{Endpoint, RequestFunction};
use crate::middleware::{self, AsyncMiddleware, Middleware, MiddlewareList, Wrapper};
use crate::normal_path::{self, NormalPath};
use crate::request::AnyState;
use crate::response::Response;
use crate::route::{PARAMETERS_MAX, Pattern, Route, Values};
use crate::serving::stall_label;

pub use self::list::RouteInfo;

/// Functions by method and path.
///
/// A path is matched with the escapes of its visible characters decoded (RFC 3986 §6.2.2.2), so that `/%6cogin` leads to
/// `/login`: no rule of a route depends on how a client writes a path. An encoded slash, `%2F`, does not end a segment;
/// [`slashes`](Self::slashes) has more on slashes. Functions get the path as it was sent. `{name}` stands for one segment,
/// or the rest of one, and `{*name}` for all that is left, slashes included; a route has at most eight such parameters. A
/// segment without parameters comes before one with them.
///
/// A path whose bytes are not UTF-8 is answered with 400, unless a gateway passes it on.
///
/// A path without a function of its method is answered with 405 and `Allow`. A HEAD request gets the head of the
/// response to GET, unless HEAD has a function of its own; OPTIONS is answered with 204 and `Allow`. Any other path is
/// answered with 404, or by the [`fallback`](Self::fallback).
///
/// ```
/// use tidegate::http::{Request, Router};
///
/// let router = Router::new()
///     .get("/", || "Hello, World!")
///     .get("/tides/{harbour}", |request: Request| {
///         format!("The tide at {}\n", request.parameter("harbour").unwrap_or_default())
///     })
///     .post("/count", async |mut request: Request| {
///         let mut bytes = 0;
///         while let Some(piece) = request.body_mut().next().await {
///             bytes += piece?.len();
///         }
///         Ok::<_, tidegate::http::BodyError>(bytes.to_string())
///     });
/// # drop(router);
/// ```
///
/// A router belongs to one loop: it is made there, so that the functions of one loop can share values that are not
/// `Send`.
pub struct Router<S = ()> {
    state: Rc<S>,
    table: Table,
}

/// The routes, without the type of the state.
#[derive(Default)]
pub(crate) struct Table {
    paths: matchit::Router<usize>,
    /// The paths without parameters, which come before those with some, with their routes.
    exact: HashMap<Box<[u8]>, usize, RandomState>,
    /// All patterns in the form in which paths are matched, with their routes.
    places: HashMap<Box<str>, usize, RandomState>,
    routes: Vec<PathRoute>,
    fallback: Option<Rc<Endpoint>>,
    pub(crate) middleware: MiddlewareList,
    /// Async middleware, which is put around the functions when the router is complete.
    wrappers: Vec<Wrapper>,
    /// Async middleware around the responses to requests that no route matches, if there is some.
    pub(crate) unrouted: Option<Rc<Endpoint>>,
    /// Makes the state of each connection.
    pub(crate) connection_state: Option<MakeState>,
    /// Whether requests go on when the client ends its side; unless set, the outer router or the listener decides.
    half_close: Option<bool>,
    /// Bytes of a body, for routes without a bound of their own.
    body_bytes_max: Option<u64>,
    /// The time for a response, for routes without a time of their own.
    timeout: Option<Duration>,
    /// The routes of some hosts, by name in lower case.
    hosts: HashMap<String, Self, RandomState>,
    /// The routes of all hosts below a domain, by the name behind `*.`.
    domains: HashMap<String, Self, RandomState>,
    slashes: Slashes,
    /// The routes that have conditions, if there are some.
    conditional: Option<Box<ConditionalRoutes>>,
}

impl Table {
    /// Whether middleware reads the parameters of TLS connections.
    #[inline]
    pub(crate) fn reads_tls(&self) -> bool {
        self.middleware.iter().any(|one| one.reads_tls())
    }

    /// Whether that of the router of any host does.
    pub(crate) fn any_reads_tls(&self) -> bool {
        self.reads_tls() || self.tables().any(Self::any_reads_tls)
    }
}

/// How routes match `//`, `%2F`, and characters that some servers read as a slash; see [`Router::slashes`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum Slashes {
    /// As `Keep`, and a request that a gateway would pass on is matched as `Merge` has it: its
    /// upstream may merge and decode slashes, and must not find the path of another route then.
    #[default]
    MergeForProxies,
    /// Empty segments are dropped, `%2F`, `\\` and `%5C` are slashes, and parameters of a segment, which begin with `;`,
    /// are left out.
    Merge,
    /// Slashes are matched as they were sent, and `%2F` is a part of its segment. A proxy's upstream that reads paths in
    /// another way is not protected by the rules of its routes.
    Keep,
    /// A path with `//`, `%2F`, `\\` or `%5C` is answered with 400. A request that a gateway would pass on is matched without
    /// the parameters of segments.
    Refuse,
}

impl Slashes {
    /// Whether a request that a gateway would pass on is matched in its folded form, since its upstream may read it so.
    const fn folds_for_proxies(self) -> bool {
        matches!(self, Self::MergeForProxies | Self::Refuse)
    }
}

/// The functions of one path.
struct PathRoute {
    pattern: Rc<Pattern>,
    /// The pattern in the form in which paths are matched.
    normal: Box<str>,
    methods: Vec<(http1::Method, Rc<Endpoint>)>,
    /// Methods that are not registered, by name.
    extensions: Vec<(String, Rc<Endpoint>)>,
    any: Option<Rc<Endpoint>>,
    /// The response to a method that has no function.
    allow: Fields,
}

/// The result of routing: a function and its route, or the response to a request that has none.
pub(crate) type Found<'a> = Result<(&'a Rc<Endpoint>, Option<Route>), Box<Response>>;

impl Router {
    /// A router without routes, whose functions share no state, except their captures.
    #[must_use]
    pub fn new() -> Self {
        Self::with_state(())
    }
}

impl Default for Router {
    fn default() -> Self {
        Self::new()
    }
}

macro_rules! method_routes {
    ($($name:ident $method:ident $text:literal),*) => {
        $(
            #[doc = concat!("A function for `", $text, "` at a path; see [`route`](Self::route).")]
            #[must_use]
            pub fn $name<M>(self, path: &str, function: impl RequestFunction<S, M>) -> Self {
                self.route(&Method::$method, path, function)
            }
        )*
    };
}

impl<S: 'static> Router<S> {
    /// A router without routes, whose functions share a state: an argument of the type [`State`](crate::State).
    #[must_use]
    pub fn with_state(state: S) -> Self {
        Self { state: Rc::new(state), table: Table::default() }
    }

    /// A function for a method at a path.
    ///
    /// # Panics
    /// If the path does not begin with a slash, is malformed or conflicts with another one, has more than eight
    /// parameters, or has a function for this method already. So a server with such a router does not start.
    #[must_use]
    pub fn route<M>(mut self, method: &Method, path: &str, function: impl RequestFunction<S, M>) -> Self {
        let endpoint = Rc::new(function.into_endpoint(self.state.clone()));
        self.table.add(path, Some(method), endpoint);
        self
    }

    method_routes!(get GET "GET", post POST "POST", put PUT "PUT", delete DELETE "DELETE", patch PATCH "PATCH");

    /// A function for all methods at a path that have none of their own.
    ///
    /// # Panics
    /// As [`route`](Self::route).
    #[must_use]
    pub fn any<M>(mut self, path: &str, function: impl RequestFunction<S, M>) -> Self {
        let endpoint = Rc::new(function.into_endpoint(self.state.clone()));
        self.table.add(path, None, endpoint);
        self
    }

    /// A function for the requests for a path that meet all of these conditions, whichever method they have.
    ///
    /// Routes of one path are tried in the order in which they were added, those without conditions last. If there are none
    /// of these, the next less specific path decides: literal bytes come before parameters, and these before `{*rest}`.
    ///
    /// ```
    /// use tidegate::http::{Condition, Method, Router};
    ///
    /// let router = Router::new()
    ///     .any_if("/files/{*path}", [Condition::methods([Method::PUT, Method::DELETE])], || "a change")
    ///     .any_if("/files/{*path}", [!Condition::cookie("session")], || "sign in first")
    ///     .any("/files/{*path}", || "a file");
    /// # drop(router);
    /// ```
    ///
    /// # Panics
    /// As [`route`](Self::route); a path may have several functions.
    #[must_use]
    pub fn any_if<M>(
        mut self,
        path: &str,
        conditions: impl IntoIterator<Item = Condition>,
        function: impl RequestFunction<S, M>,
    ) -> Self {
        let endpoint = Rc::new(function.into_endpoint(self.state.clone()));
        let conditions = conditions.into_iter().collect();
        self.table.add_conditional(path, Choice { conditions, endpoint });
        self
    }

    /// A function for the requests that meet all of these conditions, and whose path no route matches.
    #[must_use]
    pub fn fallback_if<M>(
        mut self,
        conditions: impl IntoIterator<Item = Condition>,
        function: impl RequestFunction<S, M>,
    ) -> Self {
        let endpoint = Rc::new(function.into_endpoint(self.state.clone()));
        let conditions = conditions.into_iter().collect();
        self.table.conditional.get_or_insert_default().fallbacks.push(Choice { conditions, endpoint });
        self
    }

    /// A function for the paths that no route matches.
    #[must_use]
    pub fn fallback<M>(mut self, function: impl RequestFunction<S, M>) -> Self {
        self.table.fallback = Some(Rc::new(function.into_endpoint(self.state.clone())));
        self
    }

    /// Adds the routes of another router behind a prefix. Its functions keep their own state, and its fallback, if it has
    /// one, is for the paths behind the prefix. Its middleware applies to its routes alone.
    ///
    /// # Panics
    /// As [`route`](Self::route), if the prefix ends with a slash, and if the other router has [hosts](Self::host) or
    /// makes a [state for each connection](Self::connection_state).
    #[must_use]
    pub fn nest<T: 'static>(mut self, prefix: &str, router: Router<T>) -> Self {
        assert!(
            prefix.starts_with('/') && !prefix.ends_with('/'),
            "the prefix `{prefix}` has to begin with a slash and must not end with one"
        );
        assert!(!router.table.has_hosts(), "the router behind `{prefix}` has hosts; add them to the outer router");
        assert_makes_no_state(&router.table);
        self.table.nest(prefix, router.into_table());
        self
    }

    /// How routes match slashes that servers read in different ways. Each router
    /// of a [host](Self::host) has its own choice. A nested router has that of the outer one.
    ///
    /// The path is passed on, and functions see it, as it was sent.
    ///
    /// ```
    /// use tidegate::http::{Router, Slashes};
    ///
    /// let router = Router::new().get("/tides/{harbour}", || "rising").slashes(Slashes::Refuse);
    /// # drop(router);
    /// ```
    #[must_use]
    pub fn slashes(mut self, slashes: Slashes) -> Self {
        self.table.slashes = slashes;
        self
    }

    /// Adds middleware: it sees every request before its function, and every response after it, in the order in which
    /// middleware was added.
    #[must_use]
    pub fn with(mut self, middleware: impl Middleware) -> Self {
        let before = self.table.middleware.iter().cloned();
        let all: Vec<Rc<dyn Middleware>> = before.chain([Rc::new(middleware) as Rc<dyn Middleware>]).collect();
        self.table.middleware = all.into();
        self
    }

    /// Adds async middleware: an `async fn(Request, Next)` with up to four [arguments](crate::FromRequest) before them. It
    /// sees the request, passes it on with [`Next::run`](crate::Next::run) or not, and returns the response. It may wait
    /// before and after. It runs within the [`request_timeout`](crate::Limits::request_timeout) of its request.
    ///
    /// Async middleware runs in the order in which it was added, behind all middleware that
    /// [`with`](Self::with) adds. Requests that no route matches pass as well, and those for nested routers, whose own
    /// middleware comes behind. A [host](Self::host) has middleware of its own.
    ///
    /// Middleware that does not wait costs less as [`Middleware`].
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use tidegate::http::{Extension, IntoResponse, Next, Request, Response, Router, StatusCode};
    /// use tidegate::task;
    ///
    /// #[derive(Clone)]
    /// struct User(String);
    ///
    /// async fn authenticate(mut request: Request, next: Next) -> Response {
    ///     let Some(token) = request.header_str("authorization").map(str::to_owned) else {
    ///         return StatusCode::UNAUTHORIZED.into_response();
    ///     };
    ///     task::sleep(Duration::from_millis(1)).await; // asks another service
    ///     request.extensions_mut().insert(User(token));
    ///     next.run(request).await
    /// }
    ///
    /// let router = Router::new().get("/", |Extension(User(name)): Extension<User>| name).wrap(authenticate);
    /// # drop(router);
    /// ```
    #[must_use]
    #[doc(alias = "layer")]
    #[doc(alias = "from_fn")]
    pub fn wrap<M>(mut self, middleware: impl AsyncMiddleware<S, M>) -> Self {
        self.table.wrappers.push(middleware.into_wrapper(self.state.clone()));
        self
    }

    /// Keeps a state for each connection, which its requests share, those for nested routers and hosts included: an
    /// argument of the type [`ConnectionState`](crate::ConnectionState), or
    /// [`Request::connection_state`](crate::Request::connection_state). `make` makes it from the address of the client,
    /// when the first request of the connection arrives; if it panics, the connection is closed. A connection keeps its
    /// state when the router is made [anew](crate::Reload).
    #[must_use]
    pub fn connection_state<T: 'static>(mut self, make: impl Fn(&Address) -> T + 'static) -> Self {
        self.table.connection_state = Some(Rc::new(move |client| Rc::new(make(client)) as AnyState));
        self
    }

    /// Whether requests for these routes go on when the client ends its side of an HTTP/1.1 or TLS connection, and
    /// still reads (RFC 9112 §9.6). Nested routers and hosts may decide for themselves; unless a router does, the
    /// [listener](crate::Config::half_close) does.
    ///
    /// By default the request ends: a closed tab and a killed client look the same, and no client would read the
    /// response.
    #[must_use]
    pub fn half_close(mut self, keeps: bool) -> Self {
        self.table.half_close = Some(keeps);
        self
    }

    /// Bytes of a request body, for the routes that have no [limit of their own](crate::route), those of nested routers
    /// included; beyond it 413. [`Limits::body_bytes_max`](crate::Limits::body_bytes_max), the limit of the server, is the
    /// most that counts: raise that one for the route with the largest bodies, and set this one for all others. Hosts have
    /// their own.
    #[must_use]
    pub fn body_bytes_max(mut self, bytes: u64) -> Self {
        self.table.body_bytes_max = Some(bytes);
        self
    }

    /// From the last piece of a request that was received to the head of its response, for the routes that have no
    /// [time of their own](crate::route), those of nested routers included; beyond it 503. It takes the place of
    /// [`Limits::request_timeout`](crate::Limits::request_timeout), and includes async middleware. A function that is not
    /// async runs to its end. Hosts have their own.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.table.timeout = Some(timeout);
        self
    }

    /// The routes of a host: requests that name it are for `router` alone. Those that name another host are for this
    /// router. Case and a port do not matter. `*.example.org` is each host below `example.org`, in as many labels as it
    /// may be; a host with a router of its own comes first, then the longest such name.
    ///
    /// ```
    /// use tidegate::http::Router;
    ///
    /// let harbours = Router::new().get("/", || "a harbour");
    /// let router = Router::new().get("/", || "the sea").host("*.harbour.example", harbours);
    /// # drop(router);
    /// ```
    ///
    /// # Panics
    /// If the host has a router already, or if `router` makes a [state for each connection](Self::connection_state).
    #[must_use]
    pub fn host<T: 'static>(mut self, host: &str, router: Router<T>) -> Self {
        assert_makes_no_state(&router.table);
        let name = host.strip_suffix('.').unwrap_or(host).to_ascii_lowercase();
        let before = match name.strip_prefix("*.") {
            Some(domain) => self.table.domains.insert(domain.to_owned(), router.into_table()),
            None => self.table.hosts.insert(name, router.into_table()),
        };
        assert!(before.is_none(), "the host `{host}` has two routers");
        self
    }

    pub(crate) fn into_table(mut self) -> Table {
        if let Some(bytes) = self.table.body_bytes_max {
            self.table.endpoints().for_each(|endpoint| endpoint.settle_body_bytes_max(bytes));
        }
        if let Some(timeout) = self.table.timeout {
            self.table.endpoints().for_each(|endpoint| endpoint.settle_timeout(timeout));
        }
        self.table.wrap();
        self.table
    }
}

impl Table {
    /// One function for all requests.
    pub(crate) fn of_function<M>(function: impl RequestFunction<(), M>) -> Self {
        Self { fallback: Some(Rc::new(function.into_endpoint(Rc::new(())))), ..Self::default() }
    }

    fn add(&mut self, path: &str, method: Option<&Method>, endpoint: Rc<Endpoint>) {
        let route = self.route_of(path);
        match method {
            None => {
                let before = route.any.replace(endpoint);
                assert!(before.is_none(), "the path `{path}` has two functions for any method");
            }
            Some(method) => {
                let is_taken = match known(method) {
                    http1::Method::Extension => {
                        let is_taken = route.extensions.iter().any(|(other, _)| *other == method.as_str());
                        route.extensions.push((method.as_str().to_owned(), endpoint));
                        is_taken
                    }
                    known => {
                        let is_taken = route.methods.iter().any(|(other, _)| *other == known);
                        route.methods.push((known, endpoint));
                        is_taken
                    }
                };
                assert!(!is_taken, "the path `{path}` has two functions for {method}");
            }
        }
        route.allow = route.allowed();
    }

    fn add_conditional(&mut self, path: &str, choice: Choice) {
        let (pattern, normal) = pattern_of(path);
        self.conditional.get_or_insert_default().add(pattern, normal, choice);
    }

    fn route_of(&mut self, path: &str) -> &mut PathRoute {
        let (pattern, normal) = pattern_of(path);
        if let Some(&at) = self.places.get(&*normal) {
            return &mut self.routes[at];
        }
        let at = self.routes.len();
        if let Err(error) = self.paths.insert(&normal, at) {
            panic!("the path `{path}` cannot be a route: {error}");
        }
        if !normal.contains(['{', '}']) {
            self.exact.insert(normal.as_bytes().into(), at);
        }
        self.places.insert(normal.as_str().into(), at);
        self.routes.push(PathRoute {
            pattern: Rc::new(pattern),
            normal: normal.into(),
            methods: Vec::new(),
            extensions: Vec::new(),
            any: None,
            allow: Fields::new(),
        });
        &mut self.routes[at]
    }

    fn nest(&mut self, prefix: &str, other: Self) {
        other.settle_half_close(None);
        let layered = |endpoint: Rc<Endpoint>| match &other.middleware[..] {
            [] => endpoint,
            _ => Rc::new(middleware::around(endpoint, other.middleware.clone())),
        };
        let behind = |text: &str| if text == "/" { prefix.to_owned() } else { format!("{prefix}{text}") };
        if let Some(conditional) = other.conditional {
            let layered = |choice: Choice| Choice { endpoint: layered(choice.endpoint), ..choice };
            for route in conditional.routes() {
                let choices = route.choices.iter().cloned().map(layered);
                choices.for_each(|choice| self.add_conditional(&behind(&route.pattern.text), choice));
            }
            for choice in conditional.fallbacks.into_iter().map(layered) {
                for path in [prefix.to_owned(), format!("{prefix}/"), format!("{prefix}/{{*rest}}")] {
                    self.add_conditional(&path, choice.clone());
                }
            }
        }
        for route in other.routes {
            let path = behind(&route.pattern.text);
            for (method, endpoint) in route.methods {
                let method =
                    Method::from_bytes(method.name().unwrap_or_default().as_bytes()).expect("it is registered");
                self.add(&path, Some(&method), layered(endpoint));
            }
            for (name, endpoint) in route.extensions {
                let method = Method::from_bytes(name.as_bytes()).expect("it was a method before");
                self.add(&path, Some(&method), layered(endpoint));
            }
            if let Some(endpoint) = route.any {
                self.add(&path, None, layered(endpoint));
            }
        }
        if let Some(endpoint) = other.fallback {
            let endpoint = layered(endpoint);
            self.add(&format!("{prefix}/{{*rest}}"), None, endpoint.clone());
            // The rest may be empty, which `{*rest}` does not match. A route with a parameter may match these paths as
            // well, and comes after them.
            for path in [prefix.to_owned(), format!("{prefix}/")] {
                let normal = normal_path::normal_pattern(&path);
                if !self.places.contains_key(&*normal) {
                    self.add(&path, None, endpoint.clone());
                }
            }
        }
    }

    /// Puts the async middleware around the functions.
    fn wrap(&mut self) {
        let wrappers = std::mem::take(&mut self.wrappers);
        if wrappers.is_empty() {
            return;
        }
        self.unrouted = Some(Rc::new(Wrapper::function_of_unrouted()));
        let of_routes = self.routes.iter_mut().flat_map(|route| {
            let named = route.methods.iter_mut().map(|(_, endpoint)| endpoint);
            named.chain(route.extensions.iter_mut().map(|(_, endpoint)| endpoint)).chain(&mut route.any)
        });
        let conditional = self.conditional.iter_mut().flat_map(|conditional| conditional.endpoints_mut());
        for endpoint in of_routes.chain(&mut self.fallback).chain(&mut self.unrouted).chain(conditional) {
            for wrapper in wrappers.iter().rev() {
                *endpoint = Rc::new(wrapper.around(endpoint.clone()));
            }
        }
    }

    /// Whether requests go on when the client ends its side, for the functions for which that is not decided yet.
    pub(crate) fn settle_half_close(&self, outer: Option<bool>) {
        let settled = self.half_close.or(outer);
        let unsettled = self.endpoints().filter(|endpoint| endpoint.half_close.get().is_none());
        unsettled.for_each(|endpoint| endpoint.half_close.set(settled));
        self.tables().for_each(|table| table.settle_half_close(settled));
    }

    /// The routes of hosts.
    fn tables(&self) -> impl Iterator<Item = &Self> {
        self.hosts.values().chain(self.domains.values())
    }

    fn has_hosts(&self) -> bool {
        !self.hosts.is_empty() || !self.domains.is_empty()
    }

    /// All functions but those of hosts.
    fn endpoints(&self) -> impl Iterator<Item = &Rc<Endpoint>> {
        let of_routes = self.routes.iter().flat_map(|route| {
            let named = route.methods.iter().map(|(_, endpoint)| endpoint);
            named.chain(route.extensions.iter().map(|(_, endpoint)| endpoint)).chain(&route.any)
        });
        let conditional = self.conditional.iter().flat_map(|conditional| conditional.endpoints());
        of_routes.chain(&self.fallback).chain(&self.unrouted).chain(conditional)
    }

    /// Gives every function the label that names it for the watchdog of the loop.
    pub(crate) fn label(&self, activity: &Activity) {
        for route in &self.routes {
            let path = &route.pattern.text;
            for (method, endpoint) in &route.methods {
                endpoint.label.set(activity.label(&format!("{} {path}", method.name().unwrap_or_default())));
            }
            for (name, endpoint) in &route.extensions {
                endpoint.label.set(activity.label(&format!("{name} {path}")));
            }
            if let Some(endpoint) = &route.any {
                endpoint.label.set(activity.label(path));
            }
        }
        if let Some(conditional) = &self.conditional {
            for route in conditional.routes() {
                let label = activity.label(&route.pattern.text);
                route.choices.iter().for_each(|choice| choice.endpoint.label.set(label));
            }
            let fallbacks = conditional.fallbacks.iter();
            fallbacks.for_each(|choice| choice.endpoint.label.set(activity.label("the function for some requests")));
        }
        if let Some(endpoint) = &self.fallback {
            let paths =
                if self.routes.is_empty() { "the function for all paths" } else { "the function for other paths" };
            endpoint.label.set(stall_label::label_of_fallback(endpoint, activity, paths));
        }
        self.tables().for_each(|table| table.label(activity));
    }

    /// Has the requests of every function be counted.
    pub(crate) fn count(&self, recorder: &HttpRecorder) {
        for route in &self.routes {
            let metrics = recorder.route(&route.pattern.text);
            let named = route.methods.iter().map(|(_, endpoint)| endpoint);
            let named = named.chain(route.extensions.iter().map(|(_, endpoint)| endpoint)).chain(&route.any);
            named.for_each(|endpoint| drop(endpoint.metrics.set(metrics.clone())));
        }
        if let Some(conditional) = &self.conditional {
            for route in conditional.routes() {
                let metrics = recorder.route(&route.pattern.text);
                route.choices.iter().for_each(|choice| drop(choice.endpoint.metrics.set(metrics.clone())));
            }
            let fallbacks = conditional.fallbacks.iter();
            fallbacks.for_each(|choice| drop(choice.endpoint.metrics.set(recorder.route(OTHER_PATHS))));
        }
        if let Some(endpoint) = &self.fallback {
            let _ = endpoint.metrics.set(recorder.route(OTHER_PATHS));
        }
        self.tables().for_each(|table| table.count(recorder));
    }

    /// The routes of the host that a request names.
    #[inline]
    pub(crate) fn of_host(&self, head: &RequestHead) -> &Self {
        if self.has_hosts() { self.find_host(head.host()) } else { self }
    }

    #[inline(never)]
    fn find_host(&self, host: &str) -> &Self {
        let name = match host.rsplit_once(':') {
            Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
            _ => host,
        };
        let name = name.strip_suffix('.').unwrap_or(name);
        match self.hosts.get(name) {
            Some(found) => found,
            None => self.find_lower_case_host(&name.to_ascii_lowercase()).unwrap_or(self),
        }
    }

    /// The routes of a host, or of the longest domain that it is below.
    fn find_lower_case_host(&self, name: &str) -> Option<&Self> {
        let found = self.hosts.get(name);
        if found.is_some() || self.domains.is_empty() || name.len() > HOST_BYTES_MAX {
            return found;
        }
        name.match_indices('.').find_map(|(dot, _)| self.domains.get(&name[dot + 1..]))
    }

    /// The function for a request from a peer.
    #[inline]
    pub(crate) fn find_for(&self, head: &RequestHead, peer: impl Fn() -> Address) -> Found<'_> {
        if let Some(conditional) = &self.conditional
            && let Some(found) = self.find_conditional(conditional, head, &peer)
        {
            return found;
        }
        self.find(head)
    }

    /// The function for a request, if it is one that has conditions.
    #[inline(never)]
    fn find_conditional<'t>(
        &'t self,
        conditional: &'t ConditionalRoutes,
        head: &RequestHead,
        peer: &dyn Fn() -> Address,
    ) -> Option<Found<'t>> {
        let path = head.path_bytes();
        if self.slashes == Slashes::Refuse && normal_path::has_ambiguous_slash(path) {
            return None;
        }
        let unconditional = |text: &str| self.paths.at(text).ok().map(|found| &*self.routes[*found.value].normal);
        let in_form = |normal: &NormalPath| {
            let text = normal.text();
            conditional.find(text, unconditional(text), (head, peer), |at| normal.place(at))
        };
        if !head.has_irregular_target() && !normal_path::has_folds(path) {
            let text = head.path();
            return conditional.find(text, unconditional(text), (head, peer), same_place).map(Ok);
        }
        let found = match self.slashes {
            Slashes::Merge => in_form(&NormalPath::folded(path)),
            _ => in_form(&NormalPath::new(path)),
        }?;
        match found {
            (endpoint, _) if endpoint.is_gateway && self.slashes.folds_for_proxies() => {
                in_form(&NormalPath::folded(path)).map(Ok)
            }
            (endpoint, _) if !endpoint.is_gateway && std::str::from_utf8(path).is_err() => {
                Some(Err(Response::of_error(Status::BAD_REQUEST).into()))
            }
            found => Some(Ok(found)),
        }
    }

    /// The function for a request that no condition of a route has chosen.
    #[inline]
    fn find(&self, head: &RequestHead) -> Found<'_> {
        if head.has_irregular_target() || self.slashes == Slashes::Refuse {
            return self.find_irregular(head);
        }
        self.find_regular(head)
    }

    /// The function for a request whose path is its own normal form.
    #[inline]
    fn find_regular(&self, head: &RequestHead) -> Found<'_> {
        if self.routes.is_empty()
            && let Some(fallback) = &self.fallback
        {
            return Ok((fallback, None));
        }
        let path = head.path_bytes();
        if let Some(&at) = self.exact.get(path) {
            return self.routes[at].found(head, Values::NONE);
        }
        self.find_by_parameters(head)
    }

    /// The function for a request whose path may have another normal form, or may be refused.
    #[inline(never)]
    fn find_irregular(&self, head: &RequestHead) -> Found<'_> {
        let path = head.path_bytes();
        if self.slashes == Slashes::Refuse && normal_path::has_ambiguous_slash(path) {
            return Err(Response::of_error(Status::BAD_REQUEST).into());
        }
        let has_choice = !self.routes.is_empty() || self.fallback.is_none();
        let found = if has_choice && normal_path::is_encoded(path) {
            self.find_by_normal_path(head)
        } else {
            self.find_regular(head)
        };
        let is_text = || std::str::from_utf8(path).is_ok();
        match found {
            Ok((endpoint, _)) if !endpoint.is_gateway && !is_text() => {
                Err(Response::of_error(Status::BAD_REQUEST).into())
            }
            found => found,
        }
    }

    /// The same for a path that is its own normal form, which no route without parameters matches.
    #[inline(never)]
    fn find_by_parameters(&self, head: &RequestHead) -> Found<'_> {
        let path = head.path();
        if self.slashes == Slashes::Merge && normal_path::has_folds(path.as_bytes()) {
            return self.find_by_normal_path(head);
        }
        let found = self.look_up(path, head, same_place);
        let is_passed_on = matches!(found, Ok((endpoint, _)) if endpoint.is_gateway);
        if is_passed_on && self.slashes.folds_for_proxies() && normal_path::has_folds(path.as_bytes()) {
            return self.find_by_normal_path(head);
        }
        found
    }

    /// The same for a path that has another normal or folded form.
    #[inline(never)]
    fn find_by_normal_path(&self, head: &RequestHead) -> Found<'_> {
        let path = head.path_bytes();
        let look_up = |normal: &NormalPath| {
            let text = normal.text();
            match self.exact.get(text.as_bytes()) {
                Some(&at) => self.routes[at].found(head, Values::NONE),
                None => self.look_up(text, head, |at| normal.place(at)),
            }
        };
        let found = match self.slashes {
            Slashes::Merge => look_up(&NormalPath::folded(path)),
            _ => look_up(&NormalPath::new(path)),
        };
        match found {
            Ok((endpoint, _)) if endpoint.is_gateway && self.slashes.folds_for_proxies() => {
                look_up(&NormalPath::folded(path))
            }
            found => found,
        }
    }

    /// The function for a text that routes match; `place` finds a part of it in the path as it was sent.
    fn look_up(&self, text: &str, head: &RequestHead, place: impl Fn(usize) -> u16) -> Found<'_> {
        let Ok(found) = self.paths.at(text) else {
            return match &self.fallback {
                Some(fallback) => Ok((fallback, None)),
                None if text == "*" => Err(Response::with(Status::NO_CONTENT).into()),
                None => Err(Response::of_error(Status::NOT_FOUND).into()),
            };
        };
        let values = Values::new(found.params.iter().map(|(_, value)| {
            let start = value.as_ptr() as usize - text.as_ptr() as usize;
            (place(start), place(start + value.len()))
        }));
        self.routes[*found.value].found(head, values)
    }
}

/// The place in a path that is its own normal form. A head is shorter than 64 KiB.
fn same_place(at: usize) -> u16 {
    at as u16
}

/// The route of metrics for the paths that no route matches.
const OTHER_PATHS: &str = "*";

/// The longest name of a host (RFC 1035 §2.3.4): none that is longer is below a domain.
const HOST_BYTES_MAX: usize = 255;

impl PathRoute {
    /// The function for a request to this path.
    #[inline]
    fn found(&self, head: &RequestHead, values: Values) -> Found<'_> {
        match self.function(head) {
            Some(endpoint) => Ok((endpoint, Some(Route { pattern: self.pattern.clone(), values }))),
            None => Err(self.without_function(head)),
        }
    }

    #[cold]
    fn without_function(&self, head: &RequestHead) -> Box<Response> {
        Box::new(match head.method() {
            http1::Method::Options => Response::with(Status::NO_CONTENT).fields(self.allow.clone()),
            http1::Method::Extension => Response::of_error(Status::NOT_IMPLEMENTED),
            _ => Response::of_error(Status::METHOD_NOT_ALLOWED).fields(self.allow.clone()),
        })
    }

    #[inline]
    fn function(&self, head: &RequestHead) -> Option<&Rc<Endpoint>> {
        let of = |method| self.methods.iter().find(|(other, _)| *other == method).map(|(_, endpoint)| endpoint);
        let found = match head.method() {
            http1::Method::Extension => {
                let name = head.method_text();
                self.extensions.iter().find(|(other, _)| other == name).map(|(_, endpoint)| endpoint)
            }
            // WebSocket over HTTP/2, which is a GET over HTTP/1.1 (RFC 8441 §5).
            http1::Method::Connect if head.protocol().is_some() => of(http1::Method::Get),
            http1::Method::Head => of(http1::Method::Head).or_else(|| of(http1::Method::Get)),
            method => of(method),
        };
        found.or(self.any.as_ref())
    }

    fn allowed(&self) -> Fields {
        let mut names: Vec<&str> = self.methods.iter().filter_map(|(method, _)| method.name()).collect();
        names.extend(self.extensions.iter().map(|(name, _)| name.as_str()));
        if names.contains(&"GET") && !names.contains(&"HEAD") {
            names.push("HEAD");
        }
        if !names.contains(&"OPTIONS") {
            names.push("OPTIONS");
        }
        let mut fields = Fields::new();
        fields.push("Allow", names.join(", ")).expect("methods are tokens");
        fields
    }
}

fn assert_makes_no_state(inner: &Table) {
    assert!(inner.connection_state.is_none(), "the outer router makes the state of a connection");
}

fn known(method: &Method) -> http1::Method {
    http1::Method::from_name(method.as_str())
}

/// The pattern of a path, and the form in which paths are matched.
fn pattern_of(path: &str) -> (Pattern, String) {
    assert!(path.starts_with('/'), "the path `{path}` has to begin with a slash");
    let names = names(path);
    assert!(names.len() <= PARAMETERS_MAX, "the path `{path}` has more than {PARAMETERS_MAX} parameters");
    (Pattern { text: path.into(), names }, normal_path::normal_pattern(path))
}

/// The names of the parameters in a pattern: the texts between braces, without doubled braces.
fn names(pattern: &str) -> Box<[Box<str>]> {
    let pattern = pattern.replace("{{", "").replace("}}", "");
    let parameters = pattern.split('{').skip(1).filter_map(|rest| rest.split_once('}'));
    parameters.map(|(name, _)| name.trim_start_matches('*').into()).collect()
}

impl<S> fmt::Debug for Router<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.table.routes.iter().map(|route| &route.pattern.text)).finish()
    }
}

impl fmt::Debug for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Table")
    }
}

/// Makes the state of a connection, from the address of its client.
pub(crate) type MakeState = Rc<dyn Fn(&Address) -> AnyState>;
