//! HTTP/2 peers on sockets that cost the server more than they cost themselves, and those that only seem to: on both
//! backends.

use std::net::TcpStream;
use std::time::Duration;

use tidegate::http::{Body, Request, Router, Server};
use tidegate::{Backend, ServerHandle};

use crate::support::http2_peer::{
    ACK, CONTINUATION, DATA, END_HEADERS, END_STREAM, HEADERS, PING, Peer, RST_STREAM, SETTINGS, WINDOW_UPDATE, frame,
};

/// ENHANCE_YOUR_CALM.
const CALM: u32 = 11;
const CANCEL: u32 = 8;

fn router() -> Router {
    Router::new()
        .get("/", || "hello")
        .get("/never", async || -> &'static str { std::future::pending().await })
        .post("/echo", async |request: Request| -> Body { request.into_body() })
        .post("/late", async |mut request: Request| {
            tidegate::task::sleep(Duration::from_millis(20)).await;
            let mut length = 0;
            while let Some(piece) = request.body_mut().next().await {
                length += piece.map_or(0, |piece| piece.len());
            }
            length.to_string()
        })
}

/// A server that drains when it is dropped.
struct Running(ServerHandle);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.drain(Duration::ZERO);
    }
}

impl Running {
    fn memory_bytes(&self) -> u64 {
        self.0.counts().iter().map(|counts| counts.memory_bytes).sum()
    }

    fn peer(&self) -> Peer<TcpStream> {
        let socket = TcpStream::connect(self.0.address().ip().expect("an IP address")).expect("a connection");
        socket.set_read_timeout(Some(Duration::from_secs(120))).expect("a time-out");
        Peer::new(socket)
    }
}

fn each_backend(test: impl Fn(&Running)) {
    for backend in [Backend::Epoll, Backend::Uring] {
        match Server::bind("127.0.0.1:0").expect("an address").backend(backend).loops(1).start(router) {
            Ok(server) => {
                let server = Running(server);
                test(&server);
                // Whatever became of that connection, another one is served.
                let mut peer = server.peer();
                peer.request(1, "GET", "/", &[], true);
                peer.read_until(|peer| peer.stream(1).has_ended);
            }
            Err(error) if backend == Backend::Uring => println!("skipped: io_uring: {error}"),
            Err(error) => panic!("{error}"),
        }
    }
}

/// Sends the output of `next` `count` times, and asserts that the connection ends with GOAWAY and ENHANCE_YOUR_CALM.
fn assert_calmed(server: &Running, count: u32, next: impl Fn(&mut Peer<TcpStream>, u32)) {
    let mut peer = server.peer();
    peer.request(1, "POST", "/echo", &[], false);
    // A socket that nothing reads blocks this side: the server's own bytes are few.
    (0..count).for_each(|round| next(&mut peer, round));
    peer.read_to_end();
    if let Some(&(code, _)) = peer.goaways.last() {
        assert_eq!(code, CALM);
    }
    // A reset of the connection may have overtaken GOAWAY.
}

/// A stream beside that which is open.
fn stream(round: u32) -> u32 {
    2 * round + 3
}

#[test]
fn floods_end_the_connection() {
    let floods = [
        frame(PING, 0, 0, b"flooding"),
        frame(SETTINGS, 0, 0, &[]),
        frame(2, 0, 1, &[0, 0, 0, 0, 1]),
        frame(WINDOW_UPDATE, 0, 1, &1_u32.to_be_bytes()),
        frame(DATA, 0, 1, &[]),
        frame(200, 0, 0, b"unknown"),
    ];
    each_backend(|server| {
        for flood in &floods {
            assert_calmed(server, 4_000, |peer, _| peer.wire_send(flood));
        }
        for content in [&[][..], &[0x82; 1_000]] {
            assert_calmed(server, 4_000, |peer, round| match round {
                0 => peer.frame(HEADERS, 0, 3, &[0x82]),
                _ => peer.frame(CONTINUATION, 0, 3, content),
            });
        }
    });
}

#[test]
fn rapid_resets_end_the_connection() {
    each_backend(|server| {
        assert_calmed(server, 4_000, |peer, round| {
            peer.request(stream(round), "GET", "/never", &[], true);
            peer.frame(RST_STREAM, 0, stream(round), &CANCEL.to_be_bytes());
        });
    });
}

