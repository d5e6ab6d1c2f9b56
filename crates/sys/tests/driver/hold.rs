//! Receiving held back on all sockets at once, as while memory is used up.
//!
//! A kernel that completes fills the buffers that it has, for those who received before. What that comes to is bounded:
//! `Which::held_bytes_max`.

use std::io::{ErrorKind, Write};
use std::net::{Shutdown, TcpStream};
use std::thread;

use tidegate_buffer::Outbound;
use tidegate_sys::Completion;

use crate::harness::{Family, Harness, Told, any_port, assert_same, pattern, read, reset};
use crate::which::Which;

pub(crate) fn what_comes_while_receiving_is_held_is_told_when_it_goes_on(driver: Which) {
    for family in Family::BOTH {
        let mut harness = Harness::on(driver);
        let (busy, mut busy_peer) = harness.pair(family);
        let (ended, mut ended_peer) = harness.pair(family);
        let (paused, mut paused_peer) = harness.pair(family);
        harness.receive(busy, true);
        harness.receive(ended, true);
        harness.settle();
        harness.hold(true);
        harness.hold(true);
        busy_peer.write_all(b"one").unwrap();
        harness.settle();
        busy_peer.write_all(b" two").unwrap();
        ended_peer.write_all(b"bye").unwrap();
        ended_peer.shutdown(Shutdown::Write).unwrap();
        paused_peer.write_all(b"not wanted").unwrap();
        harness.settle();
        assert!(harness.bytes_told() <= driver.held_bytes_max());
        harness.hold(false);
        assert_eq!(harness.until_received(busy, 7), b"one two");
        assert_eq!(harness.until_told(ended, &Told::Ended), [Told::Received(b"bye".to_vec()), Told::Ended]);
        harness.settle();
        assert_eq!(harness.take(paused), []);
        harness.hold(false);
        busy_peer.write_all(b"three").unwrap();
        assert_eq!(harness.until_received(busy, 5), b"three");
        // Holding works again for who was held before.
        harness.hold(true);
        busy_peer.write_all(b"four").unwrap();
        harness.settle();
        assert!(harness.bytes_told() <= driver.held_bytes_max());
        harness.hold(false);
        assert_eq!(harness.until_received(busy, 4), b"four");
    }
}

pub(crate) fn a_hold_in_the_middle_of_a_turn_holds_the_rest_of_the_turn(driver: Which) {
    let mut harness = Harness::on(driver);
    let pairs: Vec<_> = (0..10).map(|_| harness.pair(Family::Unix)).collect();
    for (token, peer) in &pairs {
        let mut peer = peer;
        harness.receive(*token, true);
        peer.write_all(b"hello").unwrap();
    }
    let mut first = None;
    while first.is_none() {
        harness.driver.wait(Some(crate::harness::PATIENCE)).unwrap();
        first = harness.next();
    }
    let Some((first, Completion::Received(_))) = first else { panic!("{first:?}") };
    harness.hold(true);
    harness.rest_of_turn();
    assert!(harness.bytes_told() <= driver.held_bytes_max());
    harness.hold(false);
    for (token, _) in pairs {
        if token != first {
            assert_eq!(harness.until_received(token, 5), b"hello");
        }
    }
}

/// Memory comes back only if what is queued gets out: a loop that holds receives and loses this edge stands still.
pub(crate) fn sending_goes_on_while_receiving_is_held(driver: Which) {
    for family in Family::BOTH {
        let mut harness = Harness::on(driver);
        let (token, mut peer) = harness.pair(family);
        harness.receive(token, true);
        let mut queue = Outbound::new(&harness.pool);
        queue.link_bytes(pattern(16 << 20).into());
        queue.flush();
        harness.send_until_blocked(token, &mut queue);
        harness.hold(true);
        peer.write_all(b"a request that has to wait").unwrap();
        harness.settle();
        assert!(harness.bytes_told() <= driver.held_bytes_max());
        let reader = thread::spawn(move || {
            read(&peer, 16 << 20);
            peer
        });
        harness.send_all(token, &mut queue, usize::MAX).unwrap();
        let peer = reader.join().unwrap();
        harness.hold(false);
        harness.settle();
        let told = harness.take(token);
        assert!(told.contains(&Told::Received(b"a request that has to wait".to_vec())), "{told:?}");
        drop(peer);
    }
}

pub(crate) fn accepting_goes_on_while_receiving_is_held(driver: Which) {
    let mut harness = Harness::on(driver);
    let (_, address) = harness.listen(&any_port());
    harness.hold(true);
    let _client = TcpStream::connect(address.ip().unwrap()).unwrap();
    harness.until_accepted();
}

