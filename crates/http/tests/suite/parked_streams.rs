//! Streams whose complete response waits for the window of its peer, and their end.

use std::cell::RefCell;
use std::net::TcpStream;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use tidegate::engine::{SessionLimits, SessionStreams, Streams};
use tidegate::http::{Body, Config, Router, Server};
use tidegate::http1::{Incoming, Outgoing, Response, Status};
use tidegate::http3;
use tidegate::quic::TransportLimits;
use tidegate::{Backend, CloseReason, Context, Handler, Outcome};

use crate::support::http2_peer::{self, RST_STREAM, SETTINGS, WINDOW_UPDATE};
use crate::support::http3_stage::{Peer, Stage, receive, request};

/// A body whose pieces differ, so that one that is lost, or comes twice, shows.
static BLOCK: [u8; BLOCK_BYTES] = {
    let mut block = [0; BLOCK_BYTES];
    let mut at = 0;
    while at < BLOCK_BYTES {
        block[at] = (at / 7 % 251) as u8;
        at += 1;
    }
    block
};

const BLOCK_BYTES: usize = 16 * 1024;

/// Responses of each shape that waits: short, copied once more, too long for that, linked and shared.
fn router() -> Router {
    Router::new()
        .get("/static", || Body::from(&BLOCK[..]))
        .get("/shared", || BLOCK.to_vec())
        .get("/copied", || BLOCK[..900].to_vec())
        .get("/long", || BLOCK[..1500].to_vec())
        .get("/short", || "ebb")
}

const PATHS: [(&str, &[u8]); 5] = [
    ("/short", b"ebb"),
    ("/copied", BLOCK.split_at(900).0),
    ("/long", BLOCK.split_at(1500).0),
    ("/static", &BLOCK),
    ("/shared", &BLOCK),
];

/// Limits of a client whose streams have so small a window.
fn window(bytes: u32) -> TransportLimits {
    TransportLimits { stream_window: bytes, ..TransportLimits::default() }
}

fn streams(stage: &mut Stage) -> u64 {
    stage.with(0, |event_loop| event_loop.counts()).streams
}

#[test]
fn a_response_that_waits_for_one_small_window_after_the_other_arrives_whole() {
    Stage::each(|stage| {
        let address = stage.serve(Config::new(), router());
        for (bytes, paths) in [(700, &PATHS[..]), (1, &PATHS[..1])] {
            let peer = stage.connect_within(address, window(bytes));
            for &(path, body) in paths {
                let peer = peer.clone();
                let received = stage.task(async move { peer.get(path).await });
                assert_eq!((&*received.status, received.body == body, received.reset), ("200", true, None), "{path}");
            }
        }
        stage.with(0, |event_loop| event_loop.turn(Some(Duration::ZERO))).expect("a turn");
        assert_eq!(streams(stage), 0);
    });
}

#[test]
fn a_stream_that_waits_ends_with_its_peer_its_connection_and_its_deadline() {
    Stage::simulated(|stage| {
        let timeout = Duration::from_secs(5);
        let of_streams = tidegate::Limits { write_timeout: timeout, ..tidegate::Limits::default() };
        let of_streams = SessionLimits { streams: of_streams, ..SessionLimits::default() };
        let address = stage.serve_within((TransportLimits::default(), of_streams), Config::new(), router());
        let [peer, other] = [(); 2].map(|()| stage.connect_within(address, window(0)));
        let open = |stage: &mut Stage, peer: &Peer| {
            let peer = Peer::clone(peer);
            let channel = stage.task(async move {
                let mut channel = peer.open(&request("GET", "/static", &[])).await;
                channel.shutdown_write();
                channel
            });
            stage.network().run_for(Duration::from_millis(500));
            channel
        };
        let [first, mut second] = [(); 2].map(|()| open(stage, &peer));
        let third = open(stage, &other);
        assert_eq!(streams(stage), 3);
        first.abort();
        stage.network().run_for(Duration::from_millis(500));
        assert_eq!(streams(stage), 2, "the peer wants no response");
        drop((third, other));
        stage.network().run_for(Duration::from_millis(500));
        assert_eq!(streams(stage), 1, "the connection is closed");
        stage.network().run_for(2 * timeout);
        assert_eq!(streams(stage), 0, "the peer takes no byte");
        let received = stage.task(async move { receive(&mut second).await });
        assert!(received.reset.is_some() && received.body.is_empty(), "{received:?}");
    });
}

