//! `Server` and `Config`: from an address and functions to a running server. Their methods about HTTP/3 are in
//! `server/over_quic.rs`.

#[cfg(feature = "http3")]
mod over_quic;

use std::fmt;
use std::future::Future;
use std::path::PathBuf;
use std::sync::{Arc, LazyLock};

#[cfg(feature = "tls")]
use tidegate_codec::{Filters, Over};
use tidegate_engine::{
    self as engine, Admission, Backend, Listener, LoadBalancing, ServedListener, ServerHandle, StartError,
};
use tidegate_http1 as http1;
use tidegate_http2 as http2;
use tidegate_metrics::{HttpMetrics, HttpRecorder};
#[cfg(feature = "tls")]
use tidegate_proxy_protocol::ProxyHeaderFilter;
use tidegate_proxy_protocol::{Policy, ReceivesHeader};
use tidegate_sys::{Address, ListenOptions};
#[cfg(feature = "tls")]
use tidegate_tls::{Certificates, ConfigError, Provider, ServerConfig};

#[cfg(feature = "http3")]
use self::over_quic::Http3Settings;
use crate::app::{App, Reload};
use crate::app_of_loop::{AppOfLoop, LoopApp};
use crate::codec::HttpCodec;
use crate::endpoint::RequestFunction;
use crate::limits::Limits;
use crate::make_router::MakeRouter;
use crate::router::Router;
use crate::serving::HttpHandler;
use crate::table::Table;

/// Serves HTTP at an address with one function, on a loop for each core.
///
/// ```no_run
/// use tidegate::http;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// http::serve("127.0.0.1:8080", || "Hello, World!")?.wait();
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// [`StartError`], with a remedy.
pub fn serve<M>(
    address: &str,
    function: impl RequestFunction<(), M> + Clone + Send + Sync + 'static,
) -> Result<ServerHandle, StartError> {
    Server::bind(address)?.serve(function)
}

/// An HTTP server: addresses, limits, and their routers.
///
/// Each connection speaks HTTP/1.1 or HTTP/2, as its first bytes say; over TLS clients choose by ALPN. Functions are the same
/// for both.
///
/// ```
/// use std::time::Duration;
///
/// use tidegate::http::{Limits, Router, Server};
///
/// let mut limits = Limits::default();
/// limits.body_bytes_max = 64 * 1024 * 1024;
/// let server = Server::bind("127.0.0.1:0")?.limits(limits).loops(1).start(|| Router::new().get("/", || "Hello!"))?;
/// println!("listening on {}", server.address());
/// server.drain(Duration::from_secs(1));
/// # Ok::<(), tidegate::StartError>(())
/// ```
#[derive(Debug)]
#[must_use = "a server does nothing until it is started"]
pub struct Server {
    engine: engine::Server,
    listener: Listener,
    config: Config,
}

impl Server {
    /// A server at an address, which is written as for [`engine::Server::bind`].
    ///
    /// # Errors
    /// [`StartError::Address`] if the text is not an address.
    pub fn bind(address: &str) -> Result<Self, StartError> {
        Listener::bind(address).map(Self::on)
    }

    /// A server on the listeners that a service manager, such as systemd, has passed to this process (`LISTEN_PID` and
    /// `LISTEN_FDS`); `None` if it has passed none. Call this early, before the process deals with descriptors by number.
    ///
    /// ```no_run
    /// use tidegate::http::{Router, Server};
    ///
    /// let server = match Server::from_environment()? {
    ///     Some(server) => server,
    ///     None => Server::bind("127.0.0.1:8080")?,
    /// };
    /// server.start(|| Router::new().get("/", || "hello"))?.wait();
    /// # Ok::<(), tidegate::StartError>(())
    /// ```
    ///
    /// # Errors
    /// [`StartError::Inherited`] if the variables are malformed, or a passed descriptor is not a listener.
    pub fn from_environment() -> Result<Option<Self>, StartError> {
        Ok(Listener::from_environment()?.map(Self::on))
    }

