//! UDP over HTTP (RFC 9298): the proxy over all versions, and the tunnel of a client.

use std::future::{pending, ready};
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream, UdpSocket};
use std::time::{Duration, Instant};

use tidegate::engine::{NameResolver, Resolve, Resolving, SessionLimits};
use tidegate::http::{
    CapsuleClient, CapsuleConnection, CapsuleTunnel, Client, Config, ExtendedConnectError, Response, Router, Server,
    UdpProxy, UdpProxyRules, UdpTunnel, Upgrade, WebTransportClient, WebTransportError,
};
use tidegate::http1::Version;
use tidegate::http3::webtransport::WebTransportLimits;
use tidegate::http3::{Capsule, CapsuleCodec, HttpDatagramLimits};
use tidegate::{Backend, EventLoop, quic, task};

use crate::support::http2_peer::{END_STREAM, Peer};
use crate::support::http3_stage::{NAME, Stage, tls};
use crate::support::running::{Running, start};

/// Rules that permit targets of this machine.
fn rules() -> UdpProxyRules {
    let mut rules = UdpProxyRules::default();
    rules.allow = vec!["127.0.0.0/8".parse().expect("a network")];
    rules
}

/// Resolves the names of the tests.
struct Names;

impl Resolve for Names {
    fn resolve(&self, host: &str, port: u16) -> Resolving {
        let address = |ip: [u8; 4]| SocketAddr::from((ip, port));
        match host {
            "target.example" => Box::pin(ready(Ok(vec![address([127, 0, 0, 1])]))),
            // The first address is one that the rules refuse.
            "mixed.example" => Box::pin(ready(Ok(vec![address([10, 0, 0, 1]), address([127, 0, 0, 1])]))),
            "private.example" => Box::pin(ready(Ok(vec![address([192, 168, 0, 1])]))),
            "empty.example" => Box::pin(ready(Ok(vec![]))),
            "slow.example" => Box::pin(pending()),
            _ => Box::pin(ready(Err(std::io::ErrorKind::NotFound.into()))),
        }
    }
}

fn proxy(rules: UdpProxyRules) -> UdpProxy {
    UdpProxy::new(rules).resolver(NameResolver::new(Names))
}

fn router(proxy: &UdpProxy) -> Router {
    Router::new().get(UdpProxy::PATH, proxy.function())
}

fn serve(stage: &mut Stage, proxy: &UdpProxy) -> SocketAddr {
    let transport =
        quic::TransportLimits { datagram_receive_bytes: Some(64 * 1024), ..quic::TransportLimits::default() };
    let config = Config::new().tls(Stage::server_tls()).http_datagrams(HttpDatagramLimits::default());
    stage.serve_within((transport, SessionLimits::default()), config.expect("limits"), router(proxy))
}

async fn connect(tls: &tidegate::tls::ClientConfig, server: SocketAddr) -> CapsuleConnection {
    let client = CapsuleClient::bind((Ipv4Addr::LOCALHOST, 0).into(), tls, HttpDatagramLimits::default());
    client.expect("a socket").connect(server, NAME).await.expect("a connection")
}

/// A target, which a test reads without waiting.
fn target() -> (UdpSocket, u16) {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("a socket");
    socket.set_nonblocking(true).expect("a socket");
    let port = socket.local_addr().expect("an address").port();
    (socket, port)
}

/// The next datagram of a client at the target, and its source.
async fn at_target(target: &UdpSocket) -> (Vec<u8>, SocketAddr) {
    let mut space = vec![0; 70_000];
    loop {
        if let Ok((count, source)) = target.recv_from(&mut space) {
            space.truncate(count);
            return (space, source);
        }
        task::sleep(Duration::from_millis(1)).await;
    }
}

async fn refusal(connection: &CapsuleConnection, host: &str, port: u16) -> u16 {
    match UdpTunnel::open(connection, host, port).await {
        Err(ExtendedConnectError::Refused(status)) => status,
        opened => panic!("{host}: {opened:?}"),
    }
}

