//! Services that take their connection over: by axum's WebSocket, and by hyper's `OnUpgrade`.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::extract::ws::{Message, WebSocket, WebSocketUpgrade};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{any, get};
use futures_util::{SinkExt, StreamExt};
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use tidegate::task;
use tidegate_testkit::Embedded;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::runtime::{Builder, Runtime};
use tokio_tungstenite::connect_async;
use tokio_tungstenite::tungstenite;

fn runtime() -> Runtime {
    Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("threads")
}

async fn echo(mut socket: WebSocket) {
    while let Some(Ok(message)) = socket.recv().await {
        if let Message::Text(_) | Message::Binary(_) = message
            && socket.send(message).await.is_err()
        {
            return;
        }
    }
}

#[test]
fn a_websocket_of_axum_works_with_a_client_of_the_field() {
    let runtime = runtime();
    let handle = runtime.handle().clone();
    let router = Router::new().route("/plain", get(|| async { "plain" })).route(
        "/ws",
        any(move |upgrade: WebSocketUpgrade| {
            let handle = handle.clone();
            async move {
                // axum spawns a tokio task.
                let _within = handle.enter();
                upgrade.on_upgrade(echo)
            }
        }),
    );
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let server = tidegate::axum::serve(listener, router).server(|server| server.loops(1)).start().unwrap();
    runtime.block_on(async {
        let (mut client, response) = connect_async(format!("ws://{address}/ws")).await.unwrap();
        assert_eq!(response.status(), StatusCode::SWITCHING_PROTOCOLS);
        let messages = [
            tungstenite::Message::text("rising"),
            tungstenite::Message::text(""),
            tungstenite::Message::binary(vec![7; 300_000]),
        ];
        for message in messages {
            client.send(message.clone()).await.unwrap();
            assert_eq!(client.next().await.unwrap().unwrap(), message);
        }
        client.send(tungstenite::Message::Ping(vec![1].into())).await.unwrap();
        assert_eq!(client.next().await.unwrap().unwrap(), tungstenite::Message::Pong(vec![1].into()));
        client.close(None).await.unwrap();
        assert!(client.next().await.unwrap().unwrap().is_close());
        assert!(client.next().await.is_none());
        // Without the fields of a handshake it is an ordinary request.
        assert!(connect_async(format!("ws://{address}/plain")).await.is_err());
    });
    server.drain(Duration::from_secs(5));
}

type Pipe = Embedded<()>;

fn open(router: Router) -> Pipe {
    let routes = tidegate::http::Router::new().fallback(tidegate::axum::function(router));
    let (codec, handler) = tidegate::http::Config::new().connections(routes)();
    Embedded::new(codec, handler)
}

fn ask(pipe: &mut Pipe, wire: impl AsRef<[u8]>) -> String {
    pipe.receive(wire.as_ref());
    pipe.run();
    String::from_utf8(pipe.take_written()).expect("text")
}

const ASKS: &str = "GET / HTTP/1.1\r\nHost: sea\r\nConnection: Upgrade\r\nUpgrade: shout\r\n\r\n";

fn switching() -> Response {
    let fields = [(header::CONNECTION, "upgrade"), (header::UPGRADE, "shout")];
    (StatusCode::SWITCHING_PROTOCOLS, fields, Body::empty()).into_response()
}

/// Sends four bytes back in upper case, until the peer ends.
async fn shout(upgrade: OnUpgrade) {
    let mut stream = TokioIo::new(upgrade.await.expect("the connection is upgraded"));
    let mut four = [0; 4];
    while stream.read_exact(&mut four).await.is_ok() {
        stream.write_all(&four.to_ascii_uppercase()).await.expect("the peer reads");
    }
    stream.write_all(b"END").await.expect("the peer reads");
    stream.shutdown().await.expect("the peer reads");
}

#[test]
fn bytes_go_both_ways_after_an_upgrade() {
    let mut pipe = open(Router::new().route(
        "/",
        get(|mut request: Request| async move {
            drop(task::spawn(shout(hyper::upgrade::on(&mut request))));
            switching()
        }),
    ));
    let answer = ask(&mut pipe, [ASKS.as_bytes(), b"tidesh"].concat());
    let (head, rest) = answer.split_once("\r\n\r\n").expect("a head");
    assert!(head.starts_with("HTTP/1.1 101 ") && head.contains("\r\nConnection: upgrade\r\n"), "{head}");
    assert_eq!(rest, "TIDE");
    assert_eq!(ask(&mut pipe, "oal..."), "SHOAL...");
    pipe.receive_fin();
    assert_eq!(pipe.take_written(), b"END");
    assert!(pipe.is_write_closed());
}

