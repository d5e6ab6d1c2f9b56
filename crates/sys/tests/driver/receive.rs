//! Receiving: everything arrives, in order, and only while it is wanted.

use std::io::Write;
use std::net::Shutdown;
use std::thread;

use tidegate_buffer::{Outbound, RECEIVE_BYTES_MAX, Slice};
use tidegate_sys::{Completion, Operation};

use crate::harness::{Family, Harness, PATIENCE, Told, assert_same, pattern, read};

#[test]
fn a_long_stream_arrives_whole() {
    for family in Family::BOTH {
        let mut harness = Harness::new();
        let (token, mut peer) = harness.pair(family);
        harness.receive(token, true);
        let bytes = pattern(8 << 20);
        let expected = bytes.clone();
        let writer = thread::spawn(move || peer.write_all(&bytes).unwrap());
        let told = harness.until_told(token, &Told::Ended);
        writer.join().unwrap();
        let [Told::Received(received), Told::Ended] = &told[..] else { panic!("{family:?}") };
        assert_same(received, &expected);
        assert!(harness.receives.iter().all(|&length| length <= RECEIVE_BYTES_MAX));
    }
}

#[test]
fn receives_grow_while_they_are_full_and_shrink_again() {
    let mut harness = Harness::new();
    let (near, mut peer) = Family::Tcp.pair();
    let look = near.try_clone().unwrap();
    let token = harness.adopt(near);
    let bytes = pattern(LADDER.iter().sum());
    let burst = |harness: &mut Harness, mut peer: &socket2::Socket| {
        harness.receive(token, false);
        peer.write_all(&bytes).unwrap();
        while rustix::io::ioctl_fionread(&look).unwrap() < bytes.len() as u64 {
            harness.settle();
        }
        harness.receives.clear();
        harness.receive(token, true);
        assert_same(&harness.until_received(token, bytes.len()), &bytes);
        // The fence receives as well, a byte at a time.
        harness.receives.iter().copied().filter(|&length| length > 1).collect::<Vec<_>>()
    };
    assert_eq!(burst(&mut harness, &peer), LADDER);
    assert_eq!(burst(&mut harness, &peer)[0], RECEIVE_BYTES_MAX, "it remembers");
    for _ in 0..4 {
        peer.write_all(b"a").unwrap();
        harness.until_received(token, 1);
    }
    assert_eq!(burst(&mut harness, &peer)[0], LADDER[0], "it forgets after a few short receives");
}

#[test]
fn nothing_is_told_of_a_socket_that_is_paused_and_nothing_is_lost() {
    for family in Family::BOTH {
        let mut harness = Harness::new();
        let (token, mut peer) = harness.pair(family);
        peer.write_all(b"one ").unwrap();
        harness.settle();
        assert_eq!(harness.take(token), [], "nothing is received before it is asked for");
        harness.receive(token, true);
        assert_eq!(harness.until_received(token, 4), b"one ");
        harness.receive(token, false);
        peer.write_all(b"two ").unwrap();
        harness.settle();
        peer.write_all(b"three").unwrap();
        harness.settle();
        assert_eq!(harness.take(token), []);
        harness.receive(token, true);
        assert_eq!(harness.until_received(token, 9), b"two three");
    }
}

#[test]
fn a_pause_in_the_middle_of_much_keeps_the_rest() {
    for family in Family::BOTH {
        let mut harness = Harness::new();
        let (token, mut peer) = harness.pair(family);
        let bytes = pattern(4 << 20);
        let expected = bytes.clone();
        let writer = thread::spawn(move || peer.write_all(&bytes).unwrap());
        let mut received = Vec::new();
        loop {
            harness.receive(token, true);
            harness.until(|harness| (!harness.told(token).is_empty()).then_some(()));
            harness.receive(token, false);
            // What was on its way may still come.
            harness.settle();
            match &harness.take(token)[..] {
                [Told::Received(bytes)] => received.extend_from_slice(bytes),
                [Told::Ended] => break,
                [Told::Received(bytes), Told::Ended] => {
                    received.extend_from_slice(bytes);
                    break;
                }
                other => panic!("{other:?}"),
            }
            harness.settle();
            assert_eq!(harness.take(token), [], "paused");
        }
        writer.join().unwrap();
        assert_same(&received, &expected);
    }
}

