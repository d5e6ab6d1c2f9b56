//! A reverse proxy: requests are passed on to upstreams, and their responses back.
//!
//! A [`Proxy`] is a function of a [`Router`](tidegate_http::Router) like any other, so hosts and paths are those of the
//! router, and middleware sees the requests. [`Upstreams`] is the state that loops share: which upstreams there are,
//! how they do, and limits.
//!
//! ```no_run
//! use tidegate::http::proxy::{Proxy, Upstreams};
//! use tidegate::http::{Router, Server};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let upstreams = Upstreams::new(["http://10.0.0.1:8080", "http://10.0.0.2:8080"])?;
//! let router = move || Router::new().fallback(Proxy::new(&upstreams));
//! Server::bind("0.0.0.0:80")?.start(router)?.wait();
//! # Ok(())
//! # }
//! ```
//!
//! **Only understood requests are passed on.** A request is decoded, and encoded anew by the codec: no byte of its
//! framing reaches an upstream. Fields of one connection stay behind (RFC 9110 §7.6.1), a client's claims about itself
//! are dropped unless the client is trusted, and a path with a dot segment is refused.
//!
//! **Bodies are never kept.** A piece is received when those before it have room at the other side, in both directions at
//! the same time. If the client leaves, the exchange with the upstream is reset. If the upstream fails within a response,
//! the client sees that the response is not complete.
//!
//! | response | when |
//! |---|---|
//! | 400 | the path has a dot segment, or the request cannot be passed on |
//! | 405 | TRACE; CONNECT, unless it is [passed on](Proxy::pass_connect) |
//! | 413 | the body is longer than [`request_body_bytes_max`](Proxy::request_body_bytes_max) |
//! | 429 | more requests than a [`RateLimit`] allows, or too many that the client has cancelled before |
//! | 501 | an HTTP/2 extended CONNECT for another protocol than WebSocket |
//! | 502 | the upstream cannot be reached, fails before the head of its response, or speaks HTTP/2 without that upgrade |
//! | 503 | no upstream is available, or each has as many requests as it may |
//! | 504 | connecting, or the head of the response, takes too long |
//! | 508 | the request has come back to this proxy |
//!
//! Read next: `forward.rs`, the way of a request; `upstreams.rs`, the state that loops share; `fields.rs`, the
//! forwarded fields.
//!
//! # Files
//!
//! | file | holds |
//! |---|---|
//! | `forward.rs` | the way of one request, to an upstream or to another one, and back |
//! | `upstream_response.rs` | `UpstreamResponse`: from the response of an upstream to that to the client, or to a tunnel |
//! | `head_wait.rs` | `HeadWait`: the wait for the head of a response, while the body of the request is sent |
//! | `attempt_span.rs` | `AttemptSpan`: a span of `tracing` for an attempt, whose request has a span |
//! | `attempts.rs` | where one request has been tried, and whether it may be tried again |
//! | `waiting.rs` | the requests that wait until an upstream has room |
//! | `shares.rs` | the requests that an upstream has in progress for each client address |
//! | `counts.rs` | the attempts, responses, failures and times of an upstream; how often its failures are logged |
//! | `loop_values.rs` | `LoopValues`: state that all proxies of a loop share, also after a reload |
//! | `loop_counts.rs` | `LoopCounts`, `CountedList`: how many connections the pools of all loops have |
//! | `metrics.rs` | snapshots of the upstreams of a set, and their text for Prometheus |
//! | `upload.rs` | the body of a request on its way |
//! | `download.rs` | a response on its way, with the rest of the request |
//! | `request_head.rs` | `ForwardPlan`: the request for an upstream: target, host, fields; which requests are refused |
//! | `dot_segments.rs` | paths in which two servers read two paths |
//! | `fields.rs` | which fields are for the next hop, after edits |
//! | `forwarded.rs` | `Forwarding`: fields about the client; `Via`, and how a loop is found |
//! | `options.rs` | the settings of a route |
//! | `upstreams.rs` | `Upstreams`: the state that loops share; `UpstreamLimits` |
//! | `url.rs` | `UpstreamUrl` |
//! | `websocket.rs` | `Handshake`: a WebSocket or a tunnel of capsules between versions; the part of a WebSocket handshake that HTTP/1.1 alone has |
//! | `check.rs` | `HealthCheck` |
//! | `maintenance.rs` | `Maintenance`: the upkeep of upstreams, which are checked and resolved again |
//! | `names.rs` | the names of upstreams, each resolved by itself |
//! | `server_list.rs` | `ServerList`: the URLs of a set and their addresses, which change |
//! | `handle.rs` | `UpstreamsHandle`: changes the servers of a set |
//! | `first_lookups.rs` | the first addresses of a set, before a loop runs |
//! | `retry.rs` | `Retries`, and their budget |
//! | `cancellations.rs` | `Cancellations`: the budget of each client for requests that it cancels |
//! | `mirror.rs` | `Mirror`: copies of requests for other upstreams |
//! | `copies.rs` | the way of a request's copy |
//! | `rewrite.rs` | `Rewrite`: another path for the upstream |
//! | `sticky.rs` | `StickyCookie`: a client stays with one upstream |
//! | `lease.rs` | a request that an upstream has in progress |
//! | `connection.rs` | `Connection`: a connection to an upstream without its type; `connect` makes one |
//! | `pipeline.rs` | `Pipeline`: a connection with several requests of one client in progress |
//! | `session.rs` | a stream of an HTTP/2 connection, as the connection of one exchange |
//! | `pool.rs` | the idle connections of a loop, and its HTTP/2 connections |
//! | `upstreams_error.rs` | why a set of upstreams cannot be used |
//! | `error.rs` | why an upstream did not answer, and the response to the client |

