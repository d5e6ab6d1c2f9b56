//! Ends of connections at moments that the order of turns decides, and handles that are dropped within a dispatch.

use std::cell::RefCell;
use std::future::Future;
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

use tidegate::engine::{SessionLimits, SessionStreams, Streams};
use tidegate::framing::Raw;
use tidegate::quic::{ClientConfig, Connection, ConnectionError, Direction, ServerConfig, TransportLimits};
use tidegate::{
    Channel, Context, Deadlines, EndpointListener, EventLoop, Handler, Limits, Outcome, Rate, Server, Shaping, Slice,
};

use crate::scenarios::{OneWord, Seen, echo, read_all, sinks};
use crate::stage::{NAME, Shared, Stage, configs, tls_with_handshake_timeout};

/// A connection of the client with a stream whose first bytes the server has.
fn begin(stage: &mut Stage, seen: &Shared<Seen>) -> (Connection, Channel<Raw>) {
    let (server, config) = configs(TransportLimits::default(), TransportLimits::default());
    let at_server = seen.clone();
    let address = stage.server(&server, move |_| sinks(&at_server));
    let client = stage.client(&config);
    let begun = stage.task(async move {
        let connection = client.connect(address, NAME).await.unwrap();
        let mut channel = connection.open(Direction::Bidirectional, Raw).unwrap();
        channel.send(b"ebb".to_vec().into()).unwrap();
        (connection, channel)
    });
    stage.run_until(|| seen.borrow().bytes.len() == 3);
    begun
}

/// Some turns of one loop, while the other one stands still.
fn turn(event_loop: &mut EventLoop) {
    (0..5).for_each(|_| event_loop.turn(Some(Duration::ZERO)).unwrap());
}

#[test]
fn bytes_that_came_together_with_the_close_reach_the_application() {
    let mut stage = Stage::epoll();
    let seen = Shared::<Seen>::default();
    let (connection, mut channel) = begin(&mut stage, &seen);
    stage.with(1, |event_loop| {
        channel.send(vec![7; 5_000].into()).unwrap();
        channel.shutdown_write();
        turn(event_loop);
        connection.close(9, "the tide turns");
        turn(event_loop);
    });
    // The server takes all of it in one batch.
    stage.with(0, turn);
    stage.run_until(|| !seen.borrow().closed.is_empty());
    assert_eq!((seen.borrow().bytes.len(), seen.borrow().ended), (5_003, 1), "{:?}", seen.borrow().closed);
}

#[test]
fn a_connection_may_have_the_longest_times() {
    let mut stage = Stage::epoll();
    let limits = TransportLimits {
        idle_timeout: None,
        ping_interval: Some(Duration::MAX),
        end_timeout: Duration::MAX,
        ..TransportLimits::default()
    };
    let (server, client) = tls_with_handshake_timeout(Duration::MAX);
    let server = ServerConfig::new(&server, limits.clone()).unwrap();
    let config = ClientConfig::new(&client, limits).unwrap();
    let address = stage.server(&server, |_| echo());
    let client = stage.client(&config);
    let echoed = stage.task(async move {
        let connection = client.connect(address, NAME).await.unwrap();
        let mut channel = connection.open(Direction::Bidirectional, Raw).unwrap();
        channel.send(b"ebb".to_vec().into()).unwrap();
        let bytes = channel.recv().await.unwrap().unwrap().to_vec();
        channel.close().await.unwrap();
        drop(connection);
        bytes
    });
    assert_eq!(echoed, b"ebb");
    stage.run_a_little();
}