    /// A server at an address.
    pub fn at(address: Address) -> Self {
        Self::on(Listener::at(address))
    }

    /// A server on a listener.
    pub fn on(listener: Listener) -> Self {
        Self { engine: engine::Server::new(), listener, config: Config::new() }
    }

    /// The same at one address more.
    ///
    /// # Errors
    /// [`StartError::Address`] if the text is not an address.
    pub fn and_bind(mut self, address: &str) -> Result<Self, StartError> {
        self.listener = self.listener.and_bind(address)?;
        Ok(self)
    }

    /// The limits that protect the server.
    pub fn limits(mut self, limits: Limits) -> Self {
        self.config = self.config.limits(limits);
        self
    }

    /// Encrypts connections: HTTPS.
    #[cfg(feature = "tls")]
    pub fn tls(mut self, tls: ServerConfig) -> Self {
        self.config = self.config.tls(tls);
        self
    }

    /// Encrypts connections with the certificate in two PEM files: a chain, the certificate of the server first, and its
    /// private key. [`tls`](Self::tls) has more: several certificates, reloads, client certificates.
    ///
    /// ```no_run
    /// use tidegate::http::{Router, Server};
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let server = Server::bind("0.0.0.0:443")?.tls_files("/etc/tide/chain.pem", "/etc/tide/key.pem")?;
    /// server.start(|| Router::new().get("/", || "hello"))?.wait();
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// The first file that cannot be used, and why.
    #[cfg(feature = "tls")]
    pub fn tls_files(self, chain: impl Into<PathBuf>, key: impl Into<PathBuf>) -> Result<Self, ConfigError> {
        let provider = Provider::of_features().ok_or(ConfigError::NoProvider)?;
        let certificates = Certificates::from_files(&provider, [(chain, key)])?;
        Ok(self.tls(ServerConfig::builder(&provider, certificates).build()?))
    }

