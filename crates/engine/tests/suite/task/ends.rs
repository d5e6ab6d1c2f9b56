//! How tasks end: with a value, a panic, a cancel, or the loop.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use tidegate_codec::Slice;
use tidegate_codec::framing::Lines;
use tidegate_engine::task::{Task, TaskError};
use tidegate_engine::{Channel, ChannelError, CloseReason, Context, EventLoop, Handler, Outcome, task};
use tidegate_testkit::Embedded;

use crate::journal::once;
use crate::task::support::{Drops, event_loop, never, open, say, turns, yield_now};

#[test]
fn a_handle_yields_how_its_task_ended() {
    let mut event_loop = event_loop();
    event_loop
        .block_on(async {
            assert_eq!(task::spawn(async { 42 }).await, Ok(42));
            let panics = task::spawn(async { panic!("on request") });
            assert_eq!(panics.await, Err::<(), _>(TaskError::Panicked));
            let late = task::spawn(async {
                yield_now().await;
                panic!("on request")
            });
            assert_eq!(late.await, Err(TaskError::Panicked));
            let (finished, running) = (task::spawn(async {}), task::spawn(never()));
            yield_now().await;
            assert!(finished.is_finished() && !running.is_finished());
            assert_eq!(finished.await, Ok(()));
            running.cancel();
        })
        .expect("waiting does not fail");
    turns(&mut event_loop, 1);
    assert_eq!(event_loop.counts().tasks_panicked, 2);
}

#[test]
fn a_cancelled_task_is_dropped_at_once() {
    let drops = Rc::new(Cell::new(0));
    let mut event_loop = event_loop();
    for runs_first in [false, true] {
        let guard = Drops(drops.clone());
        let task = event_loop.spawn(async move {
            let _guard = guard;
            never().await;
        });
        if runs_first {
            turns(&mut event_loop, 1);
        }
        task.cancel();
        assert_eq!(drops.replace(0), 1);
    }
    turns(&mut event_loop, 1);
}

#[test]
fn a_task_may_cancel_itself_while_it_runs() {
    let drops = Rc::new(Cell::new(0));
    let mut event_loop = event_loop();
    for goes_on in [false, true] {
        let own: Rc<RefCell<Option<Task<()>>>> = Rc::default();
        let (mine, guard) = (own.clone(), Drops(drops.clone()));
        let task = event_loop.spawn(async move {
            let guard = guard;
            mine.take().expect("it was put there").cancel();
            assert_eq!(guard.0.get(), 0, "not while it runs");
            // Another task may begin in its place at once, with another token.
            task::spawn(yield_now());
            if goes_on {
                never().await;
            }
        });
        own.replace(Some(task));
        turns(&mut event_loop, 2);
        assert_eq!(drops.replace(0), 1);
    }
    assert_eq!(event_loop.counts().tasks_panicked, 0);
}

#[test]
fn a_task_that_is_awaited_when_its_loop_has_ended_was_cancelled() {
    let mut ended = event_loop();
    let running = ended.spawn(async {
        never().await;
        1
    });
    let done = ended.spawn(async { 2 });
    turns(&mut ended, 1);
    drop(ended);
    let mut event_loop = event_loop();
    let results = event_loop.block_on(async move { (running.await, done.await) });
    assert_eq!(results.expect("waiting does not fail"), (Err(TaskError::Cancelled), Ok(2)));
}

#[test]
fn awaiting_a_task_of_another_loop_ends_with_that_loop() {
    let mut other = event_loop();
    let running = other.spawn(never());
    let mut event_loop = event_loop();
    let waiting = event_loop.spawn(running);
    turns(&mut event_loop, 1);
    drop(other);
    turns(&mut event_loop, 1);
    assert!(waiting.is_finished());
}

