//! UDP tunnels (RFC 9298) through a gateway: each version of a client, and each version of an upstream.

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::time::Duration;

use tidegate::engine::SessionError;
use tidegate::http::proxy::{Http3Config, Proxy, UpstreamLimits, Upstreams};
use tidegate::http::{
    CapsuleClient, CapsuleConnection, CapsuleTunnel, CapsuleUpgrade, Config, ExtendedConnectError, Router, Server,
    UdpProxy, UdpProxyRules, UdpTunnel,
};
use tidegate::http1::Version;
use tidegate::http3::{Capsule, HttpDatagramLimits};
use tidegate::quic::TransportLimits;
use tidegate::tls::{ClientConfig, ServerConfig};
use tidegate::{Backend, EventLoop, Listener, task};

use crate::support::Running;
use crate::upstream_http3::{address, tls};

const NAME: &str = "sea.example";
const VERSIONS: [Version; 3] = [Version::Http11, Version::Http2, Version::Http3];

/// A UDP proxy over all versions, whose targets are of this machine.
fn udp_proxy(tls: &ServerConfig) -> (UdpProxy, Running, Running) {
    let mut rules = UdpProxyRules::default();
    rules.allow = vec!["127.0.0.0/8".parse().expect("a network")];
    let proxy = UdpProxy::new(rules);
    let [plain, secure] = [proxy.clone(), proxy.clone()]
        .map(|proxy| move || Router::new().get(UdpProxy::PATH, proxy.function()).get("/page", || "a page"));
    let bind = || Server::bind("127.0.0.1:0").expect("an address").loops(1);
    let secure = bind().tls(tls.clone()).http3().expect("QUIC").start(secure).expect("it starts");
    (proxy, Running(bind().start(plain).expect("it starts")), Running(secure))
}

fn gateway(tls: &ServerConfig, upstreams: &Upstreams, protocols: &'static [&'static str]) -> Running {
    let upstreams = upstreams.clone();
    let server = Server::bind("127.0.0.1:0").expect("an address").loops(1).tls(tls.clone()).http3().expect("QUIC");
    let router = move || Router::new().fallback(Proxy::new(&upstreams).upgrades(protocols.iter().copied()));
    Running(server.start(router).expect("it starts"))
}

async fn connect(version: Version, server: SocketAddr, tls: &ClientConfig) -> CapsuleConnection {
    let client = CapsuleClient::bind((Ipv4Addr::LOCALHOST, 0).into(), tls, HttpDatagramLimits::default());
    client.expect("a socket").connect_over(version, server, NAME).await.expect("a connection")
}

fn run<T: 'static>(future: impl Future<Output = T> + 'static) -> T {
    EventLoop::on(Backend::Auto).expect("a loop").block_on(future).expect("it runs")
}

/// A target that sends each datagram back.
async fn echo(target: UdpSocket) {
    let mut space = [0; 2_000];
    loop {
        match target.recv_from(&mut space) {
            Ok((count, source)) => drop(target.send_to(&space[..count], source)),
            Err(_) => task::sleep(Duration::from_millis(1)).await,
        }
    }
}

fn target() -> (UdpSocket, u16) {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("a socket");
    socket.set_nonblocking(true).expect("a socket");
    let port = socket.local_addr().expect("an address").port();
    (socket, port)
}

