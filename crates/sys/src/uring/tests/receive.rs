//! Receiving, and the buffers that are lent for it.

use std::os::unix::net::UnixStream;

use super::fake::{ALWAYS, Malice};
use super::stage::{Stage, Told, pattern};
use crate::driver::{Operation, Token};
use crate::uring::kernel::{Event, RecvMode, Request};
use crate::uring::operation::{Kind, name};
use crate::uring::receive::BUFFER_BYTES;

/// How many requests there were of which this is true.
fn count(stage: &Stage, of: impl Fn(&Request) -> bool) -> usize {
    stage.machine.kernel.requests.iter().filter(|request| of(request)).count()
}

fn is_cancel(request: &Request) -> bool {
    matches!(request, Request::Cancel { .. })
}

fn received(text: &[u8]) -> [Told; 1] {
    [Told::Received(text.to_vec())]
}

/// Every buffer that is in use lies in the ring.
fn assert_none_missing(stage: &mut Stage) {
    stage.run_until_idle();
    stage.run_until_idle();
    assert_eq!(stage.machine.kernel.ring(), usize::from(stage.machine.buffers.count()));
}

#[test]
fn a_receive_that_ends_for_no_reason_goes_on() {
    for result in [libc::ECANCELED, libc::EINTR, libc::EAGAIN, libc::ENOBUFS] {
        let mut stage = Stage::new();
        let (token, peer) = stage.receiving();
        stage.machine.kernel.lose(name(token, Kind::Receive), -result, None);
        stage.write(token, &peer, b"ebb");
        stage.run_until_idle();
        assert_eq!(stage.take(token), received(b"ebb"), "{result}");
    }
}

#[test]
fn want_of_buffers_is_a_stall_and_everybody_has_a_turn() {
    let mut stage = Stage::new();
    let pairs: Vec<_> = (0..100).map(|_| stage.receiving()).collect();
    for round in 0_u8..3 {
        for (token, peer) in &pairs {
            stage.write(*token, peer, &[round; 100]);
        }
        let mut turns = 0;
        while pairs.iter().any(|(token, _)| stage.told(*token).is_empty()) {
            stage.turn();
            turns += 1;
            assert!(turns <= 30, "somebody is not heard");
        }
        stage.run_until_idle();
        for (token, _) in &pairs {
            assert_eq!(stage.take(*token), received(&[round; 100]));
        }
    }
    assert_none_missing(&mut stage);
}

