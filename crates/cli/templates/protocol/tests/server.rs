//! The server without a network, in virtual time, and on a simulated network with faults.

use std::time::Duration;

use {{crate_name}}::client;
use {{crate_name}}::handler::{Connection, IDLE_TIMEOUT};
use {{crate_name}}::protocol::ServerCodec;
use {{crate_name}}::store::Store;
use tidegate::Limits;
use tidegate_testkit::network::{FaultRates, Network, NetworkFault};
use tidegate_testkit::{Embedded, seeds};

fn open() -> Embedded<()> {
    Embedded::new(ServerCodec::default(), Connection::new(Store::default()))
}

#[test]
fn a_value_is_stored_and_read() {
    let mut connection = open();
    connection.receive(b"GET tide\nSET tide high wa");
    assert_eq!(connection.take_written(), b"NONE\n");
    connection.receive(b"ter\nGET tide\n");
    assert_eq!(connection.take_written(), b"OK\nVALUE high water\n");
}

#[test]
fn a_malformed_request_gets_an_error_and_the_end() {
    for line in [
        "HELLO\n",
        "GET\n",
        "GET \n",
        "SET tide\n",
        "GET a b\n",
        "SET  x\n",
    ] {
        let mut connection = open();
        connection.receive(line.as_bytes());
        assert_eq!(connection.take_written(), b"ERROR\n", "{line}");
        assert!(connection.is_write_closed(), "{line}");
    }
}

#[test]
fn an_idle_peer_is_closed() {
    let mut connection = open();
    connection.advance(IDLE_TIMEOUT - Duration::from_secs(1));
    connection.receive(b"GET tide\n");
    connection.advance(IDLE_TIMEOUT - Duration::from_secs(1));
    assert!(!connection.is_write_closed());
    connection.advance(Duration::from_secs(1));
    assert!(connection.is_write_closed());
}

/// A value that was confirmed is there, whatever the network does.
#[test]
fn a_confirmed_value_is_not_lost_when_connections_break() {
    let mut confirmed = 0;
    for seed in seeds(50) {
        let network = Network::new(seed);
        network.set_faults(FaultRates::benign().with(NetworkFault::Reset, 50));
        let (store, node) = (Store::default(), network.host("10.0.0.1").node());
        let shared = store.clone();
        let make = move |_: &_| (ServerCodec::default(), Connection::new(shared.clone()));
        let address = node
            .listen(7000, Limits::default(), make)
            .expect("the port is free")
            .to_string();
        let task = network.host("10.0.0.2").node().spawn(async move {
            let mut last = None;
            for number in 0..20 {
                let Ok(mut connection) = client::Connection::connect(&address).await else {
                    continue;
                };
                let value = number.to_string();
                if connection.set("tide", &value).await.is_err() {
                    return last.map(|last| vec![last, value]);
                }
                last = Some(value);
            }
            last.map(|last| vec![last])
        });
        if let Some(possible) = network.run_task(Duration::from_secs(600), task) {
            confirmed += 1;
            assert!(
                possible.contains(&store.get("tide").unwrap_or_default()),
                "{possible:?}"
            );
        }
    }
    assert!(confirmed > 0, "some values are confirmed");
}
