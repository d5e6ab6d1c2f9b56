//! WebTransport over HTTP/3, with a client that writes its bytes by hand: on epoll, on io_uring and in the simulated network.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use tidegate::engine::{SessionLimits, SessionStreams, Streams};
use tidegate::framing::Raw;
use tidegate::http::{
    Config, Router, Server, WebTransportClient, WebTransportClose, WebTransportError, WebTransportSession,
    WebTransportUpgrade,
};
use tidegate::http3::webtransport::{WebTransportLimits, to_http3};
use tidegate::http3::{ErrorCode, datagram, varint};
use tidegate::{Backend, Channel, EventLoop, quic, task};

use crate::support::http3_stage::{DATA, NAME, Peer, Stage, frame, receive, request, split, tls};

type Any = Box<dyn std::error::Error>;

/// The observations of a function.
type Seen = Rc<RefCell<Vec<String>>>;

/// The channels of streams that a server has opened.
type Opened = Rc<RefCell<VecDeque<Channel<Raw>>>>;

fn limits() -> WebTransportLimits {
    WebTransportLimits { sessions_max: 2, waiting_streams_max: 3, ..WebTransportLimits::default() }
}

fn transport() -> quic::TransportLimits {
    let (unidirectional_max, datagram_receive_bytes) = (32, Some(64 * 1024));
    quic::TransportLimits { unidirectional_max, datagram_receive_bytes, ..quic::TransportLimits::default() }
}

fn serve_within(stage: &mut Stage, limits: WebTransportLimits, router: Router) -> SocketAddr {
    let config = Config::new().tls(Stage::server_tls()).webtransport(limits).expect("limits");
    stage.serve_within((transport(), SessionLimits::default()), config, router)
}

fn serve(stage: &mut Stage, router: Router) -> SocketAddr {
    serve_within(stage, limits(), router)
}

/// A client, and the streams that the server opens to it.
fn connect(stage: &mut Stage, server: SocketAddr) -> (Peer, Opened) {
    let opened = Opened::default();
    let streams = opened.clone();
    let peer = stage.connect_with(server, transport(), move || {
        let keep = |streams: Opened| {
            Streams::serve(
                || Raw,
                move |channel: Channel<Raw>| {
                    streams.borrow_mut().push_back(channel);
                    async { Ok::<_, Any>(()) }
                },
            )
        };
        SessionStreams { bidirectional: Some(keep(streams.clone())), unidirectional: Some(keep(streams.clone())) }
    });
    (peer, opened)
}

fn connect_request(path: &str, more: &[(&str, &str)]) -> Vec<u8> {
    request("CONNECT", path, &[&[(":protocol", "webtransport")], more].concat())
}

/// Reads until there are so many bytes.
async fn read(channel: &mut Channel<Raw>, count: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    while bytes.len() < count {
        match channel.recv().await.expect("bytes") {
            Some(more) => bytes.extend_from_slice(&more),
            None => break,
        }
    }
    bytes
}

/// Reads to the end of a stream.
async fn read_all(channel: &mut Channel<Raw>) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    while let Some(more) = channel.recv().await.map_err(|error| error.to_string())? {
        bytes.extend_from_slice(&more);
    }
    Ok(bytes)
}

/// Opens a session: returns the stream of its request, once the response has come.
async fn open(peer: &Peer, path: &str) -> Channel<Raw> {
    let mut channel = peer.open(&connect_request(path, &[])).await;
    // The head of the response: its frame has a type and a length of one byte each.
    let head = read(&mut channel, 2).await;
    let (_, payload, rest) = split(&head).expect("a frame");
    assert!(rest.is_empty(), "{payload:?}");
    channel
}

/// The first bytes of a stream of a session.
fn preamble(signal: u64, session: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    varint::write(signal, &mut bytes);
    varint::write(session, &mut bytes);
    bytes
}

const BIDIRECTIONAL: u64 = 0x41;
const UNIDIRECTIONAL: u64 = 0x54;

fn is_reset_with(read: &Result<Vec<u8>, String>, code: u64) -> bool {
    read.as_ref().is_err_and(|reason| reason.ends_with(&format!("code {code}")))
}

