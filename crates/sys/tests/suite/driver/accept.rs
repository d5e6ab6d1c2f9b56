//! Listeners: the accepted connections, their number in one turn, and accepting without descriptors.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use socket2::{Domain, Type};
use tidegate_sys::{Address, Completion, ListenOptions, Operation, Side, Socket, Token};

use crate::directory::Directory;
use crate::driver::harness::{Family, Harness, Report, any_port, unix};
use crate::driver::which::Which;

pub(crate) fn an_accepted_connection_has_the_address_of_its_peer(driver: Which) {
    for host in ["127.0.0.1:0", "[::1]:0"] {
        let mut harness = Harness::on(driver);
        let (listener, address) = harness.listen(&host.parse().unwrap());
        let client = TcpStream::connect(address.ip().unwrap()).unwrap();
        let (from, accepted) = harness.until_accepted();
        assert_eq!(from, listener);
        assert_eq!(accepted.peer, Address::Ip(client.local_addr().unwrap()));
        let token = harness.token();
        harness.submit(token, Operation::Adopt(accepted.socket));
        assert_eq!(harness.driver.address(token, Side::Local).unwrap(), address);
        assert_eq!(harness.driver.address(token, Side::Peer).unwrap(), Address::Ip(client.local_addr().unwrap()));
    }
}

pub(crate) fn a_bound_unix_peer_has_its_path_as_address(driver: Which) {
    let directory = Directory::new();
    let mut harness = Harness::on(driver);
    let (_, address) = harness.listen(&directory.socket("listener"));
    assert_eq!(address, directory.socket("listener"));
    let nameless = UnixStream::connect(directory.path("listener")).unwrap();
    assert_eq!(harness.until_accepted().1.peer, Address::Unix("".into()));
    let named = socket2::Socket::new(Domain::UNIX, Type::STREAM, None).unwrap();
    named.bind(&unix(&directory.path("client"))).unwrap();
    named.connect(&unix(&directory.path("listener"))).unwrap();
    let (_, accepted) = harness.until_accepted();
    assert_eq!(accepted.peer, directory.socket("client"));
    let token = harness.token();
    harness.submit(token, Operation::Adopt(accepted.socket));
    assert_eq!(harness.driver.address(token, Side::Peer).unwrap(), directory.socket("client"));
    assert_eq!(harness.driver.address(token, Side::Local).unwrap(), address);
    drop(nameless);
}

pub(crate) fn accepts_per_turn_are_bounded_and_do_not_delay_other_sockets(driver: Which) {
    let mut harness = Harness::on(driver);
    let (listener, address) = harness.listen(&any_port());
    let clients: Vec<_> = (0..CLIENTS).map(|_| TcpStream::connect(address.ip().unwrap()).unwrap()).collect();
    let (other, mut peer) = harness.pair(Family::Tcp);
    harness.receive(other, true);
    peer.write_all(b"me too").unwrap();
    let (mut accepted_before, mut turns) = (None, 0);
    harness.until(|harness| {
        let accepted = harness.reports(listener).len();
        assert!(accepted <= turns * driver.accepted_a_turn_max(), "{accepted} accepted in {turns} turns");
        if accepted_before.is_none() && !harness.reports(other).is_empty() {
            accepted_before = Some(accepted);
        }
        turns += 1;
        (accepted == CLIENTS && accepted_before.is_some()).then_some(())
    });
    let (before, max) = (accepted_before.unwrap(), 2 * driver.accepted_a_turn_max());
    assert!(before <= max, "the other socket waited until {before} connections were accepted");
    assert_eq!(harness.accepted.len(), clients.len());
}

pub(crate) fn a_stopped_listener_leaves_connections_in_the_backlog(driver: Which) {
    let mut harness = Harness::on(driver);
    let (listener, address) = harness.listen(&any_port());
    let connect = || TcpStream::connect(address.ip().unwrap()).unwrap();
    harness.submit(listener, Operation::Accept(false));
    let first = connect();
    harness.run_until_idle();
    assert_eq!(harness.take(listener), []);
    let second = connect();
    harness.submit(listener, Operation::Accept(true));
    for client in [first, second] {
        assert_eq!(harness.until_accepted().1.peer, Address::Ip(client.local_addr().unwrap()));
    }
}

pub(crate) fn accepting_can_stop_between_two_connections_of_one_turn(driver: Which) {
    let mut harness = Harness::on(driver);
    let (listener, address) = harness.listen(&any_port());
    let connect = || TcpStream::connect(address.ip().unwrap()).unwrap();
    let clients: Vec<_> = (0..10).map(|_| connect()).collect();
    let mut accepted = 0;
    while accepted < clients.len() {
        harness.submit(listener, Operation::Accept(true));
        let (_, first) = harness.first();
        assert!(matches!(first, Completion::Accepted(Ok(_))), "{first:?}");
        harness.submit(listener, Operation::Accept(false));
        harness.run_until_idle();
        let in_flight = harness.take(listener).len();
        assert!(in_flight == 0 || driver.runs_ahead(), "{in_flight} were accepted after it was stopped");
        accepted += 1 + in_flight;
    }
    assert_eq!(accepted, clients.len());
    harness.accepted.clear();
    // Once accepting has stopped, new connections wait in the backlog.
    let late = connect();
    harness.run_until_idle();
    assert_eq!(harness.take(listener), []);
    harness.submit(listener, Operation::Accept(true));
    assert_eq!(harness.until_accepted().1.peer, Address::Ip(late.local_addr().unwrap()));
}

