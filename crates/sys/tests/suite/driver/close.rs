//! Closing a socket.

use std::io::{ErrorKind, Read, Write};
use std::thread;

use tidegate_buffer::Outbound;
use tidegate_sys::Side;

use crate::driver::harness::{Family, Harness, PATIENCE, assert_same, pattern, read};
use crate::driver::which::Which;

pub(crate) fn an_orderly_close_ends_the_stream_after_the_sent_bytes(driver: Which) {
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

pub(crate) fn an_orderly_close_delivers_the_bytes_in_the_kernels_buffer(driver: Which) {
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

pub(crate) fn close_with_reset_resets_the_connection(driver: Which) {
    let mut harness = Harness::on(driver);
    let (token, mut peer) = harness.pair(Family::Tcp);
    harness.close(token, true);
    let error = peer.read(&mut [0]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
}

/// This is the kernel's rule. It is why a server that responds before it has read the whole request must keep reading
/// for a while.
pub(crate) fn closing_with_unread_bytes_always_resets(driver: Which) {
    let mut harness = Harness::on(driver);
    let (token, mut peer) = harness.pair(Family::Tcp);
    peer.write_all(b"never read").unwrap();
    harness.run_until_idle();
    harness.close(token, false);
    let error = peer.read(&mut [0]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
}

pub(crate) fn a_closed_socket_reports_nothing(driver: Which) {
    for family in Family::BOTH {
        let mut harness = Harness::on(driver);
        let (token, mut peer) = harness.pair(family);
        harness.receive(token, true);
        peer.write_all(b"too late").unwrap();
        // The event is taken from the kernel before the socket is closed.
        harness.driver.wait(Some(PATIENCE)).unwrap();
        // The harness checks that nothing but `Closed` is reported from here on.
        harness.close(token, false);
        harness.run_until_idle();
        assert_eq!(harness.driver.address(token, Side::Local).unwrap_err().kind(), ErrorKind::NotConnected);
    }
}

pub(crate) fn bytes_for_closed_sockets_keep_no_buffers(driver: Which) {
    let mut harness = Harness::on(driver);
    for _ in 0..10 {
        let pairs: Vec<_> = (0..20).map(|_| harness.pair(Family::Unix)).collect();
        pairs.iter().for_each(|(token, _)| harness.receive(*token, true));
        harness.run_until_idle();
        for (_, peer) in &pairs {
            let mut peer = peer;
            peer.write_all(b"too late").unwrap();
        }
        harness.driver.wait(Some(PATIENCE)).unwrap();
        pairs.iter().for_each(|(token, _)| harness.start_close(*token, false));
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
