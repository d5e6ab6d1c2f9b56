//! Waking a driver from any thread.

use std::io::Write;
use std::thread;
use std::time::{Duration, Instant};

use tidegate_sys::Completion;

use crate::driver::harness::{Family, Harness, PATIENCE, Report};
use crate::driver::which::Which;

/// Waits until a turn has wake-ups, and returns their number. A wait may end without one, but the whole is bounded by
/// `PATIENCE`.
fn wait(harness: &mut Harness) -> usize {
    let deadline = Instant::now() + PATIENCE;
    let mut woken = 0;
    while woken == 0 {
        assert!(Instant::now() < deadline, "the wake-up was lost");
        harness.driver.wait(Some(PATIENCE)).unwrap();
        while let Some((_, completion)) = harness.next() {
            assert!(matches!(completion, Completion::Woken), "{completion:?}");
            woken += 1;
        }
    }
    woken
}

pub(crate) fn another_thread_ends_a_wait(driver: Which) {
    let mut harness = Harness::on(driver);
    for _ in 0..20 {
        let waker = harness.driver.waker();
        let thread = thread::spawn(move || waker.wake());
        assert_eq!(wait(&mut harness), 1);
        thread.join().unwrap();
    }
}

pub(crate) fn a_wake_before_the_wait_is_not_lost(driver: Which) {
    let mut harness = Harness::on(driver);
    let waker = harness.driver.waker();
    for _ in 0..20 {
        waker.wake();
        assert_eq!(wait(&mut harness), 1);
    }
}

pub(crate) fn a_wake_between_wait_and_next_is_not_lost(driver: Which) {
    let mut harness = Harness::on(driver);
    harness.run_until_idle();
    let waker = harness.driver.waker();
    waker.wake();
    harness.driver.wait(Some(PATIENCE)).unwrap();
    waker.wake();
    assert!(matches!(harness.next(), Some((_, Completion::Woken))));
    // A driver may report the second wake within the same turn.
    let rest: Vec<_> = std::iter::from_fn(|| harness.next()).collect();
    match &rest[..] {
        [] => assert_eq!(wait(&mut harness), 1),
        [(_, Completion::Woken)] => {}
        other => panic!("{other:?}"),
    }
}

pub(crate) fn many_wakes_are_one(driver: Which) {
    let mut harness = Harness::on(driver);
    let waker = harness.driver.waker();
    for _ in 0..1000 {
        waker.clone().wake();
    }
    assert_eq!(wait(&mut harness), 1);
    harness.assert_quiet();
}

pub(crate) fn no_wake_is_lost_among_many_threads_and_a_busy_socket(driver: Which) {
    let mut harness = Harness::on(driver);
    let (token, mut peer) = harness.pair(Family::Unix);
    harness.receive(token, true);
    let (sender, messages) = std::sync::mpsc::channel::<()>();
    let threads: Vec<_> = (0..4)
        .map(|_| {
            let (waker, sender) = (harness.driver.waker(), sender.clone());
            thread::spawn(move || {
                for _ in 0..500 {
                    sender.send(()).unwrap();
                    waker.wake();
                }
            })
        })
        .collect();
    drop(sender);
    let writer = thread::spawn(move || {
        for _ in 0..1000 {
            peer.write_all(b"x").unwrap();
        }
        peer
    });
    let (mut posts, mut received) = (0, 0);
    // Messages are read only after a wake-up, so the test would not end if one was lost.
    harness.until(|harness| {
        for report in harness.take_all().into_values().flatten() {
            match report {
                Report::Woken => posts += messages.try_iter().count(),
                Report::Received(bytes) => received += bytes.len(),
                other => panic!("{other:?}"),
            }
        }
        (posts == 2000 && received == 1000).then_some(())
    });
    for thread in threads {
        thread.join().unwrap();
    }
    drop(writer.join().unwrap());
}

pub(crate) fn a_wake_after_the_driver_is_gone_does_nothing(driver: Which) {
    let harness = Harness::on(driver);
    let waker = harness.driver.waker();
    drop(harness);
    waker.wake();
    thread::spawn(move || waker.wake()).join().unwrap();
}

pub(crate) fn a_wait_ends_with_its_timeout(driver: Which) {
    let mut harness = Harness::on(driver);
    harness.run_until_idle();
    for timeout in [Duration::ZERO, Duration::from_micros(1500), Duration::from_millis(20)] {
        let start = Instant::now();
        assert_eq!(harness.turn(start + timeout), 0);
    }
    harness.driver.wait(Some(Duration::ZERO)).unwrap();
    assert!(harness.next().is_none());
}
