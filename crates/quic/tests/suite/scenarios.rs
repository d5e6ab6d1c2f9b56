//! Scenarios that hold on every stage.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use tidegate::codec::mux::OpenError;
use tidegate::engine::{CloseReason, SessionError, SessionStreams, Streams};
use tidegate::framing::{Lines, Raw};
use tidegate::quic::{Admit, Connection, ConnectionError, Direction, TransportLimits};
use tidegate::sys::Side;
use tidegate::{Channel, ChannelError, Context, Event, Handler, Limits as StreamLimits, Outcome, Slice, task};

use crate::stage::{NAME, Shared, Stage, configs};

/// Sends bytes back; ends its side behind those of the peer.
pub(crate) struct Echo;

impl Handler<Raw> for Echo {
    type Post = ();

    fn message(&mut self, bytes: Slice, cx: &mut Context<'_, Raw>) -> Outcome<Raw> {
        cx.send(bytes.into()).into()
    }

    fn event(&mut self, event: Event<()>, _: &mut Context<'_, Raw>) -> Outcome<Raw> {
        if event == Event::ReadClosed { Outcome::Close } else { Outcome::Continue }
    }
}

/// The service that echoes streams of both sides.
pub(crate) fn echo() -> SessionStreams {
    SessionStreams { bidirectional: Some(Streams::handle(|| (Raw, Echo))), unidirectional: None }
}

/// The record of a handler.
#[derive(Default)]
pub(crate) struct Seen {
    pub(crate) bytes: Vec<u8>,
    pub(crate) ended: usize,
    pub(crate) closed: Vec<String>,
}

/// Collects the bytes of streams.
struct Sink(Shared<Seen>);

impl Handler<Raw> for Sink {
    type Post = ();

    fn message(&mut self, bytes: Slice, _: &mut Context<'_, Raw>) -> Outcome<Raw> {
        self.0.borrow_mut().bytes.extend_from_slice(&bytes);
        Outcome::Continue
    }

    fn event(&mut self, event: Event<()>, _: &mut Context<'_, Raw>) -> Outcome<Raw> {
        if event == Event::ReadClosed {
            self.0.borrow_mut().ended += 1;
            return Outcome::Close;
        }
        Outcome::Continue
    }

    fn closed(&mut self, reason: &CloseReason) {
        self.0.borrow_mut().closed.push(reason.to_string());
    }
}

fn sink(seen: &Shared<Seen>) -> Streams {
    let seen = seen.clone();
    Streams::handle(move || (Raw, Sink(seen.clone())))
}

pub(crate) fn sinks(seen: &Shared<Seen>) -> SessionStreams {
    SessionStreams { bidirectional: Some(sink(seen)), unidirectional: Some(sink(seen)) }
}

/// All bytes until the end of the peer's side.
pub(crate) async fn read_all(channel: &mut Channel<Raw>) -> Result<Vec<u8>, ChannelError> {
    let mut bytes = Vec::new();
    while let Some(piece) = channel.recv().await? {
        bytes.extend_from_slice(&piece);
    }
    Ok(bytes)
}

/// Sends bytes on a new stream, ends it, and reads until the end of the peer's side.
pub(crate) async fn exchange(connection: &Connection, bytes: Vec<u8>) -> Vec<u8> {
    let mut channel = connection.open_when_allowed(Direction::Bidirectional, Raw).await.unwrap();
    channel.send(bytes.into()).unwrap();
    channel.shutdown_write();
    read_all(&mut channel).await.unwrap()
}

pub(crate) fn pattern(length: usize) -> Vec<u8> {
    (0..length).map(|place| (place * 31 + place / 251) as u8).collect()
}

pub(crate) fn a_stream_is_echoed_by_a_handler(stage: &mut Stage) {
    let (server, config) = configs(TransportLimits::default(), TransportLimits::default());
    let address = stage.server(&server, |_| echo());
    let client = stage.client(&config);
    let (echoed, protocol) = stage.task(async move {
        let connection = client.connect(address, NAME).await.unwrap();
        (exchange(&connection, b"ebb and flow".to_vec()).await, connection.protocol())
    });
    assert_eq!(echoed, b"ebb and flow");
    assert_eq!(protocol.as_deref(), Some(&b"echo"[..]));
    let counts = server.counts();
    assert_eq!((counts.begun, counts.handshakes, counts.handshakes_failed, counts.retries), (1, 1, 0, 0));
}

