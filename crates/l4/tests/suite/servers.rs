//! Forwarders as listeners of a server, on each backend, with blocking sockets as clients and upstreams.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::thread;
use std::time::Duration;

use tidegate_engine::{Backend, EndpointListener, EventLoop, Listener, Server, ServerHandle};
use tidegate_l4::{ConnectCheck, Routes, TcpForwarder, TcpLimits, UdpForwarder, UdpRules, Upstreams};
use tidegate_testkit::ClosedPort;

const PATIENCE: Duration = Duration::from_secs(120);

/// Calls until no signal has interrupted the call: the kernel interrupts a call with a time-out to run the work of a ring.
fn uninterrupted<T>(mut call: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    loop {
        match call() {
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            result => return result,
        }
    }
}

fn backends() -> Vec<Backend> {
    let has_uring = EventLoop::on(Backend::Uring).is_ok();
    [Backend::Epoll].into_iter().chain(has_uring.then_some(Backend::Uring)).collect()
}

fn upstreams(scheme: &str, address: SocketAddr) -> Upstreams {
    Upstreams::builder().server(format!("{scheme}://{address}").parse().expect("a server"), 1).build()
}

fn tcp(backend: Backend, forwarder: &TcpForwarder) -> (ServerHandle, SocketAddr) {
    let listener = forwarder.serve(Listener::bind("127.0.0.1:0").expect("an address"));
    let server = Server::new().loops(2).backend(backend).listener(listener).run().expect("it starts");
    let address = server.address().ip().expect("an IP address");
    (server, address)
}

/// A client, and the upstream's socket of the same stream.
fn both(address: SocketAddr, upstream: &TcpListener) -> (TcpStream, TcpStream) {
    let near = TcpStream::connect(address).expect("a connection");
    let far = upstream.accept().expect("a connection").0;
    for stream in [&near, &far] {
        stream.set_read_timeout(Some(PATIENCE)).expect("a time-out");
    }
    (near, far)
}

#[test]
fn ends_and_resets_are_passed_on_in_both_directions() {
    for backend in backends() {
        let upstream = TcpListener::bind("127.0.0.1:0").expect("a port");
        let set = upstreams("tcp", upstream.local_addr().expect("an address"));
        let forwarder = TcpForwarder::new(Routes::to(&set), TcpLimits::default());
        let (server, address) = tcp(backend, &forwarder);
        let (mut near, mut far) = both(address, &upstream);
        near.write_all(b"question").expect("room");
        near.shutdown(Shutdown::Write).expect("an open stream");
        let mut text = String::new();
        far.read_to_string(&mut text).expect("an end");
        assert_eq!(text, "question");
        far.write_all(b"answer").expect("room");
        drop(far);
        text.clear();
        near.read_to_string(&mut text).expect("an end");
        assert_eq!(text, "answer");
        for from_client in [true, false] {
            let (near, far) = both(address, &upstream);
            let (mut from, mut to) = if from_client { (near, far) } else { (far, near) };
            from.write_all(b"half").expect("room");
            to.read_exact(&mut [0; 4]).expect("four bytes");
            to.write_all(b"unread").expect("room");
            uninterrupted(|| from.peek(&mut [0])).expect("a byte");
            // The kernel resets a stream with unread bytes.
            drop(from);
            let end = uninterrupted(|| to.read(&mut [0; 16])).map_err(|error| error.kind());
            assert_eq!(end, Err(ErrorKind::ConnectionReset), "{backend:?}, from the client: {from_client}");
        }
        server.drain(Duration::from_secs(5));
    }
}

#[test]
fn a_slow_reader_stops_the_sender_and_loses_nothing() {
    for backend in backends() {
        let upstream = TcpListener::bind("127.0.0.1:0").expect("a port");
        let set = upstreams("tcp", upstream.local_addr().expect("an address"));
        let (server, address) = tcp(backend, &TcpForwarder::new(Routes::to(&set), TcpLimits::default()));
        let (mut near, mut far) = both(address, &upstream);
        // Far more than all buffers on the way hold: the sender blocks.
        near.set_nonblocking(true).expect("a mode");
        let piece = [7; 64 * 1024];
        let mut sent = 0_usize;
        let mut idle = 0;
        while idle < 20 {
            match near.write(&piece) {
                Ok(count) => (sent, idle) = (sent + count, 0),
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    idle += 1;
                    thread::sleep(Duration::from_millis(10));
                }
                Err(error) => panic!("{error}"),
            }
            assert!(sent < 512 << 20, "the forwarder takes everything");
        }
        let memory: u64 = server.counts().iter().map(|counts| counts.memory_bytes).sum();
        assert!(memory < 4 << 20, "{memory} bytes");
        near.shutdown(Shutdown::Write).expect("an open stream");
        let mut received = 0;
        let mut buffer = vec![0; 1 << 20];
        loop {
            match uninterrupted(|| far.read(&mut buffer)).expect("bytes") {
                0 => break,
                count => received += count,
            }
        }
        assert_eq!(received, sent);
        // Otherwise the drain waits for them until its deadline.
        drop((near, far));
        server.drain(Duration::from_secs(5));
    }
}

