//! Waiting, waking, and events with unknown names.

use std::os::fd::AsRawFd;
use std::time::Duration;

use super::fake::Faults;
use super::stage::{Report, Stage};
use crate::driver::Token;
use crate::uring::NO_SOCKET;
use crate::uring::kernel::Event;
use crate::uring::operation::{Kind, name};
use crate::wake::Wake;

fn wake(stage: &mut Stage) {
    stage.driver.waker.wake();
    let waker = stage.driver.waker.0.as_raw_fd();
    stage.driver.kernel.notify(waker);
}

#[test]
fn an_idle_driver_sleeps_for_the_whole_timeout_and_submits_nothing() {
    let mut stage = Stage::new();
    let _pairs: Vec<_> = (0..10).map(|_| stage.receiving()).collect();
    let before = stage.driver.kernel.requests.len();
    for timeout in [None, Some(Duration::from_secs(7))] {
        stage.driver.wait(timeout).unwrap();
        assert!(stage.next().is_none() && stage.driver.kernel.slept);
        assert_eq!(stage.driver.kernel.timeout, timeout);
    }
    assert_eq!(stage.driver.kernel.requests.len(), before);
}

#[test]
fn a_wake_up_is_reported_after_the_kernel_ended_its_poll() {
    let mut stage = Stage::new();
    for result in [libc::POLLIN.into(), -libc::ECANCELED, -libc::EINTR] {
        stage.run_until_idle();
        stage.driver.kernel.lose(name(NO_SOCKET, Kind::Wake), result, None);
        stage.run_until_idle();
        stage.take(NO_SOCKET);
        wake(&mut stage);
        stage.run_until_idle();
        assert_eq!(stage.take(NO_SOCKET), [Report::Woken], "{result}");
    }
}

#[test]
fn wait_does_not_block_before_the_kernel_has_the_poll_of_the_waker() {
    for _ in 0..20 {
        let mut stage = Stage::new();
        stage.driver.kernel.faults = Faults { refuse: 20, ..Faults::default() };
        stage.run_until_idle();
        wake(&mut stage);
        stage.run_until_idle();
        assert_eq!(stage.take(NO_SOCKET), [Report::Woken]);
    }
}

#[test]
fn a_repeated_end_of_the_waker_is_ignored() {
    let mut stage = Stage::new();
    stage.run_until_idle();
    stage.driver.kernel.lose(name(NO_SOCKET, Kind::Wake), -libc::ECANCELED, None);
    stage.inject(NO_SOCKET, Kind::Wake, -libc::ECANCELED, false);
    stage.run_until_idle();
    let Stage { driver, pool, .. } = stage;
    drop(driver);
    assert_eq!(pool.ledger().used(), 0);
}

#[test]
fn events_with_unknown_names_change_nothing() {
    let mut stage = Stage::new();
    let (token, peer) = stage.receiving();
    let strangers = [
        Token { slot: token.slot, generation: token.generation + 1 },
        Token { slot: 1000, generation: 1 },
        Token { slot: u32::MAX - 1, generation: 0 },
    ];
    let kinds = Kind::OF_SOCKETS.into_iter().chain([Kind::Wake, Kind::Cancel]);
    for kind in kinds {
        for stranger in strangers {
            for more in [false, true] {
                stage.inject(stranger, kind, -libc::EIO, more);
            }
        }
    }
    // Events of operations that a socket does not have are ignored as well.
    for kind in [Kind::Send, Kind::Writable, Kind::Accept, Kind::Wake] {
        stage.inject(token, kind, -libc::EIO, false);
    }
    stage.run_until_idle();
    let buffer = stage.driver.kernel.take_buffer();
    let name = name(strangers[1], Kind::Receive);
    stage.driver.kernel.inject(Event { name, result: 5, more: true, buffer: Some(buffer), nonempty: false });
    stage.write(token, &peer, b"undisturbed");
    stage.run_until_idle();
    assert_eq!(stage.take(token), [Report::Received(b"undisturbed".to_vec())]);
    assert!(strangers.iter().all(|stranger| stage.reports(*stranger).is_empty()));
    assert!(stage.reports(NO_SOCKET).is_empty());
    stage.run_until_idle();
    assert_eq!(stage.driver.kernel.ring(), usize::from(stage.driver.buffers.count()));
}

#[test]
fn requests_that_the_kernel_refuses_for_a_while_are_submitted_later() {
    let mut stage = Stage::new();
    stage.driver.kernel.faults = Faults { refuse: 100, interrupt: 100, ..Faults::default() };
    let pairs: Vec<_> = (0..50).map(|_| stage.receiving()).collect();
    for (token, peer) in &pairs {
        stage.write(*token, peer, b"in the end");
    }
    stage.run_until_idle();
    for (token, _) in &pairs {
        assert_eq!(stage.take(*token), [Report::Received(b"in the end".to_vec())]);
    }
}
