//! HTTP/3 beside a TCP listener: its sockets have room for the payloads that QUIC permits, its limits follow from all methods of
//! the configuration, and servers of one configuration take early data of clients that know their settings alone.

use std::net::SocketAddr;
use std::time::Duration;

use tidegate::codec::StreamEndpoint;
use tidegate::engine::{Backend, EventLoop, SessionLimits, SessionStreams, Streams};
use tidegate::framing::Raw;
use tidegate::http::{Client, Config, Limits, Router, Server as HttpServer};
use tidegate::http3::HttpDatagramLimits;
use tidegate::http3::webtransport::WebTransportLimits;
use tidegate::quic::{ClientConfig, ConfigError, Connection, ConnectionError, Connector, Direction, TransportLimits};
use tidegate::{Channel, ChannelError, Listener, Server, ServerHandle, task};

use crate::support::http3_stage::{NAME, tls};

/// The UDP payload of a path with an MTU of 9,000.
const JUMBO: u16 = 8_972;

fn transport() -> TransportLimits {
    TransportLimits {
        payload_bytes_max: JUMBO,
        datagram_receive_bytes: Some(64 * 1024),
        early_data: true,
        ..TransportLimits::default()
    }
}

/// A server of this configuration whose heads have so many bytes.
fn start(config: &Config, head_bytes_max: u32) -> ServerHandle {
    let mut limits = Limits::default();
    limits.head_bytes_max = head_bytes_max;
    let listener = Listener::bind("127.0.0.1:0").expect("an address");
    let served = config.clone().limits(limits).serve(listener, || Router::new().get("/", || "a page"));
    Server::new().loops(1).listener(served).run().expect("a server")
}

fn address(server: &ServerHandle) -> SocketAddr {
    server.address().ip().expect("an IP address")
}

/// The longest datagram on the path, once the search for it has found a long one, or after some time.
async fn longest(connection: &Connection) -> usize {
    let mut longest = 0;
    for _ in 0..4_000 {
        longest = connection.datagram_bytes_max().expect("datagrams");
        if longest > 8_800 {
            break;
        }
        task::sleep(Duration::from_millis(5)).await;
    }
    longest
}

/// Reads the control stream of a server, which ends the connection otherwise.
fn discard() -> SessionStreams {
    let read = |mut channel: Channel<Raw>| async move {
        while channel.recv().await?.is_some() {}
        Ok::<_, ChannelError>(())
    };
    SessionStreams { bidirectional: None, unidirectional: Some(Streams::serve(|| Raw, read)) }
}

#[test]
fn servers_of_one_configuration_receive_long_payloads_and_tell_the_settings_of_clients_apart() {
    let (server_tls, client_tls) = tls();
    let config = Config::new().tls(server_tls).http3_with(transport()).expect("limits");
    let servers = [16_384, 16_384, 12_288].map(|head_bytes_max| start(&config, head_bytes_max));
    let addresses: Vec<_> = servers.iter().map(address).collect();
    let outcomes = EventLoop::on(Backend::Auto).expect("a loop").block_on(async move {
        let local = SocketAddr::from(([127, 0, 0, 1], 0));
        let quic = ClientConfig::new(&client_tls, transport()).expect("limits");
        let connector = Connector::bind_with(local, &quic, SessionLimits::default(), |_| discard()).expect("a socket");
        let first = connector.connect(addresses[0], NAME).await.expect("a connection");
        assert!(longest(&first).await > 8_800, "{}", longest(&first).await);
        let mut outcomes = Vec::new();
        for server in &addresses[1..] {
            let connection = connector.connect(*server, NAME).await.expect("a connection");
            let is_confirmed = connection.with(|endpoint, _| endpoint.is_confirmed(connection.number()));
            outcomes.push((!is_confirmed.expect("a socket"), connection.confirmed().await));
        }
        outcomes
    });
    let expected = [(true, Ok(())), (true, Err(ConnectionError::EarlyDataRejected))];
    assert_eq!(outcomes.expect("it runs"), expected);
    servers.iter().for_each(|server| server.drain(Duration::ZERO));
}

