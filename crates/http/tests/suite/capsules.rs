//! Tunnels of capsules and HTTP datagrams, for protocols of the application's own.

use std::cell::{Cell, RefCell};
use std::io::{Read, Write};
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use tidegate::engine::{SessionLimits, SessionStreams, Streams};
use tidegate::framing::Raw;
use tidegate::http::{CapsuleClient, CapsuleTunnel, CapsuleUpgrade, Config, ExtendedConnectError, Response, Router};
use tidegate::http3::{Capsule, ErrorCode, HttpDatagramLimits, datagram};
use tidegate::{Channel, quic, task};
use tidegate_testkit::Embedded;

use crate::support::http2_peer;
use crate::support::http3_stage::{DATA, NAME, Peer, Stage, frame, request, split};

type Any = Box<dyn std::error::Error>;

fn limits() -> HttpDatagramLimits {
    HttpDatagramLimits {
        request_bytes_max: 10 * (32 + 4),
        early_bytes_max: 4 * (48 + 4),
        ..HttpDatagramLimits::default()
    }
}

fn transport() -> quic::TransportLimits {
    quic::TransportLimits { datagram_receive_bytes: Some(64 * 1024), ..quic::TransportLimits::default() }
}

fn serve_with(stage: &mut Stage, config: Config, router: Router) -> SocketAddr {
    stage.serve_within((transport(), SessionLimits::default()), config, router)
}

fn serve(stage: &mut Stage, router: Router) -> SocketAddr {
    let config = Config::new().tls(Stage::server_tls()).http_datagrams(limits()).expect("limits");
    serve_with(stage, config, router)
}

async fn echo(mut tunnel: CapsuleTunnel) -> Result<(), Any> {
    while let Some(capsule) = tunnel.recv().await? {
        match capsule {
            Capsule::Datagram(payload) => tunnel.send_datagram(&payload)?,
            other => tunnel.send(other)?,
        }
    }
    tunnel.send_datagram(b"the end")?;
    Ok(())
}

fn accept(upgrade: CapsuleUpgrade) -> Response {
    upgrade.other_capsules().tunnel("tide-gauge", echo)
}

fn router() -> Router {
    Router::new().get("/gauge", accept).get("/short", |upgrade: CapsuleUpgrade| {
        upgrade.other_capsules().capsule_bytes_max(4).tunnel("tide-gauge", echo)
    })
}

fn connect(path: &str) -> Vec<u8> {
    request("CONNECT", path, &[(":protocol", "tide-gauge")])
}

fn send_datagram(peer: &Peer, stream: u64, payload: &[u8]) {
    let mut bytes = Vec::new();
    datagram::write(stream, payload, &mut bytes);
    peer.connection.send_datagram(bytes).expect("a datagram");
}

async fn recv_datagram(peer: &Peer) -> (u64, Vec<u8>) {
    let bytes = peer.connection.recv_datagram().await.expect("a datagram");
    let (stream, payload) = datagram::read(&bytes).expect("a stream");
    (stream, payload.to_vec())
}

/// A client with HTTP datagrams, which reads the control stream of the server.
fn connected(stage: &mut Stage, server: SocketAddr) -> Peer {
    stage.connect_with(server, transport(), || {
        let discard = |mut channel: Channel<Raw>| async move {
            while channel.recv().await?.is_some() {}
            Ok::<_, Any>(())
        };
        SessionStreams { bidirectional: None, unidirectional: Some(Streams::serve(|| Raw, discard)) }
    })
}

#[test]
fn datagrams_of_quic_and_capsules_of_the_stream_come_back() {
    Stage::each(|stage| {
        let server = serve(stage, router());
        let peer = connected(stage, server);
        stage.task(async move {
            let mut channel = peer.open(&connect("/gauge")).await;
            let head = channel.recv().await.expect("bytes").expect("a head");
            assert!(split(&head).is_some());
            send_datagram(&peer, 0, b"ebb");
            assert_eq!(recv_datagram(&peer).await, (0, b"ebb".to_vec()));
            // A datagram in a capsule comes back as one of QUIC, which both sides accept; another capsule on the stream.
            channel.send(frame(DATA, b"\0\x04flow\x21\x04neap").into()).expect("room");
            assert_eq!(recv_datagram(&peer).await, (0, b"flow".to_vec()));
            let mut wire = Vec::new();
            while split(&wire).is_none() {
                wire.extend_from_slice(&channel.recv().await.expect("bytes").expect("a capsule"));
            }
            let (kind, payload, _) = split(&wire).expect("a frame");
            assert_eq!((kind, payload), (DATA, &b"\x21\x04neap"[..]));
            channel.shutdown_write();
            assert_eq!(recv_datagram(&peer).await, (0, b"the end".to_vec()));
            assert!(matches!(channel.recv().await, Ok(None)));
        });
    });
}

