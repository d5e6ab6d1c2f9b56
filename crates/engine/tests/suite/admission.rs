//! Caps of connections by address, in a simulated network: many hosts, and virtual time.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::Duration;

use tidegate_codec::framing::Lines;
use tidegate_engine::{Admission, AdmissionControl, Channel, ChannelError, Client, ConnectionRate, Limits};
use tidegate_sys::Address;
use tidegate_testkit::network::{Network, SimNode};

const PORT: u16 = 7000;

/// A loop that echoes lines, with these caps.
fn server(network: &Network, ip: &str, control: &Arc<AdmissionControl>) -> (SimNode, Address) {
    let node = network.host(ip).node();
    node.with(|event_loop| event_loop.admission(Some(control.clone())));
    let echo = |mut channel: Channel<Lines>| async move {
        while let Some(line) = channel.recv().await? {
            channel.send(line.into()).expect("there is room");
        }
        Ok::<_, ChannelError>(())
    };
    let to = node.serve(PORT, Limits::default(), Lines::new, echo).expect("the port is free");
    (node, to)
}

fn control(admission: &Admission) -> Arc<AdmissionControl> {
    AdmissionControl::new(admission).expect("it has a cap")
}

/// Connects, and returns the channel if the connection is served.
async fn connect(to: Address) -> Option<Channel<Lines>> {
    let mut channel = Client::at(to).connect(Lines::new()).await.ok()?;
    channel.send("ebb".into()).ok()?;
    let answer = channel.recv().await.ok()?;
    answer.map(|answer| assert_eq!(&*answer, b"ebb"))?;
    Some(channel)
}

/// One connection after the other until one is refused; returns how many were served.
fn serve_until_refused(network: &Network, client: &SimNode, to: &Address) -> usize {
    let to = to.clone();
    network.run_task(
        PATIENCE,
        client.spawn(async move {
            let mut served = 0;
            while let Some(channel) = connect(to.clone()).await {
                let _ = channel.close().await;
                served += 1;
            }
            served
        }),
    )
}

#[test]
fn the_rate_of_an_address_recovers_with_time() {
    let network = Network::new(1);
    let rate = ConnectionRate::per_minute(6).burst(4);
    let control = control(&Admission { rate_per_address: Some(rate), ..Admission::default() });
    let (server, to) = server(&network, "10.0.0.1", &control);
    let [first, other] = ["10.0.0.2", "10.0.0.3"].map(|ip| network.host(ip).node());
    assert_eq!(serve_until_refused(&network, &first, &to), 4);
    assert_eq!(serve_until_refused(&network, &other, &to), 4, "each address has a rate of its own");
    // One connection for each 10 seconds, at most the burst.
    for (seconds, served) in [(11, 1), (5, 0), (6, 1), (25, 2), (3_600, 4)] {
        network.run_for(Duration::from_secs(seconds));
        assert_eq!(serve_until_refused(&network, &first, &to), served, "{seconds} s later");
    }
    assert_eq!(server.counts().accepted, 16);
}

#[test]
fn addresses_of_one_64_bit_prefix_share_their_places() {
    let network = Network::new(2);
    let control = control(&Admission { connections_per_address_max: Some(2), ..Admission::default() });
    let (server, to) = server(&network, "2001:db8:1::1", &control);
    let hosts = ["2001:db8::1", "2001:db8::2:1", "2001:db8::3", "2001:db8:0:1::1"];
    let connect = |ip| network.run_task(PATIENCE, network.host(ip).node().spawn(connect(to.clone())));
    let channels = hosts.map(connect);
    assert_eq!(channels.each_ref().map(Option::is_some), [true, true, false, true]);
    assert_eq!((control.connections("2001:db8::9".parse().unwrap()), control.addresses()), (2, 2));
    drop(channels);
    assert!(network.run_until(PATIENCE, || server.counts().connections == 0));
    assert_eq!(control.addresses(), 0);
}

/// The bound is a small part of the addresses that come.
#[test]
fn a_full_table_keeps_its_bound_and_its_promises() {
    let network = Network::new(3);
    let control = control(&Admission {
        connections_per_address_max: Some(1),
        rate_per_address: Some(ConnectionRate::per_minute(1)),
        addresses_max: 10,
        ..Admission::default()
    });
    let loops = ["10.0.0.1", "10.0.0.2"].map(|ip| server(&network, ip, &control));
    let host = |number: u32| IpAddr::from(Ipv4Addr::from(0x0A01_0000 + number)).to_string();
    let start = |number: u32| {
        let to = loops[number as usize % 2].1.clone();
        network.host(&host(number)).node().spawn(connect(to))
    };
    // Addresses with connections keep their places; further ones are refused.
    let first: Vec<_> = (0..20).map(|number| network.run_task(PATIENCE, start(number))).collect();
    assert_eq!(first.iter().flatten().count(), 10);
    assert_eq!(control.addresses(), 10);
    drop(first);
    assert!(network.run_until(PATIENCE, || loops.iter().all(|(node, _)| node.counts().connections == 0)));
    // Addresses without connections give theirs up.
    for number in 20..320 {
        assert!(network.run_task(PATIENCE, start(number)).is_some(), "address {number} is served");
        let gone = network.run_until(PATIENCE, || loops.iter().all(|(node, _)| node.counts().connections == 0));
        assert!(gone && control.addresses() <= 10);
    }
}

const PATIENCE: Duration = Duration::from_secs(100);
