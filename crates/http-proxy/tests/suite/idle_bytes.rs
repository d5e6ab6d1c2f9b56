//! The memory of an idle pair of a proxy, the connections of a client and to its upstream, counted by the allocator.
//!
//! The allocator counts for each thread, and the proxy's loop runs on the thread of the test: other threads do not count.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use tidegate::http::proxy::{Proxy, UpstreamLimits, Upstreams};
use tidegate::http::{Config, Router};
use tidegate::{EventLoop, Limits};
use tidegate_sys::{ListenOptions, Socket};
use tidegate_testkit::allocations::Region;

#[test]
fn an_idle_pair_is_small() {
    // How many heads arrive at once decides the memory that the loop keeps for the next ones: it belongs to no
    // connection.
    let bytes = (0..ROUNDS).map(|_| pair_bytes()).min().expect("a round");
    println!("bytes for an idle pair: {bytes}, beside {TABLE_BYTES} in tables");
    assert!((PAIR_BYTES_MIN..=PAIR_BYTES_MAX).contains(&(bytes + TABLE_BYTES)), "{bytes} bytes");
}

fn pair_bytes() -> usize {
    let upstream = Upstream::start();
    let mut limits = UpstreamLimits::default();
    limits.idle_connections_max = 4 * COUNT;
    let url = format!("http://{}", upstream.address).parse().expect("a URL");
    let upstreams = Upstreams::builder().server(url).limits(limits).build().expect("upstreams");
    let mut proxy = ProxyLoop::start(Router::with_state(()).fallback(Proxy::new(&upstreams)));
    let mut clients = Vec::with_capacity(4 * COUNT);
    // The loop keeps the memory of requests in progress for the next ones, and its tables.
    proxy.connect(&mut clients, 3 * COUNT);
    for _ in 0..3 {
        proxy.request(&upstream, &mut clients);
    }
    clients.truncate(COUNT);
    upstream.kept.store(COUNT, Ordering::SeqCst);
    proxy.turn_until_open(2 * COUNT);
    proxy.request(&upstream, &mut clients);
    proxy.turn_until_open(2 * COUNT);
    let region = Region::new();
    proxy.connect(&mut clients, 2 * COUNT);
    proxy.request(&upstream, &mut clients);
    proxy.turn_until_open(4 * COUNT);
    let bytes = region.change().bytes_in_use().max(0).unsigned_abs();
    drop((clients, proxy));
    upstream.stop();
    bytes / COUNT
}

/// A loop that serves a proxy.
struct ProxyLoop {
    event_loop: EventLoop,
    address: SocketAddr,
}

impl ProxyLoop {
    fn start(router: Router<()>) -> Self {
        let mut event_loop = EventLoop::readiness().expect("a loop");
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        let listener = Socket::from_listener(listener, &ListenOptions::default()).expect("a listener");
        let connections = Config::new().connections(router);
        let listening = event_loop.listen(listener, Limits::default(), Arc::default(), move |_| connections());
        listening.expect("it listens");
        Self { event_loop, address }
    }

    fn connect(&mut self, clients: &mut Vec<TcpStream>, count: usize) {
        while clients.len() < count {
            let client = TcpStream::connect(self.address).expect("the proxy accepts");
            client.set_nonblocking(true).expect("a socket");
            clients.push(client);
            // The backlog of the listener has room for fewer.
            self.event_loop.turn(Some(Duration::ZERO)).expect("waiting does not fail");
        }
    }

    /// A request of each client, of which none is answered before all have come.
    fn request(&mut self, upstream: &Upstream, clients: &mut [TcpStream]) {
        upstream.wanted.store(clients.len(), Ordering::SeqCst);
        for client in &mut *clients {
            client.write_all(b"GET / HTTP/1.1\r\nHost: sea\r\n\r\n").expect("there is room");
        }
        for client in clients {
            let (mut bytes, mut length) = ([0; 1024], 0);
            while !bytes[..length].ends_with(b"\r\n\r\nebb") {
                match client.read(&mut bytes[length..]) {
                    Ok(count) => {
                        assert!(count > 0, "the response is whole");
                        length += count;
                    }
                    Err(error) if error.kind() == ErrorKind::WouldBlock => self.turn(),
                    Err(error) => panic!("{error}"),
                }
            }
        }
    }

    /// Turns the loop until it has as many connections, and rests.
    fn turn_until_open(&mut self, count: usize) {
        while self.event_loop.counts().connections != count as u64 {
            self.turn();
        }
        (0..3).for_each(|_| self.event_loop.turn(Some(Duration::ZERO)).expect("waiting does not fail"));
    }

    fn turn(&mut self) {
        self.event_loop.turn(Some(Duration::from_secs(1))).expect("waiting does not fail");
    }
}

/// Answers requests as soon as there are as many as wanted, without memory for a connection.
struct Upstream {
    address: SocketAddr,
    wanted: Arc<AtomicUsize>,
    /// How many connections stay open.
    kept: Arc<AtomicUsize>,
    is_over: Arc<AtomicBool>,
    thread: thread::JoinHandle<()>,
}

impl Upstream {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        let (wanted, kept, is_over) = (Arc::default(), Arc::new(AtomicUsize::new(usize::MAX)), Arc::default());
        let (asks, keeps, ends) = (Arc::clone(&wanted), Arc::clone(&kept), Arc::clone(&is_over));
        let thread = thread::spawn(move || serve(&listener, &asks, &keeps, &ends));
        Self { address, wanted, kept, is_over, thread }
    }

    fn stop(self) {
        self.is_over.store(true, Ordering::SeqCst);
        self.thread.join().expect("it does not panic");
    }
}

fn serve(listener: &TcpListener, wanted: &AtomicUsize, kept: &AtomicUsize, is_over: &AtomicBool) {
    listener.set_nonblocking(true).expect("a socket");
    let mut peers: Vec<(TcpStream, bool)> = Vec::with_capacity(4 * COUNT);
    let mut bytes = [0; 1024];
    while !is_over.load(Ordering::SeqCst) {
        peers.truncate(kept.swap(usize::MAX, Ordering::SeqCst));
        while let Ok((peer, _)) = listener.accept() {
            peer.set_nonblocking(true).expect("a socket");
            peers.push((peer, false));
        }
        for (peer, asks) in &mut peers {
            match peer.read(&mut bytes) {
                Ok(count) => *asks |= count > 0,
                // The proxy resets its connections when it ends.
                Err(error) => {
                    assert!(matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::ConnectionReset), "{error}");
                }
            }
        }
        if peers.iter().filter(|(_, asks)| *asks).count() == wanted.load(Ordering::SeqCst) {
            for (peer, asks) in &mut peers {
                if std::mem::take(asks) {
                    peer.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nebb").expect("there is room");
                }
            }
        }
        thread::sleep(Duration::from_micros(100));
    }
}

/// So few that the tables of the loop are large enough before: they have had room for three times as many pairs.
const COUNT: usize = 62;

/// The bytes of these tables for the two connections: 40 bytes for a slot, and 12 in the driver's.
const TABLE_BYTES: usize = 2 * (40 + 12);

/// A pair has some bytes: a count below this would not be that of the proxy's loop.
const PAIR_BYTES_MIN: usize = 200;

/// The most bytes of an idle pair.
const PAIR_BYTES_MAX: usize = 700;

const ROUNDS: usize = 15;