#[test]
fn a_client_without_quic_datagrams_gets_capsules() {
    Stage::each(|stage| {
        let server = serve(stage, router());
        // It sends no SETTINGS_H3_DATAGRAM.
        let peer = stage.connect(server);
        stage.task(async move {
            let mut channel = peer.open(&[connect("/gauge"), frame(DATA, b"\0\x03ebb")].concat()).await;
            let mut wire = Vec::new();
            while !wire.ends_with(b"\0\x03ebb") {
                wire.extend_from_slice(&channel.recv().await.expect("bytes").expect("a capsule"));
            }
        });
    });
}

#[test]
fn datagrams_that_come_before_the_response_wait_with_a_bound() {
    Stage::each(|stage| {
        let may_accept = Rc::<Cell<bool>>::default();
        let function = may_accept.clone();
        let router = Router::new().get("/gauge", move |upgrade: CapsuleUpgrade| {
            let may_accept = function.clone();
            async move {
                while !may_accept.get() {
                    task::sleep(Duration::from_millis(1)).await;
                }
                accept(upgrade)
            }
        });
        let server = serve(stage, router);
        let peer = connected(stage, server);
        let sender = peer.clone();
        let mut channel = stage.task(async move {
            let channel = sender.open(&connect("/gauge")).await;
            for number in 0..10_u32 {
                send_datagram(&sender, 0, &number.to_be_bytes());
            }
            // The server has all of them once it has answered a request that follows.
            assert_eq!(sender.get("/nowhere").await.status, "404");
            channel
        });
        may_accept.set(true);
        stage.task(async move {
            for number in 6..10_u32 {
                assert_eq!(recv_datagram(&peer).await, (0, number.to_be_bytes().to_vec()));
            }
            channel.shutdown_write();
            assert_eq!(recv_datagram(&peer).await, (0, b"the end".to_vec()));
        });
    });
}

#[test]
fn a_flood_of_datagrams_that_no_task_reads_keeps_the_newest() {
    Stage::each(|stage| {
        let (seen, may_read) = (Rc::<RefCell<Vec<u32>>>::default(), Rc::<Cell<bool>>::default());
        let (function, reads) = (seen.clone(), may_read.clone());
        let router = Router::new().get("/nowhere", || "here").get("/gauge", move |upgrade: CapsuleUpgrade| {
            let (seen, may_read) = (function.clone(), reads.clone());
            upgrade.tunnel("tide-gauge", async move |mut tunnel| {
                while !may_read.get() {
                    task::sleep(Duration::from_millis(1)).await;
                }
                while let Some(Capsule::Datagram(payload)) = tunnel.recv().await? {
                    seen.borrow_mut().push(u32::from_be_bytes(payload[..].try_into()?));
                }
                Ok::<_, Any>(())
            })
        });
        let server = serve(stage, router);
        let peer = connected(stage, server);
        let sender = peer.clone();
        let channel = stage.task(async move {
            let mut channel = sender.open(&connect("/gauge")).await;
            assert!(matches!(channel.recv().await, Ok(Some(_))), "a response");
            for number in 0..1_000_u32 {
                send_datagram(&sender, 0, &number.to_be_bytes());
                if number % 50 == 0 {
                    assert_eq!(sender.get("/nowhere").await.status, "200");
                }
            }
            assert_eq!(sender.get("/nowhere").await.status, "200");
            channel
        });
        may_read.set(true);
        stage.run_until(|| seen.borrow().last() == Some(&999));
        assert!(seen.borrow().len() <= 10, "{:?}", seen.borrow());
        drop((channel, peer));
    });
}