#[test]
fn tunnels_pass_between_all_versions() {
    let (server_tls, client_tls) = tls(NAME);
    let (upstream_tls, trust) = tls("127.0.0.1");
    let (udp, plain, secure) = udp_proxy(&upstream_tls);
    for scheme in ["http", "h2c", "https+h3"] {
        let url = format!("{scheme}://{}", address(if scheme == "https+h3" { &secure } else { &plain }));
        let upstreams = Upstreams::builder().server(url.parse().expect("a URL")).tls(trust.clone());
        let upstreams = upstreams.build().expect("upstreams");
        let gateway = gateway(&server_tls, &upstreams, &["websocket", "connect-udp"]);
        for version in VERSIONS {
            let before = udp.counts();
            let (at_gateway, tls) = (address(&gateway), client_tls.clone());
            let (target, port) = target();
            run(async move {
                let echo = task::spawn(echo(target));
                let connection = connect(version, at_gateway, &tls).await;
                let mut tunnel = UdpTunnel::open(&connection, "127.0.0.1", port).await.expect("a tunnel");
                for payload in [&b"ebb"[..], b"", &[7; 1_500]] {
                    tunnel.send(payload).expect("a datagram");
                    let answer = tunnel.recv().await.expect("a datagram");
                    assert_eq!(answer.as_deref(), Some(payload), "{version:?} to {scheme}");
                }
                let refused = UdpTunnel::open(&connection, "10.0.0.1", port).await;
                assert!(
                    matches!(refused, Err(ExtendedConnectError::Refused(403))),
                    "{version:?} to {scheme}: {refused:?}"
                );
                echo.cancel();
            });
            let counts = udp.counts();
            assert_eq!(
                (counts.begun, counts.refused),
                (before.begun + 1, before.refused + 1),
                "{version:?} to {scheme}"
            );
        }
    }
}

/// Sends each capsule back, and datagrams as those of QUIC where they fit.
async fn send_back(mut tunnel: CapsuleTunnel) -> Result<(), Box<dyn std::error::Error>> {
    while let Some(capsule) = tunnel.recv().await? {
        match capsule {
            Capsule::Datagram(payload) => match tunnel.send_datagram(&payload) {
                Err(SessionError::Datagram(_)) => tunnel.send(Capsule::Datagram(payload))?,
                sent => sent?,
            },
            other => tunnel.send(other)?,
        }
    }
    Ok(())
}

/// A server of tunnels over all versions. One at `/frames` takes capsules of four bytes at most, so that longer datagrams have to
/// be those of QUIC.
fn tunnels(tls: Option<&ServerConfig>) -> Running {
    let router = || {
        let any = |upgrade: CapsuleUpgrade| upgrade.other_capsules().tunnel("connect-udp", send_back);
        let frames =
            |upgrade: CapsuleUpgrade| upgrade.other_capsules().capsule_bytes_max(4).tunnel("connect-udp", send_back);
        Router::new().get("/any", any).get("/frames", frames)
    };
    let server = Server::bind("127.0.0.1:0").expect("an address").loops(1);
    let server = match tls {
        Some(tls) => server.tls(tls.clone()).http_datagrams(HttpDatagramLimits::default()).expect("QUIC"),
        None => server,
    };
    Running(server.start(router).expect("it starts"))
}

/// Sends datagrams and another capsule through a gateway to an upstream, with this bound for capsules of the client. Returns
/// whether all came back.
async fn exchange(connection: CapsuleConnection, path: &'static str, bytes_max: u32, longest: usize) -> bool {
    let mut tunnel = connection.open_within("connect-udp", path, bytes_max).await.expect("a tunnel");
    for payload in [&b"ebb"[..], b"", &vec![7; longest]] {
        tunnel.send_datagram(payload).expect("a datagram");
        let Ok(Some(Capsule::Datagram(back))) = tunnel.recv().await else { return false };
        assert_eq!(back, payload);
    }
    let other = Capsule::Other { kind: 0x21, value: (&b"neap"[..]).into() };
    tunnel.send(other.clone()).expect("a capsule");
    assert_eq!(tunnel.recv().await.expect("a capsule"), Some(other));
    true
}