#[test]
fn a_task_that_panics_ends_alone_and_closes_its_channel_as_a_handler_would() {
    let mut event_loop = event_loop();
    let (mut first, mut peer) = open(&mut event_loop);
    let (mut second, mut other) = open(&mut event_loop);
    let panics = event_loop.spawn(async move {
        first.recv().await.expect("it is open");
        panic!("on request");
    });
    let echoes = event_loop.spawn(async move {
        while let Ok(Some(line)) = second.recv().await {
            second.send(line.into()).expect("it is open");
        }
    });
    turns(&mut event_loop, 1);
    say(&mut peer, b"x\n");
    say(&mut other, b"y\n");
    turns(&mut event_loop, 3);
    assert!(panics.is_finished() && !echoes.is_finished());
    assert_eq!(crate::task::support::received(&mut other), b"y\n");
    drop(peer);
    turns(&mut event_loop, 3);
    let counts = event_loop.counts();
    assert_eq!((counts.tasks_panicked, counts.closed_panicked, counts.connections), (1, 1, 1));
}

#[test]
fn a_panic_in_the_drop_of_a_task_affects_no_other() {
    struct Bomb;

    impl Drop for Bomb {
        fn drop(&mut self) {
            assert!(std::thread::panicking(), "on request");
        }
    }

    let mut event_loop = event_loop();
    event_loop.spawn(async { drop(Bomb) });
    let waiting = event_loop.spawn(async {
        let _bomb = Bomb;
        never().await;
    });
    let other = event_loop.spawn(yield_now());
    turns(&mut event_loop, 2);
    waiting.cancel();
    assert!(other.is_finished());
    event_loop.spawn(async {
        let _bomb = Bomb;
        never().await;
    });
    turns(&mut event_loop, 1);
    drop(event_loop);
}

/// The tasks that are dropped here own every kind of object that a task can own.
#[test]
fn tasks_are_dropped_when_the_loop_ends() {
    let drops = Rc::new(Cell::new(0));
    for turned in 0..4 {
        let mut event_loop = event_loop();
        let mut peers = Vec::new();
        for kind in 0..6 {
            let (mut channel, peer) = open(&mut event_loop);
            peers.push(peer);
            let guard = Drops(drops.clone());
            event_loop.spawn(async move {
                let _guard = guard;
                let inner = Drops(_guard.0.clone());
                let nested = task::spawn(async move {
                    let _inner = inner;
                    task::sleep(Duration::from_secs(3600)).await;
                });
                let mut interval = task::interval(Duration::from_secs(60));
                interval.tick().await;
                match kind {
                    0 => drop(channel.recv().await),
                    1 => drop(channel.recv().within(Duration::from_secs(60)).await),
                    2 => drop(task::timeout(Duration::from_secs(60), nested).await),
                    3 => drop(channel.close().await),
                    4 => {
                        let (mut reader, writer) = channel.split();
                        task::spawn(async move {
                            let _writer = writer;
                            never().await;
                        });
                        drop(reader.recv().await);
                    }
                    _ => drop(interval.tick().await),
                }
                never().await;
            });
        }
        turns(&mut event_loop, turned);
        drop(event_loop);
        assert_eq!(drops.replace(0), if turned == 0 { 6 } else { 12 }, "turned {turned}");
    }
}