#[test]
fn datagrams_reach_the_target_and_its_answers_come_back() {
    Stage::on_system(|stage| {
        let proxy = proxy(rules());
        let (server, tls) = (serve(stage, &proxy), stage.client_tls());
        let (target, port) = target();
        stage.task(async move {
            let connection = connect(&tls, server).await;
            for host in ["127.0.0.1", "::ffff:127.0.0.1", "target.example", "mixed.example"] {
                let mut tunnel = UdpTunnel::open(&connection, host, port).await.expect(host);
                let longest = tunnel.datagram_bytes_max().expect("datagrams of QUIC");
                for payload in [&b"ebb"[..], b"", &vec![7; longest]] {
                    tunnel.send(payload).expect("a datagram");
                    let (received, source) = at_target(&target).await;
                    assert_eq!(received, payload, "{host}");
                    target.send_to(payload, source).expect("a datagram");
                    assert_eq!(tunnel.recv().await.expect("a datagram").as_deref(), Some(payload), "{host}");
                }
                // The path may have been found to have more room.
                let longest = tunnel.datagram_bytes_max().expect("datagrams of QUIC");
                assert!(tunnel.send(&vec![7; longest + 1]).is_err(), "it is too long");
            }
        });
        let counts = proxy.counts();
        assert_eq!((counts.begun, counts.sent, counts.received, counts.dropped), (4, 12, 12, 0));
        stage.run_until(|| proxy.counts().tunnels == 0);
    });
}

#[test]
fn targets_that_the_rules_refuse_or_that_have_no_address_get_no_tunnel() {
    Stage::on_system(|stage| {
        let mut rules = rules();
        rules.deny = vec!["127.0.0.9/32".parse().expect("a network")];
        rules.ports = vec![1..=60_000];
        rules.resolve_timeout = Duration::from_millis(20);
        let proxy = proxy(rules);
        let (server, tls) = (serve(stage, &proxy), stage.client_tls());
        stage.task(async move {
            let connection = connect(&tls, server).await;
            for (host, port, expected) in [
                ("10.0.0.1", 443, 403),
                ("127.0.0.9", 443, 403),
                ("::1", 443, 403),
                ("::ffff:10.0.0.1", 443, 403),
                ("127.0.0.1", 60_001, 403),
                ("private.example", 443, 403),
                ("empty.example", 443, 502),
                ("unknown.example", 443, 502),
                ("slow.example", 443, 504),
                ("127.1", 443, 400),
                ("target.example", 0, 400),
            ] {
                assert_eq!(refusal(&connection, host, port).await, expected, "{host} {port}");
            }
        });
        assert_eq!((proxy.counts().begun, proxy.counts().refused, proxy.counts().tunnels), (0, 9, 0));
    });
}

#[test]
fn by_default_no_target_of_this_machine_and_no_client_of_another_has_a_tunnel() {
    Stage::on_system(|stage| {
        let mut elsewhere = UdpProxyRules::default();
        elsewhere.clients = vec!["192.0.2.0/24".parse().expect("a network")];
        for rules in [UdpProxyRules::default(), elsewhere] {
            let proxy = proxy(rules);
            let (server, tls) = (serve(stage, &proxy), stage.client_tls());
            stage.task(async move {
                let connection = connect(&tls, server).await;
                assert_eq!(refusal(&connection, "127.0.0.1", 53).await, 403);
            });
        }
    });
}

#[test]
fn tunnels_have_bounds_and_those_within_them_go_on() {
    Stage::on_system(|stage| {
        let mut rules = rules();
        rules.tunnels_per_client_max = 2;
        let proxy = proxy(rules);
        let (server, tls) = (serve(stage, &proxy), stage.client_tls());
        let (target, port) = target();
        let counts = proxy.clone();
        stage.task(async move {
            let connection = connect(&tls, server).await;
            let mut first = UdpTunnel::open(&connection, "127.0.0.1", port).await.expect("a tunnel");
            let second = UdpTunnel::open(&connection, "127.0.0.1", port).await.expect("a tunnel");
            assert_eq!(refusal(&connection, "127.0.0.1", port).await, 503);
            first.send(b"ebb").expect("a datagram");
            assert_eq!(at_target(&target).await.0, b"ebb");
            drop(second);
            while counts.counts().tunnels == 2 {
                task::sleep(Duration::from_millis(1)).await;
            }
            UdpTunnel::open(&connection, "127.0.0.1", port).await.expect("a place that came back");
        });
    });
}