fn send_datagram(peer: &Peer, session: u64, payload: &[u8]) {
    let mut bytes = Vec::new();
    datagram::write(session, payload, &mut bytes);
    peer.connection.send_datagram(bytes).expect("a datagram");
}

async fn echo(session: WebTransportSession) -> Result<(), Any> {
    let (datagrams, unidirectional) = (session.clone(), session.clone());
    drop(task::spawn(async move {
        while let Some(datagram) = datagrams.recv_datagram().await {
            datagrams.send_datagram(&datagram).expect("a datagram");
        }
    }));
    drop(task::spawn(async move {
        while let Some(mut reader) = unidirectional.accept_unidirectional().await {
            let mut writer = unidirectional.open_unidirectional().await.expect("a stream");
            while let Ok(Some(bytes)) = reader.recv().await {
                writer.send(bytes.into()).expect("room");
            }
        }
    }));
    while let Some(mut stream) = session.accept_bidirectional().await {
        drop(task::spawn(async move {
            while let Some(bytes) = stream.recv().await? {
                stream.send(bytes.into()).expect("room");
            }
            stream.close().await
        }));
    }
    Ok(())
}

fn router(seen: &Seen) -> Router {
    let seen = seen.clone();
    Router::new()
        .get("/", || "a page")
        .get("/echo", |upgrade: WebTransportUpgrade| upgrade.session(echo))
        .get("/allowed", |upgrade: WebTransportUpgrade| upgrade.origins(&["https://other.example"]).session(echo))
        .get("/close", |upgrade: WebTransportUpgrade| {
            upgrade.session(async |session| {
                session.close(7, "the tide is out");
                Ok::<_, Any>(())
            })
        })
        .get("/fail", |upgrade: WebTransportUpgrade| upgrade.session(async |_| Err::<(), Any>("a mistake".into())))
        .get("/open", |upgrade: WebTransportUpgrade| {
            upgrade.session(async |session| {
                let mut both = session.open_bidirectional().await?;
                both.send(b"ebb".to_vec().into())?;
                let mut writer = session.open_unidirectional().await?;
                writer.send(b"flow".to_vec().into())?;
                drop(writer);
                while both.recv().await?.is_some() {}
                both.close().await?;
                session.closed().await;
                Ok::<_, Any>(())
            })
        })
        .get("/watch", move |upgrade: WebTransportUpgrade| {
            let seen = seen.clone();
            upgrade.session(async move |session| {
                let streams = seen.clone();
                let accepting = session.clone();
                drop(task::spawn(async move {
                    while let Some(mut stream) = accepting.accept_bidirectional().await {
                        let seen = streams.clone();
                        seen.borrow_mut().push(ACCEPTED.into());
                        drop(task::spawn(async move {
                            let end = match stream.recv().await {
                                Ok(bytes) => format!("{bytes:?}"),
                                Err(error) => error.to_string(),
                            };
                            seen.borrow_mut().push(end);
                            stream.reset(9);
                        }));
                    }
                    streams.borrow_mut().push("no more streams".into());
                }));
                let closed = session.closed().await;
                seen.borrow_mut().push(format!("{closed:?}"));
                Ok::<_, Any>(())
            })
        })
}

/// The session of `/watch` has accepted a stream.
const ACCEPTED: &str = "accepted";

#[test]
fn settings_have_the_numbers_of_browsers() {
    Stage::each(|stage| {
        let server = serve(stage, router(&Seen::default()));
        let peer = stage.connect_within(server, transport());
        let control = peer.control.clone();
        stage.run_until(|| split(control.borrow().get(1..).unwrap_or_default()).is_some());
        let control = control.borrow();
        let (_, mut payload, _) = split(&control[1..]).expect("SETTINGS");
        let mut settings = Vec::new();
        while let Some((number, length)) = varint::read(payload) {
            let (value, more) = varint::read(&payload[length..]).expect("a value");
            settings.push((number, value));
            payload = &payload[length + more..];
        }
        for expected in [(8, 1), (0x33, 1), (0x2b60_3742, 1), (0xc671_706a, 2), (0x14e9_cd29, 2)] {
            assert!(settings.contains(&expected), "{expected:x?}: {settings:x?}");
        }
    });
}

