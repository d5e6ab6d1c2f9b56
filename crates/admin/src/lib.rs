//! The administrative server: metrics, health, readiness and a live page of a running server.
//!
//! It is a server of its own, with a listener and a loop of its own, so it responds while the loops that it is about
//! hang or drain, and a scrape takes no time of theirs. Nothing of it is served anywhere else.
//!
//! | path | content |
//! |---|---|
//! | `/metrics` | metrics, in the text format of Prometheus or as OpenMetrics |
//! | `/health` | 200 while all loops run and none hangs, otherwise 503: whether a restart would help |
//! | `/ready` | 200 while the server accepts connections, 503 when it drains: whether to send it requests |
//! | `/dashboard` | the live page |
//! | `/dashboard/snapshot` | the figures of the page, as JSON |
//! | `/dashboard/events` | the same every second, as Server-Sent Events |
//! | `/dashboard/connections` | connections, sorted and searched, as JSON |
//! | `/dashboard/close` | POST: resets a connection; 404 if there is none |
//! | `/reload` | POST: reads the configuration again; only with [`Admin::reload`] |
//! | `/cache/purge` | POST: removes stored responses, if a cache is [given](Admin::cache) |
//!
//! **It asks for no password.** So it listens on loopback addresses and Unix sockets only, unless it is
//! [opened](Admin::allow_remote), and only processes of its own user can connect to a Unix socket with a path; and it refuses requests that a page of another site could have made a browser send
//! (`guard.rs`).
//!
//! Read next: `guard.rs`, `snapshot.rs`, `connections.rs`, and `dashboard.html`, which is the page.
//!
//! # Files
//!
//! | file | holds |
//! |---|---|
//! | `guard.rs` | which requests are refused: hosts, origins |
//! | `figures.rs` | `Figures`: the sources of the numbers |
//! | `routes.rs` | the paths, and the shared state of their functions |
//! | `snapshot.rs` | the figures of the live page, as JSON |
//! | `connections.rs` | the list of connections: searched, sorted |
//! | `purge.rs` | the removal of stored responses |
//! | `reload.rs` | `ReloadError`: another configuration on request |
//! | `page.rs` | the live page, `dashboard.html`, and its policy |

#![forbid(unsafe_code)]

mod connections;
mod figures;
mod guard;
mod page;
mod purge;
mod reload;
mod routes;
mod snapshot;

use std::error::Error;
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use tidegate_engine::{RoomsSummary, ServerHandle, StartError};
use tidegate_http::{Limits, Server};
use tidegate_http_cache::Cache;
use tidegate_metrics::{HttpMetrics, MetricsText, UpstreamGroup};
use tidegate_sys::{Address, ListenOptions};

pub use crate::figures::BackplaneFigures;
use crate::figures::{
    Figures, ReadBackplane, ReadCaches, ReadRooms, ReadServer, ReadUpstreams, ReadyCondition, WriteMetrics,
};
use crate::guard::Guard;
use crate::reload::ReloadFunction;

pub use crate::reload::ReloadError;

/// The administrative server of a running server.
///
/// ```
/// use tidegate::admin::Admin;
/// use tidegate::http::{Router, Server};
/// use tidegate::metrics::HttpMetrics;
///
/// let metrics = HttpMetrics::new();
/// let server = Server::bind("127.0.0.1:0")?.metrics(&metrics).start(|| Router::new().get("/", || "Hello!"))?;
/// let admin = Admin::new(&server).requests(&metrics).start(&"127.0.0.1:0".parse()?)?;
/// println!("http://{}/dashboard", admin.address());
/// # server.drain(std::time::Duration::ZERO);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "nothing is served until it is started"]
pub struct Admin {
    server: ReadServer,
    requests: HttpMetrics,
    upstreams: Option<ReadUpstreams>,
    rooms: Option<ReadRooms>,
    backplane: Option<ReadBackplane>,
    more: Vec<WriteMetrics>,
    ready: Vec<ReadyCondition>,
    caches: Vec<Cache>,
    read_caches: Option<ReadCaches>,
    hosts: Vec<String>,
    allows_remote: bool,
    shares_address: bool,
    reload: Option<ReloadFunction>,
}

impl fmt::Debug for Admin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Admin").field("hosts", &self.hosts).field("allows_remote", &self.allows_remote).finish()
    }
}

