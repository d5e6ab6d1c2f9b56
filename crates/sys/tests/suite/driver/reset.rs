//! Connections that break: the failure is reported once, after the bytes that arrived before it if those are wanted.

use std::io::{ErrorKind, Write};

use tidegate_buffer::Outbound;
use tidegate_sys::Operation;

use crate::driver::harness::{Family, Harness, Report, pattern, read, reset};
use crate::driver::which::Which;

pub(crate) fn bytes_before_a_reset_are_reported_first(driver: Which) {
    for length in [10, 100_000] {
        let mut harness = Harness::on(driver);
        let (token, mut peer) = harness.pair(Family::Tcp);
        harness.receive(token, true);
        let bytes = pattern(length);
        peer.write_all(&bytes).unwrap();
        reset(peer);
        let reports = harness.until_report(token, &Report::Failed(ErrorKind::ConnectionReset));
        assert_eq!(reports, [Report::Received(bytes), Report::Failed(ErrorKind::ConnectionReset)]);
        harness.assert_quiet();
        assert_eq!(harness.take(token), []);
    }
}

pub(crate) fn a_reset_is_reported_to_a_receiving_socket(driver: Which) {
    let mut harness = Harness::on(driver);
    let (token, peer) = harness.pair(Family::Tcp);
    harness.receive(token, true);
    harness.run_until_idle();
    reset(peer);
    let failed = Report::Failed(ErrorKind::ConnectionReset);
    assert_eq!(harness.until_report(token, &failed), [failed]);
    harness.assert_quiet();
    assert_eq!(harness.take(token), []);
}

pub(crate) fn a_failure_is_the_last_report_of_a_socket_that_does_not_receive(driver: Which) {
    let mut harness = Harness::on(driver);
    let (token, mut peer) = harness.pair(Family::Tcp);
    peer.write_all(b"never read").unwrap();
    harness.run_until_idle();
    reset(peer);
    let failed = Report::Failed(ErrorKind::ConnectionReset);
    assert_eq!(harness.until_report(token, &failed), [failed]);
    harness.receive(token, true);
    harness.run_until_idle();
    assert_eq!(harness.take(token), [], "a report after the failure");
    harness.assert_quiet();
}

pub(crate) fn a_reset_after_the_end_is_reported_once(driver: Which) {
    for receiving in [false, true] {
        let mut harness = Harness::on(driver);
        let (token, peer) = harness.pair(Family::Tcp);
        harness.receive(token, true);
        peer.shutdown(std::net::Shutdown::Write).unwrap();
        assert_eq!(harness.until_report(token, &Report::Ended), [Report::Ended]);
        harness.receive(token, receiving);
        reset(peer);
        harness.run_until_idle();
        let taken = harness.take(token);
        assert!(matches!(taken[..], [Report::Failed(ErrorKind::BrokenPipe | ErrorKind::ConnectionReset)]), "{taken:?}");
        harness.assert_quiet();
        assert_eq!(harness.take(token), []);
    }
}

pub(crate) fn a_unix_peer_that_closes_with_unread_bytes_breaks_the_connection(driver: Which) {
    let mut harness = Harness::on(driver);
    let (token, mut peer) = harness.pair(Family::Unix);
    harness.receive(token, true);
    let mut queue = Outbound::new(&harness.pool);
    queue.write(b"never read");
    queue.flush();
    harness.send_all(token, &mut queue, usize::MAX).unwrap();
    peer.write_all(b"bye").unwrap();
    drop(peer);
    let reports = harness.until_report(token, &Report::Failed(ErrorKind::ConnectionReset));
    assert_eq!(reports, [Report::Received(b"bye".to_vec()), Report::Failed(ErrorKind::ConnectionReset)]);
    harness.assert_quiet();
    assert_eq!(harness.take(token), []);
}