#[test]
fn a_stream_that_comes_while_its_connection_ends_is_refused() {
    let mut stage = Stage::epoll();
    let (server, config) = configs(TransportLimits::default(), TransportLimits::default());
    let session = Rc::new(RefCell::new(None));
    let at_server = session.clone();
    let address = stage.server(&server, move |session| {
        *at_server.borrow_mut() = Some(session);
        echo()
    });
    let client = stage.client(&config);
    let (connection, mut channel) = stage.task(async move {
        let connection = client.connect(address, NAME).await.unwrap();
        let channel = connection.open(Direction::Bidirectional, Raw).unwrap();
        (connection, channel)
    });
    let is_known = session.clone();
    stage.run_until(|| is_known.borrow().is_some());
    stage.run_a_little();
    stage.with(1, |event_loop| {
        channel.send(b"ebb".to_vec().into()).unwrap();
        turn(event_loop);
        // It waits for the acknowledgement.
        drop((channel, connection));
        turn(event_loop);
    });
    let error = Rc::new(RefCell::new(None));
    let found = error.clone();
    stage.with(0, |event_loop| {
        let mut channel = session.take().unwrap().open(Direction::Bidirectional, Raw).unwrap();
        channel.send(b"flow".to_vec().into()).unwrap();
        event_loop.spawn(async move { *found.borrow_mut() = Some(channel.recv().await.unwrap_err().to_string()) });
        turn(event_loop);
    });
    stage.run_until(|| error.borrow().is_some());
    let error = error.take().unwrap();
    assert!(error.contains("reset"), "{error}");
    stage.run_until(|| server.counts().connections == 0 && config.counts().connections == 0);
}

#[test]
fn an_end_in_good_order_has_a_deadline() {
    let mut stage = Stage::network(1);
    let network = stage.simulated().unwrap().clone();
    let limits = TransportLimits { idle_timeout: None, ..TransportLimits::default() };
    let (server, config) = configs(limits.clone(), limits);
    let address = stage.server(&server, |_| echo());
    let client = stage.client(&config);
    let (connection, mut channel) = stage.task(async move {
        let connection = client.connect(address, NAME).await.unwrap();
        let channel = connection.open(Direction::Bidirectional, Raw).unwrap();
        (connection, channel)
    });
    // The bytes are never acknowledged.
    network.partition(&network.host("10.0.0.1"), &network.host("10.0.0.2"));
    channel.send(b"ebb".to_vec().into()).unwrap();
    network.run_for(Duration::from_millis(100));
    drop((channel, connection));
    network.run_for(Duration::from_secs(9));
    assert_eq!(config.counts().connections, 1);
    // The stream lingers for two seconds, and the connection for ten.
    network.run_for(Duration::from_secs(5));
    assert_eq!(config.counts().connections, 0);
}

#[test]
fn a_cancelled_connect_leaves_nothing() {
    let mut stage = Stage::network(1);
    let network = stage.simulated().unwrap().clone();
    let (server, config) = configs(TransportLimits::default(), TransportLimits::default());
    let address = stage.server(&server, |_| echo());
    let client = stage.client(&config);
    // Its socket stays open.
    let _client = client.clone();
    stage.task(async move {
        let mut connecting = Box::pin(client.connect(address, NAME));
        let begun = std::future::poll_fn(|cx| Poll::Ready(connecting.as_mut().poll(cx))).await;
        assert!(begun.is_pending());
    });
    network.run_for(Duration::from_secs(1));
    assert_eq!((config.counts().begun, config.counts().connections, server.counts().connections), (1, 0, 0));
}

/// Closes its own connection at the first message.
struct Closing(Shared<Option<Connection>>, Option<u64>);

impl Handler<Raw> for Closing {
    type Post = ();

    fn message(&mut self, _: Slice, _: &mut Context<'_, Raw>) -> Outcome<Raw> {
        let connection = self.0.take().unwrap();
        match self.1 {
            Some(code) => connection.close(code, "the tide turns"),
            None => drop(connection),
        }
        Outcome::Close
    }

    fn open(&mut self, cx: &mut Context<'_, Raw>) -> Outcome<Raw> {
        cx.send(b"ebb".to_vec().into()).into()
    }
}

#[test]
fn a_handler_closes_and_drops_its_connection() {
    for code in [Some(9), None] {
        let mut stage = Stage::network(1);
        let network = stage.simulated().unwrap().clone();
        let (server, config) = configs(TransportLimits::default(), TransportLimits::default());
        let address = stage.server(&server, |_| echo());
        let client = stage.client(&config);
        let _client = client.clone();
        let _other = stage.task(async move {
            let connection = client.connect(address, NAME).await.unwrap();
            // A connection that is closed does not wait for this stream.
            let other = code.map(|_| connection.open(Direction::Bidirectional, Raw).unwrap());
            let held = Shared::<Option<Connection>>::default();
            let handler = Closing(held.clone(), code);
            connection.open_handler(Direction::Bidirectional, Raw, handler).unwrap();
            *held.borrow_mut() = Some(connection);
            other
        });
        network.run_for(Duration::from_secs(5));
        let counts = (config.counts(), server.counts());
        assert_eq!(
            (counts.0.handshakes, counts.0.connections, counts.1.connections),
            (1, 0, 0),
            "{code:?}: {counts:?}"
        );
    }
}

