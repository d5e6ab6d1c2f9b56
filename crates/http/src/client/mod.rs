//! A client of HTTP: requests to any origin, over connections that it keeps in a pool.
//!
//! | to | use |
//! |---|---|
//! | send requests | [`Client`], [`RequestBuilder`] |
//! | read responses | [`Response`], [`Body`](crate::Body) |
//! | set limits, TLS, proxies, cookies | [`ClientBuilder`], [`ClientLimits`] |
//! | resolve names in another way | [`Resolve`] |
//!
//! Read next: `send.rs`, the way from a request to its response; `pool.rs` for connections and the requests that wait for
//! them; `exchange.rs` for one request on its connection; `connect.rs` for how connections are made.

mod codec;
mod connect;
mod connection;
mod ends;
mod error;
mod exchange;
mod limits;
mod origin;
mod pool;
mod redirect;
mod reference;
mod request;
mod resolve;
mod response;
mod send;

use std::fmt;
use std::rc::Rc;
use std::sync::Arc;

use http::{Method, Uri};
use tidegate_http1::client::Config;
#[cfg(feature = "tls")]
use tidegate_tls::ClientConfig;

use self::connect::Connector;
pub use self::error::{ClientError, Phase, ProxyError, RefusedRedirect};
pub use self::limits::ClientLimits;
use self::pool::Pool;
use self::redirect::Redirects;
pub use self::request::RequestBuilder;
pub use self::resolve::{Resolve, Resolving, SystemResolver};
pub use self::response::Response;

/// A client of HTTP on one loop. Clones share their connections.
///
/// The client belongs to the loop on which it sends its first request: its connections are the loop's.
///
/// ```
/// use tidegate::http::{self, Client};
/// use tidegate::{Backend, EventLoop};
///
/// let server = http::serve("127.0.0.1:0", || "ebb and flow")?;
/// let uri = format!("http://{}/", server.address());
/// let text = EventLoop::on(Backend::Auto)?.block_on(async move {
///     let client = Client::new();
///     client.get(&uri).send().await?.text().await
/// })??;
/// assert_eq!(text, "ebb and flow");
/// # server.drain(std::time::Duration::ZERO);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Client(Rc<Shared>);

struct Shared {
    limits: ClientLimits,
    connector: Connector,
    pool: Rc<Pool>,
    redirects: Redirects,
}

impl Client {
    /// A client with the default limits, and without TLS.
    #[must_use]
    pub fn new() -> Self {
        Self::builder().build()
    }

    /// Begins a client with other settings.
    pub fn builder() -> ClientBuilder {
        ClientBuilder::default()
    }

    /// A GET request.
    pub fn get(&self, uri: impl AsRef<str>) -> RequestBuilder {
        self.request(Method::GET, uri)
    }

    /// A HEAD request.
    pub fn head(&self, uri: impl AsRef<str>) -> RequestBuilder {
        self.request(Method::HEAD, uri)
    }

    /// A POST request.
    pub fn post(&self, uri: impl AsRef<str>) -> RequestBuilder {
        self.request(Method::POST, uri)
    }

    /// A PUT request.
    pub fn put(&self, uri: impl AsRef<str>) -> RequestBuilder {
        self.request(Method::PUT, uri)
    }

    /// A PATCH request.
    pub fn patch(&self, uri: impl AsRef<str>) -> RequestBuilder {
        self.request(Method::PATCH, uri)
    }

    /// A DELETE request.
    pub fn delete(&self, uri: impl AsRef<str>) -> RequestBuilder {
        self.request(Method::DELETE, uri)
    }

    /// A request of any method. The URI has the scheme `http` or `https`, and a host.
    pub fn request(&self, method: Method, uri: impl AsRef<str>) -> RequestBuilder {
        RequestBuilder::new(self.clone(), method, uri.as_ref())
    }

    /// The same with a URI that is parsed already.
    pub fn request_to(&self, method: Method, uri: Uri) -> RequestBuilder {
        RequestBuilder::of_uri(self.clone(), method, Ok(uri))
    }

    /// How many connections are idle.
    #[must_use]
    pub fn idle_connections(&self) -> usize {
        self.0.pool.counts().0
    }

    /// How many connections there are, idle, in use, or being made.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.0.pool.counts().1
    }

    /// Closes all idle connections.
    pub fn close_idle(&self) {
        self.0.pool.close_idle();
    }

    fn limits(&self) -> &ClientLimits {
        &self.0.limits
    }

    fn pool(&self) -> &Rc<Pool> {
        &self.0.pool
    }

    fn redirects(&self) -> Redirects {
        self.0.redirects
    }

    fn connector(&self) -> &Connector {
        &self.0.connector
    }
}

impl Default for Client {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (idle, open) = self.0.pool.counts();
        f.debug_struct("Client").field("connections", &open).field("idle", &idle).finish_non_exhaustive()
    }
}

/// The settings of a [`Client`].
#[must_use = "a builder does nothing until it builds"]
pub struct ClientBuilder {
    limits: ClientLimits,
    resolver: Rc<dyn Resolve>,
    redirects: Redirects,
    #[cfg(feature = "tls")]
    tls: Option<ClientConfig>,
}

impl Default for ClientBuilder {
    fn default() -> Self {
        Self {
            limits: ClientLimits::default(),
            resolver: Rc::new(SystemResolver),
            redirects: Redirects { follows: true, allows_downgrade: false },
            #[cfg(feature = "tls")]
            tls: None,
        }
    }
}

impl ClientBuilder {
    /// What protects the client.
    pub fn limits(mut self, limits: ClientLimits) -> Self {
        self.limits = limits;
        self
    }

    /// How names of hosts are resolved: by the system, unless set.
    pub fn resolver(mut self, resolver: impl Resolve) -> Self {
        self.resolver = Rc::new(resolver);
        self
    }

    /// Whether redirects are followed; they are unless set, up to [`redirects_max`](ClientLimits::redirects_max). A client
    /// within a proxy passes them on instead.
    ///
    /// The fields `Authorization`, `Cookie` and `Proxy-Authorization` of a request are not sent to another origin. A
    /// response without `Location`, and one to a request whose body was a stream and would have to be sent again, is
    /// returned as it is.
    pub fn redirects(mut self, follows: bool) -> Self {
        self.redirects.follows = follows;
        self
    }

    /// Whether a redirect may lead from `https` to `http`: it may not, unless set.
    pub fn redirects_to_http(mut self, allows: bool) -> Self {
        self.redirects.allows_downgrade = allows;
        self
    }

    /// How servers of `https` are verified, and which certificate the client presents.
    #[cfg(feature = "tls")]
    pub fn tls(mut self, tls: ClientConfig) -> Self {
        self.tls = Some(tls);
        self
    }

    /// Makes the client.
    ///
    /// # Panics
    /// If the limits contradict each other: `head_bytes_max` stays below 64 KiB.
    #[must_use]
    pub fn build(self) -> Client {
        let connector = Connector {
            http1: Arc::new(Config::new(self.limits.http1())),
            resolver: self.resolver,
            #[cfg(feature = "tls")]
            tls: self.tls,
        };
        let (pool, redirects) = (Pool::new(&self.limits), self.redirects);
        Client(Rc::new(Shared { limits: self.limits, connector, pool, redirects }))
    }
}

impl fmt::Debug for ClientBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientBuilder").field("limits", &self.limits).finish_non_exhaustive()
    }
}
