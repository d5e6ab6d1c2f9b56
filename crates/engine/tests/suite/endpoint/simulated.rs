//! Faults that only a simulated network has.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use tidegate_buffer::{Datagram, DatagramErrorReason, Transmit, Transmits};
use tidegate_codec::Endpoint;
use tidegate_engine::{EndpointLimits, Limits, task};
use tidegate_sys::DatagramOptions;
use tidegate_testkit::network::{DatagramFaults, FaultRates, Network};
use tidegate_testkit::seeds;

/// Echoes each datagram.
#[derive(Default)]
struct Echo(Vec<Transmit>);

impl Endpoint for Echo {
    fn handle_datagram(&mut self, datagram: Datagram, _now: Instant) {
        self.0.push(Transmit::response(&datagram, datagram.payload.clone()));
    }

    fn poll_transmit(&mut self, _now: Instant, transmits: &mut Transmits) {
        self.0.drain(..).for_each(|response| transmits.push(response));
    }
}

/// Sends 200 numbers to an echo over a bad network; returns how often each came back, and the trace.
fn numbers(seed: u64, faults: DatagramFaults) -> (BTreeMap<u16, usize>, Vec<u16>, u64, Network) {
    let network = Network::new(seed);
    network.set_faults(FaultRates::benign());
    network.set_datagram_faults(faults);
    let (server, client) = (network.host("10.0.0.1").node(), network.host("10.0.0.2").node());
    let (options, limits) = (DatagramOptions::default(), EndpointLimits::default());
    let echo = server.endpoint(7, &options, limits, Echo::default()).unwrap();
    let mut channel = client.datagrams(0, &options, limits).unwrap();
    let order = client.spawn(async move {
        for number in 0..200_u16 {
            channel.send_to(number.to_be_bytes().to_vec(), echo).unwrap();
            task::sleep(Duration::from_millis(1)).await;
        }
        task::sleep(Duration::from_secs(10)).await;
        let received = std::iter::from_fn(|| channel.try_recv_from());
        received.map(|datagram| u16::from_be_bytes([datagram.payload[0], datagram.payload[1]])).collect::<Vec<u16>>()
    });
    let order = network.run_task(Duration::from_secs(60), order);
    let mut counts = BTreeMap::new();
    order.iter().for_each(|number| *counts.entry(*number).or_insert(0) += 1);
    (counts, order, network.trace(), network)
}

#[test]
fn a_network_without_faults_loses_no_datagram() {
    for seed in seeds(10) {
        let (counts, _, _, network) = numbers(seed, DatagramFaults::default());
        assert!(counts.len() == 200 && counts.values().all(|count| *count == 1));
        assert_eq!((network.datagram_counts().sent, network.datagram_counts().arrived), (400, 400));
    }
}

#[test]
fn datagrams_are_lost_duplicated_and_overtaken_and_one_seed_gives_one_run() {
    let faults = DatagramFaults { lost: 10, duplicated: 10, delayed: 5, corrupted: 0, blocked: 8 };
    for seed in seeds(10) {
        let (counts, order, trace, network) = numbers(seed, faults);
        assert!(counts.len() < 200 && counts.values().any(|count| *count > 1));
        assert!(!order.is_sorted());
        let done = network.datagram_counts();
        assert!(done.lost > 0 && done.duplicated > 0 && done.delayed > 0 && done.blocked > 0, "{done:?}");
        assert_eq!(done.arrived, done.sent - done.lost + done.duplicated);
        assert_eq!(numbers(seed, faults).2, trace);
    }
}

#[test]
fn a_send_that_finds_no_room_waits_and_keeps_its_order() {
    for seed in seeds(10) {
        let (counts, order, _, network) = numbers(seed, DatagramFaults { blocked: 3, ..DatagramFaults::default() });
        assert!(counts.len() == 200 && order.is_sorted());
        assert!(network.datagram_counts().blocked > 0);
    }
}

#[test]
fn corrupted_datagrams_arrive_with_other_bytes() {
    let (counts, _, _, network) = numbers(3, DatagramFaults { corrupted: 2, ..DatagramFaults::default() });
    assert!(network.datagram_counts().corrupted > 0);
    assert!(counts.keys().any(|number| *number >= 200) || counts.len() < 200);
}

