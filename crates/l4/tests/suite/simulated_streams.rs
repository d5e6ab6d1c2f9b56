//! Connections through a forwarder in a simulated network.

use std::net::SocketAddr;
use std::time::Duration;

use tidegate_codec::framing::Raw;
use tidegate_codec::sniff;
use tidegate_engine::{Channel, ChannelError, Client, Limits, task};
use tidegate_l4::{Routes, TcpForwarder, TcpLimits, UpstreamLimits, Upstreams};
use tidegate_proxy_protocol::{Networks, Policy};
use tidegate_testkit::network::{FaultRates, Network, SimNode};

use crate::client_hello::hello;

type Any = Box<dyn std::error::Error>;

const PORT: u16 = 4_000;
const WAIT: Duration = Duration::from_secs(100);

fn upstreams(servers: &[&str]) -> Upstreams {
    let servers = servers.iter().map(|server| server.parse().expect("a server"));
    servers.fold(Upstreams::builder(), |builder, server| builder.server(server, 1)).build()
}

/// A forwarder on 10.0.0.1.
fn forward(network: &Network, forwarder: &TcpForwarder) -> SimNode {
    let node = network.host("10.0.0.1").node();
    let (codec, forward) = (forwarder.clone(), forwarder.clone());
    node.serve(PORT, Limits::default(), move || codec.codec(None), move |channel| forward.clone().forward(channel))
        .expect("a port");
    node
}

/// A server that answers its name, and then all that it receives, once the client has ended its side.
fn echo(network: &Network, ip: &str) -> SimNode {
    let (node, name) = (network.host(ip).node(), ip.to_owned());
    let serve = move |mut channel: Channel<Raw>| {
        let name = name.clone();
        async move {
            channel.send(format!("{name}:").into())?;
            let mut all = Vec::new();
            while let Some(bytes) = channel.recv().await? {
                all.extend_from_slice(&bytes);
            }
            for piece in all.chunks(8_192) {
                channel.send(piece.to_vec().into())?;
                channel.ready().await?;
            }
            Ok::<_, Any>(())
        }
    };
    node.serve(PORT, Limits::default(), || Raw, serve).expect("a port");
    node
}

/// Sends bytes, ends the stream, and returns all that comes back.
async fn ask(bytes: Vec<u8>) -> Result<Vec<u8>, ChannelError> {
    let forwarder = SocketAddr::from(([10, 0, 0, 1], PORT));
    let mut channel = Client::at(forwarder).connect(Raw).await.expect("a connection");
    let mut all = Vec::new();
    for piece in bytes.chunks(4_096) {
        channel.send(piece.to_vec().into()).map_err(ChannelError::from)?;
        channel.ready().await?;
    }
    channel.shutdown_write();
    while let Some(bytes) = channel.recv().await? {
        all.extend_from_slice(&bytes);
    }
    Ok(all)
}

fn asked(network: &Network, bytes: Vec<u8>) -> Result<Vec<u8>, ChannelError> {
    let client = network.host("10.0.0.9").node();
    network.run_task(WAIT, client.spawn(ask(bytes)))
}

#[test]
fn bytes_and_both_ends_are_passed_on_in_either_direction() {
    for seed in 1..=20 {
        let network = Network::new(seed);
        network.set_faults(FaultRates::benign());
        let _server = echo(&network, "10.0.0.2");
        let forwarder = TcpForwarder::new(Routes::to(&upstreams(&["tcp://10.0.0.2:4000"])), TcpLimits::default());
        let _near = forward(&network, &forwarder);
        let sent: Vec<u8> = (0..200_000_u32).map(|number| (number % 251) as u8).collect();
        let received = asked(&network, sent.clone()).expect("a response");
        assert_eq!(received, [b"10.0.0.2:", &sent[..]].concat(), "seed {seed}");
        assert_eq!(forwarder.counts().forwarded, 1);
    }
}

#[test]
fn a_server_that_refuses_is_followed_by_the_next_one() {
    let network = Network::new(1);
    let _server = echo(&network, "10.0.0.3");
    // Nothing listens at the first one.
    let _none = network.host("10.0.0.2").node();
    let set = upstreams(&["tcp://10.0.0.2:4000", "tcp://10.0.0.3:4000"]);
    let forwarder = TcpForwarder::new(Routes::to(&set), TcpLimits::default());
    let _near = forward(&network, &forwarder);
    for _ in 0..12 {
        assert_eq!(asked(&network, b"tide".to_vec()).expect("a response"), b"10.0.0.3:tide");
    }
    let counts = forwarder.counts();
    assert_eq!((counts.forwarded, counts.unavailable), (12, 0));
    // It is ejected after five failures.
    assert_eq!(counts.failed_attempts, 5);
}

