//! Connections outlast a restart: the successor has the same sockets, and sends their datagrams on.

use std::io::Read;
use std::net::{SocketAddr, UdpSocket};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::thread;
use std::time::{Duration, Instant};

use tidegate::engine::{Counts, SessionLimits};
use tidegate::quic::{Admit, ClientConfig, Connection, Connector, ServerConfig, TransportLimits};
use tidegate::sys::handover;
use tidegate::{Backend, EndpointListener, Server, ServerHandle};

use crate::scenarios::{echo, exchange};
use crate::stage::{NAME, Stage, configs, initials_of, tls};

/// Where successors find a server.
struct ControlPath(PathBuf);

impl ControlPath {
    fn new(name: &str) -> Self {
        Self(std::env::temp_dir().join(format!("tidegate-quic-{name}-{}.sock", std::process::id())))
    }
}

impl Drop for ControlPath {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// A server that serves QUIC and nothing else.
fn server(config: &ServerConfig, address: &str, loops: usize, backend: Backend) -> Server {
    let config = config.for_another_server().unwrap();
    let options = config.socket_options();
    let listener = EndpointListener::bind(address).unwrap().options(options).generation(config.generation());
    let endpoint = listener.serve_sessions(SessionLimits::default(), move |place| config.endpoint(place), |_| echo());
    Server::new().loops(loops).backend(backend).endpoint(endpoint)
}

fn connect(stage: &mut Stage, client: &Connector, address: SocketAddr) -> Rc<Connection> {
    let client = client.clone();
    Rc::new(stage.task(async move { client.connect(address, NAME).await.unwrap() }))
}

/// The connection works.
fn works(stage: &mut Stage, connection: &Rc<Connection>) {
    let connection = connection.clone();
    let echoed = stage.task(async move { exchange(&connection, b"ebb and flow".to_vec()).await });
    assert_eq!(echoed, b"ebb and flow");
}

fn sum(server: &ServerHandle, count: impl Fn(&Counts) -> u64) -> u64 {
    server.counts().iter().map(count).sum()
}

fn address_of(server: &ServerHandle) -> SocketAddr {
    server.address().ip().unwrap()
}

fn until(mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < deadline, "it takes too long");
        thread::sleep(Duration::from_millis(1));
    }
}

/// Connections of several generations go on beside each other, whatever the numbers of loops are. `begin` starts the next
/// server, given the one before.
fn generations_live_beside_each_other(
    mut stage: Stage,
    config: &ClientConfig,
    mut begin: impl FnMut(usize, Option<&ServerHandle>) -> ServerHandle,
) {
    let client = stage.client(config);
    let mut servers: Vec<ServerHandle> = Vec::new();
    let mut connections = Vec::new();
    for loops in [2, 1, 3, 2] {
        let server = begin(loops, servers.last());
        let address = address_of(&server);
        assert!(servers.iter().all(|other| address_of(other) == address), "it has the same sockets");
        servers.push(server);
        for connection in &connections {
            works(&mut stage, connection);
        }
        for _ in 0..4 {
            let connection = connect(&mut stage, &client, address);
            works(&mut stage, &connection);
            connections.push(connection);
        }
    }
    for (number, server) in servers.iter().enumerate() {
        assert_eq!(sum(server, |counts| counts.sessions.handshakes), 4, "each has its own connections");
        let (to, from) = (
            sum(server, |counts| counts.datagrams_to_predecessor),
            sum(server, |counts| counts.datagrams_from_successor),
        );
        assert_eq!(
            (to > 0, from > 0),
            (number > 0, number < 3),
            "{number}: {to} to predecessors, {from} of successors"
        );
        assert_eq!(sum(server, |counts| counts.datagrams_dropped), 0);
        if number > 0 {
            assert_eq!(sum(server, |counts| counts.datagrams_forwarded), 0, "the kernel steers");
        }
    }
    // A generation in the middle ends, and the others go on.
    servers.remove(1).drain(Duration::ZERO);
    for connection in connections[..4].iter().chain(&connections[8..]) {
        works(&mut stage, connection);
    }
    for server in servers.into_iter().rev() {
        server.drain(Duration::ZERO);
    }
}