#[test]
fn streams_and_datagrams_come_back() {
    Stage::each(|stage| {
        let server = serve(stage, router(&Seen::default()));
        let (peer, opened) = connect(stage, server);
        let sender = peer.clone();
        let session = stage.task(async move {
            let session = open(&sender, "/echo").await;
            let mut stream = sender.open(&[preamble(BIDIRECTIONAL, 0), b"ebb".to_vec()].concat()).await;
            stream.send(b" and flow".to_vec().into()).expect("room");
            stream.shutdown_write();
            assert_eq!(read_all(&mut stream).await.expect("an echo"), b"ebb and flow");
            send_datagram(&sender, 0, b"high");
            let received = sender.connection.recv_datagram().await.expect("a datagram");
            assert_eq!(datagram::read(&received), Ok((0, &b"high"[..])));
            drop(sender.open_uni(&[preamble(UNIDIRECTIONAL, 0), b"one way".to_vec()].concat()));
            session
        });
        // The first one is the control stream of the server.
        stage.run_until(|| opened.borrow().len() == 2);
        let mut back = opened.borrow_mut().pop_back().expect("a stream");
        let bytes = stage.task(async move { read_all(&mut back).await });
        assert_eq!(bytes.expect("an echo"), [preamble(UNIDIRECTIONAL, 0), b"one way".to_vec()].concat());
        drop((session, peer));
    });
}

#[test]
fn requests_and_preambles_may_come_byte_by_byte() {
    Stage::each(|stage| {
        let server = serve(stage, router(&Seen::default()));
        let (peer, _) = connect(stage, server);
        stage.task(async move {
            let session = open(&peer, "/echo").await;
            for wire in [request("GET", "/", &[]), preamble(BIDIRECTIONAL, 0)] {
                let is_request = wire[0] == 1;
                let mut channel = peer.open(&wire[..1]).await;
                for byte in &wire[1..] {
                    task::sleep(Duration::from_millis(1)).await;
                    channel.send(vec![*byte].into()).expect("room");
                }
                channel.shutdown_write();
                if is_request {
                    assert_eq!(receive(&mut channel).await.text(), "a page");
                } else {
                    assert_eq!(read_all(&mut channel).await.expect("an echo"), b"");
                }
            }
            drop(session);
        });
    });
}

#[test]
fn a_server_opens_streams() {
    Stage::each(|stage| {
        let server = serve(stage, router(&Seen::default()));
        let (peer, opened) = connect(stage, server);
        let session = stage.task(async move { (open(&peer, "/open").await, peer) });
        stage.run_until(|| opened.borrow().len() == 3);
        let channels: Vec<_> = opened.borrow_mut().drain(1..).collect();
        stage.task(async move {
            let mut expected = vec![(BIDIRECTIONAL, b"ebb".to_vec()), (UNIDIRECTIONAL, b"flow".to_vec())];
            for mut channel in channels {
                channel.shutdown_write();
                let bytes = read_all(&mut channel).await.expect("bytes");
                expected.retain(|(signal, text)| [preamble(*signal, 0), text.clone()].concat() != bytes);
            }
            assert_eq!(expected, []);
        });
        drop(session);
    });
}

#[test]
fn both_sides_close_with_a_code_and_a_reason() {
    Stage::each(|stage| {
        let seen = Seen::default();
        let server = serve(stage, router(&seen));
        let (peer, _) = connect(stage, server);
        let capsule = [&[0x68, 0x43, 4 + 3][..], &9_u32.to_be_bytes(), b"bye"].concat();
        stage.task(async move {
            let mut session = peer.open(&connect_request("/close", &[])).await;
            let wire = read_all(&mut session).await.expect("the end");
            let close = [&[0x68, 0x43, 4 + 15][..], &7_u32.to_be_bytes(), b"the tide is out"].concat();
            let (_, _, rest) = split(&wire).expect("a head");
            let data: Vec<u8> = frames(rest).concat();
            assert_eq!(data, close);
            let mut session = open(&peer, "/watch").await;
            session.send(frame(DATA, &capsule).into()).expect("room");
            assert_eq!(read_all(&mut session).await.map(|bytes| bytes.len()), Ok(0));
        });
        let close = WebTransportClose { code: 9, reason: "bye".into() };
        stage.run_until(|| seen.borrow().iter().any(|end| *end == format!("{:?}", Some(&close))));
    });
}

