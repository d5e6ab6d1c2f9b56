//! The addresses at which a server listens, and those of its peers.

use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::{UnixListener, UnixStream};

use tidegate_codec::framing::Lines;
use tidegate_engine::{Backend, Client, EventLoop, Limits, Listener, Server, StartError};
use tidegate_sys::ListenOptions;

use crate::server::support::{Commands, SocketPath, ask, bounded, connect, has_ended, port, serve, start};

#[test]
fn over_tcp_a_handler_knows_both_addresses() {
    let server = serve(1, Limits::default());
    let mut client = connect(&server);
    assert_eq!(ask(&mut client, "peer"), client.local_addr().unwrap().to_string());
    assert_eq!(ask(&mut client, "local"), port(&server).to_string());
}

#[test]
fn over_ipv6_as_well() {
    let Ok(listener) = TcpListener::bind("[::1]:0") else { return };
    drop(listener);
    let server = start(Server::bind("[::1]:0").unwrap().loops(2));
    let mut client = connect(&server);
    assert_eq!(ask(&mut client, "peer"), client.local_addr().unwrap().to_string());
}

#[test]
fn over_a_unix_path_with_several_loops() {
    let path = SocketPath::new("path");
    let server = start(Server::bind(&format!("unix:{}", path.0.display())).unwrap().loops(2));
    assert_eq!(server.address().to_string(), format!("unix:{}", path.0.display()));
    for _ in 0..10 {
        let mut client = UnixStream::connect(&path.0).unwrap();
        assert_eq!(ask(&mut client, "ebb"), "ebb");
        assert_eq!(ask(&mut client, "peer"), "unix:(unnamed)");
        client.shutdown(std::net::Shutdown::Write).unwrap();
        assert!(has_ended(&mut client));
    }
}

#[test]
fn at_an_abstract_name_with_several_loops_and_a_client() {
    let name = format!("unix:@tidegate-server-{}", std::process::id());
    let server = start(Server::bind(&name).unwrap().loops(2));
    assert_eq!(server.address().to_string(), name);
    for backend in [Backend::Epoll, Backend::Auto] {
        let mut event_loop = EventLoop::on(backend).unwrap();
        let (client, peer) = (Client::to(&name).unwrap(), server.address().clone());
        let asked = event_loop.block_on(async move {
            let mut channel = client.connect(Lines::new()).await.unwrap();
            assert_eq!(channel.peer().unwrap(), peer);
            channel.send("local".into()).unwrap();
            String::from_utf8(channel.recv().await.unwrap().unwrap().to_vec()).unwrap()
        });
        assert_eq!(asked.unwrap(), name);
    }
    drop(server);
    assert!(!std::path::Path::new(&name["unix:".len()..]).exists());
    // The name is free as soon as the listeners are closed.
    drop(start(Server::bind(&name).unwrap()));
}

#[test]
fn on_a_listener_that_another_process_opened() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    // A client that connects before the server starts is served as well.
    let mut early = bounded(TcpStream::connect(address).unwrap());
    early.write_all(b"").unwrap();
    let server = start(Server::on_tcp(listener).loops(2));
    assert_eq!(port(&server), address);
    assert_eq!(ask(&mut early, "early"), "early");
    assert_eq!(ask(&mut connect(&server), "late"), "late");

    let path = SocketPath::new("given");
    let server = start(Server::on_unix(UnixListener::bind(&path.0).unwrap()).loops(2));
    assert_eq!(ask(&mut UnixStream::connect(&path.0).unwrap(), "ebb"), "ebb");
    drop(server);
}

#[test]
fn an_address_that_cannot_be_bound_is_an_error() {
    assert!(matches!(Server::bind("somewhere"), Err(StartError::Address(_))));
    for loops in [1, 2] {
        let first = serve(loops, Limits::default());
        let second = Server::at(first.address().clone()).loops(loops);
        let error = second.start(|| (Default::default(), Commands::default())).unwrap_err();
        assert!(matches!(&error, StartError::InUse(address) if address == first.address()), "{error}");
        assert_eq!(ask(&mut connect(&first), "ebb"), "ebb", "the first is not disturbed");
    }
    let error = Server::bind("203.0.113.1:80").unwrap().start(|| (Default::default(), Commands::default()));
    assert!(matches!(error, Err(StartError::Listen(..))), "not an address of this machine");
}

#[test]
fn an_unspecified_ipv6_address_accepts_ipv4_too_and_its_peers_have_ipv4_addresses() {
    let Ok(_has_ipv6) = TcpListener::bind("[::1]:0") else { return };
    for (backend, loops) in [(Backend::Epoll, 1), (Backend::Auto, 1), (Backend::Auto, 2)] {
        let server = start(Server::bind("[::]:0").unwrap().backend(backend).loops(loops));
        for host in ["127.0.0.1", "::1"] {
            let mut client = bounded(TcpStream::connect((host, port(&server).port())).unwrap());
            assert_eq!(ask(&mut client, "peer"), client.local_addr().unwrap().to_string());
            assert_eq!(ask(&mut client, "local"), client.peer_addr().unwrap().to_string());
        }
    }
}

#[test]
fn a_listener_of_ipv6_alone_leaves_its_port_of_ipv4_to_others() {
    let Ok(_has_ipv6) = TcpListener::bind("[::1]:0") else { return };
    // Another process may have the port of IPv4.
    let both = (0..100).find_map(|_| {
        let only = ListenOptions { only_v6: true, ..ListenOptions::default() };
        let server = start(Server::bind("[::]:0").unwrap().options(only));
        let other = TcpListener::bind(("0.0.0.0", port(&server).port())).ok()?;
        Some((server, other))
    });
    let (server, other) = both.expect("the port of IPv4 is free");
    let mut client = bounded(TcpStream::connect(("::1", port(&server).port())).unwrap());
    assert_eq!(ask(&mut client, "peer"), client.local_addr().unwrap().to_string());
    let client = TcpStream::connect(("127.0.0.1", port(&server).port())).unwrap();
    assert_eq!(other.accept().unwrap().1, client.local_addr().unwrap());
}

#[test]
fn one_listener_may_have_both_unspecified_addresses_with_one_port() {
    let Ok(_has_ipv6) = TcpListener::bind("[::1]:0") else { return };
    for number in 0..2 {
        // Another process may take the port meanwhile.
        let server = (0..100).find_map(|_| {
            let port = TcpListener::bind("[::]:0").unwrap().local_addr().unwrap().port();
            let mut addresses = [format!("[::]:{port}"), format!("0.0.0.0:{port}")];
            addresses.rotate_left(number);
            let listener = addresses.iter().map(|address| address.parse().unwrap()).collect::<Listener>();
            Server::on(listener).loops(2).start(|| (Lines::new(), Commands::default())).ok()
        });
        let server = server.expect("both addresses are free");
        for host in ["127.0.0.1", "::1"] {
            let mut client = bounded(TcpStream::connect((host, port(&server).port())).unwrap());
            assert_eq!(ask(&mut client, "peer"), client.local_addr().unwrap().to_string());
        }
    }
}