#[test]
fn a_client_without_an_upstream_is_reset() {
    let network = Network::new(1);
    let _none = network.host("10.0.0.2").node();
    let mut limits = UpstreamLimits::default();
    limits.retries = 0;
    let server = "tcp://10.0.0.2:4000".parse().expect("a server");
    let set = Upstreams::builder().server(server, 1).limits(limits).build();
    let forwarder = TcpForwarder::new(Routes::to(&set), TcpLimits::default());
    let _near = forward(&network, &forwarder);
    assert!(asked(&network, b"tide".to_vec()).is_err());
    let counts = forwarder.counts();
    assert_eq!((counts.forwarded, counts.unavailable, counts.failed_attempts), (0, 1, 1));
}

#[test]
fn the_server_name_chooses_and_the_upstream_gets_each_byte() {
    let network = Network::new(1);
    let _servers = [echo(&network, "10.0.0.2"), echo(&network, "10.0.0.3")];
    let (two, three) = (upstreams(&["tcp://10.0.0.2:4000"]), upstreams(&["tcp://10.0.0.3:4000"]));
    let routes = Routes::by_name().name("two.example", &two).and_then(|routes| routes.name("*.example", &three));
    let forwarder = TcpForwarder::new(routes.expect("names"), TcpLimits::default());
    let _near = forward(&network, &forwarder);
    for (name, server) in [("two.example", "10.0.0.2:"), ("a.b.example", "10.0.0.3:")] {
        let bytes = [hello(name), b"more".to_vec()].concat();
        assert_eq!(asked(&network, bytes.clone()).expect("a response"), [server.as_bytes(), &bytes].concat());
    }
    // The alert.
    assert_eq!(asked(&network, hello("example")).expect("an alert"), [21, 3, 1, 0, 2, 2, 112]);
    assert_eq!(forwarder.counts().unrecognized, 1);
    assert!(asked(&network, b"GET / HTTP/1.1\r\n\r\n".to_vec()).map_or(true, |bytes| bytes.is_empty()));
    assert_eq!(forwarder.counts().forwarded, 2);
}

#[test]
fn a_hello_that_comes_byte_by_byte_is_read_and_one_that_does_not_come_is_not_waited_for() {
    let network = Network::new(1);
    let _server = echo(&network, "10.0.0.2");
    let set = upstreams(&["tcp://10.0.0.2:4000"]);
    let forwarder = TcpForwarder::new(Routes::by_name().otherwise(&set), TcpLimits::default());
    let _near = forward(&network, &forwarder);
    let client = network.host("10.0.0.9").node();
    let slow = client.spawn(async move {
        let mut channel = Client::at(SocketAddr::from(([10, 0, 0, 1], PORT))).connect(Raw).await.expect("a connection");
        let bytes = hello("sea.example");
        for byte in &bytes {
            channel.send(vec![*byte].into()).expect("room");
            task::sleep(Duration::from_millis(20)).await;
        }
        channel.recv().await.expect("a response").map(|bytes| bytes.to_vec())
    });
    assert_eq!(network.run_task(WAIT, slow).as_deref(), Some(&b"10.0.0.2:"[..]));
    let began = network.now();
    let silent = client.spawn(async move {
        let mut channel = Client::at(SocketAddr::from(([10, 0, 0, 1], PORT))).connect(Raw).await.expect("a connection");
        channel.send(hello("sea.example")[..20].to_vec().into()).expect("room");
        while let Ok(Some(_)) = channel.recv().await {}
    });
    network.run_task(WAIT, silent);
    let waited = network.now() - began;
    assert!((9..20).contains(&waited.as_secs()), "{waited:?}");
}

#[test]
fn an_idle_connection_ends_and_one_that_moves_does_not() {
    let network = Network::new(1);
    let _server = echo(&network, "10.0.0.2");
    let mut limits = TcpLimits::default();
    limits.idle_timeout = Duration::from_secs(10);
    let forwarder = TcpForwarder::new(Routes::to(&upstreams(&["tcp://10.0.0.2:4000"])), limits);
    let _near = forward(&network, &forwarder);
    let client = network.host("10.0.0.9").node();
    let (began, clock) = (network.now(), network.clone());
    let moving = client.spawn(async move {
        let mut channel = Client::at(SocketAddr::from(([10, 0, 0, 1], PORT))).connect(Raw).await.expect("a connection");
        channel.recv().await.expect("a greeting");
        for _ in 0..5 {
            channel.send(b"~".to_vec().into()).expect("room");
            task::sleep(Duration::from_secs(6)).await;
        }
        // Now it is silent.
        while let Ok(Some(_)) = channel.recv().await {}
    });
    network.run_task(WAIT, moving);
    let took = clock.now() - began;
    assert!((30..50).contains(&took.as_secs()), "{took:?}");
}

