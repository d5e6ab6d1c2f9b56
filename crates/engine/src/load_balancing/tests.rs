//! Loop groups whose loops are turned by hand, or not at all.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use tidegate_codec::Slice;
use tidegate_codec::framing::Lines;
use tidegate_sys::{Address, ListenOptions, Socket, Wake, Waker};

use super::*;
use crate::{Context, Event, EventLoop, Handler, Limits, Outcome};

struct Echo;

impl Handler<Lines> for Echo {
    type Post = ();

    fn message(&mut self, line: Slice, cx: &mut Context<'_, Lines>) -> Outcome<Lines> {
        cx.send(line.into()).into()
    }

    fn event(&mut self, event: Event<()>, _: &mut Context<'_, Lines>) -> Outcome<Lines> {
        match event {
            Event::Drain | Event::ReadClosed => Outcome::Close,
            _ => Outcome::Continue,
        }
    }
}

/// A server of two loops without threads.
struct Pair {
    group: Arc<LoopGroup>,
    loops: [Option<EventLoop>; 2],
    addresses: [SocketAddr; 2],
}

impl Pair {
    fn new(limits: &Limits) -> Self {
        let group = LoopGroup::new(2, Arc::default());
        let (loops, addresses): (Vec<_>, Vec<_>) = (0..2)
            .map(|number| {
                let mut event_loop = EventLoop::readiness().unwrap();
                let listener = TcpListener::bind("127.0.0.1:0").unwrap();
                let address = listener.local_addr().unwrap();
                let listener = Socket::from_listener(listener, &ListenOptions::default()).unwrap();
                event_loop.begin_listener(Some(group.handle(number)), None);
                let make = |_: &Address| (Lines::new(), Echo);
                event_loop.listen(listener, limits.clone(), group.live.clone(), make).unwrap();
                (Some(event_loop), address)
            })
            .unzip();
        Self { group, loops: loops.try_into().unwrap(), addresses: addresses.try_into().unwrap() }
    }

    fn connect(&self, number: usize) -> TcpStream {
        let stream = TcpStream::connect(self.addresses[number]).unwrap();
        stream.set_nonblocking(true).unwrap();
        stream
    }

    fn turn(&mut self, number: usize) -> &mut EventLoop {
        let event_loop = self.loops[number].as_mut().unwrap();
        event_loop.turn(Some(Duration::from_millis(1))).unwrap();
        event_loop
    }

    fn turn_until(&mut self, number: usize, mut done: impl FnMut(&mut EventLoop) -> bool) {
        let end = Instant::now() + Duration::from_secs(120);
        while !done(self.turn(number)) {
            assert!(Instant::now() < end, "it has not come to it");
        }
    }

    /// The connections of each loop, those in transit included; the connections in transit to each; the server's
    /// connections.
    fn counts(&self) -> ([u64; 2], [u64; 2], usize) {
        let words = [0, 1].map(|number: usize| self.group.loads[number].word.load(Relaxed));
        (words.map(count), words.map(in_transit), self.group.live.load(Relaxed))
    }
}

#[test]
fn the_second_connection_of_a_loop_goes_to_the_other() {
    let mut pair = Pair::new(&Limits::default());
    let _clients = [pair.connect(0), pair.connect(0)];
    pair.turn_until(0, |event_loop| event_loop.counts().accepted == 1);
    let group = pair.group.clone();
    pair.turn_until(0, |_| group.live.load(Relaxed) == 2);
    assert_eq!(pair.counts(), ([1, 1], [0, 1], 2), "it is counted before it has come");
    pair.turn_until(1, |event_loop| event_loop.counts().accepted == 1);
    assert_eq!(pair.counts(), ([1, 1], [0, 0], 2));
    assert_eq!([0, 1].map(|number| pair.turn(number).counts().connections), [1, 1]);
}

#[test]
fn a_loop_that_has_ended_gets_none() {
    let mut pair = Pair::new(&Limits::default());
    pair.loops[1] = None;
    let mut clients: Vec<_> = (0..3).map(|_| pair.connect(0)).collect();
    clients.iter_mut().for_each(|client| client.write_all(b"ebb\n").unwrap());
    pair.turn_until(0, |event_loop| event_loop.counts().messages == 3);
    assert_eq!(pair.counts(), ([3, 0], [0, 0], 3));
}

