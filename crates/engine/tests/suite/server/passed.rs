//! Sockets of a service manager: which listener and which endpoint each of them is for.

use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::time::Duration;

use tidegate_buffer::Transmit;
use tidegate_codec::framing::Lines;
use tidegate_engine::{
    Backend, EndpointListener, EventLoop, Listener, ServedListener, Server, ServerHandle, StartError,
};
use tidegate_sys::Address;

use crate::server::support::{Commands, PATIENCE, SocketPath, ask, bounded};

fn lines(listener: Listener) -> ServedListener {
    listener.handle(|| (Lines::new(), Commands::default()))
}

fn at(address: impl Into<Address>) -> ServedListener {
    lines(Listener::at(address.into()))
}

fn any_port() -> ServedListener {
    lines(Listener::bind("127.0.0.1:0").unwrap())
}

/// A socket as a service manager opens it, and its address.
fn opened() -> (OwnedFd, SocketAddr) {
    let socket = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = socket.local_addr().unwrap();
    (socket.into(), address)
}

fn addresses(server: &ServerHandle) -> Vec<Vec<Address>> {
    server.listeners().iter().map(|listener| listener.addresses().to_vec()).collect()
}

fn serves(address: SocketAddr) {
    let mut client = bounded(TcpStream::connect(address).expect("it listens"));
    assert_eq!(ask(&mut client, "local"), address.to_string());
}

fn refusal(server: Server) -> String {
    server.run().expect_err("the address is in use").to_string()
}

/// A listener with port 0 comes first and has the same IP address: it wants none of the sockets.
#[test]
fn each_listener_has_the_sockets_of_its_addresses_and_one_with_port_0_has_none() {
    let ([(first, one), (second, two)], path) = ([opened(), opened()], SocketPath::new("passed"));
    let unix = UnixListener::bind(&path.0).unwrap();
    let server = Server::new()
        .loops(2)
        .passed(vec![second, unix.into(), first])
        .listener(any_port())
        .listener(at(one))
        .listener(lines(Listener::at(two.into()).and_at(Address::Unix(path.0.clone()))))
        .run()
        .unwrap();
    let found = addresses(&server);
    assert_eq!(found[1..], [vec![Address::Ip(one)], vec![Address::Ip(two), Address::Unix(path.0.clone())]]);
    let own = found[0][0].ip().unwrap();
    assert!(own != one && own != two, "{own}");
    [own, one, two].into_iter().for_each(serves);
    let mut local = UnixStream::connect(&path.0).unwrap();
    assert_eq!(ask(&mut local, "ebb"), "ebb");
    drop(local);
    server.drain(PATIENCE);
    assert!(path.0.exists(), "the service manager removes its file");
}

#[test]
fn one_listener_uses_all_sockets_unless_one_is_bound_to_its_address() {
    let [(first, one), (second, two)] = [opened(), opened()];
    let both = || vec![first.try_clone().unwrap(), second.try_clone().unwrap()];
    let server = Server::new().loops(2).passed(both()).listener(any_port()).run().unwrap();
    assert_eq!(addresses(&server), [[Address::Ip(one), Address::Ip(two)]]);
    [one, two].into_iter().for_each(serves);
    server.drain(PATIENCE);
    let server = Server::new().loops(2).passed(both()).listener(at(two)).run().unwrap();
    assert_eq!(addresses(&server), [[Address::Ip(two)]]);
    serves(two);
    server.drain(PATIENCE);
}

/// `0.0.0.0` is not `[::]`, although a socket of the latter has the port of both.
#[test]
fn an_address_that_a_socket_covers_under_another_name_is_an_error_that_has_both() {
    let Ok(wide) = TcpListener::bind("[::]:0") else { return };
    let port = wide.local_addr().unwrap().port();
    let server = Server::new().loops(2).passed(vec![wide.into()]).listener(any_port());
    let error = server.listener(at(SocketAddr::from(([0, 0, 0, 0], port)))).run().unwrap_err();
    assert!(matches!(error, StartError::InUseByPassed { .. }), "{error}");
    let text = error.to_string();
    assert!(text.starts_with(&format!("0.0.0.0:{port} is in use by the passed socket [::]:{port}: write")), "{text}");

    let (path, link) = (SocketPath::new("passed-file"), SocketPath::new("passed-link"));
    let unix = UnixListener::bind(&path.0).unwrap();
    std::os::unix::fs::symlink(&path.0, &link.0).unwrap();
    let server = Server::new().loops(1).passed(vec![unix.into()]).listener(any_port());
    let text = refusal(server.listener(at(Address::Unix(link.0.clone()))));
    assert!(text.contains("is in use by the passed socket unix:"), "{text}");
}

