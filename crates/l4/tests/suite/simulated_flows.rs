//! Flows of datagrams through a forwarder in a simulated network.

use std::net::SocketAddr;
use std::time::Duration;

use tidegate_codec::{Datagram, Endpoint, Transmit, Transmits};
use tidegate_engine::{DatagramChannel, EndpointLimits, task};
use tidegate_l4::{UdpCounts, UdpForwarder, UdpRules, Upstreams};
use tidegate_sys::DatagramOptions;
use tidegate_testkit::network::{Network, SimNode};

const PORT: u16 = 5_300;
const WAIT: Duration = Duration::from_secs(1_000);
const FORWARDER: ([u8; 4], u16) = ([10, 0, 0, 1], PORT);

/// Responds to each datagram with the port that it came from.
#[derive(Default)]
struct Ports(Vec<Transmit>);

impl Endpoint for Ports {
    fn handle_datagram(&mut self, datagram: Datagram, _now: std::time::Instant) {
        let text = format!("{}>{}", String::from_utf8_lossy(&datagram.payload), datagram.source.port());
        self.0.push(Transmit::response(&datagram, text.into_bytes()));
    }

    fn poll_transmit(&mut self, _now: std::time::Instant, transmits: &mut Transmits) {
        self.0.drain(..).for_each(|response| transmits.push(response));
    }
}

fn server(network: &Network) -> SimNode {
    let node = network.host("10.0.0.2").node();
    node.endpoint(PORT, &DatagramOptions::default(), EndpointLimits::default(), Ports::default()).expect("a port");
    node
}

fn start(network: &Network, rules: UdpRules) -> (SimNode, UdpForwarder) {
    let upstreams = Upstreams::builder().server("udp://10.0.0.2:5300".parse().expect("a server"), 1).build();
    let forwarder = UdpForwarder::new(&upstreams, rules);
    let host = network.host("10.0.0.1");
    let node = host.node();
    let front = node.datagrams(PORT, &forwarder.options(), EndpointLimits::default()).expect("a port");
    // The loop is borrowed while its tasks run, so each socket of a flow is opened on it before.
    let spare = std::cell::RefCell::new(spares(&node, 40));
    let running = forwarder
        .clone()
        .run(front, move |_, _| spare.borrow_mut().pop().ok_or_else(|| std::io::ErrorKind::Other.into()));
    drop(node.spawn(running));
    (node, forwarder)
}

/// Sockets of flows.
fn spares(node: &SimNode, count: u16) -> Vec<DatagramChannel> {
    let peer = Some(SocketAddr::from(([10, 0, 0, 2], PORT)));
    let options = DatagramOptions { peer, ..DatagramOptions::default() };
    let open = |number| node.datagrams(10_000 + number, &options, EndpointLimits::default()).expect("a port");
    (0..count).rev().map(open).collect()
}

fn clients(network: &Network, count: u16) -> (SimNode, Vec<DatagramChannel>) {
    let node = network.host("10.0.0.9").node();
    let open = |number| node.datagrams(7_000 + number, &DatagramOptions::default(), EndpointLimits::default());
    let channels = (0..count).map(|number| open(number).expect("a port")).collect();
    (node, channels)
}

/// Sends a text and returns the response, or nothing if none comes within a second.
async fn ask(channel: &mut DatagramChannel, text: &str) -> Option<String> {
    channel.send_to(text.as_bytes().to_vec(), FORWARDER.into()).expect("an open socket");
    let response = task::timeout(Duration::from_secs(1), channel.recv_from()).await.ok()?.expect("a datagram");
    assert_eq!(response.source, FORWARDER.into());
    Some(String::from_utf8_lossy(&response.payload).into_owned())
}

fn counts(forwarder: &UdpForwarder) -> UdpCounts {
    forwarder.counts()
}

#[test]
fn each_source_is_a_flow_with_a_socket_of_its_own() {
    let network = Network::new(1);
    let _server = server(&network);
    let (_node, forwarder) = start(&network, UdpRules::default());
    let (node, mut channels) = clients(&network, 3);
    let responses = node.spawn(async move {
        let mut responses = Vec::new();
        for round in 0..2 {
            for channel in &mut channels {
                responses.push(ask(channel, &format!("{round}")).await.expect("a response"));
            }
        }
        responses
    });
    let responses = network.run_task(WAIT, responses);
    assert_eq!(responses, ["0>10000", "0>10001", "0>10002", "1>10000", "1>10001", "1>10002"]);
    let counts = counts(&forwarder);
    assert_eq!((counts.flows, counts.begun, counts.forwarded, counts.returned, counts.dropped), (3, 3, 6, 6, 0));
}

#[test]
fn an_idle_flow_ends_and_one_that_moves_does_not() {
    let network = Network::new(1);
    let _server = server(&network);
    let mut rules = UdpRules::default();
    rules.idle_timeout = Duration::from_secs(10);
    let (_node, forwarder) = start(&network, rules);
    let (node, mut channels) = clients(&network, 1);
    let ports = node.spawn(async move {
        let mut ports = Vec::new();
        for pause in [8, 8, 12, 0] {
            ports.push(ask(&mut channels[0], "").await.expect("a response"));
            task::sleep(Duration::from_secs(pause)).await;
        }
        ports
    });
    assert_eq!(network.run_task(WAIT, ports), [">10000", ">10000", ">10000", ">10001"]);
    let counts = counts(&forwarder);
    assert_eq!((counts.flows, counts.begun, counts.expired), (1, 2, 1));
}

