//! `TcpForwarder`: passes connections on, as bytes, to upstreams.

use std::error::Error;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tidegate_codec::framing::Raw;
use tidegate_engine::{Channel, Client, ConnectError, Listener, ServedListener, task};
use tidegate_proxy_protocol::{Builder, Policy, ReceivesHeader, SendsHeader};
use tidegate_sys::Address;

use super::client_hello::UNRECOGNIZED_NAME;
use super::opening::{Opened, Opening};
use super::routes::Routes;
use super::tunnel::Tunnel;
use super::upstreams::{Lease, Upstreams};

/// Passes connections on to upstreams: TCP, by its first bytes or all alike, or TLS by its server name. Clones are the same forwarder.
///
/// Each direction receives only while the other side has room. The end of one direction is passed on, and the other goes on;
/// a connection that breaks resets the other one.
///
/// ```
/// use std::time::Duration;
///
/// use tidegate::l4::{Routes, TcpForwarder, TcpLimits, Upstreams};
/// use tidegate::{Listener, Server};
///
/// let upstreams = Upstreams::builder().server("tcp://127.0.0.1:5432".parse()?, 1).build();
/// let forwarder = TcpForwarder::new(Routes::to(&upstreams), TcpLimits::default());
/// let server = Server::new().loops(1).listener(forwarder.serve(Listener::bind("127.0.0.1:0")?)).run()?;
/// println!("forwards connections to {}", server.address());
/// server.drain(Duration::ZERO);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone)]
pub struct TcpForwarder(Arc<TcpState>);

/// Bounds of a connection. Each default protects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct TcpLimits {
    /// Until a ClientHello and a PROXY header are complete. 10 seconds. It stops clients that connect and send nothing.
    pub opening_timeout: Duration,
    /// The longest ClientHello in bytes, with the headers of its records. 16 KiB, several times those of browsers. It bounds
    /// the memory of a client that has no upstream yet.
    pub hello_bytes_max: u32,
    /// How long a connection may be without a byte in either direction. 1 hour. It ends those whose client is gone.
    pub idle_timeout: Duration,
}

/// Why a connection was not passed on.
#[derive(Debug)]
#[non_exhaustive]
pub enum ForwardError {
    /// No upstream is left that accepts connections. It has the error of the last one that was tried.
    Unavailable(Option<ConnectError>),
}

/// Numbers since the start of a forwarder of connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct TcpCounts {
    /// Connections that were passed on.
    pub forwarded: u64,
    /// TLS connections without a server name that has upstreams.
    pub unrecognized: u64,
    /// Connections for which no upstream was left.
    pub unavailable: u64,
    /// Attempts to connect to an upstream that failed.
    pub failed_attempts: u64,
}

#[derive(Debug)]
struct TcpState {
    plan: Mutex<Arc<Plan>>,
    policy: Arc<Policy>,
    forwarded: AtomicU64,
    unrecognized: AtomicU64,
    unavailable: AtomicU64,
    failed_attempts: AtomicU64,
}

#[derive(Debug)]
struct Plan {
    routes: Routes,
    limits: TcpLimits,
}

/// The addresses of a connection, as an upstream gets them.
struct Ends {
    source: Option<SocketAddr>,
    destination: Option<SocketAddr>,
}

impl TcpForwarder {
    /// A forwarder.
    #[must_use]
    pub fn new(routes: Routes, limits: TcpLimits) -> Self {
        Self::with_policy(routes, limits, Policy::off())
    }

    /// The same behind a proxy, whose headers name the clients.
    #[must_use]
    pub fn with_policy(routes: Routes, limits: TcpLimits, policy: Policy) -> Self {
        Self(Arc::new(TcpState {
            plan: Mutex::new(Arc::new(Plan { routes, limits })),
            policy: Arc::new(policy),
            forwarded: AtomicU64::new(0),
            unrecognized: AtomicU64::new(0),
            unavailable: AtomicU64::new(0),
            failed_attempts: AtomicU64::new(0),
        }))
    }

    /// New connections have these routes and limits; those that are there stay as they are.
    pub fn replace(&self, routes: Routes, limits: TcpLimits) {
        *self.0.plan.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(Plan { routes, limits });
    }

    /// Serves a listener.
    pub fn serve(&self, listener: Listener) -> ServedListener {
        let forwarder = self.clone();
        listener.serve_each(move |_| {
            let (codec, forward) = (forwarder.clone(), forwarder.clone());
            let codec = move |peer: &Address| codec.codec(peer.ip().map(|peer| peer.ip()));
            (codec, move |channel| forward.clone().forward(channel))
        })
    }

    /// The codec of a new connection of `peer`.
    #[must_use]
    pub fn codec(&self, peer: Option<IpAddr>) -> ReceivesHeader<Opening> {
        let plan = self.plan();
        let opening =
            if plan.routes.reads_hello() { Opening::hello(plan.limits.hello_bytes_max) } else { Opening::nothing() };
        ReceivesHeader::new(&self.0.policy, peer, opening.with_rules(plan.routes.by_first_bytes()))
    }

