//! Connecting.

use std::io::ErrorKind;
use std::net::{SocketAddr, TcpListener};

use super::stage::{Report, Stage};
use crate::driver::{Operation, Token};
use crate::options::SocketOptions;
use crate::uring::operation::{Kind, name};
use tidegate_buffer::Address;

/// Begins to connect, and submits the poll for the result to the kernel.
fn connect(stage: &mut Stage, address: &Address) -> Token {
    let token = stage.token();
    let options = SocketOptions::default();
    stage.submit(token, Operation::Connect { address, local: None, options: &options });
    stage.idle_turn();
    token
}

#[test]
fn connect_succeeds_after_its_poll_was_interrupted() {
    for result in [libc::ECANCELED, libc::EINTR, libc::EAGAIN] {
        let mut stage = Stage::new();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let token = connect(&mut stage, &Address::Ip(listener.local_addr().unwrap()));
        stage.driver.kernel.lose(name(token, Kind::Writable), -result, None);
        stage.run_until_idle();
        assert_eq!(stage.take(token), [Report::Connected(Ok(()))]);
    }
}

#[test]
fn a_poll_that_ends_before_the_peer_has_answered_decides_nothing() {
    let mut stage = Stage::new();
    // The kernel answers no connect whose listener has a full backlog.
    let listener = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    listener.bind(&SocketAddr::from(([127, 0, 0, 1], 0)).into()).unwrap();
    listener.listen(0).unwrap();
    let address = listener.local_addr().unwrap();
    let waiting = || {
        let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM.nonblocking(), None).unwrap();
        let _ = socket.connect(&address);
        socket
    };
    let _waiting: Vec<_> = (0..8).map(|_| waiting()).collect();
    let token = connect(&mut stage, &Address::Ip(address.as_socket().unwrap()));
    stage.driver.kernel.lose(name(token, Kind::Writable), i32::from(libc::POLLOUT), None);
    stage.run_until_idle();
    assert_eq!(stage.take(token), []);
}

#[test]
fn a_send_during_connect_can_be_retried_when_connected() {
    let mut stage = Stage::new();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let token = connect(&mut stage, &Address::Ip(listener.local_addr().unwrap()));
    let mut queue = stage.queue(b"hello");
    stage.send(token, &mut queue);
    stage.run_until_idle();
    assert_eq!(stage.take(token), [Report::Connected(Ok(())), Report::Sent(Ok(0))]);
}

#[test]
fn a_refused_connection_is_reported_once() {
    let mut stage = Stage::new();
    // A socket that does not listen has the port, so no other process gets it.
    let unused = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    unused.bind(&SocketAddr::from(([127, 0, 0, 1], 0)).into()).unwrap();
    let address = unused.local_addr().unwrap().as_socket().unwrap();
    let token = connect(&mut stage, &Address::Ip(address));
    stage.run_until_idle();
    assert_eq!(stage.take(token), [Report::Connected(Err(ErrorKind::ConnectionRefused))]);
}

#[test]
fn a_connecting_socket_can_be_closed() {
    let mut stage = Stage::new();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let token = connect(&mut stage, &Address::Ip(listener.local_addr().unwrap()));
    stage.close(token);
    assert_eq!(stage.take(token), []);
    stage.run_until_idle();
    assert_eq!(stage.take(token), [Report::Closed]);
}
