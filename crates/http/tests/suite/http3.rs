//! Applications over HTTP/3, with a client that writes frames by hand: on epoll, on io_uring and in the simulated network.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use tidegate::codec::DynOver;
use tidegate::http::{Body, Config, Event, Limits, Request, Response, Router, Sse, WebSocketUpgrade};
use tidegate::http1::Fields;
use tidegate::http3::{ErrorCode, varint};
use tidegate::websocket::{Message, WebSocket};
use tidegate::{Context, Handler, Outcome, quic, task};

use crate::support::http3_stage::{
    CONTROL, DATA, GOAWAY, PRIORITY_UPDATE, Peer, Received, SETTINGS, Stage, frame, headers, receive, request, split,
};

struct Echo;

impl Handler<DynOver<WebSocket>> for Echo {
    type Post = ();

    fn message(&mut self, message: Message, cx: &mut Context<'_, DynOver<WebSocket>>) -> Outcome<DynOver<WebSocket>> {
        if matches!(message, Message::Close(_)) { Outcome::Continue } else { cx.send(message).into() }
    }
}

/// Functions of all kinds, and the ends of the bodies that they have seen.
fn router(seen: &Rc<RefCell<Vec<String>>>) -> Router {
    let (seen, of_whole) = (seen.clone(), seen.clone());
    Router::new()
        .get("/", |request: Request| format!("{:?} {}", request.version(), request.is_secure()))
        .get("/large", || vec![b'x'; 3_000_000])
        .get("/later", async || {
            task::sleep(Duration::from_millis(1)).await;
            "later"
        })
        .get("/slow", async || {
            task::sleep(Duration::from_secs(1)).await;
            "slow"
        })
        .get("/trailers", || {
            Response::new().body(Body::produce(async |writer| {
                writer.write(b"ebb".to_vec()).await?;
                let mut trailers = Fields::new();
                trailers.push("Checksum", "7")?;
                Ok(writer.trailers(trailers)?)
            }))
        })
        .get("/events", || {
            Sse::new(async |mut writer| {
                writer.send(Event::new().data("high")).await?;
                Ok(writer.send(Event::new().data("low")).await?)
            })
        })
        .get("/ws", |upgrade: WebSocketUpgrade| upgrade.handler(Echo))
        .post("/echo", async |request: Request| -> Body { request.into_body() })
        .post("/whole", move |body: Vec<u8>| {
            of_whole.borrow_mut().push(format!("{} bytes", body.len()));
            body.len().to_string()
        })
        .post("/read", async move |mut request: Request| {
            let mut length = 0;
            while let Some(piece) = request.body_mut().next().await {
                match piece {
                    Ok(piece) => length += piece.len(),
                    Err(error) => {
                        seen.borrow_mut().push(format!("{length} bytes, then {error}"));
                        return "incomplete".to_owned();
                    }
                }
            }
            seen.borrow_mut().push(format!("{length} bytes"));
            length.to_string()
        })
}

/// Runs a scenario on each stage, with a connected client.
fn each(scenario: impl Fn(&mut Stage, Peer, Rc<RefCell<Vec<String>>>)) {
    each_with(Config::new, scenario);
}

fn each_with(config: impl Fn() -> Config, scenario: impl Fn(&mut Stage, Peer, Rc<RefCell<Vec<String>>>)) {
    Stage::each(|stage| {
        let seen = Rc::default();
        let address = stage.serve(config(), router(&seen));
        let peer = stage.connect(address);
        scenario(stage, peer, seen);
    });
}

#[test]
fn functions_of_all_kinds_answer() {
    each(|stage, peer, _| {
        stage.task(async move {
            let page = peer.get("/").await;
            assert_eq!((&*page.status, page.text()), ("200", "HTTP/3.0 true"));
            assert_eq!((page.field("server"), page.field("content-length")), (Some("Tidegate"), Some("13")));
            assert_eq!(page.field("alt-svc"), None);
            assert_eq!(peer.get("/nothing").await.status, "404");
            assert_eq!(peer.get("/later").await.text(), "later");
            assert_eq!(peer.get("/large").await.body.len(), 3_000_000);
            let head = peer.ask(&request("HEAD", "/", &[])).await;
            assert_eq!((&*head.status, head.body.len(), head.field("content-length")), ("200", 0, Some("13")));
            let trailers = peer.get("/trailers").await;
            assert_eq!((trailers.text(), &trailers.trailers[..]), ("ebb", &[("checksum".into(), "7".into())][..]));
            assert_eq!(peer.get("/events").await.text(), "data: high\n\ndata: low\n\n");
        });
    });
}

