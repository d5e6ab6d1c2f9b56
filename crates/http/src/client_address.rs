//! `TrustedProxies`: the address of the client for which a request was made, behind proxies in front.
//!
//! A field names a client only as far as the peer that sent it is trusted (RFC 7239 §8.1). So the addresses in
//! `X-Forwarded-For` count from the last one, which the peer has written, back to the first one that no trusted proxy has.
//!
//! This file has the only rule. Logs, spans, limits, networks, placeholders and the gateway ask it, or read the client that
//! the middleware here has established.

use std::net::{IpAddr, SocketAddr};

use tidegate_http1::Headers;
use tidegate_proxy_protocol::Networks;
use tidegate_sys::Address;

use crate::middleware::{Middleware, RequestSpan};
use crate::request::Request;
use crate::response::Response;

/// The proxies in front of a server whose `X-Forwarded-For` names the client.
///
/// As middleware it establishes the [client](Request::client) of each request, for the functions, the other middleware and
/// the access log. Add it first: middleware that was added before it takes the peer for the client.
///
/// ```
/// use tidegate::http::{AccessLog, ClientAddress, LogFormat, Router, TrustedProxies};
///
/// let trusted = TrustedProxies::new("10.0.0.0/8, unix".parse()?);
/// let router = Router::new()
///     .get("/address", |client: ClientAddress| format!("{:?}", client.ip()))
///     .with(trusted)
///     .with(AccessLog::new(LogFormat::Json));
/// # drop(router);
/// # Ok::<(), tidegate::proxy_protocol::InvalidNetwork>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TrustedProxies(Networks);

/// The client of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ClientAddress {
    /// Its address. An IPv6 address that maps an IPv4 address is that IPv4 address.
    Ip(IpAddr),
    /// It has connected to a Unix socket, and no trusted proxy is between.
    Unix,
    /// A trusted proxy has sent something else than an address.
    Unknown,
}

impl ClientAddress {
    /// The address, if there is one.
    #[must_use]
    pub fn ip(self) -> Option<IpAddr> {
        match self {
            Self::Ip(ip) => Some(ip),
            Self::Unix | Self::Unknown => None,
        }
    }

    /// A client that is the peer.
    #[inline]
    pub(crate) fn of_peer(peer: &Address) -> Self {
        peer.ip().map_or(Self::Unix, |address| Self::Ip(address.ip().to_canonical()))
    }

    /// Whether the client is in one of these networks. An unknown one is in none.
    #[must_use]
    pub fn is_in(self, networks: &Networks) -> bool {
        match self {
            Self::Ip(ip) => networks.contains(Some(ip)),
            Self::Unix => networks.contains(None),
            Self::Unknown => false,
        }
    }
}

impl TrustedProxies {
    /// Trusts the peers in these networks.
    #[must_use]
    pub fn new(networks: Networks) -> Self {
        Self(networks)
    }

    /// The client of a request: the [peer](Request::peer), or the address before it in `X-Forwarded-For` if the peer is
    /// trusted, and so on back. If all of them are trusted, it is the first one. Without any proxy it is the client that is
    /// [established](Request::client) already.
    #[must_use]
    pub fn client_of(&self, request: &Request) -> ClientAddress {
        client_of(&self.0, request)
    }

    /// Whether the [peer](Request::peer) of a request is trusted, so that its fields about the client count.
    #[must_use]
    pub fn trusts_peer_of(&self, request: &Request) -> bool {
        self.trusts(request.peer())
    }

    fn trusts(&self, peer: &Address) -> bool {
        !self.0.is_empty() && ClientAddress::of_peer(peer).is_in(&self.0)
    }

    pub(crate) fn client_of_head(&self, peer: &Address, headers: Headers<'_>) -> ClientAddress {
        client_behind(&self.0, peer, headers)
    }

    /// The client of a request whose fields are not known: a trusted proxy is none.
    pub(crate) fn client_without_fields(&self, peer: &Address) -> ClientAddress {
        if self.trusts(peer) { ClientAddress::Unknown } else { ClientAddress::of_peer(peer) }
    }

    pub(crate) fn networks(&self) -> &Networks {
        &self.0
    }
}

impl Middleware for TrustedProxies {
    fn before(&self, request: &mut Request) -> Result<(), Response> {
        let client = self.client_of_head(request.peer(), request.head().headers());
        if client == request.client() {
            return Ok(());
        }
        request.set_client(client);
        if let Some(note) = request.note() {
            note.set_client(client);
        }
        // Spans that were made before it have another one.
        let span = request.made_extensions().and_then(|extensions| extensions.get::<RequestSpan>());
        if let (Some(span), Some(ip)) = (span, client.ip()) {
            span.span().record("client.address", ip.to_string());
        }
        Ok(())
    }

    fn trusted_proxies(&self) -> Option<&TrustedProxies> {
        Some(self)
    }
}

/// The client of a request behind trusted proxies; without any, the one that is established already.
#[must_use]
#[inline]
pub fn client_of(trusted: &Networks, request: &Request) -> ClientAddress {
    if trusted.is_empty() {
        return request.client();
    }
    client_behind(trusted, request.peer(), request.head().headers())
}

/// The address that a request counts for in limits: that of the client, or of the peer where a proxy names none. A peer on
/// a Unix socket has no address.
#[must_use]
#[inline]
pub fn counted_ip(trusted: &Networks, request: &Request) -> Option<IpAddr> {
    client_of(trusted, request).ip().or_else(|| ClientAddress::of_peer(request.peer()).ip())
}

