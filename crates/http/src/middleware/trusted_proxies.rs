//! `TrustedProxies` as middleware: it establishes the client of a request.

use super::{Middleware, RequestSpan};
use crate::client_address::TrustedProxies;
use crate::request::Request;
use crate::response::Response;

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

#[cfg(test)]
mod tests {
    use tidegate_proxy_protocol::Networks;

    use super::*;
    use crate::client_address::ClientAddress;
    use crate::client_of::counted_ip;
    use crate::request::tests::request;

    fn ip(text: &str) -> ClientAddress {
        ClientAddress::Ip(text.parse().unwrap())
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
}
