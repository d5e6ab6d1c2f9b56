//! The memory of HTTP datagrams that wait: it counts, has bounds, and is given back.

use std::task::{Context, Poll, Waker};

use tidegate::codec::StreamEndpoint;
use tidegate::http3::webtransport::WebTransportLimits;
use tidegate::http3::{Config, HttpDatagramLimits, Limits};

use crate::memory_quic::{SESSION, Side, at};
use crate::support::request;

const LIMITS: HttpDatagramLimits =
    HttpDatagramLimits { request_bytes_max: 4_000, early_bytes_max: 2_000, connection_bytes_max: 6_000 };

/// A server with requests on these streams.
fn server(config: Config, streams: &[u64]) -> Side {
    let mut server = Side::with(false, config.grease(None));
    streams.iter().for_each(|stream| server.arrive(*stream, &request("GET", &[]), None));
    server
}

/// Reads all datagrams of a request that wait. Returns how many there were.
fn read(server: &mut Side, stream: u64) -> usize {
    let cx = Context::from_waker(Waker::noop());
    let polled = std::iter::from_fn(|| match server.http3.poll_datagram_of_request(at(stream), &cx) {
        Poll::Ready(datagram) => datagram,
        Poll::Pending => None,
    });
    polled.count()
}

fn dropped(server: &Side) -> u64 {
    server.http3.counts().datagrams_dropped
}

#[test]
fn datagrams_of_requests_count_until_they_are_read_or_their_request_ends() {
    let mut server = server(Config::new(Limits::default()).datagram_limits(LIMITS), &[0, 4]);
    assert_eq!(server.kept(), 0);
    server.arrive_datagram(0, &[7; 500]);
    let early = server.kept();
    assert!((500..600).contains(&early), "{early}");
    server.http3.begin_datagrams(at(0)).expect("a request");
    server.arrive_datagram(0, &[7; 500]);
    assert!((1_000..1_200).contains(&server.kept()), "{}", server.kept());
    assert_eq!((read(&mut server, 0), server.kept()), (2, 0));
    for stream in [0, 4] {
        server.arrive_datagram(stream, &[7; 500]);
    }
    assert!(server.kept() > 1_000);
    server.http3.close(at(0), None, false);
    server.http3.close(at(4), None, false);
    assert_eq!((server.kept(), dropped(&server)), (0, 0));
}

#[test]
fn requests_of_one_connection_share_a_bound_and_memory_that_is_used_up_drops_all() {
    let streams = [0, 4, 8];
    let mut server = server(Config::new(Limits::default()).datagram_limits(LIMITS), &streams);
    for stream in streams {
        server.http3.begin_datagrams(at(stream)).expect("a request");
        (0..10).for_each(|_| server.arrive_datagram(stream, &[7; 500]));
    }
    // Seven of 532 bytes are the bound of one request, and eleven that of the connection.
    let kept = server.kept();
    assert!((5_400..=6_000).contains(&kept) && dropped(&server) == 30 - 11, "{kept}, {}", dropped(&server));
    server.http3.drop_datagrams(SESSION);
    assert_eq!((server.kept(), dropped(&server)), (0, 30));
    // The requests go on.
    server.arrive_datagram(8, b"ebb");
    assert_eq!((read(&mut server, 8), read(&mut server, 0)), (1, 0));
    server.arrive_datagram(8, b"flow");
    server.http3.end_session(SESSION, None, server.now);
    assert_eq!(server.kept(), 0);
}

#[test]
fn datagrams_of_webtransport_count_too() {
    let mut server = server(Config::new(Limits::default()).webtransport(WebTransportLimits::default()), &[0, 4]);
    server.arrive_datagram(0, &[7; 500]);
    assert!((500..600).contains(&server.kept()), "early: {}", server.kept());
    server.http3.begin_session(at(0)).expect("a session");
    server.http3.begin_session(at(4)).expect("a session");
    server.arrive_datagram(4, &[7; 500]);
    server.http3.add_datagram_of_session(at(4), &[7; 500]);
    assert!((1_500..1_700).contains(&server.kept()), "{}", server.kept());
    let cx = Context::from_waker(Waker::noop());
    assert!(server.http3.poll_datagram_of_session(at(0), &cx).is_ready());
    assert!((1_000..1_100).contains(&server.kept()), "{}", server.kept());
    server.http3.end_webtransport(at(4));
    assert_eq!((server.kept(), dropped(&server)), (0, 0));
    server.arrive_datagram(0, &[7; 500]);
    server.http3.drop_datagrams(SESSION);
    assert_eq!((server.kept(), dropped(&server)), (0, 1));
}
