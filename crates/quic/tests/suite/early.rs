//! Early data (0-RTT): with a session of an earlier connection a client sends before its handshake is complete.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use tidegate::codec::{Datagram, Endpoint as _, Pool, SessionEvent, StreamEndpoint as _, Transmits};
use tidegate::engine::{EndpointSession, SessionStreams, Streams};
use tidegate::framing::Raw;
use tidegate::quic::{
    ClientConfig, Connection, ConnectionError, Connector, Direction, Endpoint, ServerConfig, TransportLimits,
};
use tidegate::sys::DatagramOptions;
use tidegate::task;
use tidegate::{Context, EndpointLimits, Event, Handler, Outcome, Slice};

use crate::scenarios::{Echo, exchange, read_all};
use crate::stage::{NAME, Stage, tls};

/// The service of early streams, which marks its echo.
struct EarlyEcho;

impl Handler<Raw> for EarlyEcho {
    type Post = ();

    fn message(&mut self, bytes: Slice, cx: &mut Context<'_, Raw>) -> Outcome<Raw> {
        cx.send([b"early ", &bytes[..]].concat().into()).into()
    }

    fn event(&mut self, event: Event<()>, _: &mut Context<'_, Raw>) -> Outcome<Raw> {
        if event == Event::ReadClosed { Outcome::Close } else { Outcome::Continue }
    }
}

fn services() -> SessionStreams {
    let streams = Streams::handle(|| (Raw, Echo)).early(Streams::handle(|| (Raw, EarlyEcho)));
    SessionStreams { bidirectional: Some(streams), unidirectional: None }
}

fn limits(early_data: bool) -> TransportLimits {
    TransportLimits { early_data, ..TransportLimits::default() }
}

fn each(scenario: fn(&mut Stage)) {
    for stage in [Stage::epoll(), Stage::uring(), Stage::network(1)] {
        stage.run(scenario);
    }
}

/// Whether the handshake of a connection is complete.
fn is_confirmed(connection: &Connection) -> bool {
    connection.with(|endpoint, _| endpoint.is_confirmed(connection.number())).unwrap()
}

/// Two connections in turn to two servers of the same certificate. Returns whether the second one was usable before its
/// handshake was complete, the echo on it, and the outcome of its handshake.
fn second_connection(
    stage: &mut Stage,
    servers: [&ServerConfig; 2],
    client: &ClientConfig,
) -> (bool, Result<Vec<u8>, String>, Result<(), ConnectionError>) {
    let addresses = servers.map(|server| stage.server(server, |_| services()));
    let client = stage.client(client);
    stage.task(async move {
        let connection = client.connect(addresses[0], NAME).await.unwrap();
        // Tickets come before the echo.
        assert_eq!(exchange(&connection, b"ebb".to_vec()).await, b"ebb");
        drop(connection);
        let connection = client.connect(addresses[1], NAME).await.unwrap();
        let was_early = !is_confirmed(&connection);
        let mut channel = connection.open_when_allowed(Direction::Bidirectional, Raw).await.unwrap();
        channel.send(b"flow".to_vec().into()).unwrap();
        channel.shutdown_write();
        let echoed = read_all(&mut channel).await.map_err(|error| error.to_string());
        let confirmed = connection.confirmed().await;
        assert_eq!(confirmed.is_ok(), is_confirmed(&connection) && confirmed.is_ok());
        (was_early, echoed, confirmed)
    })
}

#[test]
fn a_stream_is_sent_before_the_handshake_is_complete_and_says_so() {
    each(|stage| {
        let (server_tls, client_tls) = tls();
        let server = ServerConfig::new(&server_tls, limits(true)).unwrap();
        let client = ClientConfig::new(&client_tls, limits(true)).unwrap();
        let (was_early, echoed, confirmed) = second_connection(stage, [&server, &server], &client);
        assert_eq!((was_early, confirmed), (true, Ok(())));
        let echoed = echoed.unwrap();
        // Without latency the handshake may be complete before the task opens its stream.
        assert!(echoed == b"early flow" || stage.simulated().is_none() && echoed == b"flow", "{echoed:?}");
        stage.run_until(|| server.counts().handshakes == 2);
    });
}

#[test]
fn neither_side_uses_early_data_unless_both_do() {
    for (of_server, of_client) in [(false, false), (false, true), (true, false)] {
        let (server_tls, client_tls) = tls();
        let server = ServerConfig::new(&server_tls, limits(of_server)).unwrap();
        let client = ClientConfig::new(&client_tls, limits(of_client)).unwrap();
        let second = second_connection(&mut Stage::network(1), [&server, &server], &client);
        assert_eq!(second, (false, Ok(b"flow".to_vec()), Ok(())), "{of_server} {of_client}");
    }
}

