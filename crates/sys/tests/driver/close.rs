//! Letting go of a socket.

use std::io::{ErrorKind, Read, Write};
use std::thread;

use tidegate_buffer::Outbound;
use tidegate_sys::Side;

use crate::harness::{Family, Harness, PATIENCE, assert_same, pattern, read};
use crate::which::Which;

pub(crate) fn an_orderly_close_ends_the_stream_after_what_was_sent(driver: Which) {
    for family in Family::BOTH {
        let mut harness = Harness::on(driver);
        let (token, peer) = harness.pair(family);
        let bytes = pattern(50_000);
        let mut queue = Outbound::new(&harness.pool);
        queue.write(&bytes);
        queue.flush();
        harness.send_all(token, &mut queue, usize::MAX).unwrap();
        harness.close(token, false);
        assert_same(&read(&peer, usize::MAX), &bytes);
    }
}

pub(crate) fn an_orderly_close_delivers_what_the_kernel_still_holds(driver: Which) {
    let mut harness = Harness::on(driver);
    let (token, peer) = harness.pair(Family::Tcp);
    let bytes = pattern(32 << 20);
    let mut queue = Outbound::new(&harness.pool);
    queue.link_bytes(bytes.clone().into());
    queue.flush();
    let taken = harness.send_until_blocked(token, &mut queue);
    harness.close(token, false);
    let reader = thread::spawn(move || read(&peer, usize::MAX));
    assert_same(&reader.join().unwrap(), &bytes[..taken]);
}

pub(crate) fn a_cut_connection_is_reset(driver: Which) {
    let mut harness = Harness::on(driver);
    let (token, mut peer) = harness.pair(Family::Tcp);
    harness.close(token, true);
    let error = peer.read(&mut [0]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
}

/// The kernel's rule, and why who answers without having read all of a request has to read on for a while.
pub(crate) fn closing_with_bytes_unread_resets_whatever_was_asked_for(driver: Which) {
    let mut harness = Harness::on(driver);
    let (token, mut peer) = harness.pair(Family::Tcp);
    peer.write_all(b"never read").unwrap();
    harness.settle();
    harness.close(token, false);
    let error = peer.read(&mut [0]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
}

pub(crate) fn nothing_is_told_of_a_socket_after_it_was_closed(driver: Which) {
    for family in Family::BOTH {
        let mut harness = Harness::on(driver);
        let (token, mut peer) = harness.pair(family);
        harness.receive(token, true);
        peer.write_all(b"too late").unwrap();
        // The event is taken from the kernel before the socket is closed.
        harness.driver.wait(Some(PATIENCE)).unwrap();
        // The harness sees to it that nothing is told any more, before it is closed and after.
        harness.close(token, false);
        harness.settle();
        assert_eq!(harness.driver.address(token, Side::Local).unwrap_err().kind(), ErrorKind::NotConnected);
    }
}

pub(crate) fn what_came_for_those_who_were_let_go_of_takes_no_room_from_others(driver: Which) {
    let mut harness = Harness::on(driver);
    for _ in 0..10 {
        let pairs: Vec<_> = (0..20).map(|_| harness.pair(Family::Unix)).collect();
        pairs.iter().for_each(|(token, _)| harness.receive(*token, true));
        harness.settle();
        for (_, peer) in &pairs {
            let mut peer = peer;
            peer.write_all(b"too late").unwrap();
        }
        harness.driver.wait(Some(PATIENCE)).unwrap();
        pairs.iter().for_each(|(token, _)| harness.let_go(*token, false));
        pairs.iter().for_each(|(token, _)| harness.until(|harness| harness.is_closed(*token).then_some(())));
    }
    let (token, mut peer) = harness.pair(Family::Unix);
    harness.receive(token, true);
    peer.write_all(b"in time").unwrap();
    assert_eq!(harness.until_received(token, 7), b"in time");
}

pub(crate) fn a_driver_that_is_dropped_closes_its_sockets(driver: Which) {
    let mut harness = Harness::on(driver);
    let (_, peer) = harness.pair(Family::Tcp);
    drop(harness);
    assert_eq!(read(&peer, usize::MAX), b"");
}