#[test]
fn bodies_come_back_whole() {
    each(|stage, peer, seen| {
        stage.task(async move {
            for (path, length) in [("/echo", 200_000), ("/read", 700_000)] {
                let body = vec![b'y'; length];
                let mut channel = peer.open(&request("POST", path, &[])).await;
                for piece in body.chunks(50_000) {
                    channel.ready().await.expect("room");
                    channel.send(frame(DATA, piece).into()).expect("room");
                }
                channel.shutdown_write();
                let received = receive(&mut channel).await;
                assert!(received.body == body || received.text() == "700000", "{path}: {:?}", received.reset);
            }
            let short = [request("POST", "/whole", &[("content-length", "3")]), frame(DATA, b"ebb")].concat();
            assert_eq!(peer.ask(&short).await.text(), "3");
        });
        assert_eq!(*seen.borrow(), ["700000 bytes", "3 bytes"]);
    });
}

/// A client may write the head of a frame by itself, as quic-go does. The codec consumes it before the task has a piece.
#[test]
fn a_body_goes_on_whose_first_bytes_are_the_head_of_a_frame_alone() {
    each(|stage, peer, _| {
        stage.task(async move {
            let body = vec![b'y'; 700_000];
            let data = frame(DATA, &body);
            let frame_head = data.len() - body.len();
            for early in 1..=frame_head + 1 {
                let mut channel = peer.open(&[&request("POST", "/read", &[]), &data[..early]].concat()).await;
                task::sleep(Duration::from_millis(2)).await;
                for piece in data[early..].chunks(50_000) {
                    channel.ready().await.expect("room");
                    channel.send(piece.to_vec().into()).expect("room");
                }
                channel.shutdown_write();
                assert_eq!(receive(&mut channel).await.text(), "700000", "{early}");
            }
        });
    });
}

#[test]
fn more_requests_than_streams_are_answered() {
    each(|stage, peer, _| {
        let mut tasks = Vec::new();
        for number in 0..300 {
            let peer = peer.clone();
            let path = if number % 2 == 0 { "/" } else { "/later" };
            tasks.push(stage.with(1, |event_loop| event_loop.spawn(async move { peer.get(path).await.status })));
        }
        stage.run_until(|| tasks.iter().all(|task| task.is_finished()));
        let statuses = stage.task(async move {
            let mut statuses = Vec::new();
            for task in tasks {
                statuses.push(task.await.expect("a response"));
            }
            statuses
        });
        assert_eq!(statuses, vec!["200"; 300]);
    });
}

#[test]
fn websockets_open_by_extended_connect() {
    each(|stage, peer, _| {
        stage.task(async move {
            let more = [(":protocol", "websocket"), ("sec-websocket-version", "13")];
            let mut channel = peer.open(&request("CONNECT", "/ws", &more)).await;
            let masked = |opcode: u8, payload: &[u8]| {
                let head = [0x80 | opcode, 0x80 | payload.len() as u8, 0, 0, 0, 0];
                frame(DATA, &[&head, payload].concat())
            };
            channel.send([masked(1, b"ebb"), masked(8, &[3, 232])].concat().into()).expect("room");
            channel.shutdown_write();
            let received = receive(&mut channel).await;
            assert_eq!((&*received.status, &received.body[..]), ("200", &b"\x81\x03ebb\x88\x02\x03\xe8"[..]));
        });
    });
}

#[test]
fn a_malformed_message_resets_its_stream_alone() {
    let start = [(":method", "GET"), (":scheme", "https"), (":authority", "sea"), (":path", "/")];
    let messages = [
        headers(&start[..3]),
        headers(&[&start[..], &start[3..]].concat()),
        headers(&[&start[..], &[(":status", "200")]].concat()),
        headers(&[&start[..2], &[("x", "y")], &start[2..]].concat()),
        headers(&[&start[..], &[("Upper", "case")]].concat()),
        headers(&[&start[..], &[("connection", "close")]].concat()),
        headers(&[&start[..], &[("transfer-encoding", "chunked")]].concat()),
        headers(&[&start[..], &[("te", "gzip")]].concat()),
        request("GET", "/", &[("x", "a\r\nb: c")]),
        [request("POST", "/whole", &[("content-length", "3")]), frame(DATA, b"flow")].concat(),
        [request("POST", "/whole", &[("content-length", "9")]), frame(DATA, b"ebb")].concat(),
        request("POST", "/whole", &[("content-length", "9")]),
    ];
    each(|stage, peer, seen| {
        let messages = messages.clone();
        stage.task(async move {
            for (number, message) in messages.iter().enumerate() {
                let received = peer.ask(message).await;
                assert!(received.is_reset_with(ErrorCode::MESSAGE_ERROR), "{number}: {received:?}");
                assert_eq!(received.status, "", "{number}");
            }
            assert_eq!(peer.get("/").await.status, "200");
        });
        assert_eq!(*seen.borrow(), [""; 0], "no function has a body that is incomplete");
    });
}