#[test]
fn a_target_without_a_socket_resets_the_tunnel() {
    Stage::on_system(|stage| {
        let proxy = proxy(rules());
        let (server, tls) = (serve(stage, &proxy), stage.client_tls());
        let (closed, port) = target();
        drop(closed);
        stage.task(async move {
            let connection = connect(&tls, server).await;
            let mut tunnel = UdpTunnel::open(&connection, "127.0.0.1", port).await.expect("a tunnel");
            tunnel.send(b"ebb").expect("a datagram");
            assert!(tunnel.recv().await.is_err());
        });
        assert_eq!(proxy.counts().unreachable, 1);
        stage.run_until(|| proxy.counts().tunnels == 0);
    });
}

/// The idle timeout of the tests.
const IDLE_TIMEOUT: Duration = Duration::from_millis(200);

#[test]
fn an_idle_tunnel_ends() {
    Stage::on_system(|stage| {
        let mut rules = rules();
        rules.idle_timeout = IDLE_TIMEOUT;
        let proxy = proxy(rules);
        let (server, tls) = (serve(stage, &proxy), stage.client_tls());
        let (_target, port) = target();
        stage.task(async move {
            let connection = connect(&tls, server).await;
            let mut tunnel = UdpTunnel::open(&connection, "127.0.0.1", port).await.expect("a tunnel");
            assert!(matches!(tunnel.recv().await, Ok(None)), "it ends in good order");
        });
        assert_eq!(proxy.counts().expired, 1);
    });
}

/// Uses a tunnel for three times the timeout. Returns whether it lasted: it does not if the process stalls for the timeout.
///
/// # Panics
/// If it ends without such a stall.
async fn lasts(tunnel: &mut UdpTunnel) -> bool {
    let begun = Instant::now();
    // When the last two exchanges began. The proxy may read its clock once for some of them.
    let mut starts = [begun; 2];
    while begun.elapsed() < IDLE_TIMEOUT * 3 {
        starts = [starts[1], Instant::now()];
        let is_sent = tunnel.send(b"ebb").is_ok();
        if !is_sent || !matches!(tunnel.recv().await, Ok(Some(_))) {
            assert!(starts[0].elapsed() >= IDLE_TIMEOUT, "it ended while it was used");
            return false;
        }
    }
    true
}

#[test]
fn a_tunnel_that_is_used_does_not_end() {
    Stage::on_system(|stage| {
        let mut rules = rules();
        rules.idle_timeout = IDLE_TIMEOUT;
        let (server, tls) = (serve(stage, &proxy(rules)), stage.client_tls());
        let (target, port) = target();
        stage.task(async move {
            let echo = task::spawn(async move {
                loop {
                    let (payload, source) = at_target(&target).await;
                    target.send_to(&payload, source).expect("a datagram");
                }
            });
            let connection = connect(&tls, server).await;
            loop {
                let mut tunnel = UdpTunnel::open(&connection, "127.0.0.1", port).await.expect("a tunnel");
                if lasts(&mut tunnel).await {
                    break;
                }
                println!("again: the process stalled");
            }
            echo.cancel();
        });
    });
}

#[test]
fn datagrams_of_unknown_contexts_are_dropped_and_malformed_ones_reset_the_tunnel() {
    Stage::on_system(|stage| {
        let proxy = proxy(rules());
        let (server, tls) = (serve(stage, &proxy), stage.client_tls());
        let (target, port) = target();
        let counts = proxy.clone();
        stage.task(async move {
            let connection = connect(&tls, server).await;
            let path = UdpTunnel::path("127.0.0.1", port);
            let mut tunnel = connection.open("connect-udp", &path).await.expect("a tunnel");
            tunnel.send_datagram(b"\x02unknown").expect("a datagram");
            // A capsule of another type is none of the proxy's business.
            tunnel.send(Capsule::Other { kind: 0x21, value: b"neap".to_vec().into() }).expect("room");
            tunnel.send(Capsule::Datagram(b"\0ebb".to_vec().into())).expect("room");
            assert_eq!(at_target(&target).await.0, b"ebb", "a datagram in a capsule");
            while counts.counts().dropped == 0 {
                task::sleep(Duration::from_millis(1)).await;
            }
            tunnel.send_datagram(b"").expect("a datagram");
            assert!(tunnel.recv().await.is_err(), "without a context");

            let mut tunnel = connection.open("connect-udp", &path).await.expect("a tunnel");
            let long = [&[0][..], &[7; 65_528]].concat();
            tunnel.send(Capsule::Datagram(long.into())).expect("room");
            assert!(tunnel.recv().await.is_err(), "longer than UDP permits");
        });
        assert_eq!((proxy.counts().sent, proxy.counts().dropped), (1, 1));
    });
}