/// The payloads of DATA frames.
fn frames(mut wire: &[u8]) -> Vec<Vec<u8>> {
    let mut payloads = Vec::new();
    while let Some((kind, payload, rest)) = split(wire) {
        assert_eq!(kind, DATA);
        payloads.push(payload.to_vec());
        wire = rest;
    }
    payloads
}

#[test]
fn codes_of_resets_are_mapped() {
    Stage::each(|stage| {
        let seen = Seen::default();
        let server = serve(stage, router(&seen));
        let (peer, _) = connect(stage, server);
        let accepts = seen.clone();
        let session = stage.task(async move {
            let session = open(&peer, "/watch").await;
            let stream = peer.open(&preamble(BIDIRECTIONAL, 0)).await;
            // The server accepts it before the reset takes its bytes away.
            while !accepts.borrow().iter().any(|event| event == ACCEPTED) {
                task::sleep(Duration::from_millis(1)).await;
            }
            stream.reset(to_http3(7));
            let mut stream = peer.open(&[preamble(BIDIRECTIONAL, 0), b"ebb".to_vec()].concat()).await;
            let end = read_all(&mut stream).await;
            assert!(is_reset_with(&end, to_http3(9)), "{end:?}");
            (session, peer)
        });
        stage.run_until(|| seen.borrow().iter().any(|end| end == "the peer reset the stream with code 7"));
        drop(session);
    });
}

#[test]
fn the_end_of_a_session_resets_its_streams_and_no_others() {
    Stage::each(|stage| {
        let seen = Seen::default();
        let server = serve(stage, router(&seen));
        let (peer, _) = connect(stage, server);
        stage.task(async move {
            let first = open(&peer, "/watch").await;
            let mut other = open(&peer, "/echo").await;
            let mut streams = Vec::new();
            for _ in 0..5 {
                streams.push(peer.open(&preamble(BIDIRECTIONAL, 0)).await);
            }
            let mut of_other = peer.open(&[preamble(BIDIRECTIONAL, 4), b"ebb".to_vec()].concat()).await;
            assert_eq!(read(&mut of_other, 3).await, b"ebb");
            drop(first);
            for mut stream in streams {
                let end = read_all(&mut stream).await;
                assert!(is_reset_with(&end, ErrorCode::WEBTRANSPORT_SESSION_GONE.0), "{end:?}");
            }
            let mut late = peer.open(&preamble(BIDIRECTIONAL, 0)).await;
            let end = read_all(&mut late).await;
            assert!(is_reset_with(&end, ErrorCode::WEBTRANSPORT_SESSION_GONE.0), "{end:?}");
            of_other.send(b"flow".to_vec().into()).expect("room");
            assert_eq!(read(&mut of_other, 4).await, b"flow");
            assert_eq!(peer.get("/").await.text(), "a page");
            other.shutdown_write();
        });
        stage.run_until(|| seen.borrow().iter().any(|end| end == "no more streams"));
    });
}

#[test]
fn an_error_of_the_application_resets_the_session() {
    Stage::each(|stage| {
        let server = serve(stage, router(&Seen::default()));
        let (peer, _) = connect(stage, server);
        let end = stage.task(async move {
            let mut session = peer.open(&connect_request("/fail", &[])).await;
            read_all(&mut session).await
        });
        assert!(is_reset_with(&end, ErrorCode::INTERNAL_ERROR.0), "{end:?}");
    });
}

#[test]
fn other_sites_are_refused_unless_they_are_allowed() {
    Stage::each(|stage| {
        let server = serve(stage, router(&Seen::default()));
        let (peer, _) = connect(stage, server);
        stage.task(async move {
            for (path, origin, status) in [
                ("/echo", "https://other.example", "403"),
                ("/echo", "https://sea.example", "200"),
                ("/allowed", "https://other.example", "200"),
            ] {
                let mut session = peer.open(&connect_request(path, &[("origin", origin)])).await;
                session.shutdown_write();
                assert_eq!(receive(&mut session).await.status, status, "{path} {origin}");
            }
            let mut page = peer.open(&request("GET", "/echo", &[])).await;
            page.shutdown_write();
            assert_eq!(receive(&mut page).await.status, "501", "a GET");
            let mut newest = peer.open(&request("CONNECT", "/echo", &[(":protocol", "webtransport-h3")])).await;
            newest.shutdown_write();
            assert_eq!(receive(&mut newest).await.status, "200", "the token of the newest draft");
        });
    });
}

