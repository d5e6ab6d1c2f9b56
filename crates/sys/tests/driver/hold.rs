//! Receiving held back on all sockets at once, as while memory is used up.

use std::io::{ErrorKind, Write};
use std::net::{Shutdown, TcpStream};
use std::thread;

use tidegate_buffer::Outbound;
use tidegate_sys::{Completion, Operation};

use crate::harness::{Family, Harness, Told, any_port, pattern, read, reset};

/// The fence is a socket as well, so while receiving is held the waker has to do.
fn settle_held(harness: &mut Harness) {
    for _ in 0..3 {
        harness.driver.waker().wake();
        harness.until(|harness| {
            let mut all = harness.take_all();
            let woken = all.iter().find(|(_, told)| told.contains(&Told::Woken)).map(|(token, _)| *token);
            if let Some(woken) = woken {
                all.remove(&woken);
            }
            harness.put_back(all);
            woken.map(|_| ())
        });
    }
}

#[test]
fn what_comes_while_receiving_is_held_is_told_when_it_goes_on() {
    for family in Family::BOTH {
        let mut harness = Harness::new();
        let (busy, mut busy_peer) = harness.pair(family);
        let (ended, mut ended_peer) = harness.pair(family);
        let (paused, mut paused_peer) = harness.pair(family);
        harness.receive(busy, true);
        harness.receive(ended, true);
        harness.driver.hold_receives(true);
        harness.driver.hold_receives(true);
        busy_peer.write_all(b"one").unwrap();
        settle_held(&mut harness);
        busy_peer.write_all(b" two").unwrap();
        ended_peer.write_all(b"bye").unwrap();
        ended_peer.shutdown(Shutdown::Write).unwrap();
        paused_peer.write_all(b"not wanted").unwrap();
        settle_held(&mut harness);
        assert!(harness.take_all().is_empty());
        harness.driver.hold_receives(false);
        assert_eq!(harness.until_received(busy, 7), b"one two");
        assert_eq!(harness.until_told(ended, &Told::Ended), [Told::Received(b"bye".to_vec()), Told::Ended]);
        harness.settle();
        assert_eq!(harness.take(paused), []);
        harness.driver.hold_receives(false);
        busy_peer.write_all(b"three").unwrap();
        assert_eq!(harness.until_received(busy, 5), b"three");
        // Holding works again for who was held before.
        harness.driver.hold_receives(true);
        busy_peer.write_all(b"four").unwrap();
        settle_held(&mut harness);
        assert!(harness.take_all().is_empty());
        harness.driver.hold_receives(false);
        assert_eq!(harness.until_received(busy, 4), b"four");
    }
}

#[test]
fn a_hold_in_the_middle_of_a_turn_holds_the_rest_of_the_turn() {
    let mut harness = Harness::new();
    let pairs: Vec<_> = (0..10).map(|_| harness.pair(Family::Unix)).collect();
    for (token, peer) in &pairs {
        let mut peer = peer;
        harness.receive(*token, true);
        peer.write_all(b"hello").unwrap();
    }
    let mut first = None;
    while first.is_none() {
        harness.driver.wait(Some(crate::harness::PATIENCE)).unwrap();
        first = harness.driver.next();
    }
    let Some((first, Completion::Received(_))) = first else { panic!("{first:?}") };
    harness.driver.hold_receives(true);
    assert!(harness.driver.next().is_none());
    harness.driver.hold_receives(false);
    for (token, _) in pairs {
        if token != first {
            assert_eq!(harness.until_received(token, 5), b"hello");
        }
    }
}

/// Memory comes back only if what is queued gets out: a loop that holds receives and loses this edge stands still.
#[test]
fn sending_goes_on_while_receiving_is_held() {
    for family in Family::BOTH {
        let mut harness = Harness::new();
        let (token, mut peer) = harness.pair(family);
        harness.receive(token, true);
        let mut queue = Outbound::new(&harness.pool);
        queue.link_bytes(pattern(16 << 20).into());
        queue.flush();
        harness.send_until_blocked(token, &mut queue);
        harness.driver.hold_receives(true);
        peer.write_all(b"a request that has to wait").unwrap();
        settle_held(&mut harness);
        assert!(harness.take_all().is_empty());
        let reader = thread::spawn(move || {
            read(&peer, 16 << 20);
            peer
        });
        harness.send_all(token, &mut queue, usize::MAX).unwrap();
        let peer = reader.join().unwrap();
        harness.driver.hold_receives(false);
        harness.settle();
        let told = harness.take(token);
        assert!(told.contains(&Told::Received(b"a request that has to wait".to_vec())), "{told:?}");
        drop(peer);
    }
}

#[test]
fn accepting_goes_on_while_receiving_is_held() {
    let mut harness = Harness::new();
    let (_, address) = harness.listen(&any_port());
    harness.driver.hold_receives(true);
    let _client = TcpStream::connect(address.ip().unwrap()).unwrap();
    harness.until_accepted();
}

#[test]
fn a_failure_is_told_while_receiving_is_held() {
    let mut harness = Harness::new();
    let (before, mut before_peer) = harness.pair(Family::Tcp);
    let (after, after_peer) = harness.pair(Family::Tcp);
    let failed = Told::Failed(ErrorKind::ConnectionReset);
    for token in [before, after] {
        harness.receive(token, true);
    }
    harness.driver.hold_receives(true);
    // This one is held already when it breaks.
    before_peer.write_all(b"never read").unwrap();
    settle_held(&mut harness);
    reset(before_peer);
    reset(after_peer);
    for token in [before, after] {
        assert_eq!(harness.until_told(token, &failed), std::slice::from_ref(&failed));
    }
    harness.driver.hold_receives(false);
    harness.settle();
    assert!(harness.take_all().is_empty());
}

#[test]
fn what_is_closed_or_paused_while_held_is_not_told_afterwards() {
    let mut harness = Harness::new();
    let (closed, mut closed_peer) = harness.pair(Family::Unix);
    let (paused, mut paused_peer) = harness.pair(Family::Unix);
    for (token, peer) in [(closed, &mut closed_peer), (paused, &mut paused_peer)] {
        harness.receive(token, true);
        harness.driver.hold_receives(true);
        peer.write_all(b"bytes").unwrap();
        settle_held(&mut harness);
    }
    harness.close(closed, false);
    harness.receive(paused, false);
    let again = tidegate_sys::Token { slot: closed.slot, generation: closed.generation + 1 };
    let (near, mut far) = Family::Unix.pair();
    let near = tidegate_sys::Socket::from_stream(near).unwrap();
    assert!(harness.driver.submit(again, Operation::Adopt(near)).is_none());
    harness.driver.hold_receives(false);
    harness.settle();
    assert!(harness.take_all().is_empty());
    harness.receive(paused, true);
    harness.receive(again, true);
    far.write_all(b"new").unwrap();
    assert_eq!(harness.until_received(paused, 5), b"bytes");
    assert_eq!(harness.until_received(again, 3), b"new");
}