#[test]
fn a_flow_with_the_longest_idle_timeout_stays() {
    let network = Network::new(1);
    let _server = server(&network);
    let mut rules = UdpRules::default();
    rules.idle_timeout = Duration::MAX;
    let (_node, forwarder) = start(&network, rules);
    let (node, mut channels) = clients(&network, 1);
    let ports = node.spawn(async move {
        let first = ask(&mut channels[0], "").await;
        task::sleep(Duration::from_secs(900)).await;
        [first, ask(&mut channels[0], "").await]
    });
    assert_eq!(network.run_task(WAIT, ports), [Some(">10000".to_owned()), Some(">10000".to_owned())]);
    assert_eq!(counts(&forwarder).expired, 0);
}

#[test]
fn a_new_flow_takes_the_place_of_the_one_that_was_idle_longest() {
    let network = Network::new(1);
    let _server = server(&network);
    let mut rules = UdpRules::default();
    rules.flows_max = 2;
    let (_node, forwarder) = start(&network, rules);
    let (node, mut channels) = clients(&network, 3);
    let ports = node.spawn(async move {
        let mut ports = Vec::new();
        // The third one displaces the second, since the first was used again.
        for client in [0, 1, 0, 2, 0, 1] {
            ports.push(ask(&mut channels[client], "").await.expect("a response"));
            task::sleep(Duration::from_millis(10)).await;
        }
        ports
    });
    assert_eq!(network.run_task(WAIT, ports), [">10000", ">10001", ">10000", ">10002", ">10000", ">10003"]);
    let counts = counts(&forwarder);
    assert_eq!((counts.flows, counts.begun, counts.displaced), (2, 4, 2));
}

#[test]
fn a_thousand_sources_leave_as_many_flows_as_may_be() {
    let network = Network::new(1);
    let _server = server(&network);
    let mut rules = UdpRules::default();
    rules.flows_max = 5;
    let (_node, forwarder) = start(&network, rules);
    let (node, mut channels) = clients(&network, 30);
    let all = node.spawn(async move {
        for channel in &mut channels {
            ask(channel, "").await.expect("a response");
        }
    });
    network.run_task(WAIT, all);
    let counts = counts(&forwarder);
    assert_eq!((counts.flows, counts.begun, counts.displaced), (5, 30, 25));
}

#[test]
fn a_report_that_the_upstream_has_no_socket_ends_the_flow() {
    let network = Network::new(1);
    let _none = network.host("10.0.0.2").node();
    let (_node, forwarder) = start(&network, UdpRules::default());
    let (node, mut channels) = clients(&network, 1);
    let first = node.spawn(async move { (ask(&mut channels[0], "").await, channels) });
    let (response, mut channels) = network.run_task(WAIT, first);
    assert_eq!(response, None);
    assert_eq!((counts(&forwarder).flows, counts(&forwarder).unreachable), (0, 1));
    // The next datagram has a flow of its own.
    let _server = {
        let node = network.host("10.0.0.2").node();
        node.endpoint(PORT, &DatagramOptions::default(), EndpointLimits::default(), Ports::default()).expect("a port");
        node
    };
    let second = node.spawn(async move { ask(&mut channels[0], "").await });
    assert_eq!(network.run_task(WAIT, second).as_deref(), Some(">10001"));
}

#[test]
fn clients_that_are_refused_and_datagrams_that_are_too_long_are_dropped() {
    let network = Network::new(1);
    let _server = server(&network);
    let mut rules = UdpRules::default();
    rules.deny = vec!["10.0.0.9/32".parse().expect("a network")];
    rules.datagram_bytes_max = 100;
    let (_node, forwarder) = start(&network, rules.clone());
    let (node, mut channels) = clients(&network, 1);
    let refused = node.spawn(async move { (ask(&mut channels[0], "").await, channels) });
    let (response, mut channels) = network.run_task(WAIT, refused);
    assert_eq!((response, counts(&forwarder).dropped, counts(&forwarder).flows), (None, 1, 0));
    rules.deny.clear();
    let upstreams = Upstreams::builder().server("udp://10.0.0.2:5300".parse().expect("a server"), 1).build();
    forwarder.replace(&upstreams, rules);
    let all = node.spawn(async move {
        let long = ask(&mut channels[0], &"~".repeat(101)).await;
        (long, ask(&mut channels[0], &"~".repeat(100)).await)
    });
    let (long, short) = network.run_task(WAIT, all);
    assert_eq!((long, counts(&forwarder).dropped), (None, 2));
    assert!(short.is_some_and(|text| text.ends_with(">10000")));
}

#[test]
fn a_drain_ends_the_flows() {
    let network = Network::new(1);
    let _server = server(&network);
    let (forwarding, forwarder) = start(&network, UdpRules::default());
    let (node, mut channels) = clients(&network, 1);
    let asked = node.spawn(async move { ask(&mut channels[0], "").await });
    assert!(network.run_task(WAIT, asked).is_some());
    forwarding.drain(Duration::from_secs(5));
    assert!(network.run_until(Duration::from_secs(2), || forwarding.is_drained()));
    assert_eq!(counts(&forwarder).flows, 0);
}