#[test]
fn resets_that_the_peer_provokes_end_the_connection() {
    let ways: [fn(u32) -> Vec<u8>; 6] = [
        |stream| frame(WINDOW_UPDATE, 0, stream, &0_u32.to_be_bytes()),
        |stream| frame(2, 0, stream, &[0, 0, 0, 0]),
        |stream| frame(2, 0, stream, &[&stream.to_be_bytes()[..], &[1]].concat()),
        |stream| frame(WINDOW_UPDATE, 0, stream, &0x7fff_ffff_u32.to_be_bytes()).repeat(2),
        |stream| frame(HEADERS, END_HEADERS | END_STREAM, stream, &[]),
        |stream| frame(DATA, 0, stream, b"after the end"),
    ];
    each_backend(|server| {
        for provoke in ways {
            assert_calmed(server, 2_000, |peer, round| {
                peer.request(stream(round), "GET", "/never", &[], true);
                peer.wire_send(&provoke(stream(round)));
            });
        }
    });
}

/// A loop publishes its counts at the end of a turn: those of the first round trip are there after the second.
fn round_trips(peer: &mut Peer<TcpStream>) {
    for _ in 0..2 {
        let before = peer.pongs;
        peer.ping();
        peer.read_until(|peer| peer.pongs > before);
    }
}

#[test]
fn a_bomb_of_references_that_is_pinned_by_a_dripped_window_stays_small() {
    each_backend(|server| {
        let mut peer = server.peer();
        peer.grants = false;
        // No response fits into the windows.
        peer.frame(SETTINGS, 0, 0, &[0, 4, 0, 0, 0, 0]);
        // GET, http, `/` and an authority. A small field enters the table with the first request, ...
        let start = b"\x82\x86\x84\x01\x03sea";
        let block = [&start[..], b"\x40\x01a\x01b"].concat();
        peer.frame(HEADERS, END_HEADERS | END_STREAM, 1, &block);
        round_trips(&mut peer);
        let before = server.memory_bytes();
        // ... and many others refer to it, as often as it is allowed and more often.
        for round in 0..50 {
            for (stream, references) in [(stream(2 * round), 90), (stream(2 * round + 1), 5_000)] {
                let block = [&start[..], &vec![0xbe; references]].concat();
                peer.frame(HEADERS, END_HEADERS | END_STREAM, stream, &block);
                peer.frame(WINDOW_UPDATE, 0, stream, &1_u32.to_be_bytes());
            }
        }
        round_trips(&mut peer);
        assert_eq!((peer.stream(3).status(), peer.stream(5).status()), ("200", "431"));
        // A response that waits has a segment of 4 KiB. The fields alone would be 9 MB with the overhead that RFC 9113
        // counts for each.
        let growth = server.memory_bytes().saturating_sub(before);
        assert!(growth < 50 * 4 * 1024 + 128 * 1024, "{growth} bytes");
    });
}

#[test]
fn many_streams_of_small_messages_that_are_read_late_trip_nothing() {
    each_backend(|server| {
        let mut peer = server.peer();
        for batch in 0..10 {
            let streams: Vec<_> = (0..100).map(|index| 2 * (batch * 100 + index) + 1).collect();
            for stream in &streams {
                peer.request(*stream, "POST", "/late", &[], false);
            }
            for _ in 0..10 {
                for stream in &streams {
                    peer.data(*stream, &[b'x'; 60]);
                }
            }
            for stream in &streams {
                peer.frame(DATA, END_STREAM, *stream, &[b'x'; 60]);
            }
            for stream in streams {
                peer.read_until(|peer| peer.is_over(stream));
                assert_eq!(peer.stream(stream).body, b"660");
            }
        }
        assert_eq!(peer.goaways, []);
    });
}

#[test]
fn many_short_requests_and_a_client_that_cancels_every_tenth_trip_nothing() {
    each_backend(|server| {
        for cancels in [false, true] {
            let mut peer = server.peer();
            for batch in 0..50 {
                let streams: Vec<_> = (0..100).map(|index| 2 * (batch * 100 + index) + 1).collect();
                let mut wire = Vec::new();
                for stream in &streams {
                    let start = [(":method", "GET"), (":scheme", "http"), (":path", "/"), (":authority", "sea")];
                    let block = peer.block(&start);
                    wire.extend(frame(HEADERS, END_HEADERS | END_STREAM, *stream, &block));
                    if cancels && stream % 20 == 1 {
                        wire.extend(frame(RST_STREAM, 0, *stream, &CANCEL.to_be_bytes()));
                    }
                }
                peer.wire_send(&wire);
                for stream in streams {
                    if !(cancels && stream % 20 == 1) {
                        peer.read_until(|peer| peer.is_over(stream));
                    }
                }
                peer.streams.clear();
            }
            assert_eq!(peer.goaways, []);
            peer.frame(SETTINGS, ACK, 0, &[]);
        }
    });
}
