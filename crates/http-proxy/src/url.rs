//! `UpstreamUrl`: the name of an upstream, `http://HOST:PORT`, `https://HOST:PORT`, `https+h3://HOST:PORT`,
//! `h2c://HOST:PORT`, `unix:PATH`, `unix+h2c:PATH`, or `srv://SERVICE`.

use std::fmt;
use std::net::{IpAddr, SocketAddrV6};
use std::str::FromStr;

use tidegate_sys::{Address, parse_zoned};

/// The URL of an upstream: a scheme, and a host with a port. It has no path, no query and no credentials.
///
/// `http` is HTTP/1.1, `h2c` is HTTP/2 without encryption, by prior knowledge (RFC 9113 §3.3), and with `https` the upstream
/// chooses one of both (ALPN). `https+h3` is HTTP/3 alone, over UDP.
///
/// The host is an IP address, in brackets if it is one of IPv6, or a name, which may have several addresses. An address of a
/// link has a zone: `[fe80::1%25eth0]` (RFC 6874), which the upstream does not see in `Host`. `unix:PATH` and `unix:@NAME`
/// are Unix sockets, to which HTTP/1.1 is spoken; with `unix+h2c:` in their place, HTTP/2.
///
/// `srv://_http._tcp.sea.example` is a service (RFC 2782): the servers are those of its SRV records, with their ports and
/// weights. One of a higher priority number gets requests while none of a lower one is available. With `srv+https://` and
/// `srv+h2c://` they speak as with `https` and `h2c`; the name of their certificates and of `Host` is the domain of the
/// service, here `sea.example`.
///
/// ```
/// use tidegate::http::proxy::UpstreamUrl;
///
/// let url: UpstreamUrl = "http://[::1]:8080".parse()?;
/// assert_eq!(url.to_string(), "http://[::1]:8080");
/// assert!("http://sea.example/path".parse::<UpstreamUrl>().is_err());
/// # Ok::<(), tidegate::http::proxy::InvalidUrl>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UpstreamUrl {
    pub(super) is_secure: bool,
    /// It speaks HTTP/2 by prior knowledge.
    pub(super) is_http2: bool,
    /// It speaks HTTP/3 alone.
    pub(super) is_http3: bool,
    pub(super) place: Place,
}

/// Where an upstream is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Place {
    Address(Address),
    Name(String, u16),
    /// The name of SRV records.
    Service(String),
}

/// Why a text is not the URL of an upstream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum InvalidUrl {
    /// The scheme is none of `http`, `https`, `https+h3`, `h2c` and `srv`.
    Scheme,
    /// It has a path, a query, a fragment or credentials.
    NotBare,
    /// The host is neither an IP address nor a name.
    Host,
    /// The port is no number from 1 to 65535.
    Port,
    /// A service has a port, or is no name.
    Service,
}

impl FromStr for UpstreamUrl {
    type Err = InvalidUrl;

    fn from_str(text: &str) -> Result<Self, InvalidUrl> {
        let is_http2 = text.starts_with("unix+h2c:");
        if is_http2 || text.starts_with("unix:") {
            let path = text.split_once(':').map_or("", |(_, path)| path);
            let place = format!("unix:{path}").parse().map(Place::Address).map_err(|_| InvalidUrl::Host)?;
            return Ok(Self { is_secure: false, is_http2, is_http3: false, place });
        }
        let (scheme, rest) = text.split_once("://").ok_or(InvalidUrl::Scheme)?;
        let scheme = scheme.to_ascii_lowercase();
        let (scheme, is_service) = match scheme.strip_prefix("srv") {
            Some("") => ("http", true),
            Some(rest) => (rest.strip_prefix('+').ok_or(InvalidUrl::Scheme)?, true),
            None => (&*scheme, false),
        };
        let is_http3 = scheme == "https+h3";
        let (is_secure, is_http2) = match scheme {
            _ if is_http3 => (true, false),
            "http" => (false, false),
            "https" => (true, false),
            "h2c" => (false, true),
            _ => return Err(InvalidUrl::Scheme),
        };
        let authority = rest.strip_suffix('/').unwrap_or(rest);
        if authority.contains(['/', '?', '#', '@']) {
            return Err(InvalidUrl::NotBare);
        }
        if is_service {
            let is_service = is_name(authority) && authority.parse::<IpAddr>().is_err();
            let place = Place::Service(authority.to_ascii_lowercase());
            return if is_service {
                Ok(Self { is_secure, is_http2, is_http3, place })
            } else {
                Err(InvalidUrl::Service)
            };
        }
        let default_port = if is_secure { 443 } else { 80 };
        let (host, port) = match authority.rfind(':') {
            Some(colon) if !authority[colon..].contains(']') => (&authority[..colon], port(&authority[colon + 1..])?),
            _ => (authority, default_port),
        };
        let place = match host.strip_prefix('[').map(|rest| rest.strip_suffix(']')) {
            Some(inner) => {
                let zoned = |ip: &str| ip.parse().ok().map(|ip| (ip, 0)).or_else(|| parse_zoned(ip));
                let (ip, zone) = inner.and_then(zoned).ok_or(InvalidUrl::Host)?;
                Place::Address(std::net::SocketAddr::from(SocketAddrV6::new(ip, port, 0, zone)).into())
            }
            None => match host.parse::<IpAddr>() {
                Ok(IpAddr::V4(ip)) => Place::Address(std::net::SocketAddr::new(ip.into(), port).into()),
                Ok(IpAddr::V6(_)) => return Err(InvalidUrl::Host),
                Err(_) if is_name(host) => Place::Name(host.to_ascii_lowercase(), port),
                Err(_) => return Err(InvalidUrl::Host),
            },
        };
        Ok(Self { is_secure, is_http2, is_http3, place })
    }
}