#[test]
fn handles_outside_of_any_task_survive_their_loop() {
    let mut event_loop = event_loop();
    let (channel, peer) = open(&mut event_loop);
    let (gone, _) = open(&mut event_loop);
    let (sleep, mut interval) = event_loop
        .block_on(async {
            let mut sleep = Box::pin(task::sleep(Duration::from_secs(60)));
            assert!(once(sleep.as_mut()).await.is_none());
            let mut interval = task::interval(Duration::from_secs(60));
            interval.tick().await;
            assert!(once(interval.tick()).await.is_none());
            (sleep, interval)
        })
        .expect("waiting does not fail");
    turns(&mut event_loop, 3);
    let gone = event_loop.block_on(async move {
        let mut gone = gone;
        assert!(gone.recv().await.expect("the peer ended").is_none());
        gone.send("x".into()).expect("it is open");
        // The peer is gone and took nothing.
        assert!(gone.close().await.is_err());
    });
    gone.expect("waiting does not fail");
    let (broken, there) = open(&mut event_loop);
    drop(there);
    let broken = event_loop.block_on(async move {
        let mut broken = broken;
        broken.shutdown_write();
        assert!(broken.recv().await.expect("the peer ended").is_none());
        task::sleep(Duration::from_millis(2)).await;
        broken
    });
    let broken: Channel<Lines> = broken.expect("waiting does not fail");
    drop(event_loop);
    drop((sleep, peer));

    let mut other = crate::task::support::event_loop();
    let (mut channel, broken) = other
        .block_on(async move {
            let (mut channel, mut broken) = (channel, broken);
            assert!(matches!(channel.recv().await, Err(ChannelError::Closed(reason)) if matches!(*reason, CloseReason::LoopEnded)));
            assert!(channel.send("x".into()).is_err() && broken.send("x".into()).is_err());
            assert!(once(interval.tick()).await.is_none());
            (channel, broken)
        })
        .expect("waiting does not fail");
    channel.shutdown_write();
    drop((channel, broken));
}

#[test]
fn tasks_spawned_while_the_loop_ends_are_dropped_with_it() {
    struct Last(Drops, Option<Channel<Lines>>);

    impl Handler<Lines> for Last {
        type Post = ();

        fn message(&mut self, _: Slice, _: &mut Context<'_, Lines>) -> Outcome<Lines> {
            Outcome::Continue
        }

        fn closed(&mut self, _: &CloseReason) {
            let guard = Drops(self.0.0.clone());
            let channel = self.1.take();
            // It owns the loop, which owns the task.
            let sleep = task::sleep(Duration::from_secs(1));
            task::spawn(async move {
                let _guard = (guard, channel);
                sleep.await;
            });
        }
    }

    struct Phoenix(Rc<Cell<u32>>);

    impl Drop for Phoenix {
        fn drop(&mut self) {
            let guard = Drops(self.0.clone());
            task::spawn(async move {
                let _guard = guard;
                never().await;
            });
        }
    }

    let drops = Rc::new(Cell::new(0));
    let pipe = Embedded::new(Lines::new(), Last(Drops(drops.clone()), None));
    drop(pipe);
    assert_eq!(drops.replace(0), 2, "the handler's, and the task's");

    let mut event_loop: EventLoop = event_loop();
    let phoenix = Phoenix(drops.clone());
    event_loop.spawn(async move {
        let _phoenix = phoenix;
        never().await;
    });
    turns(&mut event_loop, 1);
    drop(event_loop);
    assert_eq!(drops.get(), 1);
}

#[test]
fn thousands_of_tasks_come_and_go() {
    let mut event_loop = event_loop();
    for _ in 0..10 {
        let tasks: Vec<_> = (0..10_000)
            .map(|number| {
                event_loop.spawn(async move {
                    yield_now().await;
                    if number % 3 == 0 {
                        task::sleep(Duration::from_millis(1)).await;
                    }
                    number
                })
            })
            .collect();
        let sum = event_loop.block_on(async move {
            let mut sum = 0;
            for task in tasks {
                sum += task.await.expect("it is fine");
            }
            sum
        });
        assert_eq!(sum.expect("waiting does not fail"), 49_995_000);
    }
}

/// Starts itself again when it is dropped, like a supervisor.
struct Supervisor;

impl Drop for Supervisor {
    fn drop(&mut self) {
        let again = Self;
        drop(task::spawn(async move {
            let _again = again;
            std::future::pending::<()>().await;
        }));
    }
}

#[test]
fn a_loop_ends_even_if_dropped_tasks_spawn_for_ever() {
    let mut event_loop = event_loop();
    event_loop.spawn(async {
        let _supervisor = Supervisor;
        std::future::pending::<()>().await;
    });
    turns(&mut event_loop, 1);
    drop(event_loop);
}
