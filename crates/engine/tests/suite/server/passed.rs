//! Sockets of a service manager: which listener and which endpoint each of them is for.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::time::Duration;

use tidegate_buffer::Transmit;
use tidegate_codec::framing::Lines;
use tidegate_engine::{
    Backend, EndpointListener, EventLoop, Listener, ServedListener, Server, ServerHandle, StartError,
};
use tidegate_sys::{Address, DatagramOptions, ListenOptions, Side, Socket};

use crate::server::support::{Commands, PATIENCE, SocketPath, ask, bounded, uninterrupted};

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

/// A listening socket at `[::]` as a service manager opens it, and its address; `None` on a machine without IPv6.
fn opened_at_any(only_v6: bool) -> Option<(OwnedFd, SocketAddr)> {
    let socket = Socket::listen(&"[::]:0".parse().unwrap(), &ListenOptions { only_v6, ..ListenOptions::default() });
    let socket = socket.ok()?;
    let address = socket.address(Side::Local).unwrap().ip().unwrap();
    Some((socket.descriptor().unwrap().try_clone_to_owned().unwrap(), address))
}

fn of_v6(listener: Listener, only_v6: bool) -> ServedListener {
    lines(listener.options(ListenOptions { only_v6, ..ListenOptions::default() }))
}

/// The kernel does not change the versions of a bound socket, so the unit has to.
#[test]
fn a_passed_socket_of_other_ip_versions_than_its_listener_is_an_error_with_the_key_of_the_unit() {
    for (only_v6, key) in [(true, "set BindIPv6Only=ipv6-only"), (false, "set ipv6-only for it, or BindIPv6Only=both")]
    {
        let Some((socket, address)) = opened_at_any(!only_v6) else { return };
        let passed = || vec![socket.try_clone().unwrap()];
        let server = Server::new().loops(2).passed(passed()).listener(any_port());
        let error = server.listener(of_v6(Listener::at(address.into()), only_v6)).run().unwrap_err();
        let text = error.to_string();
        assert!(text.starts_with(&format!("the passed socket {address} accepts ")) && text.contains(key), "{text}");
        // A listener that takes all sockets for want of one at its address.
        let elsewhere =
            Server::new().loops(2).passed(passed()).listener(of_v6(Listener::bind("127.0.0.1:0").unwrap(), only_v6));
        match elsewhere.run() {
            Err(error) => assert!(only_v6 && error.to_string().contains(key), "{error}"),
            Ok(server) => {
                assert!(!only_v6);
                server.drain(PATIENCE);
            }
        }
        let Some((socket, address)) = opened_at_any(only_v6) else { return };
        let server = Server::new().loops(2).passed(vec![socket]).listener(of_v6(Listener::at(address.into()), only_v6));
        let server = server.run().unwrap();
        serves((Ipv6Addr::LOCALHOST, address.port()).into());
        server.drain(PATIENCE);
    }
}

/// Two units, or two lines of one: `[::]` with IPv6 alone beside `0.0.0.0`.
#[test]
fn passed_sockets_of_both_versions_at_one_port_serve_listeners_at_both_addresses() {
    let found = (0..100).find_map(|_| {
        let (socket, address) = opened_at_any(true)?;
        let v4 = TcpListener::bind((Ipv4Addr::UNSPECIFIED, address.port())).ok()?;
        Some((socket, address, v4))
    });
    let Some((socket, address, v4)) = found else { return };
    let server = Server::new().loops(2).passed(vec![socket, v4.into()]).listener(at(address));
    let server = server.listener(at(SocketAddr::from((Ipv4Addr::UNSPECIFIED, address.port())))).run().unwrap();
    serves((Ipv6Addr::LOCALHOST, address.port()).into());
    serves((Ipv4Addr::LOCALHOST, address.port()).into());
    server.drain(PATIENCE);
}

#[test]
fn a_socket_of_a_predecessor_with_other_ip_versions_than_its_listener_is_an_error() {
    let path = SocketPath::new("passed-versions");
    let Some((socket, address)) = opened_at_any(false) else { return };
    let server = |only_v6| {
        let server = Server::new().loops(1).takeover(&path.0).listener(any_port());
        server.listener(of_v6(Listener::at(address.into()), only_v6))
    };
    let old = server(false).passed(vec![socket]).run().unwrap();
    let text = refusal(server(true));
    assert!(text.starts_with(&format!("the socket of the running server at {address} accepts IPv4 too")), "{text}");
    assert!(text.ends_with("stop that server first"), "{text}");
    serves((Ipv6Addr::LOCALHOST, address.port()).into());
    old.drain(PATIENCE);
}