    /// Runs a task on each loop, from its start until the server drains; see [`Config::background`].
    pub fn background<F>(mut self, task: impl Fn(usize) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = ()> + 'static,
    {
        self.config = self.config.background(task);
        self
    }

    /// Connections begin with a header of the PROXY protocol, as far as the policy goes.
    pub fn proxy_protocol(mut self, policy: Policy) -> Self {
        self.config = self.config.proxy_protocol(policy);
        self
    }

    /// The value of the `Server` field; an empty name omits it.
    ///
    /// # Panics
    /// If `name` cannot be the value of a field.
    pub fn server_name(mut self, name: &str) -> Self {
        self.config = self.config.server_name(name);
        self
    }

    /// Refuses targets with bytes that no URI has, as [`Config::strict_targets`].
    pub fn strict_targets(mut self, strict: bool) -> Self {
        self.config = self.config.strict_targets(strict);
        self
    }

    /// Whether responses name the idle timeout, as [`Config::keep_alive_hint`].
    pub fn keep_alive_hint(mut self, is_sent: bool) -> Self {
        self.config = self.config.keep_alive_hint(is_sent);
        self
    }

    /// Whether requests go on when their client ends its side of the connection; see [`Config::half_close`].
    pub fn half_close(mut self, keeps: bool) -> Self {
        self.config = self.config.half_close(keeps);
        self
    }

    /// Whether browsers may open WebSockets over HTTP/2, as [`Config::extended_connect`].
    pub fn extended_connect(mut self, is_allowed: bool) -> Self {
        self.config = self.config.extended_connect(is_allowed);
        self
    }

    /// Makes routers anew when `reload` does.
    pub fn reload(mut self, reload: &Reload) -> Self {
        self.config = self.config.reload(reload);
        self
    }

    /// Counts requests by route, method and class of status, as [`Config::metrics`].
    pub fn metrics(mut self, metrics: &HttpMetrics) -> Self {
        self.config = self.config.metrics(metrics);
        self
    }

    /// How many loops run, each on a thread of its own; one per core unless set.
    pub fn loops(mut self, loops: usize) -> Self {
        self.engine = self.engine.loops(loops);
        self
    }

    /// Which driver the loops run on: [`Backend::Auto`] unless set.
    pub fn backend(mut self, backend: Backend) -> Self {
        self.engine = self.engine.backend(backend);
        self
    }

    /// Which loop serves a fresh connection: the one that has accepted it, unless set.
    pub fn load_balancing(mut self, load_balancing: LoadBalancing) -> Self {
        self.engine = self.engine.load_balancing(load_balancing);
        self
    }

    /// Options of the listener and its streams.
    pub fn options(mut self, options: ListenOptions) -> Self {
        self.listener = self.listener.options(options);
        self
    }

    /// Which peers may connect, and how many connections each may have.
    pub fn admission(mut self, admission: Admission) -> Self {
        self.engine = self.engine.admission(admission);
        self
    }

    /// Restarts without a gap: see [`engine::Server::takeover`].
    pub fn takeover(mut self, path: impl Into<PathBuf>) -> Self {
        self.engine = self.engine.takeover(path);
        self
    }

    /// The tokio runtime in which the loops run; see [`engine::TokioRuntime`].
    #[cfg(feature = "tokio")]
    pub fn tokio_runtime(mut self, tokio_runtime: engine::TokioRuntime) -> Self {
        self.engine = self.engine.tokio_runtime(tokio_runtime);
        self
    }

    /// Adds a listener of another protocol, or an HTTP one with another [`Config`], on the same loops.
    pub fn listener(mut self, listener: ServedListener) -> Self {
        self.engine = self.engine.listener(listener);
        self
    }

    /// Starts the loops. `router` is called once on each loop's thread, so that functions of one loop can share values
    /// that are not `Send`.
    ///
    /// # Errors
    /// [`StartError`], with a remedy.
    ///
    /// # Panics
    /// If `router` does: it is called once here before the loops start.
    pub fn start<S: 'static>(self, router: impl MakeRouter<S>) -> Result<ServerHandle, StartError> {
        drop(router.make_router());
        self.run(Arc::new(move || router.make_router().into_table()))
    }

    /// Starts the loops with one function for all requests.
    ///
    /// # Errors
    /// [`StartError`], with a remedy.
    pub fn serve<M>(
        self,
        function: impl RequestFunction<(), M> + Clone + Send + Sync + 'static,
    ) -> Result<ServerHandle, StartError> {
        self.run(Arc::new(move || Table::of_function(function.clone())))
    }

    fn run(self, table: MakeTable) -> Result<ServerHandle, StartError> {
        let limits = self.config.limits.engine();
        self.engine.limits(limits).listener(self.config.served(self.listener, table)).run()
    }
}

/// How the connections of a listener are served: limits, TLS, PROXY headers. A [`Server`] has one; a listener that is
/// added to a server of another protocol has its own.
///
/// ```
/// use tidegate::http::{Config, Router};
/// use tidegate::{Listener, Server};
///
/// let admin = Config::new().serve(Listener::bind("127.0.0.1:0")?.label("admin"), || Router::new().get("/", || "up"));
/// let server = Server::new().loops(1).listener(admin).run()?;
/// # server.drain(std::time::Duration::ZERO);
/// # Ok::<(), tidegate::StartError>(())
/// ```
#[derive(Debug, Default, Clone)]
#[must_use = "a configuration does nothing until a listener is served with it"]
pub struct Config {
    limits: Limits,
    #[cfg(feature = "tls")]
    tls: Option<ServerConfig>,
    #[cfg(feature = "http3")]
    http3: Http3Settings,
    proxy: Option<Arc<Policy>>,
    server_name: Option<String>,
    strict_targets: bool,
    keep_alive_hint: Option<bool>,
    half_close: bool,
    denies_extended_connect: bool,
    reload: Option<Reload>,
    metrics: Option<HttpMetrics>,
    background: BackgroundTasks,
}

