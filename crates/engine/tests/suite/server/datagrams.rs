//! Datagram sockets of several loops: the loop that a datagram names gets it, and a successor has the same sockets.

use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use tidegate_buffer::{Datagram, Transmit, Transmits};
use tidegate_codec::Endpoint;
use tidegate_engine::{Backend, DatagramChannel, EndpointListener, EventLoop, ServedEndpoint, Server, ServerHandle};
use tidegate_sys::{DatagramOptions, Socket, Steering};

use crate::server::support::{PATIENCE, SocketPath, sum, uninterrupted, until};

/// Sends datagrams back with the number of its loop in front.
struct Numbered {
    number: u8,
    responses: Vec<Transmit>,
}

impl Endpoint for Numbered {
    fn handle_datagram(&mut self, datagram: Datagram, _now: Instant) {
        let payload = [&[self.number], &*datagram.payload].concat();
        self.responses.push(Transmit::response(&datagram, payload));
    }

    fn poll_transmit(&mut self, _now: Instant, transmits: &mut Transmits) {
        self.responses.drain(..).for_each(|response| transmits.push(response));
    }
}

fn numbered(options: DatagramOptions) -> ServedEndpoint {
    let listener = EndpointListener::bind("127.0.0.1:0").unwrap().options(options);
    listener.serve(|number| Numbered { number: number as u8, responses: Vec::new() })
}

fn backends() -> Vec<Backend> {
    let has_uring = EventLoop::on(Backend::Uring).is_ok();
    [Backend::Epoll].into_iter().chain(has_uring.then_some(Backend::Uring)).collect()
}

fn address_of(server: &ServerHandle) -> SocketAddr {
    server.address().ip().expect("an IP address")
}

fn client(address: SocketAddr) -> UdpSocket {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket.connect(address).unwrap();
    socket
}

fn receive(socket: &UdpSocket) -> Vec<u8> {
    let mut bytes = [0; 64];
    let length = uninterrupted(|| socket.recv(&mut bytes)).expect("a response");
    bytes[..length].to_vec()
}

/// The loop that a byte is sent back by.
fn loop_of(address: SocketAddr, byte: u8) -> u8 {
    let client = client(address);
    client.send(&[byte]).unwrap();
    receive(&client)[0]
}

const BY_FIRST_BYTE: Steering = Steering { only_if: Some((0, 0x80, 0)), xor_offset: None, offset: 0, mask: 0x07 };

#[test]
fn a_datagram_comes_to_the_loop_that_it_names_whatever_its_source_is() {
    for backend in backends() {
        let options = DatagramOptions { steering: Some(BY_FIRST_BYTE), ..DatagramOptions::default() };
        let server = Server::new().loops(4).backend(backend).endpoint(numbered(options)).run().unwrap();
        let address = address_of(&server);
        for byte in 0..64_u8 {
            let number = loop_of(address, byte);
            assert!(byte & 7 > 3 || number == byte & 7, "{byte}: {number}");
        }
        assert_eq!(sum(&server, |counts| counts.datagrams_forwarded), 0, "the kernel steers");
        // Without its program, loops forward to each other.
        let share = DatagramOptions { reuse_port: true, ..DatagramOptions::default() };
        let other = Socket::bind_datagrams(address, &share).unwrap();
        other.steer_by_hash().unwrap();
        drop(other);
        for byte in 0..64_u8 {
            let number = loop_of(address, byte);
            assert!(byte & 7 > 3 || number == byte & 7, "{byte}: {number}");
        }
        until(|| sum(&server, |counts| counts.datagrams_forwarded) > 0);
        assert_eq!(sum(&server, |counts| counts.datagrams_dropped), 0);
        // A number that no loop has, and no number: one of the loops responds.
        for byte in [0x80, 0xff, 4, 7] {
            assert!(loop_of(address, byte) < 4);
        }
        server.drain(PATIENCE);
    }
}

#[test]
fn ten_thousand_flows_that_change_their_address_stay_at_their_loop() {
    let options = DatagramOptions { steering: Some(BY_FIRST_BYTE), ..DatagramOptions::default() };
    let server = Server::new().loops(4).endpoint(numbered(options)).run().unwrap();
    let address = address_of(&server);
    for flow in 0..10_000_u16 {
        let [high, low] = flow.to_be_bytes();
        let number = low & 3;
        // The same flow from two addresses.
        for host in [2, 3] {
            let client = UdpSocket::bind(SocketAddr::from(([127, host, high, low], 0))).unwrap();
            client.set_read_timeout(Some(PATIENCE)).unwrap();
            client.connect(address).unwrap();
            client.send(&[number, high, low]).unwrap();
            assert_eq!(receive(&client), [number, number, high, low]);
        }
    }
    assert_eq!(sum(&server, |counts| counts.datagrams_forwarded), 0);
    server.drain(PATIENCE);
}

