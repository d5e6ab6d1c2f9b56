//! `Resolve`: from the name of a host to its addresses; the resolver of the system, and the default of the process.

use std::fmt;
use std::future::{Future, ready};
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use super::resolve::resolve;

/// Resolves the names of hosts.
///
/// ```
/// use std::net::SocketAddr;
///
/// use tidegate::Client;
/// use tidegate::engine::{Resolve, Resolving};
///
/// /// Knows one host.
/// struct Fixed(SocketAddr);
///
/// impl Resolve for Fixed {
///     fn resolve(&self, _: &str, _: u16) -> Resolving {
///         let address = self.0;
///         Box::pin(async move { Ok(vec![address]) })
///     }
/// }
///
/// let client = Client::to("sea.example:80")?.resolver(Fixed(([127, 0, 0, 1], 8080).into()));
/// # drop(client);
/// # Ok::<(), tidegate::ConnectError>(())
/// ```
pub trait Resolve: 'static {
    /// The addresses of a host, in the order in which to try them. An IP address in the place of a name is not asked for.
    ///
    /// The caller bounds how long it may take: it drops the future then.
    fn resolve(&self, host: &str, port: u16) -> Resolving;

    /// All servers of a host, and how long they hold: for a caller that keeps them and asks again. Without an error and
    /// without servers, the host has none.
    ///
    /// The default has the addresses of [`resolve`](Self::resolve), of equal weight, for an unknown time.
    fn resolve_servers(&self, host: &str, port: u16) -> ResolvingServers {
        let resolving = self.resolve(host, port);
        Box::pin(async move {
            let servers = resolving.await?.into_iter().map(ResolvedServer::from).collect();
            Ok(ResolvedServers { servers, ..ResolvedServers::default() })
        })
    }

    /// The servers of a service, such as `_http._tcp.sea.example`, with the ports, priorities and weights of its SRV
    /// records (RFC 2782). A resolver without SRV records fails with [`io::ErrorKind::Unsupported`], as the default does.
    fn resolve_service(&self, service: &str) -> ResolvingServers {
        let text =
            format!("`{service}` is a service, and this resolver has no SRV records: use that of `tidegate::dns`");
        Box::pin(ready(Err(io::Error::new(io::ErrorKind::Unsupported, text))))
    }

    /// The endpoints of an `https` origin by its HTTPS records (RFC 9460). A resolver without such records has none, as the
    /// default does.
    fn resolve_https(&self, _host: &str, _port: u16) -> ResolvingHttps {
        Box::pin(ready(Ok(HttpsEndpoints::default())))
    }
}

/// The future of [`Resolve::resolve`].
pub type Resolving = Pin<Box<dyn Future<Output = io::Result<Vec<SocketAddr>>>>>;

/// The future of [`Resolve::resolve_servers`] and [`Resolve::resolve_service`].
pub type ResolvingServers = Pin<Box<dyn Future<Output = io::Result<ResolvedServers>>>>;

/// The future of [`Resolve::resolve_https`].
pub type ResolvingHttps = Pin<Box<dyn Future<Output = io::Result<HttpsEndpoints>>>>;

/// The endpoints of an `https` origin.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct HttpsEndpoints {
    /// In the order of preference; none if the origin has no record.
    pub endpoints: Vec<HttpsEndpoint>,
    /// How long they hold, if that is known: the shortest TTL of the records.
    pub ttl: Option<Duration>,
}

/// An endpoint at which an `https` origin is served, with the certificate of the origin.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct HttpsEndpoint {
    /// The host whose addresses it has.
    pub host: Box<str>,
    /// Its port, TCP and UDP.
    pub port: u16,
    /// Its protocols by their ALPN names, such as `h3`; empty if they are not known.
    pub alpn: Vec<Box<[u8]>>,
}

/// The servers of a name.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ResolvedServers {
    /// In any order.
    pub servers: Vec<ResolvedServer>,
    /// How long they hold, if that is known: the shortest TTL of the records.
    pub ttl: Option<Duration>,
    /// Whether a part of the lookup failed, such as that of one family, or of one target of a service: a caller keeps the
    /// servers that it has of that part.
    pub is_partial: bool,
}

