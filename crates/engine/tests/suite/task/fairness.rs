//! No task starves the others.

use std::cell::Cell;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::rc::Rc;

use tidegate_codec::framing::Lines;
use tidegate_codec::{Slice, work};
use tidegate_engine::{Context, EventLoop, Handler, Limits, Outcome, task};
use tidegate_sys::{Address, Socket};

use crate::task::support::{event_loop, open, received, say, turns, yield_now};

#[test]
fn a_task_that_wakes_itself_for_ever_does_not_starve_connections() {
    let mut event_loop = event_loop();
    let (mut channel, mut peer) = open(&mut event_loop);
    let spins = Rc::new(Cell::new(0));
    for _ in 0..3 {
        let counted = spins.clone();
        event_loop.spawn(async move {
            loop {
                counted.set(counted.get() + 1);
                yield_now().await;
            }
        });
    }
    event_loop.spawn(async move {
        while let Ok(Some(line)) = channel.recv().await {
            channel.send(line.into()).expect("it is open");
        }
    });
    turns(&mut event_loop, 2);
    say(&mut peer, b"x\n");
    turns(&mut event_loop, 2);
    assert_eq!(received(&mut peer), b"x\n");
    assert!((4..200).contains(&spins.get()), "{} spins", spins.get());
}

#[test]
fn tasks_that_wake_each_other_for_ever_do_not_starve_connections() {
    let mut event_loop = event_loop();
    let (mut channel, mut peer) = open(&mut event_loop);
    event_loop.spawn(async {
        loop {
            task::spawn(yield_now()).await.expect("it is fine");
        }
    });
    event_loop.spawn(async move {
        while let Ok(Some(line)) = channel.recv().await {
            channel.send(line.into()).expect("it is open");
        }
    });
    turns(&mut event_loop, 2);
    say(&mut peer, b"x\n");
    turns(&mut event_loop, 2);
    assert_eq!(received(&mut peer), b"x\n");
}

#[test]
fn a_task_with_endless_messages_lets_others_run() {
    let mut event_loop = event_loop();
    let (mut channel, mut peer) = open(&mut event_loop);
    let (taken, others) = (Rc::new(Cell::new(0_u32)), Rc::new(Cell::new(0_u32)));
    let (counted, seen) = (taken.clone(), others.clone());
    event_loop.spawn(async move {
        while let Ok(Some(_)) = channel.recv().await {
            counted.set(counted.get() + 1);
        }
    });
    let (counted, longest) = (taken.clone(), Rc::new(Cell::new(0_u32)));
    let most = longest.clone();
    event_loop.spawn(async move {
        let mut before = 0;
        loop {
            let now = counted.get();
            most.set(most.get().max(now - before));
            before = now;
            seen.set(seen.get() + 1);
            yield_now().await;
        }
    });
    turns(&mut event_loop, 2);
    say(&mut peer, &b"x\n".repeat(10_000));
    turns(&mut event_loop, 20);
    assert_eq!(taken.get(), 10_000);
    assert!(longest.get() <= 1024, "{} messages in one go", longest.get());
}

#[test]
fn tasks_that_do_long_work_take_turns_and_delay_a_connection_by_a_few_pieces_however_many_they_are() {
    let mut event_loop = event_loop();
    let (mut channel, mut peer) = open(&mut event_loop);
    event_loop.spawn(async move {
        while let Ok(Some(line)) = channel.recv().await {
            channel.send(line.into()).expect("it is open");
        }
    });
    let pieces = Rc::new([const { Cell::new(0_u32) }; TASKS]);
    for number in 0..TASKS {
        let counted = pieces.clone();
        event_loop.spawn(async move {
            loop {
                task::long_work().await;
                work::add(PIECE_NANOS);
                counted[number].set(counted[number].get() + 1);
            }
        });
    }
    let total = |pieces: &[Cell<u32>]| pieces.iter().map(Cell::get).sum::<u32>();
    turns(&mut event_loop, 1);
    for _ in 0..50 {
        let before = total(&*pieces);
        say(&mut peer, b"x\n");
        turns(&mut event_loop, 2);
        assert_eq!(received(&mut peer), b"x\n");
        let done = total(&*pieces) - before;
        // In a turn as many as fit into its time, with one that began before it was over. On a slow machine there are fewer.
        assert!((2..=12).contains(&done), "{done} pieces in two turns");
    }
    turns(&mut event_loop, TASKS);
    let counts = pieces.each_ref().map(Cell::get);
    let (least, most) = (counts.iter().min().unwrap(), counts.iter().max().unwrap());
    assert!(*least > 0 && most - least <= 6, "each has its turn: {counts:?}");
    assert!(event_loop.counts().long_work_waits > 0);
}