type Configure = fn(HttpServer) -> Result<HttpServer, ConfigError>;

/// The limits of `http3_with` in these tests.
fn three_requests() -> TransportLimits {
    TransportLimits { bidirectional_max: 3, ..TransportLimits::default() }
}

#[test]
fn limits_of_quic_stay_whatever_is_permitted_before_and_after_them() {
    let orders: [(Configure, bool); 7] = [
        (|server| server.http3_with(three_requests()), false),
        (|server| server.http3_with(three_requests())?.http3(), false),
        (|server| server.http3_with(three_requests())?.webtransport(WebTransportLimits::default()), true),
        (|server| server.webtransport(WebTransportLimits::default())?.http3_with(three_requests()), true),
        (|server| server.http3_with(three_requests())?.http_datagrams(HttpDatagramLimits::default()), true),
        (|server| server.http_datagrams(HttpDatagramLimits::default())?.http3_with(three_requests()), true),
        (
            |server| {
                let server = server.http_datagrams(HttpDatagramLimits::default())?.http3_with(three_requests())?;
                server.webtransport(WebTransportLimits::default())
            },
            true,
        ),
    ];
    for (number, (configure, has_datagrams)) in orders.into_iter().enumerate() {
        let (server_tls, client_tls) = tls();
        let server = HttpServer::bind("127.0.0.1:0").expect("an address").loops(1).tls(server_tls);
        let server =
            configure(server).expect("limits").start(|| Router::new().get("/", || "a page")).expect("a server");
        let address = address(&server);
        let found = EventLoop::on(Backend::Auto).expect("a loop").block_on(async move {
            let local = SocketAddr::from(([127, 0, 0, 1], 0));
            let quic = ClientConfig::new(&client_tls, transport()).expect("limits");
            let connector =
                Connector::bind_with(local, &quic, SessionLimits::default(), |_| discard()).expect("a socket");
            let connection = connector.connect(address, NAME).await.expect("a connection");
            let streams: Vec<_> = (0..10).map_while(|_| connection.open(Direction::Bidirectional, Raw).ok()).collect();
            (streams.len(), connection.datagram_bytes_max().is_some())
        });
        assert_eq!(found.expect("it runs"), (3, has_datagrams), "order {number}");
        server.drain(Duration::ZERO);
    }
}

#[test]
fn limits_of_quic_permit_the_streams_that_each_client_opens() {
    let config = Config::new().tls(tls().0);
    let with = |unidirectional_max| {
        let limits = TransportLimits { unidirectional_max, ..TransportLimits::default() };
        config.clone().http3_with(limits).map(drop)
    };
    assert!(matches!(with(2), Err(ConfigError::Limit("unidirectional_max"))));
    assert!(with(3).is_ok());
}

#[test]
fn each_listener_of_a_configuration_names_its_own_port() {
    let (server_tls, client_tls) = tls();
    let config = Config::new().tls(server_tls.with_alpn(["h2", "http/1.1"])).http3().expect("limits");
    let servers = [16_384, 16_384].map(|head_bytes_max| start(&config, head_bytes_max));
    let addresses: Vec<_> = servers.iter().map(address).collect();
    let names = EventLoop::on(Backend::Auto).expect("a loop").block_on(async move {
        let client = Client::builder().tls(client_tls.with_alpn(["h2", "http/1.1"]).expect("protocols")).build();
        let mut names = Vec::new();
        for address in addresses {
            let response = client.get(format!("https://{NAME}/")).at(address).send().await.expect("a response");
            let alternatives = response.headers().get("alt-svc").expect("HTTP/3");
            names.push((std::str::from_utf8(alternatives).expect("text").to_owned(), address.port()));
        }
        names
    });
    for (alternatives, port) in names.expect("it runs") {
        assert_eq!(alternatives, format!("h3=\":{port}\"; ma=86400"));
    }
    servers.iter().for_each(|server| server.drain(Duration::ZERO));
}
