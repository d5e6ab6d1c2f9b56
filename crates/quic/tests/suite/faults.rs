//! Loss, duplication, reordering and corruption by seed, the virtual clock, and a path that carries less than others.

use std::rc::Rc;
use std::time::Duration;

use tidegate::framing::Raw;
use tidegate::quic::{ConnectionError, Direction, TransportLimits};
use tidegate::task;
use tidegate_testkit::network::DatagramFaults;

use crate::scenarios::{echo, exchange, pattern};
use crate::stage::{NAME, Stage, configs};

/// Streams of several lengths come back whole.
fn exchange_with(stage: &mut Stage) {
    let (server, config) = configs(TransportLimits::default(), TransportLimits::default());
    let address = stage.server(&server, |_| echo());
    let client = stage.client(&config);
    stage.task(async move {
        let connection = Rc::new(client.connect(address, NAME).await.unwrap());
        let tasks: Vec<_> = [0, 1, 1200, 20_000, 100_000]
            .map(|length| {
                let connection = connection.clone();
                task::spawn(async move { assert!(exchange(&connection, pattern(length)).await == pattern(length)) })
            })
            .into();
        for task in tasks {
            task.await.unwrap();
        }
    });
    assert_eq!(server.counts().handshakes, 1);
}

#[test]
fn streams_come_back_whole_through_every_fault() {
    for seed in tidegate_testkit::seeds(8) {
        let mut stage = Stage::network(seed);
        let network = stage.simulated().unwrap().clone();
        network.set_datagram_faults(DatagramFaults {
            lost: 15,
            duplicated: 10,
            delayed: 10,
            corrupted: 40,
            blocked: 20,
        });
        exchange_with(&mut stage);
        let counts = network.datagram_counts();
        assert!(counts.lost > 0 && counts.duplicated > 0 && counts.delayed > 0 && counts.corrupted > 0, "{counts:?}");
    }
}

#[test]
fn a_path_of_1280_bytes_is_enough_and_a_larger_one_is_found() {
    for (mtu, least) in [(1280, 1200), (1500, 1300)] {
        let mut stage = Stage::network(1);
        let network = stage.simulated().unwrap().clone();
        network.set_mtu(mtu);
        exchange_with(&mut stage);
        let counts = network.datagram_counts();
        // Probes that are too long are refused, and nothing else is lost.
        assert!(counts.arrived > 0, "{least}: {counts:?}");
    }
}

#[test]
fn a_silent_peer_is_noticed_by_the_clock() {
    let mut stage = Stage::network(1);
    let network = stage.simulated().unwrap().clone();
    let limits = TransportLimits { idle_timeout: Some(Duration::from_secs(10)), ..TransportLimits::default() };
    let (server, config) = configs(limits, TransportLimits::default());
    let address = stage.server(&server, |_| echo());
    let client = stage.client(&config);
    let (connection, mut channel) = stage.task(async move {
        let connection = client.connect(address, NAME).await.unwrap();
        let channel = connection.open(Direction::Bidirectional, Raw).unwrap();
        assert_eq!(exchange(&connection, b"ebb".to_vec()).await, b"ebb");
        (connection, channel)
    });
    network.partition(&network.host("10.0.0.1"), &network.host("10.0.0.2"));
    network.run_for(Duration::from_secs(9));
    assert_eq!(server.counts().connections, 1);
    network.run_for(Duration::from_secs(3));
    assert_eq!((server.counts().connections, server.counts().idle_timeouts), (0, 1));
    let (reason, error) = stage.task(async move {
        let reason = connection.closed().await;
        (reason, channel.recv().await.unwrap_err().to_string())
    });
    assert_eq!(reason, ConnectionError::IdleTimeout);
    assert!(error.contains("came in time"), "{error}");
}

#[test]
fn a_connection_that_is_kept_alive_outlives_the_idle_timeout() {
    let mut stage = Stage::network(1);
    let network = stage.simulated().unwrap().clone();
    let limits = TransportLimits { idle_timeout: Some(Duration::from_secs(10)), ..TransportLimits::default() };
    let keeping = TransportLimits { keep_alive: Some(Duration::from_secs(4)), ..limits.clone() };
    let (server, config) = configs(limits, keeping);
    let address = stage.server(&server, |_| echo());
    let client = stage.client(&config);
    let connection = stage.task(async move { client.connect(address, NAME).await.unwrap() });
    network.run_for(Duration::from_secs(100));
    let echoed = stage.task(async move { exchange(&connection, b"ebb".to_vec()).await });
    assert_eq!((echoed, server.counts().idle_timeouts), (b"ebb".to_vec(), 0));
}

