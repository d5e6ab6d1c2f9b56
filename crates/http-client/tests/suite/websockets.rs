//! WebSockets of the client: agreed parameters, servers that answer the handshake wrongly, servers that break the rules
//! after it, proxies, and opening again.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use tidegate::codec::Stages as _;
use tidegate::http::client::{ClientError, Proxies, Proxy, ProxyError, Reconnect, WebSocketChannel};
use tidegate::http::{Client, HeaderMap, IntoResponse, Response, Router, Server, StatusCode, WebSocketUpgrade};
use tidegate::tls::{Certificates, ClientConfig, Provider, ServerConfig};
use tidegate::websocket::handshake::{HandshakeError, accept_value};
use tidegate::websocket::{Close, CloseCode, Config, Deflate, Message};
use tidegate::{CloseReason, task};

use crate::proxies::relay;
use crate::support::{Any, Scripted, Served, read_head, run};

/// Sends every message back.
async fn echo(mut channel: WebSocketChannel) -> Result<(), Any> {
    while let Some(message) = channel.recv().await? {
        if !matches!(message, Message::Close(_)) {
            channel.send(message)?;
            channel.ready().await?;
        }
    }
    Ok(channel.close().await?)
}

fn deflating() -> Arc<Config> {
    let mut config = Config::default();
    config.deflate = Some(Deflate::default());
    Arc::new(config)
}

fn router() -> Router {
    Router::new()
        .get("/echo", |upgrade: WebSocketUpgrade| {
            upgrade.config(&deflating()).protocols(&["tide", "chat"]).channel(echo)
        })
        .get("/token", |headers: HeaderMap, upgrade: WebSocketUpgrade| {
            let is_known = headers.get("Authorization").is_some_and(|value| value == "Bearer of-the-sea");
            if is_known { upgrade.channel(echo) } else { StatusCode::UNAUTHORIZED.into_response() }
        })
        .get("/moved", || Response::text("").with_status(StatusCode::FOUND).header("Location", "/echo"))
}

fn ws(uri: &str) -> String {
    uri.replacen("http", "ws", 1)
}

/// The text that comes back for one that is sent.
async fn back(channel: &mut WebSocketChannel, text: &str) -> Result<String, Any> {
    channel.send(text.to_owned().into())?;
    match channel.recv().await? {
        Some(Message::Text(text)) => Ok(text.to_string()),
        other => Err(format!("{other:?}").into()),
    }
}

/// The part of a head behind the name of a field.
fn field<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    head.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
}

/// A good response to a handshake, with more fields.
fn accepted(head: &str, more: &str) -> String {
    let accept = accept_value(field(head, "Sec-WebSocket-Key").expect("a key").as_bytes());
    format!(
        "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
         Sec-WebSocket-Accept: {accept}\r\n{more}\r\n"
    )
}

#[test]
fn a_client_agrees_on_a_subprotocol_and_on_compression() {
    let server = Served::start(router);
    let uri = ws(&server.uri("/echo"));
    run(async move {
        let client = Client::new();
        for (offered, agreed) in [(&["reef", "chat"][..], Some("chat")), (&["reef"], None), (&[], None)] {
            let mut builder = client.websocket(&uri).config(&deflating());
            for protocol in offered {
                builder = builder.protocol(*protocol);
            }
            let (mut channel, protocol) = builder.open_with_protocol().await?;
            assert_eq!(protocol.as_deref(), agreed);
            assert!(channel.with_codec(|codec| codec.codec().is_compressing())?);
            assert_eq!(back(&mut channel, &"ebb ".repeat(5000)).await?, "ebb ".repeat(5000));
            channel.send(Close::from(CloseCode::NORMAL).into())?;
            while channel.recv().await?.is_some() {}
            channel.close().await?;
        }
        let mut plain = client.websocket(&uri).open().await?;
        assert!(!plain.with_codec(|codec| codec.codec().is_compressing())?);
        assert_eq!(back(&mut plain, "flow").await?, "flow");
        assert_eq!(client.connections(), 0, "an open WebSocket is none of the pool");
        Ok(())
    });
}

#[test]
fn a_handshake_that_the_server_refuses_is_an_error_with_its_status() {
    let server = Served::start(router);
    let of = |target| ws(&server.uri(target));
    let (token, moved, nothing) = (of("/token"), of("/moved"), of("/nothing"));
    run(async move {
        let client = Client::new();
        for (uri, status) in [(&token, 401), (&moved, 302), (&nothing, 404)] {
            let error = client.websocket(uri).open().await.expect_err("it is refused");
            let refused = matches!(&error, ClientError::WebSocket(HandshakeError::Status(found)) if *found == status);
            assert!(refused, "{error}");
        }
        let mut channel = client.websocket(&token).bearer_auth("of-the-sea").open().await?;
        assert_eq!(back(&mut channel, "ebb").await?, "ebb");
        Ok(())
    });
}

