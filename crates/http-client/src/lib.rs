//! An HTTP client: requests to any origin, over connections that it keeps in a pool.
//!
//! | to | use |
//! |---|---|
//! | send requests | [`Client`], [`RequestBuilder`] |
//! | read responses | [`Response`], [`Body`](tidegate_http_message::Body) |
//! | set limits, TLS, proxies, cookies | [`ClientBuilder`], [`ClientLimits`] |
//! | resolve names in another way | [`Resolve`] |
//! | open a WebSocket, and open it again, by the feature `websocket` | `WebSocketBuilder`, `Reconnect` |
//!
//! Read next: `send.rs`, the way from a request to its response. Connections, and the exchanges on them, are those of
//! `tidegate-http-upstream`.
//!
//! # Files
//!
//! | file | holds |
//! |---|---|
//! | `alt_svc.rs` | `Alternatives`: the origins that are known to speak HTTP/3 |
//! | `https_records.rs` | `HttpsRecords`: the endpoints of origins by HTTPS records |
//! | `core.rs` | `ClientCore`: the settings, the connector and the pool that the clones of a client share |
//! | `limits.rs` | `ClientLimits`, from the pool to the body |
//! | `error.rs` | `ClientError` |
//! | `request.rs` | `RequestBuilder` |
//! | `response.rs` | `Response` |
//! | `send.rs` | the way from a request to its response: connection, head, body, retries, redirects |
//! | `uri.rs` | the origin, the target and the credentials of a URI |
//! | `proxy.rs` | `Proxy`, `Proxies`: which proxy a request goes through |
//! | `redirect.rs` | which request follows a response |
//! | `websocket.rs` | `WebSocketBuilder`: opens a WebSocket |
//! | `reconnect.rs` | `Reconnect`: opens one again, with jitter |
//! | `reference.rs` | the URI of a redirect |
//! | `cookies.rs` | `CookieStore` |
//! | `handle/` | `Handle`: the client for other threads; bodies on their way there (`pipe.rs`) |

#![forbid(unsafe_code)]

mod alt_svc;
#[cfg(feature = "cookies")]
mod cookies;
mod core;
mod error;
mod handle;
mod https_records;
mod limits;
mod proxy;
#[cfg(feature = "websocket")]
mod reconnect;
mod redirect;
mod reference;
mod request;
mod response;
mod send;
mod uri;
#[cfg(feature = "websocket")]
mod websocket;

use std::fmt;
use std::rc::Rc;

use http::{Method, Uri};
#[cfg(feature = "compress")]
use tidegate_compress::DecompressionLimits;
pub use tidegate_engine::{DefaultResolver, Resolve, Resolving, SystemResolver};
use tidegate_http_upstream::{Connector, ConnectorConfig, Pool};
#[cfg(feature = "http3")]
pub use tidegate_http_upstream::{Http3Config, UdpSockets};
use tidegate_http1::client::Config;
#[cfg(feature = "tls")]
use tidegate_tls::ClientConfig;

#[cfg(feature = "cookies")]
pub use self::cookies::CookieStore;
use self::core::{ClientCore, Redirects};
pub use self::error::{ClientError, Phase, ProxyError, RefusedRedirect};
pub use self::handle::{Handle, HandleBody, HandleError, HandleRequestBuilder, HandleResponse};
use self::https_records::HttpsRecords;
pub use self::limits::ClientLimits;
pub use self::proxy::{Proxies, Proxy};
#[cfg(feature = "websocket")]
pub use self::reconnect::Reconnect;
pub use self::request::RequestBuilder;
pub use self::response::Response;
#[cfg(feature = "websocket")]
pub use self::websocket::{WebSocketBuilder, WebSocketChannel};