pub(crate) fn a_reset_ends_a_blocked_send(driver: Which) {
    for receiving in [false, true] {
        let mut harness = Harness::on(driver);
        let (token, peer) = harness.pair(Family::Tcp);
        harness.receive(token, receiving);
        let mut queue = Outbound::new(&harness.pool);
        queue.link_bytes(pattern(32 << 20).into());
        queue.flush();
        harness.send_until_full(token, &mut queue);
        reset(peer);
        let sent = harness.until(|harness| match harness.take(token).first() {
            None => None,
            Some(Report::Sent(Ok(0))) => Some(harness.send(token, &mut queue, usize::MAX)),
            Some(Report::Failed(kind) | Report::Sent(Err(kind))) => Some(Some(Err((*kind).into()))),
            other => panic!("{other:?}"),
        });
        let Some(Err(error)) = sent else { panic!("{sent:?}") };
        assert!(matches!(error.kind(), ErrorKind::ConnectionReset | ErrorKind::BrokenPipe), "{error}");
        harness.close(token, false);
    }
}

/// A send and a receive find the same error, and the kernel returns it to only one of them.
pub(crate) fn a_reset_in_a_bidirectional_transfer_is_reported_before_any_end(driver: Which) {
    for (first, then) in [(1, 1), (50_000, 1), (1, 50_000)] {
        let mut harness = Harness::on(driver);
        let (token, mut peer) = harness.pair(Family::Tcp);
        let mut receive = |harness: &mut Harness, length| {
            harness.receive(token, true);
            peer.write_all(&pattern(length)).unwrap();
            harness.until_received(token, length);
            harness.run_until_idle();
        };
        receive(&mut harness, first);
        let mut queue = Outbound::new(&harness.pool);
        queue.link_bytes(pattern(32 << 20).into());
        queue.flush();
        harness.send_until_full(token, &mut queue);
        receive(&mut harness, then);
        reset(peer);
        harness.until(|harness| {
            // With epoll the driver reports that the loop can send again, and that send fails.
            if harness.sent(token, |sent| *sent == Ok(0)).is_some()
                && let Some(Err(_)) = harness.send(token, &mut queue, usize::MAX)
            {
                return Some(());
            }
            match harness.reports(token) {
                [] => None,
                [Report::Failed(_) | Report::Sent(Err(_)), ..] => Some(()),
                other => panic!("{other:?}, after {first} bytes and then {then}"),
            }
        });
    }
}

/// The send takes the error from the kernel, where the receive then finds an end.
pub(crate) fn a_reset_that_a_send_finds_first_is_reported_and_is_no_end(driver: Which) {
    for received in [1, 100_000] {
        let mut harness = Harness::on(driver);
        let (token, mut peer) = harness.pair(Family::Tcp);
        harness.receive(token, true);
        peer.write_all(&pattern(received)).unwrap();
        harness.until_received(token, received);
        harness.run_until_idle();
        reset(peer);
        let mut queue = Outbound::new(&harness.pool);
        while {
            queue.write(b"x");
            queue.flush();
            harness.send_all(token, &mut queue, usize::MAX).is_ok()
        } {}
        harness.until(|harness| {
            harness.reports(token).contains(&Report::Failed(ErrorKind::ConnectionReset)).then_some(())
        });
        harness.run_until_idle();
        let reports = harness.take(token);
        let is_send = |report: &Report| matches!(report, Report::Sent(_));
        let others: Vec<_> = reports.into_iter().filter(|report| !is_send(report)).collect();
        assert_eq!(others, [Report::Failed(ErrorKind::ConnectionReset)]);
    }
}

pub(crate) fn a_connection_may_break_in_both_directions_at_once(driver: Which) {
    let mut harness = Harness::on(driver);
    let pairs: Vec<_> = (0..50).map(|_| harness.pair(Family::Tcp)).collect();
    let tokens: Vec<_> = pairs.iter().map(|(token, _)| *token).collect();
    for (index, (token, mut peer)) in pairs.into_iter().enumerate() {
        harness.receive(token, index % 2 == 0);
        if index % 3 == 0 {
            harness.submit(token, Operation::ShutdownWrite);
            assert_eq!(read(&peer, usize::MAX), b"");
        }
        if index % 5 == 0 {
            peer.write_all(b"x").unwrap();
        }
        reset(peer);
    }
    harness.run_until_idle();
    for token in tokens {
        let reports = harness.take(token);
        let failures = reports.iter().filter(|report| matches!(report, Report::Failed(_))).count();
        assert_eq!(failures, 1, "{reports:?}");
        assert!(matches!(reports.last(), Some(Report::Failed(_))), "{reports:?}");
    }
    harness.assert_quiet();
}
