//! Early data (RFC 8470) and its handshake, on a QUIC whose events a test chooses.

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use tidegate::codec::mux::{OpenError, ResetCause};
use tidegate::codec::{
    Datagram, Direction, Endpoint as _, ReadEnd, SessionEvent, SessionNumber, StreamEndpoint, StreamNumber, Transmits,
    WriteRefused,
};
use tidegate::http3::webtransport::WebTransportLimits;
use tidegate::http3::{Config, Endpoint, Limits, varint};

use crate::support::{frame, request};

pub(crate) const SESSION: SessionNumber = SessionNumber(1);

/// The type of a bidirectional stream of WebTransport.
const WEBTRANSPORT_STREAM: u64 = 0x41;
const SETTINGS: u64 = 4;
const PRIORITY_UPDATE: u64 = 0xf_0700;

/// QUIC, of one connection.
#[derive(Default)]
pub(crate) struct Quic {
    events: VecDeque<SessionEvent>,
    /// Bytes that HTTP/3 has not read, and their end.
    streams: BTreeMap<u64, (VecDeque<u8>, Option<ReadEnd>)>,
    is_confirmed: bool,
    pub(crate) closed: Vec<(u64, Option<ResetCause>)>,
    /// Bytes of the control streams of the server.
    pub(crate) written: BTreeMap<SessionNumber, Vec<u8>>,
    pub(crate) has_ended: bool,
}

impl tidegate::codec::Endpoint for Quic {
    fn handle_datagram(&mut self, _: Datagram, _: Instant) {}

    fn poll_transmit(&mut self, _: Instant, _: &mut Transmits) {}
}

impl StreamEndpoint for Quic {
    fn poll_event(&mut self, _: Instant) -> Option<SessionEvent> {
        self.events.pop_front()
    }

    fn read(&mut self, stream: StreamNumber, space: &mut [u8]) -> (usize, ReadEnd) {
        let Some((bytes, end)) = self.streams.get_mut(&stream.stream) else { return (0, ReadEnd::Blocked) };
        if let Some(reset @ ReadEnd::Reset(_)) = *end {
            return (0, reset);
        }
        let count = bytes.len().min(space.len());
        bytes.drain(..count).zip(space).for_each(|(byte, place)| *place = byte);
        let end = if bytes.is_empty() { end.unwrap_or(ReadEnd::Blocked) } else { ReadEnd::More };
        (count, end)
    }

    fn write(&mut self, stream: StreamNumber, bytes: &[u8]) -> Result<usize, WriteRefused> {
        self.written.entry(stream.session).or_default().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn finish(&mut self, _: StreamNumber) {}

    fn close(&mut self, stream: StreamNumber, cause: Option<ResetCause>, _: bool) {
        self.closed.push((stream.stream, cause));
    }

    fn open(&mut self, session: SessionNumber, _: Direction) -> Result<StreamNumber, OpenError> {
        Ok(StreamNumber { session, stream: 3 })
    }

    fn end_session(&mut self, _: SessionNumber, _: Option<ResetCause>, _: Instant) {
        self.has_ended = true;
    }

    fn is_early(&self, _: StreamNumber) -> bool {
        !self.is_confirmed
    }

    fn is_confirmed(&self, _: SessionNumber) -> bool {
        self.is_confirmed
    }
}

pub(crate) fn at(stream: u64) -> StreamNumber {
    StreamNumber { session: SESSION, stream }
}

/// A server on such a QUIC, which the test reaches as a client does that connects.
pub(crate) struct Server {
    pub(crate) http3: Endpoint<Quic>,
    pub(crate) now: Instant,
}

impl Server {
    pub(crate) fn new(limits: Limits, webtransport: bool) -> Self {
        let config = Config::new(limits).grease(None);
        let config = if webtransport { config.webtransport(WebTransportLimits::default()) } else { config };
        let mut server = Self { http3: Endpoint::server(config.into(), Quic::default()), now: Instant::now() };
        server.push(SessionEvent::Established { session: SESSION, peer: ([127, 0, 0, 1], 1).into() });
        assert_eq!(server.poll(), ["Established"]);
        server
    }

    pub(crate) fn quic(&mut self) -> &mut Quic {
        self.http3.as_mut()
    }

    pub(crate) fn push(&mut self, event: SessionEvent) {
        self.quic().events.push_back(event);
    }

