//! Connections that break: told once, after what came before where that is wanted, and never lost.

use std::io::{ErrorKind, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use super::fake::ALWAYS;
use super::stage::{Stage, Told, pattern};
use crate::driver::{Completion, Operation, Token};
use crate::uring::operation::{Kind, name};
use crate::uring::receive::BUFFER_BYTES;

const FAILED: Told = Told::Failed(ErrorKind::ConnectionReset);

/// A connection that breaks when its peer leaves, since that leaves bytes unread.
fn fragile(stage: &mut Stage) -> (Token, UnixStream) {
    let (token, peer) = stage.pair();
    let mut queue = stage.queue(b"never read");
    stage.send(token, &mut queue);
    stage.run_until_idle();
    assert_eq!(stage.take(token), [Told::Sent(Ok(10))]);
    (token, peer)
}

#[test]
fn it_is_told_to_who_asks_for_nothing() {
    let mut stage = Stage::new();
    let (token, peer) = fragile(&mut stage);
    stage.leave(token, peer);
    stage.run_until_idle();
    assert_eq!(stage.take(token), [FAILED]);
}

#[test]
fn it_is_told_although_the_poll_for_it_had_ended_for_no_reason() {
    for result in [-libc::ECANCELED, -libc::EINTR, libc::POLLHUP.into()] {
        let mut stage = Stage::new();
        let (token, peer) = fragile(&mut stage);
        stage.machine.kernel.lose(name(token, Kind::HangUp), result, None);
        stage.run_until_idle();
        stage.leave(token, peer);
        stage.run_until_idle();
        assert_eq!(stage.take(token), [FAILED], "{result}");
    }
}

#[test]
fn a_poll_that_fails_is_not_tried_for_ever() {
    let mut stage = Stage::new();
    let (token, _peer) = fragile(&mut stage);
    stage.machine.kernel.lose(name(token, Kind::HangUp), -libc::EINVAL, None);
    let before = stage.machine.kernel.requests.len();
    stage.run_until_idle();
    assert_eq!(stage.machine.kernel.requests.len(), before);
}

/// Between two receives none is in flight, and the poll of the time before, which is armed still, may speak then.
#[test]
fn it_comes_after_what_came_before_although_each_receive_is_one() {
    let mut stage = Stage::new();
    let (token, peer) = fragile(&mut stage);
    for on in [true, false, true] {
        stage.receive(token, on);
        stage.run_until_idle();
    }
    // One receive brings a part of it.
    let bytes = pattern(BUFFER_BYTES - 1);
    stage.machine.kernel.malice.shorten = ALWAYS;
    stage.write(token, &peer, &bytes);
    stage.machine.wait(None).unwrap();
    assert!(matches!(stage.next(), Some((_, Completion::Received(part))) if part.len() < bytes.len()));
    stage.leave(token, peer);
    stage.tell(token, Kind::HangUp, i32::from(libc::POLLERR | libc::POLLHUP), true);
    stage.machine.turn += 1;
    assert!(stage.next().is_none(), "there is something to receive still");
    stage.run_until_idle();
    let told = stage.take(token);
    assert!(matches!(&told[..], [Told::Received(rest), FAILED] if bytes.ends_with(rest)), "{told:?}");
}

#[test]
fn it_is_told_to_who_stops_receiving_meanwhile() {
    let mut stage = Stage::new();
    let (token, peer) = fragile(&mut stage);
    stage.receive(token, true);
    stage.run_until_idle();
    stage.receive(token, false);
    stage.idle_turn();
    // The poll speaks before the receive has ended, and does not speak again.
    stage.machine.kernel.malice.nag = 0;
    stage.leave(token, peer);
    stage.run_until_idle();
    assert_eq!(stage.take(token), [FAILED]);
}

#[test]
fn it_is_told_to_who_brought_much_and_stops_receiving() {
    let mut stage = Stage::new();
    let (token, peer) = fragile(&mut stage);
    stage.receive(token, true);
    stage.run_until_idle();
    stage.write(token, &peer, &pattern(20 * BUFFER_BYTES));
    stage.run_until_idle();
    stage.take(token);
    stage.write(token, &peer, &pattern(30 * BUFFER_BYTES));
    stage.leave(token, peer);
    // One call's worth is told, and then no more is wanted.
    stage.machine.wait(None).unwrap();
    assert!(stage.next().is_some());
    stage.receive(token, false);
    stage.run_until_idle();
    assert_eq!(stage.take(token), [FAILED]);
}

/// The poll speaks of the end and of the failure at once, and not again.
#[test]
fn it_is_told_after_the_end_of_who_brought_much() {
    let mut stage = Stage::new();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut peer = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let token = stage.adopt(listener.accept().unwrap().0);
    stage.receive(token, true);
    peer.write_all(&pattern(4 * BUFFER_BYTES)).unwrap();
    stage.run_until_idle();
    stage.take(token);
    peer.shutdown(Shutdown::Write).unwrap();
    socket2::SockRef::from(&peer).set_linger(Some(Duration::ZERO)).unwrap();
    drop(peer);
    let fd = stage.fd(token);
    stage.machine.kernel.stir(fd);
    stage.run_until_idle();
    let told = stage.take(token);
    assert!(matches!(told[..], [Told::Ended, Told::Failed(_)]), "{told:?}");
}

#[test]
fn it_is_told_once_and_nothing_comes_after_it() {
    let mut stage = Stage::new();
    let (token, peer) = fragile(&mut stage);
    stage.write(token, &peer, b"unread");
    stage.leave(token, peer);
    stage.run_until_idle();
    assert_eq!(stage.take(token), [FAILED]);
    stage.receive(token, true);
    for _ in 0..3 {
        stage.tell(token, Kind::HangUp, libc::POLLERR.into(), true);
        stage.run_until_idle();
    }
    assert_eq!(stage.take(token), []);
}

#[test]
fn an_error_of_the_poll_of_who_brings_much_is_told_once() {
    let mut stage = Stage::new();
    let (token, peer) = stage.receiving();
    stage.write(token, &peer, &pattern(20 * BUFFER_BYTES));
    stage.run_until_idle();
    stage.take(token);
    stage.tell(token, Kind::Receive, -libc::ENOMEM, true);
    stage.tell(token, Kind::Receive, -libc::ENOMEM, true);
    stage.run_until_idle();
    assert_eq!(stage.take(token), [Told::Failed(ErrorKind::OutOfMemory)]);
    stage.submit(token, Operation::Close { reset: false });
    stage.run_until_idle();
    assert_eq!(stage.take(token), [Told::Closed]);
}
