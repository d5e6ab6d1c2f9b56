//! Time: sleeps, timeouts, intervals, by a clock that the test moves.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use tidegate_codec::framing::Lines;
use tidegate_engine::{Channel, task};
use tidegate_testkit::Embedded;

use crate::journal::{Journal, once};
use crate::task::support::{Drops, event_loop, never};

const SECOND: Duration = Duration::from_secs(1);

/// A loop with a clock; its connection does nothing.
fn clock() -> Embedded<std::convert::Infallible> {
    Embedded::serving(Lines::new(), |channel: Channel<Lines>| async move {
        let _channel = channel;
        never().await;
        Ok::<(), std::io::Error>(())
    })
}

#[test]
fn sleeps_end_when_they_are_due_and_in_that_order() {
    let journal = Journal::default();
    let mut clock = clock();
    for seconds in [5, 1, 3, 90_000, 1] {
        let notes = journal.clone();
        clock.spawn(async move {
            let begun = task::now();
            task::sleep(SECOND * seconds).await;
            assert_eq!(task::now() - begun, SECOND * seconds);
            notes.note(seconds.to_string());
        });
    }
    clock.advance(SECOND * 1 - Duration::from_millis(1));
    assert_eq!(journal.take(), [""; 0]);
    clock.advance(Duration::from_millis(1));
    assert_eq!(journal.take(), ["1", "1"]);
    clock.advance(SECOND * 100_000);
    assert_eq!(journal.take(), ["3", "5", "90000"]);
}

#[test]
fn a_sleep_longer_than_the_wheel_reaches_ends_when_it_is_due() {
    let mut clock = clock();
    let days = SECOND * 86_400;
    let sleeping = clock.spawn(task_sleep(days * 30));
    let never = clock.spawn(task_sleep(Duration::MAX));
    clock.advance(days * 30 - SECOND);
    assert!(!sleeping.is_finished());
    clock.advance(SECOND);
    assert!(sleeping.is_finished() && !never.is_finished());
}

async fn task_sleep(duration: Duration) {
    task::sleep(duration).await;
}

#[test]
fn a_sleep_until_a_past_time_ends_at_once() {
    let mut event_loop = event_loop();
    event_loop
        .block_on(async {
            assert!(once(task::sleep(Duration::ZERO)).await.is_some());
            assert!(once(task::sleep_until(task::now())).await.is_some());
            assert_eq!(task::timeout(Duration::ZERO, async { 1 }).await, Ok(1), "the future is polled first");
            assert!(task::timeout(Duration::ZERO, never()).await.is_err());
        })
        .expect("waiting does not fail");
}

#[test]
fn sleep_until_waits_for_a_time() {
    let mut clock = clock();
    let begun = clock.spawn(async { task::now() });
    let slept = clock.spawn(async move {
        let begun = begun.await.expect("it is fine");
        task::sleep_until(begun + SECOND * 2).await;
        assert_eq!(task::now(), begun + SECOND * 2);
    });
    clock.advance(SECOND);
    assert!(!slept.is_finished());
    clock.advance(SECOND);
    assert!(slept.is_finished());
}

#[test]
fn of_a_timeout_and_its_future_the_first_wins_and_the_other_is_dropped() {
    let journal = Journal::default();
    let drops = Rc::new(Cell::new(0));
    let mut clock = clock();
    for (patience, takes) in [(2, 1), (1, 2)] {
        let (notes, guard) = (journal.clone(), Drops(drops.clone()));
        clock.spawn(async move {
            let inner = async move {
                let _guard = guard;
                task::sleep(SECOND * takes).await;
            };
            let result = task::timeout(SECOND * patience, inner).await;
            notes.note(format!("{takes} {}", result.is_ok()));
        });
    }
    clock.advance(SECOND);
    let mut noted = journal.take();
    noted.sort();
    assert_eq!(noted, ["1 true", "2 false"]);
    assert_eq!(drops.get(), 2);
}

#[test]
fn an_interval_keeps_its_rhythm_and_missed_ticks_are_not_made_up_for() {
    let journal = Journal::default();
    let notes = journal.clone();
    let mut clock = clock();
    clock.spawn(async move {
        let begun = task::now();
        let mut interval = task::interval(SECOND);
        for number in 0..6 {
            if number == 3 {
                task::sleep(Duration::from_millis(3_500)).await;
            } else if number > 0 {
                assert!(once(interval.tick()).await.is_none(), "it is not due, and a poll loses no tick");
            }
            let due = interval.tick().await;
            notes.note(format!("{} at {}", (due - begun).as_millis(), (task::now() - begun).as_millis()));
        }
    });
    clock.advance(SECOND * 20);
    let expected = ["0 at 0", "1000 at 1000", "2000 at 2000", "3000 at 5500", "6000 at 6000", "7000 at 7000"];
    assert_eq!(journal.take(), expected);
}

#[test]
fn a_sleep_that_is_dropped_leaves_no_timer() {
    let mut clock = clock();
    clock.spawn(async {
        for _ in 0..1000 {
            assert!(once(task::sleep(SECOND * 5)).await.is_none());
        }
    });
    let before = clock.counts().turns;
    clock.advance(SECOND * 60);
    assert!(clock.counts().turns - before < 300, "{} turns", clock.counts().turns - before);
}

#[test]
fn a_sleep_may_move_to_another_task() {
    let mut clock = clock();
    let moved = clock.spawn(async {
        let mut sleep = Box::pin(task::sleep(SECOND));
        assert!(once(sleep.as_mut()).await.is_none());
        task::spawn(sleep).await.expect("it is fine");
    });
    clock.advance(SECOND);
    assert!(moved.is_finished());
}

#[test]
fn an_interval_too_long_to_represent_ticks_once() {
    let mut clock = clock();
    let ticks = Rc::new(Cell::new(0));
    let counted = ticks.clone();
    clock.spawn(async move {
        let mut interval = task::interval(Duration::MAX);
        while counted.get() < 10 {
            interval.tick().await;
            counted.set(counted.get() + 1);
        }
    });
    clock.advance(SECOND * 100_000);
    assert_eq!(ticks.get(), 1);
}

#[test]
fn repeated_zero_sleeps_do_not_block_the_loop() {
    let over = Rc::new(Cell::new(false));
    let noting = over.clone();
    let slept = event_loop().block_on(async move {
        let other = task::spawn(async move {
            task::sleep(Duration::from_millis(5)).await;
            noting.set(true);
        });
        let begun = std::time::Instant::now();
        while !over.get() && begun.elapsed() < SECOND * 60 {
            task::sleep(Duration::ZERO).await;
        }
        assert!(over.get(), "no other task ran");
        other.await
    });
    slept.expect("waiting does not fail").expect("it is fine");
}