#[test]
fn refused_early_data_was_not_processed_and_the_connection_is_over() {
    each(|stage| {
        let (server_tls, client_tls) = tls();
        // A server that was started again has forgotten its sessions.
        let servers = [(); 2].map(|()| ServerConfig::new(&server_tls, limits(true)).unwrap());
        let client = ClientConfig::new(&client_tls, limits(true)).unwrap();
        let (was_early, echoed, confirmed) = second_connection(stage, [&servers[0], &servers[1]], &client);
        assert_eq!((was_early, confirmed), (true, Err(ConnectionError::EarlyDataRejected)));
        assert!(echoed.is_err(), "{echoed:?}");
    });
}

/// The same to two servers of one configuration with these settings of the application.
fn second_connection_with(
    stage: &mut Stage,
    settings: [Option<&[u8]>; 2],
) -> (bool, Result<Vec<u8>, String>, Result<(), ConnectionError>) {
    let (server_tls, client_tls) = tls();
    let shared = ServerConfig::new(&server_tls, limits(true)).unwrap();
    let [before, after] = settings
        .map(|settings| settings.map_or(shared.clone(), |settings| shared.application_settings(settings).unwrap()));
    second_connection(stage, [&before, &after], &ClientConfig::new(&client_tls, limits(true)).unwrap())
}

#[test]
fn a_session_is_resumed_by_a_server_with_the_same_settings_of_the_application_alone() {
    each(|stage| {
        let (was_early, echoed, confirmed) = second_connection_with(stage, [Some(b"64"), Some(b"64")]);
        assert_eq!((was_early, confirmed, echoed.is_ok()), (true, Ok(()), true));
        let others: [[Option<&[u8]>; 2]; 6] = [
            [Some(b"64"), Some(b"16")],
            [Some(b"16"), Some(b"64")],
            [Some(b"1664"), Some(b"64")],
            [Some(b"64"), Some(b"1664")],
            [Some(b""), Some(b"64")],
            [None, Some(b"64")],
        ];
        for settings in others {
            let (was_early, echoed, confirmed) = second_connection_with(stage, settings);
            let refused = (true, Err(ConnectionError::EarlyDataRejected));
            assert_eq!((was_early, confirmed), refused, "{settings:?}");
            assert!(echoed.is_err(), "{echoed:?}");
        }
    });
}

#[test]
fn without_early_data_settings_of_the_application_change_nothing() {
    let (server_tls, client_tls) = tls();
    let shared = ServerConfig::new(&server_tls, limits(false)).unwrap();
    let [before, after] = [&b"64"[..], b"16"].map(|settings| shared.application_settings(settings).unwrap());
    let client = ClientConfig::new(&client_tls, limits(true)).unwrap();
    let second = second_connection(&mut Stage::network(1), [&before, &after], &client);
    assert_eq!(second, (false, Ok(b"flow".to_vec()), Ok(())));
}

#[test]
fn a_copy_of_early_data_opens_no_stream() {
    let mut stage = Stage::network(1);
    let (server_tls, client_tls) = tls();
    let server = ServerConfig::new(&server_tls, limits(true)).unwrap();
    let config = ClientConfig::new(&client_tls, limits(true)).unwrap();
    let datagrams = early_datagrams(&mut stage, &server, &config);
    // The server of a second loop shares the sessions.
    let first = events_of(&mut server.endpoint(1), &datagrams);
    assert_eq!(first, (1, 1));
    for loop_number in [1, 2] {
        assert_eq!(events_of(&mut server.endpoint(loop_number), &datagrams), (0, 0));
    }
}

#[test]
fn a_session_with_early_data_ends_with_its_handshake() {
    let mut stage = Stage::network(1);
    let (server_tls, client_tls) = tls();
    let server = ServerConfig::new(&server_tls, limits(true)).unwrap();
    let config = ClientConfig::new(&client_tls, limits(true)).unwrap();
    let datagrams = early_datagrams(&mut stage, &server, &config);
    let mut endpoint = server.endpoint(1);
    assert_eq!(events_of(&mut endpoint, &datagrams), (1, 1));
    let now = Instant::now() + Duration::from_secs(11);
    endpoint.handle_timeout(now);
    let ended =
        std::iter::from_fn(|| endpoint.poll_event(now)).any(|event| matches!(event, SessionEvent::Ended { .. }));
    assert!(ended, "the deadline of handshakes holds");
    assert_eq!((endpoint.connections(), endpoint.poll_timeout()), (0, None));
}