#[test]
fn a_body_that_ends_early_is_an_error_for_its_function() {
    each(|stage, peer, seen| {
        let received = stage.task(async move {
            let wire = [request("POST", "/read", &[("content-length", "9")]), frame(DATA, b"ebb")].concat();
            let mut channel = peer.open(&wire).await;
            task::sleep(Duration::from_millis(20)).await;
            channel.shutdown_write();
            receive(&mut channel).await
        });
        assert!(received.is_reset_with(ErrorCode::MESSAGE_ERROR), "{received:?}");
        let seen = seen.borrow();
        assert!(seen.iter().all(|seen| seen.starts_with("3 bytes, then")), "{seen:?}");
    });
}

#[test]
fn a_broken_connection_is_closed_with_its_code() {
    let request_streams: [(Vec<u8>, ErrorCode); 5] = [
        (frame(DATA, b"ebb"), ErrorCode::FRAME_UNEXPECTED),
        (frame(SETTINGS, b""), ErrorCode::FRAME_UNEXPECTED),
        (frame(5, b""), ErrorCode::FRAME_UNEXPECTED),
        // An index of the static table that there is not.
        (frame(1, &[0, 0, 0xff, 0x80, 0x01]), ErrorCode::QPACK_DECOMPRESSION_FAILED),
        (frame(1, &[9, 0, 0x80]), ErrorCode::QPACK_DECOMPRESSION_FAILED),
    ];
    for (wire, code) in request_streams {
        each(|stage, peer, _| {
            let (sender, wire) = (peer.clone(), wire.clone());
            let _channel = stage.task(async move { sender.open(&wire).await });
            assert_eq!(ErrorCode(stage.closed(&peer)), code);
        });
    }
}

#[test]
fn broken_unidirectional_streams_close_the_connection() {
    let streams: [(Vec<u8>, ErrorCode); 8] = [
        ([CONTROL, &frame(SETTINGS, b"")].concat(), ErrorCode::STREAM_CREATION_ERROR),
        (vec![1], ErrorCode::STREAM_CREATION_ERROR),
        (vec![2, 0x3f, 0xff, 0xff, 1], ErrorCode::QPACK_ENCODER_STREAM_ERROR),
        (vec![3, 0], ErrorCode::QPACK_DECODER_STREAM_ERROR),
        (vec![0x40, 0], ErrorCode::STREAM_CREATION_ERROR),
        (vec![0x40, 2, 0xc0], ErrorCode::QPACK_ENCODER_STREAM_ERROR),
        ([&[0x80, 0, 0, 0][..], &frame(SETTINGS, b"")].concat(), ErrorCode::STREAM_CREATION_ERROR),
        (vec![3, 0x80], ErrorCode::QPACK_DECODER_STREAM_ERROR),
    ];
    for (wire, code) in streams {
        each(|stage, peer, _| {
            let (sender, bytes) = (peer.clone(), wire.clone());
            let _channel = stage.task(async move { sender.open_uni(&bytes) });
            assert_eq!(ErrorCode(stage.closed(&peer)), code, "{wire:?}");
        });
    }
}

#[test]
fn broken_control_streams_close_the_connection() {
    let settings = frame(SETTINGS, b"");
    let streams: [(Vec<u8>, ErrorCode); 6] = [
        (frame(GOAWAY, &[0]), ErrorCode::MISSING_SETTINGS),
        ([&settings[..], &settings].concat(), ErrorCode::FRAME_UNEXPECTED),
        (frame(SETTINGS, &[2, 0]), ErrorCode::SETTINGS_ERROR),
        (frame(SETTINGS, &[6, 1, 6, 1]), ErrorCode::SETTINGS_ERROR),
        ([&settings[..], &frame(GOAWAY, &[0]), &frame(GOAWAY, &[4])].concat(), ErrorCode::ID_ERROR),
        ([&settings[..], &frame(DATA, b"")].concat(), ErrorCode::FRAME_UNEXPECTED),
    ];
    for (wire, code) in streams {
        Stage::each(|stage| {
            let address = stage.serve(Config::new(), router(&Rc::default()));
            let peer = stage.connect_silently(address);
            let (sender, bytes) = (peer.clone(), [CONTROL, &wire].concat());
            let _channel = stage.task(async move { sender.open_uni(&bytes) });
            assert_eq!(ErrorCode(stage.closed(&peer)), code, "{wire:?}");
        });
    }
}

