//! `TrustedProxies`: the address of the client for which a request was made, behind proxies in front.
//!
//! A field names a client only as far as the peer that sent it is trusted (RFC 7239 §8.1). So the addresses in
//! `X-Forwarded-For` count from the last one, which the peer has written, back to the first one that no trusted proxy has.
//!
//! This file has the only rule. Logs, spans, limits, networks, placeholders and the gateway ask it (`client_of.rs`), or read the client
//! that `middleware/trusted_proxies.rs` has established.

use std::net::{IpAddr, SocketAddr};

use tidegate_http1::Headers;
use tidegate_proxy_protocol::Networks;
use tidegate_sys::Address;

/// The proxies in front of a server whose `X-Forwarded-For` names the client.
///
/// As middleware it establishes the [client](crate::Request::client) of each request, for the functions, the other middleware and
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

    pub(crate) fn trusts(&self, peer: &Address) -> bool {
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

/// The client of a request from a peer; see [`TrustedProxies::client_of`].
#[must_use]
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

    #[test]
    fn an_unknown_client_is_in_no_network() {
        let all = Networks::default().and([0, 0, 0, 0].into(), 0).and_unix();
        assert!(!ClientAddress::Unknown.is_in(&all) && ClientAddress::Unix.is_in(&all));
    }
}