/// An HTTP client on one loop. Clones share their connections.
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
pub struct Client(Rc<ClientCore>);

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
        RequestBuilder::new(self.0.clone(), method, uri.as_ref())
    }

    /// The same with a URI that is parsed already.
    pub fn request_to(&self, method: Method, uri: Uri) -> RequestBuilder {
        RequestBuilder::of_uri(self.0.clone(), method, Ok(uri))
    }

    /// A WebSocket. The URI has the scheme `ws` or `wss`, and a host.
    #[cfg(feature = "websocket")]
    pub fn websocket(&self, uri: impl AsRef<str>) -> WebSocketBuilder {
        WebSocketBuilder::new(self.0.clone(), uri.as_ref())
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
    proxies: Proxies,
    redirects: Redirects,
    #[cfg(feature = "cookies")]
    cookies: Option<CookieStore>,
    #[cfg(feature = "compress")]
    decompression: Option<DecompressionLimits>,
    http2: bool,
    has_prior_knowledge: bool,
    #[cfg(feature = "http3")]
    http3: Option<Http3Config>,
    #[cfg(feature = "http3")]
    is_http3_known: bool,
    https_records: bool,
    #[cfg(feature = "tls")]
    tls: Option<ClientConfig>,
}

impl Default for ClientBuilder {
    fn default() -> Self {
        Self {
            limits: ClientLimits::default(),
            resolver: Rc::new(DefaultResolver),
            proxies: Proxies::none(),
            redirects: Redirects { follows: true, allows_downgrade: false },
            #[cfg(feature = "cookies")]
            cookies: None,
            #[cfg(feature = "compress")]
            decompression: None,
            http2: true,
            has_prior_knowledge: false,
            #[cfg(feature = "http3")]
            http3: None,
            #[cfg(feature = "http3")]
            is_http3_known: false,
            https_records: true,
            #[cfg(feature = "tls")]
            tls: None,
        }
    }
}

impl ClientBuilder {
    /// The limits that protect the client.
    pub fn limits(mut self, limits: ClientLimits) -> Self {
        self.limits = limits;
        self
    }

    /// How names of hosts are resolved: by the [`DefaultResolver`], unless set.
    pub fn resolver(mut self, resolver: impl Resolve) -> Self {
        self.resolver = Rc::new(resolver);
        self
    }

