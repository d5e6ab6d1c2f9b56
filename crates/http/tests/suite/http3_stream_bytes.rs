//! The memory of HTTP/3 request streams that wait, above that of the QUIC implementation, counted by the allocator.
//!
//! A server that leaves streams to QUIC stands beside one that serves them. Client, network and QUIC connection do the same
//! with both, so the difference is the memory of HTTP/3, its engine and its application.

use std::future::pending;
use std::time::{Duration, Instant};

use tidegate::codec::mux::{OpenError, ResetCause};
use tidegate::codec::{
    Datagram, Direction, Endpoint, ReadEnd, SessionCounts, SessionEvent, SessionNumber, StreamEndpoint, StreamNumber,
    Transmits, WriteRefused,
};
use tidegate::engine::{SessionLimits, SessionStreams};
use tidegate::http::{Body, Config, Router};
use tidegate::quic;
use tidegate_testkit::allocations::Region;

use crate::support::http3_stage::{Stage, request};

/// A QUIC server that reads its streams, keeps nothing of them, and leaves them open.
struct Bare {
    quic: quic::Endpoint,
    /// It tries to respond to requests.
    writes: bool,
}

impl Endpoint for Bare {
    fn handle_datagram(&mut self, datagram: Datagram, now: Instant) {
        self.quic.handle_datagram(datagram, now);
    }

    fn poll_transmit(&mut self, now: Instant, transmits: &mut Transmits) {
        self.quic.poll_transmit(now, transmits);
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.quic.poll_timeout()
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.quic.handle_timeout(now);
    }
}

impl StreamEndpoint for Bare {
    fn poll_event(&mut self, now: Instant) -> Option<SessionEvent> {
        loop {
            match self.quic.poll_event(now)? {
                SessionEvent::Opened { stream, direction } => {
                    let _read = self.quic.read(stream, &mut [0; 4096]);
                    if self.writes && direction == Direction::Bidirectional {
                        assert_eq!(self.quic.write(stream, b"ebb"), Ok(0), "no window was granted");
                    }
                }
                SessionEvent::Readable(stream) => {
                    let _read = self.quic.read(stream, &mut [0; 4096]);
                }
                event => return Some(event),
            }
        }
    }

    fn read(&mut self, stream: StreamNumber, space: &mut [u8]) -> (usize, ReadEnd) {
        self.quic.read(stream, space)
    }

    fn write(&mut self, stream: StreamNumber, bytes: &[u8]) -> Result<usize, WriteRefused> {
        self.quic.write(stream, bytes)
    }

    fn finish(&mut self, stream: StreamNumber) {
        self.quic.finish(stream);
    }

    fn close(&mut self, stream: StreamNumber, cause: Option<ResetCause>, resets: bool) {
        self.quic.close(stream, cause, resets);
    }

    fn open(&mut self, session: SessionNumber, direction: Direction) -> Result<StreamNumber, OpenError> {
        self.quic.open(session, direction)
    }

    fn end_session(&mut self, session: SessionNumber, cause: Option<ResetCause>, now: Instant) {
        self.quic.end_session(session, cause, now);
    }

    fn counts(&self) -> SessionCounts {
        self.quic.counts()
    }
}

static BLOCK: [u8; 16 * 1024] = [7; 16 * 1024];

fn router() -> Router {
    Router::new()
        .get("/static", || Body::from(&BLOCK[..]))
        .get("/waits", async || -> &'static str { pending().await })
        .post("/collects", |_: Vec<u8>| "")
        .post("/reads", async |mut body: Body| -> &'static str {
            while body.next().await.is_some() {}
            ""
        })
}

/// A request of which a stream waits.
#[derive(Clone, Copy)]
struct Waiting {
    method: &'static str,
    path: &'static str,
    /// The response waits for the window of its stream.
    writes: bool,
}