pub(crate) fn the_same_handler_serves_tcp(stage: &mut Stage) {
    let listener = stage.listener();
    let address = match stage.simulated() {
        Some(_) => "10.0.0.1:80".parse().unwrap(),
        None => listener.address(Side::Local).unwrap(),
    };
    let limits = StreamLimits::default();
    stage.with(0, |event_loop| event_loop.listen(listener, limits, Default::default(), |_| (Raw, Echo)).unwrap());
    let echoed = stage.task(async move {
        let mut channel = tidegate::Client::at(address).connect(Raw).await.unwrap();
        channel.send(b"ebb".to_vec().into()).unwrap();
        channel.shutdown_write();
        read_all(&mut channel).await.unwrap()
    });
    assert_eq!(echoed, b"ebb");
}

pub(crate) fn many_streams_are_echoed_at_once(stage: &mut Stage) {
    let at_once = TransportLimits { bidirectional_initial: 100, ..TransportLimits::default() };
    let (server, config) = configs(at_once, TransportLimits::default());
    let address = stage.server(&server, |_| echo());
    let client = stage.client(&config);
    stage.task(async move {
        let connection = client.connect(address, NAME).await.unwrap();
        let mut channels: Vec<_> =
            (0..100).map(|_| connection.open(Direction::Bidirectional, Lines::new()).unwrap()).collect();
        for round in 0..3 {
            for (number, channel) in channels.iter_mut().enumerate() {
                channel.send(format!("{round} of {number}").into_bytes().into()).unwrap();
            }
            for (number, channel) in channels.iter_mut().enumerate().rev() {
                let line = channel.recv().await.unwrap().unwrap();
                assert_eq!(&*line, format!("{round} of {number}").as_bytes());
            }
        }
    });
}

pub(crate) fn more_streams_than_the_peer_allows_wait_for_their_turn(stage: &mut Stage) {
    let limits = TransportLimits { bidirectional_max: 4, ..TransportLimits::default() };
    let (server, config) = configs(limits, TransportLimits::default());
    let address = stage.server(&server, |_| echo());
    let client = stage.client(&config);
    stage.task(async move {
        let connection = Rc::new(client.connect(address, NAME).await.unwrap());
        let open: Vec<_> = (0..4).map(|_| connection.open(Direction::Bidirectional, Raw).unwrap()).collect();
        let fifth = connection.open(Direction::Bidirectional, Raw);
        assert!(matches!(fifth, Err(SessionError::Open(OpenError::Full))), "{fifth:?}");
        let tasks: Vec<_> = (0..40_u8)
            .map(|number| {
                let connection = connection.clone();
                task::spawn(async move { assert_eq!(exchange(&connection, vec![number; 100]).await, [number; 100]) })
            })
            .collect();
        for mut channel in open {
            channel.shutdown_write();
            assert_eq!(read_all(&mut channel).await.unwrap(), b"");
        }
        for task in tasks {
            task.await.unwrap();
        }
    });
}

pub(crate) fn a_large_transfer_comes_back_whole(stage: &mut Stage) {
    let (server, config) = configs(TransportLimits::default(), TransportLimits::default());
    let address = stage.server(&server, |_| echo());
    let client = stage.client(&config);
    let bytes = pattern(3_000_000);
    let sent = bytes.clone();
    let echoed = stage.task(async move {
        let connection = client.connect(address, NAME).await.unwrap();
        let (mut reader, mut writer) = connection.open(Direction::Bidirectional, Raw).unwrap().split();
        let reading = task::spawn(async move {
            let mut bytes = Vec::new();
            while let Some(piece) = reader.recv().await.unwrap() {
                bytes.extend_from_slice(&piece);
            }
            bytes
        });
        for piece in sent.chunks(10_000) {
            writer.ready().await.unwrap();
            writer.send(piece.to_vec().into()).unwrap();
        }
        writer.shutdown_write();
        reading.await.unwrap()
    });
    assert!(echoed == bytes, "{} bytes came back", echoed.len());
}

