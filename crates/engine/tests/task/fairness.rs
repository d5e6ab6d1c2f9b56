//! No task starves the others.

use std::cell::Cell;
use std::rc::Rc;

use tidegate_engine::task;

use crate::support::{event_loop, open, received, say, turns, yield_now};

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
