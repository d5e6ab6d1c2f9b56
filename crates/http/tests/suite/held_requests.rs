//! HTTP/2 requests whose bodies come with their heads: their functions are called when the body is complete, without a
//! task; and all others. And responses with trailers.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use tidegate::http::{Body, Config, Fields, Limits, Request, Response, Router};
use tidegate_testkit::Embedded;

use crate::support::http2_peer::{
    DATA, END_HEADERS, END_STREAM, HEADERS, PADDED, Peer, RST_STREAM, Received, Wire, frame,
};

/// Whether the body was whole when the function was called, its bytes, and its trailers.
async fn describe(request: Request) -> String {
    match request.into_body().into_bytes() {
        Ok(bytes) => format!("whole {}", String::from_utf8_lossy(&bytes)),
        Err(mut body) => {
            let mut all = Vec::new();
            while let Some(piece) = body.next().await {
                match piece {
                    Ok(piece) => all.extend_from_slice(&piece),
                    Err(error) => return format!("failed: {error}"),
                }
            }
            let trailers = body.trailers().into_iter().flatten();
            let trailers = trailers.map(|(name, value)| [name, b"=", value].concat());
            let trailers: Vec<_> = trailers.map(|field| String::from_utf8_lossy(&field).into_owned()).collect();
            format!("pieces {}{}", String::from_utf8_lossy(&all), trailers.concat())
        }
    }
}