#[test]
fn a_server_that_answers_the_handshake_wrongly_is_left() {
    type Answer = fn(&str) -> String;
    let cases: [(Answer, HandshakeError); 8] = [
        (|_| "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n".into(), HandshakeError::Status(200)),
        (|_| accepted("Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==", ""), HandshakeError::Accept),
        (
            |_| "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n".into(),
            HandshakeError::Accept,
        ),
        (|head| accepted(head, "Sec-WebSocket-Accept: eA==\r\n"), HandshakeError::Accept),
        (|head| accepted(head, "Sec-WebSocket-Protocol: reef\r\n"), HandshakeError::Protocol),
        (|head| accepted(head, "Sec-WebSocket-Extensions: permessage-deflate\r\n"), HandshakeError::Extension),
        (|head| accepted(head, "Sec-WebSocket-Extensions: x-tide\r\n"), HandshakeError::Extension),
        (|head| accepted(head, "").replace("websocket", "shout"), HandshakeError::Upgrade),
    ];
    for (number, (answer, expected)) in cases.into_iter().enumerate() {
        let server = Scripted::start(move |_, stream| {
            let Some(head) = read_head(stream) else { return };
            assert!(head.starts_with("GET /ws?a HTTP/1.1\r\n"), "{head}");
            assert_eq!(field(&head, "Sec-WebSocket-Version"), Some("13"));
            assert_eq!(field(&head, "Sec-WebSocket-Extensions"), None);
            let _ = stream.write_all(answer(&head).as_bytes());
            // The client closes the connection.
            let _ = stream.read(&mut [0]);
        });
        let uri = ws(&server.uri("/ws?a"));
        run(async move {
            let client = Client::new();
            let error = client.websocket(&uri).protocol("tide").open().await.expect_err("it answers wrongly");
            match &error {
                ClientError::WebSocket(found) if *found == expected => {}
                // HTTP itself refuses a response that says both.
                ClientError::Closed(_) if expected == HandshakeError::Upgrade => {}
                _ => panic!("case {number}: {error}"),
            }
            Ok(())
        });
    }
}

