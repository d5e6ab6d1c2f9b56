//! The fields that a proxy adds about the client and about itself: `Forwarded`, `X-Forwarded-*`, `Via`; and how it
//! finds a loop.

use std::fmt::Write as _;
use std::hash::{BuildHasher, RandomState};
use std::io::Write as _;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::LazyLock;

use tidegate_http::{ClientAddress, Request, gateway};
use tidegate_http1::Fields;
use tidegate_proxy_protocol::Networks;

use super::fields;

/// Which fields about the client a proxy adds to requests.
///
/// A client's own fields of these names are passed on, and added to, only if the client is in a trusted network: else
/// it could claim any address.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Forwarding {
    /// `X-Forwarded-For`, `X-Forwarded-Proto` and `X-Forwarded-Host`; on.
    pub x_forwarded: bool,
    /// `Forwarded` (RFC 7239); off.
    pub forwarded: bool,
    /// The networks of proxies in front of this one; none.
    pub trusted: Networks,
}

impl Default for Forwarding {
    fn default() -> Self {
        Self { x_forwarded: true, forwarded: false, trusted: Networks::default() }
    }
}

impl Forwarding {
    pub(super) fn trusts(&self, request: &Request) -> bool {
        !self.trusted.is_empty() && self.trusted.contains(peer_ip(request))
    }

    /// The client of a request behind the proxies in front.
    pub(super) fn client(&self, request: &Request) -> ClientAddress {
        gateway::client_of(&self.trusted, request)
    }

    /// The address for which a request counts: the client's, or the peer's where a proxy in front names none.
    pub(super) fn counted_ip(&self, request: &Request) -> Option<IpAddr> {
        gateway::counted_ip(&self.trusted, request)
    }

    /// The address of a request's client alone: `None` if it is not known, or is that of a proxy in front, which has many.
    pub(super) fn single_ip(&self, request: &Request) -> Option<IpAddr> {
        let client = self.client(request);
        client.ip().filter(|_| !client.is_in(&self.trusted))
    }

    /// The client and its port, as a PROXY header names it. The port of a client that is not the peer is not known, and 0.
    pub(super) fn source(&self, request: &Request) -> Option<SocketAddr> {
        let ip = self.client(request).ip()?;
        let port = request.peer().ip().filter(|peer| peer.ip().to_canonical() == ip).map_or(0, |peer| peer.port());
        Some(SocketAddr::new(ip, port))
    }

    /// Whether a field of a request is not passed on, or is added again with more in it.
    pub(super) fn drops(&self, name: &[u8], is_trusted: bool) -> bool {
        let is = |other: &[u8]| fields::is_same(other, name);
        if !(fields::has_prefix(name, b"x-forwarded-") || is(b"forwarded") || is(b"x-real-ip")) {
            return is(b"via");
        }
        // A proxy in front writes the names with hyphens, and may have passed others on.
        let is_trusted = is_trusted && name.iter().all(|byte| byte.is_ascii_alphanumeric() || *byte == b'-');
        !is_trusted || (self.x_forwarded && is(b"x-forwarded-for")) || (self.forwarded && is(b"forwarded"))
    }

    /// Whether a field has a value that the request to the proxy does not have, and the URL does not decide: that of the
    /// client's address, or one that is passed on for some clients only.
    pub(super) fn chooses(&self, name: &[u8]) -> bool {
        let is = |other: &[u8]| fields::is_same(other, name);
        let is_about_client = fields::has_prefix(name, b"x-forwarded-") || is(b"forwarded") || is(b"x-real-ip");
        is_about_client
            && (!self.trusted.is_empty()
                || (self.x_forwarded && is(b"x-forwarded-for"))
                || (self.forwarded && is(b"forwarded")))
    }

    /// Adds the fields about the client. `host` is that of the request; an empty one is in none of them.
    pub(super) fn add(&self, fields: &mut Fields, request: &Request, host: &str, is_trusted: bool) {
        let ip = peer_ip(request);
        let scheme = if request.is_secure() { "https" } else { "http" };
        let has = |name: &str| is_trusted && request.header(name).is_some();
        if self.x_forwarded {
            let mut value = before(request, "x-forwarded-for", is_trusted).into_bytes();
            value.reserve(ADDRESS_BYTES_MAX);
            match ip {
                Some(IpAddr::V4(ip)) => extend_with(&mut value, ip),
                Some(IpAddr::V6(ip)) => drop(write!(value, "{ip}")),
                None => value.extend_from_slice(b"unknown"),
            }
            // Values of fields and a host that the parser has accepted.
            fields.push_valid("X-Forwarded-For", &value);
            if !has("x-forwarded-proto") {
                fields.push_valid("X-Forwarded-Proto", scheme.as_bytes());
            }
            if !host.is_empty() && !has("x-forwarded-host") {
                fields.push_valid("X-Forwarded-Host", host.as_bytes());
            }
        }
        if self.forwarded {
            let mut value = before(request, "forwarded", is_trusted);
            let _ = match ip {
                Some(IpAddr::V4(ip)) => write!(value, "for={ip}"),
                Some(IpAddr::V6(ip)) => write!(value, "for=\"[{ip}]\""),
                None => write!(value, "for=unknown"),
            };
            if !host.is_empty() {
                // A host has no quotes and no backslashes: the parser has checked it.
                let _ = write!(value, ";host=\"{host}\"");
            }
            let _ = write!(value, ";proto={scheme}");
            fields::push(fields, b"Forwarded", value.as_bytes());
        }
    }
}

