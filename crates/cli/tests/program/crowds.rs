//! Many connections at once, that are idle, send requests, reset, stall and close; and many in sequence. Each test
//! asserts that after the last close no descriptor is left, and that the server's memory count is back at its start.
//!
//! The default is a few hundred; `TIDEGATE_CROWD=15000` is the maximum for two processes with 20,000 descriptors each.

use std::time::Instant;

use rustix::process::Resource;

use crate::memory::{assert_growth, settled, warm_up};
use crate::support::peer::{LAST, Peer, assert_same, letters, post, request};
use crate::support::program::{Program, until};

#[test]
fn many_idle_then_active_connections_leak_nothing() {
    let count = crowd();
    let scene = Scene::new(&["--loops", "1"]);
    let mut peers = scene.connect(count);
    for peer in &mut peers {
        assert_eq!(peer.get("/plaintext").status, 200);
    }
    let idle = settled(&scene.program);
    let each = idle.saturating_sub(scene.resident) / count as u64;
    println!("{count} idle connections: {each} bytes of resident memory each");
    assert_growth("a crowd at rest", scene.resident, idle, IDLE_BYTES_MAX * count as u64 + GROWTH_MAX);
    assert_eq!(scene.count("connections"), count as u64);
    scene.expect_no_bytes_held();

    let echo = post("/echo", b"all at once");
    for (wire, expected) in [
        (request("GET", "/plaintext").into_bytes(), b"Hello, World!".to_vec()),
        (request("GET", "/bytes/5000").into_bytes(), letters(5_000)),
        (request("GET", "/stream/5000").into_bytes(), letters(5_000)),
        (echo, b"all at once".to_vec()),
    ] {
        let begun = Instant::now();
        for peer in &mut peers {
            peer.send(&wire);
        }
        for peer in &mut peers {
            assert_same(&peer.reply().body, &expected);
        }
        println!("{count} requests, one on each: {:.2?}", begun.elapsed());
    }
    assert_eq!(scene.count("connections"), count as u64);
    drop(peers);
    scene.expect_nothing_left("a crowd that went");
}

#[test]
fn many_simultaneous_resets_leak_nothing() {
    let count = crowd();
    for loops in ["1", "2"] {
        let scene = Scene::new(&["--loops", loops]);
        let mut peers = scene.connect(count);
        for (number, peer) in peers.iter_mut().enumerate() {
            match number % 4 {
                0 => assert_eq!(peer.get("/plaintext").status, 200),
                1 => peer.send("GET /plaintext HTTP/1.1\r\nHost: loc"),
                2 => peer.send("POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\n0123"),
                _ => peer.send(request("GET", "/bytes/5000")),
            }
        }
        until("all to be there", || scene.count("connections") == count as u64);
        let broken = scene.count("closed_broken");
        peers.into_iter().for_each(Peer::reset);
        scene.expect_nothing_left("a crowd that was reset");
        assert_eq!(scene.count("closed_broken") - broken, count as u64);
    }
}

#[test]
fn many_stalled_requests_are_closed_by_deadlines() {
    let count = crowd();
    let scene = Scene::new(&["--loops", "1", "--request-timeout", "1"]);
    let mut peers = scene.connect(count);
    for (number, peer) in peers.iter_mut().enumerate() {
        let half: &[u8] = match number % 3 {
            0 => b"GET /plaintext HTTP/1.1\r\nHost: loc",
            1 => b"POST /plaintext HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\n0123",
            _ => b"POST /echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhel",
        };
        peer.send(half);
    }
    // The peers neither read nor close, so only deadlines end the connections.
    scene.expect_nothing_left("a crowd that fell silent");
    let first = &mut peers[0];
    assert_eq!(first.reply().status, 408);
    first.expect_end();
}

