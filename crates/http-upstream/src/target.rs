//! `Target`: the server of a connection, and the way to it.

use std::rc::Rc;

use tidegate_engine::Resolve;
use tidegate_sys::Address;

use super::forward_proxy::ForwardProxy;

/// The server of a connection, and the way to it.
#[derive(Clone, Copy)]
pub struct Target<'a> {
    /// In lower case; an IPv6 address without its brackets, and with its zone.
    pub host: &'a str,
    /// The server's port.
    pub port: u16,
    /// Where the addresses of the host come from.
    pub addresses: Addresses<'a>,
    /// Whether the connection is encrypted.
    pub is_secure: bool,
    /// The versions that the connection may speak.
    pub versions: Versions,
    /// Where the server is, in the place of its host and port; its certificate stays that of the host. Only for direct
    /// connections whose addresses the resolver finds.
    pub endpoint: Option<&'a ServiceEndpoint>,
    /// Where the server has HTTP/3 as well: QUIC begins, and TCP follows if QUIC has failed or has no
    /// connection after 250 milliseconds. The first connection counts. A connector without HTTP/3, and a connection through
    /// a proxy, ignore it.
    pub alternative: Option<&'a ServiceEndpoint>,
    /// The proxy that makes a tunnel to the server, or that requests go to in the place of the server.
    pub via: Option<&'a ForwardProxy>,
    /// Requests go to the proxy in the place of the server.
    pub is_forwarded: bool,
    /// A PROXY header, with which a connection begins that is neither encrypted nor made through a proxy.
    #[cfg(feature = "proxy-header")]
    pub header: Option<&'a [u8]>,
}

/// Where a server is, by an HTTPS record (RFC 9460) or `Alt-Svc` (RFC 7838).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServiceEndpoint {
    /// The host whose addresses it has; `None` for that of the origin.
    pub host: Option<Rc<str>>,
    /// Its port.
    pub port: u16,
}

/// The addresses of a host.
#[derive(Clone, Copy)]
pub enum Addresses<'a> {
    /// This one.
    At(&'a Address),
    /// Those that the resolver finds, in their order.
    By(&'a dyn Resolve),
}

/// The HTTP versions that a connection may speak.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Versions {
    /// HTTP/1.1 alone.
    Http1,
    /// HTTP/2 by prior knowledge (RFC 9113 §3.3); with TLS, the version that the server chooses by ALPN.
    Http2,
    /// HTTP/3 alone, which needs TLS and no proxy.
    Http3,
}

impl Target<'_> {
    /// The host with its port.
    pub(super) fn authority(&self) -> String {
        authority(self.host, Some(self.port))
    }

    /// The name of its certificate.
    #[cfg(feature = "tls")]
    pub(super) fn name(&self) -> &str {
        without_zone(self.host)
    }
}

/// The host as others know it: an IPv6 address without its zone, which means something on this machine only (RFC 6874 §1).
pub(super) fn without_zone(host: &str) -> &str {
    host.split('%').next().unwrap_or_default()
}

/// The host as it stands in a URI, with a port. Each request needs it: it is written without the formatting machinery.
pub(super) fn authority(host: &str, port: Option<u16>) -> String {
    let mut text = String::with_capacity(host.len() + "[]:65535".len());
    let is_ipv6 = host.as_bytes().contains(&b':');
    text.push_str(if is_ipv6 { "[" } else { "" });
    text.push_str(if is_ipv6 { without_zone(host) } else { host });
    text.push_str(if is_ipv6 { "]" } else { "" });
    if let Some(port) = port {
        text.push(':');
        text.push_str(itoa::Buffer::new().format(port));
    }
    text
}
