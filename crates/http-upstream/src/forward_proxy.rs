//! `ForwardProxy`: a proxy through which a client reaches servers.

use std::fmt;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;

/// A proxy: an address, its protocol, and credentials.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct ForwardProxy {
    /// Its protocol.
    pub kind: ProxyKind,
    /// In lower case; an IPv6 address without its brackets.
    pub host: Box<str>,
    /// Its port.
    pub port: u16,
    /// A name and a password.
    pub credentials: Option<(Box<str>, Box<str>)>,
}

/// The protocol of a proxy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ProxyKind {
    /// HTTP.
    Http,
    /// HTTP over TLS.
    Https,
    /// SOCKS 5, to an address.
    Socks5,
    /// SOCKS 5, to a name that the proxy resolves.
    Socks5h,
    /// SOCKS 4, to an address.
    Socks4,
    /// SOCKS 4a, to a name that the proxy resolves.
    Socks4a,
}

impl ForwardProxy {
    /// The value of `Proxy-Authorization`.
    #[must_use]
    pub fn authorization(&self) -> Option<String> {
        self.credentials.as_ref().map(|(name, password)| basic_credentials(name, password))
    }
}

impl fmt::Debug for ForwardProxy {
    /// Without the credentials.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Proxy({:?} {}:{})", self.kind, self.host, self.port)
    }
}

/// The credentials of a name and a password (RFC 7617 §2).
#[must_use]
pub fn basic_credentials(name: &str, password: &str) -> String {
    format!("Basic {}", BASE64_STANDARD.encode(format!("{name}:{password}")))
}