#[test]
fn a_control_stream_that_ends_closes_the_connection() {
    Stage::each(|stage| {
        let address = stage.serve(Config::new(), router(&Rc::default()));
        let peer = stage.connect_silently(address);
        let sender = peer.clone();
        let _channel = stage.task(async move {
            let mut channel = sender.open_uni(&[CONTROL, &frame(SETTINGS, b"")].concat());
            channel.shutdown_write();
            channel
        });
        assert_eq!(ErrorCode(stage.closed(&peer)), ErrorCode::CLOSED_CRITICAL_STREAM);
    });
}

#[test]
fn an_unknown_unidirectional_stream_is_no_error() {
    each(|stage, peer, _| {
        let received = stage.task(async move {
            let mut short = peer.open_uni(&[0x40, 0x54, 1, 2, 3]);
            short.shutdown_write();
            // One byte of a type that has two.
            let mut cut = peer.open_uni(&[0x40]);
            cut.shutdown_write();
            peer.get("/").await
        });
        assert_eq!(received.status, "200");
    });
}

/// Opens requests, and resets each before its end.
async fn reset_requests(peer: &Peer, count: usize) {
    for _ in 0..count {
        let Ok(mut channel) = peer.connection.open_when_allowed(quic::Direction::Bidirectional, RAW).await else {
            return;
        };
        // The server has ended the connection.
        let Ok(position) = channel.send(request("GET", "/slow", &[]).into()) else { return };
        let _ = channel.flushed(position).await;
        channel.reset(ErrorCode::REQUEST_CANCELLED.0);
    }
}

const RAW: tidegate::framing::Raw = tidegate::framing::Raw;

fn with_abuse_max(abuse_max: u32) -> Config {
    let mut limits = Limits::default();
    (limits.abuse_max, limits.abuse_leak_per_second) = (abuse_max, 0);
    Config::new().limits(limits)
}

#[test]
fn rapid_resets_end_the_connection() {
    each_with(
        || with_abuse_max(200),
        |stage, peer, _| {
            let sender = peer.clone();
            stage.task(async move { reset_requests(&sender, 400).await });
            assert_eq!(ErrorCode(stage.closed(&peer)), ErrorCode::EXCESSIVE_LOAD);
        },
    );
}

#[test]
fn requests_that_are_stopped_at_once_end_the_connection() {
    each_with(
        || with_abuse_max(200),
        |stage, peer, _| {
            let sender = peer.clone();
            stage.task(async move {
                for _ in 0..400 {
                    let Ok(mut channel) =
                        sender.connection.open_when_allowed(quic::Direction::Bidirectional, RAW).await
                    else {
                        return;
                    };
                    let Ok(position) = channel.send(request("GET", "/slow", &[]).into()) else { return };
                    let _ = channel.flushed(position).await;
                    // STOP_SENDING, and RESET_STREAM for the other direction.
                    channel.abort();
                }
            });
            assert_eq!(ErrorCode(stage.closed(&peer)), ErrorCode::EXCESSIVE_LOAD);
        },
    );
}

#[test]
fn resets_between_answered_requests_do_not_end_the_connection() {
    each_with(
        || with_abuse_max(200),
        |stage, peer, _| {
            let received: Received = stage.task(async move {
                for _ in 0..60 {
                    reset_requests(&peer, 5).await;
                    assert_eq!(peer.get("/").await.status, "200");
                }
                peer.get("/").await
            });
            assert_eq!(received.status, "200");
        },
    );
}

#[test]
fn a_flood_of_priorities_ends_the_connection() {
    let update = frame(PRIORITY_UPDATE, &[0, b'u', b'=', b'1']);
    for (count, trips) in [(150, false), (300, true)] {
        Stage::each(|stage| {
            let address = stage.serve(with_abuse_max(200), router(&Rc::default()));
            let peer = stage.connect_silently(address);
            let (sender, wire) = (peer.clone(), [CONTROL, &frame(SETTINGS, b""), &update.repeat(count)].concat());
            let _channel = stage.task(async move { sender.open_uni(&wire) });
            if trips {
                assert_eq!(ErrorCode(stage.closed(&peer)), ErrorCode::EXCESSIVE_LOAD);
            } else {
                assert_eq!(stage.task(async move { peer.get("/").await }).status, "200");
            }
        });
    }
}

