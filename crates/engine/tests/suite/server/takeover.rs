//! A server that takes over from another: clients notice nothing, and a process that dies in between changes nothing.

use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use tidegate_codec::Slice;
use tidegate_codec::framing::Lines;
use tidegate_engine::{Context, Event, Handler, LoadBalancing, Outcome, Server, ServerHandle, StartError};
use tidegate_sys::{Address, ListenOptions, Socket, handover};

use crate::server::support::{PATIENCE, SocketPath, ask, bounded, port, sum, until};

/// Answers lines with themselves until its peer ends, drain or not.
struct Steady;

impl Handler<Lines> for Steady {
    type Post = ();

    fn message(&mut self, line: Slice, cx: &mut Context<'_, Lines>) -> Outcome<Lines> {
        cx.send(line.into()).into()
    }

    fn event(&mut self, event: Event<()>, _: &mut Context<'_, Lines>) -> Outcome<Lines> {
        if event == Event::ReadClosed { Outcome::Close } else { Outcome::Continue }
    }
}

fn begin(server: Server, loops: usize) -> Result<ServerHandle, StartError> {
    server.loops(loops).start(|| (Lines::new(), Steady))
}

/// A server that takes over at a path, or listens at any free port if no server runs there.
fn at(path: &SocketPath, loops: usize) -> ServerHandle {
    begin(Server::bind("127.0.0.1:0").unwrap().takeover(&path.0), loops).expect("it can be used")
}

fn serves(address: SocketAddr) {
    let mut client = bounded(TcpStream::connect(address).expect("a server listens"));
    assert_eq!(ask(&mut client, "ebb"), "ebb");
}

/// Clients that never pause: connect, send a request, close. Any failure is a panic.
struct Crowd {
    over: Arc<AtomicBool>,
    asked: Arc<AtomicU64>,
    clients: Vec<thread::JoinHandle<()>>,
}

impl Crowd {
    fn at(address: SocketAddr) -> Self {
        let (over, asked) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let client = |number| {
            let (over, asked) = (over.clone(), asked.clone());
            move || {
                while !over.load(Ordering::Relaxed) {
                    let mut stream = bounded(TcpStream::connect(address).expect("a server listens"));
                    for line in 0..3 {
                        let line = format!("{number}: {line}");
                        assert_eq!(ask(&mut stream, &line), line);
                        asked.fetch_add(1, Ordering::Relaxed);
                    }
                }
            }
        };
        let clients = (0..4).map(|number| thread::spawn(client(number))).collect();
        Self { over, asked, clients }
    }

    /// Waits until it has sent some more requests.
    fn go_on(&self) {
        let before = self.asked.load(Ordering::Relaxed);
        until(|| self.asked.load(Ordering::Relaxed) > before + 50);
    }

    fn end(self) {
        self.over.store(true, Ordering::Relaxed);
        self.clients.into_iter().for_each(|client| client.join().expect("every answer came"));
    }
}

#[test]
fn no_request_fails_while_one_server_after_the_other_takes_over() {
    for spread in [LoadBalancing::Kernel, LoadBalancing::LeastLoaded] {
        let path = SocketPath::new("takeover-crowd");
        let start = |loops| {
            let server = Server::bind("127.0.0.1:0").unwrap().takeover(&path.0).load_balancing(spread);
            begin(server, loops).expect("it can be used")
        };
        let mut server = start(2);
        let address = port(&server);
        let crowd = Crowd::at(address);
        // Fewer loops than listeners, and more.
        for loops in [1, 3, 2, 5, 1, 2] {
            crowd.go_on();
            let next = start(loops);
            assert!(server.superseded().wait());
            assert_eq!((port(&next), next.loops()), (address, loops));
            server.drain(PATIENCE);
            until(|| sum(&next, |counts| counts.accepted) > 0);
            server = next;
        }
        crowd.go_on();
        crowd.end();
        server.drain(PATIENCE);
        assert!(!path.0.exists());
        assert!(TcpStream::connect(address).is_err(), "the listeners are closed");
    }
}

#[test]
fn every_listener_is_accepted_from_however_many_loops_there_are() {
    let share = ListenOptions { reuse_port: true, ..ListenOptions::default() };
    for (listeners, loops) in [(5, 2), (5, 1), (2, 5), (1, 3), (3, 3)] {
        let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let open = |_| match Socket::listen(&Address::Ip(address), &share).unwrap() {
            Socket::Descriptor(descriptor) => descriptor,
            Socket::Simulated(_) => unreachable!("it is a real one"),
        };
        let server = begin(Server::on_listeners((0..listeners).map(open).collect()), loops).unwrap();
        (0..40).for_each(|_| serves(address));
        server.drain(PATIENCE);
    }
}