pub(crate) fn a_failure_is_told_while_receiving_is_held(driver: Which) {
    let mut harness = Harness::on(driver);
    let (before, mut before_peer) = harness.pair(Family::Tcp);
    let (after, after_peer) = harness.pair(Family::Tcp);
    let failed = Told::Failed(ErrorKind::ConnectionReset);
    for token in [before, after] {
        harness.receive(token, true);
    }
    harness.settle();
    harness.hold(true);
    // This one is held already when it breaks.
    before_peer.write_all(b"never read").unwrap();
    harness.settle();
    reset(before_peer);
    reset(after_peer);
    for token in [before, after] {
        harness.until(|harness| harness.told(token).contains(&failed).then_some(()));
        assert!(harness.bytes_told() <= driver.held_bytes_max());
        assert_eq!(harness.take(token).last(), Some(&failed));
    }
    harness.hold(false);
    harness.settle();
    assert!(harness.take_all().is_empty());
}

pub(crate) fn what_is_closed_or_paused_while_held_is_not_told_afterwards(driver: Which) {
    let mut harness = Harness::on(driver);
    let (closed, mut closed_peer) = harness.pair(Family::Unix);
    let (paused, mut paused_peer) = harness.pair(Family::Unix);
    for token in [closed, paused] {
        harness.receive(token, true);
    }
    harness.settle();
    harness.hold(true);
    for peer in [&mut closed_peer, &mut paused_peer] {
        // More than is on its way when receiving is held.
        peer.write_all(&pattern(BYTES)).unwrap();
    }
    harness.settle();
    assert!(harness.bytes_told() <= driver.held_bytes_max());
    harness.take(closed);
    harness.close(closed, false);
    harness.receive(paused, false);
    let (near, mut far) = Family::Unix.pair();
    let again = harness.adopt_again(closed, near);
    let before = harness.bytes_told();
    harness.hold(false);
    harness.settle();
    assert_eq!(harness.bytes_told(), before, "told of one who is paused");
    harness.receive(paused, true);
    harness.receive(again, true);
    far.write_all(b"new").unwrap();
    assert_same(&harness.until_received(paused, BYTES), &pattern(BYTES));
    assert_eq!(harness.until_received(again, 3), b"new");
}

pub(crate) fn what_comes_while_receiving_is_held_is_bounded_and_nothing_is_lost(driver: Which) {
    let mut harness = Harness::on(driver);
    let mut pairs: Vec<_> = (0..50).map(|_| harness.pair(Family::Unix)).collect();
    for (token, _) in &pairs {
        harness.receive(*token, true);
    }
    harness.settle();
    harness.hold(true);
    for (_, peer) in &mut pairs {
        peer.write_all(&pattern(BYTES)).unwrap();
    }
    harness.settle();
    let told = harness.bytes_told();
    assert!(told <= driver.held_bytes_max(), "{told} bytes were told");
    harness.settle();
    assert_eq!(harness.bytes_told(), told, "it goes on");
    harness.hold(false);
    for (token, _) in &pairs {
        assert_same(&harness.until_received(*token, BYTES), &pattern(BYTES));
    }
}

/// Those who brought much before, who paused before, and others may be received from in different ways.
pub(crate) fn everybody_is_heard_when_receiving_goes_on_whatever_was_before(driver: Which) {
    for family in Family::BOTH {
        let mut harness = Harness::on(driver);
        let mut pairs: Vec<_> = (0..4).map(|_| harness.pair(family)).collect();
        for (index, (token, peer)) in pairs.iter_mut().enumerate() {
            let before = pattern([1, 50_000][index % 2]);
            harness.receive(*token, true);
            peer.write_all(&before).unwrap();
            assert_same(&harness.until_received(*token, before.len()), &before);
            if index / 2 == 1 {
                assert_eq!(harness.pause(*token), []);
                harness.receive(*token, true);
            }
        }
        for bytes in [pattern(10), pattern(BYTES), pattern(10)] {
            harness.settle();
            harness.hold(true);
            for (_, peer) in &mut pairs {
                peer.write_all(&bytes).unwrap();
            }
            harness.settle();
            assert!(harness.bytes_told() <= driver.held_bytes_max());
            harness.hold(false);
            for (token, _) in &pairs {
                assert_same(&harness.until_received(*token, bytes.len()), &bytes);
            }
        }
        harness.hold(true);
        pairs.iter().for_each(|(_, peer)| peer.shutdown(Shutdown::Write).unwrap());
        harness.settle();
        harness.hold(false);
        for (token, _) in &pairs {
            assert_eq!(harness.until_told(*token, &Told::Ended), [Told::Ended]);
        }
    }
}

/// Who gives buffers back while receiving is held would go on for ever with those who bring little at a time.
pub(crate) fn little_by_little_no_more_comes_while_receiving_is_held(driver: Which) {
    let mut harness = Harness::on(driver);
    let (token, mut peer) = harness.pair(Family::Unix);
    harness.receive(token, true);
    harness.settle();
    harness.hold(true);
    harness.receives.clear();
    let bytes = pattern(20_000);
    for piece in bytes.chunks(100) {
        peer.write_all(piece).unwrap();
        harness.settle();
    }
    let receives = harness.receives.len();
    assert!(receives <= driver.held_bytes_max() / 4096, "{receives} receives");
    harness.hold(false);
    assert_same(&harness.until_received(token, bytes.len()), &bytes);
}

/// What is written where receiving is held: in sum more than any driver has buffers for.
const BYTES: usize = 150_000;
