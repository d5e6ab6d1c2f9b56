//! Peers and handlers that misbehave: no other connection is affected.

use std::convert::Infallible;
use std::io::{Read, Write};
use std::net::Shutdown;
use std::time::Duration;

use tidegate_codec::{Codec, Input, Output, Step};
use tidegate_engine::{Context, Handler, Limits, Outcome, Server};

use crate::server::support::{BIG_BYTES, ask, connect, has_ended, serve, sum, until};

#[test]
fn a_panic_ends_one_connection_and_no_other() {
    let server = serve(1, Limits::default());
    let mut other = connect(&server);
    ask(&mut other, "ebb");
    for _ in 0..3 {
        let mut victim = connect(&server);
        assert_eq!(ask(&mut victim, "first"), "first");
        victim.write_all(b"die\n").unwrap();
        assert!(has_ended(&mut victim));
    }
    until(|| server.counts()[0].closed_panicked == 3);
    assert_eq!(ask(&mut other, "flow"), "flow");
}

#[test]
fn a_reset_during_an_answer_is_counted_and_affects_no_other() {
    let server = serve(1, Limits::default());
    let mut other = connect(&server);
    for _ in 0..5 {
        let mut client = connect(&server);
        client.write_all(b"big\n").unwrap();
        client.read_exact(&mut [0; 1000]).unwrap();
        // To close with unread bytes resets the connection.
        drop(client);
    }
    until(|| server.counts()[0].closed_broken == 5);
    until(|| server.counts()[0].memory_bytes < 300_000);
    assert_eq!(ask(&mut other, "ebb"), "ebb");
}

#[test]
fn a_peer_that_shuts_down_its_side_still_gets_the_whole_of_a_large_answer() {
    let server = serve(1, Limits::default());
    let mut client = connect(&server);
    client.write_all(b"ebb\nbig\nflow\n").unwrap();
    client.shutdown(Shutdown::Write).unwrap();
    let mut seen = Vec::new();
    client.read_to_end(&mut seen).unwrap();
    assert_eq!(seen.len(), 4 + BIG_BYTES + 5);
    assert!(seen.starts_with(b"ebb\nx") && seen.ends_with(b"xflow\n"));
    until(|| server.counts()[0].closed_done == 1);
}

#[test]
fn an_end_that_comes_together_with_data_is_seen() {
    let server = serve(1, Limits::default());
    for number in 0..50 {
        let mut client = connect(&server);
        client.write_all(b"ebb\n").unwrap();
        client.shutdown(Shutdown::Write).unwrap();
        let mut seen = Vec::new();
        client.read_to_end(&mut seen).unwrap();
        assert_eq!(seen, b"ebb\n", "{number}");
    }
}

#[test]
fn a_peer_that_closes_in_the_middle_of_a_line_is_counted_as_its_fault() {
    let server = serve(1, Limits::default());
    connect(&server).write_all(b"half a li").unwrap();
    until(|| server.counts()[0].closed_protocol == 1);
}

#[test]
fn a_line_that_is_too_long_ends_the_connection_before_it_has_come() {
    let server = serve(1, Limits::default());
    let mut client = connect(&server);
    // The server may close while the client still writes.
    let _ = client.write_all(&vec![b'x'; 1 << 20]);
    assert!(has_ended(&mut client));
    drop(client);
    until(|| server.counts()[0].closed_protocol == 1);
}

#[test]
fn readers_that_do_not_read_are_shed_when_memory_is_used_up() {
    let server = serve(1, Limits { memory_max: 20 << 20, ..Limits::default() });
    let mut other = connect(&server);
    let mut hogs = Vec::new();
    for _ in 0..8 {
        let mut hog = connect(&server);
        hog.write_all(b"big\n").unwrap();
        hogs.push(hog);
        until(|| server.counts()[0].messages == hogs.len() as u64);
    }
    until(|| server.counts()[0].closed_shed > 0);
    until(|| server.counts()[0].memory_bytes < 20 << 20);
    assert_eq!(ask(&mut other, "ebb"), "ebb");
    // A client that was not shed gets every byte.
    let mut whole = 0;
    for mut hog in hogs {
        let _ = hog.shutdown(Shutdown::Write);
        let mut seen = Vec::new();
        if hog.read_to_end(&mut seen).is_ok() {
            assert_eq!(seen.len(), BIG_BYTES);
            whole += 1;
        }
    }
    assert_eq!(whole + sum(&server, |counts| counts.closed_shed), 8);
}

#[test]
fn silent_connections_cost_no_memory_of_the_loop() {
    let server = serve(1, Limits::default());
    let first = connect(&server);
    until(|| server.counts()[0].connections == 1);
    // The driver's receive buffer may exist from the start.
    let at_rest = server.counts()[0].memory_bytes;
    let clients: Vec<_> = (0..100).map(|_| connect(&server)).collect();
    until(|| server.counts()[0].connections == 101);
    assert_eq!(server.counts()[0].memory_bytes, at_rest);
    drop((first, clients));
    until(|| server.counts()[0].closed_done == 101);
}

/// From the first byte on, messages without end: each dispatch uses up its budget.
struct Endless;

impl Codec for Endless {
    type In = ();
    type Out = ();
    type Error = Infallible;

    fn decode(&mut self, input: &mut Input, _: &mut Output<'_>) -> Result<Step<()>, Infallible> {
        Ok(if input.bytes().is_empty() { Step::NeedMore } else { Step::Message(()) })
    }

    fn encode(&mut self, (): (), out: &mut Output<'_>) -> Result<(), Infallible> {
        out.write(&[b'x'; 4096]);
        Ok(())
    }
}

/// Sends as soon as the kernel has taken everything.
struct Filler;

impl Handler<Endless> for Filler {
    type Post = ();

    fn message(&mut self, (): (), cx: &mut Context<'_, Endless>) -> Outcome<Endless> {
        if cx.pending_bytes() == 0 {
            return cx.send(()).into();
        }
        Outcome::Continue
    }
}

#[test]
fn a_peer_that_never_reads_is_cut_off_although_each_dispatch_is_scheduled() {
    let limits = Limits { write_timeout: Duration::from_millis(300), ..Limits::default() };
    let server = Server::bind("127.0.0.1:0").expect("an address").loops(1).limits(limits);
    let server = server.start(|| (Endless, Filler)).expect("a server");
    let mut client = connect(&server);
    client.write_all(b"x").unwrap();
    until(|| server.counts()[0].closed_write_timeout == 1);
}