impl Config {
    /// The default limits, without TLS and without PROXY headers.
    pub fn new() -> Self {
        Self::default()
    }

    /// The limits that protect the server.
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// Encrypts connections: HTTPS. Clients may choose HTTP/2 or HTTP/1.1, unless the configuration names protocols of its
    /// own.
    #[cfg(feature = "tls")]
    pub fn tls(mut self, tls: ServerConfig) -> Self {
        self.tls = Some(tls.alpn_or(["h2", "http/1.1"]));
        self
    }

    /// Connections begin with a header of the PROXY protocol, as far as the policy goes; before a TLS handshake.
    pub fn proxy_protocol(mut self, policy: Policy) -> Self {
        self.proxy = Some(Arc::new(policy));
        self
    }

    /// The value of the `Server` field; an empty name omits it.
    ///
    /// # Panics
    /// If `name` cannot be the value of a field.
    pub fn server_name(mut self, name: &str) -> Self {
        drop(http1::Config::new(http1::Limits::default()).server_name(name));
        self.server_name = Some(name.to_owned());
        self
    }

    /// Refuses targets with bytes that no URI has (RFC 3986 §2), such as `|`, `^` and raw UTF-8, or with a `%` without two
    /// hexadecimal digits after it, with 400. They are accepted unless set, since browsers and other user agents send them:
    /// functions see them, and a proxy passes them on, as they came. Control characters, spaces and `#` are always refused.
    pub fn strict_targets(mut self, strict: bool) -> Self {
        self.strict_targets = strict;
        self
    }

    /// Whether HTTP/1 responses name the idle timeout in `Keep-Alive: timeout=N`, a second below
    /// [`idle_timeout`](Limits::idle_timeout), so that clients send no request when the server closes the connection;
    /// see [`http1::Config::keep_alive_hint`]. Yes, unless set, if that limit is not the default one.
    pub fn keep_alive_hint(mut self, is_sent: bool) -> Self {
        self.keep_alive_hint = Some(is_sent);
        self
    }

    /// Whether an HTTP/1.1 request goes on when its client ends its side of the connection (FIN, or a TLS
    /// `close_notify`), and still reads (RFC 9112 §9.6). `false` unless set: the request ends, since a closed tab and a
    /// killed client look the same. [`Router::half_close`](crate::Router::half_close) decides for some routes.
    ///
    /// Functions that respond at once respond in either case, and so do the requests that were received before them. An
    /// HTTP/2 request always ends with its connection.
    pub fn half_close(mut self, keeps: bool) -> Self {
        self.half_close = keeps;
        self
    }

    /// Whether clients may open WebSockets over HTTP/2, by extended CONNECT (RFC 8441): yes, unless set. A server
    /// announces it by a setting. Browsers open each WebSocket over its own HTTP/1.1 connection if it is not announced,
    /// as they do at most servers.
    pub fn extended_connect(mut self, is_allowed: bool) -> Self {
        self.denies_extended_connect = !is_allowed;
        self
    }

    /// Makes routers anew when `reload` does.
    pub fn reload(mut self, reload: &Reload) -> Self {
        self.reload = Some(reload.clone());
        self
    }

    /// Counts requests by route, method and class of status, with their latency; they are not counted unless set. A request
    /// counts when the head of its response is ready; one that the codec refuses counts without a route.
    pub fn metrics(mut self, metrics: &HttpMetrics) -> Self {
        self.metrics = Some(metrics.clone());
        self
    }