    /// Bytes of a stream of the client come, which is open from then on.
    pub(crate) fn open(&mut self, stream: u64, bytes: &[u8], end: Option<ReadEnd>) {
        let direction = if stream & 2 == 0 { Direction::Bidirectional } else { Direction::Unidirectional };
        self.quic().streams.insert(stream, (bytes.iter().copied().collect(), end));
        self.push(SessionEvent::Opened { stream: at(stream), direction });
    }

    pub(crate) fn confirm(&mut self) {
        self.quic().is_confirmed = true;
    }

    /// The events of the caller.
    pub(crate) fn poll(&mut self) -> Vec<String> {
        let (now, mut events) = (self.now, Vec::new());
        while let Some(event) = self.http3.poll_event(now) {
            events.push(match event {
                SessionEvent::Established { .. } => "Established".to_owned(),
                SessionEvent::Opened { stream, .. } => format!("Opened {}", stream.stream),
                SessionEvent::Prioritized { stream, urgency } => format!("Prioritized {} {urgency}", stream.stream),
                SessionEvent::Ended { reason, .. } => format!("Ended {reason}"),
                event => format!("{event:?}"),
            });
        }
        events
    }
}

fn connect() -> Vec<u8> {
    request("CONNECT", &[(":protocol", "webtransport")])
}

fn stream_of_session(session: u64) -> Vec<u8> {
    let mut wire = Vec::new();
    varint::write(WEBTRANSPORT_STREAM, &mut wire);
    varint::write(session, &mut wire);
    wire
}

#[test]
fn a_request_that_was_held_comes_before_its_priority() {
    for webtransport in [false, true] {
        let mut server = Server::new(Limits::default(), webtransport);
        let update = frame(PRIORITY_UPDATE, b"\x00u=1");
        server.open(2, &[&[0][..], &frame(SETTINGS, b""), &update].concat(), None);
        server.open(0, &request("POST", &[]), None);
        assert_eq!(server.poll(), Vec::<String>::new());
        server.confirm();
        server.push(SessionEvent::Confirmed(SESSION));
        assert_eq!(server.poll(), ["Opened 0", "Prioritized 0 1"], "{webtransport}");
    }
}

#[test]
fn a_stream_behind_the_handshake_comes_after_the_request_of_its_session() {
    let mut server = Server::new(Limits::default(), true);
    server.open(0, &connect(), None);
    assert_eq!(server.poll(), Vec::<String>::new());
    // The event of the handshake is behind those of streams.
    server.confirm();
    server.open(4, &stream_of_session(0), None);
    server.open(8, &request("GET", &[]), Some(ReadEnd::Ended));
    server.push(SessionEvent::Confirmed(SESSION));
    assert_eq!(server.poll(), ["Opened 0", "Opened 8"]);
    assert_eq!(server.quic().closed, []);
    server.http3.begin_session(at(0)).unwrap();
    let cx = std::task::Context::from_waker(std::task::Waker::noop());
    let accepted = server.http3.poll_accept_of_session(at(0), Direction::Bidirectional, &cx);
    assert_eq!(accepted, std::task::Poll::Ready(Some(at(4))));
}

#[test]
fn the_bytes_of_early_requests_have_a_bound_for_each_connection() {
    let mut server = Server::new(Limits::default(), false);
    let body = frame(0, &[b'x'; 20_000]);
    for stream in 0..100 {
        server.open(stream * 4, &[&request("POST", &[])[..], &body].concat(), None);
    }
    assert_eq!(server.poll(), Vec::<String>::new());
    let length = request("POST", &[]).len() + body.len();
    let left: usize = server.quic().streams.values().map(|(bytes, _)| bytes.len()).sum();
    let taken = length * 100 - left;
    assert!((64 * 1024..70 * 1024).contains(&taken), "{taken}");
    // All bytes are there in the end.
    server.confirm();
    server.push(SessionEvent::Confirmed(SESSION));
    assert_eq!(server.poll().len(), 100);
    for stream in 0..100 {
        let (mut space, mut read) = ([0; 4096], 0);
        loop {
            let (count, end) = server.http3.read(at(stream * 4), &mut space);
            read += count;
            if end != ReadEnd::More {
                break;
            }
        }
        assert_eq!(read, length, "{stream}");
    }
}

/// The memory that the endpoint keeps, which is all of its one connection.
fn kept(server: &Server) -> usize {
    let mut of_session = 0;
    server.http3.each_kept(&mut |session, bytes| {
        assert_eq!(session, SESSION);
        of_session += bytes;
    });
    assert_eq!(server.http3.kept_bytes(), of_session);
    of_session
}

/// A server with the early POST requests of ten streams, in 32 KiB or more.
fn server_with_early_requests() -> Server {
    let mut server = Server::new(Limits::default(), false);
    assert_eq!(kept(&server), 0);
    for stream in 0..10 {
        server.open(stream * 4, &[&request("POST", &[])[..], &frame(0, &[b'x'; 4096])].concat(), Some(ReadEnd::Ended));
    }
    assert_eq!(server.poll(), Vec::<String>::new());
    let kept = kept(&server);
    assert!((40 * 1024..=96 * 1024).contains(&kept), "{kept}");
    server
}

#[test]
fn the_memory_of_early_requests_counts_until_they_are_read() {
    let mut server = server_with_early_requests();
    server.confirm();
    server.push(SessionEvent::Confirmed(SESSION));
    assert_eq!(server.poll().len(), 10);
    let mut before = kept(&server);
    for stream in 0..10 {
        let mut space = [0; 8192];
        assert!(server.http3.read(at(stream * 4), &mut space).0 > 4096);
        let after = kept(&server);
        assert!(after < before, "{stream}");
        before = after;
    }
    assert_eq!(before, 0);
}

#[test]
fn the_memory_of_an_early_request_that_is_served_at_once_counts_until_it_is_read() {
    let mut server = Server::new(Limits::default(), false);
    server.open(0, &request("GET", &[]), Some(ReadEnd::Ended));
    assert_eq!(server.poll(), ["Opened 0"]);
    assert!(kept(&server) > 0);
    server.http3.read(at(0), &mut [0; 1024]);
    assert_eq!(kept(&server), 0);
}

#[test]
fn the_memory_of_early_requests_is_free_when_they_are_given_up_or_their_connection_ends() {
    let mut server = server_with_early_requests();
    for stream in 0..5 {
        server.push(SessionEvent::Stopped { stream: at(stream * 4), code: 0x10c, is_unneeded: false });
    }
    let before = kept(&server);
    server.poll();
    assert!(kept(&server) * 2 <= before, "{before}");
    for stream in 5..10 {
        server.http3.close(at(stream * 4), Some(ResetCause::Refused), true);
    }
    assert_eq!(kept(&server), 0);

    // The client resets a request of which a part has come.
    let mut server = Server::new(Limits::default(), false);
    server.open(0, &request("POST", &[]), None);
    server.poll();
    assert!(kept(&server) > 0);
    server.quic().streams.insert(0, (VecDeque::new(), Some(ReadEnd::Reset(0x10c))));
    server.push(SessionEvent::Readable(at(0)));
    server.poll();
    assert_eq!(kept(&server), 0);

    let mut server = server_with_early_requests();
    server.push(SessionEvent::Ended { session: SESSION, reason: "over".into() });
    server.poll();
    assert_eq!(kept(&server), 0);

    // The loop ends the connection, whose memory it needs.
    let mut server = server_with_early_requests();
    let now = server.now;
    server.http3.drop_datagrams(SESSION);
    server.http3.end_session(SESSION, Some(ResetCause::Refused), now);
    assert_eq!(kept(&server), 0);
}

#[test]
fn early_requests_that_are_reset_count_as_abuse() {
    let limits = || Limits { abuse_max: 10, ..Limits::default() };
    for stops in [false, true] {
        let mut server = Server::new(limits(), false);
        for stream in 0..20 {
            if stops {
                server.open(stream * 4, &request("POST", &[]), None);
                server.push(SessionEvent::Stopped { stream: at(stream * 4), code: 0x10c, is_unneeded: false });
            } else {
                server.open(stream * 4, b"", Some(ReadEnd::Reset(0x10c)));
            }
        }
        let events = server.poll();
        assert!(server.quic().has_ended && events.iter().any(|event| event.starts_with("Ended")), "{stops} {events:?}");
    }
}

#[test]
fn a_connection_that_is_over_leaves_no_timer() {
    let mut server = Server::new(Limits::default(), true);
    server.confirm();
    server.open(0, &stream_of_session(400), None);
    assert_eq!(server.poll(), Vec::<String>::new());
    assert!(server.http3.poll_timeout().is_some());
    server.push(SessionEvent::Ended { session: SESSION, reason: "over".into() });
    assert_eq!(server.poll(), ["Ended over"]);
    server.now += Duration::from_secs(1);
    assert_eq!(server.http3.poll_timeout(), None);
}
