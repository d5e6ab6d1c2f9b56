//! A slot has one occupant at a time, which gets no completion of another's socket.

use std::collections::BTreeMap;
use std::io::{ErrorKind, Read, Write};

use tidegate_buffer::Outbound;
use tidegate_sys::{Completion, Operation, Side, Socket, Token};

use crate::driver::harness::{Family, Harness, PATIENCE, read, reset};
use crate::driver::which::Which;

pub(crate) fn an_old_token_has_no_effect(driver: Which) {
    let mut harness = Harness::on(driver);
    let (old, _gone) = harness.pair(Family::Tcp);
    harness.close(old, false);
    let (near, mut peer) = Family::Tcp.pair();
    let new = harness.adopt_again(old, near);
    harness.receive(new, true);

    harness.receive(old, false);
    harness.submit(old, Operation::ShutdownWrite);
    harness.submit(old, Operation::Accept(false));
    let mut queue = Outbound::new(&harness.pool);
    queue.write(b"for another");
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

pub(crate) fn an_unknown_token_has_no_effect(driver: Which) {
    let mut harness = Harness::on(driver);
    let token = Token { slot: 1_000_000, generation: 3 };
    harness.receive(token, true);
    harness.close(token, true);
    assert!(harness.driver.address(token, Side::Peer).is_err());
    harness.run_until_idle();
    assert!(harness.take_all().is_empty());
}

pub(crate) fn a_reused_slot_gets_no_report_of_its_previous_occupant(driver: Which) {
    for family in Family::BOTH {
        let mut harness = Harness::on(driver);
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
        // The driver takes all events from the kernel; then every slot gets a new occupant before the first event is
        // reported.
        harness.driver.wait(Some(PATIENCE)).unwrap();
        let mut peers = BTreeMap::new();
        let use_again = |harness: &mut Harness, peers: &mut BTreeMap<_, _>, old| {
            let (near, far) = family.pair();
            let new = harness.adopt_again(old, near);
            harness.receive(new, true);
            peers.insert(new, far);
        };
        for token in &tokens {
            harness.start_close(*token, false);
            if harness.is_closed(*token) {
                use_again(&mut harness, &mut peers, *token);
            }
        }
        // A slot that is not free yet gets its new occupant as soon as `Closed` is reported.
        while peers.len() < tokens.len() {
            let (token, completion) = harness.next().unwrap_or_else(|| harness.first());
            assert!(matches!(completion, Completion::Closed), "{completion:?}");
            harness.record(token, completion);
            use_again(&mut harness, &mut peers, token);
        }
        harness.run_until_idle();
        assert!(harness.take_all().is_empty());
        assert_eq!(peers.len(), tokens.len());
        for (token, mut peer) in &peers {
            peer.write_all(b"new").unwrap();
            assert_eq!(harness.until_received(*token, 3), b"new");
        }
    }
}

/// The kernel reuses a descriptor number at once. The new socket must not inherit the state of the old one.
pub(crate) fn the_state_of_a_socket_ends_with_it(driver: Which) {
    let mut harness = Harness::on(driver);
    let (token, peer) = harness.pair(Family::Tcp);
    harness.receive(token, true);
    let mut queue = Outbound::new(&harness.pool);
    queue.link_bytes(vec![0; 32 << 20].into());
    queue.flush();
    harness.send_until_blocked(token, &mut queue);
    harness.close(token, true);
    drop(peer);
    let (near, mut peer) = Family::Tcp.pair();
    let new = harness.adopt_again(token, near);
    let mut queue = Outbound::new(&harness.pool);
    queue.write(b"not blocked");
    queue.flush();
    assert_eq!(harness.send(new, &mut queue, usize::MAX).unwrap().unwrap(), 11);
    peer.write_all(b"not wanted").unwrap();
    harness.run_until_idle();
    assert_eq!(harness.take(new), []);
    let mut text = [0; 11];
    peer.read_exact(&mut text).unwrap();
    assert_eq!(&text, b"not blocked");
}

pub(crate) fn a_socket_of_another_driver_is_refused(driver: Which) {
    let mut harness = Harness::on(driver);
    let token = harness.token();
    let completion = harness.driver.submit(token, Operation::Adopt(Socket::Simulated(1)));
    let Some(Completion::Failed(error)) = completion else { panic!("{completion:?}") };
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    harness.close(token, false);
}