/// One server of a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ResolvedServer {
    /// Its address.
    pub address: SocketAddr,
    /// Servers of a lower number come first; 0 without SRV records.
    pub priority: u16,
    /// The share among those of one priority; 1 without SRV records. Of weight 0 is a server that gets as good as nothing.
    pub weight: u16,
}

impl From<SocketAddr> for ResolvedServer {
    fn from(address: SocketAddr) -> Self {
        Self { address, priority: 0, weight: 1 }
    }
}

/// The system's resolver, on a thread for blocking work. The families of the addresses take turns (RFC 8305 §4).
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemResolver;

impl Resolve for SystemResolver {
    fn resolve(&self, host: &str, port: u16) -> Resolving {
        let resolving = resolve(host, port);
        Box::pin(async move { resolving.await.unwrap_or_else(|error| Err(io::Error::other(error))) })
    }
}

/// The resolver that [`set_default_resolver`] has set; the system's, until then.
#[derive(Debug, Clone, Copy, Default)]
pub struct DefaultResolver;

impl Resolve for DefaultResolver {
    fn resolve(&self, host: &str, port: u16) -> Resolving {
        match default_resolver() {
            Some(resolver) => resolver.resolve(host, port),
            None => SystemResolver.resolve(host, port),
        }
    }

    fn resolve_servers(&self, host: &str, port: u16) -> ResolvingServers {
        match default_resolver() {
            Some(resolver) => resolver.resolve_servers(host, port),
            None => SystemResolver.resolve_servers(host, port),
        }
    }

    fn resolve_service(&self, service: &str) -> ResolvingServers {
        match default_resolver() {
            Some(resolver) => resolver.resolve_service(service),
            None => SystemResolver.resolve_service(service),
        }
    }

    fn resolve_https(&self, host: &str, port: u16) -> ResolvingHttps {
        match default_resolver() {
            Some(resolver) => resolver.resolve_https(host, port),
            None => SystemResolver.resolve_https(host, port),
        }
    }
}

/// Sets the resolver of all clients and upstreams of this process that have none of their own; `None` is the system's.
/// Lookups in progress keep theirs. A program calls it once, as it starts.
pub fn set_default_resolver(resolver: Option<NameResolver>) {
    let of_caller = resolver.and_then(|resolver| resolver.0);
    *DEFAULT.write().unwrap_or_else(PoisonError::into_inner) = of_caller;
}

fn default_resolver() -> Option<Arc<SharedResolver>> {
    DEFAULT.read().unwrap_or_else(PoisonError::into_inner).clone()
}

type SharedResolver = dyn Resolve + Send + Sync;

static DEFAULT: RwLock<Option<Arc<SharedResolver>>> = RwLock::new(None);

/// A resolver without its type, for all loops: one of the caller's, or the [`DefaultResolver`].
#[derive(Clone, Default)]
pub struct NameResolver(Option<Arc<SharedResolver>>);

impl NameResolver {
    /// This resolver.
    #[must_use]
    pub fn new(resolver: impl Resolve + Send + Sync) -> Self {
        Self(Some(Arc::new(resolver)))
    }

    /// Whether it is the default of the process.
    #[must_use]
    pub fn is_default(&self) -> bool {
        self.0.is_none()
    }

    /// Whether names are resolved by the system, as far as is known.
    #[must_use]
    pub fn is_of_system(&self) -> bool {
        self.0.is_none() && default_resolver().is_none()
    }

    fn as_dyn(&self) -> &dyn Resolve {
        match &self.0 {
            Some(resolver) => &**resolver,
            None => &DefaultResolver,
        }
    }
}

impl Resolve for NameResolver {
    fn resolve(&self, host: &str, port: u16) -> Resolving {
        self.as_dyn().resolve(host, port)
    }

    fn resolve_servers(&self, host: &str, port: u16) -> ResolvingServers {
        self.as_dyn().resolve_servers(host, port)
    }

    fn resolve_service(&self, service: &str) -> ResolvingServers {
        self.as_dyn().resolve_service(service)
    }

    fn resolve_https(&self, host: &str, port: u16) -> ResolvingHttps {
        self.as_dyn().resolve_https(host, port)
    }
}

impl fmt::Debug for NameResolver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.is_default() { "DefaultResolver" } else { "NameResolver" })
    }
}
