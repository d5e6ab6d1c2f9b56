//! Datagrams that wait are memory of the loop (`memory_max`): connections that do not read theirs stay within the budget.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use tidegate::engine::{EndpointSession, SessionLimits, SessionStreams};
use tidegate::quic::{Connector, Endpoint, TransportLimits};
use tidegate_testkit::network::Network;

use crate::stage::{NAME, configs};

const CONNECTIONS: usize = 8;
/// Of each connection, of 1,000 bytes.
const DATAGRAMS: usize = 200;
/// All of them, with 32 bytes for each.
const KIB: usize = CONNECTIONS * DATAGRAMS * 1_032 / 1024;

/// What a server has after clients have sent datagrams that no task reads.
#[derive(Debug)]
struct Flooded {
    /// KiB of memory beyond those of an idle loop: at the most, then, and once a task has read all.
    most: usize,
    then: usize,
    after: usize,
    dropped: u64,
    read: u64,
    connections: u64,
}

/// Floods a server whose loop has so many KiB.
fn flood(budget: usize) -> Flooded {
    let network = Network::new(1);
    let [server, client] = ["10.0.0.1", "10.0.0.2"].map(|ip| network.host(ip).node());
    let wide = TransportLimits {
        datagram_receive_bytes: Some(1 << 20),
        datagram_send_bytes: 1 << 20,
        ..TransportLimits::default()
    };
    let (config, client_config) = configs(wide.clone(), wide);
    let sessions = Rc::<RefCell<Vec<EndpointSession<Endpoint>>>>::default();
    let options = config.socket_options();
    let socket = network.host("10.0.0.1").datagrams(443, &options).expect("a socket");
    let bound = server.with(|event_loop| {
        let (of_loop, seen) = (config.clone(), sessions.clone());
        event_loop.bind_sessions(
            socket,
            &options,
            SessionLimits::default(),
            move || of_loop.endpoint(0),
            move |session| {
                seen.borrow_mut().push(session);
                SessionStreams::default()
            },
        )
    });
    let address = bound.expect("an address").ip().expect("an IP address");
    let options = client_config.socket_options();
    let socket = network.host("10.0.0.2").datagrams(0, &options).expect("a socket");
    let opened = client.with(|event_loop| {
        let endpoint = client_config.endpoint();
        event_loop.open_sessions(socket, &options, SessionLimits::default(), endpoint, |_| SessionStreams::default())
    });
    let connector = Connector::new(opened.expect("a client"), &client_config);
    let connections = client.spawn(async move {
        let mut connections = Vec::new();
        for _ in 0..CONNECTIONS {
            connections.push(connector.connect(address, NAME).await.expect("a connection"));
        }
        connections
    });
    network.run_for(Duration::from_secs(1));
    let ledger = server.pool().ledger();
    let idle = ledger.used();
    // An eighth of the budget is to be free after it was used up.
    ledger.set_budget(idle + (budget << 10));
    let used = || ledger.used().saturating_sub(idle) >> 10;
    let _connections = client.spawn(async move {
        let mut connections = connections;
        let connections = (&mut connections).await.expect("connections");
        for connection in &connections {
            for number in 0..DATAGRAMS {
                connection.send_datagram(vec![number as u8; 1_000]).expect("a datagram");
            }
        }
        std::future::pending::<()>().await;
    });
    let mut most = 0;
    for _ in 0..500 {
        network.run_for(Duration::from_millis(10));
        most = most.max(used());
    }
    let then = used();
    let counts = config.counts();
    let (read, readers) = (Rc::<RefCell<u64>>::default(), sessions.borrow().clone());
    for session in readers {
        let read = read.clone();
        drop(server.spawn(async move {
            while session.recv_datagram().await.is_ok() {
                *read.borrow_mut() += 1;
            }
        }));
    }
    network.run_for(Duration::from_secs(1));
    let read = *read.borrow();
    Flooded { most, then, after: used(), dropped: counts.datagrams_dropped, read, connections: counts.connections }
}

#[test]
fn datagrams_that_no_task_reads_stay_within_the_memory_of_the_loop_and_connections_live_on() {
    let flooded = flood(KIB / 2);
    println!("{flooded:?}");
    assert!(flooded.most <= KIB / 2 + 128, "{flooded:?}");
    assert!(flooded.dropped > 100 && flooded.read > 100, "{flooded:?}");
    assert_eq!(flooded.connections, CONNECTIONS as u64, "{flooded:?}");
    assert_eq!(flooded.read + flooded.dropped, (CONNECTIONS * DATAGRAMS) as u64, "{flooded:?}");
}

#[test]
fn datagrams_count_in_the_memory_of_the_loop_until_they_are_read() {
    let flooded = flood(4 * KIB);
    assert!(flooded.then >= KIB && flooded.after <= 64, "{flooded:?}");
    assert_eq!((flooded.dropped, flooded.read), (0, (CONNECTIONS * DATAGRAMS) as u64), "{flooded:?}");
    assert_eq!(flooded.connections, CONNECTIONS as u64);
}
