//! Requests that open a WebSocket: accepted and refused ones, and the successor.

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use tidegate::codec::DynOver;
use tidegate::http::{Config, HttpHandler, Router, WebSocketUpgrade};
use tidegate::websocket::{self, Message, WebSocket};
use tidegate::{Channel, Context, Handler, Outcome, http1, task};
use tidegate_testkit::Embedded;

/// A text of a client with a mask of zeros.
const EBB: &[u8] = b"\x81\x83\0\0\0\0ebb";

async fn echo(mut channel: Channel<DynOver<WebSocket>>) -> Result<(), Box<dyn Error>> {
    while let Some(message) = channel.recv().await? {
        if !matches!(message, Message::Close(_)) {
            channel.send(message)?;
        }
    }
    Ok(())
}

struct Echo;

impl Handler<DynOver<WebSocket>> for Echo {
    type Post = ();

    fn message(&mut self, message: Message, cx: &mut Context<'_, DynOver<WebSocket>>) -> Outcome<DynOver<WebSocket>> {
        if matches!(message, Message::Close(_)) { Outcome::Continue } else { cx.send(message).into() }
    }
}

fn connections() -> (http1::Server, HttpHandler) {
    let mut config = websocket::Config::default();
    config.deflate = Some(websocket::Deflate::default());
    let config = Arc::new(config);
    let router = Router::new()
        .get("/channel", move |upgrade: WebSocketUpgrade| {
            upgrade.config(&config).protocols(&["tide", "chat"]).channel(echo)
        })
        .get("/handler", |upgrade: WebSocketUpgrade| upgrade.handler(Echo))
        .get("/listed", |upgrade: WebSocketUpgrade| upgrade.origins(&["https://sea.example"]).handler(Echo))
        .get("/later", async |upgrade: WebSocketUpgrade| {
            task::sleep(Duration::from_secs(1)).await;
            upgrade.channel(echo)
        })
        .get("/later/handler", async |upgrade: WebSocketUpgrade| {
            task::sleep(Duration::from_secs(1)).await;
            upgrade.handler(Echo)
        })
        .get("/push", |upgrade: WebSocketUpgrade| {
            upgrade.push(async |mut writer| {
                writer.send("ebb".into())?;
                task::sleep(Duration::from_secs(100)).await;
                writer.send("flow".into())?;
                Ok::<_, Box<dyn Error>>(())
            })
        })
        .get("/any", |upgrade: WebSocketUpgrade| upgrade.any_origin().handler(Echo))
        .get("/optional", |upgrade: Option<WebSocketUpgrade>| match upgrade {
            Some(upgrade) => upgrade.handler(Echo),
            None => tidegate::http::Response::text("a page"),
        });
    Config::new().connections(router)()
}

const HANDSHAKE: &str = "Connection: keep-alive, Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
                         Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n";

/// The response to a request with these fields, and the bytes behind it for `then`.
fn ask(path: &str, fields: &str, then: &[u8]) -> (String, Vec<u8>) {
    let (codec, handler) = connections();
    let mut pipe = Embedded::new(codec, handler);
    pipe.receive(&[format!("GET {path} HTTP/1.1\r\nHost: sea:80\r\n{fields}\r\n").as_bytes(), then].concat());
    let wire = pipe.take_written();
    let end = wire.windows(4).position(|bytes| bytes == b"\r\n\r\n").expect("a head") + 4;
    (String::from_utf8(wire[..end].to_vec()).unwrap(), wire[end..].to_vec())
}

#[test]
fn a_channel_or_a_handler_takes_over_with_the_bytes_behind_the_request() {
    for path in ["/channel", "/handler", "/optional"] {
        let (head, wire) = ask(path, HANDSHAKE, EBB);
        assert!(head.starts_with("HTTP/1.1 101 Switching Protocols\r\n"), "{path}: {head}");
        assert!(head.contains("Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n"), "{head}");
        assert_eq!(wire, b"\x81\x03ebb", "{path}");
    }
}

#[test]
fn subprotocols_and_compression_are_negotiated() {
    let offers = "Sec-WebSocket-Protocol: chat, tide\r\nSec-WebSocket-Extensions: permessage-deflate\r\n";
    let (head, wire) =
        ask("/channel", &format!("{HANDSHAKE}{offers}"), b"\xC1\x87\0\0\0\0\xF2\x48\xCD\xC9\xC9\x07\x00");
    assert!(head.contains("Sec-WebSocket-Protocol: tide\r\n"), "{head}");
    let extension = "permessage-deflate; server_no_context_takeover; client_no_context_takeover\r\n";
    assert!(head.contains(&format!("Sec-WebSocket-Extensions: {extension}")), "{head}");
    assert_eq!(wire, b"\x81\x05Hello");
    let (head, _) = ask("/handler", &format!("{HANDSHAKE}{offers}"), b"");
    assert!(!head.contains("Protocol:") && !head.contains("Extensions"), "nothing is configured: {head}");
}

