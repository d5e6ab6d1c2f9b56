//! The client of a request, by the rule of `client_address.rs`: behind proxies that the caller trusts, or the one that is
//! established.

use std::net::IpAddr;

use tidegate_proxy_protocol::Networks;

use crate::client_address::{ClientAddress, TrustedProxies, client_behind};
use crate::request::Request;

impl TrustedProxies {
    /// The client of a request: the [peer](Request::peer), or the address before it in `X-Forwarded-For` if the peer is
    /// trusted, and so on back. If all of them are trusted, it is the first one. Without any proxy it is the client that is
    /// [established](Request::client) already.
    #[must_use]
    pub fn client_of(&self, request: &Request) -> ClientAddress {
        client_of(self.networks(), request)
    }

    /// Whether the [peer](Request::peer) of a request is trusted, so that its fields about the client count.
    #[must_use]
    pub fn trusts_peer_of(&self, request: &Request) -> bool {
        self.trusts(request.peer())
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
    fn a_request_whose_proxy_names_no_address_counts_for_the_proxy() {
        let trusted = "192.0.2.0/24".parse().unwrap();
        let request = request("GET", "/", "X-Forwarded-For: unknown\r\n");
        assert_eq!(client_of(&trusted, &request), ClientAddress::Unknown);
        assert_eq!(counted_ip(&trusted, &request), "192.0.2.1".parse().ok());
    }
}