#[test]
fn streams_that_come_before_their_session_wait_for_it() {
    Stage::each(|stage| {
        let server = serve(stage, router(&Seen::default()));
        let (peer, _) = connect(stage, server);
        stage.task(async move {
            let mut stream = peer.open(&[preamble(BIDIRECTIONAL, 4), b"early".to_vec()].concat()).await;
            task::sleep(Duration::from_millis(20)).await;
            let session = open(&peer, "/echo").await;
            assert_eq!(read(&mut stream, 5).await, b"early");
            drop(session);
        });
    });
}

#[test]
fn streams_of_sessions_that_never_come_have_a_bound_and_a_deadline() {
    Stage::simulated(|stage| {
        let server = serve(stage, router(&Seen::default()));
        let (peer, _) = connect(stage, server);
        stage.task(async move {
            let mut waiting = Vec::new();
            for _ in 0..3 {
                waiting.push(peer.open(&preamble(BIDIRECTIONAL, 400)).await);
            }
            let mut further = peer.open(&preamble(BIDIRECTIONAL, 400)).await;
            let end = read_all(&mut further).await;
            assert!(is_reset_with(&end, ErrorCode::WEBTRANSPORT_BUFFERED_STREAM_REJECTED.0), "{end:?}");
            // Half of the first bytes.
            waiting.push(peer.open(&[0x40]).await);
            let begun = task::now();
            for mut stream in waiting {
                let end = read_all(&mut stream).await;
                assert!(is_reset_with(&end, ErrorCode::WEBTRANSPORT_BUFFERED_STREAM_REJECTED.0), "{end:?}");
            }
            let passed = task::now() - begun;
            assert!(passed > Duration::from_secs(9) && passed < Duration::from_secs(12), "{passed:?}");
            assert_eq!(peer.get("/").await.text(), "a page");
        });
    });
}

#[test]
fn streams_of_unknown_sessions_without_end_end_the_connection() {
    Stage::each(|stage| {
        let server = serve(stage, router(&Seen::default()));
        let (peer, _) = connect(stage, server);
        let sender = peer.clone();
        let flood = stage.with(1, |event_loop| {
            event_loop.spawn(async move {
                loop {
                    let wire = preamble(BIDIRECTIONAL, 4_000);
                    match sender.connection.open_when_allowed(quic::Direction::Bidirectional, Raw).await {
                        Ok(mut channel) => drop(channel.send(wire.into())),
                        Err(_) => return,
                    }
                }
            })
        });
        assert_eq!(stage.closed(&peer), ErrorCode::EXCESSIVE_LOAD.0);
        drop(flood);
    });
}

#[test]
fn a_session_that_no_request_can_have_ends_the_connection() {
    Stage::each(|stage| {
        let server = serve(stage, router(&Seen::default()));
        let (peer, _) = connect(stage, server);
        let stream = peer.clone();
        let kept = stage.task(async move { stream.open(&preamble(BIDIRECTIONAL, 2)).await });
        assert_eq!(stage.closed(&peer), ErrorCode::ID_ERROR.0);
        drop(kept);
    });
}

#[test]
fn more_sessions_than_permitted_are_rejected_and_the_others_go_on() {
    Stage::each(|stage| {
        let server = serve(stage, router(&Seen::default()));
        let (peer, _) = connect(stage, server);
        stage.task(async move {
            let sessions = (open(&peer, "/echo").await, open(&peer, "/echo").await);
            let mut third = peer.open(&connect_request("/echo", &[])).await;
            let end = read_all(&mut third).await;
            assert!(is_reset_with(&end, ErrorCode::REQUEST_REJECTED.0), "{end:?}");
            drop(sessions.0);
            let mut stream = peer.open(&[preamble(BIDIRECTIONAL, 4), b"ebb".to_vec()].concat()).await;
            assert_eq!(read(&mut stream, 3).await, b"ebb");
            // The server has to notice that the first session is over.
            loop {
                let mut fourth = peer.open(&connect_request("/close", &[])).await;
                if read_all(&mut fourth).await.is_ok() {
                    break;
                }
            }
        });
    });
}