#[test]
fn the_end_of_the_stream_comes_behind_the_datagrams_that_wait() {
    Stage::each(|stage| {
        let (seen, may_read) = (Rc::<RefCell<Vec<Bytes>>>::default(), Rc::<Cell<bool>>::default());
        let (function, reads) = (seen.clone(), may_read.clone());
        let router = Router::new().get("/gauge", move |upgrade: CapsuleUpgrade| {
            let (seen, may_read) = (function.clone(), reads.clone());
            upgrade.tunnel("tide-gauge", async move |mut tunnel| {
                while !may_read.get() {
                    task::sleep(Duration::from_millis(1)).await;
                }
                while let Some(Capsule::Datagram(payload)) = tunnel.recv().await? {
                    seen.borrow_mut().push(payload);
                }
                tunnel.send_datagram(b"the end")?;
                Ok::<_, Any>(())
            })
        });
        let server = serve(stage, router);
        let peer = connected(stage, server);
        let sender = peer.clone();
        let channel = stage.task(async move {
            let mut channel = sender.open(&connect("/gauge")).await;
            assert!(matches!(channel.recv().await, Ok(Some(_))), "a response");
            ["ebb", "slack", "flow"].iter().for_each(|wave| send_datagram(&sender, 0, wave.as_bytes()));
            channel.shutdown_write();
            // The server has all of it once it has answered a request that follows.
            assert_eq!(sender.get("/nowhere").await.status, "404");
            channel
        });
        may_read.set(true);
        stage.task(async move { assert_eq!(recv_datagram(&peer).await, (0, b"the end".to_vec())) });
        assert_eq!(*seen.borrow(), ["ebb", "slack", "flow"]);
        drop(channel);
    });
}

#[test]
fn datagrams_of_a_request_that_is_over_are_dropped() {
    Stage::each(|stage| {
        let server = serve(stage, router());
        let peer = connected(stage, server);
        stage.task(async move {
            let mut channel = peer.open(&connect("/gauge")).await;
            channel.shutdown_write();
            while let Ok(Some(_)) = channel.recv().await {}
            assert_eq!(recv_datagram(&peer).await, (0, b"the end".to_vec()));
            send_datagram(&peer, 0, b"late");
            let _other = peer.open(&connect("/gauge")).await;
            send_datagram(&peer, 4, b"ebb");
            assert_eq!(recv_datagram(&peer).await, (4, b"ebb".to_vec()));
        });
    });
}

#[test]
fn capsules_that_are_too_long_or_cut_off_reset_the_stream() {
    for (path, wire, ends, code) in [
        ("/short", &b"\x21\x05slack"[..], false, ErrorCode::EXCESSIVE_LOAD),
        ("/gauge", b"\0\x05ebb", true, ErrorCode::MESSAGE_ERROR),
    ] {
        Stage::each(|stage| {
            let server = serve(stage, router());
            let peer = connected(stage, server);
            stage.task(async move {
                let mut channel = peer.open(&[connect(path), frame(DATA, wire)].concat()).await;
                if ends {
                    channel.shutdown_write();
                }
                let reset = loop {
                    match channel.recv().await {
                        Ok(Some(_)) => {}
                        Ok(None) => panic!("{path}: the stream ends in good order"),
                        Err(error) => break error.to_string(),
                    }
                };
                assert!(reset.contains(&code.0.to_string()), "{path}: {reset}");
                assert_eq!(peer.get("/nowhere").await.status, "404", "the connection goes on");
            });
        });
    }
}