#[test]
fn an_answer_that_is_too_long_for_the_path_is_dropped() {
    Stage::on_system(|stage| {
        let proxy = proxy(rules());
        let (server, tls) = (serve(stage, &proxy), stage.client_tls());
        let (target, port) = target();
        stage.task(async move {
            let connection = connect(&tls, server).await;
            let mut tunnel = UdpTunnel::open(&connection, "127.0.0.1", port).await.expect("a tunnel");
            tunnel.send(b"ebb").expect("a datagram");
            let (_, source) = at_target(&target).await;
            // Within the bound of the proxy's socket, and beyond it.
            for bytes in [9_000, 20_000] {
                target.send_to(&vec![7; bytes], source).expect("a datagram");
            }
            target.send_to(b"flow", source).expect("a datagram");
            assert_eq!(tunnel.recv().await.expect("a datagram").as_deref(), Some(&b"flow"[..]));
        });
        assert_eq!((proxy.counts().received, proxy.counts().dropped), (1, 2));
    });
}

/// Reads until the wire ends with these bytes.
fn read_until(stream: &mut TcpStream, end: &[u8]) -> Vec<u8> {
    let mut wire = Vec::new();
    while !wire.ends_with(end) {
        let mut space = [0; 4096];
        let count = stream.read(&mut space).expect("bytes");
        assert!(count > 0, "{:?}", String::from_utf8_lossy(&wire));
        wire.extend_from_slice(&space[..count]);
    }
    wire
}

fn start_proxy() -> (UdpProxy, Running) {
    let proxy = proxy(rules());
    let of_loops = proxy.clone();
    (proxy, start(move || router(&of_loops)))
}

/// A target that waits for a datagram, and sends one back.
fn answer(target: &UdpSocket, expected: &[u8], answer: &[u8]) {
    target.set_nonblocking(false).expect("a socket");
    let mut space = [0; 100];
    let (count, source) = target.recv_from(&mut space).expect("a datagram");
    assert_eq!(&space[..count], expected);
    target.send_to(answer, source).expect("a datagram");
}

#[test]
fn the_proxy_is_the_same_over_http1() {
    let (proxy, running) = start_proxy();
    let (target, port) = target();
    let head = |path: &str| {
        let fields = "Host: sea\r\nConnection: Upgrade\r\nUpgrade: connect-udp\r\nCapsule-Protocol: ?1\r\n";
        format!("GET {path} HTTP/1.1\r\n{fields}\r\n")
    };
    let mut stream = running.connect();
    let request = head(&UdpTunnel::path("127.0.0.1", port));
    stream.write_all(&[request.as_bytes(), b"\0\x04\0ebb"].concat()).expect("room");
    answer(&target, b"ebb", b"flow");
    let wire = read_until(&mut stream, b"\0\x05\0flow");
    assert!(wire.starts_with(b"HTTP/1.1 101 "));
    drop(stream);
    for (path, expected) in [
        (UdpTunnel::path("10.0.0.1", 443), "403"),
        ("/.well-known/masque/udp/127.0.0.1/x/".to_owned(), "400"),
        ("/.well-known/masque/udp/%00/1/".to_owned(), "400"),
    ] {
        let response = running.exchange(&head(&path));
        assert_eq!(response.split(' ').nth(1), Some(expected), "{response}");
        assert_eq!(response.contains("Proxy-Status: tidegate; error="), expected == "403", "{response}");
        // Bytes behind the request may be datagrams.
        assert!(response.contains("\r\nConnection: close\r\n"), "{response}");
    }
    assert_eq!((proxy.counts().begun, proxy.counts().sent), (1, 1));
}

#[test]
fn datagrams_that_a_slow_client_makes_the_proxy_drop_count_as_dropped() {
    let (proxy, running) = start_proxy();
    let (target, port) = target();
    target.set_nonblocking(false).expect("a socket");
    let fields = "Host: sea\r\nConnection: Upgrade\r\nUpgrade: connect-udp\r\n";
    let request = format!("GET {} HTTP/1.1\r\n{fields}\r\n", UdpTunnel::path("127.0.0.1", port));
    let mut stream = running.connect();
    stream.write_all(&[request.as_bytes(), b"\0\x04\0ebb"].concat()).expect("room");
    let (_, source) = target.recv_from(&mut [0; 100]).expect("a datagram");
    // The client reads nothing, so the buffers of its connection fill up.
    let payload = vec![7; 9_000];
    for number in 0..20_000 {
        target.send_to(&payload, source).expect("a datagram");
        while proxy.counts().received + proxy.counts().dropped <= number {
            std::thread::yield_now();
        }
        if proxy.counts().dropped > 0 {
            return;
        }
    }
    panic!("180 MB without a drop: {:?}", proxy.counts());
}