impl Admin {
    /// For this server.
    pub fn new(server: &ServerHandle) -> Self {
        let server = server.clone();
        Self::following(move || server.clone())
    }

    /// For a server that another one of the same process may replace, by
    /// [`Server::replaces`](tidegate_engine::Server::replaces): `read` returns the current one, on the thread of the
    /// administrative server, which stays at its address.
    pub fn following(read: impl Fn() -> ServerHandle + Send + Sync + 'static) -> Self {
        Self {
            server: Arc::new(read),
            requests: HttpMetrics::new(),
            upstreams: None,
            rooms: None,
            backplane: None,
            more: Vec::new(),
            ready: Vec::new(),
            caches: Vec::new(),
            read_caches: None,
            hosts: Vec::new(),
            allows_remote: false,
            shares_address: false,
            reload: None,
        }
    }

    /// Shows these HTTP requests.
    pub fn requests(mut self, metrics: &HttpMetrics) -> Self {
        self.requests = metrics.clone();
        self
    }

    /// Shows the upstreams of a gateway, in the metrics and on the page: `read` runs on the thread of the administrative
    /// server, at most ten times a second.
    ///
    /// ```
    /// use tidegate::admin::Admin;
    /// use tidegate::http::proxy::{Proxy, Upstreams};
    /// use tidegate::http::{Router, Server};
    ///
    /// let upstreams = Upstreams::new(["http://10.0.0.1:8080"])?;
    /// let seen = upstreams.clone();
    /// let server = Server::bind("127.0.0.1:0")?.start(move || Router::new().fallback(Proxy::new(&upstreams)))?;
    /// let admin = Admin::new(&server).upstreams(move || vec![seen.snapshot("app")]).start(&"127.0.0.1:0".parse()?)?;
    /// # server.drain(std::time::Duration::ZERO);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn upstreams(mut self, read: impl Fn() -> Vec<UpstreamGroup> + Send + Sync + 'static) -> Self {
        self.upstreams = Some(Arc::new(read));
        self
    }

    /// Shows rooms on the page, the largest by name: `read` runs on the thread of the administrative server, at most ten
    /// times a second. With users it returns `rooms.summary(20).and(users.summary(20), 20)`.
    ///
    /// ```
    /// use tidegate::admin::Admin;
    /// use tidegate::framing::Lines;
    /// use tidegate::http::{Router, Server};
    /// use tidegate::{RoomLimits, Rooms, Slow};
    ///
    /// let rooms = Rooms::<Lines>::new(Slow::Skip, RoomLimits::default());
    /// let server = Server::bind("127.0.0.1:0")?.start(|| Router::new().get("/", || "Hello!"))?;
    /// let admin = Admin::new(&server).rooms(move || rooms.summary(20)).start(&"127.0.0.1:0".parse()?)?;
    /// # server.drain(std::time::Duration::ZERO);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn rooms(mut self, read: impl Fn() -> RoomsSummary + Send + Sync + 'static) -> Self {
        self.rooms = Some(Arc::new(read));
        self
    }

    /// Shows the backplane of the rooms on the page: `read` runs as that of [`rooms`](Self::rooms).
    pub fn backplane(mut self, read: impl Fn() -> BackplaneFigures + Send + Sync + 'static) -> Self {
        self.backplane = Some(Arc::new(read));
        self
    }

    /// Shows further metrics, behind those of the server: `write` runs on the thread of the administrative server, at
    /// most ten times a second. It writes whole families. Names that begin with `tidegate_` are this
    /// project's.
    ///
    /// ```
    /// use tidegate::admin::Admin;
    /// use tidegate::http::{Router, Server};
    /// use tidegate::metrics::FacadeRecorder;
    ///
    /// let recorder = FacadeRecorder::new();
    /// recorder.install()?;
    /// let server = Server::bind("127.0.0.1:0")?.start(|| {
    ///     Router::new().get("/", || {
    ///         metrics::counter!("greetings").increment(1);
    ///         "Hello!"
    ///     })
    /// })?;
    /// let admin = Admin::new(&server).metrics(move |text| recorder.write(text)).start(&"127.0.0.1:0".parse()?)?;
    /// # server.drain(std::time::Duration::ZERO);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn metrics(mut self, write: impl Fn(&mut MetricsText) + Send + Sync + 'static) -> Self {
        self.more.push(Arc::new(write));
        self
    }

    /// Adds a condition of readiness: while `is_ready` returns `false`, `/ready` answers 503 with the line `otherwise`. It
    /// runs on the thread of the administrative server.
    ///
    /// ```
    /// use tidegate::admin::Admin;
    /// use tidegate::backplane::{Backplane, MemoryBroker};
    /// use tidegate::http::{Router, Server};
    ///
    /// let backplane = Backplane::memory(&MemoryBroker::new()).spawn()?;
    /// let server = Server::bind("127.0.0.1:0")?.start(|| Router::new().get("/", || "Hello!"))?;
    /// let admin = Admin::new(&server).ready_if("the broker is not connected", move || backplane.is_up());
    /// let admin = admin.start(&"127.0.0.1:0".parse()?)?;
    /// # server.drain(std::time::Duration::ZERO);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn ready_if(self, otherwise: &'static str, is_ready: impl Fn() -> bool + Send + Sync + 'static) -> Self {
        self.ready_unless(move || (!is_ready()).then(|| otherwise.to_owned()))
    }

    /// Adds a condition of readiness whose reason varies: while `fault` returns a line, `/ready` answers 503 with it. It runs on
    /// the thread of the administrative server.
    ///
    /// ```
    /// use tidegate::admin::Admin;
    /// use tidegate::backplane::{Backplane, MemoryBroker};
    /// use tidegate::http::{Router, Server};
    ///
    /// let backplane = Backplane::memory(&MemoryBroker::new()).spawn()?;
    /// let server = Server::bind("127.0.0.1:0")?.start(|| Router::new().get("/", || "Hello!"))?;
    /// let admin = Admin::new(&server).ready_unless(move || Some(format!("rooms: {}", backplane.fault()?)));
    /// let admin = admin.start(&"127.0.0.1:0".parse()?)?;
    /// # server.drain(std::time::Duration::ZERO);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn ready_unless(mut self, fault: impl Fn() -> Option<String> + Send + Sync + 'static) -> Self {
        self.ready.push(Arc::new(fault));
        self
    }

    /// Lets POST requests to `/cache/purge` remove responses that this cache has stored; of several caches, of each. Without
    /// this the path does not exist.
    ///
    /// | query | removes the responses for |
    /// |---|---|
    /// | `url=https://example.org/a?b`, percent-encoded | one URL |
    /// | `prefix=https://example.org/pictures/` | all URLs that begin so |
    /// | `host=example.org` | all URLs of a host |
    /// | `all=true` | all URLs |
    ///
    /// The response tells how many were in memory: `{"removed":1}`. A query that is none of these gets a 400.
    ///
    /// ```
    /// use tidegate::admin::Admin;
    /// use tidegate::http::cache::Cache;
    /// use tidegate::http::{Router, Server};
    ///
    /// let cache = Cache::new();
    /// let stored = cache.clone();
    /// let router = move || Router::new().get("/", stored.wrap(async || "Hello!"));
    /// let server = Server::bind("127.0.0.1:0")?.start(router)?;
    /// let admin = Admin::new(&server).cache(&cache).start(&"127.0.0.1:0".parse()?)?;
    /// # server.drain(std::time::Duration::ZERO);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn cache(mut self, cache: &Cache) -> Self {
        self.caches.push(cache.clone());
        self
    }

    /// The same for caches that a reload replaces: `read` returns those in use. While there are none, the path is answered
    /// with 404.
    pub fn caches(mut self, read: impl Fn() -> Vec<Cache> + Send + Sync + 'static) -> Self {
        self.read_caches = Some(Arc::new(read));
        self
    }

    /// Responds to requests for a host of this name, too. Without it requests must name an IP address or `localhost`,
    /// which stops pages of other sites that have their name resolve to the address of this server (DNS rebinding).
    pub fn host(mut self, name: &str) -> Self {
        self.hosts.push(name.to_ascii_lowercase());
        self
    }

    /// Listens at addresses that other machines may reach, too. Any of them can then read the figures, and close
    /// connections.
    pub fn allow_remote(mut self) -> Self {
        self.allows_remote = true;
        self
    }

    /// Lets the administrative server of a successor listen at the same address before this one ends: for restarts
    /// without a gap. Another program of the same user can do so, too.
    pub fn share_address(mut self) -> Self {
        self.shares_address = true;
        self
    }

    /// Lets `POST /reload` read a configuration again: `reload` runs on a thread that may block, and returns a line for
    /// the response. Without it there is no such path.
    ///
    /// ```
    /// use tidegate::admin::Admin;
    /// use tidegate::http::{Router, Server};
    ///
    /// let server = Server::bind("127.0.0.1:0")?.start(|| Router::new().get("/", || "Hello!"))?;
    /// let admin = Admin::new(&server).reload(|| Ok("2 routes".into())).start(&"127.0.0.1:0".parse()?)?;
    /// # server.drain(std::time::Duration::ZERO);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn reload(mut self, reload: impl Fn() -> Result<String, ReloadError> + Send + Sync + 'static) -> Self {
        self.reload = Some(Arc::new(reload));
        self
    }

    /// Starts it, on a thread of its own. It runs until the handle is dropped; it keeps the server running until then,
    /// unless that is drained.
    ///
    /// # Errors
    /// [`AdminError::Remote`] for an address that is not a loopback address, [`AdminError::Start`] if the server does
    /// not start.
    pub fn start(self, address: &Address) -> Result<AdminHandle, AdminError> {
        let reaches_far = address.ip().is_some_and(|address| !is_loopback(address.ip()));
        if reaches_far && !self.allows_remote {
            return Err(AdminError::Remote(address.clone()));
        }
        let mut limits = Limits::default();
        limits.connections_max = CONNECTIONS_MAX;
        limits.memory_max = MEMORY_MAX;
        limits.body_bytes_max = 0;
        let guard = Guard::new(self.hosts);
        let (caches, reload) = (self.caches, self.reload);
        let caches: Option<ReadCaches> = match self.read_caches {
            None if caches.is_empty() => None,
            None => Some(Arc::new(move || caches.clone())),
            Some(read) => Some(Arc::new(move || read().into_iter().chain(caches.iter().cloned()).collect())),
        };
        let figures = Figures {
            server: self.server,
            requests: self.requests,
            upstreams: self.upstreams,
            rooms: self.rooms,
            backplane: self.backplane,
            more: self.more,
            ready: self.ready,
        };
        let router = move || routes::router(&figures, caches.as_ref(), reload.as_ref(), guard.clone());
        // `nc -N` and the like end their side and wait, and a response does not take long.
        let admin = Server::at(address.clone()).loops(1).limits(limits).server_name("").half_close(true);
        let options =
            ListenOptions { reuse_port: self.shares_address, unix_mode: Some(UNIX_MODE), ..ListenOptions::default() };
        let admin = admin.options(options).start(router);
        admin.map(AdminHandle).map_err(AdminError::Start)
    }
}