    /// Through which proxies requests go: none, unless set. [`Proxies::from_environment`] reads the usual variables.
    pub fn proxies(mut self, proxies: Proxies) -> Self {
        self.proxies = proxies;
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

    /// Keeps the cookies of responses, and sends them back. Without it the client knows no cookies.
    #[cfg(feature = "cookies")]
    pub fn cookies(mut self, cookies: CookieStore) -> Self {
        self.cookies = Some(cookies);
        self
    }

    /// Requests compressed responses, and decompresses their bodies. The limits stop bombs, small bodies that become large:
    /// such a body ends with [`BodyError::TooLong`](tidegate_http_message::BodyError::TooLong). A request that has `Accept-Encoding`
    /// itself keeps it. A response whose body is decompressed has no `Content-Encoding` and no `Content-Length`. Without this
    /// the caller sees bodies as they are sent.
    #[cfg(feature = "compress")]
    pub fn decompression(mut self, limits: DecompressionLimits) -> Self {
        self.decompression = Some(limits);
        self
    }

    /// Whether connections of `https` offer HTTP/2 to their servers (ALPN); they do, unless set. A server that does not
    /// agree speaks HTTP/1.1. All requests to an HTTP/2 origin share one connection.
    ///
    /// A request that [upgrades](RequestBuilder::upgrade) its connection, and one through a proxy that forwards it, goes by
    /// HTTP/1.1 in any case.
    pub fn http2(mut self, offers: bool) -> Self {
        self.http2 = offers;
        self
    }

    /// Whether servers of `http` are known to speak HTTP/2 (RFC 9113 §3.3); they are not, unless set. A server that does not
    /// speak it fails every request then.
    pub fn http2_prior_knowledge(mut self, is_known: bool) -> Self {
        self.has_prior_knowledge = is_known;
        self
    }

    /// Sends requests of `https` by HTTP/3 alone, which the servers are known to speak; by TCP, unless set. A request to a
    /// server that does not speak it fails.
    ///
    /// A request that [upgrades](RequestBuilder::upgrade) its connection, and one through a proxy, goes by TCP in any case. The
    /// limits of heads, bodies and idle connections are those of the client.
    ///
    /// ```no_run
    /// use tidegate::http::Client;
    /// use tidegate::http::client::Http3Config;
    /// use tidegate::tls::{ClientConfig, Provider};
    /// use tidegate::{Backend, EventLoop};
    ///
    /// let tls = ClientConfig::builder_with_root_file(&Provider::aws_lc_rs(), "ca.pem".as_ref())?.build()?;
    /// EventLoop::on(Backend::Auto)?.block_on(async move {
    ///     let client = Client::builder().tls(tls).http3_prior_knowledge(Http3Config::default()).build();
    ///     println!("{}", client.get("https://sea.example/").send().await?.text().await?);
    ///     Ok::<(), Box<dyn std::error::Error>>(())
    /// })??;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[cfg(feature = "http3")]
    pub fn http3_prior_knowledge(mut self, config: Http3Config) -> Self {
        (self.http3, self.is_http3_known) = (Some(config), true);
        self
    }

    /// Uses HTTP/3 where servers say in `Alt-Svc` that they have it (RFC 7838), at the host of the request. QUIC then races
    /// TCP with a head start of 250 milliseconds ([`ClientLimits::http3_head_start`]). Where TCP wins, UDP is probably blocked: QUIC rests for 5 minutes, and twice as
    /// long after each further loss, up to 5 hours. A connection that ends before its first response, or does not bring it in
    /// time, is a loss as well; an idempotent request that was on it is sent again by TCP. A server that answers 421 there has
    /// the request by TCP once more (RFC 7838 §6).
    #[cfg(feature = "http3")]
    pub fn http3(mut self, config: Http3Config) -> Self {
        (self.http3, self.is_http3_known) = (Some(config), false);
        self
    }

    /// Whether a client with `http3` asks for the HTTPS records of `https` origins (RFC 9460), as far as its
    /// resolver has such records, such as `tidegate::dns::HostResolver`; yes unless set. The first request to an origin waits for
    /// them for [`ClientLimits::https_records_wait`] at most. With a record that has `h3`, QUIC begins at once; connections go to the host and the
    /// port that it names, aliases included, and always have the certificate of the origin. Where those cannot be reached,
    /// connections go to the origin itself. A record does not change `http` to `https`.
    pub fn https_records(mut self, asks: bool) -> Self {
        self.https_records = asks;
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
    /// If the limits contradict each other: `head_bytes_max` stays below 64 KiB, and `ping_interval` above zero.
    #[must_use]
    pub fn build(self) -> Client {
        let limits = self.limits;
        let offers = self.http2 || self.has_prior_knowledge;
        #[cfg_attr(not(feature = "http3"), expect(unused_mut, reason = "only HTTP/3 is added later"))]
        let mut connector = Connector::new(ConnectorConfig {
            http1: Config::new(limits.http1()),
            streams: limits.http1(),
            http2: offers.then(|| limits.http2()),
            offers_http2: self.http2,
            resets: [limits.resets_max, limits.resets_per_second],
            limits: limits.connect(),
            #[cfg(feature = "tls")]
            tls: self.tls,
        });
        #[cfg(not(feature = "http3"))]
        let is_http3 = false;
        #[cfg(feature = "http3")]
        let is_http3 = self.is_http3_known;
        #[cfg(feature = "http3")]
        if let Some(config) = self.http3 {
            // Requests report a configuration that cannot be used.
            let _ = connector.set_http3(limits.http3(config));
        }
        Client(Rc::new(ClientCore {
            is_http3,
            alternatives: (connector.has_http3() && !is_http3).then(alt_svc::Alternatives::default),
            https_records: (connector.has_http3() && !is_http3 && self.https_records).then(HttpsRecords::default),
            pool: Pool::new(limits.pool()),
            limits,
            connector,
            resolver: self.resolver,
            proxies: self.proxies,
            has_prior_knowledge: self.has_prior_knowledge,
            redirects: self.redirects,
            #[cfg(feature = "cookies")]
            cookies: self.cookies,
            #[cfg(feature = "compress")]
            decompression: self.decompression,
        }))
    }
}

impl fmt::Debug for ClientBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientBuilder").field("limits", &self.limits).finish_non_exhaustive()
    }
}