fn router() -> Router {
    Router::new()
        .post("/", describe)
        .any("/any", describe)
        .post("/length", async |request: Request| describe(request).await.len().to_string())
        .post("/unread", async |_: Request| "not read")
        .post("/later", async |request: Request| {
            tidegate::task::sleep(Duration::from_secs(1)).await;
            describe(request).await
        })
        .post("/never", async |_: Request| -> &'static str { std::future::pending().await })
        .post("/panic", async |request: Request| -> &'static str { panic!("{}", describe(request).await) })
        .post("/trailers", async |_: Request| Response::new().body(with_trailers("a message")))
        .get("/trailers", || Response::new().body(with_trailers("a message")))
        .get("/large", || Response::new().body(with_trailers(vec![b'x'; 3_000_000])))
        .get("/later_trailers", async || {
            tidegate::task::sleep(Duration::from_millis(1)).await;
            Response::new().body(with_trailers("a message"))
        })
}

fn with_trailers(body: impl Into<tidegate::http::Data>) -> Body {
    let mut trailers = Fields::new();
    trailers.push("grpc-status", "0").expect("a field");
    Body::with_trailers(body, trailers)
}

fn connection_with(limits: Limits) -> Peer<Embedded<()>> {
    let (codec, handler) = Config::new().limits(limits).connections(router())();
    Peer::new(Embedded::new(codec, handler))
}

fn connection() -> Peer<Embedded<()>> {
    connection_with(Limits::default())
}

/// The frames of a request.
fn request(peer: &mut Peer<Embedded<()>>, stream: u32, path: &str, more: &[(&str, &str)], pieces: &[&[u8]]) -> Vec<u8> {
    let start = [(":method", "POST"), (":scheme", "http"), (":path", path), (":authority", "sea")];
    let block = peer.block(&[&start, more].concat());
    let mut frames = frame(HEADERS, END_HEADERS, stream, &block);
    for (index, piece) in pieces.iter().enumerate() {
        let flags = if index + 1 == pieces.len() { END_STREAM } else { 0 };
        frames.extend(frame(DATA, flags, stream, piece));
    }
    frames
}

fn answer(peer: &mut Peer<Embedded<()>>, stream: u32) -> Received {
    peer.read_until(|peer| peer.is_over(stream));
    peer.stream(stream)
}

fn text(received: &Received) -> &str {
    assert_eq!((received.status(), received.has_ended, received.reset), ("200", true, None), "{received:?}");
    std::str::from_utf8(&received.body).expect("a text")
}

#[test]
fn a_body_that_comes_with_its_head_is_whole() {
    let mut peer = connection();
    for (index, (pieces, expected)) in [
        (&[&b"spring"[..]][..], "whole spring"),
        (&[b"spring ", b"", b"tide"], "whole spring tide"),
        (&[b""], "whole "),
        (&[b"spring tide", b""], "whole spring tide"),
    ]
    .into_iter()
    .enumerate()
    {
        let stream = 1 + 2 * index as u32;
        let frames = request(&mut peer, stream, "/", &[], pieces);
        peer.wire_send(&frames);
        assert_eq!(text(&answer(&mut peer, stream)), expected);
    }
    let start = request(&mut peer, 21, "/", &[], &[]);
    peer.wire_send(&[start, frame(DATA, END_STREAM | PADDED, 21, b"\x03neap\0\0\0")].concat());
    assert_eq!(text(&answer(&mut peer, 21)), "whole neap");
}

#[test]
fn a_body_that_comes_later_is_read_in_pieces() {
    let mut peer = connection();
    let frames = request(&mut peer, 1, "/", &[], &[b"spring ", b"tide ", b"at ", b"night"]);
    // Split at every byte.
    for at in 10..frames.len() {
        let stream = 1 + 2 * (at as u32 - 10);
        let frames = request(&mut peer, stream, "/", &[], &[b"spring ", b"tide ", b"at ", b"night"]);
        let (first, second) = frames.split_at(at.min(frames.len()));
        peer.wire_send(first);
        peer.wire_send(second);
        let received = answer(&mut peer, stream);
        let body = text(&received);
        assert!(["whole spring tide at night", "pieces spring tide at night"].contains(&body), "{at}: {body}");
    }
    // The head alone, and then the body.
    let frames = request(&mut peer, 1001, "/", &[], &[]);
    peer.wire_send(&frames);
    peer.data(1001, b"spring ");
    peer.frame(DATA, END_STREAM, 1001, b"tide");
    assert_eq!(text(&answer(&mut peer, 1001)), "pieces spring tide");
}

#[test]
fn a_long_body_is_not_held() {
    let mut peer = connection();
    let piece = [b'x'; 10_000];
    let frames = request(&mut peer, 1, "/length", &[], &[&piece, &piece, &piece]);
    peer.wire_send(&frames);
    assert_eq!(text(&answer(&mut peer, 1)), "30007");
    let frames = request(&mut peer, 3, "/length", &[("content-length", "30000")], &[&piece, &piece, &piece]);
    peer.wire_send(&frames);
    assert_eq!(text(&answer(&mut peer, 3)), "30007");
    let frames = request(&mut peer, 5, "/length", &[("content-length", "10000")], &[&piece]);
    peer.wire_send(&frames);
    assert_eq!(text(&answer(&mut peer, 5)), "10006");
}

#[test]
fn requests_that_come_together_are_all_answered() {
    let mut peer = connection();
    let mut frames = Vec::new();
    for index in 0..50 {
        frames.extend(request(&mut peer, 1 + 2 * index, "/", &[], &[format!("{index}").as_bytes()]));
    }
    peer.wire_send(&frames);
    for index in 0..50 {
        assert_eq!(text(&answer(&mut peer, 1 + 2 * index)), format!("whole {index}"));
    }
    // Two whose frames alternate.
    let [first, second] = [101, 103].map(|stream| request(&mut peer, stream, "/", &[], &[]));
    let bodies =
        [(101, "a"), (103, "b"), (101, "c"), (103, "d")].map(|(stream, body)| frame(DATA, 0, stream, body.as_bytes()));
    let ends = [101, 103].map(|stream| frame(DATA, END_STREAM, stream, b""));
    peer.wire_send(&[first, second, bodies.concat(), ends.concat()].concat());
    assert_eq!(text(&answer(&mut peer, 101)), "whole ac");
    assert_eq!(text(&answer(&mut peer, 103)), "whole bd");
}

#[test]
fn trailers_of_a_request_come_after_its_body() {
    let mut peer = connection();
    let frames = request(&mut peer, 1, "/", &[], &[]);
    let trailers = peer.block(&[("tide", "high")]);
    let rest = [frame(DATA, 0, 1, b"spring "), frame(HEADERS, END_HEADERS | END_STREAM, 1, &trailers)].concat();
    peer.wire_send(&[frames, rest].concat());
    assert_eq!(text(&answer(&mut peer, 1)), "pieces spring tide=high");
}

#[test]
fn a_function_that_waits_keeps_its_whole_body() {
    let mut peer = connection();
    let frames = request(&mut peer, 1, "/later", &[], &[b"spring"]);
    peer.wire_send(&frames);
    peer.wire.run();
    peer.wire.advance(Duration::from_secs(2));
    assert_eq!(text(&answer(&mut peer, 1)), "whole spring");
}

#[test]
fn a_panic_is_answered_and_ends_no_other_stream() {
    let mut peer = connection();
    let frames = [request(&mut peer, 1, "/panic", &[], &[b"spring"]), request(&mut peer, 3, "/", &[], &[b"neap"])];
    peer.wire_send(&frames.concat());
    let received = answer(&mut peer, 1);
    assert_eq!((received.status(), received.has_ended), ("500", true), "{received:?}");
    assert_eq!(text(&answer(&mut peer, 3)), "whole neap");
}

#[test]
fn a_body_above_the_limit_is_refused() {
    let mut limits = Limits::default();
    limits.body_bytes_max = 4;
    let mut peer = connection_with(limits);
    let frames = request(&mut peer, 1, "/", &[], &[b"spr", b"ing"]);
    peer.wire_send(&frames);
    assert_eq!(answer(&mut peer, 1).status(), "413");
    let frames = request(&mut peer, 3, "/", &[], &[b"neap"]);
    peer.wire_send(&frames);
    assert_eq!(text(&answer(&mut peer, 3)), "whole neap");
}

#[test]
fn a_body_that_does_not_come_is_late() {
    let mut peer = connection();
    let frames = [request(&mut peer, 1, "/", &[], &[]), frame(DATA, 0, 1, b"spr")];
    peer.wire_send(&frames.concat());
    peer.wire.run();
    peer.wire.advance(Duration::from_secs(120));
    assert_eq!(answer(&mut peer, 1).status(), "408");
}

#[test]
fn a_function_that_never_responds_is_late() {
    let mut peer = connection();
    let frames = request(&mut peer, 1, "/never", &[], &[b"spring"]);
    peer.wire_send(&frames);
    peer.wire.run();
    peer.wire.advance(Duration::from_secs(120));
    assert_eq!(answer(&mut peer, 1).status(), "503");
}

#[test]
fn a_request_that_is_reset_while_it_is_held_is_not_handled() {
    let calls = Rc::new(Cell::new(0));
    let counted = calls.clone();
    let router = Router::new().post("/", move |request: Request| {
        counted.set(counted.get() + 1);
        describe(request)
    });
    let (codec, handler) = Config::new().connections(router)();
    let mut peer = Peer::new(Embedded::new(codec, handler));
    let frames = request(&mut peer, 1, "/", &[], &[]);
    let cancel = 8_u32.to_be_bytes();
    peer.wire_send(&[frames, frame(DATA, 0, 1, b"spr"), frame(RST_STREAM, 0, 1, &cancel)].concat());
    peer.wire.run();
    assert_eq!(calls.get(), 0);
    let frames = request(&mut peer, 3, "/", &[], &[b"neap"]);
    peer.wire_send(&frames);
    assert_eq!(text(&answer(&mut peer, 3)), "whole neap");
    assert_eq!(calls.get(), 1);
}

#[test]
fn a_connection_that_is_gone_while_a_request_is_held_calls_nothing() {
    let mut peer = connection();
    let frames = [request(&mut peer, 1, "/panic", &[], &[]), frame(DATA, 0, 1, b"spr"), vec![0; 9]];
    peer.wire_send(&frames.concat());
    peer.wire.reset();
    peer.wire.run();
    assert!(peer.wire.is_closed());
}

#[test]
fn a_drain_waits_for_a_request_that_is_held() {
    let mut peer = connection();
    let frames = [request(&mut peer, 1, "/", &[], &[]), frame(DATA, 0, 1, b"spring ")];
    peer.wire_send(&frames.concat());
    peer.wire.drain(Duration::from_secs(5));
    peer.frame(DATA, END_STREAM, 1, b"tide");
    assert_eq!(text(&answer(&mut peer, 1)), "pieces spring tide");
    peer.wire.receive_fin();
    peer.wire.run();
    assert!(peer.wire.is_drained());
}

#[test]
fn a_connect_is_not_held() {
    let mut peer = connection();
    // It has no body, and the stream stays open: it is answered at once.
    peer.extended_connect(1, "websocket", "/any", &[("sec-websocket-version", "13")]);
    let received = answer(&mut peer, 1);
    assert_eq!((received.status(), received.has_ended), ("501", true), "{received:?}");
}

#[test]
fn an_expected_continue_comes_before_the_body() {
    let mut peer = connection();
    let frames = request(&mut peer, 1, "/", &[("expect", "100-continue")], &[]);
    peer.wire_send(&frames);
    peer.read_until(|peer| peer.stream(1).status() == "100");
    peer.frame(DATA, END_STREAM, 1, b"spring");
    peer.read_until(|peer| peer.is_over(1));
    assert_eq!(peer.stream(1).body, b"pieces spring");
    let frames = request(&mut peer, 3, "/unread", &[("expect", "100-continue")], &[]);
    peer.wire_send(&frames);
    assert_eq!(text(&answer(&mut peer, 3)), "not read");
}

#[test]
fn trailers_of_a_response_come_after_its_body() {
    let mut peer = connection();
    for (stream, method, path) in [(1, "GET", "/trailers"), (3, "GET", "/later_trailers"), (5, "GET", "/large")] {
        peer.request(stream, method, path, &[], true);
        peer.wire.advance(Duration::from_millis(10));
        let received = answer(&mut peer, stream);
        let expected = if path == "/large" { vec![b'x'; 3_000_000] } else { b"a message".to_vec() };
        assert!(received.has_ended && received.body == expected, "{path}");
        assert_eq!(received.fields.last(), Some(&("grpc-status".to_owned(), "0".to_owned())), "{path}");
    }
    let frames = request(&mut peer, 7, "/trailers", &[], &[b"spring"]);
    peer.wire_send(&frames);
    let received = answer(&mut peer, 7);
    assert_eq!((text(&received), received.field("grpc-status")), ("a message", Some("0")));
    peer.request(9, "HEAD", "/trailers", &[], true);
    let received = answer(&mut peer, 9);
    assert_eq!((text(&received), received.field("grpc-status")), ("", None));
}

#[test]
fn trailers_of_a_response_are_those_of_a_chunked_body_over_http_1() {
    let (codec, handler) = Config::new().connections(router())();
    let mut pipe = Embedded::new(codec, handler);
    for (path, method) in [("/trailers", "GET"), ("/trailers", "HEAD")] {
        pipe.receive(format!("{method} {path} HTTP/1.1\r\nHost: sea\r\n\r\n").as_bytes());
        let wire = String::from_utf8(pipe.read()).expect("a text");
        assert!(wire.starts_with("HTTP/1.1 200 "), "{wire}");
        let end = "\r\n\r\n9\r\na message\r\n0\r\ngrpc-status: 0\r\n\r\n";
        assert_eq!(wire.ends_with(end), method == "GET", "{wire}");
    }
    pipe.receive(b"GET /any HTTP/1.1\r\nHost: sea\r\n\r\n");
    assert!(String::from_utf8(pipe.read()).expect("a text").ends_with("whole "), "the connection goes on");
}

#[test]
fn a_body_in_memory_is_bytes() {
    assert_eq!(Body::from("tide").into_bytes().expect("it is whole"), "tide");
    assert_eq!(Body::empty().into_bytes().expect("it is whole"), "");
    let produced = Body::produce(async |_| Ok(()));
    assert!(produced.into_bytes().is_err());
    assert!(with_trailers("tide").into_bytes().is_err());
}
