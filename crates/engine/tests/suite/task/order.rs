//! When tasks run, and which threads may wake them.

use std::convert::Infallible;
use std::sync::mpsc;
use std::task::Waker;
use std::time::Duration;

use tidegate_codec::Slice;
use tidegate_codec::framing::Lines;
use tidegate_engine::{Channel, Context, Handler, Outcome, Server, task};
use tidegate_sys::Address;
use tidegate_testkit::Embedded;

use crate::journal::Journal;
use crate::task::support::{event_loop, never, open, received, say, turns, waker, yield_now};

#[test]
fn a_task_runs_right_after_the_completion_that_woke_it_and_before_the_next() {
    let mut event_loop = event_loop();
    let journal = Journal::default();
    let mut peers: Vec<_> = (0..4)
        .map(|number| {
            let (mut channel, peer) = open(&mut event_loop);
            let notes = journal.clone();
            event_loop.spawn(async move {
                let local = notes.clone();
                while let Ok(Some(line)) = channel.recv().await {
                    notes.note(format!("{number} {}", line.escape_ascii()));
                    // The tasks that it wakes run as well before the next completion.
                    let other = local.clone();
                    task::spawn(async move { other.note(format!("{number} spawned")) });
                    yield_now().await;
                    notes.note(format!("{number} yielded"));
                }
            });
            peer
        })
        .collect();
    turns(&mut event_loop, 3);
    peers.iter_mut().for_each(|peer| say(peer, b"x\n"));
    turns(&mut event_loop, 1);
    let noted = journal.take();
    assert_eq!(noted.len(), 12, "{noted:?}");
    for each in noted.chunks(3) {
        let number = &each[0][..1];
        assert_eq!(each, [format!("{number} x"), format!("{number} spawned"), format!("{number} yielded")]);
    }
}

#[test]
fn tasks_run_in_the_order_in_which_they_were_woken() {
    let journal = Journal::default();
    let notes = journal.clone();
    let mut event_loop = event_loop();
    event_loop
        .block_on(async move {
            let tasks: Vec<_> = (0..5)
                .map(|number| {
                    let notes = notes.clone();
                    task::spawn(async move {
                        notes.note(format!("first {number}"));
                        yield_now().await;
                        notes.note(format!("then {number}"));
                    })
                })
                .collect();
            for task in tasks {
                task.await.expect("it is fine");
            }
        })
        .expect("waiting does not fail");
    let expected: Vec<_> = ["first", "then"].iter().flat_map(|w| (0..5).map(move |n| format!("{w} {n}"))).collect();
    assert_eq!(journal.take(), expected);
}

#[test]
fn a_waker_used_on_another_thread_wakes_a_loop_that_sleeps() {
    let mut event_loop = event_loop();
    let (sender, wakers) = mpsc::channel::<Waker>();
    let (done, is_done) = mpsc::channel::<u32>();
    let thread = std::thread::spawn(move || {
        for (number, waker) in wakers.into_iter().enumerate() {
            std::thread::sleep(Duration::from_millis(5));
            done.send(number as u32).expect("the loop waits");
            waker.wake_by_ref();
            waker.wake();
        }
    });
    event_loop
        .block_on(async move {
            for round in 0..10 {
                let mut asked = false;
                std::future::poll_fn(|cx| {
                    if !std::mem::replace(&mut asked, true) {
                        sender.send(cx.waker().clone()).expect("the thread lives");
                    }
                    match is_done.try_recv() {
                        Ok(number) => {
                            assert_eq!(number, round);
                            std::task::Poll::Ready(())
                        }
                        Err(_) => std::task::Poll::Pending,
                    }
                })
                .await;
            }
        })
        .expect("waiting does not fail");
    thread.join().expect("the thread is fine");
}

#[test]
fn a_waker_that_outlives_its_loop_does_nothing_on_any_thread() {
    let mut event_loop = event_loop();
    let (kept, other) = event_loop
        .block_on(async {
            let other = task::spawn(async {
                let waker = waker().await;
                task::spawn(never());
                waker
            });
            (waker().await, other.await.expect("it is fine"))
        })
        .expect("waiting does not fail");
    let living = event_loop.block_on(async { task::spawn(async { waker().await }).await.expect("it is fine") });
    drop(event_loop);
    let living = living.expect("waiting does not fail");
    let (here, there) = (kept.clone(), [kept, other, living]);
    std::thread::spawn(move || {
        for waker in there {
            waker.wake_by_ref();
            let copy = waker.clone();
            drop(waker);
            copy.wake();
        }
    })
    .join()
    .expect("nothing happens");
    here.wake();
}