#[test]
fn a_cut_route_loses_datagrams_and_a_full_buffer_drops_them() {
    let network = Network::new(5);
    let hosts = ["10.0.0.1", "10.0.0.2"].map(|ip| network.host(ip));
    let (one, other) = (hosts[0].node(), hosts[1].node());
    let limits = EndpointLimits::default();
    let small = DatagramOptions { receive_buffer_bytes: Some(10_000), ..DatagramOptions::default() };
    let mut receiver = one.datagrams(9, &small, limits).unwrap();
    let mut sender = other.datagrams(0, &DatagramOptions::default(), limits).unwrap();
    let to = receiver.local_address().unwrap();
    network.partition(&hosts[0], &hosts[1]);
    sender.send_to(b"lost".to_vec(), to).unwrap();
    network.run_for(Duration::from_secs(1));
    network.heal(&hosts[0], &hosts[1]);
    sender.send_to(b"here".to_vec(), to).unwrap();
    network.run_for(Duration::from_secs(1));
    assert_eq!(receiver.try_recv_from().map(|datagram| datagram.payload.to_vec()), Some(b"here".to_vec()));
    assert_eq!((receiver.try_recv_from().is_none(), network.datagram_counts().lost), (true, 1));
    // They arrive at one moment, and the buffer has room for six.
    (0..20).for_each(|_| sender.send_to(vec![7; 1_000], to).unwrap());
    network.run_for(Duration::from_secs(1));
    let dropped = network.datagram_counts().overflowed;
    let received = std::iter::from_fn(|| receiver.try_recv_from()).count() as u64;
    assert_eq!(received + dropped, 20);
    assert_eq!(one.counts().datagrams_overflowed, dropped);
}

#[test]
fn a_datagram_above_the_mtu_is_refused_and_ports_of_streams_are_apart() {
    let network = Network::new(5);
    network.set_mtu(1_280);
    let (one, other) = (network.host("10.0.0.1").node(), network.host("10.0.0.2").node());
    let (options, limits) = (DatagramOptions::default(), EndpointLimits::default());
    let serve = |_| async { Ok::<_, std::io::Error>(()) };
    one.serve(9, Limits::default(), tidegate_codec::framing::Lines::new, serve).unwrap();
    let mut receiver = one.datagrams(9, &options, limits).unwrap();
    assert!(one.datagrams(9, &options, limits).is_err(), "the port has a datagram socket");
    let mut sender = other.datagrams(0, &options, limits).unwrap();
    let to: SocketAddr = receiver.local_address().unwrap();
    sender.send_to(vec![7; 1_253], to).unwrap();
    sender.send_to(vec![7; 1_252], to).unwrap();
    network.run_for(Duration::from_secs(1));
    let error = sender.next_error().expect("it is too long");
    assert_eq!((error.destination, error.reason), (Some(to), DatagramErrorReason::TooLong { mtu: Some(1_280) }));
    assert_eq!(receiver.try_recv_from().map(|datagram| datagram.payload.len()), Some(1_252));
    assert_eq!(other.counts().datagrams_lost, 1);
}

/// Sends so many datagrams of 1,000 bytes to each peer, and waits with them while the list has no room for a run.
#[derive(Default)]
struct Waiting(Vec<Transmit>);

impl Endpoint for Waiting {
    fn handle_datagram(&mut self, datagram: Datagram, _now: Instant) {
        self.0.extend((0..BURST).map(|_| Transmit::response(&datagram, vec![7; 1_000])));
    }

    fn poll_transmit(&mut self, _now: Instant, transmits: &mut Transmits) {
        while transmits.room(EndpointLimits::RUN_BYTES as usize) > 0
            && let Some(response) = self.0.pop()
        {
            transmits.push(response);
        }
    }
}

const BURST: usize = 200;

#[test]
fn a_protocol_that_waits_for_room_is_asked_again_after_the_kernel_took_all() {
    for waiting_bytes_max in [0, 1, 100_000, 4 * 1024 * 1024] {
        let network = Network::new(5);
        let (one, other) = (network.host("10.0.0.1").node(), network.host("10.0.0.2").node());
        let options = DatagramOptions::default();
        let limits = EndpointLimits { waiting_bytes_max, ..EndpointLimits::default() };
        let to = one.endpoint(7, &options, limits, Waiting::default()).unwrap();
        let mut channel = other.datagrams(0, &options, EndpointLimits::default()).unwrap();
        channel.send_to(b"ebb".to_vec(), to).unwrap();
        network.run_for(Duration::from_secs(1));
        let received = std::iter::from_fn(|| channel.try_recv_from()).count();
        let counts = one.counts();
        assert_eq!((received, counts.datagrams_sent), (BURST, BURST as u64), "{waiting_bytes_max}: {counts:?}");
    }
}
