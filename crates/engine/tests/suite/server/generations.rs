//! Sessions of datagrams outlast a restart: the successor sends their datagrams on, and none is lost.

use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use tidegate_buffer::{Datagram, Transmit, Transmits};
use tidegate_codec::mux::{OpenError, ResetCause};
use tidegate_codec::{
    Direction, Endpoint, EndpointGeneration, EndpointPlace, ReadEnd, SessionEvent, SessionNumber, StreamEndpoint,
    StreamNumber, WriteRefused,
};
use tidegate_engine::{
    Backend, EndpointListener, EventLoop, Server, ServerHandle, SessionLimits, SessionStreams, StartError,
};
use tidegate_sys::{DatagramOptions, Steering};

use crate::server::support::{PATIENCE, sum};

/// A generation whose datagrams have their place and generation in the second and third byte if the first one is set.
#[derive(Default)]
struct Tide {
    number: AtomicU8,
    gone: Mutex<Vec<EndpointPlace>>,
    is_superseded: AtomicBool,
}

impl EndpointGeneration for Tide {
    fn number(&self) -> u8 {
        self.number.load(Relaxed)
    }

    fn endpoint_of(&self, payload: &[u8]) -> Option<EndpointPlace> {
        let [1, place, generation, ..] = payload else { return None };
        Some(EndpointPlace { generation: *generation, place: *place })
    }

    fn state(&self) -> Vec<u8> {
        vec![self.number()]
    }

    fn succeed(&self, state: &[u8], living: &[EndpointPlace]) -> bool {
        let [before] = state else { return false };
        assert!(living.iter().any(|place| place.generation == *before));
        self.number.store(before.wrapping_add(1), Relaxed);
        true
    }

    fn supersede(&self) -> Vec<u8> {
        self.is_superseded.store(true, Relaxed);
        b"establishing".to_vec()
    }

    fn resume(&self) {
        self.is_superseded.store(false, Relaxed);
    }

    fn inherit(&self, establishing: &[u8]) {
        assert_eq!(establishing, b"establishing");
    }

    fn on_gone(&self, place: EndpointPlace) {
        self.gone.lock().unwrap().push(place);
    }
}

/// Sends datagrams back with its own place and generation behind them.
struct Echo {
    own: [u8; 2],
    responses: Vec<Transmit>,
}

impl Endpoint for Echo {
    fn handle_datagram(&mut self, datagram: Datagram, _now: Instant) {
        let payload = [&*datagram.payload, &self.own].concat();
        self.responses.push(Transmit::response(&datagram, payload));
    }

    fn poll_transmit(&mut self, _now: Instant, transmits: &mut Transmits) {
        self.responses.drain(..).for_each(|response| transmits.push(response));
    }
}

/// It has sessions, and no streams.
impl StreamEndpoint for Echo {
    fn poll_event(&mut self, _now: Instant) -> Option<SessionEvent> {
        None
    }

    fn read(&mut self, _stream: StreamNumber, _space: &mut [u8]) -> (usize, ReadEnd) {
        (0, ReadEnd::Blocked)
    }

    fn write(&mut self, _stream: StreamNumber, _bytes: &[u8]) -> Result<usize, WriteRefused> {
        Err(WriteRefused)
    }

    fn finish(&mut self, _stream: StreamNumber) {}

    fn close(&mut self, _stream: StreamNumber, _cause: Option<ResetCause>, _resets: bool) {}

    fn open(&mut self, _session: SessionNumber, _direction: Direction) -> Result<StreamNumber, OpenError> {
        Err(OpenError::Ending)
    }

    fn end_session(&mut self, _session: SessionNumber, _cause: Option<ResetCause>, _now: Instant) {}
}

/// A server with its generation.
struct Running {
    server: ServerHandle,
    tide: Arc<Tide>,
}

fn start(loops: usize, backend: Backend, old: Option<&Running>) -> Running {
    let tide = Arc::new(Tide::default());
    let steering = Steering { only_if: Some((0, 1, 1)), xor_offset: None, offset: 1, mask: 0x7f };
    let options = DatagramOptions { steering: Some(steering), ..DatagramOptions::default() };
    let address = old.map_or("127.0.0.1:0".to_owned(), |old| address_of(&old.server).to_string());
    let listener = EndpointListener::bind(&address).unwrap().options(options).generation(Some(tide.clone()));
    let of_endpoints = tide.clone();
    let make = move |place| Echo { own: [place as u8, of_endpoints.number()], responses: Vec::new() };
    let endpoint = listener.serve_sessions(SessionLimits::default(), make, |_| SessionStreams::default());
    let server = Server::new().loops(loops).backend(backend).endpoint(endpoint).replaceable();
    let server = match old {
        Some(old) => server.replaces(&old.server).unwrap(),
        None => server,
    };
    Running { server: server.run().unwrap(), tide }
}