#[test]
fn http3_keeps_the_datagrams_that_were_accepted_before() {
    let (server_tls, client_tls) = tls();
    let server = Server::bind("127.0.0.1:0").expect("an address").tls(server_tls);
    let server = server.http_datagrams(HttpDatagramLimits::default()).and_then(Server::http3).expect("limits");
    let of_loops = proxy(rules());
    let server = server.start(move || router(&of_loops)).expect("a server");
    let address = server.address().ip().expect("an IP address");
    let (_target, port) = target();
    let bytes_max = EventLoop::on(Backend::Auto).expect("a loop").block_on(async move {
        let connection = connect(&client_tls, address).await;
        let tunnel = UdpTunnel::open(&connection, "127.0.0.1", port).await.expect("a tunnel");
        tunnel.datagram_bytes_max()
    });
    assert!(bytes_max.expect("it runs").is_some(), "datagrams of QUIC");
    server.drain(Duration::ZERO);
}

#[test]
fn the_http_client_opens_a_tunnel_over_http1() {
    let (proxy, running) = start_proxy();
    let (target, port) = target();
    let uri = format!("http://{}{}", running.0.address(), UdpTunnel::path("127.0.0.1", port));
    let exchange = async move {
        let response = Client::new().get(&uri).upgrade("connect-udp").send().await.expect("a response");
        let channel = response.into_channel(CapsuleCodec::new(65_536)).map_err(|response| response.status());
        let mut tunnel = UdpTunnel::new(CapsuleTunnel::new(channel.expect("a tunnel")));
        assert_eq!(tunnel.datagram_bytes_max(), None);
        // More than a datagram of QUIC has room for.
        for payload in [&b"ebb"[..], &[7; 9_000]] {
            tunnel.send(payload).expect("a datagram");
            let (received, source) = at_target(&target).await;
            assert_eq!(received, payload);
            target.send_to(payload, source).expect("a datagram");
            assert_eq!(tunnel.recv().await.expect("a datagram").as_deref(), Some(payload));
        }
    };
    EventLoop::on(Backend::Auto).expect("a loop").block_on(exchange).expect("it runs");
    assert_eq!((proxy.counts().sent, proxy.counts().received), (2, 2));
}

const VERSIONS: [Version; 3] = [Version::Http11, Version::Http2, Version::Http3];

/// A proxy over all versions, on a loop of its own, and a client that trusts it.
fn start_over_tls(rules: UdpProxyRules) -> (UdpProxy, Running, tidegate::tls::ClientConfig) {
    let (server_tls, client_tls) = tls();
    // The protocols are those of the server and not those of HTTP/3 alone.
    let server_tls = server_tls.with_alpn(["h2", "http/1.1"]);
    let server = Server::bind("127.0.0.1:0").expect("an address").loops(1).tls(server_tls);
    let server = server.http_datagrams(HttpDatagramLimits::default()).expect("limits");
    let proxy = proxy(rules);
    let of_loops = proxy.clone();
    let running = Running(server.start(move || router(&of_loops)).expect("a server"));
    (proxy, running, client_tls)
}

async fn connect_over(
    version: Version,
    (running, tls): (SocketAddr, &tidegate::tls::ClientConfig),
) -> CapsuleConnection {
    let client = CapsuleClient::bind((Ipv4Addr::LOCALHOST, 0).into(), tls, HttpDatagramLimits::default());
    let connecting = client.expect("a socket");
    connecting.connect_over(version, running, NAME).await.expect("a connection")
}

