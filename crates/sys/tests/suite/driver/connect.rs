//! Connecting: it has exactly one result.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::UnixListener;

use socket2::{Domain, SockAddr, Type};
use tidegate_buffer::Outbound;
use tidegate_sys::{Address, Operation, Side, SocketOptions, Token};

use crate::directory::Directory;
use crate::driver::harness::{Harness, PATIENCE, Report, reset};
use crate::driver::which::Which;

fn connect(harness: &mut Harness, address: &Address) -> Token {
    connect_from(harness, address, None)
}

fn connect_from(harness: &mut Harness, address: &Address, local: Option<&Address>) -> Token {
    let token = harness.token();
    harness.submit(token, Operation::Connect { address, local, options: &SocketOptions::default() });
    token
}

fn until_connected(harness: &mut Harness, token: Token) -> Result<(), ErrorKind> {
    harness.until(|harness| match harness.reports(token) {
        [] => None,
        [Report::Connected(result)] => Some(*result),
        other => panic!("{other:?}"),
    })
}

pub(crate) fn connect_works_over_ipv4_and_ipv6(driver: Which) {
    for host in ["127.0.0.1:0", "[::1]:0"] {
        let listener = TcpListener::bind(host).unwrap();
        let address = Address::Ip(listener.local_addr().unwrap());
        let mut harness = Harness::on(driver);
        let token = connect(&mut harness, &address);
        assert_eq!(until_connected(&mut harness, token), Ok(()));
        let (mut peer, peer_address) = listener.accept().unwrap();
        assert_eq!(harness.driver.address(token, Side::Peer).unwrap(), address);
        assert_eq!(harness.driver.address(token, Side::Local).unwrap(), Address::Ip(peer_address));
        harness.run_until_idle();
        assert_eq!(harness.take(token), [Report::Connected(Ok(()))]);
        harness.receive(token, true);
        peer.write_all(b"welcome").unwrap();
        assert_eq!(harness.until_received(token, 7), b"welcome");
    }
}

pub(crate) fn connect_works_over_unix_sockets(driver: Which) {
    let directory = Directory::new();
    let listener = UnixListener::bind(directory.path("listener")).unwrap();
    let mut harness = Harness::on(driver);
    let token = connect(&mut harness, &directory.socket("listener"));
    assert_eq!(until_connected(&mut harness, token), Ok(()));
    let (mut peer, _) = listener.accept().unwrap();
    assert_eq!(harness.driver.address(token, Side::Peer).unwrap(), directory.socket("listener"));
    harness.take(token);
    harness.receive(token, true);
    peer.write_all(b"welcome").unwrap();
    assert_eq!(harness.until_received(token, 7), b"welcome");
    let mut queue = Outbound::new(&harness.pool);
    queue.write(b"thanks");
    queue.flush();
    harness.send_all(token, &mut queue, usize::MAX).unwrap();
    harness.close(token, false);
    let mut thanks = String::new();
    peer.read_to_string(&mut thanks).unwrap();
    assert_eq!(thanks, "thanks");
}

pub(crate) fn connect_uses_the_requested_local_address(driver: Which) {
    for (host, local) in [("127.0.0.1:0", "127.0.0.2:0"), ("[::1]:0", "[::1]:0")] {
        let listener = TcpListener::bind(host).unwrap();
        let local: SocketAddr = local.parse().unwrap();
        let mut harness = Harness::on(driver);
        let address = Address::Ip(listener.local_addr().unwrap());
        let token = connect_from(&mut harness, &address, Some(&Address::Ip(local)));
        assert_eq!(until_connected(&mut harness, token), Ok(()));
        let (_, peer) = listener.accept().unwrap();
        assert_eq!(peer.ip(), local.ip());
        assert_ne!(peer.port(), 0);
        assert_eq!(harness.driver.address(token, Side::Local).unwrap(), Address::Ip(peer));
    }
    let directory = Directory::new();
    let listener = UnixListener::bind(directory.path("listener")).unwrap();
    let mut harness = Harness::on(driver);
    let token = connect_from(&mut harness, &directory.socket("listener"), Some(&directory.socket("client")));
    assert_eq!(until_connected(&mut harness, token), Ok(()));
    let (_, peer) = listener.accept().unwrap();
    assert_eq!(peer.as_pathname(), Some(&*directory.path("client")));
}

pub(crate) fn connect_uses_the_requested_local_port(driver: Which) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    // The port was just free, and the system does not assign it again soon, since it counts upwards from here.
    let free = TcpListener::bind("127.0.0.3:0").unwrap().local_addr().unwrap();
    let mut harness = Harness::on(driver);
    let address = Address::Ip(listener.local_addr().unwrap());
    let token = connect_from(&mut harness, &address, Some(&Address::Ip(free)));
    assert_eq!(until_connected(&mut harness, token), Ok(()));
    assert_eq!(listener.accept().unwrap().1, free);
}

pub(crate) fn an_unusable_local_address_fails_the_connect(driver: Which) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = Address::Ip(listener.local_addr().unwrap());
    let cases = [
        (Address::Ip(taken.local_addr().unwrap()), ErrorKind::AddrInUse),
        // An address for documentation, which no host has (RFC 5737).
        (Address::Ip(([192, 0, 2, 1], 0).into()), ErrorKind::AddrNotAvailable),
    ];
    for (local, kind) in cases {
        let mut harness = Harness::on(driver);
        let token = connect_from(&mut harness, &address, Some(&local));
        assert_eq!(until_connected(&mut harness, token), Err(kind), "{local}");
        harness.assert_quiet();
    }
}