/// Connections go on after takeovers at a path.
fn takeovers(stage: Stage, name: &str, backend: Backend) {
    let path = ControlPath::new(name);
    let (config, client) = configs(TransportLimits::default(), TransportLimits::default());
    generations_live_beside_each_other(stage, &client, |loops, old| {
        let new = server(&config, "127.0.0.1:0", loops, backend).takeover(&path.0).run().unwrap();
        assert!(old.is_none_or(|old| old.superseded().wait()));
        new
    });
}

/// Connections go on after replacements within the process.
fn replacements(stage: Stage, backend: Backend) {
    let (config, client) = configs(TransportLimits::default(), TransportLimits::default());
    generations_live_beside_each_other(stage, &client, |loops, old| match old {
        None => server(&config, "127.0.0.1:0", loops, backend).replaceable().run().unwrap(),
        Some(old) => {
            let new = server(&config, &address_of(old).to_string(), loops, backend).replaceable();
            new.replaces(old).unwrap().run().unwrap()
        }
    });
}

#[test]
fn connections_outlast_takeovers_on_epoll() {
    takeovers(Stage::epoll(), "epoll", Backend::Epoll);
}

#[test]
fn connections_outlast_replacements_on_epoll() {
    replacements(Stage::epoll(), Backend::Epoll);
}

#[test]
fn connections_outlast_takeovers_on_uring() {
    if tidegate::sys::uring::Uring::probe().is_ok() {
        takeovers(Stage::uring(), "uring", Backend::Uring);
    }
}

#[test]
fn connections_outlast_replacements_on_uring() {
    if tidegate::sys::uring::Uring::probe().is_ok() {
        replacements(Stage::uring(), Backend::Uring);
    }
}

/// The descriptors of a successor by hand, which has sent hello.
fn successor(path: &ControlPath) -> (UnixStream, Vec<std::os::fd::OwnedFd>) {
    let stream = UnixStream::connect(&path.0).unwrap();
    let deadline = Instant::now() + PATIENCE;
    handover::write_all(&stream, b"tidegate takeover 2\n", deadline).unwrap();
    assert!(handover::receive(&stream, deadline).unwrap().is_empty());
    assert!(!handover::read_block(&stream, deadline).unwrap().is_empty());
    let descriptors = handover::receive_any(&stream, deadline).unwrap();
    assert_eq!(descriptors.len(), 4, "two sockets and two pipes");
    (stream, descriptors)
}

#[test]
fn a_successor_that_ends_before_it_is_ready_changes_nothing() {
    let path = ControlPath::new("early");
    let (config, client) = configs(TransportLimits::default(), TransportLimits::default());
    let running = server(&config, "127.0.0.1:0", 2, Backend::Epoll).takeover(&path.0).run().unwrap();
    let mut stage = Stage::epoll();
    let client = stage.client(&client);
    let connection = connect(&mut stage, &client, address_of(&running));
    let (stream, descriptors) = successor(&path);
    works(&mut stage, &connection);
    drop((stream, descriptors));
    works(&mut stage, &connection);
    let later = connect(&mut stage, &client, address_of(&running));
    works(&mut stage, &later);
    // The path is there for the next one.
    let next = server(&config, "127.0.0.1:0", 1, Backend::Epoll).takeover(&path.0).run().unwrap();
    assert!(running.superseded().wait());
    works(&mut stage, &connection);
    running.drain(Duration::ZERO);
    next.drain(Duration::ZERO);
}