#[test]
fn sessions_are_not_served_at_a_unix_socket() {
    let address = format!("unix:@tidegate-sessions-{}", std::process::id());
    let make = |place| Echo { own: [place as u8, 0], responses: Vec::new() };
    let listener = EndpointListener::bind(&address).unwrap();
    let endpoint = listener.serve_sessions(SessionLimits::default(), make, |_| SessionStreams::default());
    let refused =
        Server::new().loops(1).endpoint(endpoint).run().expect_err("sessions know their peers by addresses of IP");
    assert!(matches!(&refused, StartError::Listen(at, _) if at.to_string() == address), "{refused}");
}

fn address_of(server: &ServerHandle) -> SocketAddr {
    server.address().ip().expect("an IP address")
}

/// Clients that never pause. Each has a session with a server, to which it sends batches of datagrams; all come back, from
/// that server.
struct Crowd {
    over: Arc<AtomicBool>,
    /// Clients begin a session anew when it changes.
    epoch: Arc<AtomicUsize>,
    /// The clients that have done so, of each epoch.
    moved: Arc<AtomicUsize>,
    echoed: Arc<AtomicU64>,
    clients: Vec<thread::JoinHandle<()>>,
}

impl Crowd {
    fn start(address: SocketAddr, count: usize) -> Self {
        let (over, epoch, moved, echoed) = Default::default();
        let mut crowd = Self { over, epoch, moved, echoed, clients: Vec::new() };
        for _ in 0..count {
            let (over, epoch) = (crowd.over.clone(), crowd.epoch.clone());
            let (moved, echoed) = (crowd.moved.clone(), crowd.echoed.clone());
            crowd.clients.push(thread::spawn(move || {
                let mut client = Client::connect(address);
                let mut known = epoch.load(Relaxed);
                while !over.load(Relaxed) {
                    client.exchange();
                    echoed.fetch_add(BATCH as u64, Relaxed);
                    let now = epoch.load(Relaxed);
                    if now != known {
                        // Between two batches nothing is under way.
                        (client.session, known) = (client.begin(), now);
                        moved.fetch_add(1, Relaxed);
                    }
                }
            }));
        }
        crowd
    }

    fn until_echoed(&self, more: u64) {
        let before = self.echoed.load(Relaxed);
        self.until(|| self.echoed.load(Relaxed) >= before + more);
    }

    /// All clients begin anew.
    fn move_on(&self) {
        let wanted = self.moved.load(Relaxed) + self.clients.len();
        self.epoch.fetch_add(1, Relaxed);
        self.until(|| self.moved.load(Relaxed) == wanted);
    }

    fn until(&self, is_so: impl Fn() -> bool) {
        let deadline = Instant::now() + PATIENCE;
        while !is_so() {
            assert!(self.clients.iter().all(|client| !client.is_finished()), "a client has failed");
            assert!(Instant::now() < deadline, "it takes too long");
            thread::sleep(Duration::from_millis(1));
        }
    }

    /// Ends the clients. Returns how many datagrams came back.
    fn end(self) -> u64 {
        self.over.store(true, Relaxed);
        self.clients.into_iter().for_each(|client| client.join().expect("no datagram was lost"));
        self.echoed.load(Relaxed)
    }
}

/// A client with a session.
struct Client {
    socket: UdpSocket,
    /// The place and the generation of its endpoint.
    session: [u8; 2],
}

impl Client {
    fn connect(address: SocketAddr) -> Self {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        socket.connect(address).unwrap();
        let mut client = Self { socket, session: [0; 2] };
        client.session = client.begin();
        client
    }

    fn begin(&self) -> [u8; 2] {
        self.socket.send(&[0, 0, 0]).unwrap();
        let [_, _, _, session @ ..] = self.receive::<5>();
        session
    }

    fn exchange(&self) {
        let [place, generation] = self.session;
        for number in 0..BATCH {
            self.socket.send(&[1, place, generation, number]).unwrap();
        }
        let mut missing: Vec<u8> = (0..BATCH).collect();
        while !missing.is_empty() {
            let [_, _, _, number, session @ ..] = self.receive::<6>();
            assert_eq!(session, self.session, "its server has answered");
            missing.retain(|other| *other != number);
        }
    }

    fn receive<const N: usize>(&self) -> [u8; N] {
        let mut bytes = [0; N];
        loop {
            match self.socket.recv(&mut bytes) {
                Ok(length) => {
                    assert_eq!(length, N);
                    return bytes;
                }
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) => panic!("no response: {error}"),
            }
        }
    }
}