#[test]
fn a_handshake_that_takes_too_long_is_given_up() {
    let mut stage = Stage::network(1);
    let network = stage.simulated().unwrap().clone();
    let (_, config) = configs(TransportLimits::default(), TransportLimits::default());
    let client = stage.client(&config);
    // No report of a port that nothing has comes back.
    network.partition(&network.host("10.0.0.1"), &network.host("10.0.0.2"));
    let begun = network.elapsed();
    let error = stage.task(async move { client.connect("10.0.0.1:4433".parse().unwrap(), NAME).await.map(drop) });
    assert_eq!(error, Err(ConnectionError::HandshakeTimeout));
    let took = network.elapsed() - begun;
    assert!((9..12).contains(&took.as_secs()), "{took:?}");
    assert_eq!((config.counts().connections, config.counts().handshakes_failed), (0, 1));
}

#[test]
fn a_port_that_nothing_has_fails_a_handshake_at_once_and_no_connection() {
    for mut stage in [Stage::epoll(), Stage::network(1)] {
        let (server, config) = configs(TransportLimits::default(), TransportLimits::default());
        let address = stage.server(&server, |_| echo());
        let client = stage.client(&config);
        let mut nowhere = address;
        nowhere.set_port(9);
        let (error, echoed) = stage.task(async move {
            let connection = client.connect(address, NAME).await.unwrap();
            let error = client.connect(nowhere, NAME).await.map(drop);
            (error, exchange(&connection, b"ebb".to_vec()).await)
        });
        assert_eq!((error, &echoed[..]), (Err(ConnectionError::Unreachable), &b"ebb"[..]));
        assert_eq!(config.counts().handshakes_failed, 1);
    }
}

#[test]
fn a_peer_that_answers_no_ping_is_gone() {
    let mut stage = Stage::network(1);
    let network = stage.simulated().unwrap().clone();
    let (server, config) = configs(TransportLimits::default(), TransportLimits::default());
    let address = stage.server(&server, |_| echo());
    let client = stage.client(&config);
    let connection = Rc::new(stage.task(async move { client.connect(address, NAME).await.unwrap() }));
    let ping = |stage: &mut Stage, before| {
        let connection = connection.clone();
        stage.task(async move {
            let received = connection.with(|endpoint, now| endpoint.ping(connection.number(), before, now)).unwrap();
            task::sleep(Duration::from_secs(1)).await;
            received
        })
    };
    let first = ping(&mut stage, None);
    let second = ping(&mut stage, first);
    assert!(second > first, "{second:?}");
    network.partition(&network.host("10.0.0.1"), &network.host("10.0.0.2"));
    let third = ping(&mut stage, second);
    assert!(third.is_some());
    assert_eq!(ping(&mut stage, third), None);
    let connection = connection.clone();
    assert_eq!(stage.task(async move { connection.closed().await }), ConnectionError::IdleTimeout);
}

#[test]
fn a_server_that_lost_its_state_resets_the_connection() {
    let mut stage = Stage::network(1);
    let network = stage.simulated().unwrap().clone();
    let (server, config) = configs(TransportLimits::default(), TransportLimits::default());
    let relayed = stage.server(&server, |_| echo());
    let other = stage.server(&server, |_| echo());
    // The relay sends to another endpoint with the same keys, which does not know the connection.
    let (relay, at_server) = crate::stage::relay_to(&mut stage, [relayed, other]);
    let client = stage.client(&config);
    let connection = stage.task(async move {
        let connection = client.connect(relay, NAME).await.unwrap();
        assert_eq!(exchange(&connection, b"ebb".to_vec()).await, b"ebb");
        connection
    });
    at_server.change();
    let reason = stage.task(async move {
        let mut channel = connection.open(Direction::Bidirectional, Raw).unwrap();
        channel.send(b"flow".to_vec().into()).unwrap();
        connection.closed().await
    });
    assert_eq!(reason, ConnectionError::Reset);
    network.run_for(Duration::from_secs(60));
    assert_eq!(server.counts().connections, 0);
}
