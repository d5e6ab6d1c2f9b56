//! UDP tunnels (RFC 9298) through a gateway: each version of a client, and each version of an upstream.

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::time::Duration;

use tidegate::http::proxy::{Proxy, UpstreamLimits, Upstreams};
use tidegate::http::{
    CapsuleClient, CapsuleConnection, ExtendedConnectError, Router, Server, UdpProxy, UdpProxyRules, UdpTunnel,
};
use tidegate::http1::Version;
use tidegate::http3::HttpDatagramLimits;
use tidegate::tls::{ClientConfig, ServerConfig};
use tidegate::{Backend, EventLoop, task};

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