    /// Runs a task on each loop, from its start until the server drains: it is dropped then, where it waits. `task` gets
    /// the number of the loop, so that a task which the process needs once can return at once on all loops but the first.
    /// Several tasks may be added. A panic ends only the task.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use tidegate::http::{Router, Server};
    /// use tidegate::task;
    ///
    /// let refresh = async |number: usize| {
    ///     while number == 0 {
    ///         // .. reads the list of harbours again
    ///         task::sleep(Duration::from_secs(60)).await;
    ///     }
    /// };
    /// let server = Server::bind("127.0.0.1:0")?.background(refresh).start(|| Router::new().get("/", || "hello"))?;
    /// server.drain(Duration::from_secs(1));
    /// # Ok::<(), tidegate::StartError>(())
    /// ```
    pub fn background<F>(mut self, task: impl Fn(usize) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = ()> + 'static,
    {
        self.background
            .0
            .push(Arc::new(move |number| drop(engine::task::spawn(engine::task::until_drain(task(number))))));
        self
    }

    /// Serves a listener with the router that `router` makes for each loop.
    pub fn serve<S: 'static>(self, listener: Listener, router: impl MakeRouter<S>) -> ServedListener {
        let limits = self.limits.engine();
        self.served(listener.limits(limits), Arc::new(move || router.make_router().into_table()))
    }

