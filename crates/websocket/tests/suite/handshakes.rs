//! The opening handshake of both roles, and their refusals.

use std::sync::Arc;

use tidegate_websocket::handshake::{HandshakeError, Offer, Request, accept_value};
use tidegate_websocket::{Config, Deflate, WebSocket};

const KEY: &str = "dGhlIHNhbXBsZSBub25jZQ==";

/// The fields of a request, with one of them replaced, or left out where the value is empty.
fn request<'a>(changes: &[(&'a str, &'a str)]) -> Vec<(&'a str, &'a [u8])> {
    let mut fields = vec![
        ("Connection", "upgrade"),
        ("Upgrade", "websocket"),
        ("Sec-WebSocket-Version", "13"),
        ("Sec-WebSocket-Key", KEY),
    ];
    for change in changes {
        match fields.iter_mut().find(|(name, _)| *name == change.0) {
            Some(field) => *field = *change,
            None => fields.push(*change),
        }
    }
    fields.into_iter().filter(|(_, value)| !value.is_empty()).map(|(name, value)| (name, value.as_bytes())).collect()
}

fn offered(changes: &[(&'static str, &'static str)]) -> Result<Offer, HandshakeError> {
    Offer::of_upgrade("GET", request(changes))
}

#[test]
fn requests_that_a_server_refuses() {
    for (changes, error, status) in [
        (&[("Connection", "")][..], HandshakeError::Upgrade, 426),
        (&[("Connection", "keep-alive")], HandshakeError::Upgrade, 426),
        (&[("Upgrade", "")], HandshakeError::Upgrade, 426),
        (&[("Upgrade", "h2c, websockets")], HandshakeError::Upgrade, 426),
        (&[("Sec-WebSocket-Version", "")], HandshakeError::Version, 426),
        (&[("Sec-WebSocket-Version", "8, 13")], HandshakeError::Version, 426),
        (&[("Sec-WebSocket-Version", "12")], HandshakeError::Version, 426),
        (&[("Sec-WebSocket-Key", "")], HandshakeError::Key, 400),
        (&[("Sec-WebSocket-Key", "short")], HandshakeError::Key, 400),
        (&[("Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZSE=AA==")], HandshakeError::Key, 400),
        (&[("sec-websocket-key", KEY)], HandshakeError::Key, 400),
        (&[("sec-websocket-version", "13")], HandshakeError::Version, 426),
        (&[("Sec-WebSocket-Protocol", "a b")], HandshakeError::Protocol, 400),
        (&[("Sec-WebSocket-Protocol", "a, a")], HandshakeError::Protocol, 400),
    ] {
        let refused = offered(changes).unwrap_err();
        assert_eq!((refused, refused.status()), (error, status), "{changes:?}");
    }
    let post = Offer::of_upgrade("POST", request(&[])).unwrap_err();
    assert_eq!((post, post.status()), (HandshakeError::Method, 405));
    let many = (0..33).map(|number| format!("p{number}")).collect::<Vec<_>>().join(",");
    let fields = request(&[]).into_iter().chain([("Sec-WebSocket-Protocol", many.as_bytes())]);
    assert_eq!(Offer::of_upgrade("GET", fields).unwrap_err(), HandshakeError::Protocol);
}

#[test]
fn a_server_selects_only_offers_of_the_client() {
    let config = Arc::new(Config::default());
    let offer = offered(&[("Sec-WebSocket-Protocol", "chat, tide"), ("Origin", "https://sea.example")]).unwrap();
    assert_eq!(offer.protocols().collect::<Vec<_>>(), ["chat", "tide"]);
    assert_eq!(offer.origin(), Some(&b"https://sea.example"[..]));
    assert_eq!((offer.select(&["tide", "chat"]), offer.select(&["mqtt"])), (Some("tide"), None));
    assert_eq!(offer.accept(&config, Some("mqtt")).protocol(), None, "it was not offered");
    let fields: Vec<_> = offered(&[]).unwrap().accept(&config, None).fields().map(|(name, _)| name).collect();
    assert_eq!(fields, ["Sec-WebSocket-Accept"]);
    // HTTP/2 has no key, so there is nothing to answer.
    let connect = Offer::of_extended_connect(request(&[])).unwrap();
    assert_eq!(connect.accept(&config, None).fields().count(), 0);
    assert_eq!(Offer::of_extended_connect([]).unwrap_err(), HandshakeError::Version);
}

