//! Deadlines and least rates over HTTP/3, in the simulated network, whose time is its own.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use tidegate::engine::{SessionLimits, SessionStreams, Streams};
use tidegate::framing::Raw;
use tidegate::http::{Config, Limits, Request, Router};
use tidegate::http3::{self, ErrorCode};
use tidegate::quic::TransportLimits;
use tidegate::{Context, Event, Handler, Outcome, Rate, Shaping, Slice, quic, task};

use crate::support::http3_stage::{DATA, Peer, Stage, frame, receive, request};

const SECOND: Duration = Duration::from_secs(1);

/// A server whose limits are a few seconds, and a connected client that sends no PING by itself.
fn with_limits(change: impl FnOnce(&mut Limits), scenario: impl FnOnce(&mut Stage, Peer)) {
    with_limits_and_client(change, |_| {}, scenario);
}

/// The same with limits of the client.
fn with_limits_and_client(
    change: impl FnOnce(&mut Limits),
    change_client: impl FnOnce(&mut TransportLimits),
    scenario: impl FnOnce(&mut Stage, Peer),
) {
    let mut limits = Limits::default();
    change(&mut limits);
    let of_streams = tidegate::Limits { write_timeout: limits.write_timeout, ..tidegate::Limits::default() };
    let of_streams = SessionLimits { streams: of_streams, ..SessionLimits::default() };
    let quic = TransportLimits { idle_timeout: Some(limits.idle_timeout), ..TransportLimits::default() };
    let router = Router::new()
        .get("/", || "ebb")
        .get("/silent", async || {
            task::sleep(100 * SECOND).await;
            "flow"
        })
        .get("/large", || vec![b'x'; 3_000_000])
        .post("/read", async |mut request: Request| {
            let mut length = 0;
            while let Some(Ok(piece)) = request.body_mut().next().await {
                length += piece.len();
            }
            length.to_string()
        });
    Stage::simulated(|stage| {
        let address = stage.serve_within((quic.clone(), of_streams), Config::new().limits(limits), router);
        let mut silent = TransportLimits { ping_interval: None, ..quic };
        change_client(&mut silent);
        let peer = stage.connect_within(address, silent);
        scenario(stage, peer);
    });
}

#[test]
fn a_stream_whose_head_does_not_come_gets_408() {
    let head = request("GET", "/", &[]);
    for sent in [1, 2, head.len() - 1] {
        let piece = head[..sent].to_vec();
        with_limits(
            |limits| limits.head_timeout = 5 * SECOND,
            |stage, peer| {
                let network = stage.network();
                let task = stage.with(1, |event_loop| {
                    event_loop.spawn(async move {
                        let mut channel = peer.open(&piece).await;
                        let received = receive(&mut channel).await;
                        (received.status, peer.get("/").await.status)
                    })
                });
                network.run_for(4 * SECOND);
                assert!(!task.is_finished(), "it is in time");
                network.run_for(2 * SECOND);
                assert!(task.is_finished(), "{sent}");
                let statuses = stage.task(async move { task.await.expect("an output") });
                assert_eq!(statuses, ("408".to_owned(), "200".to_owned()), "the connection goes on");
            },
        );
    }
}

#[test]
fn a_head_in_pieces_that_comes_in_time_is_answered() {
    with_limits(
        |limits| limits.head_timeout = 5 * SECOND,
        |stage, peer| {
            let received = stage.task(async move {
                let head = request("GET", "/", &[]);
                let mut channel = peer.open(&head[..1]).await;
                task::sleep(2 * SECOND).await;
                channel.send(head[1..9].to_vec().into()).expect("room");
                task::sleep(2 * SECOND).await;
                channel.send(head[9..].to_vec().into()).expect("room");
                channel.shutdown_write();
                receive(&mut channel).await
            });
            assert_eq!((&*received.status, received.text()), ("200", "ebb"));
        },
    );
}

