//! A slot has one user at a time, and nobody hears of another's socket.

use std::io::{ErrorKind, Read, Write};

use tidegate_buffer::Outbound;
use tidegate_sys::{Completion, Operation, Side, Socket, Token};

use crate::harness::{Family, Harness, PATIENCE, read, reset};

fn next(token: Token) -> Token {
    Token { generation: token.generation + 1, ..token }
}

#[test]
fn an_old_token_reaches_nobody() {
    let mut harness = Harness::new();
    let (old, _gone) = harness.pair(Family::Tcp);
    harness.close(old, false);
    let (near, mut peer) = Family::Tcp.pair();
    let new = next(old);
    assert!(harness.driver.submit(new, Operation::Adopt(Socket::from_stream(near).unwrap())).is_none());
    harness.receive(new, true);

    harness.receive(old, false);
    harness.submit(old, Operation::ShutdownWrite);
    harness.submit(old, Operation::Accept(false));
    let mut queue = Outbound::new(&harness.pool);
    queue.write(b"for somebody else");
    queue.flush();
    assert!(harness.send(old, &mut queue, usize::MAX).is_none());
    assert_eq!(harness.driver.address(old, Side::Local).unwrap_err().kind(), ErrorKind::NotConnected);
    harness.close(old, true);

    peer.write_all(b"hello").unwrap();
    assert_eq!(harness.until_received(new, 5), b"hello");
    assert_eq!(harness.take(old), []);
    let mut queue = Outbound::new(&harness.pool);
    queue.write(b"for you");
    queue.flush();
    harness.send_all(new, &mut queue, usize::MAX).unwrap();
    harness.close(new, false);
    assert_eq!(read(&peer, usize::MAX), b"for you");
}

#[test]
fn a_token_that_nobody_ever_had_reaches_nobody() {
    let mut harness = Harness::new();
    let token = Token { slot: 1_000_000, generation: 3 };
    harness.receive(token, true);
    harness.close(token, true);
    assert!(harness.driver.address(token, Side::Peer).is_err());
    harness.settle();
    assert!(harness.take_all().is_empty());
}

#[test]
fn a_slot_that_is_used_again_at_once_hears_nothing_of_its_former_user() {
    for family in Family::BOTH {
        let mut harness = Harness::new();
        let (mut tokens, mut old_peers) = (Vec::new(), Vec::new());
        for index in 0..20 {
            let (token, mut peer) = harness.pair(family);
            harness.receive(token, true);
            peer.write_all(b"old").unwrap();
            tokens.push(token);
            if index % 2 == 1 && family == Family::Tcp {
                reset(peer);
            } else {
                old_peers.push(peer);
            }
        }
        // All events are taken from the kernel; then every slot gets a new user before the first event is told.
        harness.driver.wait(Some(PATIENCE)).unwrap();
        let mut peers = Vec::new();
        for token in &tokens {
            harness.close(*token, false);
            let (near, far) = family.pair();
            let near = Socket::from_stream(near).unwrap();
            assert!(harness.driver.submit(next(*token), Operation::Adopt(near)).is_none());
            harness.receive(next(*token), true);
            peers.push(far);
        }
        harness.settle();
        assert!(harness.take_all().is_empty());
        for (token, mut peer) in tokens.iter().zip(&peers) {
            peer.write_all(b"new").unwrap();
            assert_eq!(harness.until_received(next(*token), 3), b"new");
        }
    }
}

/// A descriptor number is used again at once by the kernel; what was known of the old one must not stick to it.
#[test]
fn what_was_known_of_a_socket_goes_with_it() {
    let mut harness = Harness::new();
    let (token, peer) = harness.pair(Family::Tcp);
    harness.receive(token, true);
    let mut queue = Outbound::new(&harness.pool);
    queue.link_bytes(vec![0; 32 << 20].into());
    queue.flush();
    harness.send_until_blocked(token, &mut queue);
    harness.close(token, true);
    drop(peer);
    let (near, mut peer) = Family::Tcp.pair();
    assert!(harness.driver.submit(next(token), Operation::Adopt(Socket::from_stream(near).unwrap())).is_none());
    let mut queue = Outbound::new(&harness.pool);
    queue.write(b"not blocked");
    queue.flush();
    assert_eq!(harness.send(next(token), &mut queue, usize::MAX).unwrap().unwrap(), 11);
    peer.write_all(b"not wanted").unwrap();
    harness.settle();
    assert_eq!(harness.take(next(token)), []);
    let mut text = [0; 11];
    peer.read_exact(&mut text).unwrap();
    assert_eq!(&text, b"not blocked");
}

#[test]
fn a_socket_of_another_driver_is_refused() {
    let mut harness = Harness::new();
    let token = harness.token();
    let completion = harness.driver.submit(token, Operation::Adopt(Socket::Simulated(1)));
    let Some(Completion::Failed(error)) = completion else { panic!("{completion:?}") };
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    harness.close(token, false);
}