#[test]
fn a_client_opens_tunnels_of_one_connection() {
    Stage::on_system(|stage| {
        let server = serve(stage, router());
        let tls = stage.client_tls();
        stage.task(async move {
            let client = CapsuleClient::bind("127.0.0.1:0".parse().unwrap(), &tls, HttpDatagramLimits::default());
            let connection = client.expect("a socket").connect(server, NAME).await.expect("a connection");
            let mut tunnels = [
                connection.open("tide-gauge", "/gauge").await.expect("a tunnel"),
                connection.open("tide-gauge", "/gauge").await.expect("a tunnel"),
            ];
            for (tunnel, wave) in tunnels.iter_mut().zip([&b"ebb"[..], b"flow"]) {
                let room = tunnel.datagram_bytes_max().expect("datagrams of QUIC");
                assert!(tunnel.send_datagram(&vec![0; room + 1]).is_err(), "it is too long");
                tunnel.send_datagram(wave).expect("a datagram");
                let received = tunnel.recv().await.expect("a datagram");
                assert_eq!(received, Some(Capsule::Datagram(wave.to_vec().into())));
                let capsule = Capsule::Other { kind: 0x21, value: wave.to_vec().into() };
                tunnel.send(capsule.clone()).expect("room");
                assert_eq!(tunnel.recv().await.expect("a capsule"), Some(capsule));
            }
            let refused = connection.open("websocket", "/gauge").await;
            assert!(matches!(refused, Err(ExtendedConnectError::Refused(501))), "{refused:?}");
            let refused = connection.open("tide-gauge", "/nowhere").await;
            assert!(matches!(refused, Err(ExtendedConnectError::Refused(404))), "{refused:?}");
        });
    });
}

#[test]
fn a_server_without_datagrams_of_quic_has_the_same_tunnels() {
    Stage::on_system(|stage| {
        let server = stage.serve(Config::new(), router());
        let tls = stage.client_tls();
        stage.task(async move {
            let client = CapsuleClient::bind("127.0.0.1:0".parse().unwrap(), &tls, HttpDatagramLimits::default());
            let connection = client.expect("a socket").connect(server, NAME).await.expect("a connection");
            let mut tunnel = connection.open("tide-gauge", "/gauge").await.expect("a tunnel");
            assert_eq!(tunnel.datagram_bytes_max(), None);
            let long = vec![7; 10_000];
            tunnel.send_datagram(&long).expect("a capsule");
            assert_eq!(tunnel.recv().await.expect("a datagram"), Some(Capsule::Datagram(long.into())));
        });
    });
}

#[test]
fn tunnels_are_the_same_over_http2() {
    let (codec, handler) = Config::new().connections(router())();
    let mut peer = http2_peer::Peer::new(Embedded::new(codec, handler));
    peer.extended_connect(1, "tide-gauge", "/gauge", &[("capsule-protocol", "?1")]);
    peer.data(1, b"\0\x03e");
    peer.frame(http2_peer::DATA, http2_peer::END_STREAM, 1, b"bb\x21\x04neap");
    peer.read_until(|peer| peer.stream(1).has_ended);
    let received = peer.stream(1);
    assert_eq!((received.status(), received.field("capsule-protocol")), ("200", Some("?1")));
    assert_eq!(received.body, b"\0\x03ebb\x21\x04neap\0\x07the end");
    peer.extended_connect(3, "other", "/gauge", &[]);
    peer.read_until(|peer| peer.stream(3).is_over());
    assert_eq!(peer.stream(3).status(), "501");
}

#[test]
fn tunnels_are_the_same_over_http1() {
    let running = crate::support::running::start(router);
    let mut stream = running.connect();
    let head = "GET /gauge HTTP/1.1\r\nHost: sea\r\nConnection: upgrade\r\nUpgrade: Tide-Gauge\r\n\r\n";
    stream.write_all(&[head.as_bytes(), b"\0\x03ebb"].concat()).expect("room");
    stream.shutdown(std::net::Shutdown::Write).expect("a connection");
    let mut wire = Vec::new();
    stream.read_to_end(&mut wire).expect("a response");
    let text = String::from_utf8_lossy(&wire).to_ascii_lowercase();
    assert!(text.starts_with("http/1.1 101 ") && text.contains("\r\nupgrade: tide-gauge\r\n"), "{text}");
    assert!(text.contains("\r\ncapsule-protocol: ?1\r\n") && wire.ends_with(b"\0\x03ebb\0\x07the end"), "{text}");

    for (upgrade, expected) in [("Connection: upgrade\r\nUpgrade: other\r\n", "426"), ("", "400")] {
        let response =
            running.exchange(&format!("GET /gauge HTTP/1.1\r\nHost: sea\r\nConnection: close\r\n{upgrade}\r\n"));
        assert_eq!(response.split(' ').nth(1), Some(expected), "{response}");
    }
}
