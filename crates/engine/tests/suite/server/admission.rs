//! Caps of servers: which listeners count together, the reasons, connections that loops hand over, a takeover.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use tidegate_codec::framing::Lines;
use tidegate_engine::{
    Admission, Backend, ConnectionRate, Listener, LoadBalancing, Refusal, ServedListener, Server, ServerHandle,
};
use tidegate_sys::uring::Uring;

use crate::server::support::{Commands, PATIENCE, SocketPath, ask, bounded, has_ended, start, sum, until};

fn lines(listener: Listener) -> ServedListener {
    listener.handle(|| (Lines::new(), Commands::default()))
}

fn local() -> Listener {
    Listener::bind("127.0.0.1:0").expect("an address")
}

fn capped(connections: u32) -> Admission {
    Admission { connections_per_address_max: Some(connections), ..Admission::default() }
}

fn connect(server: &ServerHandle, listener: usize) -> TcpStream {
    let address = server.listeners()[listener].addresses()[0].ip().expect("it listens on TCP");
    bounded(TcpStream::connect(address).expect("it listens"))
}

/// A connection that is served.
fn serve_one(server: &ServerHandle, listener: usize) -> TcpStream {
    let mut stream = connect(server, listener);
    assert_eq!(ask(&mut stream, "ebb"), "ebb");
    stream
}

/// A connection that is reset without a byte.
fn refuse_one(server: &ServerHandle, listener: usize) {
    let mut stream = connect(server, listener);
    let error = loop {
        match stream.read(&mut [0]).expect_err("it is not served") {
            // A ring that was probed is torn down behind the call, which interrupts this thread.
            error if error.kind() == ErrorKind::Interrupted => {}
            error => break error,
        }
    };
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
}

fn backends() -> impl Iterator<Item = Backend> {
    [Backend::Epoll, Backend::Uring].into_iter().filter(|backend| *backend == Backend::Epoll || Uring::probe().is_ok())
}

#[test]
fn caps_of_the_server_are_shared_and_those_of_a_listener_are_its_own() {
    for backend in backends() {
        let server = Server::new().loops(1).backend(backend).admission(capped(2));
        let server = server.listener(lines(local())).listener(lines(local()));
        let server = server.listener(lines(local().admission(capped(1)))).run().expect("the addresses are free");
        let _served = [0, 1, 2].map(|listener| serve_one(&server, listener));
        [0, 1, 2, 2].into_iter().for_each(|listener| refuse_one(&server, listener));
        let counts = |of: fn(&tidegate_engine::ListenerCounts) -> u64| {
            server.listeners().iter().map(|listener| of(listener.counts())).collect::<Vec<_>>()
        };
        assert_eq!(counts(|counts| counts.refused(Refusal::TooManyConnections)), [1, 1, 2]);
        assert_eq!(counts(|counts| counts.refused(Refusal::Denied)), [0; 3]);
        assert_eq!(counts(|counts| counts.accepted()), [1; 3]);
        assert_eq!(counts(|counts| counts.connections() as u64), [1; 3]);
        until(|| sum(&server, |counts| counts.refused) == 4);
        server.drain(Duration::ZERO);
    }
}

#[test]
fn each_refusal_counts_by_its_reason() {
    let rate = Admission {
        rate_per_address: Some(ConnectionRate { interval: Duration::from_secs(1_000_000), burst: 1 }),
        ..Admission::default()
    };
    let denied = Admission { deny: vec!["127.0.0.0/8".parse().unwrap()], ..Admission::default() };
    let full = Admission { addresses_max: 0, ..capped(1) };
    let server = Server::new().loops(1);
    let server = server.listener(lines(local().admission(rate))).listener(lines(local().admission(denied)));
    let server = server.listener(lines(local().admission(full))).run().expect("the addresses are free");
    drop(serve_one(&server, 0));
    for (listener, reason) in [Refusal::TooFast, Refusal::Denied, Refusal::TooManyAddresses].into_iter().enumerate() {
        refuse_one(&server, listener);
        let counts = server.listeners()[listener].counts();
        until(|| counts.refused(reason) == 1);
        assert_eq!(counts.refused(Refusal::TooManyConnections), 0);
    }
    server.drain(Duration::ZERO);
}

/// Loops hand connections to each other, accepted and refused ones, and the counts of both stay right.
#[test]
fn loops_that_hand_connections_over_count_together() {
    for backend in backends() {
        let server = Server::bind("127.0.0.1:0").unwrap().loops(3).backend(backend);
        let server = start(server.load_balancing(LoadBalancing::LeastLoaded).admission(capped(6)));
        for round in 1..=3 {
            let mut streams: Vec<_> = (0..40).map(|_| connect(&server, 0)).collect();
            let served = streams.iter_mut().filter_map(|stream| {
                // A stream that is refused may be reset before it is written to.
                // The teardown of a probed ring may interrupt these calls, so they are those that repeat themselves.
                stream.write_all(b"ebb\n").ok()?;
                stream.read_exact(&mut [0; 4]).ok()
            });
            assert_eq!(served.count(), 6, "{backend:?}");
            let counts = server.listeners()[0].counts();
            assert_eq!((counts.connections(), counts.refused(Refusal::TooManyConnections)), (6, round * 34));
            let loops: Vec<_> = server.counts().iter().map(|counts| counts.connections).collect();
            assert!(loops.iter().all(|connections| *connections <= 6), "{loops:?}");
            drop(streams);
            until(|| counts.connections() == 0 && sum(&server, |counts| counts.connections) == 0);
        }
        server.drain(Duration::ZERO);
    }
}

/// A successor counts its own connections; those of the server before count there until they end.
#[test]
fn a_successor_counts_anew() {
    let path = SocketPath::new("admission-takeover");
    let server = || Server::new().loops(1).takeover(&path.0).admission(capped(1)).listener(lines(local())).run();
    let old = server().expect("the address is free");
    let mut first = serve_one(&old, 0);
    refuse_one(&old, 0);
    let new = server().expect("it takes over");
    assert!(old.superseded().wait());
    old.begin_drain(PATIENCE);
    assert!(has_ended(&mut first));
    drop(first);
    old.wait();
    assert_eq!(old.listeners()[0].counts().connections(), 0);
    let second = serve_one(&new, 0);
    refuse_one(&new, 0);
    drop(second);
    until(|| new.listeners()[0].counts().connections() == 0);
    drop(serve_one(&new, 0));
    new.drain(Duration::ZERO);
}
