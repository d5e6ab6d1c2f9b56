//! Receiving, and the provided buffers.

use std::os::unix::net::UnixStream;

use super::fake::{ALWAYS, Faults};
use super::stage::{Report, Stage, pattern};
use crate::driver::{Operation, Token};
use crate::uring::kernel::{Event, RecvMode, Request};
use crate::uring::operation::{Kind, name};
use crate::uring::receive::BUFFER_BYTES;

/// The number of submitted requests that match.
fn count(stage: &Stage, of: impl Fn(&Request) -> bool) -> usize {
    stage.driver.kernel.requests.iter().filter(|request| of(request)).count()
}

fn is_cancel(request: &Request) -> bool {
    matches!(request, Request::Cancel { .. })
}

fn received(text: &[u8]) -> [Report; 1] {
    [Report::Received(text.to_vec())]
}

/// Asserts that every buffer is back in the ring.
fn assert_none_missing(stage: &mut Stage) {
    stage.run_until_idle();
    stage.run_until_idle();
    assert_eq!(stage.driver.kernel.ring(), usize::from(stage.driver.buffers.count()));
}

#[test]
fn receiving_continues_after_the_kernel_ended_the_request() {
    for result in [libc::ECANCELED, libc::EINTR, libc::EAGAIN, libc::ENOBUFS] {
        let mut stage = Stage::new();
        let (token, peer) = stage.receiving();
        stage.driver.kernel.lose(name(token, Kind::Receive), -result, None);
        stage.write(token, &peer, b"ebb");
        stage.run_until_idle();
        assert_eq!(stage.take(token), received(b"ebb"), "{result}");
    }
}

#[test]
fn sockets_without_a_buffer_wait_and_none_starves() {
    let mut stage = Stage::new();
    let pairs: Vec<_> = (0..100).map(|_| stage.receiving()).collect();
    for round in 0_u8..3 {
        for (token, peer) in &pairs {
            stage.write(*token, peer, &[round; 100]);
        }
        let mut turns = 0;
        while pairs.iter().any(|(token, _)| stage.reports(*token).is_empty()) {
            stage.turn();
            turns += 1;
            assert!(turns <= 30, "a socket starves");
        }
        stage.run_until_idle();
        for (token, _) in &pairs {
            assert_eq!(stage.take(*token), received(&[round; 100]));
        }
    }
    assert_none_missing(&mut stage);
}

#[test]
fn a_hundred_busy_sockets_share_the_buffers() {
    let mut stage = Stage::new();
    let pairs: Vec<_> = (0..100).map(|_| stage.receiving()).collect();
    for _ in 0..10 {
        for (token, peer) in &pairs {
            stage.write(*token, peer, b"flood");
        }
        stage.run_until_idle();
    }
    for (token, _) in &pairs {
        assert_eq!(stage.take(*token), received(&b"flood".repeat(10)));
    }
    assert_none_missing(&mut stage);
}

#[test]
fn a_spurious_enobufs_is_retried() {
    let mut stage = Stage::new();
    let (token, peer) = stage.receiving();
    stage.driver.kernel.faults = Faults { starve: 30, ..Faults::default() };
    for _ in 0..20 {
        stage.write(token, &peer, b"slack");
        stage.run_until_idle();
    }
    let reports = stage.take(token);
    assert_eq!(reports, received(&b"slack".repeat(20)));
}

#[test]
fn kept_views_take_no_buffers_from_the_ring() {
    let mut stage = Stage::new();
    stage.kept = Some(Vec::new());
    let (token, peer) = stage.receiving();
    for round in 0_u8..100 {
        stage.write(token, &peer, &[round; 50]);
        stage.run_until_idle();
    }
    assert_none_missing(&mut stage);
    let kept = stage.kept.take().unwrap();
    assert!(kept.iter().enumerate().all(|(round, slice)| **slice == [round as u8; 50]), "it was overwritten");
    assert_eq!(kept.len(), 100);
}

#[test]
fn the_buffer_of_a_cancelled_receive_returns_to_the_ring() {
    for result in [-libc::ECANCELED, -libc::ENOBUFS, -libc::ECONNRESET, 0] {
        let mut stage = Stage::new();
        let (token, _peer) = stage.receiving();
        let buffer = Some(stage.driver.kernel.take_buffer());
        stage.driver.kernel.lose(name(token, Kind::Receive), result, buffer);
        assert_none_missing(&mut stage);
    }
}

#[test]
fn a_buffer_that_two_events_name_is_provided_once() {
    let mut stage = Stage::new();
    let (token, _peer) = stage.receiving();
    let event = |buffer| Event {
        name: name(token, Kind::Receive),
        result: -libc::ECANCELED,
        more: false,
        buffer: Some(buffer),
        nonempty: false,
    };
    stage.receive(token, false);
    stage.driver.wait(None).unwrap();
    let buffer = stage.driver.kernel.take_buffer();
    stage.driver.kernel.inject(event(buffer));
    stage.driver.kernel.inject(event(buffer));
    stage.driver.kernel.inject(event(u16::MAX));
    stage.take_in();
    // The fake kernel asserts that it does not get a buffer that it already has.
    assert_none_missing(&mut stage);
}

#[test]
fn bytes_of_a_receive_that_was_cancelled_too_late_are_reported() {
    let mut stage = Stage::new();
    let (token, peer) = stage.receiving();
    stage.driver.kernel.faults.late = ALWAYS;
    let mut sent = Vec::new();
    for round in 0_u8..50 {
        stage.write(token, &peer, &[round; 20]);
        sent.extend([round; 20]);
        stage.receive(token, false);
        stage.turn();
        stage.receive(token, true);
        stage.run_until_idle();
    }
    assert_eq!(stage.take(token), received(&sent));
    assert_none_missing(&mut stage);
}