/// A service whose WebSocket echoes its input, byte by byte.
fn websocket() -> Router {
    let fields = [(header::CONNECTION, "upgrade"), (header::UPGRADE, "websocket")];
    Router::new().route(
        "/",
        get(move |mut request: Request| async move {
            let upgrade = hyper::upgrade::on(&mut request);
            drop(task::spawn(async move {
                let mut stream = TokioIo::new(upgrade.await.expect("the connection is upgraded"));
                let mut bytes = [0; 64];
                while let Ok(count @ 1..) = stream.read(&mut bytes).await {
                    stream.write_all(&bytes[..count]).await.expect("the peer reads");
                }
            }));
            (StatusCode::SWITCHING_PROTOCOLS, fields, Body::empty()).into_response()
        }),
    )
}

const OPENS: &str = "GET / HTTP/1.1\r\nHost: sea\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n";

/// Close frames of the code 1001: of the server, and of a client with a mask of zeros.
const GOING_AWAY: &[u8] = b"\x88\x02\x03\xE9";
const ANSWER: &[u8] = b"\x88\x82\0\0\0\0\x03\xE9";

#[test]
fn a_websocket_of_a_service_closes_at_a_drain() {
    let mut pipe = open(websocket());
    // The service sends the head of a frame of 200 bytes, and a part of its content.
    let frame = [&[0x82, 126, 0, 200][..], &[7; 200]].concat();
    pipe.receive(&[OPENS.as_bytes(), &frame[..100]].concat());
    assert!(pipe.take_written().ends_with(&frame[..100]));
    pipe.drain(Duration::from_secs(3600));
    assert_eq!(pipe.take_written(), b"", "a frame is incomplete");
    // The close frame goes behind it, and nothing of the service behind that.
    pipe.receive(&[&frame[100..], b"more"].concat());
    assert_eq!(pipe.take_written(), [&frame[100..], GOING_AWAY].concat());
    pipe.advance(Duration::from_secs(5));
    pipe.advance(Duration::from_secs(3));
    assert!(pipe.is_closed() && pipe.is_drained(), "the peer did not answer");

    let mut pipe = open(websocket());
    pipe.receive(OPENS.as_bytes());
    pipe.take_written();
    pipe.drain(Duration::from_secs(3600));
    assert_eq!(pipe.take_written(), GOING_AWAY);
    pipe.receive(ANSWER);
    assert!(pipe.is_write_closed());
    pipe.receive_fin();
    assert!(pipe.is_drained());
}

#[test]
fn another_protocol_goes_on_during_a_drain() {
    let mut pipe = open(Router::new().route(
        "/",
        get(|mut request: Request| async move {
            drop(task::spawn(shout(hyper::upgrade::on(&mut request))));
            switching()
        }),
    ));
    ask(&mut pipe, ASKS);
    pipe.drain(Duration::from_secs(3600));
    assert_eq!(ask(&mut pipe, "tide"), "TIDE");
    pipe.advance(Duration::from_secs(60));
    assert_eq!(ask(&mut pipe, "tide"), "TIDE");
}