pub(crate) fn a_closed_listener_accepts_nothing(driver: Which) {
    let mut harness = Harness::on(driver);
    let (listener, address) = harness.listen(&any_port());
    let mut waiting = TcpStream::connect(address.ip().unwrap()).unwrap();
    harness.close(listener, false);
    harness.run_until_idle();
    assert_eq!(harness.take(listener), []);
    assert_eq!(waiting.read(&mut [0]).unwrap_err().kind(), ErrorKind::ConnectionReset);
}

pub(crate) fn two_drivers_that_share_a_listener_accept_each_connection_once(driver: Which) {
    let socket = Socket::listen(&any_port(), &ListenOptions::default()).unwrap();
    let address = socket.address(Side::Local).unwrap();
    let mut harnesses = [Harness::on(driver), Harness::on(driver)];
    let second = socket.try_clone().unwrap();
    for (harness, socket) in harnesses.iter_mut().zip([socket, second]) {
        let token = harness.token();
        assert!(harness.driver.submit(token, Operation::Listen(socket)).is_none());
    }
    let clients: Vec<_> = (0..40).map(|_| TcpStream::connect(address.ip().unwrap()).unwrap()).collect();
    let mut peers = Vec::new();
    while peers.len() < clients.len() {
        for harness in &mut harnesses {
            harness.run_until_idle();
            peers.extend(harness.accepted.drain(..).map(|(_, accepted)| accepted.peer.to_string()));
        }
    }
    let mut expected: Vec<_> = clients.iter().map(|client| client.local_addr().unwrap().to_string()).collect();
    peers.sort();
    expected.sort();
    assert_eq!(peers, expected);
}

/// One driver closes the listener, and the other continues: a server that is drained loop by loop.
pub(crate) fn a_shared_listener_stays_open_on_the_other_driver(driver: Which) {
    let socket = Socket::listen(&any_port(), &ListenOptions::default()).unwrap();
    let address = socket.address(Side::Local).unwrap();
    let (mut leaves, mut stays) = (Harness::on(driver), Harness::on(driver));
    let second = socket.try_clone().unwrap();
    let (one, other) = (leaves.token(), stays.token());
    leaves.submit(one, Operation::Listen(socket));
    stays.submit(other, Operation::Listen(second));
    leaves.close(one, false);
    let client = TcpStream::connect(address.ip().unwrap()).unwrap();
    assert_eq!(stays.until_accepted().1.peer, Address::Ip(client.local_addr().unwrap()));
    leaves.run_until_idle();
    assert!(leaves.take_all().is_empty());
    // New connections do not wake the driver that closed the listener.
    let start = Instant::now();
    let _next = TcpStream::connect(address.ip().unwrap()).unwrap();
    leaves.turn(start + WAIT);
    assert!(start.elapsed() >= WAIT);
}

pub(crate) fn accepting_fails_without_descriptors_and_resumes_on_request(driver: Which) {
    driver.alone("accept::accepting_fails_without_descriptors_and_resumes_on_request", || {
        let mut harness = Harness::on(driver);
        let (listener, address) = harness.listen(&any_port());
        let client = TcpStream::connect(address.ip().unwrap()).unwrap();
        let limit = getrlimit(Resource::Nofile);
        setrlimit(Resource::Nofile, Rlimit { current: Some(3), maximum: limit.maximum }).unwrap();
        let failed = vec![Report::AcceptFailed(Some(libc_emfile()))];
        assert_eq!(harness.until(|harness| take_reports(harness, listener)), failed);
        harness.assert_quiet();
        assert_eq!(harness.take(listener), [], "an error that lasts is reported once, not in every turn");
        // The next `Accept(true)` reports it again.
        harness.submit(listener, Operation::Accept(false));
        harness.submit(listener, Operation::Accept(true));
        assert_eq!(harness.until(|harness| take_reports(harness, listener)), failed);
        setrlimit(Resource::Nofile, limit).unwrap();
        harness.submit(listener, Operation::Accept(false));
        harness.submit(listener, Operation::Accept(true));
        assert_eq!(harness.until_accepted().1.peer, Address::Ip(client.local_addr().unwrap()));
    });
}

fn take_reports(harness: &mut Harness, token: Token) -> Option<Vec<Report>> {
    (!harness.reports(token).is_empty()).then(|| harness.take(token))
}

fn libc_emfile() -> i32 {
    rustix::io::Errno::MFILE.raw_os_error()
}

const CLIENTS: usize = 300;

const WAIT: Duration = Duration::from_millis(20);
