//! Datagrams that wait are memory of the loop (`memory_max`): connections that do not read theirs stay within the budget.

use std::cell::{Cell, RefCell};
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use tidegate::engine::{EndpointSession, SessionLimits, SessionStreams};
use tidegate::quic::{ClientConfig, Connection, Connector, Endpoint, ServerConfig, TransportLimits};
use tidegate::task::Task;
use tidegate_testkit::network::{Host, Network, SimNode};

use crate::stage::{NAME, configs};

const CONNECTIONS: usize = 8;
/// Of each connection, of 1,000 bytes.
const DATAGRAMS: usize = 200;
/// All of them, with 32 bytes for each.
const KIB: usize = CONNECTIONS * DATAGRAMS * 1_032 / 1024;

/// The memory and the counts of a server after clients have sent datagrams that no task reads.
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

/// The sessions of a server that has seen them established.
type Sessions = Rc<RefCell<Vec<EndpointSession<Endpoint>>>>;

fn limits() -> TransportLimits {
    TransportLimits {
        datagram_receive_bytes: Some(1 << 20),
        datagram_send_bytes: 1 << 20,
        ..TransportLimits::default()
    }
}

/// Runs a server at a host.
fn serve(host: &Host, server: &SimNode, config: &ServerConfig) -> (SocketAddr, Sessions) {
    let (sessions, options) = (Sessions::default(), config.socket_options());
    let (seen, config) = (sessions.clone(), config.clone());
    let socket = host.datagrams(443, &options).expect("a socket");
    let bound = server.with(|event_loop| {
        let services = move |session| {
            seen.borrow_mut().push(session);
            SessionStreams::default()
        };
        let make = move || config.endpoint(0);
        event_loop.bind_sessions(socket, &options, SessionLimits::default(), make, services)
    });
    (bound.expect("an address").ip().expect("an IP address"), sessions)
}

/// The connections of a client at a host.
fn connect(host: &Host, client: &SimNode, config: &ClientConfig, server: SocketAddr) -> Task<Vec<Connection>> {
    let options = config.socket_options();
    let socket = host.datagrams(0, &options).expect("a socket");
    let opened = client.with(|event_loop| {
        let (limits, endpoint) = (SessionLimits::default(), config.endpoint());
        event_loop.open_sessions(socket, &options, limits, endpoint, |_| SessionStreams::default())
    });
    let connector = Connector::new(opened.expect("a client"), config);
    client.spawn(async move {
        let mut connections = Vec::new();
        for _ in 0..CONNECTIONS {
            connections.push(connector.connect(server, NAME).await.expect("a connection"));
        }
        connections
    })
}

/// Floods a server whose loop has so many KiB.
fn flood(budget: usize) -> Flooded {
    let network = Network::new(1);
    let hosts = ["10.0.0.1", "10.0.0.2"].map(|ip| network.host(ip));
    let [server, client] = [hosts[0].node(), hosts[1].node()];
    let (config, client_config) = configs(limits(), limits());
    let (address, sessions) = serve(&hosts[0], &server, &config);
    let mut connections = connect(&hosts[1], &client, &client_config, address);
    network.run_for(Duration::from_secs(1));
    let ledger = server.pool().ledger();
    let idle = ledger.used();
    // An eighth of the budget is to be free after it was used up.
    ledger.set_budget(idle + (budget << 10));
    let used = || ledger.used().saturating_sub(idle) >> 10;
    let _connections = client.spawn(async move {
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
    let (then, counts) = (used(), config.counts());
    let read = Rc::<Cell<u64>>::default();
    for session in sessions.borrow().clone() {
        let read = read.clone();
        drop(server.spawn(async move {
            while session.recv_datagram().await.is_ok() {
                read.set(read.get() + 1);
            }
        }));
    }
    network.run_for(Duration::from_secs(1));
    let (after, read) = (used(), read.get());
    Flooded { most, then, after, dropped: counts.datagrams_dropped, read, connections: counts.connections }
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
