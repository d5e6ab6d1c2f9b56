//! A connection's measures against a silent peer: PING, by option, and the deadline for the acknowledgement of
//! SETTINGS.

use std::sync::Arc;
use std::time::Duration;

use tidegate::codec::mux::{RawStreams, StreamCommand};
use tidegate::http2::{Config, Connection, Error, ErrorCode, Exceeded, Limits};
use tidegate_codec::{Over, OverError, Stages};
use tidegate_testkit::CodecHarness;
use tidegate_testkit::filters::{StripPrefix, ToyTls};

use crate::support::{ACK, DATA, HEADERS, PING, PREFACE, Peer, SETTINGS, WINDOW_UPDATE, frame, frames};

const fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn pinging() -> Limits {
    Limits { ping_interval: Some(seconds(10)), ping_timeout: seconds(5), ..Limits::default() }
}

/// A peer with a stream that waits for its response.
fn waiting(limits: Limits) -> Peer {
    let mut peer = Peer::new(limits);
    let get = peer.get(1, "/never");
    peer.send(&get);
    assert_eq!(peer.frames(), []);
    peer
}

/// The contents of the PINGs that have come.
fn pings(peer: &mut Peer) -> Vec<Vec<u8>> {
    let frames = peer.frames().into_iter();
    frames.filter(|frame| (frame.kind, frame.flags) == (PING, 0)).map(|frame| frame.content).collect()
}

#[test]
fn a_silent_peer_with_an_open_stream_gets_a_ping_each_interval_and_stays_if_it_answers() {
    let mut peer = waiting(pinging());
    for round in 0..100 {
        peer.pipe.advance(seconds(9));
        assert_eq!(pings(&mut peer), Vec::<Vec<u8>>::new(), "{round}");
        peer.pipe.advance(seconds(2));
        let [content] = &pings(&mut peer)[..] else { panic!("no PING, or several: {round}") };
        peer.send(&frame(PING, ACK, 0, content));
    }
    peer.assert_open();
}

#[test]
fn a_peer_that_does_not_answer_a_ping_is_cut_off() {
    let mut peer = waiting(pinging());
    peer.pipe.advance(seconds(11));
    assert_eq!(pings(&mut peer).len(), 1);
    peer.pipe.advance(seconds(3));
    assert!(!peer.pipe.is_write_closed());
    peer.pipe.advance(seconds(2));
    peer.assert_ended(ErrorCode::NO_ERROR);
}

#[test]
fn a_peer_that_vanishes_within_a_frame_is_cut_off() {
    let mut peer = Peer::new(pinging());
    let post = peer.request(1, "POST", "/never", &[], false);
    peer.send(&post);
    peer.send(&frame(DATA, 0, 1, b"never comes as a whole")[..12]);
    peer.pipe.advance(seconds(11));
    assert_eq!(pings(&mut peer).len(), 1);
    peer.pipe.advance(seconds(6));
    peer.assert_ended(ErrorCode::NO_ERROR);
}

#[test]
fn any_frame_is_an_answer_to_a_ping_and_postpones_the_next() {
    let mut peer = waiting(pinging());
    for _ in 0..20 {
        peer.pipe.advance(seconds(8));
        peer.send(&frame(WINDOW_UPDATE, 0, 1, &1_000_u32.to_be_bytes()));
    }
    assert_eq!(pings(&mut peer).len(), 0);
    for _ in 0..20 {
        peer.pipe.advance(seconds(11));
        assert_eq!(pings(&mut peer).len(), 1);
        peer.send(&frame(WINDOW_UPDATE, 0, 1, &1_000_u32.to_be_bytes()));
    }
    peer.assert_open();
}

#[test]
fn without_the_option_or_without_a_stream_no_ping_is_sent() {
    let mut peer = waiting(Limits::default());
    peer.pipe.advance(seconds(10_000));
    assert_eq!(peer.frames(), []);
    let mut peer = Peer::new(pinging());
    peer.pipe.advance(seconds(70));
    assert_eq!(peer.frames(), []);
    peer.pipe.advance(seconds(10));
    peer.assert_ended(ErrorCode::NO_ERROR);
}

#[test]
fn bytes_that_wait_to_be_sent_postpone_a_ping() {
    let mut peer = Peer::new(pinging());
    let mut wire = peer.get(1, "/big");
    wire.extend(frame(WINDOW_UPDATE, 0, 0, &2_000_000_u32.to_be_bytes()));
    wire.extend(frame(WINDOW_UPDATE, 0, 1, &2_000_000_u32.to_be_bytes()));
    peer.pipe.limit_peer_reads(0);
    peer.send(&wire);
    // Slowly enough that the response takes two minutes.
    for _ in 0..120 {
        peer.pipe.advance(seconds(1));
        peer.pipe.limit_peer_reads(10_000);
    }
    peer.pipe.limit_peer_reads(usize::MAX);
    let received = peer.received(1);
    assert_eq!((received.body.len(), received.has_ended), (1024 * 1024, true));
    assert_eq!(pings(&mut peer).len(), 0);
    peer.assert_open();
}

#[test]
fn a_draining_connection_sends_pings_as_well() {
    let mut peer = waiting(pinging());
    peer.pipe.drain(seconds(1_000));
    peer.pipe.advance(seconds(2));
    peer.frames();
    peer.pipe.advance(seconds(10));
    assert_eq!(pings(&mut peer).len(), 1);
    peer.pipe.advance(seconds(6));
    assert!(peer.pipe.is_write_closed());
}