/// The body of a request that is answered before its end is not waited for: the client is to send other requests instead.
#[test]
fn an_upload_that_has_its_response_makes_room_for_the_next_request_at_once() {
    Stage::simulated(|stage| {
        let mut limits = Limits::default();
        limits.body_bytes_max = 1_000;
        let transport = quic::TransportLimits { bidirectional_max: 1, ..quic::TransportLimits::default() };
        let address = stage.serve_with(transport, Config::new().limits(limits), router(&Rc::default()));
        let peer = stage.connect(address);
        let elapsed = stage.task(async move {
            let begun = task::now();
            for (path, status) in [("/nothing", "404"), ("/whole", "413")] {
                let mut upload = peer.open(&request("POST", path, &[])).await;
                upload.send(frame(DATA, &[7; 2_000]).into()).expect("room");
                assert_eq!(receive(&mut upload).await.status, status);
                assert_eq!(peer.get("/").await.status, "200");
                drop(upload);
            }
            task::now().saturating_duration_since(begun)
        });
        assert!(elapsed < Duration::from_secs(1), "{elapsed:?}");
    });
}

#[test]
fn limits_of_requests_have_their_status() {
    let config = || {
        let mut limits = Limits::default();
        (limits.head_bytes_max, limits.body_bytes_max) = (2000, 1000);
        Config::new().limits(limits)
    };
    each_with(config, |stage, peer, _| {
        stage.task(async move {
            let long = "x".repeat(3000);
            assert_eq!(peer.ask(&request("GET", "/", &[("x", &long)])).await.status, "431");
            assert_eq!(peer.ask(&request("GET", "/", &[("x", &long[..1000])])).await.status, "200");
            let of_length = |length: usize| [request("POST", "/read", &[]), frame(DATA, &vec![0; length])].concat();
            assert_eq!(peer.ask(&of_length(1001)).await.status, "413");
            assert_eq!(peer.ask(&of_length(1000)).await.status, "200");
        });
    });
}

/// The numbers in the GOAWAY frames of the server.
fn goaways(peer: &Peer) -> Vec<u64> {
    let control = peer.control.borrow();
    let Some(mut rest) = control.strip_prefix(CONTROL) else { return Vec::new() };
    let mut numbers = Vec::new();
    while let Some((kind, payload, after)) = split(rest) {
        if kind == GOAWAY {
            numbers.extend(varint::read(payload).map(|(number, _)| number));
        }
        rest = after;
    }
    numbers
}

#[test]
fn a_drain_finishes_requests_and_refuses_later_ones() {
    each(|stage, peer, _| {
        let slow = peer.clone();
        let slow =
            stage.with(1, |event_loop| event_loop.spawn(async move { slow.get("/slow").await.text().to_owned() }));
        let first = peer.clone();
        assert_eq!(stage.task(async move { first.get("/").await }).status, "200");
        stage.with(0, |event_loop| event_loop.drain(Duration::from_secs(60)));
        stage.run_until(|| !goaways(&peer).is_empty());
        stage.run_until(|| goaways(&peer).len() == 2);
        // The first one permits requests on their way, the second one names the first that is refused.
        assert_eq!(goaways(&peer)[0], (1 << 62) - 4);
        let refused = peer.clone();
        let refused = stage.task(async move { refused.get("/").await });
        assert!(refused.is_reset_with(ErrorCode::REQUEST_REJECTED), "{refused:?}");
        stage.run_until(|| slow.is_finished());
        assert_eq!(stage.task(async move { slow.await.expect("a response") }), "slow");
        assert_eq!(ErrorCode(stage.closed(&peer)), ErrorCode::NO_ERROR);
    });
}

#[test]
fn a_drain_closes_idle_connections_after_goaway() {
    each(|stage, peer, _| {
        let first = peer.clone();
        assert_eq!(stage.task(async move { first.get("/").await }).status, "200");
        stage.with(0, |event_loop| event_loop.drain(Duration::from_secs(60)));
        assert_eq!(ErrorCode(stage.closed(&peer)), ErrorCode::NO_ERROR);
        assert_eq!(goaways(&peer), [(1 << 62) - 4, 4]);
    });
}