#[test]
fn many_sequential_connections_leak_nothing() {
    let count = crowd() / 3 * 4;
    let scene = Scene::new(&["--loops", "1"]);
    let accepted = scene.count("accepted");
    let begun = Instant::now();
    for number in 0..count {
        let mut peer = scene.peer(number);
        match number % 5 {
            // Which side closes first: the peer, the server, or a reset.
            0 => assert_eq!(peer.get("/plaintext").status, 200),
            1 => {
                assert_eq!(peer.exchange(LAST).status, 200);
                peer.expect_end();
            }
            2 => {
                assert_eq!(peer.get("/bytes/5000").status, 200);
                peer.reset();
            }
            3 => {
                peer.send(request("GET", "/bytes/100000"));
                peer.reset();
            }
            _ => peer.send(LAST),
        }
    }
    println!("{count} short connections: {:.2?}", begun.elapsed());
    scene.expect_nothing_left("a crowd that came one after the other");
    // All of them, and the request after their close.
    assert_eq!(scene.count("accepted") - accepted, count as u64 + 1);
}

/// A server, and its resources before the first connection.
struct Scene {
    program: Program,
    descriptors: usize,
    resident: u64,
    /// The memory that the server counts without connections: the receive memory of each loop.
    bytes: u64,
}

impl Scene {
    fn new(arguments: &[&str]) -> Self {
        let program = Program::serve(&[&["--max-connections", "20000"], arguments].concat());
        warm_up(&program);
        until("the warm-up connections to close", || program.count("connections") == 0);
        let (descriptors, bytes) = (program.descriptors(), program.count("memory_bytes"));
        assert!(bytes < BYTES_MAX, "{bytes} bytes are counted without connections");
        Self { descriptors, bytes, resident: settled(&program), program }
    }

    /// Opens `count` connections, from several addresses: each has its own ports.
    fn connect(&self, count: usize) -> Vec<Peer> {
        (0..count).map(|number| self.peer(number)).collect()
    }

    fn peer(&self, number: usize) -> Peer {
        Peer::from(([127, 0, 0, 2 + (number % 8) as u8], 0).into(), &self.program)
    }

    fn count(&self, name: &str) -> u64 {
        self.program.count(name)
    }

    /// Asserts that connections use no counted memory.
    fn expect_no_bytes_held(&self) {
        assert_eq!(self.count("memory_bytes"), self.bytes);
    }

    fn expect_nothing_left(&self, what: &str) {
        let begun = Instant::now();
        until("descriptors to be given back", || self.program.descriptors() <= self.descriptors);
        until("connections to be gone", || self.count("connections") == 0);
        println!("{what}: gone after {:.2?}; {} slow turns", begun.elapsed(), self.count("slow_turns"));
        self.expect_no_bytes_held();
        assert_eq!(self.program.descriptors(), self.descriptors, "{what}");
        assert_growth(what, self.resident, settled(&self.program), GROWTH_MAX);
        // Many peers must not flood the log.
        let lines = self.program.log().len();
        assert!(lines <= LINES_MAX, "{what}: {lines} lines");
        assert_eq!(Peer::connect(&self.program).get("/plaintext").status, 200);
        until("the last one to be gone", || self.count("connections") == 0);
    }
}

/// The number of connections.
fn crowd() -> usize {
    let count = std::env::var("TIDEGATE_CROWD").map_or(480, |count| count.parse().expect("a number of connections"));
    let limit = rustix::process::getrlimit(Resource::Nofile).maximum;
    let spare = limit.is_none_or(|limit| limit > count as u64 + 500);
    assert!(spare, "{count} connections need more descriptors than the {limit:?} that are allowed");
    count
}

/// The memory bound of an idle connection; `benches/` measures the published figure.
const IDLE_BYTES_MAX: u64 = 640;

/// The bound of the receive memory of two loops, which on io_uring is buffers of 192 KiB and a scratch of 81 KiB each.
const BYTES_MAX: u64 = 2 * 277 * 1024;

/// The bound of the growth in resident memory at the end.
const GROWTH_MAX: u64 = 2 << 20;

/// The bound of log lines: a hundred a second for the duration of a test.
const LINES_MAX: usize = 5_000;