#[test]
fn every_loop_accepts_at_every_address() {
    let listeners: Vec<_> = (0..2).map(|_| TcpListener::bind("127.0.0.1:0").unwrap()).collect();
    let addresses: Vec<_> = listeners.iter().map(|listener| listener.local_addr().unwrap()).collect();
    let server = begin(Server::on_listeners(listeners.into_iter().map(OwnedFd::from).collect()), 2).unwrap();
    assert_eq!(port(&server), addresses[0]);
    for address in addresses {
        let before = server.counts();
        until(|| {
            serves(address);
            server.counts().iter().zip(&before).all(|(now, before)| now.accepted > before.accepted)
        });
    }
    server.drain(PATIENCE);
}

#[test]
fn connections_that_wait_in_a_queue_are_not_lost_with_a_loop_less() {
    let path = SocketPath::new("takeover-queues");
    let old = at(&path, 4);
    let address = port(&old);
    let new = at(&path, 1);
    assert!(old.superseded().wait());
    let mut clients: Vec<_> = (0..60).map(|_| bounded(TcpStream::connect(address).unwrap())).collect();
    let drain = thread::spawn(move || old.drain(PATIENCE));
    clients.extend((0..60).map(|_| bounded(TcpStream::connect(address).unwrap())));
    for client in &mut clients {
        assert_eq!(ask(client, "flood"), "flood");
    }
    drop(clients);
    drain.join().unwrap();
    serves(address);
    new.drain(PATIENCE);
}

#[test]
fn a_server_without_a_predecessor_starts_and_its_socket_is_private() {
    let path = SocketPath::new("takeover-nobody");
    // The file that a killed process has left behind.
    for stale in [false, true] {
        if stale {
            drop(UnixListener::bind(&path.0).unwrap());
        }
        let server = at(&path, 1);
        serves(port(&server));
        assert!(!server.is_superseded());
        assert_eq!(fs::metadata(&path.0).unwrap().permissions().mode() & 0o777, 0o600);
        server.drain(PATIENCE);
        assert!(!path.0.exists(), "nothing is left behind");
    }
}

#[test]
fn a_server_that_ends_without_a_successor_notifies_the_waiting_caller() {
    let path = SocketPath::new("takeover-end");
    let server = at(&path, 1);
    let superseded = server.superseded();
    let waiting = thread::spawn(move || superseded.wait());
    server.drain(PATIENCE);
    assert!(!waiting.join().unwrap());

    let plain = begin(Server::bind("127.0.0.1:0").unwrap(), 1).unwrap();
    let superseded = plain.superseded();
    drop(plain);
    assert!(!superseded.wait());
}

#[test]
fn a_superseded_server_leaves_the_path_to_its_successor() {
    let path = SocketPath::new("takeover-path");
    let first = at(&path, 1);
    let second = at(&path, 1);
    assert!(first.superseded().wait() && first.is_superseded());
    first.drain(PATIENCE);
    assert!(path.0.exists());
    let third = at(&path, 1);
    assert!(second.superseded().wait());
    drop(second);
    serves(port(&third));
    drop(third);
    assert!(!path.0.exists());
}

#[test]
fn a_path_that_cannot_be_used_is_an_error_and_nothing_is_touched() {
    let file = SocketPath::new("takeover-file");
    fs::write(&file.0, b"precious").unwrap();
    let long = file.0.join("x".repeat(200));
    let missing = std::env::temp_dir().join("tidegate-there-is-no-such-directory/socket");
    // Nothing is there, but no socket can be.
    let longer = std::env::temp_dir().join("x".repeat(200));
    for path in [
        file.0.clone(),
        missing,
        "/".into(),
        "/proc/version".into(),
        "/proc/none".into(),
        "@abstract".into(),
        long,
        longer,
    ] {
        let error = begin(Server::bind("127.0.0.1:0").unwrap().takeover(&path), 1).unwrap_err();
        assert!(matches!(&error, StartError::Takeover(named, _) if *named == path), "{error}");
        assert!(error.to_string().contains(&*path.to_string_lossy()), "{error}");
    }
    assert_eq!(fs::read(&file.0).unwrap(), b"precious");
}

