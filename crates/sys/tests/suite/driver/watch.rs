//! The end of a peer that the loop watches for is reported although bytes before it are unread.

use std::io::Write;
use std::net::Shutdown;

use crate::driver::harness::{Family, Harness, Report, assert_same, pattern};
use crate::driver::which::Which;

pub(crate) fn a_watched_end_behind_unread_bytes_is_reported_once(driver: Which) {
    for family in Family::BOTH {
        for bytes in [0, 5, 50_000] {
            let mut harness = Harness::on(driver);
            let (token, mut peer) = harness.pair(family);
            harness.driver.watch_end(token);
            peer.write_all(&pattern(bytes)).unwrap();
            harness.run_until_idle();
            assert_eq!(harness.take(token), [], "the peer has not ended");
            peer.shutdown(Shutdown::Write).unwrap();
            assert_eq!(harness.until_report(token, &Report::HungUp), [Report::HungUp]);
            harness.assert_quiet();
            harness.receive(token, true);
            let mut reports = harness.until_report(token, &Report::Ended);
            assert_eq!(reports.pop(), Some(Report::Ended), "once, and nothing behind it");
            let received = match &reports[..] {
                [] => &[],
                [Report::Received(received)] => &received[..],
                _ => panic!("something else than bytes was reported"),
            };
            assert_same(received, &pattern(bytes));
            harness.assert_quiet();
        }
    }
}

pub(crate) fn an_end_that_came_before_the_watch_is_reported(driver: Which) {
    for family in Family::BOTH {
        let mut harness = Harness::on(driver);
        let (token, mut peer) = harness.pair(family);
        peer.write_all(&pattern(5)).unwrap();
        peer.shutdown(Shutdown::Write).unwrap();
        harness.run_until_idle();
        assert_eq!(harness.take(token), [], "nothing watches");
        for _ in 0..3 {
            harness.driver.watch_end(token);
            assert_eq!(harness.until_report(token, &Report::HungUp), [Report::HungUp]);
        }
        harness.assert_quiet();
    }
}

pub(crate) fn a_watched_end_that_is_received_is_reported_behind_it(driver: Which) {
    for family in Family::BOTH {
        let mut harness = Harness::on(driver);
        let (token, mut peer) = harness.pair(family);
        harness.driver.watch_end(token);
        harness.receive(token, true);
        peer.write_all(&pattern(5)).unwrap();
        peer.shutdown(Shutdown::Write).unwrap();
        let expected = [Report::Received(pattern(5)), Report::Ended, Report::HungUp];
        assert_eq!(harness.until_report(token, &Report::HungUp), expected);
        harness.driver.watch_end(token);
        assert_eq!(harness.until_report(token, &Report::HungUp), [Report::HungUp]);
        harness.assert_quiet();
    }
}

/// Whether it has received little or much, and whatever was armed while it did.
pub(crate) fn a_watched_end_is_reported_to_a_socket_that_has_stopped_receiving(driver: Which) {
    for family in Family::BOTH {
        for bytes in [5, 500_000] {
            for watched_before in [false, true] {
                let mut harness = Harness::on(driver);
                let (token, peer) = harness.pair(family);
                if watched_before {
                    harness.driver.watch_end(token);
                }
                harness.receive(token, true);
                let sending = std::thread::spawn(move || {
                    let mut peer = peer;
                    peer.write_all(&pattern(bytes)).unwrap();
                    peer
                });
                harness.until_received(token, bytes);
                let mut peer = sending.join().unwrap();
                harness.pause(token);
                if !watched_before {
                    harness.driver.watch_end(token);
                }
                harness.run_until_idle();
                // A receive that was in flight may take the first bytes, but none behind it does.
                peer.write_all(&pattern(5)).unwrap();
                harness.run_until_idle();
                peer.write_all(&pattern(5)).unwrap();
                peer.shutdown(Shutdown::Write).unwrap();
                let reports = harness.until_report(token, &Report::HungUp);
                assert_eq!(reports.last(), Some(&Report::HungUp));
                harness.assert_quiet();
            }
        }
    }
}