/// The longest text of an address, one of IPv6.
const ADDRESS_BYTES_MAX: usize = 45;

/// Adds the text of an address. The formatter of the standard library costs ten times as much.
fn extend_with(text: &mut Vec<u8>, ip: Ipv4Addr) {
    for (place, octet) in ip.octets().into_iter().enumerate() {
        if place > 0 {
            text.push(b'.');
        }
        if octet >= 100 {
            text.push(b'0' + octet / 100);
        }
        if octet >= 10 {
            text.push(b'0' + octet / 10 % 10);
        }
        text.push(b'0' + octet % 10);
    }
}

/// The values of earlier proxies, and a comma.
fn before(request: &Request, name: &str, is_trusted: bool) -> String {
    let mut value = String::new();
    if is_trusted {
        let lines = request.headers().filter(|(found, _)| found.eq_ignore_ascii_case(name));
        for line in lines.filter_map(|(_, value)| std::str::from_utf8(value).ok()).filter(|line| !line.is_empty()) {
            value.push_str(line);
            value.push_str(", ");
        }
    }
    value
}

/// The address that this proxy names to the next one.
fn peer_ip(request: &Request) -> Option<IpAddr> {
    request.peer().ip().map(|address| address.ip().to_canonical())
}

/// The name by which a proxy is known in `Via` (RFC 9110 §7.6.3). It is also how a proxy finds that a request has come
/// back to it.
#[derive(Debug, Clone)]
pub(super) struct Pseudonym {
    name: String,
    /// The value for an HTTP/1.1 request that has passed no proxy before.
    via_http1: String,
}

impl Pseudonym {
    /// A name that no other process has.
    pub(super) fn of_process() -> Self {
        static NAME: LazyLock<Pseudonym> = LazyLock::new(|| {
            Pseudonym::new(&format!("tidegate-{:016x}", RandomState::new().hash_one(std::process::id())))
        });
        NAME.clone()
    }

    fn new(name: &str) -> Self {
        Self { name: name.to_owned(), via_http1: format!("1.1 {name}") }
    }

    /// A given name, if it is a token.
    pub(super) fn named(name: &str) -> Option<Self> {
        let is_token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
        (!name.is_empty() && name.bytes().all(is_token)).then(|| Self::new(name))
    }

    /// Whether the request has passed this proxy before.
    pub(super) fn is_in(&self, request: &Request) -> bool {
        let mut vias = request.headers().filter(|(name, _)| name.eq_ignore_ascii_case("via"));
        vias.any(|(_, value)| {
            fields::list(value).any(|hop| {
                let mut parts = hop.split(|byte| matches!(byte, b' ' | b'\t')).filter(|part| !part.is_empty());
                parts.nth(1).is_some_and(|name| name.eq_ignore_ascii_case(self.name.as_bytes()))
            })
        })
    }

    /// Adds `Via`, with the proxies that the request has passed, if it `has_via`, and this one.
    pub(super) fn add(&self, fields: &mut Fields, request: &Request, has_via: bool) {
        if !has_via && request.version() == tidegate_http::Version::HTTP_11 {
            fields.push_valid("Via", self.via_http1.as_bytes());
            return;
        }
        let mut value = before(request, "via", has_via);
        let version = match request.version() {
            tidegate_http::Version::HTTP_10 => "1.0",
            tidegate_http::Version::HTTP_2 => "2",
            tidegate_http::Version::HTTP_3 => "3",
            _ => "1.1",
        };
        for piece in [version, " ", &self.name] {
            value.push_str(piece);
        }
        fields::push(fields, b"Via", value.as_bytes());
    }
}

#[cfg(test)]
mod tests {
    use tidegate_proxy_protocol::Networks;

    use super::*;
    use crate::test_request;

    #[test]
    fn a_client_behind_trusted_proxies_counts_alone_and_a_proxy_does_not() {
        let trusted = Networks::default().and([192, 0, 2, 0].into(), 24).and([198, 51, 100, 3].into(), 32);
        let trusting = Forwarding { trusted, ..Forwarding::default() };
        let named = "X-Forwarded-For: 198.51.100.1\r\nX-Forwarded-For: 198.51.100.2, 198.51.100.3\r\n";
        for (forwarding, lines, single, counted) in [
            (&trusting, named, Some("198.51.100.2"), "198.51.100.2"),
            (&trusting, "X-Forwarded-For: ::ffff:198.51.100.1\r\n", Some("198.51.100.1"), "198.51.100.1"),
            (&trusting, "X-Forwarded-For: unknown\r\n", None, "192.0.2.1"),
            (&trusting, "X-Forwarded-For: 192.0.2.7\r\n", None, "192.0.2.7"),
            (&trusting, "", None, "192.0.2.1"),
            (&Forwarding::default(), named, Some("192.0.2.1"), "192.0.2.1"),
        ] {
            let request = test_request("GET", "/", lines);
            let ip = |text: &str| text.parse::<IpAddr>().expect("an address");
            assert_eq!(forwarding.single_ip(&request), single.map(ip), "{lines}");
            assert_eq!(forwarding.counted_ip(&request), Some(ip(counted)), "{lines}");
        }
    }

