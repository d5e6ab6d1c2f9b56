//! The number of connections, their loops, and their counters.

use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};
use std::time::Duration;

use tidegate_buffer::Pool;
use tidegate_codec::Slice;
use tidegate_codec::framing::Lines;
use tidegate_engine::{CloseReason, Context, EventLoop, Handler, Limits, LoadBalancing, Outcome, Server};
use tidegate_sys::readiness::Readiness;
use tidegate_sys::{Address, ListenOptions, Socket};

use crate::server::support::{Commands, ask, bounded, connect, has_ended, port, serve, sum, until};

#[test]
fn every_loop_gets_some_of_the_connections() {
    let server = serve(2, Limits::default());
    assert_eq!(server.loops(), 2);
    let mut clients = Vec::new();
    // The kernel spreads them by a hash of the addresses: that all of them fall to one loop cannot be.
    while clients.len() < 200 && server.counts().iter().any(|counts| counts.connections == 0) {
        let mut client = connect(&server);
        assert_eq!(ask(&mut client, "ebb"), "ebb");
        clients.push(client);
        if clients.len() == 64 {
            until(|| sum(&server, |counts| counts.accepted) == 64);
        }
    }
    until(|| server.counts().iter().all(|counts| counts.connections > 0));
}

#[test]
fn every_event_is_counted() {
    let server = serve(1, Limits::default());
    let mut client = connect(&server);
    for _ in 0..10 {
        ask(&mut client, "ebb");
    }
    until(|| server.counts()[0].sent_bytes == 40);
    let counts = server.counts()[0];
    assert_eq!((counts.connections, counts.accepted, counts.messages, counts.received_bytes), (1, 1, 10, 40));
    assert!(counts.turns > 0 && counts.memory_bytes < 300_000);
    client.write_all(b"close\n").unwrap();
    assert!(has_ended(&mut client));
    drop(client);
    until(|| server.counts()[0].closed_done == 1);
    assert_eq!(server.counts()[0].connections, 0);
}

#[test]
fn at_the_limit_the_next_connection_waits_until_one_goes() {
    let server = serve(1, Limits { connections_max: 2, ..Limits::default() });
    let mut first = connect(&server);
    let mut second = connect(&server);
    assert_eq!((ask(&mut first, "1"), ask(&mut second, "2")), ("1".into(), "2".into()));
    let mut third = connect(&server);
    third.write_all(b"3\n").unwrap();
    third.set_read_timeout(Some(Duration::from_millis(150))).unwrap();
    let nothing = third.read(&mut [0]).expect_err("it is not served yet, and not closed either");
    assert!(matches!(nothing.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut), "{nothing}");
    assert_eq!(server.counts()[0].accepted, 2);
    let mut third = bounded(third);
    drop(first);
    let mut answer = [0; 2];
    third.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"3\n");
    assert_eq!(ask(&mut second, "2"), "2");
}

/// Counts how many handlers exist at once.
struct Crowd(Arc<AtomicI64>, Arc<AtomicI64>);

impl Handler<Lines> for Crowd {
    type Post = ();

    fn open(&mut self, _: &mut Context<'_, Lines>) -> Outcome<Lines> {
        let now = self.0.fetch_add(1, Ordering::SeqCst) + 1;
        self.1.fetch_max(now, Ordering::SeqCst);
        Outcome::Continue
    }

    fn message(&mut self, line: Slice, cx: &mut Context<'_, Lines>) -> Outcome<Lines> {
        cx.send(line.into()).into()
    }

