//! Closing a socket, and dropping the driver.

use std::io::{ErrorKind, Read};
use std::net::{TcpListener, TcpStream};

use super::fake::ALWAYS;
use super::stage::{Report, Stage, is_closed, read};
use crate::driver::Operation;
use crate::uring::kernel::Request;
use crate::uring::operation::{Kind, name};

#[test]
fn a_socket_is_closed_when_the_last_of_its_operations_has_ended() {
    let mut stage = Stage::new();
    let (token, peer) = stage.receiving();
    let mut queue = stage.queue(b"last words");
    stage.send(token, &mut queue);
    stage.close(token);
    stage.idle_turn();
    stage.idle_turn();
    assert_eq!(stage.take(token), []);
    assert!(!is_closed(&peer), "the kernel still has an operation of it");
    stage.run_until_idle();
    assert_eq!(stage.take(token), [Report::Closed]);
    assert!(is_closed(&peer));
}

#[test]
fn a_socket_without_operations_is_closed_at_once() {
    let mut stage = Stage::new();
    let (token, peer) = stage.pair();
    stage.close(token);
    assert_eq!(stage.take(token), [Report::Closed]);
    assert!(is_closed(&peer));
}

#[test]
fn a_socket_stays_open_until_its_cancelled_operations_end() {
    let mut stage = Stage::new();
    let (token, peer) = stage.receiving();
    stage.driver.kernel.stuck = true;
    stage.close(token);
    stage.run_until_idle();
    let cancels = stage.driver.kernel.requests.iter().filter(|request| matches!(request, Request::Cancel { .. }));
    assert!(cancels.count() > 0);
    assert_eq!(stage.take(token), []);
    assert!(!is_closed(&peer));
    stage.driver.kernel.stuck = false;
    stage.driver.kernel.lose(name(token, Kind::Receive), -libc::ECANCELED, None);
    stage.run_until_idle();
    assert_eq!(stage.take(token), [Report::Closed]);
}

#[test]
fn a_cancellation_that_comes_too_late_changes_nothing() {
    let mut stage = Stage::new();
    stage.driver.kernel.faults.late = ALWAYS;
    for _ in 0..50 {
        let (token, peer) = stage.receiving();
        stage.write(token, &peer, b"too late");
        let mut queue = stage.queue(b"sent after all");
        stage.send(token, &mut queue);
        stage.idle_turn();
        stage.close(token);
        stage.run_until_idle();
        assert_eq!(stage.take(token).last(), Some(&Report::Closed));
        assert!([&b""[..], b"sent after all"].contains(&&*read_to_end_or_reset(&peer)));
    }
}

/// The bytes before the end of the stream, or before the reset that unread bytes cause.
fn read_to_end_or_reset(mut peer: &std::os::unix::net::UnixStream) -> Vec<u8> {
    let mut bytes = Vec::new();
    let _ = peer.read_to_end(&mut bytes);
    bytes
}

#[test]
fn a_repeated_terminal_event_is_ignored() {
    let mut stage = Stage::new();
    stage.driver.kernel.faults.repeat = ALWAYS;
    for _ in 0..50 {
        let (token, peer) = stage.receiving();
        stage.receive(token, false);
        stage.run_until_idle();
        stage.receive(token, true);
        stage.write(token, &peer, b"heard");
        stage.run_until_idle();
        assert_eq!(stage.take(token), [Report::Received(b"heard".to_vec())]);
        stage.close(token);
        stage.run_until_idle();
        assert_eq!(stage.take(token), [Report::Closed]);
    }
    let Stage { driver, pool, .. } = stage;
    drop(driver);
    assert_eq!(pool.ledger().used(), 0, "operations were miscounted, and memory was leaked");
}

#[test]
fn closed_is_the_only_completion_after_close() {
    let mut stage = Stage::new();
    let (token, peer) = stage.receiving();
    stage.write(token, &peer, b"unheard");
    stage.driver.wait(None).unwrap();
    stage.close(token);
    stage.run_until_idle();
    assert_eq!(stage.take(token), [Report::Closed]);
    stage.close(token);
    assert_eq!(stage.take(token), [Report::Closed], "of a closed socket");
}

#[test]
fn due_completions_are_dropped_when_the_socket_is_closed() {
    let mut stage = Stage::new();
    let (token, _peer) = stage.receiving();
    stage.driver.kernel.faults.refuse = ALWAYS;
    let mut queue = stage.queue(b"refused");
    stage.send(token, &mut queue);
    stage.driver.kernel.faults.refuse = 0;
    // A completion is due now: the loop can send again.
    stage.driver.wait(None).unwrap();
    stage.close(token);
    stage.run_until_idle();
    assert_eq!(stage.take(token), [Report::Closed]);
}

#[test]
fn memory_that_the_kernel_does_not_release_is_leaked() {
    let mut stage = Stage::new();
    let (token, _peer) = stage.receiving();
    let mut queue = stage.queue(b"read by a kernel");
    let (sending, _other) = stage.pair();
    stage.send(sending, &mut queue);
    stage.idle_turn();
    stage.driver.kernel.stuck = true;
    let Stage { driver, pool, .. } = stage;
    let buffers = usize::from(driver.buffers.count());
    drop((queue, driver));
    let left = pool.ledger().used();
    // The buffers of the ring, and the bytes of the send.
    let copy = pool.copy(b"read by a kernel");
    assert_eq!(left, buffers * 4096 + (pool.ledger().used() - left), "slot {}, {copy:?}", token.slot);
}

#[test]
fn dropping_a_driver_waits_for_its_operations() {
    for late in 0..20 {
        let mut stage = Stage::new();
        let pairs: Vec<_> = (0..20).map(|_| stage.receiving()).collect();
        let mut queue = stage.queue(b"going");
        for (token, peer) in &pairs {
            stage.write(*token, peer, b"coming");
            stage.send(*token, &mut queue);
        }
        let faults = &mut stage.driver.kernel.faults;
        (faults.delay, faults.late, faults.repeat, faults.refuse) = (10 * late, late, late, 3 * late);
        let Stage { driver, pool, .. } = stage;
        drop((queue, driver));
        assert_eq!(pool.ledger().used(), 0);
        for (_, peer) in &pairs {
            assert!([&b""[..], b"going"].contains(&&*read_to_end_or_reset(peer)));
            assert!(is_closed(peer));
        }
    }
}

#[test]
fn a_requested_reset_happens_even_if_the_driver_is_dropped_first() {
    let mut stage = Stage::new();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut far = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let token = stage.adopt(listener.accept().unwrap().0);
    stage.receive(token, true);
    stage.run_until_idle();
    stage.submit(token, Operation::Close { reset: true });
    drop(stage);
    assert_eq!(far.read(&mut [0]).unwrap_err().kind(), ErrorKind::ConnectionReset);
}

#[test]
fn the_peer_reads_sent_bytes_after_an_orderly_close() {
    let mut stage = Stage::new();
    let (token, peer) = stage.receiving();
    let mut queue = stage.queue(b"goodbye");
    stage.send(token, &mut queue);
    stage.run_until_idle();
    stage.close(token);
    stage.run_until_idle();
    assert_eq!(read(&peer), b"goodbye");
}