#[test]
fn a_task_that_connects_finds_out_that_its_socket_closes() {
    let mut stage = Stage::network(1);
    let network = stage.simulated().unwrap().clone();
    network.partition(&network.host("10.0.0.1"), &network.host("10.0.0.2"));
    let (_, config) = configs(TransportLimits::default(), TransportLimits::default());
    let client = stage.client(&config);
    let found = Shared::<Option<ConnectionError>>::default();
    let error = found.clone();
    let _task = stage.with(1, |event_loop| {
        event_loop.spawn(async move {
            // No datagram comes back.
            *error.borrow_mut() = client.connect("10.0.0.1:4433".parse().unwrap(), NAME).await.map(drop).err();
        })
    });
    network.run_for(Duration::from_millis(100));
    stage.with(1, |event_loop| event_loop.drain(Duration::from_millis(50)));
    network.run_for(Duration::from_secs(1));
    assert_eq!(found.take(), Some(ConnectionError::Closed));
}

#[test]
fn a_stop_is_answered_at_once_by_a_reset() {
    let mut stage = Stage::network(1);
    let limits = TransportLimits { bidirectional_max: 1, ..TransportLimits::default() };
    let (server, config) = configs(limits, TransportLimits::default());
    let services = |_| SessionStreams { bidirectional: Some(Streams::handle(|| (Raw, OneWord))), unidirectional: None };
    let address = stage.server(&server, services);
    let client = stage.client(&config);
    stage.task(async move {
        let connection = client.connect(address, NAME).await.unwrap();
        let mut stopped = connection.open(Direction::Bidirectional, Raw).unwrap();
        stopped.send(vec![1; 200_000].into()).unwrap();
        assert_eq!(read_all(&mut stopped).await.unwrap(), [9; 50_000]);
        // The server allows one more stream when both halves of the first one are over, and this side keeps its handle.
        let mut next = connection.open_when_allowed(Direction::Bidirectional, Raw).await.unwrap();
        next.send(b"ebb".to_vec().into()).unwrap();
        assert_eq!(read_all(&mut next).await.unwrap(), [9; 50_000]);
        drop(stopped);
    });
}

#[test]
fn an_endpoint_that_panics_and_is_not_replaced_is_counted_once() {
    let mut stage = Stage::network(1);
    let (server, config) = configs(TransportLimits::default(), TransportLimits::default());
    let address = stage.server(&server, |_| echo());
    let client = stage.client_with(&config, |_| panic!("the services panic, as the test demands"));
    let connected = stage.task(async move { client.connect(address, NAME).await.is_ok() });
    assert!(!connected);
    let counts = stage.with(1, |event_loop| event_loop.counts());
    assert_eq!((counts.endpoints_panicked, counts.endpoints), (1, 0));
    let sessions = counts.sessions;
    assert_eq!((sessions.begun, sessions.connections), (1, 0), "{sessions:?}");
}

#[test]
fn a_server_refuses_limits_of_connections_that_its_streams_do_not_have() {
    let start = |streams: Limits| {
        let (config, _) = configs(TransportLimits::default(), TransportLimits::default());
        let limits = SessionLimits { streams, ..SessionLimits::default() };
        let listener = EndpointListener::bind("127.0.0.1:0").unwrap();
        let listener = listener.serve_sessions(limits, move |number| config.endpoint(number), |_| echo());
        Server::new().loops(1).endpoint(listener).run()
    };
    let shaping = Shaping { send: Some(Rate::per_second(1_000)), ..Shaping::default() };
    let deadlines = Deadlines { age_max: Some(Duration::from_secs(60)), ..Deadlines::default() };
    for (limits, expected) in [
        (Limits { shaping, ..Limits::default() }, "have no `shaping`"),
        (Limits { deadlines, ..Limits::default() }, "have no `age_max`"),
    ] {
        let refused = start(limits).expect_err("it would have no effect").to_string();
        assert!(refused.contains(expected), "{refused}");
    }
    start(Limits::default()).expect("a server").drain(Duration::ZERO);
}
