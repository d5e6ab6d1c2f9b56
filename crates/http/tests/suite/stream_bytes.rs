//! The memory of HTTP/2 streams that wait for their peer's window, or for their function, counted by the allocator.
//!
//! The allocator counts for each thread, so other threads of the test do not count.

use std::future::pending;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use tidegate::http::proxy::{Proxy, Upstreams};
use tidegate::http::{Body, Config, Router, Server};
use tidegate::{Backend, EventLoop, Limits, ServerHandle};
use tidegate_sys::{ListenOptions, Socket};
use tidegate_testkit::allocations::Region;

#[test]
fn a_stream_that_waits_for_a_window_costs_little_beside_its_bytes() {
    let mut dear = Vec::new();
    for (path, queued) in [("/static", 0), ("/short", 15), ("/long", 2012)] {
        let bytes = served_bytes(GET, path);
        println!("bytes for a stream that waits with the body of {path}: {bytes}, of which {queued} are queued");
        dear.extend((bytes > WAITING_BYTES_MAX + queued).then_some(path));
    }
    assert!(dear.is_empty(), "{dear:?}");
}

#[test]
fn a_stream_whose_body_is_produced_or_awaited_keeps_no_page() {
    let mut dear = Vec::new();
    for (request, path) in [(GET, "/produced"), (GET, "/waits"), (POST, "/collects"), (POST, "/reads")] {
        let bytes = served_bytes(request, path);
        println!("bytes for a stream of {path}: {bytes}");
        dear.extend((bytes > WORKING_BYTES_MAX).then_some(path));
    }
    assert!(dear.is_empty(), "{dear:?}");
}

#[test]
fn a_proxied_stream_holds_less_than_a_window_while_its_client_reads_nothing() {
    for scheme in ["http", "h2c"] {
        let upstream = upstream();
        let url = format!("{scheme}://{}", upstream.address());
        let upstreams = Upstreams::new([&*url]).expect("upstreams");
        let bytes = proxied_bytes(Router::with_state(()).fallback(Proxy::new(&upstreams)));
        println!("bytes for a stream that a proxy forwards to {scheme}: {bytes}");
        assert!(bytes <= PROXIED_BYTES_MAX, "{scheme}: {bytes} bytes");
        upstream.drain(Duration::ZERO);
    }
}

static BLOCK: [u8; 16 * 1024] = [7; 16 * 1024];

fn router() -> Router<()> {
    let produced = || {
        Body::produce(async |writer| {
            // The window lets none of it pass, so the second piece is never sent.
            writer.write("ebb").await?;
            pending::<()>().await;
            Ok(())
        })
    };
    Router::with_state(())
        .get("/static", || Body::from(&BLOCK[..]))
        .get("/short", || "ebb")
        .get("/long", || Body::from(vec![7; 2000]))
        .get("/waits", async || -> &'static str { pending().await })
        .get("/produced", produced)
        .post("/collects", |_: Vec<u8>| "")
        .post("/reads", async |mut body: Body| -> &'static str {
            while body.next().await.is_some() {}
            ""
        })
}

/// A server whose responses are long.
fn upstream() -> ServerHandle {
    let router = || {
        let endless = || {
            Body::produce(async |writer| {
                loop {
                    writer.write(&BLOCK[..]).await?;
                }
            })
        };
        Router::new().get("/", endless)
    };
    Server::bind("127.0.0.1:0").expect("a port").backend(Backend::Epoll).loops(1).start(router).expect("it starts")
}

/// A loop that serves a router.
fn listen(router: Router<()>) -> (EventLoop, SocketAddr) {
    let mut event_loop = EventLoop::readiness().expect("a loop");
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    let listener = Socket::from_listener(listener, &ListenOptions::default()).expect("a listener");
    let connections = Config::new().connections(router);
    let listening = event_loop.listen(listener, Limits::default(), Arc::default(), move |_| connections());
    listening.expect("it listens");
    (event_loop, address)
}

/// The memory for a stream of a connection that has many, beside that of the connection.
fn served_bytes(request: Request, path: &str) -> usize {
    let [few, many] = [FEW_STREAMS, STREAMS].map(|streams| connection_bytes(request, path, streams));
    println!("{path}: a connection with {FEW_STREAMS} streams has {few} bytes, one with {STREAMS} has {many}");
    (many - few) / (STREAMS - FEW_STREAMS)
}

/// The memory for a connection with so many streams that a server of the router serves.
fn connection_bytes(request: Request, path: &str, streams: usize) -> usize {
    let (mut event_loop, address) = listen(router());
    let mut open = || {
        let mut peer = Peer::connect(address);
        peer.request(request, path, streams);
        peer.receive_until(&mut event_loop, |peer| peer.pongs > 0);
        // The dispatch is over in which the streams were opened, and so are those of their tasks.
        (0..3).for_each(|_| turn(&mut event_loop, Duration::ZERO));
        peer
    };
    let mut peers = Vec::with_capacity(2 * CONNECTIONS);
    (0..CONNECTIONS).for_each(|_| peers.push(open()));
    let region = Region::new();
    (0..CONNECTIONS).for_each(|_| peers.push(open()));
    let received: usize = peers[CONNECTIONS..].iter().map(|peer| peer.input.capacity()).sum();
    (region.change().bytes_in_use().unsigned_abs() - received) / CONNECTIONS
}