#[test]
fn an_end_that_comes_together_with_bytes_is_told_after_them_and_once() {
    for family in Family::BOTH {
        for length in [1, 5000, 16 * 1024, 100_000] {
            let mut harness = Harness::new();
            let (near, mut peer) = family.pair();
            if family == Family::Tcp {
                // Held back until the end, the bytes leave in one segment with it.
                peer.set_tcp_nodelay(false).unwrap();
                rustix::net::sockopt::set_tcp_cork(&peer, true).unwrap();
            }
            let bytes = pattern(length);
            peer.write_all(&bytes).unwrap();
            peer.shutdown(Shutdown::Write).unwrap();
            let token = harness.adopt(near);
            harness.receive(token, true);
            let told = harness.until_told(token, &Told::Ended);
            assert_eq!(told, [Told::Received(bytes), Told::Ended]);
            harness.settle();
            harness.receive(token, false);
            harness.receive(token, true);
            harness.settle();
            assert_eq!(harness.take(token), [], "the end is told once");
        }
    }
}

#[test]
fn an_end_that_comes_while_paused_waits() {
    for family in Family::BOTH {
        let mut harness = Harness::new();
        let (token, mut peer) = harness.pair(family);
        harness.receive(token, true);
        peer.write_all(b"a").unwrap();
        harness.until_received(token, 1);
        harness.receive(token, false);
        peer.write_all(b"b").unwrap();
        harness.settle();
        peer.shutdown(Shutdown::Write).unwrap();
        harness.settle();
        assert_eq!(harness.take(token), []);
        harness.receive(token, true);
        assert_eq!(harness.until_told(token, &Told::Ended), [Told::Received(b"b".to_vec()), Told::Ended]);
    }
}

#[test]
fn the_peer_may_end_first_and_still_be_sent_to() {
    for family in Family::BOTH {
        let mut harness = Harness::new();
        let (token, mut peer) = harness.pair(family);
        harness.receive(token, true);
        peer.write_all(b"request").unwrap();
        peer.shutdown(Shutdown::Write).unwrap();
        assert_eq!(harness.until_told(token, &Told::Ended).len(), 2);
        let bytes = pattern(16 << 20);
        let mut queue = Outbound::new(&harness.pool);
        queue.link_bytes(bytes.clone().into());
        queue.flush();
        let reader = thread::spawn(move || read(&peer, usize::MAX));
        harness.send_all(token, &mut queue, 1 << 20).unwrap();
        harness.submit(token, Operation::ShutdownWrite);
        assert_same(&reader.join().unwrap(), &bytes);
        assert_eq!(harness.take(token), []);
    }
}

#[test]
fn we_may_end_first_and_still_receive() {
    for family in Family::BOTH {
        let mut harness = Harness::new();
        let (token, mut peer) = harness.pair(family);
        harness.receive(token, true);
        let mut queue = Outbound::new(&harness.pool);
        queue.write(b"request");
        queue.flush();
        harness.send_all(token, &mut queue, usize::MAX).unwrap();
        harness.submit(token, Operation::ShutdownWrite);
        assert_eq!(read(&peer, usize::MAX), b"request");
        harness.settle();
        assert_eq!(harness.take(token), []);
        peer.write_all(b"response").unwrap();
        assert_eq!(harness.until_received(token, 8), b"response");
        drop(peer);
        assert_eq!(harness.until_told(token, &Told::Ended), [Told::Ended]);
    }
}

#[test]
fn a_turn_that_is_cut_short_loses_nothing() {
    let mut harness = Harness::new();
    let peers: Vec<_> = (0..20).map(|_| harness.pair(Family::Tcp)).collect();
    for (token, peer) in &peers {
        let mut peer = peer;
        harness.receive(*token, true);
        peer.write_all(&token.slot.to_be_bytes()).unwrap();
    }
    let mut received = Vec::new();
    while received.len() < peers.len() {
        harness.driver.wait(Some(PATIENCE)).unwrap();
        let (token, completion) = harness.driver.next().expect("somebody has something to say");
        let Completion::Received(bytes) = completion else { panic!("{completion:?}") };
        assert_eq!(*bytes, token.slot.to_be_bytes());
        received.push(token);
    }
    received.sort();
    assert_eq!(received, peers.iter().map(|(token, _)| *token).collect::<Vec<_>>());
}

#[test]
fn what_is_kept_of_a_receive_is_not_overwritten_by_the_next() {
    let mut harness = Harness::new();
    let (token, mut peer) = harness.pair(Family::Unix);
    harness.receive(token, true);
    let mut kept: Vec<Slice> = Vec::new();
    for round in 0..5_u8 {
        peer.write_all(&[round; 100]).unwrap();
        harness.driver.wait(Some(PATIENCE)).unwrap();
        while let Some((_, completion)) = harness.driver.next() {
            let Completion::Received(bytes) = completion else { panic!("{completion:?}") };
            kept.push(bytes);
        }
    }
    for (round, bytes) in kept.iter().enumerate() {
        assert_eq!(**bytes, [round as u8; 100]);
    }
}

/// What the receives ask for, one after the other, while they are full.
const LADDER: [usize; 3] = [16 * 1024, 32 * 1024, 64 * 1024];

const _: () = assert!(LADDER[2] == RECEIVE_BYTES_MAX);