#[test]
fn a_server_receives_again_when_its_successor_has_crashed() {
    let path = ControlPath::new("crash");
    let (config, client) = configs(TransportLimits::default(), TransportLimits::default());
    let running = server(&config, "127.0.0.1:0", 2, Backend::Epoll).takeover(&path.0).run().unwrap();
    let mut stage = Stage::epoll();
    let client = stage.client(&client);
    let connection = connect(&mut stage, &client, address_of(&running));
    let (mut stream, descriptors) = successor(&path);
    let deadline = Instant::now() + PATIENCE;
    handover::write_all(&stream, b"R", deadline).unwrap();
    let mut answer = [0];
    stream.read_exact(&mut answer).unwrap();
    assert_eq!((answer, handover::read_block(&stream, deadline).unwrap().len()), (*b"G", 4));
    assert!(running.superseded().wait());
    // The datagrams wait in the kernel until the pipes have ended.
    drop((stream, descriptors));
    works(&mut stage, &connection);
    assert_eq!(sum(&running, |counts| counts.datagrams_from_successor), 0);
    running.drain(Duration::ZERO);
}

/// The client has not learnt the id of the server's side: its datagrams have the id that the client has chosen.
#[test]
fn a_handshake_under_way_stays_with_its_server() {
    let path = ControlPath::new("handshake");
    let (config, _) = configs(TransportLimits::default(), TransportLimits::default());
    let old = server(&config, "127.0.0.1:0", 2, Backend::Epoll).takeover(&path.0).run().unwrap();
    let datagrams = initials_of(2);
    let clients = [(); 2].map(|()| UdpSocket::bind("127.0.0.1:0").unwrap());
    let send = |client: usize| {
        for datagram in &datagrams[client] {
            clients[client].send_to(datagram, address_of(&old)).unwrap();
        }
    };
    send(0);
    until(|| sum(&old, |counts| counts.sessions.begun) == 1);
    let new = server(&config, "127.0.0.1:0", 1, Backend::Epoll).takeover(&path.0).run().unwrap();
    send(0);
    send(1);
    until(|| sum(&new, |counts| counts.sessions.begun) == 1);
    until(|| sum(&old, |counts| counts.datagrams_from_successor) >= datagrams[0].len() as u64);
    assert_eq!((sum(&old, |counts| counts.sessions.begun), sum(&new, |counts| counts.sessions.begun)), (1, 1));
    old.drain(Duration::ZERO);
    new.drain(Duration::ZERO);
}

/// The state of a [`relay`].
#[derive(Default)]
struct Relayed {
    /// The server has sent a Retry.
    has_retry: AtomicBool,
    /// Datagrams of the client behind the Retry pass; they are lost before.
    passes: AtomicBool,
    is_over: AtomicBool,
}

/// Passes the datagrams of a client on, to a server and back. Returns where the client sends them.
fn relay(server: SocketAddr, state: &Arc<Relayed>) -> SocketAddr {
    let [front, back] = [(); 2].map(|()| {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.set_nonblocking(true).unwrap();
        socket
    });
    let (address, state) = (front.local_addr().unwrap(), state.clone());
    thread::spawn(move || {
        let (mut space, mut client) = ([0; 2048], None);
        while !state.is_over.load(SeqCst) {
            if let Ok((count, source)) = front.recv_from(&mut space) {
                client = Some(source);
                if !state.has_retry.load(SeqCst) || state.passes.load(SeqCst) {
                    back.send_to(&space[..count], server).unwrap();
                }
            } else if let (Ok((count, _)), Some(client)) = (back.recv_from(&mut space), client) {
                if space[0] & 0xf0 == 0xf0 {
                    state.has_retry.store(true, SeqCst);
                }
                front.send_to(&space[..count], client).unwrap();
            } else {
                thread::sleep(Duration::from_millis(1));
            }
        }
    });
    address
}