    fn closed(&mut self, _: &CloseReason) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

#[test]
fn the_limit_applies_to_all_loops_and_no_connection_is_refused() {
    for (connections_max, spread) in
        [(1, LoadBalancing::Kernel), (3, LoadBalancing::Kernel), (3, LoadBalancing::LeastLoaded)]
    {
        let (now, most) = (Arc::new(AtomicI64::new(0)), Arc::new(AtomicI64::new(0)));
        let counters = (now.clone(), most.clone());
        let server = Server::bind("127.0.0.1:0")
            .unwrap()
            .loops(2)
            .load_balancing(spread)
            .limits(Limits { connections_max, ..Limits::default() })
            .start(move || (Lines::new(), Crowd(counters.0.clone(), counters.1.clone())))
            .unwrap();
        let mut waiting: Vec<TcpStream> = (0..24).map(|_| TcpStream::connect(port(&server)).unwrap()).collect();
        for client in &mut waiting {
            client.write_all(b"hi\n").unwrap();
            client.set_nonblocking(true).unwrap();
        }
        // A client that was answered closes, so that the next one is accepted.
        until(|| {
            waiting.retain_mut(|client| match client.read(&mut [0; 8]) {
                Ok(0) => panic!("turned away"),
                Ok(_) => false,
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::WouldBlock);
                    true
                }
            });
            waiting.is_empty()
        });
        assert!(most.load(Ordering::SeqCst) <= connections_max as i64, "{most:?} of {connections_max}");
        until(|| now.load(Ordering::SeqCst) == 0);
    }
}

#[test]
fn a_panic_while_a_handler_is_made_costs_one_stream_only() {
    for (loops, spread) in [(1, LoadBalancing::Kernel), (2, LoadBalancing::LeastLoaded)] {
        let number = AtomicI64::new(0);
        let server = Server::bind("127.0.0.1:0")
            .unwrap()
            .loops(loops)
            .load_balancing(spread)
            .limits(Limits { connections_max: 2, ..Limits::default() })
            .start(move || {
                assert!(number.fetch_add(1, Ordering::SeqCst) % 2 == 1, "on request");
                (Lines::new(), Commands::default())
            })
            .unwrap();
        for _ in 0..5 {
            assert!(has_ended(&mut connect(&server)));
            let mut client = connect(&server);
            assert_eq!(ask(&mut client, "ebb"), "ebb");
            client.write_all(b"close\n").unwrap();
            assert!(has_ended(&mut client));
        }
    }
}

#[test]
fn a_panic_over_a_stream_that_had_to_wait_leaves_its_listener_at_work() {
    // Two loops that share a limit, turned by hand: the second accepts when the first has just filled it.
    let live = Arc::new(AtomicUsize::new(0));
    let limits = Limits { connections_max: 1, ..Limits::default() };
    let number = Arc::new(AtomicI64::new(0));
    let mut loops = Vec::new();
    for dies in [false, true] {
        let pool = Pool::new();
        let mut event_loop = EventLoop::new(Box::new(Readiness::new(&pool).unwrap()), pool);
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let listener = Socket::from_listener(listener, &ListenOptions::default()).unwrap();
        let number = number.clone();
        let make = move |_: &Address| {
            assert!(!dies || number.fetch_add(1, Ordering::SeqCst) > 0, "on request");
            (Lines::new(), Commands::default())
        };
        event_loop.listen(listener, limits.clone(), live.clone(), make).unwrap();
        loops.push((event_loop, address));
    }
    let addresses = [loops[0].1, loops[1].1];
    let mut turn_until = |done: &mut dyn FnMut() -> bool| {
        for _ in 0..20_000 {
            if done() {
                return;
            }
            loops.iter_mut().for_each(|(event_loop, _)| event_loop.turn(Some(Duration::from_millis(1))).unwrap());
        }
        panic!("it has not come to it");
    };
    let first = TcpStream::connect(addresses[0]).unwrap();
    turn_until(&mut || live.load(Ordering::SeqCst) == 1);
    let mut unlucky = TcpStream::connect(addresses[1]).unwrap();
    unlucky.set_nonblocking(true).unwrap();
    let mut turns = 0;
    turn_until(&mut || {
        turns += 1;
        turns > 50
    });
    assert_eq!(number.load(Ordering::SeqCst), 0, "it waits");
    drop(first);
    turn_until(&mut || matches!(unlucky.read(&mut [0]), Ok(0)));
    let mut lucky = TcpStream::connect(addresses[1]).unwrap();
    lucky.write_all(b"ebb\n").unwrap();
    lucky.set_nonblocking(true).unwrap();
    turn_until(&mut || matches!(lucky.read(&mut [0; 8]), Ok(4)));
}