#[test]
fn a_socket_that_pauses_uses_single_shot_receives_from_then_on() {
    let mut stage = Stage::new();
    let (token, peer) = stage.receiving();
    stage.receive(token, false);
    stage.run_until_idle();
    assert_eq!(count(&stage, is_cancel), 1);
    stage.write(token, &peer, b"not wanted yet");
    stage.run_until_idle();
    assert_eq!(stage.take(token), []);
    for _ in 0..10 {
        stage.receive(token, true);
        stage.run_until_idle();
        stage.receive(token, false);
        stage.run_until_idle();
    }
    assert_eq!(stage.take(token), received(b"not wanted yet"));
    assert_eq!(count(&stage, is_cancel), 1, "a single-shot receive need not be cancelled");
}

#[test]
fn a_pause_and_resume_in_one_turn_submit_nothing() {
    let mut stage = Stage::new();
    let (token, _peer) = stage.receiving();
    let before = stage.driver.kernel.requests.len();
    for _ in 0..10 {
        stage.receive(token, false);
        stage.receive(token, true);
    }
    stage.run_until_idle();
    assert_eq!(stage.driver.kernel.requests.len(), before);
}

#[test]
fn paused_receives_provide_no_buffers_and_lose_nothing() {
    let mut stage = Stage::new();
    let pairs: Vec<_> = (0..60).map(|_| stage.receiving()).collect();
    stage.driver.pause_receives(true);
    let ring = stage.driver.kernel.ring();
    for (token, peer) in &pairs {
        stage.write(*token, peer, b"request");
    }
    stage.run_until_idle();
    let served = pairs.iter().filter(|(token, _)| !stage.reports(*token).is_empty()).count();
    assert!(served <= ring, "{served} sockets received, from {ring} buffers");
    assert_eq!(stage.driver.kernel.ring(), 0);
    stage.driver.pause_receives(false);
    stage.run_until_idle();
    for (token, _) in &pairs {
        assert_eq!(stage.take(*token), received(b"request"));
    }
    assert_none_missing(&mut stage);
}

#[test]
fn heavy_sockets_receive_by_calls_and_light_ones_by_the_ring() {
    let mut stage = Stage::new();
    let (token, peer) = stage.receiving();
    let armed = |stage: &Stage| {
        let always = |request: &Request| matches!(request, Request::Receive { mode: RecvMode::Always, .. });
        count(stage, always)
    };
    let bytes = pattern(10 * BUFFER_BYTES);
    stage.write(token, &peer, &bytes);
    stage.run_until_idle();
    assert_eq!(stage.take(token), received(&bytes));
    assert_eq!((armed(&stage), count(&stage, is_cancel)), (0, 0), "it had no multishot receive");
    for round in 0_u8..20 {
        stage.write(token, &peer, &[round; 10]);
        stage.run_until_idle();
        assert_eq!(stage.take(token), received(&[round; 10]));
    }
    assert_eq!((armed(&stage), count(&stage, is_cancel)), (1, 1), "it moved to the ring");
    stage.write(token, &peer, &bytes);
    stage.run_until_idle();
    assert_eq!(stage.take(token), received(&bytes));
    assert_eq!((armed(&stage), count(&stage, is_cancel)), (1, 2), "it moved back");
}

#[test]
fn a_heavy_socket_continues_after_the_kernel_ended_its_poll() {
    let mut stage = Stage::new();
    let (token, peer) = stage.receiving();
    let bytes = pattern(10 * BUFFER_BYTES);
    for result in [libc::POLLIN.into(), -libc::ECANCELED, -libc::EINTR] {
        stage.write(token, &peer, &bytes);
        stage.run_until_idle();
        stage.driver.kernel.lose(name(token, Kind::Receive), result, None);
        stage.write(token, &peer, &bytes);
        stage.run_until_idle();
        assert_eq!(stage.take(token), received(&[&bytes[..], &bytes].concat()));
    }
}

#[test]
fn a_slot_keeps_nothing_of_its_previous_occupant() {
    let mut stage = Stage::new();
    let (token, peer) = stage.receiving();
    stage.write(token, &peer, b"for the first");
    stage.close(token);
    stage.run_until_idle();
    assert_eq!(stage.take(token), [Report::Closed]);
    let (near, far) = UnixStream::pair().unwrap();
    let next = Token { generation: token.generation + 1, ..token };
    stage.submit(next, Operation::Adopt(crate::socket::Socket::from_stream(near).unwrap()));
    stage.receive(next, true);
    stage.run_until_idle();
    for kind in Kind::OF_SOCKETS {
        stage.inject(token, kind, -libc::EIO, false);
    }
    stage.write(next, &far, b"for the second");
    stage.run_until_idle();
    assert_eq!(stage.take(next), received(b"for the second"));
    assert_eq!(stage.take(token), []);
}

#[test]
fn the_rest_of_a_failed_connection_comes_from_its_receive_and_the_events_of_others_stay() {
    let mut stage = Stage::new();
    let (other, other_peer) = stage.receiving();
    let (token, peer) = stage.receiving();
    stage.write(other, &other_peer, b"neap");
    stage.write(token, &peer, b"ebb");
    stage.close_peer(token, peer);
    let mut rest = Vec::new();
    while let Some(bytes) = stage.driver.receive_rest(token) {
        rest.extend_from_slice(&bytes);
    }
    assert_eq!(rest, b"ebb");
    stage.close(token);
    stage.run_until_idle();
    assert_eq!(stage.take(other), received(b"neap"));
    assert_eq!(stage.take(token), [Report::Closed]);
    assert_none_missing(&mut stage);
}