/// The client has a token of the server before, whose keys the successor gets.
#[test]
fn a_retry_token_from_before_a_restart_is_valid_behind_it() {
    let path = ControlPath::new("retry");
    let (server_tls, client_tls) = tls();
    // Each has keys of its own, until the successor gets those of its predecessor.
    let config = || {
        let config = ServerConfig::new(&server_tls, TransportLimits::default()).unwrap();
        config.admit(|_, is_validated| if is_validated { Admit::Accept } else { Admit::Retry })
    };
    let old = server(&config(), "127.0.0.1:0", 2, Backend::Epoll).takeover(&path.0).run().unwrap();
    let state = Arc::<Relayed>::default();
    let address = relay(address_of(&old), &state);
    let successor = {
        let (state, config, path) = (state.clone(), config(), path.0.clone());
        thread::spawn(move || {
            until(|| state.has_retry.load(SeqCst));
            let new = server(&config, "127.0.0.1:0", 1, Backend::Epoll).takeover(&path).run().unwrap();
            state.passes.store(true, SeqCst);
            new
        })
    };
    let mut stage = Stage::epoll();
    let client = stage.client(&ClientConfig::new(&client_tls, TransportLimits::default()).unwrap());
    let connection = connect(&mut stage, &client, address);
    let new = successor.join().unwrap();
    works(&mut stage, &connection);
    let counts = |server: &ServerHandle| {
        (sum(server, |counts| counts.sessions.retries), sum(server, |counts| counts.sessions.handshakes))
    };
    // A client that waits for long sends its first packet again, which has another Retry.
    let (retries, handshakes) = counts(&old);
    assert!(retries >= 1 && handshakes == 0, "{retries} Retry packets, {handshakes} handshakes");
    assert_eq!(counts(&new), (0, 1), "Retry packets, and handshakes");
    state.is_over.store(true, SeqCst);
    old.drain(Duration::ZERO);
    new.drain(Duration::ZERO);
}

/// A datagram with a short header for the id of an endpoint.
fn forged(generation: u8, place: u8) -> [u8; 64] {
    let mut datagram = [0x55; 64];
    datagram[1..9].copy_from_slice(&[7, 7 ^ place, generation, 0, 1, 2, 3, 4]);
    datagram
}

#[test]
fn forged_datagrams_of_other_generations_harm_nobody() {
    let path = ControlPath::new("forged");
    let (config, client) = configs(TransportLimits::default(), TransportLimits::default());
    let old = server(&config, "127.0.0.1:0", 2, Backend::Epoll).takeover(&path.0).run().unwrap();
    let mut stage = Stage::epoll();
    let client = stage.client(&client);
    let before = connect(&mut stage, &client, address_of(&old));
    let new = server(&config, "127.0.0.1:0", 2, Backend::Epoll).takeover(&path.0).run().unwrap();
    let after = connect(&mut stage, &client, address_of(&new));
    let attacker = UdpSocket::bind("127.0.0.1:0").unwrap();
    attacker.set_read_timeout(Some(PATIENCE)).unwrap();
    attacker.connect(address_of(&new)).unwrap();
    let mut response = [0; 64];
    // One that never was gets a stateless reset (RFC 9000 §10.3) of the newest, which is shorter.
    attacker.send(&forged(9, 0)).unwrap();
    assert!((21..64).contains(&uninterrupted(|| attacker.recv(&mut response)).unwrap()));
    // A living one gets its datagrams, and resets unknown ids by itself.
    attacker.send(&forged(0, 1)).unwrap();
    assert!((21..64).contains(&uninterrupted(|| attacker.recv(&mut response)).unwrap()));
    for number in 0..=u8::MAX {
        attacker.send(&forged(number, number)).unwrap();
    }
    works(&mut stage, &before);
    works(&mut stage, &after);
    // Nothing is left of the old one: its ids get a reset of the new one.
    old.drain(Duration::ZERO);
    drop(old);
    attacker.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
    until(|| attacker.recv(&mut response).is_err());
    until(|| {
        attacker.send(&forged(0, 1)).unwrap();
        attacker.recv(&mut response).is_ok()
    });
    works(&mut stage, &after);
    new.drain(Duration::ZERO);
}

const PATIENCE: Duration = Duration::from_secs(120);

/// Calls until no signal has interrupted the call: the kernel interrupts a call with a time-out to run the work of a ring.
fn uninterrupted<T>(mut call: impl FnMut() -> std::io::Result<T>) -> std::io::Result<T> {
    loop {
        match call() {
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            result => return result,
        }
    }
}