    /// The service of one connection without TLS and PROXY headers: a codec and a handler, for a test without a network
    /// or for a loop of one's own. Each call makes another connection of the same router.
    ///
    /// ```
    /// use tidegate::http::{Config, Router};
    /// use tidegate_testkit::Embedded;
    ///
    /// let connections = Config::new().connections(Router::new().get("/", || "rising"));
    /// let (codec, handler) = connections();
    /// let mut pipe = Embedded::new(codec, handler);
    /// pipe.receive(b"GET / HTTP/1.1\r\nHost: sea\r\n\r\n");
    /// assert!(pipe.take_written().ends_with(b"\r\n\r\nrising"));
    /// ```
    pub fn connections<S: 'static>(self, router: Router<S>) -> impl Fn() -> (http1::Server, HttpHandler) {
        let config = self.http1();
        let http2 = self.http2();
        let app = App::new(self.limits, router.into_table()).half_close(self.half_close);
        let app = match &self.metrics {
            Some(metrics) => app.counting(HttpRecorder::new(metrics)),
            None => app,
        };
        let app = LoopApp::new(app, http2);
        let app = move || app.app().clone();
        move || (http1::Server::new(config.clone()), HttpHandler::new(app()))
    }

    fn http1(&self) -> Arc<http1::Config> {
        let config = http1::Config::new(self.limits.http1()).continue_by_hand(true);
        let mut config = config.strict_targets(self.strict_targets);
        if let Some(is_sent) = self.keep_alive_hint {
            config = config.keep_alive_hint(is_sent);
        }
        if let Some(name) = &self.server_name {
            config = config.server_name(name);
        }
        if let Some(metrics) = &self.metrics {
            config = config.count_refusals(metrics.refusals());
        }
        Arc::new(config.detect_http2(true))
    }

    fn http2(&self) -> Arc<http2::Config> {
        let config = http2::Config::new(self.limits.http2()).continue_by_hand(true);
        let config = config.extended_connect(!self.denies_extended_connect);
        let mut config = config.strict_targets(self.strict_targets);
        if let Some(name) = &self.server_name {
            config = config.server_name(name);
        }
        if let Some(metrics) = &self.metrics {
            config = config.count_refusals(metrics.refusals());
        }
        Arc::new(config)
    }

    /// The value of `Alt-Svc` in responses over TCP. It is known once the listener is open.
    fn alternatives(&self) -> impl Fn() -> String + Clone + Send + Sync + 'static {
        #[cfg(feature = "http3")]
        let http3 = self.http3.listener.clone();
        move || {
            #[cfg(feature = "http3")]
            if let Some(http3) = &http3 {
                return http3.alternatives().to_owned();
            }
            String::new()
        }
    }

    #[cfg(feature = "http3")]
    fn served(mut self, listener: Listener, table: MakeTable) -> ServedListener {
        // A clone of the configuration may serve another listener, which has another port.
        self.http3.listener = self.http3.listener.map(|http3| http3.for_another_listener());
        let Some(http3) = self.http3.listener.clone() else { return self.served_tcp(listener, table).0 };
        let (limits, config) = (self.limits.clone(), self.http3_config());
        let (listener, app) = self.served_tcp(listener, table);
        http3.serve(listener, (&limits, config), app)
    }

    #[cfg(not(feature = "http3"))]
    fn served(self, listener: Listener, table: MakeTable) -> ServedListener {
        self.served_tcp(listener, table).0
    }

    fn served_tcp(self, listener: Listener, table: MakeTable) -> (ServedListener, AppOfLoop) {
        let (config, alternatives) = (self.http1(), self.alternatives());
        let of_loops = alternatives.clone();
        let config =
            Arc::new(LazyLock::new(Box::new(move || Arc::new(Arc::unwrap_or_clone(config).alt_svc(&alternatives())))
                as Box<dyn FnOnce() -> Arc<http1::Config> + Send>));
        let http = move || http1::Server::new(Arc::clone(&**config));
        let (limits, http2) = (self.limits.clone(), self.http2());
        let (reload, metrics, half_close) = (self.reload.clone(), self.metrics.clone(), self.half_close);
        let app = move || {
            let (table, limits) = (table.clone(), limits.clone());
            let app = match reload.clone() {
                Some(reload) => App::reloading(limits, move || table(), reload),
                None => App::new(limits, table()),
            };
            let app = app.half_close(half_close);
            let app = match &metrics {
                Some(metrics) => app.counting(HttpRecorder::new(metrics)),
                None => app,
            };
            let http2 = http2::Config::clone(&http2).alt_svc(&of_loops());
            LoopApp::new(app, Arc::new(http2))
        };
        let app = AppOfLoop::new(app);
        let loop_start = LoopStart { app: app.clone(), background: self.background };
        #[cfg(feature = "tls")]
        if let Some(tls) = self.tls {
            let served = match self.proxy {
                None => handled(listener, loop_start, move |_| Over::new(tls.accept(), http())),
                Some(policy) => handled(listener, loop_start, move |peer| {
                    Filters::default().with(ProxyHeaderFilter::new(&policy, ip(peer))).with(tls.accept()).stack(http())
                }),
            };
            return (served, app);
        }
        let served = match self.proxy {
            None => handled(listener, loop_start, move |_| http()),
            Some(policy) => handled(listener, loop_start, move |peer| ReceivesHeader::new(&policy, ip(peer), http())),
        };
        (served, app)
    }
}

/// Makes the routes of a loop. Its type is erased: the code that serves connections is compiled once, here, instead of
/// once for each application.
type MakeTable = Arc<dyn Fn() -> Table + Send + Sync>;

fn handled<C: HttpCodec>(
    listener: Listener,
    start: LoopStart,
    codec: impl Fn(&Address) -> C + Clone + Send + Sync + 'static,
) -> ServedListener {
    listener.handle_each(move |number| {
        let (app, codec) = (start.app.get(), codec.clone());
        start.background.0.iter().for_each(|spawn| spawn(number));
        move |peer: &Address| (codec(peer), HttpHandler::new(app.app().clone()))
    })
}

/// The start of a loop: the application of its connections, and tasks beside them.
struct LoopStart {
    app: AppOfLoop,
    background: BackgroundTasks,
}

/// Spawns the background tasks of a loop, by its number.
#[derive(Default, Clone)]
struct BackgroundTasks(Vec<SpawnBackground>);

type SpawnBackground = Arc<dyn Fn(usize) + Send + Sync>;

impl fmt::Debug for BackgroundTasks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} tasks", self.0.len())
    }
}

fn ip(address: &Address) -> Option<std::net::IpAddr> {
    address.ip().map(|address| address.ip())
}