#[test]
fn a_successor_has_the_same_unix_socket() {
    let path = SocketPath::new("takeover-unix");
    let socket = SocketPath::new("unix-endpoint");
    let at = format!("unix:{}", socket.0.display());
    let client = SocketPath::new("unix-client");
    let own = std::os::unix::net::UnixDatagram::bind(&client.0).unwrap();
    own.set_read_timeout(Some(PATIENCE)).unwrap();
    let start = |number: u8| {
        let listener = EndpointListener::bind(&at).unwrap();
        let served = listener.serve(move |_| Numbered { number, responses: Vec::new() });
        Server::new().loops(2).takeover(&path.0).endpoint(served).run().expect("it can be used")
    };
    let ask = |bytes: &[u8]| {
        own.send_to(bytes, &socket.0).unwrap();
        let mut response = [0; 8];
        let length = uninterrupted(|| own.recv(&mut response)).unwrap();
        response[..length].to_vec()
    };
    let mut server = start(0);
    assert_eq!(server.address().to_string(), at);
    for number in 1..4 {
        let next = start(number);
        // Either of them responds.
        assert_eq!(ask(b"ebb")[1..], *b"ebb");
        server.drain(PATIENCE);
        assert_eq!(ask(b"ebb"), [&[number][..], b"ebb"].concat());
        server = next;
    }
    server.drain(PATIENCE);
}

/// Clients that have 8 datagrams each under way and never pause. A lost one is a panic.
struct Crowd {
    over: Arc<AtomicBool>,
    echoed: Arc<AtomicU64>,
    clients: Vec<thread::JoinHandle<()>>,
}

impl Crowd {
    fn at(address: SocketAddr) -> Self {
        let (over, echoed) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let start = |_| {
            let (over, echoed) = (over.clone(), echoed.clone());
            thread::spawn(move || {
                let socket = client(address);
                let mut round = 0_u32;
                while !over.load(Relaxed) {
                    round += 1;
                    for place in 0..8_u8 {
                        socket.send(&[&round.to_be_bytes()[..], &[place]].concat()).unwrap();
                    }
                    let mut places: Vec<u8> = (0..8)
                        .map(|_| {
                            let echo = receive(&socket);
                            assert_eq!(echo[1..5], round.to_be_bytes());
                            echo[5]
                        })
                        .collect();
                    places.sort_unstable();
                    assert_eq!(places, [0, 1, 2, 3, 4, 5, 6, 7]);
                    echoed.fetch_add(8, Relaxed);
                }
            })
        };
        let clients = (0..4).map(start).collect();
        Self { over, echoed, clients }
    }

    fn go_on(&self) {
        let before = self.echoed.load(Relaxed);
        let is_over = || self.clients.iter().any(thread::JoinHandle::is_finished);
        until(|| self.echoed.load(Relaxed) > before + 1_000 || is_over());
    }

    fn end(self) {
        self.over.store(true, Relaxed);
        self.clients.into_iter().for_each(|client| client.join().expect("no datagram is lost"));
    }
}

#[test]
fn no_datagram_is_lost_while_one_server_after_the_other_takes_over() {
    for backend in backends() {
        let path = SocketPath::new("takeover-datagrams");
        let start = |loops| {
            let server = Server::new().loops(loops).backend(backend).takeover(&path.0);
            server.endpoint(numbered(DatagramOptions::default())).run().expect("it can be used")
        };
        let mut server = start(2);
        let address = address_of(&server);
        let crowd = Crowd::at(address);
        // Fewer loops than sockets, and more.
        for loops in [1, 3, 2, 4, 2] {
            crowd.go_on();
            let next = start(loops);
            assert!(server.superseded().wait());
            assert_eq!(address_of(&next), address);
            server.drain(PATIENCE);
            crowd.go_on();
            server = next;
        }
        crowd.end();
        server.drain(PATIENCE);
        assert!(UdpSocket::bind(address).is_ok(), "all sockets are closed");
    }
}

#[test]
fn no_datagram_is_lost_while_one_server_replaces_the_other() {
    let start = |old: Option<&ServerHandle>| {
        let server = Server::new().loops(2).replaceable().endpoint(numbered(DatagramOptions::default()));
        let server = match old {
            Some(old) => server.replaces(old).unwrap(),
            None => server,
        };
        server.run().expect("it can be used")
    };
    let mut server = start(None);
    let address = address_of(&server);
    let crowd = Crowd::at(address);
    for _ in 0..4 {
        crowd.go_on();
        let next = start(Some(&server));
        assert_eq!(address_of(&next), address);
        server.drain(PATIENCE);
        server = next;
    }
    crowd.go_on();
    crowd.end();
    server.drain(PATIENCE);
}