pub(crate) fn a_reader_that_does_not_read_stops_the_sender(stage: &mut Stage) {
    let limits = TransportLimits { stream_window: 64 * 1024, ..TransportLimits::default() };
    let (server, config) = configs(limits, TransportLimits::default());
    let (may_read, received) = (Rc::new(Cell::new(false)), Rc::new(Cell::new(0)));
    let (gate, count) = (may_read.clone(), received.clone());
    let services = move |_| {
        let (gate, count) = (gate.clone(), count.clone());
        let streams = Streams::serve(
            || Raw,
            move |mut channel| {
                let (gate, count) = (gate.clone(), count.clone());
                async move {
                    while !gate.get() {
                        task::sleep(Duration::from_millis(5)).await;
                    }
                    while let Some(piece) = channel.recv().await? {
                        count.set(count.get() + piece.len());
                    }
                    Ok::<_, ChannelError>(())
                }
            },
        );
        SessionStreams { bidirectional: Some(streams), unidirectional: None }
    };
    let address = stage.server(&server, services);
    let client = stage.client(&config);
    let written = Rc::new(Cell::new(0));
    let count = written.clone();
    let (done, is_done) = (Rc::new(Cell::new(false)), Rc::new(Cell::new(false)));
    let finished = done.clone();
    let task = stage.with(1, |event_loop| {
        event_loop.spawn(async move {
            let connection = client.connect(address, NAME).await.unwrap();
            let mut channel = connection.open(Direction::Bidirectional, Raw).unwrap();
            for _ in 0..100 {
                channel.ready().await.unwrap();
                channel.send(vec![7; 10_000].into()).unwrap();
                count.set(count.get() + 10_000);
            }
            channel.shutdown_write();
            assert_eq!(read_all(&mut channel).await.unwrap(), b"");
            finished.set(true);
        })
    });
    for _ in 0..5 {
        stage.run_a_little();
    }
    // The window of the stream, the queue up to its high mark, and one piece.
    assert!(written.get() <= 64 * 1024 + 64 * 1024 + 20_000, "{} bytes were written", written.get());
    assert!(written.get() >= 64 * 1024, "{} bytes were written", written.get());
    assert_eq!(received.get(), 0);
    may_read.set(true);
    stage.run_until(|| done.get());
    assert_eq!(received.get(), 1_000_000);
    is_done.set(task.is_finished());
}

pub(crate) fn both_sides_open_streams_of_both_directions(stage: &mut Stage) {
    let (server, config) = configs(TransportLimits::default(), TransportLimits::default());
    let (at_server, at_client) = (Rc::<RefCell<Seen>>::default(), Rc::<RefCell<Seen>>::default());
    let seen = at_server.clone();
    let address = stage.server(&server, move |session| {
        task::spawn(async move {
            let mut one_way = session.open(Direction::Unidirectional, Raw).unwrap();
            one_way.send(b"from the server".to_vec().into()).unwrap();
            one_way.shutdown_write();
            assert_eq!(read_all(&mut one_way).await.unwrap(), b"");
            let mut both_ways = session.open(Direction::Bidirectional, Raw).unwrap();
            both_ways.send(b", and back".to_vec().into()).unwrap();
            both_ways.shutdown_write();
            assert_eq!(read_all(&mut both_ways).await.unwrap(), b"");
        });
        sinks(&seen)
    });
    let seen = at_client.clone();
    let client = stage.client_with(&config, move |_| sinks(&seen));
    let connection = stage.task(async move {
        let connection = client.connect(address, NAME).await.unwrap();
        let mut one_way = connection.open(Direction::Unidirectional, Raw).unwrap();
        one_way.send(b"from the client".to_vec().into()).unwrap();
        one_way.shutdown_write();
        assert_eq!(read_all(&mut one_way).await.unwrap(), b"");
        connection
    });
    let (server_seen, client_seen) = (at_server.clone(), at_client.clone());
    stage.run_until(|| server_seen.borrow().ended == 1 && client_seen.borrow().ended == 2);
    assert_eq!(at_server.borrow().bytes, b"from the client");
    // Both streams may come in one datagram, and QUIC gives streams no order.
    let bytes = at_client.borrow().bytes.clone();
    assert!(matches!(&bytes[..], b"from the server, and back" | b", and backfrom the server"), "{bytes:?}");
    let closed = at_client.clone();
    stage.run_until(|| closed.borrow().closed.len() == 2);
    drop(connection);
}

pub(crate) fn a_direction_without_a_service_is_refused(stage: &mut Stage) {
    let (server, config) = configs(TransportLimits::default(), TransportLimits::default());
    let address = stage.server(&server, |_| SessionStreams::default());
    let client = stage.client(&config);
    let refused = stage.task(async move {
        let connection = client.connect(address, NAME).await.unwrap();
        let mut channel = connection.open(Direction::Bidirectional, Raw).unwrap();
        channel.send(b"ebb".to_vec().into()).unwrap();
        channel.recv().await.unwrap_err().to_string()
    });
    assert!(refused.contains("reset"), "{refused}");
}