#[test]
fn datagrams_are_those_of_quic_on_each_side_that_has_them() {
    let (server_tls, client_tls) = tls(NAME);
    let (upstream_tls, trust) = tls("127.0.0.1");
    let (plain, secure) = (tunnels(None), tunnels(Some(&upstream_tls)));
    for has_datagrams in [true, false] {
        for scheme in ["http", "h2c", "https+h3"] {
            let is_http3 = scheme == "https+h3";
            let url = format!("{scheme}://{}", address(if is_http3 { &secure } else { &plain }));
            let datagrams = has_datagrams.then(HttpDatagramLimits::default);
            let upstreams = Upstreams::builder().server(url.parse().expect("a URL")).tls(trust.clone());
            let upstreams = upstreams.http3(Http3Config { datagrams, ..Http3Config::default() });
            let upstreams = upstreams.build().expect("upstreams");
            let server = Server::bind("127.0.0.1:0").expect("an address").loops(1).tls(server_tls.clone());
            let server = match datagrams {
                Some(limits) => server.http_datagrams(limits).expect("QUIC"),
                None => server.http3().expect("QUIC"),
            };
            let router = move || Router::new().fallback(Proxy::new(&upstreams).upgrades(["connect-udp"]));
            let gateway = Running(server.start(router).expect("it starts"));
            for version in VERSIONS {
                let (at, tls, is_client_http3) = (address(&gateway), client_tls.clone(), version == Version::Http3);
                // A side without datagrams of QUIC has capsules of any length.
                let (path, bytes_max) =
                    (if is_http3 { "/frames" } else { "/any" }, if is_client_http3 { 4 } else { 16_384 });
                let come_back = run(async move {
                    let connection = connect(version, at, &tls).await;
                    exchange(connection, path, bytes_max, 1_000).await
                });
                let expected = has_datagrams || !(is_http3 || is_client_http3);
                assert_eq!(come_back, expected, "{version:?} to {scheme}, datagrams: {has_datagrams}");
            }
        }
    }
}

#[test]
fn a_datagram_that_came_as_a_capsule_goes_on_as_one_if_it_is_too_long_for_quic() {
    let (server_tls, client_tls) = tls(NAME);
    let (upstream_tls, trust) = tls("127.0.0.1");
    let secure = tunnels(Some(&upstream_tls));
    let url = format!("https+h3://{}", address(&secure));
    let datagrams = Some(HttpDatagramLimits::default());
    let upstreams = Upstreams::builder().server(url.parse().expect("a URL")).tls(trust);
    let upstreams = upstreams.http3(Http3Config { datagrams, ..Http3Config::default() }).build().expect("upstreams");
    let gateway = gateway(&server_tls, &upstreams, &["connect-udp"]);
    for version in [Version::Http11, Version::Http2] {
        let (at, tls) = (address(&gateway), client_tls.clone());
        let come_back = run(async move { exchange(connect(version, at, &tls).await, "/any", 16_384, 9_000).await });
        assert!(come_back, "{version:?}");
    }
}

/// Datagrams that a gateway dropped so far, by side and reason.
fn dropped(upstreams: &Upstreams) -> Vec<((&'static str, &'static str), u64)> {
    let dropped = upstreams.snapshot("udp").upstreams.remove(0).dropped_datagrams;
    dropped.into_iter().filter(|(_, count)| *count > 0).collect()
}

/// A gateway over HTTP/3 with an upstream at this URL.
fn gateway_to(url: &str, (server, trust): (&ServerConfig, ClientConfig)) -> (Upstreams, Running) {
    let datagrams = Some(HttpDatagramLimits::default());
    let upstreams = Upstreams::builder().server(url.parse().expect("a URL")).tls(trust);
    let upstreams = upstreams.http3(Http3Config { datagrams, ..Http3Config::default() }).build().expect("upstreams");
    let of_gateway = upstreams.clone();
    let gateway = Server::bind("127.0.0.1:0").expect("an address").loops(1).tls(server.clone());
    let gateway = gateway.http_datagrams(HttpDatagramLimits::default()).expect("QUIC");
    let router = move || Router::new().fallback(Proxy::new(&of_gateway).upgrades(["connect-udp"]));
    (upstreams, Running(gateway.start(router).expect("it starts")))
}

