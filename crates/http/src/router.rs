//! `Router`: from the method and the path of a request to a function.

use std::fmt;
use std::rc::Rc;
use std::time::Duration;

use http::Method;
use tidegate_sys::Address;

use crate::condition::Condition;
use crate::endpoint::RequestFunction;
use crate::middleware::{AsyncMiddleware, Middleware};
use crate::request::AnyState;
use crate::slashes::Slashes;
use crate::table::{Choice, RouteInfo, Table};

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
    /// one, is for the paths behind the prefix. Its middleware applies to its routes alone, and to the router's own
    /// responses for their paths: 405, and 204 to OPTIONS, so that [`Cors`](crate::Cors) answers preflights there.
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

    /// Adds the routes of another router at their own paths. Its functions keep their own state, and its middleware and
    /// limits apply to its routes alone. Its fallback, if it has one, becomes that of this router.
    ///
    /// ```
    /// use tidegate::http::Router;
    ///
    /// let uploads = Router::new().post("/photos", |photo: Vec<u8>| photo.len().to_string()).body_bytes_max(8 * 1024 * 1024);
    /// let router = Router::new().get("/", || "hello").merge(uploads).body_bytes_max(64 * 1024);
    /// # drop(router);
    /// ```
    ///
    /// # Panics
    /// As [`route`](Self::route), if both routers have a function for the same method and path, or both have a fallback,
    /// and if the other router has [hosts](Self::host) or makes a [state for each connection](Self::connection_state).
    #[must_use]
    pub fn merge<T: 'static>(mut self, router: Router<T>) -> Self {
        assert!(!router.table.has_hosts(), "the merged router has hosts; add them to the outer router");
        assert_makes_no_state(&router.table);
        self.table.merge(router.into_table());
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

    /// Adds middleware: it sees every request before its function, in the order in which middleware was added, and every
    /// response after it, in the reverse order.
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

    /// All routes, in the order in which they were added: first those with conditions, then those without, then fallbacks,
    /// then those of hosts by name. Methods that a router answers by itself, such as OPTIONS, are not among them.
    ///
    /// ```
    /// use tidegate::http::{Condition, Router};
    ///
    /// let tides = Router::new().get("/{harbour}", || "high").post("/{harbour}", || "noted");
    /// let router = Router::new().nest("/tides", tides).any_if("/", [Condition::header("X-Beta")], || "soon").get("/", || "now");
    /// let routes: Vec<_> = router.routes().iter().map(ToString::to_string).collect();
    /// assert_eq!(routes, ["ANY / if Header(\"X-Beta\", Present)", "GET /tides/{harbour}", "POST /tides/{harbour}", "GET /"]);
    /// ```
    #[must_use]
    pub fn routes(&self) -> Vec<RouteInfo> {
        let mut routes = Vec::new();
        self.table.list(None, &mut routes);
        routes
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

fn assert_makes_no_state(inner: &Table) {
    assert!(inner.connection_state.is_none(), "the outer router makes the state of a connection");
}

impl<S> fmt::Debug for Router<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.table.patterns()).finish()
    }
}