#[test]
fn datagrams_in_early_data_wait_for_the_end_of_the_handshake() {
    let mut stage = Stage::network(1);
    let (server_tls, client_tls) = tls();
    let limits = TransportLimits { datagram_receive_bytes: Some(64 * 1024), ..limits(true) };
    let server = ServerConfig::new(&server_tls, limits.clone()).unwrap();
    let config = ClientConfig::new(&client_tls, limits).unwrap();
    let datagrams = early_datagrams(&mut stage, &server, &config);
    let mut endpoint = server.endpoint(1);
    let (pool, now) = (Pool::new(), Instant::now());
    let mut events = Vec::new();
    for datagram in &datagrams {
        endpoint.handle_datagram(Datagram::new(pool.copy(datagram), SocketAddr::from(([192, 0, 2, 7], 4433))), now);
        events.extend(std::iter::from_fn(|| endpoint.poll_event(now)));
    }
    let session = events.iter().find_map(|event| match event {
        SessionEvent::Established { session, .. } => Some(*session),
        _ => None,
    });
    assert!(!events.iter().any(|event| matches!(event, SessionEvent::Datagrams(_))), "{events:?}");
    assert_eq!(endpoint.read_datagram(session.expect("an early stream")), None);
    // A handshake that is complete brings them.
    let (address, client) = (stage.server(&server, echo_datagrams), stage.client(&config));
    let early = stage.task(early_echo(address, client));
    assert_eq!(early, b"early");
}

/// Sends each datagram of a client back.
fn echo_datagrams(session: EndpointSession<Endpoint>) -> SessionStreams {
    drop(task::spawn(async move {
        while let Ok(datagram) = session.recv_datagram().await {
            session.send_datagram(datagram).unwrap();
        }
    }));
    services()
}

/// The echo of a datagram that a client sends before its handshake is complete.
async fn early_echo(address: SocketAddr, client: Connector) -> Vec<u8> {
    let connection = client.connect(address, NAME).await.unwrap();
    assert!(!is_confirmed(&connection), "a ticket is left");
    connection.send_datagram(&b"early"[..]).unwrap();
    connection.recv_datagram().await.unwrap().to_vec()
}

/// The datagrams with which a client begins a second connection, of which the server gets none.
fn early_datagrams(stage: &mut Stage, server: &ServerConfig, config: &ClientConfig) -> Vec<Vec<u8>> {
    let address = stage.server(server, |_| services());
    let client = stage.client(config);
    let socket = stage.socket(0);
    let collector = stage.with(0, |event_loop| {
        event_loop.open_datagrams(socket, &DatagramOptions::default(), EndpointLimits::default())
    });
    let mut collector = collector.unwrap();
    let elsewhere = collector.local_address().unwrap();
    let _connection = stage.task(async move {
        let connection = client.connect(address, NAME).await.unwrap();
        assert_eq!(exchange(&connection, b"ebb".to_vec()).await, b"ebb");
        let connection = client.connect(elsewhere, NAME).await.unwrap();
        assert!(!is_confirmed(&connection));
        let mut channel = connection.open_when_allowed(Direction::Bidirectional, Raw).await.unwrap();
        channel.send(b"flow".to_vec().into()).unwrap();
        // Without the limit there are none.
        let _ = connection.send_datagram(&b"early"[..]);
        (connection, channel)
    });
    stage.simulated().unwrap().run_for(Duration::from_millis(50));
    std::iter::from_fn(|| collector.try_recv_from()).map(|datagram| datagram.payload.to_vec()).collect()
}

/// How many sessions and how many streams these datagrams begin.
fn events_of(endpoint: &mut Endpoint, datagrams: &[Vec<u8>]) -> (usize, usize) {
    let (pool, now) = (Pool::new(), Instant::now());
    let source = SocketAddr::from(([192, 0, 2, 7], 4433));
    let (mut sessions, mut streams) = (0, 0);
    for datagram in datagrams {
        endpoint.handle_datagram(Datagram::new(pool.copy(datagram), source), now);
        while let Some(event) = endpoint.poll_event(now) {
            match event {
                SessionEvent::Established { session, .. } => {
                    assert!(!endpoint.is_confirmed(session));
                    sessions += 1;
                }
                SessionEvent::Opened { stream, .. } => {
                    assert!(endpoint.is_early(stream));
                    streams += 1;
                }
                _ => {}
            }
        }
    }
    endpoint.poll_transmit(now, &mut Transmits::new(&pool));
    (sessions, streams)
}