/// Responds to each request, and notes why its stream is closed.
struct Noting(Rc<RefCell<Vec<String>>>);

impl Handler<http3::ServerStream> for Noting {
    type Post = ();

    fn message(
        &mut self,
        message: Incoming,
        cx: &mut Context<'_, http3::ServerStream>,
    ) -> Outcome<http3::ServerStream> {
        match message {
            Incoming::Head(_) => cx.send(Outgoing::Response(Response::new(Status::OK).body(&BLOCK[..]))).into(),
            _ => Outcome::Continue,
        }
    }

    fn closed(&mut self, reason: &CloseReason) {
        self.0.borrow_mut().push(reason.to_string());
    }
}

#[test]
fn a_handler_that_observes_the_end_of_its_stream_gets_its_last_call_once() {
    Stage::simulated(|stage| {
        let notes: Rc<RefCell<Vec<String>>> = Rc::default();
        let (config, noted) = (Arc::new(http3::Config::new(http3::Limits::default())), notes.clone());
        let requests = Streams::handle(move || (http3::server_stream(&config, ()), Noting(noted.clone())));
        let services = SessionStreams { bidirectional: Some(requests), unidirectional: None };
        let address = stage.serve_services(http3::Limits::default(), services);
        let peer = stage.connect_within(address, window(700));
        let received = stage.task(async move { peer.get("/").await });
        assert_eq!(received.body, BLOCK);
        let peer = stage.connect_within(address, window(0));
        let (peer, channel) = stage.task(async move {
            let channel = peer.open(&request("GET", "/", &[])).await;
            (peer, channel)
        });
        stage.network().run_for(Duration::from_millis(500));
        assert_eq!((streams(stage), notes.borrow().len()), (1, 1));
        channel.abort();
        stage.network().run_for(Duration::from_millis(500));
        drop(peer);
        let notes = notes.borrow();
        assert_eq!((streams(stage), notes.len()), (0, 2), "{notes:?}");
        assert_ne!(notes[0], notes[1], "one response is complete, and the other one is not");
    });
}

#[test]
fn a_response_over_http_2_arrives_whole_through_small_windows_and_a_reset_ends_one_stream() {
    for backend in [Backend::Epoll, Backend::Uring] {
        let server = match Server::bind("127.0.0.1:0").expect("a port").backend(backend).loops(1).start(router) {
            Err(error) if backend == Backend::Uring => {
                println!("skipped: io_uring: {error}");
                continue;
            }
            server => server.expect("it starts"),
        };
        let socket = TcpStream::connect(server.address().ip().expect("an IP address")).expect("it listens");
        let mut peer = http2_peer::Peer::new(socket);
        // SETTINGS_INITIAL_WINDOW_SIZE.
        peer.frame(SETTINGS, 0, 0, &[0, 4, 0, 0, 2, 188]);
        for (number, (path, body)) in (0..).zip(PATHS) {
            let stream = 2 * number + 1;
            peer.request(stream, "GET", path, &[], true);
            peer.read_until(|peer| peer.is_over(stream));
            let received = peer.stream(stream);
            assert_eq!((received.status(), received.body == body, received.reset), ("200", true, None), "{path}");
        }
        peer.grants = false;
        peer.request(101, "GET", "/static", &[], true);
        peer.request(103, "GET", "/static", &[], true);
        peer.read_until(|peer| [101, 103].iter().all(|stream| peer.stream(*stream).body.len() == 700));
        peer.frame(RST_STREAM, 0, 101, &[0, 0, 0, 8]);
        peer.grants = true;
        peer.frame(WINDOW_UPDATE, 0, 0, &[0, 0, 16, 0]);
        peer.frame(WINDOW_UPDATE, 0, 103, &[0, 0, 2, 188]);
        peer.read_until(|peer| peer.is_over(103));
        assert!(peer.stream(103).body == BLOCK && !peer.is_over(101));
        server.drain(Duration::ZERO);
    }
}