#[test]
fn a_datagram_comes_to_the_loop_that_it_names_after_any_number_of_successors() {
    let path = SocketPath::new("takeover-steered");
    let start = |loops| {
        let options = DatagramOptions { steering: Some(BY_FIRST_BYTE), ..DatagramOptions::default() };
        Server::new().loops(loops).takeover(&path.0).endpoint(numbered(options)).run().expect("it can be used")
    };
    let mut server = start(4);
    let address = address_of(&server);
    for loops in [2, 3, 1, 4] {
        let next = start(loops);
        server.drain(PATIENCE);
        server = next;
        for byte in 0..64_u8 {
            let (number, named) = (loop_of(address, byte), usize::from(byte & 7));
            assert!(named >= loops || usize::from(number) == named, "{loops} loops, {byte}: {number}");
        }
        assert_eq!(sum(&server, |counts| counts.datagrams_forwarded), 0, "the kernel steers");
    }
    server.drain(PATIENCE);
}

/// Sends datagrams back until one says that it is the last.
async fn echo_until_last(mut channel: DatagramChannel) {
    while let Ok(datagram) = channel.recv_from().await {
        if *datagram.payload == *b"last"
            || channel.send(Transmit::response(&datagram, datagram.payload.clone())).is_err()
        {
            return;
        }
    }
}

#[test]
fn a_channel_that_its_task_has_dropped_gets_no_datagrams_though_a_successor_may_come() {
    for backend in backends() {
        let path = SocketPath::new("takeover-dropped");
        let echo = EndpointListener::bind("127.0.0.1:0").unwrap().serve_channel(|_, channel| echo_until_last(channel));
        let server = Server::new().loops(2).backend(backend).takeover(&path.0).replaceable().endpoint(echo);
        let server = server.run().unwrap();
        let address = address_of(&server);
        until(|| sum(&server, |counts| counts.endpoints) == 2);
        client(address).send(b"last").unwrap();
        until(|| sum(&server, |counts| counts.endpoints) == 1);
        // The kernel distributes these over all sockets that are open.
        for _ in 0..32 {
            let client = client(address);
            client.send(b"is there one?").unwrap();
            assert_eq!(receive(&client), b"is there one?");
        }
        server.drain(Duration::ZERO);
    }
}

#[test]
fn a_successor_that_does_not_start_changes_nothing_for_the_other_server() {
    let options = DatagramOptions { steering: Some(BY_FIRST_BYTE), ..DatagramOptions::default() };
    let steered = || numbered(options.clone());
    let channel =
        || EndpointListener::bind("127.0.0.1:0").unwrap().serve_channel(|_, channel| echo_until_last(channel));
    let used = UdpSocket::bind("127.0.0.1:0").unwrap();
    let at_used = EndpointListener::bind(&used.local_addr().unwrap().to_string()).unwrap();
    let at_used = at_used.serve(|_| Numbered { number: 0, responses: Vec::new() });
    let server = Server::new().loops(4).replaceable().endpoint(steered()).endpoint(channel()).run().unwrap();
    let addresses: Vec<SocketAddr> =
        server.listeners().iter().map(|listener| listener.addresses()[0].ip().unwrap()).collect();
    let failing = Server::new().loops(2).endpoint(steered()).endpoint(channel()).endpoint(at_used);
    failing.replaces(&server).unwrap().run().expect_err("the address is in use");
    for byte in 0..64_u8 {
        let number = loop_of(addresses[0], byte);
        assert!(byte & 7 > 3 || number == byte & 7, "{byte}: {number}");
    }
    assert_eq!(sum(&server, |counts| counts.datagrams_forwarded), 0, "the kernel steers as before");
    // No one else receives: it does while it drains.
    server.begin_drain(PATIENCE);
    for _ in 0..64 {
        let client = client(addresses[1]);
        client.send(b"still there?").unwrap();
        assert_eq!(receive(&client), b"still there?");
    }
    server.drain(Duration::ZERO);
}

#[test]
fn an_endpoint_at_any_port_takes_no_sockets_of_one_that_names_the_port() {
    let at = |address: &str, number: u8| {
        let listener = EndpointListener::bind(address).unwrap();
        listener.serve(move |_| Numbered { number, responses: Vec::new() })
    };
    let old = Server::new().loops(1).replaceable().endpoint(at("127.0.0.1:0", 1)).run().unwrap();
    let address = address_of(&old);
    // The one with port 0 is listed first.
    let new = Server::new().loops(1).endpoint(at("127.0.0.1:0", 2)).endpoint(at(&address.to_string(), 3));
    let new = new.replaces(&old).unwrap().run().unwrap();
    old.drain(Duration::ZERO);
    assert_eq!(loop_of(address, 9), 3);
    assert_eq!(loop_of(address_of(&new), 9), 2);
    new.drain(Duration::ZERO);
}
