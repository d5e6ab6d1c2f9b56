//! `Origin`: the target of a request, and the key of the pool.

use std::hash::{Hash, Hasher};
use std::rc::Rc;

use tidegate_engine::Resolve;
use tidegate_sys::Address;

use super::forward_proxy::{ForwardProxy, ProxyKind};
use super::target::{Addresses, ServiceEndpoint, Target, Versions, authority, without_zone};

/// Requests of the same origin share connections. Origins that differ in their endpoints alone are the same: a server cannot
/// multiply the connections of a client by naming many ports.
#[derive(Debug, Clone)]
pub struct Origin {
    /// Whether its scheme is `https`.
    pub is_secure: bool,
    /// In lower case; an IPv6 address without its brackets, and with its zone.
    pub host: Box<str>,
    /// Its port.
    pub port: u16,
    /// Where to connect in the place of the host.
    pub at: Option<Address>,
    /// A proxy makes a tunnel to it, even where it could forward requests.
    pub tunnels: bool,
    /// The proxy through which it is reached.
    pub via: Option<Rc<ForwardProxy>>,
    /// Its connections speak HTTP/2 if the server agrees. Those of requests that need HTTP/1.1 are apart.
    pub may_be_http2: bool,
    /// Its connections speak HTTP/3 alone.
    pub is_http3: bool,
    /// Where its servers are, in the place of host and port; see [`Target::endpoint`].
    pub endpoint: Option<ServiceEndpoint>,
    /// Where it has HTTP/3 as well; see [`Target::alternative`].
    pub alternative: Option<ServiceEndpoint>,
}

impl PartialEq for Origin {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

impl Eq for Origin {}

impl Hash for Origin {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.key().hash(state);
    }
}

impl Origin {
    /// The parts by which origins differ.
    fn key(&self) -> impl Hash + PartialEq {
        let Self { is_secure, host, port, at, tunnels, via, may_be_http2, is_http3, endpoint: _, alternative } = self;
        ((is_secure, host, port, at), (tunnels, via, may_be_http2, is_http3, alternative.is_some()))
    }

    /// The target of its connections.
    #[must_use]
    pub fn target<'a>(&'a self, resolver: &'a dyn Resolve) -> Target<'a> {
        Target {
            host: &self.host,
            port: self.port,
            addresses: self.at.as_ref().map_or(Addresses::By(resolver), Addresses::At),
            is_secure: self.is_secure,
            versions: match () {
                () if self.is_http3 => Versions::Http3,
                () if self.may_be_http2 => Versions::Http2,
                () => Versions::Http1,
            },
            endpoint: self.endpoint.as_ref(),
            alternative: self.alternative.as_ref(),
            via: self.via.as_deref(),
            is_forwarded: self.forwarder().is_some(),
            #[cfg(feature = "proxy-header")]
            header: None,
        }
    }

    /// Whether requests share a connection, if the server agrees.
    #[must_use]
    pub fn may_share(&self) -> bool {
        self.may_be_http2 || self.is_http3 || self.alternative.is_some()
    }

    /// The proxy that requests are sent to as if it were the server.
    #[must_use]
    pub fn forwarder(&self) -> Option<&ForwardProxy> {
        let forwards = |proxy: &&ForwardProxy| {
            !self.is_secure && !self.tunnels && matches!(proxy.kind, ProxyKind::Http | ProxyKind::Https)
        };
        self.via.as_deref().filter(forwards)
    }

    /// Whether the host, the port and the scheme are the same (RFC 6454 §4).
    #[must_use]
    pub fn is_same_site(&self, other: &Self) -> bool {
        (self.is_secure, &self.host, self.port) == (other.is_secure, &other.host, other.port)
    }

    /// The host with its port.
    #[must_use]
    pub fn authority(&self) -> String {
        authority(&self.host, Some(self.port))
    }

    /// The value of `Host`: without the port where that is the scheme's.
    #[must_use]
    pub fn host_field(&self) -> String {
        authority(&self.host, (self.port != default_port(self.is_secure)).then_some(self.port))
    }

    /// The host as others know it: an IPv6 address without its zone.
    #[must_use]
    pub fn name(&self) -> &str {
        without_zone(&self.host)
    }
}

/// The port of a scheme.
#[must_use]
pub fn default_port(is_secure: bool) -> u16 {
    if is_secure { 443 } else { 80 }
}