/// The memory of both sides for connections with so many streams that wait.
fn connections_bytes(waiting: Waiting, streams: usize, is_bare: bool) -> isize {
    let mut bytes = 0;
    Stage::simulated(|stage| {
        let (of_server, mut of_client) = (limits(), limits());
        of_client.stream_window = if waiting.writes { 0 } else { of_client.stream_window };
        let address = if is_bare {
            let quic = stage.quic(of_server);
            let make = move || Bare { quic: quic.endpoint(0), writes: waiting.writes };
            stage.serve_endpoint(SessionLimits::default(), make, |_| SessionStreams::default())
        } else {
            stage.serve_with(of_server, Config::new(), router())
        };
        let mut open = || {
            let peer = stage.connect_within(address, of_client.clone());
            let channels = stage.task(async move {
                let mut channels = Vec::with_capacity(streams);
                for _ in 0..streams {
                    let mut channel = peer.open(&request(waiting.method, waiting.path, &[])).await;
                    if waiting.method == "GET" {
                        channel.shutdown_write();
                    }
                    channels.push(channel);
                }
                (peer, channels)
            });
            stage.network().run_for(Duration::from_millis(500));
            channels
        };
        let mut peers = Vec::with_capacity(2 * CONNECTIONS);
        (0..CONNECTIONS).for_each(|_| peers.push(open()));
        let region = Region::new();
        (0..CONNECTIONS).for_each(|_| peers.push(open()));
        bytes = region.change().bytes_in_use();
        let expected = if is_bare { 0 } else { 2 * CONNECTIONS * streams };
        assert_eq!(stage.with(0, |event_loop| event_loop.counts()).streams, expected as u64);
    });
    bytes
}

/// Limits with which the table of QUIC's streams has the same size however many are open.
fn limits() -> quic::TransportLimits {
    quic::TransportLimits {
        bidirectional_initial: STREAMS as u32,
        bidirectional_max: STREAMS as u32,
        ..quic::TransportLimits::default()
    }
}

/// The memory of a stream above QUIC's.
fn stream_bytes(waiting: Waiting) -> isize {
    let [ours, bare] = [false, true].map(|is_bare| {
        let [few, many] = [FEW_STREAMS, STREAMS].map(|streams| connections_bytes(waiting, streams, is_bare));
        (many - few) / (CONNECTIONS * (STREAMS - FEW_STREAMS)) as isize
    });
    println!(
        "{} {}: {ours} bytes of both sides for a stream, {bare} without HTTP/3: {} above QUIC",
        waiting.method,
        waiting.path,
        ours - bare
    );
    ours - bare
}

#[test]
fn a_stream_that_waits_costs_little_above_quic() {
    let cases = [
        (Waiting { method: "GET", path: "/static", writes: true }, WAITING_BYTES_MAX),
        (Waiting { method: "GET", path: "/waits", writes: false }, WORKING_BYTES_MAX),
        (Waiting { method: "POST", path: "/collects", writes: false }, COLLECTED_BYTES_MAX),
        (Waiting { method: "POST", path: "/reads", writes: false }, TASK_BYTES_MAX),
    ];
    let bytes = cases.map(|(waiting, most)| (waiting.path, stream_bytes(waiting), most));
    assert!(bytes.iter().all(|(_, bytes, most)| bytes <= most), "{bytes:?}");
}

/// The peer takes a few bytes of each response and no more, so that the check of its rate finds progress once.
#[test]
fn a_stream_whose_peer_is_checked_stays_as_small_as_it_was() {
    Stage::simulated(|stage| {
        let write_timeout = Duration::from_secs(5);
        let of_streams = tidegate::Limits { write_timeout, write_rate_min: 0, ..tidegate::Limits::default() };
        let of_streams = SessionLimits { streams: of_streams, ..SessionLimits::default() };
        let address = stage.serve_within((limits(), of_streams), Config::new(), router());
        let peer = stage.connect_within(address, quic::TransportLimits { stream_window: 16, ..limits() });
        let _channels = stage.task(async move {
            let mut channels = Vec::with_capacity(STREAMS);
            for _ in 0..STREAMS {
                let mut channel = peer.open(&request("GET", "/static", &[])).await;
                channel.shutdown_write();
                channels.push(channel);
            }
            (peer, channels)
        });
        stage.network().run_for(Duration::from_millis(500));
        let region = Region::new();
        stage.network().run_for(write_timeout + Duration::from_secs(2));
        assert_eq!(stage.with(0, |event_loop| event_loop.counts()).streams, STREAMS as u64);
        let bytes = region.change().bytes_in_use() / STREAMS as isize;
        println!("{bytes} bytes more for each stream");
        assert!(bytes <= 16, "{bytes} bytes more for each stream");
    });
}

const CONNECTIONS: usize = 8;
const STREAMS: usize = 112;
const FEW_STREAMS: usize = 28;

/// The most bytes of a stream that waits for its peer's window, with those of its response's head.
const WAITING_BYTES_MAX: isize = 300;

/// The same of one with a head that a function awaits.
const WORKING_BYTES_MAX: isize = 780;

/// The same of one that waits for its body.
const COLLECTED_BYTES_MAX: isize = 940;

/// The same of one whose function has a task.
const TASK_BYTES_MAX: isize = 3500;