#[test]
fn a_client_has_the_same_tunnels_over_all_versions() {
    for version in VERSIONS {
        let (proxy, running, tls) = start_over_tls(rules());
        let address = running.0.address().ip().expect("an address");
        let (target, port) = target();
        let exchange = async move {
            let connection = connect_over(version, (address, &tls)).await;
            let mut tunnels = Vec::new();
            for _ in 0..2 {
                tunnels.push(UdpTunnel::open(&connection, "127.0.0.1", port).await.expect("a tunnel"));
            }
            for tunnel in &mut tunnels {
                assert_eq!(tunnel.datagram_bytes_max().is_some(), version == Version::Http3);
                for payload in [&b"ebb"[..], b"", &[7; 1_000]] {
                    tunnel.send(payload).expect("a datagram");
                    let (received, source) = at_target(&target).await;
                    assert_eq!(received, payload, "{version:?}");
                    target.send_to(payload, source).expect("a datagram");
                    let answer = tunnel.recv().await.expect("a datagram");
                    assert_eq!(answer.as_deref(), Some(payload), "{version:?}");
                }
            }
            for (host, expected) in [("10.0.0.1", 403), ("unknown.example", 502), ("127.1", 400)] {
                assert_eq!(refusal(&connection, host, port).await, expected, "{version:?} {host}");
            }
            let refused = connection.open("websocket", &UdpTunnel::path("127.0.0.1", port)).await;
            let expected = if version == Version::Http11 { 426 } else { 501 };
            assert!(matches!(refused, Err(ExtendedConnectError::Refused(status)) if status == expected), "{refused:?}");
            // A tunnel that was open before goes on.
            tunnels[0].send(b"flow").expect("a datagram");
            assert_eq!(at_target(&target).await.0, b"flow");
        };
        EventLoop::on(Backend::Auto).expect("a loop").block_on(exchange).expect("it runs");
        let counts = proxy.counts();
        assert_eq!((counts.begun, counts.refused, counts.sent, counts.received), (2, 2, 7, 6), "{version:?}");
        assert_eq!((counts.refused_targets, counts.refused_names), (1, 1), "{version:?}");
        assert_eq!((counts.sent_bytes, counts.received_bytes), (2 * 1_003 + 4, 2 * 1_003), "{version:?}");
    }
}

/// A client would read the bytes of the other protocol as capsules (RFC 9298 §3.3).
#[test]
fn a_switch_to_another_protocol_over_http1_is_no_tunnel() {
    let (server_tls, client_tls) = tls();
    let server = Server::bind("127.0.0.1:0").expect("an address").loops(1).tls(server_tls.with_alpn(["http/1.1"]));
    let router = || {
        Router::new().get(UdpProxy::PATH, || {
            let upgrade = Upgrade::channel(CapsuleCodec::new(64), async |_| Ok::<_, std::convert::Infallible>(()));
            Response::upgrade("tide-gauge", upgrade)
        })
    };
    let running = Running(server.start(router).expect("a server"));
    let address = running.0.address().ip().expect("an address");
    let opening = async move {
        let connection = connect_over(Version::Http11, (address, &client_tls)).await;
        UdpTunnel::open(&connection, "127.0.0.1", 9).await.map(drop)
    };
    let opened = EventLoop::on(Backend::Auto).expect("a loop").block_on(opening).expect("it runs");
    assert!(matches!(opened, Err(ExtendedConnectError::Unsupported)), "{opened:?}");
}

/// RFC 9297 §3.2: capsules of unknown types are skipped, those of WebTransport and long ones too.
#[test]
fn capsules_of_other_protocols_do_not_end_a_tunnel() {
    for version in VERSIONS {
        let (_proxy, running, tls) = start_over_tls(rules());
        let address = running.0.address().ip().expect("an address");
        let (target, port) = target();
        let exchange = async move {
            let connection = connect_over(version, (address, &tls)).await;
            let mut tunnel =
                connection.open("connect-udp", &UdpTunnel::path("127.0.0.1", port)).await.expect("a tunnel");
            // CLOSE and DRAIN of WebTransport, whose values would be malformed, and a type that nothing uses.
            for (kind, bytes) in [(0x2843, 3), (0x78ae, 1), (0x21, 100_000)] {
                tunnel.send(Capsule::Other { kind, value: vec![7; bytes].into() }).expect("room");
            }
            tunnel.send(Capsule::Datagram(b"\0ebb".to_vec().into())).expect("room");
            let (received, source) = at_target(&target).await;
            assert_eq!(received, b"ebb", "{version:?}");
            target.send_to(b"flow", source).expect("a datagram");
            let answer = tunnel.recv().await.expect("a datagram");
            assert_eq!(answer, Some(Capsule::Datagram(b"\0flow".to_vec().into())), "{version:?}");
        };
        EventLoop::on(Backend::Auto).expect("a loop").block_on(exchange).expect("it runs");
    }
}