#[test]
fn a_closed_mailbox_returns_the_connection() {
    let mut pair = Pair::new(&Limits::default());
    // The group does not know yet that the loop has ended.
    drop(pair.loops[1].as_ref().unwrap().mailbox().close());
    let mut clients: Vec<_> = (0..3).map(|_| pair.connect(0)).collect();
    clients.iter_mut().for_each(|client| client.write_all(b"ebb\n").unwrap());
    pair.turn_until(0, |event_loop| event_loop.counts().messages == 3);
    assert_eq!(pair.counts(), ([3, 0], [0, 0], 3));
    assert!(!is_open(pair.group.loads[1].word.load(Relaxed)));
}

#[test]
fn a_loop_that_ends_closes_connections_in_transit_and_frees_their_places() {
    let mut pair = Pair::new(&Limits::default());
    let (_first, mut second) = (pair.connect(0), pair.connect(0));
    let group = pair.group.clone();
    pair.turn_until(0, |_| group.live.load(Relaxed) == 2);
    assert_eq!(pair.counts(), ([1, 1], [0, 1], 2));
    pair.loops[1] = None;
    assert_eq!(pair.counts(), ([1, 0], [0, 0], 1));
    second.set_nonblocking(false).unwrap();
    assert_eq!(second.read(&mut [0]).unwrap(), 0);
}

#[test]
fn a_drain_waits_for_connections_in_transit_and_closes_them_in_order() {
    let mut pair = Pair::new(&Limits::default());
    let mut clients = [pair.connect(0), pair.connect(0)];
    let group = pair.group.clone();
    pair.turn_until(0, |_| group.live.load(Relaxed) == 2);
    let target = pair.loops[1].as_mut().unwrap();
    target.drain(Duration::from_secs(20));
    assert!(!target.is_drained(), "one is on its way");
    // A connection that is accepted from now on stays on its loop.
    let _third = pair.connect(0);
    pair.turn_until(0, |event_loop| event_loop.counts().accepted == 2);
    let mut answers = 0;
    pair.turn_until(1, |event_loop| {
        for client in &mut clients {
            match client.read(&mut [0]) {
                Ok(0) => answers += 1,
                Ok(_) => panic!("nothing was asked"),
                Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
            }
        }
        answers > 0 && event_loop.counts().accepted == 1
    });
    drop(clients);
    pair.turn_until(1, |event_loop| event_loop.is_drained());
    let counts = pair.loops[1].as_ref().unwrap().counts();
    assert_eq!((counts.closed_done, counts.connections), (1, 0));
    assert_eq!(pair.counts().0[1], 0);
}

#[test]
fn a_drain_ignores_a_place_that_was_reserved_and_released() {
    let mut pair = Pair::new(&Limits::default());
    // Another loop is about to send a connection.
    pair.group.loads[1].word.fetch_add(ONE + IN_TRANSIT, Relaxed);
    let target = pair.loops[1].as_mut().unwrap();
    target.drain(Duration::from_secs(3600));
    assert!(!target.is_drained());
    pair.turn(1);
    // The sender sees that the loop takes none.
    pair.group.loads[1].word.fetch_sub(ONE + IN_TRANSIT, Relaxed);
    pair.turn_until(1, |event_loop| event_loop.is_drained());
}

#[test]
fn a_loop_that_hangs_is_handed_a_bounded_number_of_connections() {
    let group = LoopGroup::new(2, Arc::default());
    let hangs = Mailbox::new(Waker::new(Arc::new(NoWake)));
    let reception = group.handle(1).receive(&hangs, Token { slot: 0, generation: 0 }).expect("the first");
    let here = group.handle(0);
    let mut kept = 0;
    for _ in 0..10 * HANDOFFS_MAX {
        let peer = "127.0.0.1:1".parse().unwrap();
        if here.hand_over(Accepted { socket: Socket::Simulated(0), peer }).is_some() {
            here.add_connection();
            kept += 1;
        }
    }
    assert_eq!((kept, in_transit(group.loads[1].word.load(Relaxed))), (9 * HANDOFFS_MAX, HANDOFFS_MAX));
    assert!(reception.shut());
    assert_eq!(hangs.collect().len() as u64, HANDOFFS_MAX);
    assert!(!reception.shut(), "discarded connections are counted no more");
}

#[test]
fn the_first_of_several_listeners_of_a_loop_receives() {
    let group = LoopGroup::new(1, Arc::default());
    let mailbox = Mailbox::new(Waker::new(Arc::new(NoWake)));
    let [first, second] = [0, 1].map(|slot| group.handle(0).receive(&mailbox, Token { slot, generation: 0 }));
    assert!(first.is_some() && second.is_none());
    assert!(is_open(group.loads[0].word.load(Relaxed)));
}

struct NoWake;

impl Wake for NoWake {
    fn wake(&self) {}
}