fn is_loopback(address: IpAddr) -> bool {
    address.to_canonical().is_loopback()
}

/// A running administrative server. Dropping it ends it at once.
#[derive(Debug)]
#[must_use = "dropping it ends the administrative server"]
pub struct AdminHandle(ServerHandle);

impl AdminHandle {
    /// Its address; the port is the real one.
    #[must_use]
    pub fn address(&self) -> &Address {
        self.0.address()
    }

    /// Ends it once the requests in progress are answered, or at the deadline.
    pub fn drain(self, deadline: Duration) {
        self.0.drain(deadline);
    }
}

impl Drop for AdminHandle {
    fn drop(&mut self) {
        self.0.drain(Duration::ZERO);
    }
}

/// Why there is no administrative server.
#[derive(Debug)]
#[non_exhaustive]
pub enum AdminError {
    /// Other machines may reach the address.
    Remote(Address),
    /// The server did not start.
    Start(StartError),
}

impl fmt::Display for AdminError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Remote(address) => write!(
                f,
                "the administrative server asks for no password, and other machines may reach {address}: \
                 use a loopback address, such as 127.0.0.1, or allow remote addresses"
            ),
            Self::Start(error) => write!(f, "the administrative server did not start: {error}"),
        }
    }
}

impl Error for AdminError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Remote(_) => None,
            Self::Start(error) => Some(error),
        }
    }
}

/// Only processes of this user can connect to a socket in the file system.
const UNIX_MODE: u32 = 0o600;

/// Connections at once: scrapers, and pages that are open.
const CONNECTIONS_MAX: usize = 256;

/// Memory of them all, which slow readers of long metrics take.
const MEMORY_MAX: usize = 64 * 1024 * 1024;