/// An endpoint has the versions of the listener beside it, and of its own address.
#[test]
fn datagram_sockets_accept_the_ip_versions_of_their_listener() {
    let endpoint = |listener: EndpointListener| listener.serve_channel(|_, channel| async move { drop(channel) });
    if opened_at_any(true).is_none() {
        return;
    }
    // Another process may have the port of UDP.
    let both = (0..100).find_map(|_| {
        let (socket, address) = opened_at_any(true)?;
        let beside = of_v6(Listener::at(address.into()), true);
        let beside = beside.with_endpoint(endpoint(EndpointListener::beside_listener()), |_| {});
        let server = Server::new().loops(2).passed(vec![socket]).listener(beside).run().ok()?;
        let v4 = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, address.port()));
        server.drain(PATIENCE);
        v4.ok()
    });
    assert!(both.is_some(), "the endpoint leaves its port of IPv4 to others");

    let passed = UdpSocket::bind("[::]:0").unwrap();
    let address = passed.local_addr().unwrap();
    let listener = EndpointListener::at(address.into()).only_v6(true);
    let server = Server::new().loops(1).passed(vec![passed.into()]).listener(any_port()).endpoint(endpoint(listener));
    let text = refusal(server);
    assert!(text.contains("BindIPv6Only=ipv6-only"), "{text}");
}

/// Of two endpoints with one port, that at `[::]` has IPv6 alone: at passed sockets and at its own.
#[test]
fn two_endpoints_may_have_both_unspecified_addresses_with_one_port() {
    if UdpSocket::bind("[::]:0").is_err() {
        return;
    }
    let endpoint = |listener: EndpointListener| listener.serve_channel(|_, channel| async move { drop(channel) });
    let found = (0..100).find_map(|_| {
        let six =
            Socket::bind_datagrams("[::]:0".parse().unwrap(), &DatagramOptions { only_v6: true, ..Default::default() });
        let six = six.ok()?;
        let address = six.address(Side::Local).unwrap().ip().unwrap();
        let v4 = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, address.port())).ok()?;
        Some((six.descriptor().unwrap().try_clone_to_owned().unwrap(), address, v4))
    });
    let (six, address, v4) = found.expect("both addresses are free");
    let both = |server: Server| {
        let server = server.loops(1).listener(any_port()).endpoint(endpoint(EndpointListener::at(address.into())));
        let v4 = SocketAddr::from((Ipv4Addr::UNSPECIFIED, address.port()));
        server.endpoint(endpoint(EndpointListener::at(v4.into()))).run()
    };
    both(Server::new().passed(vec![six, v4.into()])).unwrap().drain(PATIENCE);
    // Another process may take the port before they are opened anew.
    match both(Server::new()) {
        Ok(server) => server.drain(PATIENCE),
        Err(error) => assert!(UdpSocket::bind((Ipv4Addr::UNSPECIFIED, address.port())).is_err(), "{error}"),
    }
}

/// AF_VSOCK needs no virtual machine to listen.
#[test]
fn a_vsock_listener_is_handed_over_and_passed_as_others_are() {
    let any = Address::Vsock { cid: Address::VSOCK_CID_ANY, port: Address::VSOCK_PORT_ANY };
    let probe = match Socket::listen(&any, &ListenOptions::default()) {
        Ok(probe) => probe,
        Err(error) => return println!("skipped: there is no vsock here: {error}"),
    };
    let fixed = probe.address(Side::Local).unwrap();
    let path = SocketPath::new("passed-vsock");
    let server = || Server::new().loops(2).takeover(&path.0).listener(any_port());
    let with = |server: Server| server.listener(at(any.clone())).listener(at(fixed.clone()));
    let passed = probe.descriptor().unwrap().try_clone_to_owned().unwrap();
    drop(probe);
    let old = with(server()).passed(vec![passed]).run().unwrap();
    assert_eq!(addresses(&old)[2], std::slice::from_ref(&fixed), "the passed socket serves its address");
    let new = with(server()).run().unwrap();
    assert!(old.superseded().wait());
    old.drain(PATIENCE);
    assert_eq!(addresses(&new), addresses(&old));
    new.drain(PATIENCE);
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
            let length = uninterrupted(|| peer.recv(&mut received)).unwrap();
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