#[test]
fn a_hundred_that_flood_are_served_from_the_buffers_there_are() {
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
fn no_buffer_although_there_are_some_is_a_stall_as_well() {
    let mut stage = Stage::new();
    let (token, peer) = stage.receiving();
    stage.machine.kernel.malice = Malice { starve: 30, ..Malice::default() };
    for _ in 0..20 {
        stage.write(token, &peer, b"slack");
        stage.run_until_idle();
    }
    let told = stage.take(token);
    assert_eq!(told, received(&b"slack".repeat(20)));
}

#[test]
fn who_keeps_what_it_received_does_not_hold_the_ring() {
    let mut stage = Stage::new();
    stage.kept = Some(Vec::new());
    let (token, peer) = stage.receiving();
    for round in 0_u8..100 {
        stage.write(token, &peer, &[round; 50]);
        stage.run_until_idle();
    }
    assert_none_missing(&mut stage);
    let kept = stage.kept.take().unwrap();
    assert!(kept.iter().enumerate().all(|(round, slice)| **slice == [round as u8; 50]), "it was written over");
    assert_eq!(kept.len(), 100);
}

#[test]
fn a_cancelled_receive_may_have_taken_a_buffer_which_comes_back() {
    for result in [-libc::ECANCELED, -libc::ENOBUFS, -libc::ECONNRESET, 0] {
        let mut stage = Stage::new();
        let (token, _peer) = stage.receiving();
        let buffer = Some(stage.machine.kernel.take_buffer());
        stage.machine.kernel.lose(name(token, Kind::Receive), result, buffer);
        assert_none_missing(&mut stage);
    }
}

#[test]
fn a_buffer_that_is_named_twice_is_lent_once() {
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
    stage.machine.wait(None).unwrap();
    let buffer = stage.machine.kernel.take_buffer();
    stage.machine.kernel.tell(event(buffer));
    stage.machine.kernel.tell(event(buffer));
    stage.machine.kernel.tell(event(u16::MAX));
    stage.take_in();
    // The kernel asserts that it is not given a buffer that it has.
    assert_none_missing(&mut stage);
}

#[test]
fn what_a_receive_brings_after_it_was_cancelled_is_told() {
    let mut stage = Stage::new();
    let (token, peer) = stage.receiving();
    stage.machine.kernel.malice.late = ALWAYS;
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
fn who_pauses_cancels_and_then_receives_one_by_one() {
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
    assert_eq!(count(&stage, is_cancel), 1, "a receive that comes once need not be cancelled");
}

#[test]
fn who_pauses_and_goes_on_in_the_same_turn_asks_for_nothing() {
    let mut stage = Stage::new();
    let (token, _peer) = stage.receiving();
    let before = stage.machine.kernel.requests.len();
    for _ in 0..10 {
        stage.receive(token, false);
        stage.receive(token, true);
    }
    stage.run_until_idle();
    assert_eq!(stage.machine.kernel.requests.len(), before);
}

#[test]
fn while_receiving_is_held_back_no_buffer_is_lent_and_afterwards_everything_comes() {
    let mut stage = Stage::new();
    let pairs: Vec<_> = (0..60).map(|_| stage.receiving()).collect();
    stage.machine.pause_receives(true);
    let ring = stage.machine.kernel.ring();
    for (token, peer) in &pairs {
        stage.write(*token, peer, b"request");
    }
    stage.run_until_idle();
    let told = pairs.iter().filter(|(token, _)| !stage.told(*token).is_empty()).count();
    assert!(told <= ring, "{told} were told, from {ring} buffers");
    assert_eq!(stage.machine.kernel.ring(), 0);
    stage.machine.pause_receives(false);
    stage.run_until_idle();
    for (token, _) in &pairs {
        assert_eq!(stage.take(*token), received(b"request"));
    }
    assert_none_missing(&mut stage);
}

#[test]
fn who_brings_much_is_received_from_by_calls_and_who_brings_little_again_by_the_ring() {
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
    assert_eq!((armed(&stage), count(&stage, is_cancel)), (0, 0), "the ring has never had it for long");
    for round in 0_u8..20 {
        stage.write(token, &peer, &[round; 10]);
        stage.run_until_idle();
        assert_eq!(stage.take(token), received(&[round; 10]));
    }
    assert_eq!((armed(&stage), count(&stage, is_cancel)), (1, 1), "it has gone to the ring");
    stage.write(token, &peer, &bytes);
    stage.run_until_idle();
    assert_eq!(stage.take(token), received(&bytes));
    assert_eq!((armed(&stage), count(&stage, is_cancel)), (1, 2), "and back");
}

#[test]
fn the_poll_of_who_brings_much_may_end_for_no_reason() {
    let mut stage = Stage::new();
    let (token, peer) = stage.receiving();
    let bytes = pattern(10 * BUFFER_BYTES);
    for result in [libc::POLLIN.into(), -libc::ECANCELED, -libc::EINTR] {
        stage.write(token, &peer, &bytes);
        stage.run_until_idle();
        stage.machine.kernel.lose(name(token, Kind::Receive), result, None);
        stage.write(token, &peer, &bytes);
        stage.run_until_idle();
        assert_eq!(stage.take(token), received(&[&bytes[..], &bytes].concat()));
    }
}

#[test]
fn a_slot_has_nothing_of_its_former_user() {
    let mut stage = Stage::new();
    let (token, peer) = stage.receiving();
    stage.write(token, &peer, b"for who is gone");
    stage.close(token);
    stage.run_until_idle();
    assert_eq!(stage.take(token), [Told::Closed]);
    let (near, far) = UnixStream::pair().unwrap();
    let next = Token { generation: token.generation + 1, ..token };
    stage.submit(next, Operation::Adopt(crate::socket::Socket::from_stream(near).unwrap()));
    stage.receive(next, true);
    stage.run_until_idle();
    for kind in Kind::OF_SOCKETS {
        stage.tell(token, kind, -libc::EIO, false);
    }
    stage.write(next, &far, b"for who is here");
    stage.run_until_idle();
    assert_eq!(stage.take(next), received(b"for who is here"));
    assert_eq!(stage.take(token), []);
}
