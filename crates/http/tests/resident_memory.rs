//! The resident memory of a server whose functions collect bodies stays near its budget, and goes back to the system
//! afterwards: on both backends.
//!
//! A program of its own: resident memory is that of the process, so other tests would count. It has a single test.

#![forbid(unsafe_code)]

#[expect(dead_code, reason = "the other tests use the rest of it")]
#[path = "suite/support/http2_peer.rs"]
mod http2_peer;

use std::future::pending;
use std::net::TcpStream;
use std::time::Duration;

use bytes::Bytes;
use http2_peer::Peer;
use tidegate::Backend;
use tidegate::http::{Body, Limits, Router, Server};
use tidegate_sys::memory::resident_bytes;

fn router() -> Router {
    Router::new()
        .get("/", || "hello")
        .post("/bytes", async |_: Bytes| -> &'static str { pending().await })
        .post("/vec", async |_: Vec<u8>| -> &'static str { pending().await })
        .post("/body", async |mut body: Body| -> &'static str {
            let all = body.collect(1 << 20).await;
            pending::<()>().await;
            drop(all);
            "never"
        })
}

#[test]
fn resident_memory_stays_near_the_budget_and_goes_back() {
    for backend in [Backend::Epoll, Backend::Uring] {
        let mut limits = Limits::default();
        limits.memory_max = 12 * MIB as usize;
        match Server::bind("127.0.0.1:0").expect("an address").backend(backend).limits(limits).loops(1).start(router) {
            Ok(server) => {
                check(&|| {
                    let socket = TcpStream::connect(server.address().ip().expect("an IP address"));
                    Peer::new(socket.expect("a connection"))
                });
                server.drain(Duration::ZERO);
            }
            Err(error) if backend == Backend::Uring => println!("skipped: io_uring: {error}"),
            Err(error) => panic!("{error}"),
        }
    }
}

fn check(connect: &impl Fn() -> Peer<TcpStream>) {
    let served = |peer: &mut Peer<TcpStream>, stream: u32| {
        peer.request(stream, "GET", "/", &[], true);
        peer.read_until(|peer| peer.stream(stream).has_ended);
    };
    served(&mut connect(), 1);
    let before = resident();
    let (mut peers, mut most) = (Vec::new(), 0);
    for path in ["/bytes", "/vec", "/body"].iter().cycle().take(CONNECTIONS) {
        let mut peer = connect();
        for stream in (0..STREAMS).map(|number| 2 * number + 1) {
            peer.request(stream, "POST", path, &[], false);
            // Within the windows that a stream and its connection have at their beginning.
            (0..4).for_each(|_| peer.data(stream, &[7; 15_000]));
        }
        // Everything before is received.
        served(&mut peer, 101);
        peers.push(peer);
        most = most.max(resident());
    }
    let sent = (CONNECTIONS as u64) * u64::from(STREAMS) * 60_000;
    println!("{sent} bytes were sent; resident memory grew by {}", most - before);
    assert!(most - before < sent / 2, "resident memory grew by {} bytes", most - before);
    drop(peers);
    // Each wait gives the loop another turn; a loop that gives nothing back hangs here.
    let mut peer = connect();
    let mut stream = 1;
    while resident() > before + 6 * MIB {
        served(&mut peer, stream);
        stream += 2;
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn resident() -> u64 {
    resident_bytes().expect("Linux reports it")
}

const MIB: u64 = 1 << 20;

/// 58 MB are sent, with a budget of 12 MiB.
const CONNECTIONS: usize = 60;
const STREAMS: u32 = 16;
