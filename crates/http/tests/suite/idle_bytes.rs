//! The memory of an idle connection, counted by the allocator.
//!
//! The allocator counts for each thread, so other threads of the test do not count.

use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use tidegate::http::{Config, Router};
use tidegate::{EventLoop, Limits, task};
use tidegate_sys::{ListenOptions, Socket};
use tidegate_testkit::allocations::Region;

#[test]
fn an_idle_connection_costs_the_same_after_a_function_of_any_kind() {
    let fresh = idle_bytes(None);
    let [plain, complete, waited] = ["/plain", "/complete", "/waited"].map(|path| idle_bytes(Some(path)));
    println!(
        "bytes for an idle connection: {fresh} before its first request, {plain} after a function that is not async, \
         {complete} after an async one that was complete at once, {waited} after one that waited"
    );
    for bytes in [fresh, plain, complete, waited] {
        assert!(bytes <= IDLE_BYTES_MAX, "{bytes} bytes");
    }
    assert!(complete <= plain && waited <= plain, "{plain}, {complete}, {waited}");
}

fn router() -> Router<()> {
    Router::with_state(()).get("/plain", || "ebb").get("/complete", async || "ebb").get("/waited", async || {
        task::sleep(Duration::from_millis(1)).await;
        "ebb"
    })
}

/// The memory for each of many connections that are idle, after a GET of `path`.
fn idle_bytes(path: Option<&str>) -> usize {
    const COUNT: usize = 256;
    let mut event_loop = EventLoop::readiness().expect("a loop");
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    let listener = Socket::from_listener(listener, &ListenOptions::default()).expect("a listener");
    let connections = Config::new().connections(router());
    let listening = event_loop.listen(listener, Limits::default(), Arc::default(), move |_| connections());
    listening.expect("it listens");
    let mut serve = |peers: &mut Vec<TcpStream>| {
        let mut peer = TcpStream::connect(address).expect("there are descriptors left");
        peer.set_nonblocking(true).expect("a socket");
        if let Some(path) = path {
            write!(peer, "GET {path} HTTP/1.1\r\nHost: sea\r\n\r\n").expect("there is room");
            exchange(&mut event_loop, &mut peer);
        }
        peers.push(peer);
        while event_loop.counts().connections < peers.len() as u64 {
            event_loop.turn(Some(Duration::from_secs(1))).expect("waiting does not fail");
        }
    };
    let mut peers = Vec::with_capacity(2 * COUNT);
    (0..COUNT).for_each(|_| serve(&mut peers));
    let region = Region::new();
    (0..COUNT).for_each(|_| serve(&mut peers));
    let change = region.change();
    change.bytes_allocated.saturating_sub(change.bytes_deallocated) / COUNT
}

/// Turns the loop until the peer has the response, and the connection has no task any more.
fn exchange(event_loop: &mut EventLoop, peer: &mut TcpStream) {
    let mut answer = [0; 512];
    let length = loop {
        match peer.read(&mut answer) {
            Ok(length) => break length,
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                event_loop.turn(Some(Duration::from_secs(1))).expect("waiting does not fail");
            }
            Err(error) => panic!("{error}"),
        }
    };
    let answer = &answer[..length];
    assert!(answer.starts_with(b"HTTP/1.1 200 OK\r\n") && answer.ends_with(b"ebb"), "{}", answer.escape_ascii());
    event_loop.turn(Some(Duration::ZERO)).expect("waiting does not fail");
}

/// The most bytes of an idle connection, in any state between requests.
const IDLE_BYTES_MAX: usize = 272;