#![forbid(unsafe_code)]

mod attempt_span;
mod attempts;
mod cancellations;
mod check;
mod connection;
mod copies;
mod counts;
mod dot_segments;
mod download;
mod error;
mod fields;
mod first_lookups;
mod forward;
mod forwarded;
mod handle;
mod head_wait;
mod lease;
mod loop_counts;
mod loop_values;
mod maintenance;
mod metrics;
mod mirror;
mod names;
mod options;
mod pipeline;
mod pool;
mod request_head;
mod retry;
mod rewrite;
mod server_list;
mod session;
mod shares;
mod sticky;
mod upload;
mod upstream_response;
mod upstreams;
mod upstreams_error;
mod url;
mod waiting;
mod websocket;

use std::fmt;
use std::rc::Rc;
use std::time::Duration;

use tidegate_http::{BoxResponseFuture, Endpoint, RequestFunction, gateway};

pub use self::check::HealthCheck;
use self::copies::CopyUpstreams;
use self::forward::LoopUpstreams;
pub use self::forwarded::Forwarding;
use self::forwarded::Pseudonym;
pub use self::handle::UpstreamsHandle;
pub use self::maintenance::Maintenance;
use self::mirror::LoopMirror;
pub use self::mirror::Mirror;
pub use self::options::HashKey;
use self::options::{HostRule, Options};
pub use self::retry::Retries;
pub use self::rewrite::{InvalidRewrite, Rewrite};
pub use self::sticky::StickyCookie;
pub use self::upstreams::{UpstreamLimits, Upstreams, UpstreamsBuilder, WEIGHT_MAX};
pub use self::upstreams_error::UpstreamsError;
pub use self::url::{InvalidUrl, UpstreamUrl};
#[doc(inline)]
pub use tidegate_http::{Edit, RateLimit};
#[cfg(feature = "http3")]
pub use tidegate_http_upstream::{Http3Config, UdpSockets};
pub use tidegate_l4::{Balance, Ejection};

/// Passes requests on to upstreams: a function for a [`Router`](tidegate_http::Router).
///
/// It belongs to one loop, as its router does. All proxies of the same [`Upstreams`] that are made on that loop share its idle
/// connections, also those that a [reload](tidegate_http::Reload) makes, and may have other settings: for several routes. Where
/// no loop runs, only clones do.
///
/// ```
/// use tidegate::http::Router;
/// use tidegate::http::proxy::{Edit, Proxy, Upstreams};
///
/// let upstreams = Upstreams::new(["http://10.0.0.1:8080"])?;
/// let proxy = Proxy::new(&upstreams).edit_response(Edit::remove("X-Powered-By"));
/// let router = Router::new()
///     .nest("/api", Router::new().fallback(proxy.clone().strip_prefix("/api")))
///     .fallback(proxy);
/// # drop(router);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
#[must_use = "a proxy does nothing until it is a function of a router"]
pub struct Proxy {
    upstreams: Rc<LoopUpstreams>,
    options: Options,
}