fn client() -> Request {
    let mut config = Config::default();
    config.deflate = Some(Deflate::default());
    Request::new(Arc::new(config)).protocol("chat").unwrap().protocol("tide").unwrap()
}

/// The client's result for a response in which one field is replaced, or left out where the value is empty.
fn complete(request: &Request, changes: &[(&str, &str)]) -> Result<(WebSocket, Option<Box<str>>), HandshakeError> {
    let key = request.fields().find(|(name, _)| *name == "Sec-WebSocket-Key").unwrap().1;
    let accept = accept_value(key.as_bytes());
    let mut fields = vec![("Connection", "Upgrade"), ("Upgrade", "WebSocket"), ("Sec-WebSocket-Accept", &*accept)];
    for change in changes {
        match fields.iter_mut().find(|(name, _)| *name == change.0) {
            Some(field) => *field = *change,
            None => fields.push(*change),
        }
    }
    let fields = fields.iter().filter(|(_, value)| !value.is_empty());
    request.complete(101, fields.map(|(name, value)| (*name, value.as_bytes())))
}

#[test]
fn responses_that_a_client_refuses() {
    let request = client();
    for (changes, error) in [
        (&[("Connection", "")][..], HandshakeError::Upgrade),
        (&[("Upgrade", "h2c")], HandshakeError::Upgrade),
        (&[("Sec-WebSocket-Accept", "")], HandshakeError::Accept),
        (&[("Sec-WebSocket-Accept", "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=")], HandshakeError::Accept),
        (&[("sec-websocket-accept", "x")], HandshakeError::Accept),
        (&[("Sec-WebSocket-Protocol", "mqtt")], HandshakeError::Protocol),
        (&[("Sec-WebSocket-Protocol", "chat, tide")], HandshakeError::Protocol),
        (&[("Sec-WebSocket-Extensions", "x-gzip")], HandshakeError::Extension),
        (&[("Sec-WebSocket-Extensions", "permessage-deflate; x=1")], HandshakeError::Extension),
    ] {
        assert_eq!(complete(&request, changes).unwrap_err(), error, "{changes:?}");
    }
    assert_eq!(request.complete(200, []).unwrap_err(), HandshakeError::Status(200));
    assert_eq!(request.clone().protocol("chat").unwrap_err(), HandshakeError::Protocol);
    assert_eq!(request.protocol("a b").unwrap_err(), HandshakeError::Protocol);
}

#[test]
fn a_client_and_a_server_of_ours_agree() {
    let mut config = Config::default();
    config.deflate = Some(Deflate::default());
    let request = client();
    let upgrade = [("Connection", "upgrade"), ("Upgrade", "websocket")];
    let fields: Vec<_> =
        upgrade.into_iter().chain(request.fields()).map(|(name, value)| (name, value.as_bytes())).collect();
    let accepted = Offer::of_upgrade("GET", fields).unwrap().accept(&Arc::new(config), Some("tide"));
    assert!(accepted.codec().is_compressing());
    let changes: Vec<_> = accepted.fields().collect();
    let (codec, protocol) = complete(&request, &changes).unwrap();
    assert!(codec.is_compressing());
    assert_eq!(protocol.as_deref(), Some("tide"));
    let (codec, protocol) = complete(&request, &[]).unwrap();
    assert!(!codec.is_compressing() && protocol.is_none(), "a server may select nothing");
}

#[test]
fn keys_differ() {
    let keys: std::collections::HashSet<_> = (0..100)
        .map(|_| client().fields().find(|(name, _)| *name == "Sec-WebSocket-Key").unwrap().1.to_owned())
        .collect();
    assert_eq!(keys.len(), 100);
}