#[test]
fn a_websocket_handshake_of_http10_or_with_a_body_is_refused() {
    let router = Router::new().route("/", get(|upgrade: WebSocketUpgrade| async { upgrade.on_upgrade(echo) }));
    let fields = "Host: sea\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
                  Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n";
    for wire in [
        format!("GET / HTTP/1.0\r\n{fields}\r\n"),
        format!("GET / HTTP/1.1\r\n{fields}Content-Length: 1\r\n\r\nx"),
        format!("GET / HTTP/1.1\r\n{fields}Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
    ] {
        let mut pipe = open(router.clone());
        let answer = ask(&mut pipe, &wire);
        assert!(answer.starts_with("HTTP/1.1 426 "), "{wire}: {answer}");
    }
}

#[test]
fn a_stream_that_the_service_drops_ends_its_connection() {
    for drops_before in [true, false] {
        let mut pipe = open(Router::new().route(
            "/",
            get(move |mut request: Request| async move {
                let upgrade = hyper::upgrade::on(&mut request);
                if !drops_before {
                    drop(task::spawn(async move {
                        let mut stream = TokioIo::new(upgrade.await.expect("the connection is upgraded"));
                        stream.write_all(b"bye").await.expect("the peer reads");
                    }));
                }
                switching()
            }),
        ));
        let answer = ask(&mut pipe, ASKS);
        let (_, rest) = answer.split_once("\r\n\r\n").expect("a head");
        assert_eq!(rest, if drops_before { "" } else { "bye" });
        assert!(pipe.is_write_closed(), "{drops_before}");
    }
}

#[test]
fn a_stream_that_is_dropped_after_its_end_was_sent_ends_its_connection() {
    let mut pipe = open(Router::new().route(
        "/",
        get(|mut request: Request| async move {
            let upgrade = hyper::upgrade::on(&mut request);
            drop(task::spawn(async move {
                let mut stream = TokioIo::new(upgrade.await.expect("the connection is upgraded"));
                stream.write_all(b"last").await.expect("the peer reads");
                stream.shutdown().await.expect("the peer reads");
                // The connection has nothing more to send by now, and the peer sends nothing.
                task::sleep(Duration::from_secs(1)).await;
                drop(stream);
            }));
            switching()
        }),
    ));
    assert!(ask(&mut pipe, ASKS).ends_with("\r\n\r\nlast"));
    assert!(pipe.is_write_closed() && !pipe.is_closed());
    pipe.advance(Duration::from_millis(1_001));
    // The connection lingers for the peer's end.
    pipe.advance(Duration::from_secs(2));
    assert!(pipe.is_closed());
}

#[test]
fn an_upgrade_that_the_service_refuses_is_an_error_of_on_upgrade() {
    let refused = Arc::new(AtomicU32::new(0));
    let count = refused.clone();
    let mut pipe = open(Router::new().route(
        "/",
        get(move |mut request: Request| {
            let count = count.clone();
            async move {
                let upgrade = hyper::upgrade::on(&mut request);
                drop(task::spawn(async move {
                    assert!(upgrade.await.is_err());
                    count.fetch_add(1, Ordering::Relaxed);
                }));
                "not today"
            }
        }),
    ));
    for _ in 0..2 {
        let answer = ask(&mut pipe, ASKS);
        assert!(answer.starts_with("HTTP/1.1 200 ") && answer.ends_with("not today"), "{answer}");
    }
    assert_eq!(refused.load(Ordering::Relaxed), 2);
}

#[test]
fn a_service_cannot_upgrade_a_client_that_does_not_ask() {
    let mut pipe = open(Router::new().route("/", get(|| async { switching() })));
    let answer = ask(&mut pipe, "GET / HTTP/1.1\r\nHost: sea\r\n\r\n");
    assert!(answer.starts_with("HTTP/1.1 500 "), "{answer}");
}

#[test]
fn a_peer_that_reads_slowly_stops_the_service() {
    let written = Arc::new(AtomicU32::new(0));
    let count = written.clone();
    let mut pipe = open(Router::new().route(
        "/",
        get(move |mut request: Request| {
            let count = count.clone();
            async move {
                let upgrade = hyper::upgrade::on(&mut request);
                drop(task::spawn(async move {
                    let mut stream = TokioIo::new(upgrade.await.expect("the connection is upgraded"));
                    while stream.write_all(&[b'x'; 1000]).await.is_ok() {
                        count.fetch_add(1, Ordering::Relaxed);
                    }
                }));
                switching()
            }
        }),
    ));
    pipe.limit_peer_reads(0);
    pipe.receive(ASKS.as_bytes());
    pipe.run();
    let before = written.load(Ordering::Relaxed);
    assert!((10..200).contains(&before), "{before} kilobytes");
    pipe.limit_peer_reads(100_000);
    pipe.run();
    let after = written.load(Ordering::Relaxed);
    assert!(after > before && after < before + 300, "{after} kilobytes");
    pipe.reset();
    pipe.run();
    assert_eq!(Arc::strong_count(&written), 1, "the task ends with its connection");
}
