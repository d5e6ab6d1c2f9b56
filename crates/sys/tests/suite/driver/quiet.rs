//! A driver without completions waits: no state of a socket makes it spin.

use std::io::Write;
use std::net::Shutdown;
use std::time::{Duration, Instant};

use tidegate_buffer::Outbound;
use tidegate_sys::Operation;

use crate::driver::harness::{Family, Harness, Report, pattern, reset};
use crate::driver::which::Which;

impl Harness {
    /// Checks that waits block. Each wait has a timeout. A driver that spins returns from all of them at once; one with
    /// a few spurious wake-ups still blocks in most.
    pub(crate) fn assert_quiet(&mut self) {
        self.run_until_idle();
        let start = Instant::now();
        for _ in 0..WAITS {
            let completions = self.turn(Instant::now() + WAIT);
            assert_eq!(completions, 0, "{:?}", self.take_all());
        }
        assert!(start.elapsed() >= WAIT * WAITS / 2, "it spins after {:?}", self.take_all());
    }
}

pub(crate) fn a_new_connection_is_quiet(driver: Which) {
    for family in Family::BOTH {
        let mut harness = Harness::on(driver);
        let (token, _peer) = harness.pair(family);
        harness.receive(token, true);
        harness.assert_quiet();
    }
}

pub(crate) fn unwanted_bytes_are_quiet(driver: Which) {
    for family in Family::BOTH {
        let mut harness = Harness::on(driver);
        let (_token, mut peer) = harness.pair(family);
        peer.write_all(&pattern(50_000)).unwrap();
        harness.assert_quiet();
        peer.shutdown(Shutdown::Write).unwrap();
        harness.assert_quiet();
    }
}

pub(crate) fn a_half_closed_connection_is_quiet(driver: Which) {
    for family in Family::BOTH {
        let mut harness = Harness::on(driver);
        let (token, peer) = harness.pair(family);
        harness.receive(token, true);
        peer.shutdown(Shutdown::Write).unwrap();
        assert_eq!(harness.until_report(token, &Report::Ended), [Report::Ended]);
        harness.assert_quiet();
        harness.submit(token, Operation::ShutdownWrite);
        harness.assert_quiet();
    }
}

pub(crate) fn a_reset_after_a_half_close_is_quiet(driver: Which) {
    for ours in [false, true] {
        for receiving in [false, true] {
            let mut harness = Harness::on(driver);
            let (token, peer) = harness.pair(Family::Tcp);
            harness.receive(token, receiving);
            if ours {
                harness.submit(token, Operation::ShutdownWrite);
            } else {
                peer.shutdown(Shutdown::Write).unwrap();
            }
            harness.run_until_idle();
            harness.take(token);
            reset(peer);
            harness.run_until_idle();
            let reports = harness.take(token);
            assert!(matches!(reports[..], [Report::Failed(_)]), "{reports:?}, ours: {ours}, receiving: {receiving}");
            harness.assert_quiet();
            harness.receive(token, true);
            harness.run_until_idle();
            assert_eq!(harness.take(token), [], "ours: {ours}, receiving: {receiving}");
            harness.assert_quiet();
        }
    }
}

pub(crate) fn a_send_that_waits_is_quiet(driver: Which) {
    for family in Family::BOTH {
        let mut harness = Harness::on(driver);
        let (token, _peer) = harness.pair(family);
        let mut queue = Outbound::new(&harness.pool);
        queue.link_bytes(pattern(32 << 20).into());
        queue.flush();
        harness.send_until_full(token, &mut queue);
        harness.assert_quiet();
    }
}

pub(crate) fn a_driver_with_paused_receives_is_quiet(driver: Which) {
    let mut harness = Harness::on(driver);
    let (token, mut peer) = harness.pair(Family::Tcp);
    harness.receive(token, true);
    // The pause applies to the fence as well, so the test can only check that the driver stays quiet.
    harness.driver.pause_receives(true);
    peer.write_all(b"later").unwrap();
    let start = Instant::now();
    for _ in 0..WAITS {
        harness.turn(Instant::now() + WAIT);
        assert!(harness.bytes_received() <= driver.paused_bytes_max());
    }
    assert!(start.elapsed() >= WAIT * WAITS / 2, "it spins");
}

const WAIT: Duration = Duration::from_millis(10);
const WAITS: u32 = 10;