#[test]
fn a_connection_without_requests_ends_in_good_order_although_its_peer_sends_packets() {
    with_limits(
        |limits| limits.idle_timeout = 10 * SECOND,
        |stage, peer| {
            let network = stage.network();
            // Streams of unknown types are packets, and no requests.
            let sender = peer.clone();
            let _sending = stage.with(1, |event_loop| {
                event_loop.spawn(async move {
                    loop {
                        let opened = sender.connection.open_when_allowed(quic::Direction::Unidirectional, RAW).await;
                        let Ok(mut channel) = opened else { return };
                        let _closed = channel.send(vec![0x40, 0x54, 1].into());
                        channel.shutdown_write();
                        task::sleep(SECOND).await;
                    }
                })
            });
            let connection = peer.connection.clone();
            let ended = stage.with(1, |event_loop| event_loop.spawn(async move { connection.closed().await }));
            for _ in 0..3 {
                network.run_for(8 * SECOND);
                let asking = peer.clone();
                assert_eq!(stage.task(async move { asking.get("/").await.status }), "200", "requests keep it");
            }
            network.run_for(9 * SECOND);
            assert!(!ended.is_finished());
            network.run_for(2 * SECOND);
            assert!(ended.is_finished());
            assert_eq!(ErrorCode(stage.closed(&peer)), ErrorCode::NO_ERROR);
        },
    );
}

#[test]
fn an_old_connection_ends_behind_its_requests_or_after_the_grace() {
    let age = |limits: &mut Limits, grace| {
        limits.deadlines.age_max = Some(100 * SECOND);
        (limits.deadlines.age_grace, limits.request_timeout) = (grace, 300 * SECOND);
        limits.idle_timeout = 300 * SECOND;
    };
    // No request makes it younger.
    with_limits(
        |limits| age(limits, 30 * SECOND),
        |stage, peer| {
            let network = stage.network();
            let connection = peer.connection.clone();
            let ended = stage.with(1, |event_loop| event_loop.spawn(async move { connection.closed().await }));
            for _ in 0..8 {
                network.run_for(10 * SECOND);
                let asking = peer.clone();
                assert_eq!(stage.task(async move { asking.get("/").await.status }), "200");
            }
            assert!(!ended.is_finished());
            network.run_for(35 * SECOND);
            assert!(ended.is_finished());
            assert_eq!(ErrorCode(stage.closed(&peer)), ErrorCode::NO_ERROR);
        },
    );
    // A request in progress goes on for the grace.
    for (grace, status) in [(120 * SECOND, "200"), (SECOND, "")] {
        with_limits(
            |limits| age(limits, grace),
            |stage, peer| {
                stage.network().run_for(89 * SECOND);
                let received = stage.task(async move { peer.get("/silent").await });
                assert_eq!(received.status, status, "{grace:?}");
            },
        );
    }
}

#[test]
fn rates_of_connections_are_refused_where_they_would_not_hold() {
    let shaping = Shaping { send: Some(Rate::per_second(1_000_000)), ..Shaping::default() };
    let mut limits = Limits::default();
    limits.shaping = shaping;
    let with_tls = Config::new().tls(Stage::server_tls());
    let refused = with_tls.clone().limits(limits).http3();
    assert!(matches!(refused, Err(quic::ConfigError::Shaping)), "{refused:?}");
    assert!(with_tls.http3().is_ok());
}

#[test]
fn a_long_silent_response_outlives_the_idle_timeout() {
    with_limits(
        |limits| (limits.idle_timeout, limits.request_timeout) = (10 * SECOND, 300 * SECOND),
        |stage, peer| {
            let received = stage.task(async move { peer.get("/silent").await });
            assert_eq!((&*received.status, received.text()), ("200", "flow"), "{:?}", received.reset);
        },
    );
}

#[test]
fn a_long_silent_response_outlives_a_shorter_idle_timeout_of_the_client() {
    with_limits_and_client(
        |limits| limits.request_timeout = 300 * SECOND,
        |client| client.idle_timeout = Some(10 * SECOND),
        |stage, peer| {
            let received = stage.task(async move { peer.get("/silent").await });
            assert_eq!((&*received.status, received.text()), ("200", "flow"), "{:?}", received.reset);
        },
    );
}

/// Ends its side of a tunnel at once, and counts the pieces that come.
struct Uploads(Rc<Cell<usize>>);

impl Handler<Raw> for Uploads {
    type Post = ();

    fn open(&mut self, cx: &mut Context<'_, Raw>) -> Outcome<Raw> {
        cx.shutdown_write();
        Outcome::Continue
    }