#[test]
fn datagrams_go_there_and_back_through_two_loops() {
    for backend in backends() {
        let upstream = UdpSocket::bind("127.0.0.1:0").expect("a port");
        let address = upstream.local_addr().expect("an address");
        let echo = thread::spawn(move || {
            let mut buffer = [0; 16 * 1024];
            loop {
                let (length, source) = uninterrupted(|| upstream.recv_from(&mut buffer)).expect("a datagram");
                if length == 0 {
                    return;
                }
                upstream.send_to(&buffer[..length], source).expect("room");
            }
        });
        let forwarder = UdpForwarder::new(&upstreams("udp", address), UdpRules::default());
        let listener = forwarder.serve(EndpointListener::bind("127.0.0.1:0").expect("an address"));
        let server = Server::new().loops(2).backend(backend).endpoint(listener).run().expect("it starts");
        let front = server.address().ip().expect("an IP address");
        let clients: Vec<_> = (0..32).map(|_| UdpSocket::bind("127.0.0.1:0").expect("a port")).collect();
        for client in &clients {
            client.connect(front).expect("an address");
            client.set_read_timeout(Some(PATIENCE)).expect("a time-out");
        }
        for length in [1, 1_200, 9_216] {
            for (number, client) in clients.iter().enumerate() {
                let sent = vec![number as u8; length];
                client.send(&sent).expect("room");
                let mut received = [0; 16 * 1024];
                let count = uninterrupted(|| client.recv(&mut received)).expect("a datagram");
                assert_eq!(received[..count], sent, "{backend:?}");
            }
        }
        let counts = forwarder.counts();
        assert_eq!((counts.flows, counts.begun, counts.forwarded, counts.returned), (32, 32, 96, 96));
        UdpSocket::bind("127.0.0.1:0").and_then(|end| end.send_to(&[], address)).expect("room");
        echo.join().expect("the echo ends");
        server.drain(Duration::from_secs(5));
        assert_eq!(forwarder.counts().flows, 0);
    }
}

#[test]
fn an_upstream_that_closes_its_socket_ends_the_flow() {
    for backend in backends() {
        let upstream = UdpSocket::bind("127.0.0.1:0").expect("a port");
        let address = upstream.local_addr().expect("an address");
        let forwarder = UdpForwarder::new(&upstreams("udp", address), UdpRules::default());
        let listener = forwarder.serve(EndpointListener::bind("127.0.0.1:0").expect("an address"));
        let server = Server::new().loops(1).backend(backend).endpoint(listener).run().expect("it starts");
        let client = UdpSocket::bind("127.0.0.1:0").expect("a port");
        client.connect(server.address().ip().expect("an IP address")).expect("an address");
        client.send(b"ebb").expect("room");
        uninterrupted(|| upstream.recv(&mut [0; 8])).expect("a datagram");
        assert_eq!(forwarder.counts().flows, 1);
        drop(upstream);
        client.send(b"flow").expect("room");
        while forwarder.counts().unreachable == 0 {
            thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(forwarder.counts().flows, 0);
        server.drain(Duration::from_secs(5));
    }
}

#[test]
fn a_check_finds_a_server_that_accepts_nothing_and_a_name_gets_its_addresses() {
    let open = TcpListener::bind("127.0.0.1:0").expect("a port");
    let closed = ClosedPort::tcp();
    let address = open.local_addr().expect("an address");
    let mut check = ConnectCheck::default();
    (check.interval, check.failures) = (Duration::from_millis(1), 1);
    let builder = Upstreams::builder()
        .server(format!("tcp://localhost:{}", address.port()).parse().expect("a server"), 1)
        .server(format!("tcp://{}", closed.address()).parse().expect("a server"), 1);
    let set = builder.check(check).build();
    let _maintenance = set.maintain_on_thread(PATIENCE).expect("a thread");
    assert!(set.addresses().contains(&address), "{:?}", set.addresses());
    // Before a client asks, its server was seen down.
    while set.available() > set.addresses().iter().filter(|found| found.port() == address.port()).count() {
        thread::sleep(Duration::from_millis(5));
    }
    let forwarder = TcpForwarder::new(Routes::to(&set), TcpLimits::default());
    let (server, front) = tcp(Backend::Epoll, &forwarder);
    for _ in 0..8 {
        drop(TcpStream::connect(front).expect("a connection"));
    }
    // It resets the connections that it has not accepted. Otherwise the drain waits for them until its deadline.
    drop(open);
    server.drain(Duration::from_secs(5));
}