#[test]
fn a_datagram_that_is_too_long_for_the_upstream_is_counted_and_shorter_ones_pass() {
    let (server_tls, client_tls) = tls(NAME);
    let (upstream_tls, trust) = tls("127.0.0.1");
    let any = |upgrade: CapsuleUpgrade| upgrade.tunnel("connect-udp", send_back);
    let upstream = Config::new().tls(upstream_tls).http_datagrams(HttpDatagramLimits::default()).expect("QUIC");
    // The gateway finds a path of 1,472 bytes to its client, and the upstream takes no more than the least.
    let datagram_receive_bytes = Some(HttpDatagramLimits::default().request_bytes_max);
    let limits = TransportLimits { payload_bytes_max: 1_200, datagram_receive_bytes, ..TransportLimits::default() };
    let listener = Listener::bind("127.0.0.1:0").expect("an address");
    let upstream = upstream.http3_with(limits).expect("QUIC").serve(listener, move || Router::new().get("/any", any));
    let upstream = Running(tidegate::Server::new().loops(1).listener(upstream).run().expect("it starts"));
    let (upstreams, gateway) = gateway_to(&format!("https+h3://{}", address(&upstream)), (&server_tls, trust));
    let (at, seen) = (address(&gateway), upstreams.clone());
    run(async move {
        let connection = connect(Version::Http3, at, &client_tls).await;
        let mut tunnel = connection.open_within("connect-udp", "/any", 16_384).await.expect("a tunnel");
        for payload in [&b"ebb"[..], &[7; 1_000]] {
            tunnel.send_datagram(payload).expect("a datagram");
            let Ok(Some(Capsule::Datagram(back))) = tunnel.recv().await else { panic!("a datagram") };
            assert_eq!(back, payload);
        }
        assert_eq!(dropped(&seen), []);
        // The client refuses it until it has found the longer path.
        while dropped(&seen).is_empty() {
            let _refused = tunnel.send_datagram(&[7; 1_300]);
            task::sleep(Duration::from_millis(1)).await;
        }
    });
    assert!(dropped(&upstreams).iter().all(|(of, _)| *of == ("upstream", "too_long")));
}

#[test]
fn datagrams_for_a_client_that_does_not_read_are_counted() {
    let (server_tls, client_tls) = tls(NAME);
    let (upstream_tls, trust) = tls("127.0.0.1");
    let flood = |upgrade: CapsuleUpgrade| {
        upgrade.tunnel("connect-udp", async |mut tunnel| {
            while tunnel.send_datagram(&[7; 1_000]).is_ok() {
                task::sleep(Duration::from_micros(100)).await;
            }
            Ok::<_, std::io::Error>(())
        })
    };
    let upstream = Server::bind("127.0.0.1:0").expect("an address").loops(1).tls(upstream_tls);
    let upstream = upstream.http_datagrams(HttpDatagramLimits::default()).expect("QUIC");
    let upstream = Running(upstream.start(move || Router::new().get("/flood", flood)).expect("it starts"));
    let (upstreams, gateway) = gateway_to(&format!("https+h3://{}", address(&upstream)), (&server_tls, trust));
    let (at, seen) = (address(&gateway), upstreams.clone());
    run(async move {
        let connection = connect(Version::Http2, at, &client_tls).await;
        let _tunnel = connection.open_within("connect-udp", "/flood", 16_384).await.expect("a tunnel");
        while dropped(&seen).is_empty() {
            task::sleep(Duration::from_millis(1)).await;
        }
    });
    assert_eq!(dropped(&upstreams).iter().map(|(of, _)| *of).next(), Some(("client", "no_room")));
}