impl Proxy {
    /// A proxy of these upstreams, with the default settings.
    pub fn new(upstreams: &Upstreams) -> Self {
        Self { upstreams: LoopUpstreams::of_loop(&upstreams.0), options: Options::default() }
    }

    /// Which fields about the client upstreams get.
    pub fn forwarding(mut self, forwarding: Forwarding) -> Self {
        self.options.forwarding = forwarding;
        self
    }

    /// The name of this proxy in `Via`: a random one of the process unless set. A request that has it already comes back
    /// to the proxy, and is refused with 508.
    ///
    /// # Panics
    /// If the name is no token.
    pub fn via(mut self, name: &str) -> Self {
        self.options.pseudonym = Pseudonym::named(name).expect("a name in `Via` is a token");
        self
    }

    /// Upstreams get their own host, that of their URL, in the place of the host that the client has named.
    pub fn host_of_upstream(mut self) -> Self {
        self.options.host = HostRule::OfUpstream;
        self
    }

    /// Upstreams get this host.
    pub fn host(mut self, host: &str) -> Self {
        self.options.host = HostRule::Fixed(host.to_owned());
        self
    }

    /// Removes a prefix from paths; a path without it gets a 404. A prefix is whole segments, such as `/api`.
    ///
    /// # Panics
    /// If the prefix does not begin with a slash, or ends with one.
    pub fn strip_prefix(mut self, prefix: &str) -> Self {
        assert!(prefix.starts_with('/') && !prefix.ends_with('/'), "a prefix begins with a slash and ends without one");
        self.options.strip_prefix = Some(prefix.to_owned());
        self
    }

    /// Changes the path that upstreams get, after [`strip_prefix`](Self::strip_prefix) and earlier rewrites. A path that is
    /// none then gets a 400.
    pub fn rewrite(mut self, rewrite: Rewrite) -> Self {
        self.options.rewrites.push(rewrite);
        self
    }

    /// Keeps a client at the upstream that has answered it first, as long as that one is available and has room, whichever
    /// [`Balance`] there is. Then the client gets another one, and its cookie.
    pub fn sticky(mut self, cookie: StickyCookie) -> Self {
        self.options.sticky = Some(cookie);
        self
    }

    /// Sends copies of a share of the requests to other upstreams, with the same changes, and drops their responses.
    pub fn mirror(mut self, mirror: Mirror) -> Self {
        self.options.mirror = Some(mirror);
        self
    }

    /// The longest body of a request, in bytes: a longer one gets a 413. One whose length is not known before is passed on
    /// as far as that.
    pub fn request_body_bytes_max(mut self, bytes_max: u64) -> Self {
        self.options.request_body_bytes_max = bytes_max;
        self
    }

    /// How long a GET, HEAD, DELETE or OPTIONS on a stream whose end does not come with its head waits for its first byte or its
    /// end: 250 ms unless set. One that ends without a byte goes to an HTTP/1.1 upstream without `Transfer-Encoding`.
    pub fn end_wait(mut self, wait: Duration) -> Self {
        self.options.end_wait = wait;
        self
    }

    /// Changes the fields of requests.
    ///
    /// # Panics
    /// If the value has parts of a response: [`Edit::needs_response`].
    pub fn edit_request(mut self, edit: Edit) -> Self {
        assert!(!edit.needs_response(), "`{}` of a request has no part of its response", edit.name());
        self.options.request_edits.push(edit);
        self
    }

    /// Changes the fields of responses.
    pub fn edit_response(mut self, edit: Edit) -> Self {
        self.options.response_edits.push(edit);
        self
    }

    /// The key that decides which upstream gets a request, with [`Balance::ConsistentHash`].
    pub fn hash_key(mut self, key: HashKey) -> Self {
        self.options.hash_key = key;
        self
    }