pub(crate) fn a_refused_connection_is_reported_once_and_nothing_follows(driver: Which) {
    // Bound, but not listening: no other process can get this port, and the connection cannot connect to itself.
    let unused = socket2::Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    unused.bind(&any()).unwrap();
    let directory = Directory::new();
    drop(UnixListener::bind(directory.path("deserted")).unwrap());
    let cases = [
        (Address::Ip(unused.local_addr().unwrap().as_socket().unwrap()), ErrorKind::ConnectionRefused),
        (directory.socket("deserted"), ErrorKind::ConnectionRefused),
        (directory.socket("missing"), ErrorKind::NotFound),
    ];
    for (address, kind) in cases {
        let mut harness = Harness::on(driver);
        let token = connect(&mut harness, &address);
        harness.receive(token, true);
        assert_eq!(until_connected(&mut harness, token), Err(kind), "{address}");
        harness.assert_quiet();
        harness.receive(token, true);
        harness.run_until_idle();
        assert!(harness.take(token).len() <= 1, "{address}");
        harness.close(token, false);
    }
}

/// The kernel reports only once that a socket became writable. A send that was requested before the connection was made
/// must not miss that.
pub(crate) fn a_send_before_the_connection_is_made_waits_for_it(driver: Which) {
    let (listener, address) = busy_listener();
    let full: Vec<_> = (0..2).map(|_| TcpStream::connect_timeout(&address, PATIENCE).unwrap()).collect();
    let mut harness = Harness::on(driver);
    let token = connect(&mut harness, &Address::Ip(address));
    let mut queue = Outbound::new(&harness.pool);
    queue.write(b"first words");
    queue.flush();
    assert!(harness.send(token, &mut queue, usize::MAX).is_none(), "the connection is not made yet");
    harness.run_until_idle();
    assert_eq!(harness.take(token), []);
    // The backlog has room now; the kernel tries again after a second.
    for client in &full {
        let (peer, _) = listener.accept().unwrap();
        assert_eq!(peer.peer_addr().unwrap(), client.local_addr().unwrap().into());
    }
    let reports = harness.until_report(token, &Report::Sent(Ok(0)));
    assert_eq!(reports, [Report::Connected(Ok(())), Report::Sent(Ok(0))]);
    harness.send_all(token, &mut queue, usize::MAX).unwrap();
    harness.close(token, false);
    let mut text = String::new();
    listener.accept().unwrap().0.read_to_string(&mut text).unwrap();
    assert_eq!(text, "first words");
}

pub(crate) fn a_connection_that_is_reset_at_once_fails(driver: Which) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut harness = Harness::on(driver);
    let token = connect(&mut harness, &Address::Ip(listener.local_addr().unwrap()));
    harness.receive(token, true);
    reset(listener.accept().unwrap().0.into());
    harness.until(|harness| {
        let reports = harness.reports(token);
        let failed = matches!(reports, [Report::Connected(Err(_))] | [Report::Connected(Ok(())), Report::Failed(_)]);
        failed.then_some(())
    });
    harness.take(token);
    harness.assert_quiet();
    assert_eq!(harness.take(token), []);
}

pub(crate) fn a_socket_closed_when_it_becomes_writable_reports_nothing(driver: Which) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut harness = Harness::on(driver);
    let token = connect(&mut harness, &Address::Ip(listener.local_addr().unwrap()));
    let mut queue = Outbound::new(&harness.pool);
    queue.write(b"first words");
    queue.flush();
    harness.submit(token, Operation::Send { queue: &mut queue, bytes_max: usize::MAX });
    harness.until(|harness| (!harness.reports(token).is_empty()).then_some(()));
    harness.driver.wait(Some(std::time::Duration::ZERO)).unwrap();
    // The harness checks the reports from here on.
    harness.close(token, false);
    harness.run_until_idle();
}

pub(crate) fn a_connecting_socket_that_is_closed_reports_nothing(driver: Which) {
    let (listener, address) = busy_listener();
    // While the backlog is full, further connections are neither made nor refused.
    let full: Vec<_> = (0..2).map(|_| TcpStream::connect_timeout(&address, PATIENCE).unwrap()).collect();
    let mut harness = Harness::on(driver);
    let tokens: Vec<_> = (0..3).map(|_| connect(&mut harness, &Address::Ip(address))).collect();
    harness.run_until_idle();
    for &token in &tokens {
        assert_eq!(harness.take(token), []);
        harness.close(token, false);
    }
    drop((full, listener));
    harness.assert_quiet();
    assert!(harness.take_all().is_empty());
}

/// A listener whose backlog is full with two connections; further connections have to try again later.
pub(crate) fn busy_listener() -> (socket2::Socket, SocketAddr) {
    let listener = socket2::Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    listener.bind(&any()).unwrap();
    listener.listen(1).unwrap();
    let address = listener.local_addr().unwrap().as_socket().unwrap();
    (listener, address)
}

fn any() -> SockAddr {
    SocketAddr::from(([127, 0, 0, 1], 0)).into()
}
