//! Posts: from any thread, in order, whole, to their recipient only; and they wake a loop that sleeps.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;

use tidegate_engine::{Event, Limits, Outcome, PostError, Remote};

use crate::echo::echo;
use crate::journal::Journal;
use crate::stack::Stack;
use crate::stage::{Call, Cx, Post, Site, Stage};

/// Handles to the connections of a server, in the order in which they came.
type Remotes = Rc<RefCell<Vec<Remote<Post>>>>;

/// Listens with handlers that leave a handle to themselves.
fn listen<S: Stack>(
    stage: &Stage,
    server: &Site,
    journal: &Journal,
    act: impl Fn(Call, &mut Cx<'_, S::Codec>) -> Outcome<S::Codec> + 'static,
) -> (tidegate_sys::Address, Remotes) {
    let remotes = Remotes::default();
    let left = remotes.clone();
    let to = stage.listen_noting::<S>(server, Limits::default(), journal, move |call, cx| {
        if let Call::Open = call {
            left.borrow_mut().push(cx.remote());
        }
        act(call, cx)
    });
    (to, remotes)
}

fn posted(count: u32) -> Vec<String> {
    (0..count).map(|post| format!("posted {post}")).collect()
}

/// The posts, in the order in which they came.
fn posts(journal: &Journal) -> Vec<String> {
    journal.events().into_iter().filter(|event| event.starts_with("posted")).collect()
}

pub(crate) fn arrive_in_order<S: Stack>(stage: &Stage) {
    let (server, raw_peer, journal) = (stage.server(), stage.raw_peer(), Journal::default());
    let (to, remotes) = listen::<S>(stage, &server, &journal, echo::<S>);
    stage.connect::<S>(&raw_peer, &to);
    stage.until("it is open", || remotes.borrow().len() == 1);
    let remote = remotes.borrow()[0].clone();
    for post in 0..50 {
        remote.post(post).expect("the connection is there");
        if post % 7 == 0 {
            stage.rest(stage.units(1) / 1_000);
        }
    }
    stage.until("all have come", || posts(&journal).len() == 50);
    assert_eq!(posts(&journal), posted(50));
}

pub(crate) fn of_another_thread_arrive_in_order<S: Stack>(stage: &Stage) {
    let (server, raw_peer, journal) = (stage.server(), stage.raw_peer(), Journal::default());
    let (to, remotes) = listen::<S>(stage, &server, &journal, echo::<S>);
    stage.connect::<S>(&raw_peer, &to);
    stage.until("it is open", || remotes.borrow().len() == 1);
    let remote = remotes.borrow()[0].clone();
    let sender = thread::spawn(move || (0..POSTS).try_for_each(|post| remote.post(post)));
    // In simulated time one seed has to give one course of events: so the thread ends before anything else begins.
    let sent = if stage.is_real() { None } else { Some(sender) };
    let sent = sent.map(|sender| sender.join());
    stage.until("all have come", || posts(&journal).len() == POSTS as usize);
    assert_eq!(posts(&journal), posted(POSTS));
    assert!(sent.is_none_or(|sent| matches!(sent, Ok(Ok(())))));
}

pub(crate) fn wake_a_loop_that_sleeps<S: Stack>(stage: &Stage) {
    let (server, raw_peer, journal) = (stage.server(), stage.raw_peer(), Journal::default());
    let (to, remotes) = listen::<S>(stage, &server, &journal, echo::<S>);
    let end = stage.connect::<S>(&raw_peer, &to);
    raw_peer.send(end, &S::encoded(b"ebb"));
    stage.until("it is answered", || raw_peer.inspect(end, |seen| S::decoded(&seen.received) == b"ebb"));
    stage.rest(stage.units(1) / 4);
    for post in 0..3 {
        let remote = remotes.borrow()[0].clone();
        let woken = stage.wakes(&server, move || remote.post(post).expect("the connection is there"));
        assert!(woken, "the loop slept on");
        stage.until("it has come", || posts(&journal).len() == post as usize + 1);
    }
    assert_eq!(posts(&journal), posted(3));
}

/// The loop falls asleep between any two of them.
pub(crate) fn of_several_threads_wake_it_each_time<S: Stack>(stage: &Stage) {
    let (server, raw_peer, journal) = (stage.server(), stage.raw_peer(), Journal::default());
    let (to, remotes) = listen::<S>(stage, &server, &journal, echo::<S>);
    stage.connect::<S>(&raw_peer, &to);
    stage.until("it is open", || remotes.borrow().len() == 1);
    let come = Arc::new(AtomicU32::new(0));
    let senders: Vec<_> = (0..2)
        .map(|sender| {
            let (remote, come) = (remotes.borrow()[0].clone(), come.clone());
            thread::spawn(move || {
                for post in 0..POSTS {
                    remote.post(2 * post + sender).expect("the connection is there");
                    // The next post comes when the loop has all of them, and is about to sleep.
                    while come.load(Ordering::Acquire) <= 2 * post {
                        std::hint::spin_loop();
                        thread::yield_now();
                    }
                }
            })
        })
        .collect();
    let patience = stage.patience();
    while (posts(&journal).len() as u32) < 2 * POSTS {
        let begun = std::time::Instant::now();
        server.with(|event_loop| event_loop.turn(Some(patience))).expect("waiting does not fail");
        assert!(begun.elapsed() < patience, "the loop slept on after {} posts", posts(&journal).len());
        come.store(posts(&journal).len() as u32, Ordering::Release);
    }
    senders.into_iter().for_each(|sender| sender.join().expect("it does not panic"));
    // In order for each of them.
    for parity in [0, 1] {
        let of_one = |event: &String| event.split(' ').nth(1)?.parse().ok().filter(|post: &u32| post % 2 == parity);
        assert!(posts(&journal).iter().filter_map(of_one).is_sorted(), "out of order");
    }
}

pub(crate) fn to_a_closed_connection_are_refused<S: Stack>(stage: &Stage) {
    let (server, raw_peer, journal) = (stage.server(), stage.raw_peer(), Journal::default());
    let (to, remotes) = listen::<S>(stage, &server, &journal, echo::<S>);
    let end = stage.connect::<S>(&raw_peer, &to);
    stage.until("it is open", || remotes.borrow().len() == 1);
    let remote = remotes.borrow()[0].clone();
    assert!(!remote.is_closed());
    raw_peer.close(end, true);
    stage.reason(1);
    // The new connection in its slot does not get the post.
    stage.connect::<S>(&raw_peer, &to);
    stage.until("the next is open", || remotes.borrow().len() == 2);
    assert!(remote.is_closed());
    assert_eq!(remote.post(7), Err(PostError::Closed(7)));
    stage.rest(stage.units(1) / 4);
    assert_eq!(posts(&journal), [""; 0]);
}

/// A post is in transit when its connection closes and another one takes the slot.
pub(crate) fn that_come_too_late_reach_no_connection<S: Stack>(stage: &Stage) {
    let (server, raw_peer) = (stage.server(), stage.raw_peer());
    let journal = Journal::default();
    let (to, remotes) = listen::<S>(stage, &server, &journal, |call, cx| match call {
        // A post follows in the same turn.
        Call::Message(_) => Outcome::fail("it is enough"),
        call => call.by_default(cx),
    });
    for round in 0..5 {
        let end = stage.connect::<S>(&raw_peer, &to);
        stage.until("it is open", || remotes.borrow().len() == 2 * round + 1);
        let remote = remotes.borrow()[2 * round].clone();
        raw_peer.send(end, &S::encoded(b"!"));
        let next = raw_peer.connect(&to);
        raw_peer.receive(next, true);
        raw_peer.send(next, &S::hello());
        // A post in each of the turns in which the one closes and the other opens.
        stage.until("the next is open", || {
            let _ = server.with(|_| remote.post(round as u32));
            remotes.borrow().len() == 2 * round + 2
        });
        stage.until("it is gone", || remote.is_closed());
        let others = remotes.borrow()[2 * round + 1].clone();
        others.post(1_000 + round as u32).expect("that connection is there");
        stage.until("it has come", || journal.count(&format!("posted {}", 1_000 + round as u32)) == 1);
        raw_peer.close(next, true);
        stage.until("that one is gone", || others.is_closed());
    }
}

/// A handler's output for a post and for a message comes one after the other, never interleaved.
pub(crate) fn and_messages_do_not_mix<S: Stack>(stage: &Stage) {
    let (server, raw_peer, journal) = (stage.server(), stage.raw_peer(), Journal::default());
    let (to, remotes) = listen::<S>(stage, &server, &journal, |call, cx| match call {
        Call::Event(Event::Posted(post)) => cx.send(parcel(post as u8, 2_000).into()).into(),
        Call::Message(_) => cx.send(parcel(255, 300).into()).into(),
        call => call.by_default(cx),
    });
    let end = stage.connect::<S>(&raw_peer, &to);
    stage.until("it is open", || remotes.borrow().len() == 1);
    let remote = remotes.borrow()[0].clone();
    for post in 0..30 {
        remote.post(post).expect("the connection is there");
        raw_peer.send(end, &S::encoded(b"ebb"));
        if post % 4 == 0 {
            stage.rest(stage.units(1) / 2_000);
        }
    }
    stage.until("all have come", || posts(&journal).len() == 30);
    stage.send_goodbye::<S>(&raw_peer, end);
    stage.until("the server ends", || raw_peer.inspect(end, |seen| seen.ended == 1));
    let all = S::decoded(&raw_peer.completions(end).received);
    let (mut rest, mut next) = (&all[..], 0);
    while let [tag, high, low, after @ ..] = rest {
        let (parcel, after) = after.split_at(usize::from(u16::from_be_bytes([*high, *low])));
        assert!(parcel.iter().all(|byte| byte == tag), "one message within another");
        assert!(*tag == 255 || *tag == next, "{tag} before {next}");
        next += u8::from(*tag != 255);
        rest = after;
    }
    assert!(rest.is_empty() && next == 30, "{next} of 30 have come");
}

/// Bytes with a visible beginning and end.
fn parcel(tag: u8, length: u16) -> Vec<u8> {
    [&[tag], &length.to_be_bytes()[..], &vec![tag; usize::from(length)]].concat()
}

const POSTS: u32 = 200;
