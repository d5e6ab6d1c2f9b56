//! Bodies that axum extractors and gRPC decoders collect count as memory of their streams.

use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::routing::{get, post};
use http_body_util::BodyExt;
use tidegate::Limits;
use tidegate_testkit::Embedded;
use tokio::sync::Semaphore;

use crate::http2_peer::{DATA, END_STREAM, Peer};

const MEMORY_MAX: usize = 400 * 1024;

fn connection(written: &Arc<Semaphore>) -> Peer<Embedded<()>> {
    let written = written.clone();
    let router = Router::new()
        .route("/", get(async || "hello"))
        .route("/bytes", post(async |_: Bytes| -> &'static str { pending().await }))
        .route("/text", post(async |_: String| -> &'static str { pending().await }))
        .route(
            "/pieces",
            post(|mut body: Body| async move {
                let mut length = 0;
                while let Some(Ok(frame)) = body.frame().await {
                    length += frame.data_ref().map_or(0, Bytes::len);
                    // Each piece is written somewhere.
                    written.acquire().await.expect("it stays open").forget();
                }
                length.to_string()
            }),
        );
    let routes = tidegate::http::Router::new().fallback(tidegate::axum::function(router));
    let (codec, handler) = tidegate::http::Config::new().connections(routes)();
    Peer::new(Embedded::with_limits(codec, handler, Limits { memory_max: MEMORY_MAX, ..Limits::default() }))
}

/// Sends a body on each of some streams, and asserts that the loop stays within its budget.
fn assert_bounded(path: &str, fields: &[(&str, &str)], body: &[u8], ends: bool) {
    let mut peer = connection(&Arc::new(Semaphore::new(0)));
    let streams = (0..14).map(|number| 2 * number + 1);
    for stream in streams.clone() {
        peer.request(stream, "POST", path, fields, false);
        for (number, piece) in body.chunks(15_000).enumerate() {
            if peer.is_over(stream) {
                break;
            }
            peer.frame(DATA, if ends && number == 3 { END_STREAM } else { 0 }, stream, piece);
            peer.read();
            peer.is_closed = false;
        }
    }
    let resets = streams.filter(|stream| peer.stream(*stream).reset.is_some()).count();
    let counts = peer.wire.counts();
    assert!(0 < resets && resets < 14, "{path}: {resets} streams were reset");
    assert!(counts.memory_bytes <= MEMORY_MAX as u64, "{path}: {} bytes are in use", counts.memory_bytes);
    peer.request(101, "GET", "/", &[], true);
    peer.read_until(|peer| peer.stream(101).has_ended);
    assert_eq!(peer.stream(101).body, b"hello", "{path}");
}

#[test]
fn bodies_that_extractors_collect_are_memory_of_their_streams() {
    for path in ["/bytes", "/text"] {
        assert_bounded(path, &[], &[b'7'; 60_000], false);
        assert_bounded(path, &[], &[b'7'; 60_000], true);
    }
}

#[test]
fn so_are_messages_of_grpc() {
    let message = [&[0, 0, 1, 0, 0][..], &[b'7'; 59_995]].concat();
    assert_bounded("/bytes", &[("content-type", "application/grpc")], &message, false);
}

#[test]
fn short_messages_of_a_long_stream_do_not_add_up() {
    let mut peer = connection(&Arc::new(Semaphore::new(0)));
    peer.request(1, "POST", "/bytes", &[("content-type", "application/grpc")], false);
    let message = [&[0, 0, 0, 3, 0xE8][..], &[b'7'; 1_000]].concat();
    for _ in 0..1_000 {
        peer.frame(DATA, 0, 1, &message);
        peer.read();
        peer.is_closed = false;
    }
    assert!(!peer.is_over(1), "{:?}", peer.stream(1));
}

/// A handler that does something with each piece before it asks for the next one keeps none.
#[test]
fn bodies_that_are_read_piece_by_piece_do_not_add_up() {
    let written = Arc::new(Semaphore::new(0));
    let mut peer = connection(&written);
    peer.request(1, "POST", "/pieces", &[], false);
    for number in 0..100 {
        peer.frame(DATA, if number == 99 { END_STREAM } else { 0 }, 1, &[b'7'; 10_000]);
        peer.read();
        peer.wire.advance(Duration::from_millis(5));
        written.add_permits(1);
        peer.read();
        peer.is_closed = false;
    }
    peer.read_until(|peer| peer.is_over(1));
    assert_eq!(peer.stream(1).body, b"1000000", "{:?}", peer.stream(1).reset);
}
