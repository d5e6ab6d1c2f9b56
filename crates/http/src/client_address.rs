//! `TrustedProxies`: the address of the client for which a request was made, behind proxies in front.
//!
//! A field names a client only as far as the peer that sent it is trusted (RFC 7239 §8.1). So the addresses in
//! `X-Forwarded-For` count from the last one, which the peer has written, back to the first one that no trusted proxy has.

use std::net::{IpAddr, SocketAddr};

use tidegate_http1::Headers;
use tidegate_proxy_protocol::Networks;
use tidegate_sys::Address;

use crate::request::Request;

/// The proxies in front of a server whose `X-Forwarded-For` names the client.
///
/// ```
/// use tidegate::http::TrustedProxies;
///
/// let trusted = TrustedProxies::new("10.0.0.0/8, unix".parse()?);
/// # drop(trusted);
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
    /// trusted, and so on back. If all of them are trusted, it is the first one.
    #[must_use]
    pub fn client_of(&self, request: &Request) -> ClientAddress {
        self.client_of_head(request.peer(), request.head().headers())
    }

    /// Whether the [peer](Request::peer) of a request is trusted, so that its fields about the client count.
    #[must_use]
    pub fn trusts_peer_of(&self, request: &Request) -> bool {
        let ip = request.peer().ip().map(|address| address.ip().to_canonical());
        !self.0.is_empty() && self.0.contains(ip)
    }

    pub(crate) fn client_of_head(&self, peer: &Address, headers: Headers<'_>) -> ClientAddress {
        client_behind(&self.0, peer, headers)
    }

    pub(crate) fn networks(&self) -> &Networks {
        &self.0
    }
}

/// The client of a request from a peer; see [`TrustedProxies::client_of`].
pub(crate) fn client_behind(trusted: &Networks, peer: &Address, headers: Headers<'_>) -> ClientAddress {
    let peer = peer.ip().map_or(ClientAddress::Unix, |address| ClientAddress::Ip(address.ip().to_canonical()));
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
    fn an_unknown_client_is_in_no_network() {
        let all = Networks::default().and([0, 0, 0, 0].into(), 0).and_unix();
        assert!(!ClientAddress::Unknown.is_in(&all) && ClientAddress::Unix.is_in(&all));
    }
}