    /// The protocols that requests may switch to, in the place of `websocket` alone. A protocol whose bytes are requests,
    /// such as `h2c`, would pass all rules of the proxy.
    ///
    /// `websocket`, `connect-udp` (RFC 9298) and `connect-ip` (RFC 9484) are passed on between all versions: as an HTTP/1.1
    /// upgrade, or an extended CONNECT over HTTP/2 and HTTP/3. The last two are tunnels of capsules. Their datagrams are those of
    /// QUIC on each side that accepts them ([`Config::http_datagrams`](tidegate_http::Config::http_datagrams),
    /// [`Http3Config::datagrams`]), and capsules elsewhere. Other protocols are for HTTP/1.1 on both sides. [`UpstreamLimits::tunnel_idle_timeout`] bounds all tunnels.
    pub fn upgrades<'a>(mut self, protocols: impl IntoIterator<Item = &'a str>) -> Self {
        self.options.upgrades = protocols.into_iter().map(str::to_owned).collect();
        self
    }

    /// Passes CONNECT on, and tunnels the bytes behind it; it gets a 405 unless set. Which targets are allowed is up to
    /// the upstream.
    pub fn pass_connect(mut self) -> Self {
        self.options.connect = true;
        self
    }

    /// Bounds the requests of each client for this proxy, which costs less than a [`RateLimit`] as middleware.
    pub fn rate_limit(mut self, limit: &RateLimit) -> Self {
        self.options.rate = Some(limit.clone());
        self
    }

    /// How long the head of a response may take from the end of its request, in the place of
    /// [`UpstreamLimits::response_timeout`]; at most that one counts.
    pub fn response_timeout(mut self, timeout: Duration) -> Self {
        self.options.response_timeout = Some(timeout);
        self
    }

    /// The function. It has no type parameter: so the way of a request is compiled once, in this crate, and not in each crate
    /// that has a router with a proxy.
    #[inline(never)]
    fn endpoint(self) -> Endpoint {
        let Self { upstreams, options } = self;
        let mirror = options.mirror.clone().map(|mirror| {
            let sender = CopyUpstreams::new(&mirror, &options);
            Rc::new(LoopMirror::new(mirror, sender))
        });
        let options = Rc::new(options);
        let needs_destination = upstreams.sends_proxy_header();
        let settings = options.clone();
        let call = move |request, interims| -> BoxResponseFuture {
            let (upstreams, options, mirror) = (upstreams.clone(), options.clone(), mirror.clone());
            Box::pin(async move { upstreams.forward(request, (&options, mirror.as_ref()), interims).await })
        };
        let endpoint = gateway::endpoint(call, needs_destination);
        let trusting = (!settings.forwarding.trusted.is_empty()).then(|| settings.clone());
        let trusts = trusting
            .map(|options| -> Rc<gateway::TrustTest> { Rc::new(move |request| options.forwarding.trusts(request)) });
        gateway::with_chosen_fields(endpoint, move |name| settings.chooses_field(name), trusts)
    }
}

/// Marks a [`Proxy`] as a function.
#[derive(Debug)]
pub struct ProxyFunction;

impl<S> RequestFunction<S, ProxyFunction> for Proxy {
    fn into_endpoint(self, _: Rc<S>) -> Endpoint {
        self.endpoint()
    }
}

impl fmt::Debug for Proxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Proxy").field("options", &self.options).finish_non_exhaustive()
    }
}

/// A request as the codec yields it, of the client 192.0.2.1 for the host `sea`.
#[cfg(test)]
fn test_request(method: &str, target: &str, lines: &str) -> tidegate_http::Request {
    use std::time::{Instant, SystemTime};

    use tidegate_buffer::{Outbound, Pool};
    use tidegate_codec::{Codec, Input, Output, Step, Time};

    let (pool, time) = (Pool::new(), Time::new(Instant::now(), SystemTime::UNIX_EPOCH));
    let (mut input, mut queue) = (Input::new(), Outbound::new(&pool));
    input.append(pool.copy(format!("{method} {target} HTTP/1.1\r\nHost: sea\r\n{lines}\r\n").as_bytes()), &pool);
    let mut server = tidegate_http1::Server::default();
    match server.decode(&mut input, &mut Output::new(&mut queue, &pool, &time)) {
        Ok(Step::Message(tidegate_http1::Incoming::Head(head))) => {
            let peer = std::net::SocketAddr::from(([192, 0, 2, 1], 50_000));
            gateway::request(head.detach(), peer.into())
        }
        other => panic!("{other:?}"),
    }
}