    /// Passes a connection on until both sides have ended.
    ///
    /// # Errors
    /// [`ForwardError`], an error of the opening, or a [`ChannelError`](tidegate_engine::ChannelError) if one of both
    /// connections breaks.
    pub async fn forward(self, mut near: Channel<ReceivesHeader<Opening>>) -> Result<(), Box<dyn Error>> {
        let plan = self.plan();
        let mut ends = Ends { source: near.peer()?.ip(), destination: near.local().ok().and_then(|local| local.ip()) };
        let mut opened = Opened { server_name: None, rule: None };
        if plan.routes.reads_opening() || !self.0.policy.trusted().is_empty() {
            near.set_deadline_after(plan.limits.opening_timeout);
            // A client that leaves at once has only checked whether the server listens.
            let Some(opening) = near.recv().await? else { return Ok(()) };
            near.set_deadline(None);
            opened = opening;
            if let Some(header) = near.with_codec(ReceivesHeader::take_header)? {
                ends.source = header.source().or(ends.source);
                ends.destination = header.destination().or(ends.destination);
            }
        }
        let Some(upstreams) = plan.routes.of(&opened) else {
            self.0.unrecognized.fetch_add(1, Relaxed);
            tracing::debug!(subsystem = "l4", name = opened.server_name.as_deref(), "no upstream has this server name");
            near.switch(|_| Raw)?.send(UNRECOGNIZED_NAME.to_vec().into())?;
            return Ok(());
        };
        match self.connect(upstreams, &ends).await {
            Ok(far) => {
                self.0.forwarded.fetch_add(1, Relaxed);
                Ok(Tunnel::new(near.switch(|_| Raw)?).join(far, plan.limits.idle_timeout).await?)
            }
            Err(error) => {
                self.0.unavailable.fetch_add(1, Relaxed);
                // An end in good order would look like an empty response.
                near.abort();
                Err(error.into())
            }
        }
    }

    /// Connects to one upstream after the other.
    async fn connect(&self, upstreams: &Upstreams, ends: &Ends) -> Result<Tunnel, ForwardError> {
        let (mut tried, mut last) = (Vec::new(), None);
        for _ in 0..=upstreams.0.limits.retries {
            let client = ends.source.map(|source| source.ip());
            let Some(lease) = upstreams.pick(client, &tried, task::now()) else { break };
            tried.push(lease.0.id);
            match connect_to(upstreams, &lease, ends).await {
                Ok(tunnel) => {
                    lease.0.health.on_success();
                    return Ok(tunnel.with(lease));
                }
                Err(error) => {
                    self.0.failed_attempts.fetch_add(1, Relaxed);
                    tracing::debug!(subsystem = "l4", upstream = %lease.0.address, %error, "upstream not connected");
                    upstreams.on_failure(&lease.0, task::now());
                    last = Some(error);
                }
            }
        }
        Err(ForwardError::Unavailable(last))
    }

    fn plan(&self) -> Arc<Plan> {
        self.0.plan.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The numbers so far.
    #[must_use]
    pub fn counts(&self) -> TcpCounts {
        TcpCounts {
            forwarded: self.0.forwarded.load(Relaxed),
            unrecognized: self.0.unrecognized.load(Relaxed),
            unavailable: self.0.unavailable.load(Relaxed),
            failed_attempts: self.0.failed_attempts.load(Relaxed),
        }
    }
}

async fn connect_to(upstreams: &Upstreams, lease: &Lease, ends: &Ends) -> Result<Tunnel, ConnectError> {
    let client = Client::at(lease.0.address).connect_timeout(upstreams.0.limits.connect_timeout);
    if upstreams.0.sends_proxy_header {
        return client.connect(SendsHeader::new(header(ends), Raw)).await.map(Tunnel::new);
    }
    client.connect(Raw).await.map(Tunnel::new)
}

/// The PROXY header for a connection; without addresses if the client has none of IP.
fn header(ends: &Ends) -> Vec<u8> {
    let unspecified = || Builder::unspecified().build_v2().unwrap_or_default();
    let (Some(source), Some(destination)) = (ends.source, ends.destination) else { return unspecified() };
    Builder::new(source, destination).build_v2().unwrap_or_else(|_| unspecified())
}

impl Default for TcpLimits {
    fn default() -> Self {
        Self {
            opening_timeout: Duration::from_secs(10),
            hello_bytes_max: 16 * 1024,
            idle_timeout: Duration::from_secs(3_600),
        }
    }
}

impl fmt::Display for ForwardError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unavailable(Some(error)) => write!(f, "no upstream accepts connections: {error}"),
            Self::Unavailable(None) => f.write_str("no upstream is available"),
        }
    }
}

impl Error for ForwardError {}
