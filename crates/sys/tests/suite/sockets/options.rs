//! Socket options, read back from the kernel.

use std::io::ErrorKind;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixListener;
use std::time::Duration;

use socket2::{Domain, SockAddr, SockRef, Type};
use tidegate_sys::{Address, ListenOptions, Side, Socket, SocketOptions};

use crate::directory::Directory;

fn any_port() -> Address {
    "127.0.0.1:0".parse().unwrap()
}

fn descriptor(socket: Socket) -> OwnedFd {
    match socket {
        Socket::Descriptor(descriptor) => descriptor,
        Socket::Simulated(_) => unreachable!(),
    }
}

/// A stream that was accepted from a listener with these options.
fn accepted(listener: Socket) -> (TcpStream, TcpStream) {
    let listener = TcpListener::from(descriptor(listener));
    listener.set_nonblocking(false).unwrap();
    let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    (listener.accept().unwrap().0, client)
}

fn listening(stream: SocketOptions) -> ListenOptions {
    ListenOptions { stream, ..ListenOptions::default() }
}

#[test]
fn nagle_is_off_unless_delay_is_set() {
    for delay in [false, true] {
        let options = listening(SocketOptions { delay, ..SocketOptions::default() });
        let (stream, _client) = accepted(Socket::listen(&any_port(), &options).unwrap());
        assert_eq!(stream.nodelay().unwrap(), !delay);
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (stream, _client) = accepted(Socket::from_listener(listener, &options).unwrap());
        assert_eq!(stream.nodelay().unwrap(), !delay, "a listener that was opened elsewhere");
    }
}

#[test]
fn keep_alive_and_linger_are_off_by_default() {
    let (stream, _client) = accepted(Socket::listen(&any_port(), &ListenOptions::default()).unwrap());
    let stream = SockRef::from(&stream);
    assert!(!stream.keepalive().unwrap());
    assert_eq!(stream.linger().unwrap(), None);
}

#[test]
fn an_accepted_stream_has_the_options_of_its_listener() {
    let options = SocketOptions {
        delay: true,
        keep_alive: Some(Duration::from_secs(77)),
        send_buffer_bytes: Some(60_000),
        receive_buffer_bytes: Some(50_000),
        linger: Some(Duration::from_secs(3)),
        unsent_bytes_max: Some(70_000),
    };
    let (stream, _client) = accepted(Socket::listen(&any_port(), &listening(options)).unwrap());
    let stream = SockRef::from(&stream);
    assert!(!stream.tcp_nodelay().unwrap());
    assert!(stream.keepalive().unwrap());
    assert_eq!(stream.tcp_keepalive_time().unwrap(), Duration::from_secs(77));
    // Linux doubles the requested sizes.
    assert_eq!(stream.send_buffer_size().unwrap(), 120_000);
    assert_eq!(stream.recv_buffer_size().unwrap(), 100_000);
    assert_eq!(stream.tcp_notsent_lowat().unwrap(), 70_000);
    assert_eq!(stream.linger().unwrap(), Some(Duration::from_secs(3)));
    // Without this, closing the stream would wait, as the listener's option demands.
    stream.set_linger(None).unwrap();
}

#[test]
fn times_round_up_to_whole_seconds() {
    let options = SocketOptions {
        keep_alive: Some(Duration::from_millis(300)),
        linger: Some(Duration::from_millis(1001)),
        ..SocketOptions::default()
    };
    let (stream, _client) = accepted(Socket::listen(&any_port(), &listening(options)).unwrap());
    let stream = SockRef::from(&stream);
    assert_eq!(stream.tcp_keepalive_time().unwrap(), Duration::from_secs(1));
    assert_eq!(stream.linger().unwrap(), Some(Duration::from_secs(2)));
    stream.set_linger(None).unwrap();
}

#[test]
fn listeners_share_a_port_only_if_all_set_reuse_port() {
    let shared = ListenOptions { reuse_port: true, ..ListenOptions::default() };
    let first = Socket::listen(&any_port(), &shared).unwrap();
    let address = first.address(Side::Local).unwrap();
    let second = Socket::listen(&address, &shared).unwrap();
    assert_eq!(second.address(Side::Local).unwrap(), address);
    let error = Socket::listen(&address, &ListenOptions::default()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::AddrInUse);
}

#[test]
fn listeners_that_share_a_port_share_its_connections() {
    let shared = ListenOptions { reuse_port: true, ..ListenOptions::default() };
    let first = Socket::listen(&any_port(), &shared).unwrap();
    let address = first.address(Side::Local).unwrap();
    let second = Socket::listen(&address, &shared).unwrap();
    let clients: Vec<_> = (0..64).map(|_| TcpStream::connect(address.ip().unwrap()).unwrap()).collect();
    let counts =
        [first, second].map(|socket| TcpListener::from(descriptor(socket)).incoming().map_while(Result::ok).count());
    assert_eq!(counts.iter().sum::<usize>(), clients.len());
    assert!(counts.iter().all(|&count| count > 0), "{counts:?}");
}