/// A client may send datagrams of another program behind its request: they are no requests (RFC 9931).
#[test]
fn bytes_behind_a_refused_upgrade_are_no_requests() {
    let (_proxy, running) = start_proxy();
    let fields = "Host: sea\r\nConnection: Upgrade\r\nUpgrade: connect-udp\r\n\r\n";
    let smuggled = "GET /smuggled HTTP/1.1\r\nHost: sea\r\n\r\n";
    let connect = "CONNECT sea:443 HTTP/1.1\r\nHost: sea:443\r\n\r\n".to_owned();
    let refused = format!("GET {} HTTP/1.1\r\n{fields}", UdpTunnel::path("10.0.0.1", 443));
    let other = format!("GET /nowhere HTTP/1.1\r\n{fields}");
    for head in [connect, refused, other] {
        let response = running.exchange(&[&*head, smuggled].concat());
        assert_eq!(response.matches("HTTP/1.1 ").count(), 1, "{response}");
        assert!(response.contains("\r\nConnection: close\r\n"), "{response}");
    }
}

#[test]
fn the_proxy_is_the_same_over_http2() {
    let (proxy, running) = start_proxy();
    let (target, port) = target();
    let mut peer = Peer::new(running.connect());
    peer.extended_connect(1, "connect-udp", &UdpTunnel::path("127.0.0.1", port), &[("capsule-protocol", "?1")]);
    peer.data(1, b"\0\x04\0ebb");
    answer(&target, b"ebb", b"flow");
    peer.read_until(|peer| !peer.stream(1).body.is_empty());
    assert_eq!((peer.stream(1).status(), &peer.stream(1).body[..]), ("200", &b"\0\x05\0flow"[..]));
    peer.frame(0, END_STREAM, 1, b"");
    peer.read_until(|peer| peer.stream(1).is_over());
    peer.extended_connect(3, "connect-udp", &UdpTunnel::path("10.0.0.1", port), &[]);
    peer.read_until(|peer| peer.stream(3).is_over());
    assert_eq!(peer.stream(3).field("proxy-status"), Some("tidegate; error=destination_ip_prohibited"));
    assert_eq!((proxy.counts().begun, proxy.counts().refused), (1, 1));
}

/// The resolver of the proxy does not answer, and the rules let it take an hour.
#[test]
fn a_server_that_does_not_answer_a_request_for_a_tunnel_has_a_deadline() {
    for version in VERSIONS {
        let mut rules = rules();
        rules.resolve_timeout = Duration::from_secs(3_600);
        let (proxy, running, tls) = start_over_tls(rules);
        let address = running.0.address().ip().expect("an address");
        let opening = async move {
            let client = CapsuleClient::bind((Ipv4Addr::LOCALHOST, 0).into(), &tls, HttpDatagramLimits::default());
            let client = client.expect("a socket").response_timeout(Duration::from_millis(50));
            let connection = client.connect_over(version, address, NAME).await.expect("a connection");
            let opened = UdpTunnel::open(&connection, "slow.example", 9).await;
            assert!(matches!(opened, Err(ExtendedConnectError::Timeout)), "{version:?}: {opened:?}");
            // The request is reset, and the connection stays.
            while proxy.counts().tunnels > 0 {
                task::sleep(Duration::from_millis(1)).await;
            }
            drop(connection);
        };
        EventLoop::on(Backend::Auto).expect("a loop").block_on(opening).expect("it runs");
    }
}

/// A server that does not send SETTINGS, without which no request may be extended.
#[test]
fn a_server_that_sends_no_settings_has_a_deadline() {
    Stage::on_system(|stage| {
        let (server, tls) = (stage.serve_quic_alone(), stage.client_tls());
        stage.task(async move {
            let local = (Ipv4Addr::LOCALHOST, 0).into();
            let client = CapsuleClient::bind(local, &tls, HttpDatagramLimits::default()).expect("a socket");
            let client = client.response_timeout(Duration::from_millis(50));
            let connected = client.connect(server, NAME).await.map(drop);
            assert!(matches!(connected, Err(ExtendedConnectError::Timeout)), "{connected:?}");
            let client = WebTransportClient::bind(local, &tls, WebTransportLimits::default()).expect("a socket");
            let client = client.response_timeout(Duration::from_millis(50));
            let opened = client.open(server, NAME, "/").await.map(drop);
            assert!(matches!(opened, Err(WebTransportError::Timeout)), "{opened:?}");
        });
    });
}