pub(crate) fn a_reset_reaches_the_peer_with_its_number(stage: &mut Stage) {
    let (server, config) = configs(TransportLimits::default(), TransportLimits::default());
    let seen = Rc::<RefCell<Seen>>::default();
    let at_server = seen.clone();
    let address = stage.server(&server, move |_| sinks(&at_server));
    let client = stage.client(&config);
    let connection = stage.task(async move {
        let connection = client.connect(address, NAME).await.unwrap();
        let mut channel = connection.open(Direction::Bidirectional, Raw).unwrap();
        let position = channel.send(b"ebb".to_vec().into()).unwrap();
        channel.flushed(position).await.unwrap();
        channel.reset(4242);
        connection
    });
    let at_server = seen.clone();
    stage.run_until(|| !at_server.borrow().closed.is_empty());
    assert!(seen.borrow().closed[0].contains("4242"), "{:?}", seen.borrow().closed);
    assert_eq!(seen.borrow().ended, 0);
    drop(connection);
}

/// Responds to the first message and wants no more: the peer gets the response.
pub(crate) struct OneWord;

impl Handler<Raw> for OneWord {
    type Post = ();

    fn message(&mut self, _: Slice, cx: &mut Context<'_, Raw>) -> Outcome<Raw> {
        let _sent = cx.send(vec![9; 50_000].into());
        Outcome::Close
    }
}

pub(crate) fn a_stop_without_an_error_leaves_the_other_direction_open(stage: &mut Stage) {
    let (server, config) = configs(TransportLimits::default(), TransportLimits::default());
    let services = |_| SessionStreams { bidirectional: Some(Streams::handle(|| (Raw, OneWord))), unidirectional: None };
    let address = stage.server(&server, services);
    let client = stage.client(&config);
    let response = stage.task(async move {
        let connection = client.connect(address, NAME).await.unwrap();
        let mut channel = connection.open(Direction::Bidirectional, Raw).unwrap();
        channel.send(vec![1; 200_000].into()).unwrap();
        read_all(&mut channel).await.unwrap()
    });
    assert_eq!(response, [9; 50_000]);
}

/// Resets the stream with a number at the first message.
struct Refusing;

impl Handler<Raw> for Refusing {
    type Post = ();

    fn message(&mut self, _: Slice, _: &mut Context<'_, Raw>) -> Outcome<Raw> {
        Outcome::Reset(77)
    }
}

pub(crate) fn a_stop_with_a_number_ends_the_stream(stage: &mut Stage) {
    let (server, config) = configs(TransportLimits::default(), TransportLimits::default());
    let refusing = || Streams::handle(|| (Raw, Refusing));
    let services = move |_| SessionStreams { bidirectional: None, unidirectional: Some(refusing()) };
    let address = stage.server(&server, services);
    let client = stage.client(&config);
    let reason = stage.task(async move {
        let connection = client.connect(address, NAME).await.unwrap();
        let mut channel = connection.open(Direction::Unidirectional, Raw).unwrap();
        channel.send(b"ebb".to_vec().into()).unwrap();
        std::future::poll_fn(|cx| channel.poll_closed(cx)).await.to_string()
    });
    assert!(reason.contains("77"), "{reason}");
}

pub(crate) fn a_peer_that_closes_ends_the_streams(stage: &mut Stage) {
    let (server, config) = configs(TransportLimits::default(), TransportLimits::default());
    let seen = Rc::<RefCell<Seen>>::default();
    let at_server = seen.clone();
    let address = stage.server(&server, move |_| sinks(&at_server));
    let client = stage.client(&config);
    let error = stage.task(async move {
        let connection = client.connect(address, NAME).await.unwrap();
        let mut channel = connection.open(Direction::Bidirectional, Raw).unwrap();
        let position = channel.send(b"ebb".to_vec().into()).unwrap();
        channel.flushed(position).await.unwrap();
        task::sleep(Duration::from_millis(50)).await;
        connection.close(9, "the tide turns");
        channel.recv().await.unwrap_err().to_string()
    });
    assert!(error.contains("closed"), "{error}");
    let at_server = seen.clone();
    stage.run_until(|| !at_server.borrow().closed.is_empty());
    assert!(seen.borrow().closed[0].contains("code 9: the tide turns"), "{:?}", seen.borrow().closed);
    assert_eq!((server.counts().connections, config.counts().connections), (0, 0));
}

