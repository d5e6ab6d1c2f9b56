//! Pausing receives on all sockets at once, as a loop does while its memory is used up.
//!
//! After the pause, io_uring still fills the buffers that it has, for sockets that received before. That is bounded:
//! `Which::paused_bytes_max`.

use std::io::{ErrorKind, Write};
use std::net::{Shutdown, TcpStream};
use std::thread;

use tidegate_buffer::Outbound;
use tidegate_sys::Completion;

use crate::driver::harness::{Family, Harness, Report, any_port, assert_same, pattern, read, reset};
use crate::driver::which::Which;

pub(crate) fn bytes_that_arrive_while_paused_are_reported_on_resume(driver: Which) {
    for family in Family::BOTH {
        let mut harness = Harness::on(driver);
        let (busy, mut busy_peer) = harness.pair(family);
        let (ended, mut ended_peer) = harness.pair(family);
        let (paused, mut paused_peer) = harness.pair(family);
        harness.receive(busy, true);
        harness.receive(ended, true);
        harness.run_until_idle();
        harness.pause_receives(true);
        harness.pause_receives(true);
        busy_peer.write_all(b"one").unwrap();
        harness.run_until_idle();
        busy_peer.write_all(b" two").unwrap();
        ended_peer.write_all(b"bye").unwrap();
        ended_peer.shutdown(Shutdown::Write).unwrap();
        paused_peer.write_all(b"not wanted").unwrap();
        harness.run_until_idle();
        assert!(harness.bytes_received() <= driver.paused_bytes_max());
        harness.pause_receives(false);
        assert_eq!(harness.until_received(busy, 7), b"one two");
        assert_eq!(harness.until_report(ended, &Report::Ended), [Report::Received(b"bye".to_vec()), Report::Ended]);
        harness.run_until_idle();
        assert_eq!(harness.take(paused), []);
        harness.pause_receives(false);
        busy_peer.write_all(b"three").unwrap();
        assert_eq!(harness.until_received(busy, 5), b"three");
        // A second pause works for a socket that was paused before.
        harness.pause_receives(true);
        busy_peer.write_all(b"four").unwrap();
        harness.run_until_idle();
        assert!(harness.bytes_received() <= driver.paused_bytes_max());
        harness.pause_receives(false);
        assert_eq!(harness.until_received(busy, 4), b"four");
    }
}

pub(crate) fn a_pause_within_a_turn_applies_to_the_rest_of_the_turn(driver: Which) {
    let mut harness = Harness::on(driver);
    let pairs: Vec<_> = (0..10).map(|_| harness.pair(Family::Unix)).collect();
    for (token, peer) in &pairs {
        let mut peer = peer;
        harness.receive(*token, true);
        peer.write_all(b"hello").unwrap();
    }
    let mut first = None;
    while first.is_none() {
        harness.driver.wait(Some(crate::driver::harness::PATIENCE)).unwrap();
        first = harness.next();
    }
    let Some((first, Completion::Received(_))) = first else { panic!("{first:?}") };
    harness.pause_receives(true);
    harness.rest_of_turn();
    assert!(harness.bytes_received() <= driver.paused_bytes_max());
    harness.pause_receives(false);
    for (token, _) in pairs {
        if token != first {
            assert_eq!(harness.until_received(token, 5), b"hello");
        }
    }
}

/// Queued bytes give memory back only when they are sent: a loop that has paused receives and misses this edge never
/// continues.
pub(crate) fn sending_continues_while_receives_are_paused(driver: Which) {
    for family in Family::BOTH {
        let mut harness = Harness::on(driver);
        let (token, mut peer) = harness.pair(family);
        harness.receive(token, true);
        let mut queue = Outbound::new(&harness.pool);
        queue.link_bytes(pattern(16 << 20).into());
        queue.flush();
        harness.send_until_blocked(token, &mut queue);
        harness.pause_receives(true);
        peer.write_all(b"a request that has to wait").unwrap();
        harness.run_until_idle();
        assert!(harness.bytes_received() <= driver.paused_bytes_max());
        let reader = thread::spawn(move || {
            read(&peer, 16 << 20);
            peer
        });
        harness.send_all(token, &mut queue, usize::MAX).unwrap();
        let peer = reader.join().unwrap();
        harness.pause_receives(false);
        harness.run_until_idle();
        let reports = harness.take(token);
        assert!(reports.contains(&Report::Received(b"a request that has to wait".to_vec())), "{reports:?}");
        drop(peer);
    }
}

pub(crate) fn accepting_continues_while_receives_are_paused(driver: Which) {
    let mut harness = Harness::on(driver);
    let (_, address) = harness.listen(&any_port());
    harness.pause_receives(true);
    let _client = TcpStream::connect(address.ip().unwrap()).unwrap();
    harness.until_accepted();
}