#[test]
fn datagrams_for_an_upstream_that_does_not_read_are_counted_by_their_reason() {
    let (server_tls, client_tls) = tls(NAME);
    let (_, trust) = tls("127.0.0.1");
    let never = |upgrade: CapsuleUpgrade| {
        upgrade.other_capsules().capsule_bytes_max(CAPSULE_BYTES as u32).tunnel("connect-udp", async |tunnel| {
            std::future::pending::<()>().await;
            drop(tunnel);
            Ok::<_, std::io::Error>(())
        })
    };
    let server = Server::bind("127.0.0.1:0").expect("an address").loops(1);
    let upstream = Running(server.start(move || Router::new().get("/never", never)).expect("it starts"));
    for scheme in ["http", "h2c"] {
        for (reason, capsule_bytes) in [("no_room", 0), ("within_capsule", CAPSULE_BYTES)] {
            let url = format!("{scheme}://{}", address(&upstream));
            let (upstreams, gateway) = gateway_to(&url, (&server_tls, trust.clone()));
            let (at, tls, seen) = (address(&gateway), client_tls.clone(), upstreams.clone());
            run(async move {
                let connection = connect(Version::Http3, at, &tls).await;
                let mut tunnel = connection.open_within("connect-udp", "/never", 16_384).await.expect("a tunnel");
                if capsule_bytes > 0 {
                    let value = vec![7; capsule_bytes].into();
                    tunnel.send(Capsule::Other { kind: 0x21, value }).expect("a capsule");
                }
                while !dropped(&seen).iter().any(|(of, _)| *of == ("upstream", reason)) {
                    for _ in 0..16 {
                        tunnel.send_datagram(&[7; 1_000]).expect("a datagram");
                    }
                    task::sleep(Duration::from_millis(1)).await;
                }
            });
            let dropped = dropped(&upstreams);
            assert!(dropped.iter().all(|((side, _), _)| *side == "upstream"), "{scheme}: {dropped:?}");
        }
    }
}

/// The bytes of a capsule that no socket buffer holds.
const CAPSULE_BYTES: usize = 16 * 1024 * 1024;

#[test]
fn a_gateway_passes_no_tunnel_on_unless_it_is_allowed() {
    let (server_tls, client_tls) = tls(NAME);
    let (udp, plain, _secure) = udp_proxy(&server_tls);
    let url = format!("http://{}", address(&plain));
    let upstreams = Upstreams::builder().server(url.parse().expect("a URL")).build().expect("upstreams");
    let gateway = gateway(&server_tls, &upstreams, &["websocket"]);
    for version in VERSIONS {
        let (at, tls) = (address(&gateway), client_tls.clone());
        let refused = run(async move {
            let connection = connect(version, at, &tls).await;
            UdpTunnel::open(&connection, "127.0.0.1", 9).await.map(drop)
        });
        // An upgrade that is not passed on is a plain GET, which the UDP proxy refuses.
        let expected = if version == Version::Http11 { 400 } else { 501 };
        assert!(
            matches!(refused, Err(ExtendedConnectError::Refused(status)) if status == expected),
            "{version:?}: {refused:?}"
        );
    }
    assert_eq!(udp.counts().begun, 0);
}

#[test]
fn an_idle_tunnel_of_a_gateway_ends() {
    let (server_tls, client_tls) = tls(NAME);
    let (udp, plain, _secure) = udp_proxy(&server_tls);
    let url = format!("http://{}", address(&plain));
    let mut limits = UpstreamLimits::default();
    limits.tunnel_idle_timeout = Duration::from_millis(50);
    let upstreams = Upstreams::builder().server(url.parse().expect("a URL")).limits(limits).build().expect("upstreams");
    let gateway = gateway(&server_tls, &upstreams, &["connect-udp"]);
    for version in VERSIONS {
        let (at, tls) = (address(&gateway), client_tls.clone());
        let (_target, port) = target();
        run(async move {
            let connection = connect(version, at, &tls).await;
            let mut tunnel = UdpTunnel::open(&connection, "127.0.0.1", port).await.expect("a tunnel");
            // It ends, in good order or by a reset.
            assert!(matches!(tunnel.recv().await, Ok(None) | Err(_)), "{version:?}");
        });
    }
    while udp.counts().tunnels > 0 {
        std::thread::yield_now();
    }
}