/// Starts a task for each line, which starts another.
struct Spawner(Journal);

impl Handler<Lines> for Spawner {
    type Post = ();

    fn message(&mut self, line: Slice, _: &mut Context<'_, Lines>) -> Outcome<Lines> {
        let notes = self.0.clone();
        let line = line.escape_ascii().to_string();
        self.0.note(format!("handled {line}"));
        task::spawn(async move {
            notes.note(format!("ran {line}"));
            let inner = task::spawn(async move { line.len() });
            notes.note(format!("{:?}", inner.await));
        });
        Outcome::Continue
    }
}

#[test]
fn handlers_and_tasks_spawn() {
    let journal = Journal::default();
    let mut pipe = Embedded::new(Lines::new(), Spawner(journal.clone()));
    pipe.receive(b"ebb\n");
    assert_eq!(journal.take(), ["handled ebb", "ran ebb", "Ok(3)"]);
}

#[test]
fn a_prepare_function_may_spawn_tasks_on_its_loop() {
    let (ran, runs) = mpsc::channel();
    let start = move |number| {
        let ran = ran.clone();
        task::spawn(async move {
            task::sleep(Duration::from_millis(1)).await;
            ran.send(number).expect("the test waits");
            never().await;
        });
    };
    let bind = || Server::bind("127.0.0.1:0").expect("a port is free").loops(2);
    let serving = bind().serve_each({
        let start = start.clone();
        move |number| {
            start(number);
            (|_: &Address| Lines::new(), async |_| Ok::<_, Infallible>(()))
        }
    });
    let handling = bind().start_each(move |number| {
        start(number);
        |_: &Address| (Lines::new(), Spawner(Journal::default()))
    });
    let mut numbers: Vec<_> = runs.iter().take(4).collect();
    numbers.sort_unstable();
    assert_eq!(numbers, [0, 0, 1, 1]);
    // No drain waits for such tasks: they end with their loops.
    serving.expect("it starts").drain(Duration::from_secs(10));
    handling.expect("it starts").drain(Duration::from_secs(10));
    assert!(runs.recv().is_err());
}

#[test]
fn each_of_many_loops_on_a_thread_is_current_for_its_tasks() {
    let mut loops: Vec<_> = (0..4).map(|_| event_loop()).collect();
    let journals: Vec<_> = loops.iter().map(|_| Journal::default()).collect();
    let mut peers: Vec<_> = loops
        .iter_mut()
        .zip(&journals)
        .map(|(event_loop, journal)| {
            let (mut channel, peer) = open(event_loop);
            let journal = journal.clone();
            event_loop.spawn(async move {
                for _ in 0..3 {
                    let line = channel.recv().await.expect("it is open").expect("there are three");
                    journal.note(line.escape_ascii().to_string());
                    // A task of this loop: one of the other loop would never run.
                    task::spawn(yield_now()).await.expect("it is fine");
                    task::sleep(Duration::from_millis(1)).await;
                    channel.send(line.into()).expect("it is open");
                }
            });
            peer
        })
        .collect();
    for round in 0..3 {
        for peer in &mut peers {
            say(peer, format!("{round}\n").as_bytes());
        }
        while journals.iter().any(|journal| journal.len() <= round) {
            loops.iter_mut().for_each(|event_loop| turns(event_loop, 1));
        }
        let mut answered = vec![false; peers.len()];
        while answered.iter().any(|done| !done) {
            loops.iter_mut().for_each(|event_loop| turns(event_loop, 1));
            for (peer, done) in peers.iter_mut().zip(&mut answered) {
                *done |= received(peer) == format!("{round}\n").as_bytes();
            }
        }
    }
}

#[test]
fn a_task_may_turn_another_loop() {
    let mut outer = event_loop();
    let sum = outer.block_on(async {
        let mut inner = event_loop();
        let there = inner.block_on(async {
            task::sleep(Duration::from_millis(1)).await;
            20
        });
        drop(inner);
        // The outer one is current again.
        task::sleep(Duration::from_millis(1)).await;
        there.expect("waiting does not fail") + task::spawn(async { 22 }).await.expect("it is fine")
    });
    assert_eq!(sum.expect("waiting does not fail"), 42);
}

#[test]
fn a_channel_of_another_loop_may_be_used_and_dropped() {
    let (mut one, mut other) = (event_loop(), event_loop());
    let (mut channel, mut peer) = open(&mut one);
    other
        .block_on(async move {
            channel.send("from afar".into()).expect("it is open");
            let _: Channel<Lines> = channel;
        })
        .expect("waiting does not fail");
    turns(&mut one, 2);
    assert_eq!(received(&mut peer), b"from afar\n");
}