#[test]
fn a_successor_that_dies_before_it_is_ready_changes_nothing() {
    let path = SocketPath::new("takeover-death");
    let old = at(&path, 2);
    let address = port(&old);
    let crowd = Crowd::at(address);
    let connect = || {
        let stream = UnixStream::connect(&path.0).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream
    };
    // Silence; half a hello; another protocol; a close before the answer.
    drop(connect());
    for words in [&HELLO[..7], b"GET / HTTP/1.1\r\n\r\n12", HELLO] {
        connect().write_all(words).unwrap();
    }
    // A close after receiving the listeners; and after an unexpected message.
    for word in [&b""[..], b"?"] {
        let mut stream = connect();
        stream.write_all(HELLO).unwrap();
        // A header, and a byte for the message that the two listeners came with.
        stream.read_exact(&mut [0; 9]).unwrap();
        stream.write_all(word).unwrap();
    }
    // A close after receiving the listeners and binding the path.
    let mut stream = connect();
    stream.write_all(HELLO).unwrap();
    stream.read_exact(&mut [0; 9]).unwrap();
    let usurper = SocketPath::new("takeover-usurper");
    drop(UnixListener::bind(&usurper.0).unwrap());
    fs::rename(&usurper.0, &path.0).unwrap();
    drop(stream);
    until(|| UnixStream::connect(&path.0).is_ok());

    assert!(!old.is_superseded());
    crowd.go_on();
    let new = at(&path, 2);
    assert!(old.superseded().wait());
    assert_eq!(port(&new), address);
    old.drain(PATIENCE);
    crowd.end();
    new.drain(PATIENCE);
}

/// A drain does not wait for a successor that sends nothing.
#[test]
fn a_silent_successor_does_not_keep_a_server_from_ending() {
    let path = SocketPath::new("takeover-silence");
    let server = at(&path, 1);
    let mut silent = UnixStream::connect(&path.0).unwrap();
    silent.write_all(HELLO).unwrap();
    silent.read_exact(&mut [0; 9]).unwrap();
    server.begin_drain(FOR_EVER);
    assert!(server.wait_timeout(PATIENCE), "the server waits for a silent successor");
    assert!(!path.0.exists());
}

/// A fake server at `path` that hands a listener over, reads that the successor is ready, and answers.
fn predecessor(path: &SocketPath, answer: &'static [u8]) -> (SocketAddr, thread::JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let control = UnixListener::bind(&path.0).unwrap();
    let life = move || {
        let mut stream = control.accept().unwrap().0;
        let mut hello = [0; HELLO.len()];
        stream.read_exact(&mut hello).unwrap();
        assert_eq!(hello, *HELLO);
        let deadline = Instant::now() + PATIENCE;
        handover::send(&stream, &[listener.as_fd()], deadline).unwrap();
        // No sessions.
        handover::write_block(&stream, &[], deadline).unwrap();
        handover::send(&stream, &[], deadline).unwrap();
        stream.read_exact(&mut [0]).unwrap();
        stream.write_all(answer).unwrap();
    };
    (address, thread::spawn(life))
}

#[test]
fn a_successor_that_was_too_slow_does_not_start() {
    let path = SocketPath::new("takeover-slow");
    let (_, old) = predecessor(&path, b"L");
    let error = begin(Server::bind("127.0.0.1:0").unwrap().takeover(&path.0), 2).unwrap_err();
    assert!(matches!(&error, StartError::Takeover(..)), "{error}");
    assert!(!path.0.exists());
    old.join().unwrap();
}

/// The predecessor may have closed the listeners.
#[test]
fn a_successor_stays_if_its_predecessor_dies_before_it_answers() {
    let path = SocketPath::new("takeover-mute");
    let (address, old) = predecessor(&path, b"");
    let server = at(&path, 2);
    old.join().unwrap();
    assert_eq!(port(&server), address);
    serves(address);
    server.drain(PATIENCE);
}

#[test]
fn a_predecessor_that_makes_no_sense_is_an_error() {
    for answer in [&b"HTTP/1.1 400 Bad Request\r\n\r\n"[..], b"TgH1\xff\xff\xff\xff", b"TgH1\x01\x00\x00\x00\x01"] {
        let path = SocketPath::new("takeover-nonsense");
        let control = UnixListener::bind(&path.0).unwrap();
        let old = thread::spawn(move || {
            let mut stream = control.accept().unwrap().0;
            stream.read_exact(&mut [0; HELLO.len()]).unwrap();
            stream.write_all(answer).unwrap();
            // Until the other process has ended.
            let _ = stream.read(&mut [0]);
        });
        let error = begin(Server::bind("127.0.0.1:0").unwrap().takeover(&path.0), 1).unwrap_err();
        assert!(matches!(&error, StartError::Takeover(_, error) if error.kind() == ErrorKind::InvalidData), "{error}");
        old.join().unwrap();
        assert!(path.0.exists(), "it belongs to another process");
    }
}