/// The client of a request from a peer; see [`TrustedProxies::client_of`].
pub(crate) fn client_behind(trusted: &Networks, peer: &Address, headers: Headers<'_>) -> ClientAddress {
    let peer = ClientAddress::of_peer(peer);
    if trusted.is_empty() || !peer.is_in(trusted) { peer } else { named_client(trusted, peer, headers) }
}

/// The client that a trusted peer has named.
#[inline(never)]
fn named_client(trusted: &Networks, peer: ClientAddress, headers: Headers<'_>) -> ClientAddress {
    let lines: Vec<&[u8]> = headers
        .filter(|(name, _)| name.eq_ignore_ascii_case(b"x-forwarded-for"))
        .map(|(_, value)| value)
        .filter(|value| !value.is_empty())
        .collect();
    let mut client = peer;
    for named in lines.into_iter().rev().flat_map(|line| line.rsplit(|byte| *byte == b',')) {
        let Some(ip) = address(named.trim_ascii()) else { return ClientAddress::Unknown };
        client = ClientAddress::Ip(ip);
        if !client.is_in(trusted) {
            break;
        }
    }
    client
}

/// An address, with a port or without, as proxies write it.
fn address(text: &[u8]) -> Option<IpAddr> {
    let text = std::str::from_utf8(text).ok()?;
    let bare = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(text);
    let ip = bare.parse::<IpAddr>().or_else(|_| text.parse::<SocketAddr>().map(|address| address.ip()));
    ip.ok().map(|ip| ip.to_canonical())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::tests::request;

    fn client(lines: &str) -> ClientAddress {
        let trusted = TrustedProxies::new("192.0.2.0/24, 10.0.0.0/8".parse().unwrap());
        trusted.client_of(&request("GET", "/", lines))
    }

    fn ip(text: &str) -> ClientAddress {
        ClientAddress::Ip(text.parse().unwrap())
    }

    #[test]
    fn the_client_is_the_last_address_that_is_no_trusted_proxy() {
        for (lines, expected) in [
            ("", ip("192.0.2.1")),
            ("X-Forwarded-For: 198.51.100.1, 198.51.100.2\r\n", ip("198.51.100.2")),
            ("X-Forwarded-For: 198.51.100.1\r\nX-Forwarded-For: 10.1.1.1,10.2.2.2\r\n", ip("198.51.100.1")),
            ("X-Forwarded-For: 10.1.1.1, 10.2.2.2\r\n", ip("10.1.1.1")),
            ("X-Forwarded-For: ::ffff:198.51.100.1\r\n", ip("198.51.100.1")),
            ("X-Forwarded-For: [2001:db8::1]:443\r\n", ip("2001:db8::1")),
            ("X-Forwarded-For: [2001:db8::1]\r\n", ip("2001:db8::1")),
            ("X-Forwarded-For: 198.51.100.1:5000\r\n", ip("198.51.100.1")),
            ("X-Forwarded-For: 198.51.100.1, unknown\r\n", ClientAddress::Unknown),
            ("X-Forwarded-For: 198.51.100.1,\r\n", ClientAddress::Unknown),
        ] {
            assert_eq!(client(lines), expected, "{lines}");
        }
    }

    #[test]
    fn a_client_that_is_not_trusted_names_no_address() {
        let claimed = request("GET", "/", "X-Forwarded-For: 9.9.9.9\r\n");
        assert_eq!(TrustedProxies::default().client_of(&claimed), ip("192.0.2.1"));
        let other = TrustedProxies::new("10.0.0.0/8".parse().unwrap());
        assert_eq!(other.client_of(&claimed), ip("192.0.2.1"));
    }

    #[test]
    fn an_established_client_counts_for_all_that_trust_no_proxy_of_their_own() {
        let mut request = request("GET", "/", "X-Forwarded-For: 198.51.100.1, 198.51.100.2\r\n");
        let trusted = |text: &str| TrustedProxies::new(text.parse().unwrap());
        assert_eq!(request.client(), ip("192.0.2.1"));
        trusted("192.0.2.0/24").before(&mut request).unwrap();
        assert_eq!(request.client(), ip("198.51.100.2"));
        assert_eq!(TrustedProxies::default().client_of(&request), ip("198.51.100.2"));
        assert_eq!(trusted("203.0.113.0/24").client_of(&request), ip("192.0.2.1"));
        assert_eq!(counted_ip(&Networks::default(), &request), "198.51.100.2".parse().ok());
        // The proxies of a route replace those of its router.
        trusted("192.0.2.0/24, 198.51.100.2/32").before(&mut request).unwrap();
        assert_eq!(request.client(), ip("198.51.100.1"));
        trusted("203.0.113.0/24").before(&mut request).unwrap();
        assert_eq!(request.client(), ip("192.0.2.1"));
    }

    #[test]
    fn a_request_whose_proxy_names_no_address_counts_for_the_proxy() {
        let trusted = "192.0.2.0/24".parse().unwrap();
        let request = request("GET", "/", "X-Forwarded-For: unknown\r\n");
        assert_eq!(client_of(&trusted, &request), ClientAddress::Unknown);
        assert_eq!(counted_ip(&trusted, &request), "192.0.2.1".parse().ok());
    }

    #[test]
    fn an_unknown_client_is_in_no_network() {
        let all = Networks::default().and([0, 0, 0, 0].into(), 0).and_unix();
        assert!(!ClientAddress::Unknown.is_in(&all) && ClientAddress::Unix.is_in(&all));
    }
}
