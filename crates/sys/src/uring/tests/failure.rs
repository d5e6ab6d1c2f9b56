//! Connections that break: the failure is reported once, after the bytes that arrived before it if those are wanted,
//! and is never lost.

use std::io::{ErrorKind, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use super::fake::ALWAYS;
use super::look;
use super::stage::{Report, Stage, pattern};
use crate::driver::{Completion, Operation, Token};
use crate::uring::operation::{Kind, name};
use crate::uring::receive::BUFFER_BYTES;

/// A receiving TCP stream and its peer.
fn receiving_tcp(stage: &mut Stage) -> (Token, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let peer = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let token = stage.adopt(listener.accept().unwrap().0);
    stage.receive(token, true);
    stage.run_until_idle();
    (token, peer)
}

/// Resets the connection, and waits until the kernel has noticed that.
fn reset(stage: &mut Stage, token: Token, peer: TcpStream) {
    socket2::SockRef::from(&peer).set_linger(Some(Duration::ZERO)).unwrap();
    drop(peer);
    let fd = stage.fd(token);
    while look(fd, 0) & libc::POLLHUP == 0 {
        std::thread::yield_now();
    }
    stage.driver.kernel.notify(fd);
}

const SEND_FAILED: Report = Report::Sent(Err(ErrorKind::ConnectionReset));

const FAILED: Report = Report::Failed(ErrorKind::ConnectionReset);

/// A connection that breaks when its peer closes, since the peer has unread bytes.
fn fragile(stage: &mut Stage) -> (Token, UnixStream) {
    let (token, peer) = stage.pair();
    let mut queue = stage.queue(b"never read");
    stage.send(token, &mut queue);
    stage.run_until_idle();
    assert_eq!(stage.take(token), [Report::Sent(Ok(10))]);
    (token, peer)
}

#[test]
fn a_failure_is_reported_to_a_socket_without_operations() {
    let mut stage = Stage::new();
    let (token, peer) = fragile(&mut stage);
    stage.close_peer(token, peer);
    stage.run_until_idle();
    assert_eq!(stage.take(token), [FAILED]);
}

#[test]
fn a_failure_is_reported_after_the_kernel_ended_the_poll_for_it() {
    for result in [-libc::ECANCELED, -libc::EINTR, libc::POLLHUP.into()] {
        let mut stage = Stage::new();
        let (token, peer) = fragile(&mut stage);
        stage.driver.kernel.lose(name(token, Kind::HangUp), result, None);
        stage.run_until_idle();
        stage.close_peer(token, peer);
        stage.run_until_idle();
        assert_eq!(stage.take(token), [FAILED], "{result}");
    }
}

#[test]
fn a_poll_that_fails_is_not_armed_again() {
    let mut stage = Stage::new();
    let (token, _peer) = fragile(&mut stage);
    stage.driver.kernel.lose(name(token, Kind::HangUp), -libc::EINVAL, None);
    let before = stage.driver.kernel.requests.len();
    stage.run_until_idle();
    assert_eq!(stage.driver.kernel.requests.len(), before);
}

/// Between two single-shot receives none is in flight, and the poll from before, which is still armed, may report then.
#[test]
fn a_failure_follows_earlier_bytes_with_single_shot_receives() {
    let mut stage = Stage::new();
    let (token, peer) = fragile(&mut stage);
    for on in [true, false, true] {
        stage.receive(token, on);
        stage.run_until_idle();
    }
    // One receive brings a part of the bytes.
    let bytes = pattern(BUFFER_BYTES - 1);
    stage.driver.kernel.faults.shorten = ALWAYS;
    stage.write(token, &peer, &bytes);
    stage.driver.wait(None).unwrap();
    assert!(matches!(stage.next(), Some((_, Completion::Received(part))) if part.len() < bytes.len()));
    stage.close_peer(token, peer);
    stage.inject(token, Kind::HangUp, i32::from(libc::POLLERR | libc::POLLHUP), true);
    stage.driver.events_left += 1;
    assert!(stage.next().is_none(), "there are bytes left to receive");
    stage.run_until_idle();
    let reports = stage.take(token);
    assert!(matches!(&reports[..], [Report::Received(rest), FAILED] if bytes.ends_with(rest)), "{reports:?}");
}

#[test]
fn a_failure_is_reported_to_a_socket_that_stops_receiving() {
    let mut stage = Stage::new();
    let (token, peer) = fragile(&mut stage);
    stage.receive(token, true);
    stage.run_until_idle();
    stage.receive(token, false);
    stage.idle_turn();
    // The poll reports before the receive has ended, and does not report again.
    stage.driver.kernel.faults.renotify = 0;
    stage.close_peer(token, peer);
    stage.run_until_idle();
    assert_eq!(stage.take(token), [FAILED]);
}

#[test]
fn a_failure_is_reported_to_a_heavy_socket_that_stops_receiving() {
    let mut stage = Stage::new();
    let (token, peer) = fragile(&mut stage);
    stage.receive(token, true);
    stage.run_until_idle();
    stage.write(token, &peer, &pattern(20 * BUFFER_BYTES));
    stage.run_until_idle();
    stage.take(token);
    stage.write(token, &peer, &pattern(30 * BUFFER_BYTES));
    stage.close_peer(token, peer);
    // The bytes of one call are reported, and then the socket stops receiving.
    stage.driver.wait(None).unwrap();
    assert!(stage.next().is_some());
    stage.receive(token, false);
    stage.run_until_idle();
    assert_eq!(stage.take(token), [FAILED]);
}

/// The poll reports the end and the failure at once, and not again.
#[test]
fn a_failure_of_a_heavy_socket_is_reported_after_the_end() {
    let mut stage = Stage::new();
    let (token, mut peer) = receiving_tcp(&mut stage);
    peer.write_all(&pattern(4 * BUFFER_BYTES)).unwrap();
    stage.run_until_idle();
    stage.take(token);
    peer.shutdown(Shutdown::Write).unwrap();
    reset(&mut stage, token, peer);
    stage.run_until_idle();
    let reports = stage.take(token);
    assert!(matches!(reports[..], [Report::Ended, Report::Failed(_)]), "{reports:?}");
}

/// The kernel returns the error once. A receive after a send that took it finds the end of the stream.
#[test]
fn a_failure_that_a_submitted_send_took_is_not_reported_as_an_end() {
    let mut stage = Stage::new();
    let (token, mut peer) = receiving_tcp(&mut stage);
    let mut queue = stage.queue(b"too late");
    stage.send(token, &mut queue);
    stage.idle_turn();
    peer.write_all(b"last bytes").unwrap();
    reset(&mut stage, token, peer);
    let descriptor = &stage.driver.sockets.get(token).unwrap().descriptor;
    let error = rustix::net::sockopt::socket_error(descriptor).unwrap().unwrap_err();
    stage.driver.kernel.lose(name(token, Kind::Send), -error.raw_os_error(), None);
    stage.driver.kernel.deliver(true);
    stage.driver.events_left += 1;
    stage.take_in();
    assert_eq!(stage.take(token), [SEND_FAILED]);
    stage.run_until_idle();
    assert_eq!(stage.take(token), [Report::Received(b"last bytes".to_vec()), FAILED]);
    stage.inject(token, Kind::HangUp, libc::POLLERR.into(), true);
    stage.run_until_idle();
    assert_eq!(stage.take(token), []);
}

#[test]
fn a_failure_that_a_call_took_is_not_reported_as_an_end() {
    for length in [1, 4 * BUFFER_BYTES] {
        let mut stage = Stage::new();
        let (token, mut peer) = receiving_tcp(&mut stage);
        peer.write_all(&pattern(length)).unwrap();
        let fd = stage.fd(token);
        stage.driver.kernel.notify(fd);
        stage.run_until_idle();
        assert_eq!(stage.take(token), [Report::Received(pattern(length))]);
        reset(&mut stage, token, peer);
        stage.driver.kernel.serves_one = true;
        let mut queue = stage.queue(b"too late");
        stage.send(token, &mut queue);
        assert_eq!(stage.take(token), [SEND_FAILED], "after {length} bytes");
        stage.run_until_idle();
        assert_eq!(stage.take(token), [FAILED], "after {length} bytes");
    }
}

/// The peer has ended its side before the connection broke.
#[test]
fn an_end_before_a_failure_that_a_send_took_stays_an_end() {
    let mut stage = Stage::new();
    let (token, peer) = receiving_tcp(&mut stage);
    peer.shutdown(Shutdown::Write).unwrap();
    reset(&mut stage, token, peer);
    stage.driver.kernel.serves_one = true;
    let mut queue = stage.queue(b"too late");
    stage.send(token, &mut queue);
    assert_eq!(stage.take(token), [Report::Sent(Err(ErrorKind::BrokenPipe))]);
    stage.run_until_idle();
    assert_eq!(stage.take(token).first(), Some(&Report::Ended));
}

#[test]
fn a_failure_is_reported_once_and_is_the_last_report() {
    let mut stage = Stage::new();
    let (token, peer) = fragile(&mut stage);
    stage.write(token, &peer, b"unread");
    stage.close_peer(token, peer);
    stage.run_until_idle();
    assert_eq!(stage.take(token), [FAILED]);
    stage.receive(token, true);
    for _ in 0..3 {
        stage.inject(token, Kind::HangUp, libc::POLLERR.into(), true);
        stage.run_until_idle();
    }
    assert_eq!(stage.take(token), []);
}

#[test]
fn an_error_of_the_poll_of_a_heavy_socket_is_reported_once() {
    let mut stage = Stage::new();
    let (token, peer) = stage.receiving();
    stage.write(token, &peer, &pattern(20 * BUFFER_BYTES));
    stage.run_until_idle();
    stage.take(token);
    stage.inject(token, Kind::Receive, -libc::ENOMEM, true);
    stage.inject(token, Kind::Receive, -libc::ENOMEM, true);
    stage.run_until_idle();
    assert_eq!(stage.take(token), [Report::Failed(ErrorKind::OutOfMemory)]);
    stage.submit(token, Operation::Close { reset: false });
    stage.run_until_idle();
    assert_eq!(stage.take(token), [Report::Closed]);
}