fn port(text: &str) -> Result<u16, InvalidUrl> {
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let port = if is_number { text.parse().ok() } else { None };
    port.filter(|port| *port > 0).ok_or(InvalidUrl::Port)
}

fn is_name(text: &str) -> bool {
    let is_label = |label: &str| {
        (1..=63).contains(&label.len())
            && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'))
    };
    text.len() <= 253 && text.strip_suffix('.').unwrap_or(text).split('.').all(is_label)
}

/// The domain of a service: without the labels of the service and of its protocol (RFC 2782).
fn domain_of(service: &str) -> &str {
    let mut domain = service.strip_suffix('.').unwrap_or(service);
    while let Some((_, rest)) = domain.split_once('.').filter(|(label, _)| label.starts_with('_')) {
        domain = rest;
    }
    domain
}

impl UpstreamUrl {
    /// Whether connections are encrypted.
    #[must_use]
    pub fn is_secure(&self) -> bool {
        self.is_secure
    }

    /// The name that a certificate of the upstream has to have, and the host of requests that name none.
    pub(super) fn host(&self) -> String {
        match &self.place {
            Place::Name(name, _) => name.strip_suffix('.').unwrap_or(name).to_owned(),
            Place::Service(service) => domain_of(service).to_owned(),
            Place::Address(address) => address.ip().map_or_else(|| "localhost".to_owned(), |ip| ip.ip().to_string()),
        }
    }

    /// Whether both are one upstream, in whatever spelling.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        (self.is_secure, self.is_http2, self.is_http3) == (other.is_secure, other.is_http2, other.is_http3)
            && self.authority() == other.authority()
            && self.zone() == other.zone()
            && self.service() == other.service()
            && self.socket_path() == other.socket_path()
    }

    /// Whether it has to be looked up.
    pub(super) fn has_lookup(&self) -> bool {
        !matches!(self.place, Place::Address(_))
    }

    fn service(&self) -> Option<&str> {
        match &self.place {
            Place::Service(service) => Some(service.strip_suffix('.').unwrap_or(service)),
            Place::Name(..) | Place::Address(_) => None,
        }
    }

    /// The number of the network interface of an IPv6 address, if a zone names it.
    fn zone(&self) -> Option<u32> {
        match &self.place {
            Place::Address(Address::Ip(std::net::SocketAddr::V6(ip))) if ip.scope_id() > 0 => Some(ip.scope_id()),
            _ => None,
        }
    }

    fn scheme(&self) -> &'static str {
        match (self.is_secure, self.is_http2) {
            (true, _) if self.is_http3 => "https+h3",
            (true, _) => "https",
            (false, true) => "h2c",
            (false, false) => "http",
        }
    }

    /// The URL with one of its addresses in the place of a name.
    pub(super) fn at(&self, address: &Address) -> String {
        let text = address.to_string();
        match text.strip_prefix("unix:") {
            Some(path) if self.is_http2 => format!("unix+h2c:{path}"),
            Some(_) => text,
            None => format!("{}://{text}", self.scheme()),
        }
    }

    /// The address of a Unix socket, all of which have the same authority.
    pub(super) fn socket_path(&self) -> Option<&Address> {
        match &self.place {
            Place::Address(address) if address.ip().is_none() => Some(address),
            _ => None,
        }
    }

    /// The host as a `Host` field has it: with its port, unless that is the default of the scheme.
    pub(super) fn authority(&self) -> String {
        let default_port = if self.is_secure { 443 } else { 80 };
        match &self.place {
            Place::Name(name, port) if *port == default_port => name.clone(),
            Place::Name(name, port) => format!("{name}:{port}"),
            Place::Service(service) => domain_of(service).to_owned(),
            Place::Address(address) => match address.ip() {
                Some(ip) if ip.port() == default_port && ip.is_ipv4() => ip.ip().to_string(),
                Some(ip) if ip.port() == default_port => format!("[{}]", ip.ip()),
                // Without the zone, which means something on this machine only (RFC 6874 §1).
                Some(ip) => std::net::SocketAddr::new(ip.ip(), ip.port()).to_string(),
                None => "localhost".to_owned(),
            },
        }
    }
}