#[test]
fn a_server_that_breaks_the_rules_of_frames_is_cut_off_with_the_code_for_it() {
    let cases: [(&'static [u8], u16); 5] = [
        // Masked; a reserved bit; an opcode that there is not; invalid UTF-8; a message that is too long.
        (b"\x81\x83\0\0\0\0ebb", 1002),
        (b"\xC1\x03ebb", 1002),
        (b"\x83\x03ebb", 1002),
        (b"\x81\x02\xC3\x28", 1007),
        (b"\x82\x7F\0\0\0\0\x40\0\0\0", 1009),
    ];
    for (frame, code) in cases {
        let is_read = Arc::new(AtomicBool::new(false));
        let has_read = is_read.clone();
        let server = Scripted::start(move |_, stream| {
            let head = read_head(stream).expect("a handshake");
            // The first frame may come with the response.
            let answer = [accepted(&head, "").as_bytes(), frame].concat();
            stream.write_all(&answer).expect("it is sent");
            let mut frame = [0; 8];
            stream.read_exact(&mut frame).expect("a close frame");
            let [0x88, 0x82, key @ .., high, low] = frame else { panic!("{frame:?}") };
            assert_eq!(u16::from_be_bytes([high ^ key[0], low ^ key[1]]), code);
            has_read.store(true, Ordering::SeqCst);
        });
        let uri = ws(&server.uri("/"));
        run(async move {
            let mut channel = Client::new().websocket(&uri).open().await?;
            let error = channel.recv().await.expect_err("the server breaks the rules");
            let tidegate::ChannelError::Closed(reason) = &error else { panic!("{error}") };
            assert!(matches!(&**reason, CloseReason::Protocol(_)), "{reason}");
            // The loop sends the close frame as long as it runs.
            while !is_read.load(Ordering::SeqCst) {
                task::sleep(Duration::from_millis(1)).await;
            }
            Ok(())
        });
    }
}

#[test]
fn a_server_that_does_not_answer_the_handshake_is_left_in_time() {
    let server = Scripted::start(|_, stream| {
        let _ = read_head(stream);
        let _ = stream.read(&mut [0]);
    });
    let uri = ws(&server.uri("/"));
    run(async move {
        let error = Client::new().websocket(&uri).timeout(Duration::from_millis(50)).open().await;
        assert!(error.as_ref().is_err_and(ClientError::is_timeout), "{error:?}");
        Ok(())
    });
}

#[test]
fn a_mistake_in_a_step_is_the_error_of_opening() {
    run(async {
        let client = Client::new();
        for builder in [
            client.websocket("ftp://sea.example/"),
            client.websocket("/ws"),
            client.websocket("wss://127.0.0.1:9/"),
            client.websocket("ws://127.0.0.1:9/").protocol("no token"),
            client.websocket("ws://127.0.0.1:9/").protocol("tide").protocol("tide"),
            client.websocket("ws://127.0.0.1:9/").header("Sec-WebSocket-Key", "a"),
            client.websocket("ws://127.0.0.1:9/").header("Sea", "a\r\nb"),
        ] {
            let error = builder.open().await.expect_err("it cannot be opened");
            assert!(!error.is_connect(), "nothing is connected to: {error}");
        }
        Ok(())
    });
}

/// An HTTP proxy that makes one tunnel, to `target`, or refuses it.
fn tunnel(target: SocketAddr, status: &'static str) -> Scripted {
    Scripted::start(move |_, stream| {
        let head = read_head(stream).unwrap_or_default();
        assert!(head.starts_with("CONNECT sea.example:80 HTTP/1.1\r\n"), "{head}");
        let _ = stream.write_all(format!("HTTP/1.1 {status}\r\n\r\n").as_bytes());
        if !status.starts_with("200") {
            return;
        }
        relay(stream, &TcpStream::connect(target).expect("the server listens"));
    })
}

#[test]
fn a_proxy_of_http_makes_a_tunnel_even_without_tls() {
    let server = Served::start(router);
    let target = server.uri("").trim_start_matches("http://").parse().expect("an address");
    for status in ["200 OK", "403 Forbidden"] {
        let proxy = tunnel(target, status);
        let proxies = Proxies::all(Proxy::to(&proxy.address().to_string()).expect("a proxy"));
        run(async move {
            let client = Client::builder().proxies(proxies).build();
            match client.websocket("ws://sea.example/echo").open().await {
                Ok(mut channel) => {
                    assert_eq!(back(&mut channel, "ebb").await?, "ebb");
                    channel.abort();
                }
                Err(error) => {
                    let is_refused = matches!(error, ClientError::Proxy(ProxyError::Refused(_)));
                    assert!(is_refused && status.starts_with("403"), "{error}");
                }
            }
            Ok(())
        });
    }
}

#[test]
fn a_websocket_is_opened_over_tls() {
    let provider = Provider::ring();
    let issued = rcgen::generate_simple_self_signed(["localhost".to_owned()]).expect("a certificate");
    let (pem, key) = (issued.cert.pem(), issued.signing_key.serialize_pem());
    let certificates = Certificates::from_pem(&provider, pem.as_bytes(), key.as_bytes()).expect("a certificate");
    let tls = ServerConfig::builder(&provider, certificates).build().expect("a configuration");
    let server = Server::bind("127.0.0.1:0").expect("a port").loops(1).tls(tls).start(router).expect("it starts");
    let uri = format!("wss://{}/echo", server.address());
    run(async move {
        let tls = ClientConfig::dangerous_builder_without_verification(&provider).build()?;
        let client = Client::builder().tls(tls).build();
        let mut channel = client.websocket(&uri).open().await?;
        assert_eq!(back(&mut channel, "ebb").await?, "ebb");
        Ok(())
    });
    server.drain(Duration::ZERO);
}

#[test]
fn a_websocket_is_opened_again_until_its_function_ends_it() {
    // Attempts 0 and 1 are refused, the connection of 2 ends at once, and that of 3 has a message.
    let attempts = Arc::new(AtomicUsize::new(0));
    let counted = attempts.clone();
    let server = Scripted::start(move |_, stream| {
        let Some(head) = read_head(stream) else { return };
        let answer = match counted.fetch_add(1, Ordering::SeqCst) {
            0 => b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n".to_vec(),
            1 => return,
            2 => accepted(&head, "").into_bytes(),
            _ => [accepted(&head, "").as_bytes(), b"\x81\x03ebb"].concat(),
        };
        let is_last = answer.ends_with(b"ebb");
        let _ = stream.write_all(&answer);
        if is_last {
            let _ = stream.read(&mut [0]);
        }
    });
    let uri = ws(&server.uri("/"));
    run(async move {
        let client = Client::new();
        let reconnect = Reconnect::new().delays(Duration::from_millis(1), Duration::from_millis(20));
        let text = reconnect
            .run(
                || client.websocket(&uri),
                async |mut channel: WebSocketChannel| match channel.recv().await {
                    Ok(Some(Message::Text(text))) => ControlFlow::Break(text.to_string()),
                    _ => ControlFlow::Continue(()),
                },
            )
            .await?;
        assert_eq!(text, "ebb");
        Ok(())
    });
    assert_eq!(attempts.load(Ordering::SeqCst), 4);
}

#[test]
fn opening_again_ends_with_an_error_that_would_come_again_and_after_so_many_attempts() {
    for (answer, attempts) in [("HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\n\r\n", 1), ("", 3)] {
        let counted = Arc::new(AtomicUsize::new(0));
        let count = counted.clone();
        let server = Scripted::start(move |_, stream| {
            if read_head(stream).is_some() {
                count.fetch_add(1, Ordering::SeqCst);
                let _ = stream.write_all(answer.as_bytes());
            }
        });
        let uri = ws(&server.uri("/"));
        run(async move {
            let client = Client::new();
            let reconnect = Reconnect::new().delays(Duration::from_millis(1), Duration::from_millis(5)).attempts_max(3);
            let never = async |_: WebSocketChannel| ControlFlow::Break(());
            assert!(
                task::timeout(Duration::from_secs(120), reconnect.run(|| client.websocket(&uri), never))
                    .await?
                    .is_err()
            );
            Ok(())
        });
        drop(server);
        assert_eq!(counted.load(Ordering::SeqCst), attempts);
    }
}
