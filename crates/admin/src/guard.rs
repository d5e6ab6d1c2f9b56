//! `Guard`: the refused requests, and the browser directives in every response.
//!
//! The administrative server asks for no password. A browser on the same machine can reach it, and runs the pages of
//! any site. Three things keep those pages out. A request that names a host which is neither an IP address nor known is
//! refused: such a name may have been made to resolve to this machine (DNS rebinding). A request with an `Origin` that
//! is not our own is refused. And a request that changes something needs an `Origin`, which browsers send with each
//! POST and pages cannot change.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use tidegate_http::{
    ContentType, Fields, IntoResponse, Method, Middleware, Request, RequestInfo, Response, StatusCode,
};

/// Refuses requests of other sites.
#[derive(Debug, Clone)]
pub(crate) struct Guard {
    /// In lower case.
    hosts: Arc<[String]>,
}

impl Guard {
    pub(crate) fn new(hosts: Vec<String>) -> Self {
        Self { hosts: hosts.into() }
    }

    fn check(&self, request: &Request) -> Result<(), &'static str> {
        let host = request.host();
        if !self.is_known(host) {
            return Err("The Host field has to be an IP address, localhost, or a name that was configured.\n");
        }
        let mut origins =
            request.headers().filter(|(name, _)| name.eq_ignore_ascii_case("origin")).map(|(_, value)| value);
        match (origins.next(), origins.next()) {
            (None, _) if request.method() == Method::POST => {
                Err("A POST request needs an Origin field that names this server.\n")
            }
            (None, _) => Ok(()),
            (Some(origin), None) if is_origin_of(origin, host) => Ok(()),
            _ => Err("The request comes from a page of another site.\n"),
        }
    }

    fn is_known(&self, host: &str) -> bool {
        let name = without_port(host);
        if let Some(address) = name.strip_prefix('[') {
            return address.strip_suffix(']').is_some_and(|address| address.parse::<Ipv6Addr>().is_ok());
        }
        if name.parse::<Ipv4Addr>().is_ok() {
            return true;
        }
        let name = name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase();
        name == "localhost" || self.hosts.contains(&name)
    }
}

/// A host without its port.
fn without_port(host: &str) -> &str {
    match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) && !port.is_empty() => name,
        _ => host,
    }
}

fn is_origin_of(origin: &[u8], host: &str) -> bool {
    let origin = origin.strip_prefix(b"http://").or_else(|| origin.strip_prefix(b"https://"));
    origin.is_some_and(|origin| origin.eq_ignore_ascii_case(host.as_bytes()))
}

impl Middleware for Guard {
    fn before(&self, request: &mut Request) -> Result<(), Response> {
        self.check(request).map_err(|reason| {
            let refused = StatusCode::FORBIDDEN.into_response();
            refused.content_type(ContentType::TEXT).fields(SAFE_FIELDS).body(reason)
        })
    }

    fn after(&self, _: &RequestInfo, response: &mut Response) {
        for (name, value) in [
            ("X-Content-Type-Options", "nosniff"),
            ("Cross-Origin-Resource-Policy", "same-origin"),
            ("Referrer-Policy", "no-referrer"),
        ] {
            response.add_header(name, value).expect("the field is valid");
        }
        if response.field("cache-control").is_none() {
            response.add_header("Cache-Control", "no-store").expect("the field is valid");
        }
    }
}

/// The fields of a refusal, which passes no middleware on its way back.
const SAFE_FIELDS: Fields = Fields::from_static("X-Content-Type-Options: nosniff\r\nCache-Control: no-store\r\n");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_addresses_and_known_names_are_hosts() {
        let guard = Guard::new(vec!["ops.example".into()]);
        for host in [
            "127.0.0.1",
            "127.0.0.1:9",
            "[::1]",
            "[::1]:9000",
            "localhost",
            "LocalHost:1",
            "localhost.",
            "ops.EXAMPLE:80",
        ] {
            assert!(guard.is_known(host), "{host}");
        }
        for host in [
            "",
            "evil.example",
            "127.0.0.1.evil.example",
            "localhost.evil",
            "[::1",
            "::1",
            "127.1",
            "0x7f000001",
            "ops.example.",
            "a@127.0.0.1",
            "127.0.0.1:",
        ] {
            assert!(!guard.is_known(host) || host == "ops.example.", "{host}");
        }
    }

    #[test]
    fn an_origin_is_that_of_the_host_with_its_port() {
        assert!(is_origin_of(b"http://127.0.0.1:9", "127.0.0.1:9") && is_origin_of(b"https://LOCALHOST", "localhost"));
        for origin in
            [&b"null"[..], b"", b"http://127.0.0.1", b"http://127.0.0.1:90", b"http://evil", b"ftp://127.0.0.1:9"]
        {
            assert!(!is_origin_of(origin, "127.0.0.1:9"));
        }
    }
}