#[test]
fn of_many_successors_at_once_one_is_left() {
    let path = SocketPath::new("takeover-race");
    let first = at(&path, 1);
    let address = port(&first);
    let crowd = Crowd::at(address);
    let mut servers: Vec<_> = thread::scope(|scope| {
        let starting: Vec<_> = (0..4).map(|_| scope.spawn(|| at(&path, 1))).collect();
        starting.into_iter().map(|one| one.join().unwrap()).collect()
    });
    servers.push(first);
    // A successor may be ready a moment before the predecessor has recorded it.
    until(|| servers.iter().filter(|server| server.is_superseded()).count() == 4);
    let (superseded, left): (Vec<_>, Vec<_>) = servers.into_iter().partition(ServerHandle::is_superseded);
    assert_eq!((superseded.len(), left.len()), (4, 1));
    superseded.into_iter().for_each(|server| server.drain(PATIENCE));
    crowd.go_on();
    crowd.end();
    assert!(path.0.exists());
}

/// If no server listens yet, the second waits until it finds the first.
#[test]
fn of_two_first_starts_at_once_one_takes_over_from_the_other() {
    for _ in 0..20 {
        let path = SocketPath::new("takeover-twice");
        let both = thread::scope(|scope| {
            let starting = [(); 2].map(|()| scope.spawn(|| at(&path, 1)));
            starting.map(|one| one.join().unwrap())
        });
        until(|| both.iter().filter(|server| server.is_superseded()).count() == 1);
        assert_eq!(port(&both[0]), port(&both[1]));
        let (superseded, left): (Vec<_>, Vec<_>) = both.into_iter().partition(ServerHandle::is_superseded);
        superseded.into_iter().for_each(|server| server.drain(PATIENCE));
        serves(port(&left[0]));
        let next = at(&path, 1);
        assert!(left[0].superseded().wait());
        drop((left, next));
        assert_eq!(beside(&path), Vec::<String>::new());
    }
}

/// Files whose name holds a number of this process, as those of a process with the same number in another container.
#[test]
fn a_socket_beside_the_path_belongs_to_another_process() {
    let directory = std::env::temp_dir().join(format!("tidegate-takeover-beside-{}", std::process::id()));
    fs::create_dir_all(&directory).unwrap();
    let names = (0..100).map(|number| directory.join(format!(".tg{}-{number}", std::process::id())));
    let others: Vec<_> = names.map(|name| (UnixListener::bind(&name).unwrap(), name)).collect();
    let path = SocketPath(directory.join("socket"));
    drop(at(&path, 1));
    for (_, name) in &others {
        UnixStream::connect(name).unwrap();
    }
    fs::remove_dir_all(&directory).unwrap();
}

/// The files beside the path of the takeover.
fn beside(path: &SocketPath) -> Vec<String> {
    let name = path.0.file_name().unwrap().to_str().unwrap();
    let entries = fs::read_dir(path.0.parent().unwrap()).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned());
    names.filter(|other| other.contains(name)).collect()
}

/// More of them than may wait, and more than the backlog; some begin to send a hello.
#[test]
fn silent_clients_do_not_delay_a_successor() {
    let path = SocketPath::new("takeover-silent");
    let old = at(&path, 1);
    let mut silent = Vec::new();
    for number in 0..90 {
        let mut stream = UnixStream::connect(&path.0).unwrap();
        if number % 3 == 0 {
            stream.write_all(&HELLO[..number % 30 / 3]).unwrap();
        }
        silent.push(stream);
    }
    let begun = Instant::now();
    let new = at(&path, 1);
    assert!(old.superseded().wait());
    // The patience of either side is three seconds: one after the other, they would take four minutes and a half.
    assert!(begun.elapsed() < PATIENCE, "{:?}", begun.elapsed());
    assert_eq!(port(&new), port(&old));
    drop(silent);
}

#[test]
fn a_server_ends_at_once_while_clients_are_silent() {
    let path = SocketPath::new("takeover-silent-end");
    let server = at(&path, 1);
    let _silent: Vec<_> = (0..3).map(|_| UnixStream::connect(&path.0).unwrap()).collect();
    server.begin_drain(FOR_EVER);
    assert!(server.wait_timeout(PATIENCE), "the server waits for silent clients");
    assert!(!path.0.exists());
}

#[test]
fn a_descriptor_that_is_no_listener_is_refused() {
    let connected = UnixStream::pair().unwrap().0;
    let error = begin(Server::on_listeners(vec![connected.into()]), 1).unwrap_err();
    assert!(matches!(error, StartError::System(_)), "{error}");
    let error = begin(Server::on_listeners(vec![]), 1).unwrap_err();
    assert!(matches!(error, StartError::NoListener), "{error}");
    assert!(Server::from_environment().unwrap().is_none(), "nothing was passed to this process");
}

/// The deadline of a drain that ends before it.
const FOR_EVER: Duration = Duration::from_secs(100_000);

/// The first message of a successor.
const HELLO: &[u8; 20] = b"tidegate takeover 2\n";
