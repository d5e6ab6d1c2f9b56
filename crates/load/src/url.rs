//! `Url`: the server and the target of a load.

use std::fmt;
use std::net::{SocketAddr, SocketAddrV6, ToSocketAddrs};
use std::str::FromStr;

use tidegate::sys::parse_zoned;

/// `http://HOST[:PORT][/TARGET]` or the same with `https`, `ws` or `wss`, parsed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Url {
    text: String,
    /// The value of the `Host` field: with the port unless it is the default.
    authority: String,
    /// Without the brackets of an IPv6 address, and with its zone (RFC 6874), which the server does not see.
    host: String,
    port: u16,
    target: String,
    is_secure: bool,
    is_websocket: bool,
}

impl Url {
    /// Whether the connection is encrypted: `https` and `wss`.
    pub(crate) fn is_secure(&self) -> bool {
        self.is_secure
    }

    /// Whether the load is one of messages: `ws` and `wss`.
    pub(crate) fn is_websocket(&self) -> bool {
        self.is_websocket
    }

    /// The name or address of the server, without brackets and zone.
    pub(crate) fn host(&self) -> &str {
        self.host.split('%').next().unwrap_or_default()
    }

    /// The value of the `Host` field.
    pub(crate) fn authority(&self) -> &str {
        &self.authority
    }

    /// Path and query.
    pub(crate) fn target(&self) -> &str {
        &self.target
    }

    /// Resolves the host with the system's resolver.
    pub(crate) fn resolve(&self) -> Result<Vec<SocketAddr>, BadUrl> {
        if let Some((ip, zone)) = parse_zoned(&self.host) {
            return Ok(vec![SocketAddrV6::new(ip, self.port, 0, zone).into()]);
        }
        match (self.host.as_str(), self.port).to_socket_addrs() {
            Ok(addresses) => Ok(addresses.collect()),
            Err(error) => Err(BadUrl(format!("cannot resolve '{}': {error}", self.host))),
        }
    }
}

impl FromStr for Url {
    type Err = BadUrl;

    fn from_str(text: &str) -> Result<Self, BadUrl> {
        let bad =
            |why: &str| Err(BadUrl(format!("'{text}' {why}; write http://HOST[:PORT]/PATH, or https, ws or wss")));
        let Some((scheme, rest)) = text.split_once("://") else { return bad("has no scheme") };
        let (is_secure, is_websocket) = match &*scheme.to_ascii_lowercase() {
            "http" => (false, false),
            "https" => (true, false),
            "ws" => (false, true),
            "wss" => (true, true),
            _ => return bad("has a scheme other than http, https, ws and wss"),
        };
        let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
        let (authority, target) = rest.split_at(end);
        // A fragment is not sent (RFC 9110 §4.2.5).
        let target = target.split('#').next().unwrap_or_default();
        if authority.contains('@') {
            return bad("names a user, which is not sent in HTTP");
        }
        let (host, port) = match authority.rsplit_once(':') {
            Some((host, port)) if !port.ends_with(']') => (host, port),
            _ => (authority, ""),
        };
        // Rust's integer parser accepts a sign.
        let is_number = port.bytes().all(|byte| byte.is_ascii_digit());
        let usual_port = if is_secure { USUAL_TLS_PORT } else { USUAL_PORT };
        let Some(port) = (if port.is_empty() { Some(usual_port) } else { port.parse().ok().filter(|_| is_number) })
        else {
            return bad("has a bad port");
        };
        if port == 0 {
            return bad("has port 0, which is not a valid port");
        }
        let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
        if host.is_empty() || bare.is_none() && host.contains([':', '[', ']']) {
            return bad("has no host");
        }
        let unzoned = host.split_once('%').filter(|_| bare.is_some()).map(|(ip, _)| format!("{ip}]"));
        let seen = unzoned.as_deref().unwrap_or(host);
        let authority = if port == usual_port { seen.to_owned() } else { format!("{seen}:{port}") };
        let target = if target.starts_with('/') { target.to_owned() } else { format!("/{target}") };
        let (text, host) = (text.to_owned(), bare.unwrap_or(host).to_owned());
        Ok(Self { text, authority, host, port, target, is_secure, is_websocket })
    }
}

impl fmt::Display for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// Why a URL is invalid, and a suggestion.
#[derive(Debug)]
pub(crate) struct BadUrl(String);

impl fmt::Display for BadUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for BadUrl {}

const USUAL_PORT: u16 = 80;

const USUAL_TLS_PORT: u16 = 443;

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(text: &str) -> (String, String, u16, String) {
        let url: Url = text.parse().expect(text);
        (url.authority().to_owned(), url.host().to_owned(), url.port, url.target().to_owned())
    }

    fn expected(authority: &str, host: &str, port: u16, target: &str) -> (String, String, u16, String) {
        (authority.into(), host.into(), port, target.into())
    }

    #[test]
    fn a_url_is_parsed_into_its_parts() {
        for (text, authority, host, port, target) in [
            ("http://127.0.0.1:8080/plaintext", "127.0.0.1:8080", "127.0.0.1", 8080, "/plaintext"),
            ("http://[fe80::1%25lo]:8080/", "[fe80::1]:8080", "fe80::1", 8080, "/"),
            ("http://localhost", "localhost", "localhost", 80, "/"),
            ("HTTP://localhost:80/?a=b", "localhost", "localhost", 80, "/?a=b"),
            ("http://localhost?a=b", "localhost", "localhost", 80, "/?a=b"),
            ("http://localhost/a#b", "localhost", "localhost", 80, "/a"),
            ("http://[::1]:81/", "[::1]:81", "::1", 81, "/"),
            ("http://[::1]", "[::1]", "::1", 80, "/"),
            ("http://localhost:/", "localhost", "localhost", 80, "/"),
            ("https://localhost/a", "localhost", "localhost", 443, "/a"),
            ("https://localhost:80/", "localhost:80", "localhost", 80, "/"),
            ("ws://localhost/a", "localhost", "localhost", 80, "/a"),
            ("WSS://localhost", "localhost", "localhost", 443, "/"),
        ] {
            assert_eq!(parts(text), expected(authority, host, port, target), "{text}");
        }
    }

    #[test]
    fn an_invalid_url_is_refused_with_the_expected_form() {
        for (text, why) in [
            ("", "no scheme"),
            ("localhost:8080/", "no scheme"),
            ("ftp://localhost/", "other than http"),
            ("http://", "no host"),
            ("http://:80/", "no host"),
            ("http:///path", "no host"),
            ("http://[::1/", "no host"),
            ("http://::1/", "no host"),
            ("http://localhost:99999/", "bad port"),
            ("http://localhost:http/", "bad port"),
            ("http://localhost:+80/", "bad port"),
            ("http://localhost:0/", "port 0"),
            ("http://me@localhost/", "user"),
        ] {
            let error = text.parse::<Url>().expect_err(text).to_string();
            assert!(error.contains(why) && error.contains("http://HOST"), "{text}: {error}");
        }
    }
}
