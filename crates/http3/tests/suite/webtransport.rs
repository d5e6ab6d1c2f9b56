//! Streams of WebTransport sessions, on a QUIC connection in memory.

use std::task::{Context, Poll, Waker};

use tidegate::codec::mux::ResetCause;
use tidegate::codec::{Direction, StreamEndpoint};
use tidegate::http3::webtransport::WebTransportLimits;
use tidegate::http3::{Config, ErrorCode, Limits, varint};

use crate::memory_quic::{Side, at};
use crate::support::request;

/// A server whose request 0 is a session with an own stream, a bidirectional one of the client that the application has, and one
/// that it has not accepted. Returns the number of the own stream.
fn server() -> (Side, u64) {
    let config = Config::new(Limits::default()).webtransport(WebTransportLimits::default());
    let mut server = Side::with(false, config.grease(None));
    server.arrive(0, &request("GET", &[]), None);
    server.http3.begin_session(at(0)).expect("a session");
    let mut preamble = Vec::new();
    [0x41, 0].into_iter().for_each(|number| varint::write(number, &mut preamble));
    for stream in [4, 8] {
        server.arrive(stream, &preamble, None);
    }
    let cx = Context::from_waker(Waker::noop());
    let accepted = server.http3.poll_accept_of_session(at(0), Direction::Bidirectional, &cx);
    assert_eq!(accepted, Poll::Ready(Some(at(4))));
    let Poll::Ready(Ok((own, _))) = server.http3.poll_open_of_session(at(0), Direction::Bidirectional, &cx) else {
        panic!("no stream")
    };
    (server, own.stream)
}

/// QUIC keeps a connection for as long as it has open streams, by their number.
#[test]
fn the_end_of_a_session_closes_each_of_its_streams_once() {
    let (mut server, own) = server();
    server.http3.end_webtransport(at(0));
    let gone = Some(ResetCause::Code(ErrorCode::WEBTRANSPORT_SESSION_GONE.0));
    let mut closed = server.quic().closed.clone();
    closed.sort_unstable_by_key(|(stream, _)| *stream);
    let mut expected = [4, 8, own].map(|stream| (stream, gone));
    expected.sort_unstable_by_key(|(stream, _)| *stream);
    assert_eq!(closed, expected);
    // The applications of the streams learn of it, and close them.
    for stream in [4, own] {
        server.http3.close(at(stream), Some(ResetCause::Cancelled), true);
    }
    assert_eq!(server.quic().closed.len(), 3);
}

#[test]
fn a_stream_that_is_closed_before_its_session_is_closed_once() {
    let (mut server, own) = server();
    for stream in [4, own] {
        server.http3.close(at(stream), Some(ResetCause::Cancelled), true);
    }
    server.http3.end_webtransport(at(0));
    let mut streams: Vec<u64> = server.quic().closed.iter().map(|(stream, _)| *stream).collect();
    streams.sort_unstable();
    let mut expected = [4, 8, own];
    expected.sort_unstable();
    assert_eq!(streams, expected);
}