#[test]
fn a_server_that_replaces_another_has_its_sockets_at_exact_addresses_before_those_at_port_0() {
    let (passed, one) = opened();
    let start = |old: Option<&ServerHandle>| {
        let server = Server::new().loops(2).replaceable().passed(vec![passed.try_clone().unwrap()]);
        let server = match old {
            Some(old) => server.replaces(old).unwrap(),
            None => server,
        };
        server.listener(any_port()).listener(at(one)).run().unwrap()
    };
    let old = start(None);
    let new = start(Some(&old));
    assert_eq!(addresses(&new), addresses(&old));
    old.drain(PATIENCE);
    addresses(&new).into_iter().flatten().for_each(|address| serves(address.ip().unwrap()));
    new.drain(PATIENCE);
}

/// The successor was not started by the service manager, and does not know which sockets were passed.
#[test]
fn a_successor_has_the_sockets_of_its_predecessor_by_their_addresses_passed_or_not() {
    let (path, (passed, one)) = (SocketPath::new("passed-takeover"), opened());
    let server = || Server::new().loops(2).takeover(&path.0).listener(any_port()).listener(at(one));
    let old = server().passed(vec![passed.try_clone().unwrap()]).run().unwrap();
    let unaware = server().run().unwrap();
    assert!(old.superseded().wait());
    old.drain(PATIENCE);
    assert_eq!(addresses(&unaware), addresses(&old));
    let aware = server().passed(vec![passed]).run().unwrap();
    assert!(unaware.superseded().wait());
    unaware.drain(PATIENCE);
    assert_eq!(addresses(&aware), addresses(&old));
    addresses(&aware).into_iter().flatten().for_each(|address| serves(address.ip().unwrap()));
    aware.drain(PATIENCE);
}

#[test]
fn a_passed_socket_at_the_address_of_the_only_listener_comes_before_those_of_a_predecessor() {
    let (path, (passed, one)) = (SocketPath::new("passed-only"), opened());
    let old = Server::new().loops(1).takeover(&path.0).listener(any_port()).run().unwrap();
    let new = Server::new().loops(1).takeover(&path.0).passed(vec![passed]).listener(at(one)).run().unwrap();
    assert_eq!(addresses(&new), [[Address::Ip(one)]]);
    assert!(old.superseded().wait());
    old.drain(PATIENCE);
    serves(one);
    new.drain(PATIENCE);
}

/// The socket does not share its address, so one loop has it, through any number of servers.
#[test]
fn a_passed_datagram_socket_is_served_by_the_endpoint_at_its_address_through_replacements_and_takeovers() {
    let has_uring = EventLoop::on(Backend::Uring).is_ok();
    for backend in [Backend::Epoll].into_iter().chain(has_uring.then_some(Backend::Uring)) {
        let path = SocketPath::new("passed-datagrams");
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let address = socket.local_addr().unwrap();
        let peer = UdpSocket::bind("127.0.0.1:0").unwrap();
        peer.set_read_timeout(Some(PATIENCE)).unwrap();
        let echoes = |text: &[u8]| {
            let mut received = [0; 8];
            let length = peer.recv(&mut received).unwrap();
            assert_eq!(&received[..length], text);
        };
        let echo = || {
            EndpointListener::at(address.into()).serve_channel(|_, mut channel| async move {
                while let Ok(datagram) = channel.recv_from().await {
                    let _ = channel.send(Transmit::response(&datagram, datagram.payload.clone()));
                }
            })
        };
        let server = || {
            let passed = vec![socket.try_clone().unwrap().into()];
            let server = Server::new().loops(3).backend(backend).takeover(&path.0).replaceable();
            server.passed(passed).listener(any_port()).endpoint(echo())
        };
        // It waits in the socket.
        peer.send_to(b"early", address).unwrap();
        let first = server().run().unwrap();
        assert_eq!(first.listeners()[1].addresses(), [Address::Ip(address)]);
        echoes(b"early");
        let second = server().replaces(&first).unwrap().run().unwrap();
        first.drain(Duration::ZERO);
        peer.send_to(b"second", address).unwrap();
        echoes(b"second");
        // Without knowledge of the passed sockets.
        let third = Server::new().loops(2).takeover(&path.0).listener(any_port()).endpoint(echo()).run().unwrap();
        assert!(second.superseded().wait());
        second.drain(Duration::ZERO);
        peer.send_to(b"third", address).unwrap();
        echoes(b"third");
        third.drain(Duration::ZERO);
    }
}

#[test]
fn a_descriptor_that_is_no_bound_socket_is_refused() {
    let connected = UnixStream::pair().unwrap().0;
    let error = Server::new().loops(1).passed(vec![connected.into()]).listener(any_port()).run().unwrap_err();
    assert!(matches!(error, StartError::Inherited(_)), "{error}");
}