/// The CPU time of the threads of all servers so far: those of this test, if it runs alone.
fn cpu_of_servers() -> Duration {
    let mut nanoseconds = 0;
    for task in std::fs::read_dir("/proc/self/task").unwrap().flatten() {
        let name = std::fs::read_to_string(task.path().join("comm")).unwrap_or_default();
        let statistics = std::fs::read_to_string(task.path().join("schedstat")).unwrap_or_default();
        if name.starts_with("tidegate-") {
            nanoseconds += statistics.split(' ').next().and_then(|first| first.parse().ok()).unwrap_or(0);
        }
    }
    Duration::from_nanos(nanoseconds)
}

/// Six restarts, or as many as `TIDEGATE_RESTARTS` says. It prints the rate, and the CPU time of a datagram that is
/// sent on beside that of another one.
fn restarts_lose_no_datagram(backend: Backend) {
    let times = std::env::var("TIDEGATE_RESTARTS").map_or(6, |times| times.parse().expect("a number of restarts"));
    let mut running = start(2, backend, None);
    let address = address_of(&running.server);
    let crowd = Crowd::start(address, 2);
    let (begun, mut direct, mut sent_on) = (Instant::now(), (Duration::ZERO, 0), (Duration::ZERO, 0));
    let measure = |(cpu, count): &mut (Duration, u64)| {
        let before = (cpu_of_servers(), crowd.echoed.load(Relaxed));
        crowd.until_echoed(2_000);
        // Threads of other tests may have ended.
        *cpu += cpu_of_servers().saturating_sub(before.0);
        *count += crowd.echoed.load(Relaxed) - before.1;
    };
    for number in 0..times {
        measure(&mut direct);
        let next = start([1, 3, 2][number % 3], backend, Some(&running));
        assert_eq!(address_of(&next.server), address);
        measure(&mut sent_on);
        crowd.move_on();
        crowd.until_echoed(500);
        let relayed = sum(&running.server, |counts| counts.datagrams_from_successor);
        assert!(relayed > 0 && running.tide.is_superseded.load(Relaxed));
        for server in [&running.server, &next.server] {
            assert_eq!(sum(server, |counts| counts.datagrams_dropped), 0);
        }
        running.server.drain(PATIENCE);
        running = next;
    }
    let (elapsed, count) = (begun.elapsed(), crowd.end());
    let each = |(cpu, count): (Duration, u64)| cpu.as_nanos() / u128::from(count.max(1));
    println!(
        "{times} restarts in {elapsed:.1?}, {count} datagrams, {:.0} a second, none lost; {} ns each, {} ns if sent on",
        count as f64 / elapsed.as_secs_f64(),
        each(direct),
        each(sent_on),
    );
    running.server.drain(Duration::ZERO);
}

#[test]
fn restarts_under_load_lose_no_datagram_of_a_session_on_epoll() {
    restarts_lose_no_datagram(Backend::Epoll);
}

#[test]
fn restarts_under_load_lose_no_datagram_of_a_session_on_uring() {
    if EventLoop::on(Backend::Uring).is_ok() {
        restarts_lose_no_datagram(Backend::Uring);
    }
}

#[test]
fn a_generation_learns_that_an_endpoint_before_it_is_gone() {
    let old = start(2, Backend::Epoll, None);
    let client = Client::connect(address_of(&old.server));
    let new = start(2, Backend::Epoll, Some(&old));
    client.exchange();
    old.server.drain(Duration::ZERO);
    drop(old);
    // Nothing comes back until the pipe is found closed; then the new server answers.
    let [place, generation] = client.session;
    client.socket.set_read_timeout(Some(Duration::from_millis(10))).unwrap();
    let deadline = Instant::now() + PATIENCE;
    let mut bytes = [0; 6];
    loop {
        client.socket.send(&[1, place, generation, 0]).unwrap();
        if client.socket.recv(&mut bytes).is_ok() {
            break;
        }
        assert!(Instant::now() < deadline, "it takes too long");
    }
    assert_eq!(bytes[5], 1);
    assert_eq!(*new.tide.gone.lock().unwrap(), [EndpointPlace { generation, place }]);
    new.server.drain(Duration::ZERO);
}

#[test]
fn a_server_receives_again_if_its_successor_has_no_such_endpoint() {
    let old = start(2, Backend::Epoll, None);
    let client = Client::connect(address_of(&old.server));
    let listener = Server::bind("127.0.0.1:0").unwrap();
    let other = listener
        .replaces(&old.server)
        .unwrap()
        .serve(tidegate_codec::framing::Lines::new, async |_| Ok::<(), std::io::Error>(()))
        .unwrap();
    client.exchange();
    assert_eq!(sum(&old.server, |counts| counts.datagrams_from_successor), 0);
    other.drain(Duration::ZERO);
    old.server.drain(Duration::ZERO);
}

/// Datagrams of a client that are under way at a time.
const BATCH: u8 = 32;