#[test]
fn whether_an_address_is_free_is_found_without_listening() {
    let options = ListenOptions::default();
    let address = Socket::find_address(&any_port(), &options).unwrap();
    let target = address.ip().expect("an address of IP");
    assert_ne!(target.port(), 0);
    let looking = std::thread::spawn(move || {
        (0..2_000).for_each(|_| assert_eq!(Socket::find_address(&address, &options).unwrap(), address));
        address
    });
    while !looking.is_finished() {
        let client = socket2::Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        // A client with the same address might be given the same port, and connect to itself.
        client.bind(&SocketAddr::from(([127, 0, 0, 2], 0)).into()).unwrap();
        let refused = client.connect(&target.into()).expect_err("nothing listens");
        assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
    }
    let address = looking.join().unwrap();
    // It is not free while something listens, even if that shares it.
    let shared = ListenOptions { reuse_port: true, ..ListenOptions::default() };
    let _listener = Socket::listen(&address, &shared).unwrap();
    let error = Socket::find_address(&address, &ListenOptions::default()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::AddrInUse);
    assert_eq!(Socket::find_address(&address, &shared).unwrap(), address);
}

#[test]
fn a_port_can_be_used_again_at_once() {
    let first = Socket::listen(&any_port(), &ListenOptions::default()).unwrap();
    let address = first.address(Side::Local).unwrap();
    let (stream, client) = accepted(first);
    // The port of the side that closes first stays in TIME_WAIT.
    drop(stream);
    drop(client);
    Socket::listen(&address, &ListenOptions::default()).unwrap();
}

#[test]
fn ipv6_alone_leaves_ipv4_to_others() {
    let options = ListenOptions { only_v6: true, ..ListenOptions::default() };
    let first = Socket::listen(&"[::]:0".parse().unwrap(), &options).unwrap();
    let port = first.address(Side::Local).unwrap().ip().unwrap().port();
    assert!(TcpStream::connect(("127.0.0.1", port)).is_err());
    assert!(TcpStream::connect(("::1", port)).is_ok());
}

#[test]
fn the_unspecified_address_of_ipv6_has_ipv4_too() {
    let first = Socket::listen(&"[::]:0".parse().unwrap(), &ListenOptions::default()).unwrap();
    let port = first.address(Side::Local).unwrap().ip().unwrap().port();
    let clients = ["127.0.0.1", "::1"].map(|host| TcpStream::connect((host, port)).unwrap());
    let listener = TcpListener::from(descriptor(first));
    for client in clients {
        let accepted = Socket::from_stream(listener.accept().unwrap().0).unwrap();
        assert_eq!(accepted.address(Side::Peer).unwrap(), client.local_addr().unwrap().into());
        assert_eq!(accepted.address(Side::Local).unwrap(), client.peer_addr().unwrap().into());
    }
}

#[test]
fn the_backlog_has_the_requested_length() {
    let directory = Directory::new();
    let options = ListenOptions { backlog: 2, ..ListenOptions::default() };
    let _listener = Socket::listen(&directory.socket("listener"), &options).unwrap();
    let connect = || {
        let client = socket2::Socket::new(Domain::UNIX, Type::STREAM.nonblocking(), None).unwrap();
        client.connect(&SockAddr::unix(directory.path("listener")).unwrap()).map(|()| client)
    };
    // Linux accepts one more than requested.
    let clients: Vec<_> = std::iter::from_fn(|| connect().ok()).take(10).collect();
    assert_eq!(clients.len(), 3);
    assert_eq!(connect().unwrap_err().kind(), ErrorKind::WouldBlock);
}

#[test]
fn tcp_options_are_ignored_on_a_unix_socket() {
    let directory = Directory::new();
    let options = SocketOptions {
        keep_alive: Some(Duration::from_secs(9)),
        send_buffer_bytes: Some(9000),
        ..SocketOptions::default()
    };
    let socket = descriptor(Socket::listen(&directory.socket("a"), &listening(options.clone())).unwrap());
    assert_eq!(SockRef::from(&socket).send_buffer_size().unwrap(), 18_000);
    let other = UnixListener::bind(directory.path("b")).unwrap();
    Socket::from_listener(other, &listening(options)).unwrap();
}

#[test]
fn sockets_taken_over_are_non_blocking() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let stream = descriptor(Socket::from_stream(client).unwrap());
    assert!(SockRef::from(&stream).nonblocking().unwrap());
    let listener = descriptor(Socket::from_listener(listener, &ListenOptions::default()).unwrap());
    assert!(SockRef::from(&listener).nonblocking().unwrap());
    let listener = descriptor(Socket::listen(&any_port(), &ListenOptions::default()).unwrap());
    assert!(SockRef::from(&listener).nonblocking().unwrap());
}

#[test]
fn a_simulated_socket_has_no_descriptor() {
    let socket = Socket::Simulated(7);
    assert_eq!(socket.address(Side::Local).unwrap_err().kind(), ErrorKind::Unsupported);
    assert_eq!(socket.try_clone().unwrap_err().kind(), ErrorKind::Unsupported);
}