pub(crate) fn a_dropped_connection_closes_behind_its_last_stream(stage: &mut Stage) {
    let (server, config) = configs(TransportLimits::default(), TransportLimits::default());
    let address = stage.server(&server, |_| echo());
    let client = stage.client(&config);
    let echoed = stage.task(async move {
        let connection = client.connect(address, NAME).await.unwrap();
        let mut channel = connection.open(Direction::Bidirectional, Raw).unwrap();
        drop(connection);
        channel.send(b"ebb".to_vec().into()).unwrap();
        channel.shutdown_write();
        read_all(&mut channel).await.unwrap()
    });
    assert_eq!(echoed, b"ebb");
    stage.run_until(|| server.counts().connections == 0);
    assert_eq!((server.counts().idle_timeouts, config.counts().connections), (0, 0));
}

pub(crate) fn a_drain_waits_for_streams_and_refuses_new_connections(stage: &mut Stage) {
    let (server, config) = configs(TransportLimits::default(), TransportLimits::default());
    let address = stage.server(&server, |_| echo());
    let client = stage.client(&config);
    let other = client.clone();
    let (connection, mut channel) = stage.task(async move {
        let connection = client.connect(address, NAME).await.unwrap();
        let mut channel = connection.open(Direction::Bidirectional, Raw).unwrap();
        channel.send(b"ebb".to_vec().into()).unwrap();
        assert_eq!(&*channel.recv().await.unwrap().unwrap(), b"ebb");
        (connection, channel)
    });
    stage.with(0, |event_loop| event_loop.drain(Duration::from_secs(600)));
    let refused = stage.task(async move { other.connect(address, NAME).await.map(drop) });
    // CONNECTION_REFUSED, RFC 9000 §20.1.
    assert!(matches!(refused, Err(ConnectionError::AbortedByPeer { code: 2, .. })), "{refused:?}");
    let (rest, reason) = stage.task(async move {
        channel.send(b"flow".to_vec().into()).unwrap();
        channel.shutdown_write();
        (read_all(&mut channel).await.unwrap(), connection.closed().await)
    });
    assert_eq!(rest, b"flow");
    assert!(matches!(reason, ConnectionError::ClosedByPeer { code: 0, .. }), "{reason:?}");
    stage.run_a_little();
    assert!(stage.with(0, |event_loop| event_loop.is_drained()));
}

pub(crate) fn a_drain_ends_at_its_deadline(stage: &mut Stage) {
    let (server, config) = configs(TransportLimits::default(), TransportLimits::default());
    let address = stage.server(&server, |_| echo());
    let client = stage.client(&config);
    let (connection, channel) = stage.task(async move {
        let connection = client.connect(address, NAME).await.unwrap();
        let mut channel = connection.open(Direction::Bidirectional, Raw).unwrap();
        channel.send(b"ebb".to_vec().into()).unwrap();
        assert_eq!(&*channel.recv().await.unwrap().unwrap(), b"ebb");
        (connection, channel)
    });
    stage.with(0, |event_loop| event_loop.drain(Duration::from_millis(50)));
    let reason = stage.task(async move { connection.closed().await });
    assert!(matches!(reason, ConnectionError::ClosedByPeer { .. }), "{reason:?}");
    assert_eq!(server.counts().connections, 0);
    drop(channel);
}

pub(crate) fn too_many_connections_are_refused(stage: &mut Stage) {
    let (server, config) =
        configs(TransportLimits { connections_max: 2, ..TransportLimits::default() }, TransportLimits::default());
    let address = stage.server(&server, |_| echo());
    let client = stage.client(&config);
    stage.task(async move {
        let first = client.connect(address, NAME).await.unwrap();
        let second = client.connect(address, NAME).await.unwrap();
        let third = client.connect(address, NAME).await.map(drop);
        assert!(matches!(third, Err(ConnectionError::AbortedByPeer { code: 2, .. })), "{third:?}");
        assert_eq!(exchange(&first, b"ebb".to_vec()).await, b"ebb");
        drop((first, second));
    });
    assert_eq!((server.counts().refused > 0, server.counts().begun, server.counts().handshakes), (true, 2, 2));
}