    #[test]
    fn a_proxy_header_names_the_client_and_has_the_port_of_the_peer_alone() {
        let trusted = Networks::default().and([192, 0, 2, 0].into(), 24);
        let trusting = Forwarding { trusted, ..Forwarding::default() };
        for (forwarding, expected) in [(&trusting, "198.51.100.1:0"), (&Forwarding::default(), "192.0.2.1:50000")] {
            let request = test_request("GET", "/", "X-Forwarded-For: 198.51.100.1\r\n");
            assert_eq!(forwarding.source(&request), expected.parse().ok());
        }
        let unknown = test_request("GET", "/", "X-Forwarded-For: unknown\r\n");
        assert_eq!(trusting.source(&unknown), None);
    }

    fn added(forwarding: &Forwarding, lines: &str) -> String {
        let request = test_request("GET", "/", lines);
        let is_trusted = forwarding.trusts(&request);
        let mut fields = fields::passed_on(request.head().headers(), &[], |name| forwarding.drops(name, is_trusted));
        forwarding.add(&mut fields, &request, request.host(), is_trusted);
        String::from_utf8(fields.bytes().to_vec()).unwrap()
    }

    #[test]
    fn claims_of_a_client_are_dropped_unless_it_is_trusted() {
        let lines = "X-Forwarded-For: 9.9.9.9\r\nX_Forwarded_For: 8.8.8.8\r\nForwarded: for=7.7.7.7\r\n\
                     X_Forwarded_Port: 2\r\nX-Forwarded-Proto: https\r\nX-Forwarded-Port: 1\r\nX-Real-IP: 6.6.6.6\r\nA: b\r\n";
        let expected = "A: b\r\nX-Forwarded-For: 192.0.2.1\r\nX-Forwarded-Proto: http\r\nX-Forwarded-Host: sea\r\n";
        assert_eq!(added(&Forwarding::default(), lines), expected);
        let trusted = Networks::default().and([192, 0, 2, 0].into(), 24);
        let lines = added(&Forwarding { trusted, ..Forwarding::default() }, lines);
        assert!(!lines.contains('_'), "{lines}");
        assert!(lines.contains("X-Forwarded-For: 9.9.9.9, 192.0.2.1\r\n"), "{lines}");
        assert!(lines.contains("X-Forwarded-Proto: https\r\n") && lines.contains("X-Forwarded-Port: 1\r\n"), "{lines}");
    }

    #[test]
    fn an_address_has_the_text_of_the_standard_library() {
        for ip in [[0, 0, 0, 0], [1, 10, 100, 255], [9, 99, 199, 200], [192, 0, 2, 1], [101, 110, 11, 205]] {
            let mut text = b"a, ".to_vec();
            extend_with(&mut text, ip.into());
            assert_eq!(String::from_utf8(text), Ok(format!("a, {}", Ipv4Addr::from(ip))));
        }
    }

    #[test]
    fn forwarded_is_written_as_rfc_7239_has_it() {
        let forwarding = Forwarding { x_forwarded: false, forwarded: true, ..Forwarding::default() };
        assert_eq!(added(&forwarding, ""), "Forwarded: for=192.0.2.1;host=\"sea\";proto=http\r\n");
    }

    #[test]
    fn a_loop_is_found_in_any_line_of_via() {
        let name = Pseudonym::named("gate").unwrap();
        for (lines, is_loop) in [
            ("", false),
            ("Via: 1.1 gate\r\n", true),
            ("Via: 1.1 other, 1.0  GATE (comment)\r\n", true),
            ("Via: 1.1 other\r\nvia: HTTP/1.1 gate\r\n", true),
            ("Via: 1.1 gateway\r\n", false),
            ("Via: gate other\r\n", false),
        ] {
            assert_eq!(name.is_in(&test_request("GET", "/", lines)), is_loop, "{lines}");
        }
        let mut fields = Fields::new();
        name.add(&mut fields, &test_request("GET", "/", "Via: 1.0 a\r\nVia: 1.1 b\r\n"), true);
        assert_eq!(fields.bytes(), b"Via: 1.0 a, 1.1 b, 1.1 gate\r\n");
        assert!(Pseudonym::named("two words").is_none());
        assert!(Pseudonym::named(&Pseudonym::of_process().name).is_some());
    }
}