#[test]
fn a_task_whose_long_work_is_not_estimated_does_not_keep_the_loop() {
    let mut event_loop = event_loop();
    let (mut channel, mut peer) = open(&mut event_loop);
    event_loop.spawn(async move {
        while let Ok(Some(line)) = channel.recv().await {
            channel.send(line.into()).expect("it is open");
        }
    });
    let pieces = Rc::new(Cell::new(0_u32));
    let counted = pieces.clone();
    event_loop.spawn(async move {
        loop {
            task::long_work().await;
            counted.set(counted.get() + 1);
        }
    });
    turns(&mut event_loop, 1);
    for _ in 0..10 {
        let before = pieces.get();
        say(&mut peer, b"x\n");
        turns(&mut event_loop, 2);
        assert_eq!(received(&mut peer), b"x\n");
        assert!(pieces.get() - before <= 2 * 70, "{} pieces in two turns", pieces.get() - before);
    }
}

#[test]
fn a_task_that_gave_up_its_long_work_takes_no_turn() {
    let mut event_loop = event_loop();
    let done = Rc::new(Cell::new(0));
    let tasks: Vec<_> = (0..10)
        .map(|_| {
            let counted = done.clone();
            event_loop.spawn(async move {
                loop {
                    task::long_work().await;
                    work::add(PIECE_NANOS);
                    counted.set(counted.get() + 1);
                }
            })
        })
        .collect();
    turns(&mut event_loop, 2);
    tasks.into_iter().for_each(task::Task::cancel);
    let before = done.get();
    turns(&mut event_loop, 2);
    assert_eq!(done.get(), before);
    assert!(!event_loop.is_busy());
}

#[test]
fn messages_that_are_much_work_do_not_delay_other_connections() {
    struct Works(Rc<Cell<u32>>);

    impl Handler<Lines> for Works {
        type Post = ();

        fn message(&mut self, _: Slice, _: &mut Context<'_, Lines>) -> Outcome<Lines> {
            work::add(PIECE_NANOS);
            self.0.set(self.0.get() + 1);
            Outcome::Continue
        }
    }

    let mut event_loop = event_loop();
    let (mut channel, mut peer) = open(&mut event_loop);
    event_loop.spawn(async move {
        while let Ok(Some(line)) = channel.recv().await {
            channel.send(line.into()).expect("it is open");
        }
    });
    let handled = Rc::new(Cell::new(0));
    let mut peers: Vec<_> = (0..TASKS)
        .map(|_| {
            let (ours, theirs) = UnixStream::pair().expect("there are descriptors left");
            let unnamed = Address::Unix(PathBuf::new());
            let ours = Socket::from_stream(ours).expect("a stream");
            let handler = Works(handled.clone());
            event_loop.adopt(ours, &unnamed, Limits::default(), Lines::new(), handler).expect("the driver takes it");
            theirs
        })
        .collect();
    let mut ask = |event_loop: &mut EventLoop, most: u32| {
        let before = handled.get();
        say(&mut peer, b"x\n");
        turns(event_loop, 2);
        assert_eq!(received(&mut peer), b"x\n");
        assert!(handled.get() - before <= most, "{} messages in two turns", handled.get() - before);
    };
    turns(&mut event_loop, 2);
    ask(&mut event_loop, 0);
    // At first all of them are new. Later a few bytes come at a time.
    for _ in 0..20 {
        peers.iter_mut().for_each(|peer| say(peer, &b"x\n".repeat(10)));
        for _ in 0..10 {
            // A dispatch has two messages, and a turn a few dispatches: in its classes, and of connections with work left.
            ask(&mut event_loop, 2 * 20);
        }
    }
    while handled.get() < 20 * 10 * TASKS as u32 {
        turns(&mut event_loop, 1);
    }
}

#[test]
fn a_task_whose_messages_are_much_work_waits_for_its_turn() {
    let mut event_loop = event_loop();
    let taken = Rc::new(Cell::new(0_u32));
    let mut peers = Vec::new();
    for _ in 0..TASKS {
        let (mut channel, peer) = open(&mut event_loop);
        peers.push(peer);
        let counted = taken.clone();
        event_loop.spawn(async move {
            while let Ok(Some(_)) = channel.recv().await {
                work::add(PIECE_NANOS);
                counted.set(counted.get() + 1);
            }
        });
    }
    turns(&mut event_loop, 2);
    peers.iter_mut().for_each(|peer| say(peer, &b"x\n".repeat(100)));
    let mut most = 0;
    while taken.get() < 100 * TASKS as u32 {
        let before = taken.get();
        turns(&mut event_loop, 1);
        most = most.max(taken.get() - before);
    }
    // A task takes three messages before it waits.
    assert!(most <= 24, "{most} messages in one turn");
}

const TASKS: usize = 64;

/// A fifth of a turn's budget for long work.
const PIECE_NANOS: u64 = 400_000;