pub(crate) fn pressure_makes_clients_prove_their_address(stage: &mut Stage) {
    // Each handshake is above an eighth of 8, once one is under way.
    let (server, config) =
        configs(TransportLimits { handshakes_max: 8, ..TransportLimits::default() }, TransportLimits::default());
    let address = stage.server(&server, |_| echo());
    let client = stage.client(&config);
    stage.task(async move {
        let tasks: Vec<_> = (0..6)
            .map(|_| {
                let client = client.clone();
                task::spawn(async move {
                    let connection = client.connect(address, NAME).await.unwrap();
                    assert_eq!(exchange(&connection, b"ebb".to_vec()).await, b"ebb");
                })
            })
            .collect();
        for task in tasks {
            task.await.unwrap();
        }
        // A single one is not asked to.
        let connection = client.connect(address, NAME).await.unwrap();
        assert_eq!(exchange(&connection, b"ebb".to_vec()).await, b"ebb");
    });
    let counts = server.counts();
    assert_eq!(counts.handshakes, 7);
    assert!(counts.retries > 0, "{counts:?}");
}

pub(crate) fn an_application_decides_on_clients(stage: &mut Stage) {
    let (server, config) = configs(TransportLimits::default(), TransportLimits::default());
    let (retried, refused) = (stage.client(&config), stage.client(&config));
    let to_retry = retried.endpoint().local_address().unwrap();
    let server = server.admit(move |address, is_validated| match (address == to_retry, is_validated) {
        (true, true) => Admit::Accept,
        (true, false) => Admit::Retry,
        (false, _) => Admit::Refuse,
    });
    let address = stage.server(&server, |_| echo());
    stage.task(async move {
        let connection = retried.connect(address, NAME).await.unwrap();
        assert_eq!(exchange(&connection, b"ebb".to_vec()).await, b"ebb");
        let refused = refused.connect(address, NAME).await.map(drop);
        assert!(matches!(refused, Err(ConnectionError::AbortedByPeer { code: 2, .. })), "{refused:?}");
    });
    let counts = server.counts();
    assert!(counts.retries >= 1 && counts.refused >= 1, "{counts:?}");
    assert_eq!((counts.begun, counts.handshakes), (1, 1));
}

pub(crate) fn keys_are_updated(stage: &mut Stage) {
    let (server, config) = configs(TransportLimits::default(), TransportLimits::default());
    let address = stage.server(&server, |_| echo());
    let client = stage.client(&config);
    stage.task(async move {
        let connection = client.connect(address, NAME).await.unwrap();
        for round in 0..5_u8 {
            assert_eq!(exchange(&connection, vec![round; 5000]).await, [round; 5000]);
            client.endpoint().with(|endpoint, _| endpoint.update_keys(connection.number())).unwrap();
        }
    });
}

pub(crate) fn a_changed_address_is_a_migration(stage: &mut Stage) {
    let (server, config) = configs(TransportLimits::default(), TransportLimits::default());
    let address = stage.server(&server, |_| echo());
    // A relay stands between both: its port towards the server changes, as that of a NAT does.
    let (relay, at_server) = crate::stage::relay(stage, address);
    let client = stage.client(&config);
    stage.task(async move {
        let connection = client.connect(relay, NAME).await.unwrap();
        assert_eq!(exchange(&connection, pattern(20_000)).await, pattern(20_000));
        at_server.change();
        assert_eq!(exchange(&connection, pattern(20_000)).await, pattern(20_000));
    });
    assert_eq!((server.counts().migrations, server.counts().handshakes), (1, 1));
}

pub(crate) fn a_client_that_does_not_trust_the_server_fails(stage: &mut Stage) {
    let (server, _) = configs(TransportLimits::default(), TransportLimits::default());
    let (_, stranger) = configs(TransportLimits::default(), TransportLimits::default());
    let address = stage.server(&server, |_| echo());
    let client = stage.client(&stranger);
    let error = stage.task(async move { client.connect(address, NAME).await.map(drop) });
    // A TLS alert, RFC 9001 §4.8.
    assert!(matches!(error, Err(ConnectionError::Transport { code: 0x100..0x200, .. })), "{error:?}");
    stage.run_until(|| server.counts().connections == 0);
    assert_eq!((server.counts().handshakes_failed, stranger.counts().handshakes_failed), (1, 1));
}

pub(crate) fn a_small_send_window_is_enough(stage: &mut Stage) {
    let limits = TransportLimits { send_window: 8 * 1024, ..TransportLimits::default() };
    let (server, config) = configs(limits.clone(), limits);
    let address = stage.server(&server, |_| echo());
    let client = stage.client(&config);
    let echoed = stage.task(async move {
        let connection = client.connect(address, NAME).await.unwrap();
        exchange(&connection, pattern(50_000)).await
    });
    assert!(echoed == pattern(50_000), "{} bytes came back", echoed.len());
}
