//! The memory of idle connections.

use std::time::Duration;

use tidegate::quic::TransportLimits;
use tidegate_testkit::allocations::Region;

use crate::scenarios::{echo, exchange};
use crate::stage::{NAME, Stage, configs};

/// Bytes of an idle connection of a server, after so many requests: those that are given back when it ends, of many that do.
fn idle_bytes(limits: &TransportLimits, requests: usize) -> isize {
    const CONNECTIONS: usize = 20;
    let mut stage = Stage::network(1);
    let (server, config) = configs(limits.clone(), TransportLimits::default());
    let address = stage.server(&server, |_| echo());
    let client = stage.client(&config);
    let connections = stage.task(async move {
        let mut connections = Vec::new();
        for _ in 0..CONNECTIONS {
            connections.push(client.connect(address, NAME).await.unwrap());
        }
        // In turn, so that none is idle for long.
        for _ in 0..requests {
            for connection in &connections {
                assert_eq!(exchange(connection, b"ebb".to_vec()).await, b"ebb");
            }
        }
        connections
    });
    let network = stage.simulated().unwrap().clone();
    network.run_for(Duration::from_secs(5));
    assert_eq!(server.counts().connections, CONNECTIONS as u64);
    // The network is cut, so that the clients keep their connections while the server drops all of its.
    network.partition(&network.host("10.0.0.1"), &network.host("10.0.0.2"));
    let region = Region::new();
    stage.with(0, |event_loop| event_loop.drain(Duration::ZERO));
    network.run_for(Duration::from_secs(1));
    let freed = -region.change().bytes_in_use();
    assert_eq!((server.counts().connections, config.counts().connections), (0, CONNECTIONS as u64));
    drop(connections);
    freed / CONNECTIONS as isize
}

#[test]
fn an_idle_connection_has_little_memory() {
    let usual = TransportLimits::default();
    let at_once = TransportLimits { bidirectional_initial: 100, ..usual.clone() };
    let bytes = [idle_bytes(&usual, 1), idle_bytes(&usual, 60), idle_bytes(&usual, 1_000), idle_bytes(&at_once, 1)];
    let [idle, after_60, after_1000, of_100] = bytes;
    println!(
        "after 1 request: {idle}; after 60: {after_60}; after 1,000: {after_1000}; with 100 streams at once: {of_100}"
    );
    // The table of streams that the peer may open is a part of it.
    assert!(of_100 > idle, "{bytes:?}");
    assert!(idle < 24_000 && after_60 < 26_000 && after_1000 < 26_000, "{bytes:?}");
}