#[test]
fn a_capsule_beyond_the_bound_keeps_no_memory() {
    Stage::each(|stage| {
        let server = serve(stage, router(&Seen::default()));
        let (peer, _) = connect(stage, server);
        stage.task(async move {
            for kind in [0, 0x2843] {
                let mut session = open(&peer, "/echo").await;
                let mut capsule = Vec::new();
                varint::write(kind, &mut capsule);
                varint::write(varint::MAX, &mut capsule);
                session.send(frame(DATA, &capsule).into()).expect("room");
                let end = read_all(&mut session).await;
                assert!(is_reset_with(&end, ErrorCode::EXCESSIVE_LOAD.0), "{kind:#x}: {end:?}");
            }
            let mut session = open(&peer, "/echo").await;
            session.send(frame(DATA, b"\x68\x43\x01a").into()).expect("room");
            let end = read_all(&mut session).await;
            assert!(is_reset_with(&end, ErrorCode::MESSAGE_ERROR.0), "{end:?}");
            assert_eq!(peer.get("/").await.text(), "a page");
        });
    });
}

#[test]
fn datagrams_of_no_session_are_dropped_early_ones_wait_and_a_malformed_one_ends_the_connection() {
    Stage::each(|stage| {
        let server = serve(stage, router(&Seen::default()));
        let (peer, _) = connect(stage, server);
        let sender = peer.clone();
        stage.task(async move {
            for session in [4, 400_000] {
                send_datagram(&sender, session, b"lost");
            }
            // The network may bring a datagram before the request of its session.
            send_datagram(&sender, 0, b"neap");
            let session = open(&sender, "/echo").await;
            send_datagram(&sender, 4, b"lost");
            send_datagram(&sender, 0, b"ebb");
            for expected in [&b"neap"[..], b"ebb"] {
                let received = sender.connection.recv_datagram().await.expect("a datagram");
                assert_eq!(datagram::read(&received), Ok((0, expected)));
            }
            drop(session);
            sender.connection.send_datagram(Vec::new()).expect("a datagram");
        });
        assert_eq!(stage.closed(&peer), ErrorCode::DATAGRAM_ERROR.0);
    });
}

#[test]
fn a_flood_of_datagrams_keeps_the_newest() {
    Stage::each(|stage| {
        let room = WebTransportLimits { datagram_bytes_max: 10 * (32 + 4), ..limits() };
        let seen = Rc::<RefCell<Vec<u32>>>::default();
        let reads = Rc::<RefCell<bool>>::default();
        let (function, may_read) = (seen.clone(), reads.clone());
        let router = Router::new().get("/late", move |upgrade: WebTransportUpgrade| {
            let (seen, may_read) = (function.clone(), may_read.clone());
            upgrade.session(async move |session| {
                while !*may_read.borrow() {
                    task::sleep(Duration::from_millis(1)).await;
                }
                while let Some(datagram) = session.recv_datagram().await {
                    seen.borrow_mut().push(u32::from_be_bytes(datagram[..].try_into()?));
                }
                Ok::<_, Any>(())
            })
        });
        let server = serve_within(stage, room, router);
        let (peer, _) = connect(stage, server);
        let sender = peer.clone();
        let session = stage.task(async move {
            let session = open(&sender, "/late").await;
            for number in 0..1_000_u32 {
                send_datagram(&sender, 0, &number.to_be_bytes());
                if number % 50 == 0 {
                    task::sleep(Duration::from_millis(1)).await;
                }
            }
            // They are acknowledged once the server has them.
            task::sleep(Duration::from_millis(50)).await;
            session
        });
        *reads.borrow_mut() = true;
        stage.run_until(|| seen.borrow().last() == Some(&999));
        assert!(seen.borrow().len() <= 10, "{:?}", seen.borrow());
        drop((session, peer));
    });
}

