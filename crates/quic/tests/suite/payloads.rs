//! UDP payloads beyond Ethernet, on paths with a large MTU: the sockets of both roles have room for them.

use std::rc::Rc;
use std::time::Duration;

use tidegate::quic::TransportLimits;
use tidegate::task;

use crate::datagrams::echo_datagrams;
use crate::stage::{NAME, Stage, configs};

/// The UDP payload of a path with an MTU of 9,000, over IPv4.
const JUMBO: u16 = 8_972;

fn limits(payload_bytes_max: u16) -> TransportLimits {
    TransportLimits { payload_bytes_max, datagram_receive_bytes: Some(64 * 1024), ..TransportLimits::default() }
}

/// The longest datagram on a path with a large MTU, once the search for it is over.
fn longest(stage: &mut Stage, payload_bytes_max: u16) -> usize {
    if let Some(network) = stage.simulated() {
        network.set_mtu(9_000);
    }
    let (server, client) = configs(limits(payload_bytes_max), limits(payload_bytes_max));
    let address = stage.server(&server, echo_datagrams);
    let client = stage.client(&client);
    stage.task(async move {
        let connection = Rc::new(client.connect(address, NAME).await.expect("a connection"));
        let mut longest = 0;
        // Each exchange gives the search an acknowledgement, or the loss of a probe.
        for _ in 0..100 {
            longest = connection.datagram_bytes_max().expect("datagrams");
            connection.send_datagram(vec![7; longest]).expect("a datagram");
            // A busy machine may lose one.
            if let Ok(echo) = task::timeout(Duration::from_secs(1), connection.recv_datagram()).await {
                assert!((1_000..=longest).contains(&echo.expect("an echo").len()));
            }
        }
        longest
    })
}

#[test]
fn both_sides_use_a_path_with_a_large_mtu() {
    for stage in [Stage::epoll(), Stage::uring(), Stage::network(1)] {
        stage.run(|stage| {
            let jumbo = longest(stage, JUMBO);
            assert!(jumbo > 8_800, "{jumbo}");
            let ethernet = longest(stage, 1_472);
            assert!((1_100..1_472).contains(&ethernet), "{ethernet}");
        });
    }
}