impl fmt::Display for UpstreamUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(path) = self.socket_path() {
            return f.write_str(&self.at(path));
        }
        let (scheme, authority) = (self.scheme(), self.authority());
        if let Place::Service(service) = &self.place {
            return match scheme {
                "http" => write!(f, "srv://{service}"),
                _ => write!(f, "srv+{scheme}://{service}"),
            };
        }
        match (self.zone(), authority.split_once(']')) {
            (Some(zone), Some((ip, port))) => write!(f, "{scheme}://{ip}%25{zone}]{port}"),
            _ => write!(f, "{scheme}://{authority}"),
        }
    }
}

impl fmt::Display for InvalidUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Scheme => {
                "the URL of an upstream begins with http://, https://, https+h3://, h2c:// or srv://, or is unix:PATH or unix+h2c:PATH"
            }
            Self::NotBare => "the URL of an upstream has no path, no query, no fragment and no credentials",
            Self::Host => "the host is neither a name, nor an address of IPv4, nor one of IPv6 in brackets; a zone in it is a network interface of this machine",
            Self::Port => "the port is a number from 1 to 65535",
            Self::Service => "a service is a name without a port, as in srv://_http._tcp.sea.example: its SRV records have the ports",
        })
    }
}

impl std::error::Error for InvalidUrl {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_has_a_scheme_a_host_and_a_port() {
        for (text, authority, is_secure) in [
            ("http://10.0.0.1:8080", "10.0.0.1:8080", false),
            ("http://10.0.0.1/", "10.0.0.1", false),
            ("HTTPS://Sea.Example", "sea.example", true),
            ("https://sea.example:8443", "sea.example:8443", true),
            ("https://[::1]", "[::1]", true),
            ("http://[::1]:8080/", "[::1]:8080", false),
            ("http://a_b-c.:81", "a_b-c.:81", false),
            ("https+h3://sea.example:8443", "sea.example:8443", true),
            ("HTTPS+H3://[::1]", "[::1]", true),
            ("h2c://10.0.0.1:8080", "10.0.0.1:8080", false),
            ("H2C://sea.example", "sea.example", false),
            ("unix:/run/a.sock", "localhost", false),
            ("unix+h2c:/run/a.sock", "localhost", false),
            ("unix+h2c:@a", "localhost", false),
            ("http://[fe80::1%25lo]:8080", "[fe80::1]:8080", false),
            ("https://[fe80::1%lo]", "[fe80::1]", true),
            ("srv://_http._tcp.Sea.Example", "sea.example", false),
            ("SRV+https://_web._tcp.sea.example.", "sea.example", true),
            ("srv+h2c://sea.service.consul", "sea.service.consul", false),
        ] {
            let url: UpstreamUrl = text.parse().unwrap_or_else(|error| panic!("{text}: {error}"));
            assert_eq!((url.authority().as_str(), url.is_secure), (authority, is_secure), "{text}");
            assert_eq!(url.to_string().parse(), Ok(url), "{text}");
        }
    }

    #[test]
    fn a_text_that_is_no_url_of_an_upstream_is_refused() {
        for (text, error) in [
            ("", InvalidUrl::Scheme),
            ("10.0.0.1:80", InvalidUrl::Scheme),
            ("ftp://a", InvalidUrl::Scheme),
            ("file:///etc/passwd", InvalidUrl::Scheme),
            ("http+h3://a", InvalidUrl::Scheme),
            ("h3://a", InvalidUrl::Scheme),
            ("https+h3://a/b", InvalidUrl::NotBare),
            ("https+h3://a:0", InvalidUrl::Port),
            ("http://", InvalidUrl::Host),
            ("http:///", InvalidUrl::Host),
            ("http://a/b", InvalidUrl::NotBare),
            ("http://a?b", InvalidUrl::NotBare),
            ("http://user:word@a", InvalidUrl::NotBare),
            ("http://a:0", InvalidUrl::Port),
            ("http://a:", InvalidUrl::Port),
            ("http://a:+1", InvalidUrl::Port),
            ("http://a:65536", InvalidUrl::Port),
            ("http://::1", InvalidUrl::Host),
            ("http://[::1", InvalidUrl::Host),
            ("http://[a]:1", InvalidUrl::Host),
            ("http://[fe80::1%25nosuch0]:1", InvalidUrl::Host),
            ("http://[fe80::1%25]:1", InvalidUrl::Host),
            ("http://a b", InvalidUrl::Host),
            ("http://a\r\nb", InvalidUrl::Host),
            ("http://a..b", InvalidUrl::Host),
            ("srv://_http._tcp.a:80", InvalidUrl::Service),
            ("srv://10.0.0.1", InvalidUrl::Service),
            ("srv://[::1]", InvalidUrl::Service),
            ("srv://", InvalidUrl::Service),
            ("srv://a/b", InvalidUrl::NotBare),
            ("srv+unix://a", InvalidUrl::Scheme),
            ("srv+://a", InvalidUrl::Scheme),
            ("srvhttp://a", InvalidUrl::Scheme),
        ] {
            assert_eq!(text.parse::<UpstreamUrl>(), Err(error), "{text:?}");
        }
    }
}
