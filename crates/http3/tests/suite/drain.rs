//! The drain of a server (RFC 9114 §5.2), on a QUIC whose events a test chooses.

use tidegate::codec::mux::ResetCause;
use tidegate::codec::{Endpoint as _, ReadEnd, SessionEvent, SessionNumber, StreamEndpoint as _};
use tidegate::http3::{ErrorCode, Limits, varint};

use crate::early::{SESSION, Server, at};
use crate::support::request;

const SETTINGS: u64 = 4;
const GOAWAY: u64 = 7;

/// The first GOAWAY: it permits all requests on their way.
const ALL: u64 = (1 << 62) - 4;

const REJECTED: Option<ResetCause> = Some(ResetCause::Code(ErrorCode::REQUEST_REJECTED.0));

fn server() -> Server {
    let mut server = Server::new(Limits::default(), false);
    server.confirm();
    server
}

/// A GET on this stream comes. Returns the events of the caller.
fn get(server: &mut Server, stream: u64) -> Vec<String> {
    server.open(stream, &request("GET", &[]), Some(ReadEnd::Ended));
    server.poll()
}

/// The next step of the drain is due.
fn step(server: &mut Server) {
    server.now = server.http3.poll_timeout().expect("a step");
    let now = server.now;
    server.http3.handle_timeout(now);
}

/// The numbers in the GOAWAY frames of a connection.
fn goaways(server: &mut Server, session: SessionNumber) -> Vec<u64> {
    let wire = server.quic().written.remove(&session).unwrap_or_default();
    let (mut rest, mut numbers) = (&wire[1..], Vec::new());
    while let Some((kind, head)) = varint::read(rest) {
        let (length, of_length) = varint::read(&rest[head..]).expect("a length");
        let (payload, after) = rest[head + of_length..].split_at(length as usize);
        assert!(kind != SETTINGS || numbers.is_empty(), "SETTINGS come first");
        if kind == GOAWAY {
            numbers.push(varint::read(payload).expect("a number").0);
        }
        rest = after;
    }
    numbers
}

#[test]
fn requests_below_the_last_goaway_are_served_and_later_ones_are_rejected() {
    let mut server = server();
    assert_eq!(get(&mut server, 0), ["Opened 0"]);
    let now = server.now;
    server.http3.drain(now);
    assert_eq!(get(&mut server, 4), ["Opened 4"], "it was on its way");
    step(&mut server);
    assert_eq!(goaways(&mut server, SESSION), [ALL, 8]);
    for stream in [8, 12] {
        assert_eq!(get(&mut server, stream), Vec::<String>::new());
    }
    assert_eq!(server.quic().closed, [(8, REJECTED), (12, REJECTED)]);
    // The others go on, also behind the end of the drain.
    step(&mut server);
    for stream in [0, 4] {
        server.push(SessionEvent::Readable(at(stream)));
        assert_eq!(server.poll().len(), 1);
        assert_eq!(server.http3.write(at(stream), b"response"), Ok(8));
    }
    assert_eq!(get(&mut server, 16), Vec::<String>::new());
    assert_eq!(server.quic().closed, [(8, REJECTED), (12, REJECTED), (16, REJECTED)]);
    assert!(!server.quic().has_ended);
}

#[test]
fn an_early_request_that_waits_behind_the_last_goaway_is_rejected() {
    let mut server = Server::new(Limits::default(), false);
    server.open(0, &request("POST", &[]), None);
    assert_eq!(server.poll(), Vec::<String>::new());
    let now = server.now;
    server.http3.drain(now);
    step(&mut server);
    assert_eq!(goaways(&mut server, SESSION), [ALL, 0]);
    server.confirm();
    server.push(SessionEvent::Confirmed(SESSION));
    assert_eq!(server.poll(), Vec::<String>::new());
    assert_eq!(server.quic().closed, [(0, REJECTED)]);
}

#[test]
fn a_connection_that_is_established_during_a_drain_gets_goaway() {
    let mut server = server();
    let now = server.now;
    server.http3.drain(now);
    let establish = |server: &mut Server, number| {
        server.push(SessionEvent::Established { session: SessionNumber(number), peer: ([127, 0, 0, 1], 2).into() });
        assert_eq!(server.poll(), ["Established"]);
    };
    establish(&mut server, 2);
    step(&mut server);
    establish(&mut server, 3);
    step(&mut server);
    establish(&mut server, 4);
    let sent = [2, 3, 4].map(|number| goaways(&mut server, SessionNumber(number)));
    assert_eq!(sent, [vec![ALL, 0], vec![0], vec![0]]);
}

#[test]
fn a_connection_that_is_established_as_a_drain_ends_stays_until_its_peer_has_goaway() {
    let mut server = server();
    let now = server.now;
    server.http3.drain(now);
    step(&mut server);
    step(&mut server);
    assert!(!server.http3.keeps_idle_sessions(), "the drain has ended");
    server.push(SessionEvent::Established { session: SessionNumber(2), peer: ([127, 0, 0, 1], 2).into() });
    assert_eq!(server.poll(), ["Established"]);
    assert!(server.http3.keeps_idle_sessions(), "GOAWAY is on its way");
    assert_eq!(goaways(&mut server, SessionNumber(2)), [0]);
    step(&mut server);
    assert!(!server.http3.keeps_idle_sessions());
}