#[test]
fn a_client_sends_pings_while_it_waits_for_a_response() {
    let connection = Connection::client(Arc::new(Config::new(pinging())));
    let mut client = CodecHarness::new(RawStreams::new(connection));
    client.decode(&[frame(SETTINGS, 0, 0, &[]), frame(SETTINGS, ACK, 0, &[])].concat()).expect("valid frames");
    client.advance_time(seconds(60)).expect("no stream waits, and the connection is not idle for too long");
    let (codec, mut out) = client.parts();
    let key = codec.open(&mut out).expect("a stream");
    let stream = tidegate::http2::ClientStream::new(Arc::default(), "http");
    let mut stream = CodecHarness::new(stream);
    let request = tidegate::http1::Request::get("http://sea/").expect("a request");
    stream.encode(tidegate::http1::client::Outgoing::Request(request)).expect("a valid request");
    stream.flush().expect("no filter");
    client.encode(StreamCommand::Data(key, stream.take_sent().into())).expect("a command");
    client.flush().expect("no filter");
    client.take_sent();
    // The server was silent for long before the request.
    client.advance_time(Duration::ZERO).expect("a PING");
    client.flush().expect("no filter");
    let sent = frames(&client.take_sent());
    assert_eq!(sent.iter().map(|frame| frame.kind).collect::<Vec<_>>(), [PING]);
    client.decode(&frame(PING, ACK, 0, &sent[0].content)).expect("an answer");
    client.advance_time(seconds(10)).expect("another PING");
    client.flush().expect("no filter");
    assert_eq!(frames(&client.take_sent()).len(), 1);
    assert_eq!(client.advance_time(seconds(5)), Err(Error::Limit(Exceeded::PingTime)));
}

#[test]
fn bytes_that_wait_below_a_filter_postpone_a_ping() {
    let connection = Connection::client(Arc::new(Config::new(pinging())));
    let mut client = CodecHarness::new(Over::new(StripPrefix::new(b""), RawStreams::new(connection)));
    client.decode(&[frame(SETTINGS, 0, 0, &[]), frame(SETTINGS, ACK, 0, &[])].concat()).expect("valid frames");
    let (codec, out) = client.parts();
    let (codec, mut out) = codec.uppermost(out);
    codec.open(&mut out).expect("a stream");
    client.flush().expect("the filter does not fail");
    // The preface waits.
    client.advance_time(seconds(60)).expect("bytes wait");
    client.flush().expect("the filter does not fail");
    let kinds = |sent: &[u8]| frames(sent).iter().map(|frame| frame.kind).collect::<Vec<_>>();
    assert!(!kinds(&client.take_sent()[PREFACE.len()..]).contains(&PING));
    client.advance_time(seconds(10)).expect("a PING");
    client.flush().expect("the filter does not fail");
    // It waits, too, for longer than its answer may take.
    client.advance_time(seconds(60)).expect("the PING waits");
    assert_eq!(kinds(&client.take_sent()), [PING]);
    let unanswered = client.advance_time(seconds(6));
    assert!(matches!(unanswered, Err(OverError::Codec(Error::Limit(Exceeded::PingTime)))), "{unanswered:?}");
}

#[test]
fn settings_that_are_not_acknowledged_in_time_end_the_connection() {
    let mut peer = Peer::silent(Limits::default());
    peer.send(&[PREFACE, &frame(SETTINGS, 0, 0, &[])].concat());
    for round in 0..29 {
        peer.pipe.advance(seconds(1));
        let get = peer.get(2 * round + 1, "/hello");
        peer.send(&get);
        assert_eq!(peer.received(2 * round + 1).status(), "200");
    }
    peer.pipe.advance(seconds(2));
    peer.assert_ended(ErrorCode::SETTINGS_TIMEOUT);
    let mut peer = Peer::silent(Limits { settings_timeout: seconds(3), ..Limits::default() });
    peer.send(&[PREFACE, &frame(SETTINGS, 0, 0, &[])].concat());
    peer.pipe.advance(seconds(2));
    peer.assert_open();
    peer.pipe.advance(seconds(2));
    peer.assert_ended(ErrorCode::SETTINGS_TIMEOUT);
}

#[test]
fn settings_that_are_acknowledged_have_no_further_deadline() {
    let mut peer = Peer::silent(Limits::default());
    peer.send(&[PREFACE, &frame(SETTINGS, 0, 0, &[])].concat());
    peer.pipe.advance(seconds(29));
    peer.send(&frame(SETTINGS, ACK, 0, &[]));
    let get = peer.get(1, "/never");
    peer.send(&get);
    peer.pipe.advance(seconds(1_000));
    peer.assert_open();
}

#[test]
fn a_stream_that_is_cut_off_over_a_filter_is_an_error_only_while_a_stream_is_open() {
    let settings = frame(SETTINGS, 0, 0, b"");
    // GET http://a/ with a body that is still to come: the fields are of the static table, but for the authority.
    let request = frame(HEADERS, 4, 1, b"\x82\x86\x84\x41\x01a");
    for (plain, is_error) in [
        ([PREFACE, &settings].concat(), false),
        ([PREFACE, &settings, &request].concat(), true),
        ([PREFACE, &settings, &settings[..5]].concat(), true),
    ] {
        let connection = Connection::server(Arc::new(Config::new(Limits::default())));
        let mut server = CodecHarness::new(Over::new(ToyTls::server(7), RawStreams::new(connection)));
        let wire = ToyTls::client_wire(7, &plain, 1_000);
        server.decode(wire.strip_suffix(&[0, 0]).expect("the filter's closing message")).expect("well-formed");
        let end = server.decode_eof();
        assert_eq!(end.is_err(), is_error, "{:?}: {end:?}", plain.escape_ascii().to_string());
    }
}