/// The memory for each of many streams that a proxy forwards, once it has received all that it receives.
fn proxied_bytes(router: Router<()>) -> usize {
    let (mut event_loop, address) = listen(router);
    let mut open = |bytes_min: usize| {
        let region = Region::new();
        let mut peer = Peer::connect(address);
        peer.request(GET, "/", PROXIED_STREAMS);
        peer.receive_until(&mut event_loop, |peer| peer.heads == PROXIED_STREAMS);
        // It holds as much as it takes in any case, and then turns show how much more it takes.
        while region.change().bytes_in_use().unsigned_abs() < bytes_min * PROXIED_STREAMS {
            turn(&mut event_loop, Duration::from_millis(10));
        }
        (0..50).for_each(|_| turn(&mut event_loop, Duration::from_millis(2)));
        peer
    };
    // The loop has its tables and its scratch.
    let first = open(0);
    let region = Region::new();
    let second = open(PROXIED_BYTES_MIN);
    let bytes = region.change().bytes_in_use().unsigned_abs() - second.input.capacity();
    drop((first, second));
    bytes / PROXIED_STREAMS
}

fn turn(event_loop: &mut EventLoop, wait: Duration) {
    event_loop.turn(Some(wait)).expect("waiting does not fail");
}

/// A method, and whether the request ends with its head.
type Request = (&'static str, bool);

const GET: Request = ("GET", true);
/// Its body never comes.
const POST: Request = ("POST", false);

/// A client that grants no window to any stream.
struct Peer {
    socket: TcpStream,
    input: Vec<u8>,
    heads: usize,
    pongs: usize,
}

impl Peer {
    fn connect(address: SocketAddr) -> Self {
        let mut socket = TcpStream::connect(address).expect("there are descriptors left");
        socket.set_nonblocking(true).expect("a socket");
        let mut wire = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
        // SETTINGS_INITIAL_WINDOW_SIZE is 0.
        wire.extend(frame(SETTINGS, 0, 0, &[0, 4, 0, 0, 0, 0]));
        wire.extend(frame(SETTINGS, ACK, 0, &[]));
        socket.write_all(&wire).expect("there is room");
        Self { socket, input: Vec::with_capacity(64 * 1024), heads: 0, pongs: 0 }
    }

    /// Opens streams, and sends a PING behind them.
    fn request(&mut self, (method, ends): Request, path: &str, streams: usize) {
        let (block, mut wire) = (block(method, path), Vec::new());
        for stream in 0..streams as u32 {
            wire.extend(frame(HEADERS, END_HEADERS | u8::from(ends), 2 * stream + 1, &block));
        }
        wire.extend(frame(PING, 0, 0, b"are open"));
        self.socket.write_all(&wire).expect("there is room");
    }

    fn receive_until(&mut self, event_loop: &mut EventLoop, is_done: impl Fn(&Self) -> bool) {
        while !is_done(self) {
            turn(event_loop, Duration::from_millis(10));
            let mut bytes = [0; 16 * 1024];
            match self.socket.read(&mut bytes) {
                Ok(0) => panic!("the connection is closed"),
                Ok(length) => self.input.extend_from_slice(&bytes[..length]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) => panic!("{error}"),
            }
            while let Some((&[a, b, c, kind, flags, ..], length)) = self
                .input
                .first_chunk::<9>()
                .map(|head| (head, u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize))
                && self.input.len() >= 9 + length
            {
                assert_eq!(u32::from_be_bytes([0, a, b, c]) as usize, length);
                self.heads += usize::from(kind == HEADERS);
                self.pongs += usize::from(kind == PING && flags & ACK != 0);
                assert!(kind != DATA || length == 0, "no window was granted");
                self.input.drain(..9 + length);
            }
        }
    }
}

/// A head of a hundred bytes, without compression.
fn block(method: &str, path: &str) -> Vec<u8> {
    let mut block = Vec::new();
    for (name, value) in [
        (":method", method),
        (":scheme", "http"),
        (":path", path),
        (":authority", "sea.example.org"),
        ("accept", "text/html"),
        ("user-agent", "a client"),
    ] {
        block.extend([0, name.len() as u8]);
        block.extend(name.as_bytes());
        block.push(value.len() as u8);
        block.extend(value.as_bytes());
    }
    block
}

fn frame(kind: u8, flags: u8, stream: u32, content: &[u8]) -> Vec<u8> {
    let length = (content.len() as u32).to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), content].concat()
}

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const ACK: u8 = 1;
const END_HEADERS: u8 = 4;

const CONNECTIONS: usize = 10;
const STREAMS: usize = 112;
const FEW_STREAMS: usize = 28;
const PROXIED_STREAMS: usize = 50;

/// The most bytes of a stream that waits for its peer's window, beside those that are queued.
const WAITING_BYTES_MAX: usize = 300;

/// The same of one with a task of its own, or with a head that a function awaits.
const WORKING_BYTES_MAX: usize = 3500;

/// The fewest bytes that a proxy receives for a stream whose client reads nothing.
const PROXIED_BYTES_MIN: usize = 16 * 1024;

/// The most bytes of a stream that a proxy forwards: the window with which a stream begins, and the state of two
/// streams and the task between them.
const PROXIED_BYTES_MAX: usize = 64 * 1024 + 5 * 1024;