    fn message(&mut self, _: Slice, _: &mut Context<'_, Raw>) -> Outcome<Raw> {
        self.0.set(self.0.get() + 1);
        Outcome::Continue
    }

    fn event(&mut self, event: Event<()>, _: &mut Context<'_, Raw>) -> Outcome<Raw> {
        if event == Event::ReadClosed { Outcome::Close } else { Outcome::Continue }
    }
}

#[test]
fn a_tunnel_that_this_side_has_ended_outlives_the_idle_timeout_while_the_peer_uploads() {
    Stage::simulated(|stage| {
        let pieces = Rc::new(Cell::new(0));
        let of_handlers = pieces.clone();
        let uploads = Streams::handle(move || (RAW, Uploads(of_handlers.clone())));
        let limits = http3::Limits { idle_timeout: 10 * SECOND, ..http3::Limits::default() };
        let services = SessionStreams { bidirectional: Some(uploads), unidirectional: None };
        let address = stage.serve_services(limits, services);
        let peer = stage.connect_within(address, TransportLimits::default());
        let sender = peer.clone();
        stage.task(async move {
            let mut channel = sender.open(b"ebb").await;
            for _ in 0..30 {
                task::sleep(SECOND).await;
                channel.send(b"ebb".to_vec().into()).expect("the connection goes on");
            }
            channel.shutdown_write();
            task::sleep(SECOND).await;
        });
        assert_eq!(pieces.get(), 31);
        // The connection is idle from the end of the tunnel on.
        let (network, connection) = (stage.network(), peer.connection.clone());
        let ended = stage.with(1, |event_loop| event_loop.spawn(async move { connection.closed().await }));
        network.run_for(8 * SECOND);
        assert!(!ended.is_finished());
        network.run_for(13 * SECOND);
        assert!(ended.is_finished());
        assert_eq!(ErrorCode(stage.closed(&peer)), ErrorCode::NO_ERROR);
    });
}

#[test]
fn a_client_that_vanishes_during_a_response_is_found() {
    with_limits(
        |limits| (limits.idle_timeout, limits.request_timeout) = (10 * SECOND, 300 * SECOND),
        |stage, peer| {
            let network = stage.network();
            let _asking = stage.with(1, |event_loop| event_loop.spawn(async move { peer.get("/silent").await.status }));
            network.run_for(SECOND);
            let streams = |stage: &mut Stage| stage.with(0, |event_loop| event_loop.counts().streams);
            assert_eq!(streams(stage), 1);
            stage.cut();
            network.run_for(20 * SECOND);
            assert_eq!(streams(stage), 0);
        },
    );
}

#[test]
fn a_reader_that_stops_is_reset_and_a_slow_one_is_not() {
    for (pause, is_whole) in [(40 * SECOND, false), (SECOND / 5, true)] {
        with_limits(
            |limits| limits.write_timeout = 20 * SECOND,
            |stage, peer| {
                let (length, is_reset) = stage.task(async move {
                    let mut channel = peer.open(&request("GET", "/large", &[])).await;
                    channel.shutdown_write();
                    let mut length = 0;
                    let is_reset = loop {
                        match channel.recv().await {
                            Ok(Some(bytes)) => length += bytes.len(),
                            Ok(None) => break false,
                            Err(_) => break true,
                        }
                        task::sleep(pause).await;
                    };
                    assert_eq!(peer.get("/").await.status, "200", "the connection goes on");
                    (length, is_reset)
                });
                assert_eq!((length > 3_000_000, is_reset), (is_whole, !is_whole), "{length}");
            },
        );
    }
}

#[test]
fn a_slow_body_gets_408_and_one_with_the_least_rate_does_not() {
    for (bytes, status) in [(100, "408"), (300, "200")] {
        with_limits(
            |limits| limits.body_timeout = 5 * SECOND,
            |stage, peer| {
                let received = stage.task(async move {
                    let mut channel = peer.open(&request("POST", "/read", &[])).await;
                    for _ in 0..30 {
                        if channel.send(frame(DATA, &vec![0; bytes]).into()).is_err() {
                            break;
                        }
                        task::sleep(SECOND).await;
                    }
                    channel.shutdown_write();
                    receive(&mut channel).await
                });
                assert_eq!(received.status, status);
            },
        );
    }
}

const RAW: Raw = Raw;