#[test]
fn a_header_from_a_proxy_names_the_client_for_the_upstream() {
    let network = Network::new(1);
    let _server = echo(&network, "10.0.0.2");
    let server = "tcp://10.0.0.2:4000".parse().expect("a server");
    let set = Upstreams::builder().server(server, 1).send_proxy_header().build();
    let trusted = Networks::default().and([0, 0, 0, 0].into(), 0).and_unix();
    let forwarder = TcpForwarder::with_policy(Routes::to(&set), TcpLimits::default(), Policy::required(trusted));
    let node = network.host("10.0.0.1").node();
    let (codec, forward) = (forwarder.clone(), forwarder.clone());
    let peer = Some([10, 0, 0, 9].into());
    node.serve(PORT, Limits::default(), move || codec.codec(peer), move |channel| forward.clone().forward(channel))
        .expect("a port");
    let (source, destination) = ("192.0.2.7:5000".parse().expect("one"), "192.0.2.8:443".parse().expect("one"));
    let header = tidegate_proxy_protocol::Builder::new(source, destination).build_v2().expect("a header");
    let received = asked(&network, [&header[..], b"tide"].concat()).expect("a response");
    assert_eq!(received, [b"10.0.0.2:", &header[..], b"tide"].concat());
}

#[test]
fn first_bytes_choose_before_server_names_and_behind_a_header() {
    let trusted = || Networks::default().and([0, 0, 0, 0].into(), 0).and_unix();
    let (source, destination) = ("192.0.2.7:5000".parse().expect("one"), "192.0.2.8:443".parse().expect("one"));
    let header = tidegate_proxy_protocol::Builder::new(source, destination).build_v2().expect("a header");
    let cases: [(bool, &[u8], &str); 7] = [
        (true, b"GET / HTTP/1.1\r\n\r\n", "10.0.0.2"),
        (true, b"SSH-2.0-tide\r\n", "10.0.0.3"),
        (true, &hello("sea.example"), "10.0.0.4"),
        (true, b"no protocol of these", ""),
        (false, b"SSH-2.0-tide\r\n", "10.0.0.3"),
        (false, b"SSL", "10.0.0.5"),
        // The rule needs more bytes, and the stream has ended.
        (false, b"SSH", "10.0.0.5"),
    ];
    let policies = || [(Policy::off(), &[][..]), (Policy::required(trusted()), &header)];
    for (seed, (policy, header)) in (1..=5).flat_map(|seed| policies().map(|policy| (seed, policy))) {
        for (is_by_name, bytes, wanted) in cases {
            let network = Network::new(seed);
            network.set_faults(FaultRates::benign());
            let _servers = [2, 3, 4, 5].map(|last| echo(&network, &format!("10.0.0.{last}")));
            let [web, shell, sea, others] = [2, 3, 4, 5].map(|last| upstreams(&[&format!("tcp://10.0.0.{last}:4000")]));
            let by_name = Routes::by_name().name("sea.example", &sea).expect("a name").when(sniff::http1, &web);
            let routes = if is_by_name { by_name } else { Routes::to(&others) };
            let routes = routes.when(sniff::starts_with(b"SSH-"), &shell);
            let forwarder = TcpForwarder::with_policy(routes, TcpLimits::default(), policy.clone());
            let node = network.host("10.0.0.1").node();
            let (codec, peer) = (forwarder.clone(), Some([10, 0, 0, 9].into()));
            node.serve(PORT, Limits::default(), move || codec.codec(peer), move |near| forwarder.clone().forward(near))
                .expect("a port");
            let answer = asked(&network, [header, bytes].concat()).unwrap_or_default();
            let all = if wanted.is_empty() { Vec::new() } else { [wanted.as_bytes(), b":", bytes].concat() };
            assert_eq!(answer, all, "seed {seed}, {bytes:?}");
        }
    }
}

#[test]
fn a_client_that_sends_too_little_for_a_rule_is_disconnected() {
    let network = Network::new(1);
    let _server = echo(&network, "10.0.0.2");
    let set = upstreams(&["tcp://10.0.0.2:4000"]);
    let routes = Routes::to(&set).when(sniff::starts_with(b"SSH-"), &set);
    let forwarder = TcpForwarder::new(routes, TcpLimits::default());
    let _near = forward(&network, &forwarder);
    let client = network.host("10.0.0.9").node();
    for bytes in [&b""[..], b"SSH"] {
        let began = network.now();
        let silent = client.spawn(async move {
            let mut channel = Client::at(SocketAddr::from(([10, 0, 0, 1], PORT))).connect(Raw).await.expect("one");
            channel.send(bytes.into()).expect("room");
            while let Ok(Some(_)) = channel.recv().await {}
        });
        network.run_task(WAIT, silent);
        let waited = network.now() - began;
        assert!((9..20).contains(&waited.as_secs()), "{waited:?}");
    }
    assert_eq!(forwarder.counts().forwarded, 0);
}

#[test]
fn replaced_routes_are_for_new_connections() {
    let network = Network::new(1);
    let _servers = [echo(&network, "10.0.0.2"), echo(&network, "10.0.0.3")];
    let forwarder = TcpForwarder::new(Routes::to(&upstreams(&["tcp://10.0.0.2:4000"])), TcpLimits::default());
    let _near = forward(&network, &forwarder);
    assert_eq!(asked(&network, b"a".to_vec()).expect("a response"), b"10.0.0.2:a");
    forwarder.replace(Routes::to(&upstreams(&["tcp://10.0.0.3:4000"])), TcpLimits::default());
    assert_eq!(asked(&network, b"b".to_vec()).expect("a response"), b"10.0.0.3:b");
}
