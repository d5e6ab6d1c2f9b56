//! Posts from other threads.

use std::io::{BufRead, BufReader};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tidegate_codec::Slice;
use tidegate_codec::framing::Lines;
use tidegate_engine::{Context, Event, Handler, Outcome, PostError, Remote, Server};

use crate::server::support::{connect, has_ended};

type Post = (usize, usize);

/// Sends its posts to the peer as lines.
struct Mail(Sender<Remote<Post>>);

impl Handler<Lines> for Mail {
    type Post = Post;

    fn open(&mut self, cx: &mut Context<'_, Lines, Post>) -> Outcome<Lines> {
        self.0.send(cx.remote()).expect("the test waits for it");
        Outcome::Continue
    }

    fn message(&mut self, _: Slice, _: &mut Context<'_, Lines, Post>) -> Outcome<Lines> {
        Outcome::Close
    }

    fn event(&mut self, event: Event<Post>, cx: &mut Context<'_, Lines, Post>) -> Outcome<Lines> {
        if let Event::Posted((sender, number)) = event {
            cx.send(format!("{sender} {number}").into()).expect("there is room for all of them");
        }
        Outcome::Continue
    }
}

#[test]
fn posts_arrive_in_order_and_are_returned_once_the_loop_has_ended() {
    const SENDERS: usize = 4;
    const POSTS: usize = 2_000;
    let (sender, receiver) = channel();
    let sender = Mutex::new(sender);
    let server = Server::bind("127.0.0.1:0")
        .unwrap()
        .loops(2)
        .start(move || (Lines::new(), Mail(sender.lock().unwrap().clone())))
        .unwrap();
    let mut client = connect(&server);
    let remote = receiver.recv().unwrap();
    std::thread::scope(|scope| {
        for sender in 0..SENDERS {
            let remote = remote.clone();
            scope.spawn(move || {
                for number in 0..POSTS {
                    remote.post((sender, number)).unwrap();
                }
            });
        }
        let mut next = [0; SENDERS];
        for line in BufReader::new(&client).lines().take(SENDERS * POSTS) {
            let line = line.unwrap();
            let (sender, number) = line.split_once(' ').unwrap();
            let sender: usize = sender.parse().unwrap();
            assert_eq!(number.parse::<usize>().unwrap(), next[sender]);
            next[sender] += 1;
        }
        assert_eq!(next, [POSTS; SENDERS]);
    });
    drop(server);
    assert!(has_ended(&mut client));
    assert_eq!(remote.post((7, 7)), Err(PostError::Closed((7, 7))));
}

#[test]
fn a_post_to_a_closed_connection_reaches_no_other() {
    let (sender, receiver) = channel();
    let sender = Mutex::new(sender);
    let server = Server::bind("127.0.0.1:0")
        .unwrap()
        .loops(1)
        .start(move || (Lines::new(), Mail(sender.lock().unwrap().clone())))
        .unwrap();
    let mut first = connect(&server);
    let gone = receiver.recv().unwrap();
    std::io::Write::write_all(&mut first, b"close\n").unwrap();
    assert!(has_ended(&mut first));
    drop(first);
    crate::server::support::until(|| server.counts()[0].closed_done == 1);
    // The next connection gets the same slot.
    let mut second = connect(&server);
    let remote = receiver.recv().unwrap();
    assert_eq!(gone.post((1, 1)), Err(PostError::Closed((1, 1))));
    remote.post((2, 2)).unwrap();
    assert_eq!(crate::server::support::read_line(&mut second), "2 2");
}

/// Takes long for each post.
struct Slow(Sender<Remote<()>>, Arc<AtomicUsize>);

impl Handler<Lines> for Slow {
    type Post = ();

    fn open(&mut self, cx: &mut Context<'_, Lines>) -> Outcome<Lines> {
        self.0.send(cx.remote()).expect("the test waits for it");
        Outcome::Continue
    }

    fn message(&mut self, _: Slice, _: &mut Context<'_, Lines>) -> Outcome<Lines> {
        Outcome::Close
    }

    fn event(&mut self, _: Event<()>, _: &mut Context<'_, Lines>) -> Outcome<Lines> {
        self.1.fetch_add(1, Ordering::Relaxed);
        std::thread::sleep(Duration::from_micros(100));
        Outcome::Continue
    }
}

#[test]
fn posts_that_cannot_be_read_in_time_do_not_delay_the_end() {
    let (sender, receiver) = channel();
    let sender = Mutex::new(sender);
    let server = Server::bind("127.0.0.1:0").unwrap().loops(1);
    let read = Arc::new(AtomicUsize::new(0));
    let slow = {
        let read = read.clone();
        move || Slow(sender.lock().unwrap().clone(), read.clone())
    };
    let server = server.start(move || (Lines::new(), slow())).unwrap();
    let mut client = connect(&server);
    let remote = receiver.recv().unwrap();
    // To read all of them takes ten seconds, whatever else the machine does.
    (0..100_000).for_each(|_| remote.post(()).unwrap());
    server.drain(Duration::from_millis(10));
    let read = read.load(Ordering::Relaxed);
    assert!(read < 100_000, "all posts were read before the end");
    assert!(has_ended(&mut client));
}