pub(crate) fn a_failure_is_reported_while_receives_are_paused(driver: Which) {
    let mut harness = Harness::on(driver);
    let (before, mut before_peer) = harness.pair(Family::Tcp);
    let (after, after_peer) = harness.pair(Family::Tcp);
    let failed = Report::Failed(ErrorKind::ConnectionReset);
    for token in [before, after] {
        harness.receive(token, true);
    }
    harness.run_until_idle();
    harness.pause_receives(true);
    // The receives of this one are paused already when it breaks.
    before_peer.write_all(b"never read").unwrap();
    harness.run_until_idle();
    reset(before_peer);
    reset(after_peer);
    for token in [before, after] {
        harness.until(|harness| harness.reports(token).contains(&failed).then_some(()));
        assert!(harness.bytes_received() <= driver.paused_bytes_max());
        assert_eq!(harness.take(token).last(), Some(&failed));
    }
    harness.pause_receives(false);
    harness.run_until_idle();
    assert!(harness.take_all().is_empty());
}

pub(crate) fn sockets_closed_or_stopped_while_paused_report_nothing_on_resume(driver: Which) {
    let mut harness = Harness::on(driver);
    let (closed, mut closed_peer) = harness.pair(Family::Unix);
    let (paused, mut paused_peer) = harness.pair(Family::Unix);
    for token in [closed, paused] {
        harness.receive(token, true);
    }
    harness.run_until_idle();
    harness.pause_receives(true);
    for peer in [&mut closed_peer, &mut paused_peer] {
        // More than the kernel still receives after the pause.
        peer.write_all(&pattern(BYTES)).unwrap();
    }
    harness.run_until_idle();
    assert!(harness.bytes_received() <= driver.paused_bytes_max());
    harness.take(closed);
    harness.close(closed, false);
    harness.receive(paused, false);
    let (near, mut far) = Family::Unix.pair();
    let again = harness.adopt_again(closed, near);
    let before = harness.bytes_received();
    harness.pause_receives(false);
    harness.run_until_idle();
    assert_eq!(harness.bytes_received(), before, "a stopped socket received");
    harness.receive(paused, true);
    harness.receive(again, true);
    far.write_all(b"new").unwrap();
    assert_same(&harness.until_received(paused, BYTES), &pattern(BYTES));
    assert_eq!(harness.until_received(again, 3), b"new");
}

pub(crate) fn bytes_reported_while_paused_are_bounded_and_none_are_lost(driver: Which) {
    let mut harness = Harness::on(driver);
    let mut pairs: Vec<_> = (0..50).map(|_| harness.pair(Family::Unix)).collect();
    for (token, _) in &pairs {
        harness.receive(*token, true);
    }
    harness.run_until_idle();
    harness.pause_receives(true);
    for (_, peer) in &mut pairs {
        peer.write_all(&pattern(BYTES)).unwrap();
    }
    harness.run_until_idle();
    let received = harness.bytes_received();
    assert!(received <= driver.paused_bytes_max(), "{received} bytes were received");
    harness.run_until_idle();
    assert_eq!(harness.bytes_received(), received, "it continues");
    harness.pause_receives(false);
    for (token, _) in &pairs {
        assert_same(&harness.until_received(*token, BYTES), &pattern(BYTES));
    }
}

/// Heavy sockets, sockets that have stopped before, and others may receive in different ways.
pub(crate) fn all_sockets_receive_again_on_resume(driver: Which) {
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
            harness.run_until_idle();
            harness.pause_receives(true);
            for (_, peer) in &mut pairs {
                peer.write_all(&bytes).unwrap();
            }
            harness.run_until_idle();
            assert!(harness.bytes_received() <= driver.paused_bytes_max());
            harness.pause_receives(false);
            for (token, _) in &pairs {
                assert_same(&harness.until_received(*token, bytes.len()), &bytes);
            }
        }
        harness.pause_receives(true);
        pairs.iter().for_each(|(_, peer)| peer.shutdown(Shutdown::Write).unwrap());
        harness.run_until_idle();
        harness.pause_receives(false);
        for (token, _) in &pairs {
            assert_eq!(harness.until_report(*token, &Report::Ended), [Report::Ended]);
        }
    }
}

/// A driver that gave buffers back during a pause would receive without a limit from peers that write little at a time.
pub(crate) fn small_writes_while_paused_are_bounded_as_well(driver: Which) {
    let mut harness = Harness::on(driver);
    let (token, mut peer) = harness.pair(Family::Unix);
    harness.receive(token, true);
    harness.run_until_idle();
    harness.pause_receives(true);
    harness.receives.clear();
    let bytes = pattern(20_000);
    for piece in bytes.chunks(100) {
        peer.write_all(piece).unwrap();
        harness.run_until_idle();
    }
    let receives = harness.receives.len();
    assert!(receives <= driver.paused_bytes_max() / 4096, "{receives} receives");
    harness.pause_receives(false);
    assert_same(&harness.until_received(token, bytes.len()), &bytes);
}

/// The number of bytes that a peer writes during a pause: in sum more than any driver has buffers for.
const BYTES: usize = 150_000;
