//! Bodies that functions have in memory, collected or waiting with their function, are memory of their streams: the loop
//! stays within its budget, and other requests are served.

use std::future::pending;

use bytes::Bytes;
use tidegate::Limits;
use tidegate::http::{Body, Config, Multipart, Request, Router};
use tidegate_testkit::Embedded;

use crate::support::http2_peer::{DATA, END_STREAM, Peer};

fn router() -> Router {
    Router::new()
        .get("/", || "hello")
        .post("/bytes", async |_: Bytes| -> &'static str { pending().await })
        .post("/vec", async |_: Vec<u8>| -> &'static str { pending().await })
        .post("/text", |_: String| "collected")
        .post("/body", async |mut body: Body| -> &'static str {
            let all = body.collect(1 << 20).await;
            pending::<()>().await;
            drop(all);
            "never"
        })
        .post("/whole", async |_: Request| -> &'static str { pending().await })
        .post("/form", async |mut form: Multipart| -> &'static str {
            while let Ok(Some(field)) = form.next().await {
                let _ = field.bytes().await;
            }
            "collected"
        })
        .post("/pieces", async |mut body: Body| -> String {
            let mut length = 0;
            while let Some(Ok(piece)) = body.next().await {
                length += piece.len();
            }
            length.to_string()
        })
}

const MEMORY_MAX: usize = 400 * 1024;

fn connection() -> Peer<Embedded<()>> {
    let (codec, handler) = Config::new().connections(router())();
    let limits = Limits { memory_max: MEMORY_MAX, ..Limits::default() };
    Peer::new(Embedded::with_limits(codec, handler, limits))
}

/// Sends `bytes` of a body on each of some streams. Returns how many of these were reset.
fn send_bodies(peer: &mut Peer<Embedded<()>>, path: &str, fields: &[(&str, &str)], piece: &[u8], ends: bool) -> usize {
    let streams = (0..14).map(|number| 2 * number + 1);
    for stream in streams.clone() {
        peer.request(stream, "POST", path, fields, false);
        for (number, piece) in piece.chunks(15_000).enumerate() {
            if peer.is_over(stream) {
                break;
            }
            let is_last = ends && number == 3;
            peer.frame(DATA, if is_last { END_STREAM } else { 0 }, stream, piece);
            peer.read();
            peer.is_closed = false;
        }
    }
    streams.filter(|stream| peer.stream(*stream).reset.is_some()).count()
}

fn assert_bounded(path: &str, fields: &[(&str, &str)], piece: &[u8], ends: bool) {
    let mut peer = connection();
    let resets = send_bodies(&mut peer, path, fields, piece, ends);
    let counts = peer.wire.counts();
    assert!(0 < resets && resets < 14, "{path}: {resets} streams were reset");
    assert!(counts.memory_bytes <= MEMORY_MAX as u64, "{path}: {} bytes are in use", counts.memory_bytes);
    peer.request(101, "GET", "/", &[], true);
    peer.read_until(|peer| peer.stream(101).has_ended);
    assert_eq!(peer.stream(101).body, b"hello", "{path}");
}

#[test]
fn bodies_that_are_collected_are_memory_of_their_streams() {
    for path in ["/bytes", "/vec", "/text", "/body"] {
        assert_bounded(path, &[], &[7; 60_000], false);
    }
}

#[test]
fn so_are_bodies_whose_functions_do_not_return() {
    for path in ["/bytes", "/vec", "/body"] {
        assert_bounded(path, &[], &[7; 60_000], true);
    }
}

#[test]
fn so_are_parts_of_forms() {
    let head = b"--tide\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\n";
    let piece = [&head[..], &[7; 59_000]].concat();
    assert_bounded("/form", &[("content-type", "multipart/form-data; boundary=tide")], &piece, false);
}

/// A body that comes with its head is in memory before its function is called.
#[test]
fn small_bodies_count_while_their_functions_wait() {
    let mut peer = connection();
    let idle = peer.wire.pool().ledger().used();
    let streams = (0..50).map(|number| 2 * number + 1);
    for stream in streams.clone() {
        peer.request(stream, "POST", "/whole", &[("content-length", "10000")], false);
        peer.frame(DATA, END_STREAM, stream, &[7; 10_000]);
    }
    peer.read();
    let left = streams.filter(|stream| peer.stream(*stream).reset.is_none()).count();
    let used = peer.wire.pool().ledger().used();
    assert!(0 < left && left < 50 && used <= MEMORY_MAX, "{left} streams are left, and {used} bytes are in use");
    assert!(used - idle >= 10_000 * left, "{left} streams are left, and {used} bytes are in use");
}

#[test]
fn nothing_counts_once_the_exchange_is_over() {
    let mut peer = connection();
    peer.request(1, "POST", "/pieces", &[], false);
    peer.frame(DATA, END_STREAM, 1, b"ebb");
    peer.read_until(|peer| peer.stream(1).has_ended);
    let idle = peer.wire.pool().ledger().used();
    // Many times the budget, one after the other.
    for stream in (1..60).map(|number| 2 * number + 1) {
        let path = if stream % 4 == 1 { "/pieces" } else { "/text" };
        peer.request(stream, "POST", path, &[], false);
        for ends in [0, 0, END_STREAM] {
            peer.frame(DATA, ends, stream, &[b'7'; 15_000]);
        }
        peer.read_until(|peer| peer.stream(stream).has_ended);
        assert_eq!(peer.stream(stream).reset, None);
    }
    assert_eq!(peer.wire.pool().ledger().used(), idle);
}