#[test]
fn without_webtransport_its_streams_are_no_requests() {
    Stage::each(|stage| {
        let server = stage.serve_with(transport(), Config::new(), router(&Seen::default()));
        let (peer, _) = connect(stage, server);
        stage.task(async move {
            let mut stream = peer.open(&[preamble(BIDIRECTIONAL, 0), b"ebb".to_vec()].concat()).await;
            stream.shutdown_write();
            assert_ne!(receive(&mut stream).await.status, "200");
        });
        let (peer, _) = connect(stage, server);
        stage.task(async move {
            let mut session = peer.open(&connect_request("/echo", &[])).await;
            let end = read_all(&mut session).await;
            assert!(is_reset_with(&end, ErrorCode::REQUEST_REJECTED.0), "{end:?}");
            assert_eq!(peer.get("/").await.text(), "a page");
        });
    });
}

/// A session of our client with a server of its own, and the end that the client sees.
#[test]
fn a_drain_is_announced_and_the_application_closes_in_time() {
    let (server_tls, client_tls) = tls();
    let server = Server::bind("127.0.0.1:0").expect("an address").tls(server_tls).webtransport(limits());
    let router = || {
        Router::new().get("/until", |upgrade: WebTransportUpgrade| {
            upgrade.session(async |session| {
                session.draining().await;
                session.close(3, "the server drains");
                Ok::<_, Any>(())
            })
        })
    };
    let server = server.expect("limits").start(router).expect("a server");
    let address = server.address().ip().expect("an IP address");
    let mut event_loop = EventLoop::on(Backend::Auto).expect("a loop");
    let close = event_loop.block_on(async move {
        let local = SocketAddr::from(([127, 0, 0, 1], 0));
        let client = WebTransportClient::bind(local, &client_tls, limits()).expect("a client");
        let refused = client.open(address, NAME, "/nothing").await;
        assert!(matches!(refused, Err(WebTransportError::Refused(404))), "{refused:?}");
        let session = client.open(address, NAME, "/until").await.expect("a session");
        let draining = std::thread::spawn(move || server.drain(Duration::from_secs(60)));
        session.draining().await;
        let close = session.closed().await;
        (close, draining)
    });
    let (close, draining) = close.expect("the loop runs");
    draining.join().expect("the server has drained");
    assert_eq!(close, Some(WebTransportClose { code: 3, reason: "the server drains".into() }));
}

#[test]
fn a_server_that_does_not_answer_a_request_for_a_session_has_a_deadline() {
    let (server_tls, client_tls) = tls();
    let server = Server::bind("127.0.0.1:0").expect("an address").tls(server_tls);
    let server = server.webtransport(WebTransportLimits::default()).and_then(Server::http3).expect("limits");
    let router = || Router::new().get("/silent", async |_: WebTransportUpgrade| std::future::pending::<&str>().await);
    let server = server.start(router).expect("a server");
    let address = server.address().ip().expect("an IP address");
    let opened = EventLoop::on(Backend::Auto).expect("a loop").block_on(async move {
        let local = SocketAddr::from(([127, 0, 0, 1], 0));
        let client = WebTransportClient::bind(local, &client_tls, limits()).expect("a client");
        client.response_timeout(Duration::from_millis(50)).open(address, NAME, "/silent").await.map(drop)
    });
    let opened = opened.expect("the loop runs");
    assert!(matches!(opened, Err(WebTransportError::Timeout)), "{opened:?}");
    server.drain(Duration::ZERO);
}

#[test]
fn a_server_without_webtransport_is_noticed_before_the_request() {
    let (server_tls, client_tls) = tls();
    let server = Server::bind("127.0.0.1:0").expect("an address").tls(server_tls).http3().expect("limits");
    let server = server.start(|| Router::new().get("/", || "a page")).expect("a server");
    let address = server.address().ip().expect("an IP address");
    let mut event_loop = EventLoop::on(Backend::Auto).expect("a loop");
    let refused = event_loop.block_on(async move {
        let local = SocketAddr::from(([127, 0, 0, 1], 0));
        let client = WebTransportClient::bind(local, &client_tls, limits()).expect("a client");
        client.open(address, NAME, "/").await
    });
    let refused = refused.expect("the loop runs");
    assert!(matches!(refused, Err(WebTransportError::Unsupported)), "{refused:?}");
    server.drain(Duration::ZERO);
}