#[test]
fn requests_that_are_no_handshake_are_refused() {
    let status = |fields: &str| ask("/handler", fields, b"").0[9..12].to_owned();
    assert_eq!(status(HANDSHAKE), "101");
    assert_eq!(status(""), "426");
    assert_eq!(status(&HANDSHAKE.replace("websocket", "other")), "426");
    assert_eq!(status(&HANDSHAKE.replace("13", "12")), "426");
    assert_eq!(status(&HANDSHAKE.replace("ZQ==", "ZQ=")), "400");
    assert_eq!(status(&HANDSHAKE.replace("dGhl", "dGhlIHNo")), "400");
    assert_eq!(status(&format!("{HANDSHAKE}Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n")), "400");
    assert_eq!(status(&format!("{HANDSHAKE}Sec-WebSocket-Protocol: a, a\r\n")), "400");
    assert_eq!(status(&format!("{HANDSHAKE}Origin: http://sea:80\r\nOrigin: http://sea:80\r\n")), "400");
    for path in ["/handler", "/channel", "/optional"] {
        for then in [&b""[..], b"ebb"] {
            let (head, _) = ask(path, &format!("{HANDSHAKE}Content-Length: 3\r\n"), then);
            assert!(head.starts_with("HTTP/1.1 400 "), "a body on {path}: {head}");
        }
    }
    let (codec, handler) = connections();
    let mut pipe = Embedded::new(codec, handler);
    pipe.receive(format!("GET /handler HTTP/1.0\r\nHost: sea\r\n{HANDSHAKE}\r\n").as_bytes());
    assert!(pipe.take_written().starts_with(b"HTTP/1.1 426 "), "HTTP/1.0 has no upgrade");
    let (head, _) = ask("/handler", &HANDSHAKE.replace("13", "8"), b"");
    assert!(head.contains("Sec-WebSocket-Version: 13\r\n"), "{head}");
    assert_eq!(ask("/optional", "", b"").1, b"a page");
}

#[test]
fn a_script_of_another_site_is_refused_unless_the_site_is_allowed() {
    let status =
        |path: &str, origin: &str| ask(path, &format!("{HANDSHAKE}Origin: {origin}\r\n"), b"").0[9..12].to_owned();
    assert_eq!(status("/handler", "http://sea:80"), "101");
    assert_eq!(status("/handler", "http://sea"), "403");
    assert_eq!(status("/handler", "https://evil.example"), "403");
    assert_eq!(status("/handler", "null"), "403");
    assert_eq!(status("/listed", "https://sea.example"), "101");
    assert_eq!(status("/listed", "https://evil.example"), "403");
    assert_eq!(status("/any", "https://evil.example"), "101");
}

#[test]
fn a_websocket_that_opens_during_a_drain_is_told_to_close() {
    for path in ["/later", "/later/handler"] {
        let (codec, handler) = connections();
        let mut pipe = Embedded::new(codec, handler);
        pipe.receive(format!("GET {path} HTTP/1.1\r\nHost: sea\r\n{HANDSHAKE}\r\n").as_bytes());
        pipe.drain(Duration::from_secs(60));
        pipe.advance(Duration::from_secs(2));
        let wire = pipe.take_written();
        assert!(wire.starts_with(b"HTTP/1.1 101 "), "{path}: {}", wire.escape_ascii());
        assert!(wire.ends_with(b"\r\n\r\n\x88\x02\x03\xE9"), "{path}: {}", wire.escape_ascii());
        pipe.receive(b"\x88\x82\0\0\0\0\x03\xE9");
        assert!(pipe.is_write_closed(), "{path}");
    }
}

/// A pong with an empty payload, masked by zeros.
const PONG: &[u8] = b"\x8A\x80\0\0\0\0";

#[test]
fn a_task_that_only_sends_has_pings_and_notices_a_client_that_is_gone() {
    let open = || {
        let (codec, handler) = connections();
        let mut pipe = Embedded::new(codec, handler);
        pipe.receive(format!("GET /push HTTP/1.1\r\nHost: sea:80\r\n{HANDSHAKE}\r\n").as_bytes());
        assert!(pipe.take_written().ends_with(b"\r\n\r\n\x81\x03ebb"));
        pipe
    };
    // A client that answers gets the rest.
    let (mut pipe, mut pings) = (open(), 0);
    let rest = loop {
        pipe.advance(Duration::from_secs(1));
        match &pipe.take_written()[..] {
            b"" => {}
            b"\x89\0" => {
                pings += 1;
                pipe.receive(&[PONG, EBB].concat());
            }
            rest => break rest.to_vec(),
        }
    };
    assert_eq!(rest, b"\x81\x04flow\x88\x02\x03\xE8");
    assert!(pings > 0);
    // One that is silent is closed, before the task ends by itself.
    let mut pipe = open();
    let written: Vec<u8> = (0..99)
        .flat_map(|_| {
            pipe.advance(Duration::from_secs(1));
            pipe.take_written()
        })
        .collect();
    assert!(written.starts_with(b"\x89\0") && pipe.is_closed(), "{written:?}");
    // One that closes is answered.
    let mut pipe = open();
    pipe.receive(b"\x88\x82\0\0\0\0\x03\xE8");
    assert_eq!(pipe.take_written(), b"\x88\x02\x03\xE8");
}
