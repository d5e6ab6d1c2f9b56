//! Datagrams that no honest peer sends, before the handshake: an endpoint without a loop.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use tidegate::codec::{Datagram, Endpoint as _, Pool, Transmits};
use tidegate::quic::{Endpoint, SessionNumber, TransportLimits};
use tidegate_testkit::Random;
use tidegate_testkit::allocations::Region;

use crate::stage::{closing_initials_of, configs, initials_of};

/// An endpoint, with the datagrams that it sends.
struct Bench {
    endpoint: Endpoint,
    pool: Pool,
    now: Instant,
}

impl Bench {
    fn new(limits: TransportLimits) -> (Self, tidegate::quic::ServerConfig) {
        let (config, _) = configs(limits, TransportLimits::default());
        (Self { endpoint: config.endpoint(0), pool: Pool::new(), now: Instant::now() }, config)
    }

    fn receive(&mut self, bytes: &[u8], port: u16) -> Vec<Vec<u8>> {
        let source = SocketAddr::from(([192, 0, 2, 7], port));
        self.endpoint.handle_datagram(Datagram::new(self.pool.copy(bytes), source), self.now);
        self.sent()
    }

    fn sent(&mut self) -> Vec<Vec<u8>> {
        let mut transmits = Transmits::new(&self.pool);
        self.endpoint.poll_transmit(self.now, &mut transmits);
        std::iter::from_fn(|| transmits.pop()).map(|transmit| transmit.payload.to_vec()).collect()
    }
}

/// A long header (RFC 9000 §17.2) with ids of 8 bytes, and zeros behind it.
fn long(version: u32, length: usize) -> Vec<u8> {
    let mut bytes = vec![0xc0];
    bytes.extend(version.to_be_bytes());
    bytes.push(8);
    bytes.extend([1; 8]);
    bytes.push(8);
    bytes.extend([2; 8]);
    bytes.resize(length, 0);
    bytes
}

/// The first datagrams of a client.
fn initials() -> Vec<Vec<u8>> {
    initials_of(1).remove(0)
}

#[test]
fn an_unknown_version_is_answered_only_if_the_datagram_is_long() {
    let (mut bench, _) = Bench::new(TransportLimits::default());
    assert!(bench.receive(&long(0x1a2a_3a4a, 1199), 1).is_empty());
    let responses = bench.receive(&long(0x1a2a_3a4a, 1200), 1);
    assert_eq!(responses.len(), 1);
    // Version Negotiation, RFC 9000 §17.2.1: the ids are exchanged, and version 1 is the only one that is no grease.
    let response = &responses[0];
    assert_eq!((&response[1..5], &response[6..14], &response[15..23]), (&[0; 4][..], &[2; 8][..], &[1; 8][..]));
    let versions: Vec<_> = response[23..].chunks(4).filter(|version| version[0] & 0xf != 0xa).collect();
    assert_eq!(versions, [[0, 0, 0, 1]]);
}

#[test]
fn a_datagram_of_an_unknown_connection_gets_at_most_a_shorter_reset() {
    let (mut bench, _) = Bench::new(TransportLimits::default());
    // An id that another loop chose: nothing may reset its connection.
    let mut bytes = [0x40; 100];
    (bytes[1], bytes[2]) = (7, 7 ^ 5);
    assert!(bench.receive(&bytes, 1).is_empty());
    (bytes[1], bytes[2]) = (7, 7);
    for length in [1, 9, 21, 40, 100] {
        bench.now += Duration::from_secs(1);
        let resets = bench.receive(&bytes[..length], 1);
        assert!(resets.iter().all(|reset| reset.len() < length), "{length}: {resets:?}");
    }
    // Resets have a rate, so that two endpoints cannot reset each other without end.
    bench.now += Duration::from_secs(1);
    let resets: usize = (0..100).map(|_| bench.receive(&bytes, 1).len()).sum();
    assert_eq!(resets, 1);
}

#[test]
fn bytes_at_random_change_nothing() {
    for seed in tidegate_testkit::seeds(20) {
        let mut random = Random::new(seed);
        let (mut bench, config) = Bench::new(TransportLimits::default());
        for _ in 0..500 {
            let length = random.below(1500);
            let mut bytes: Vec<u8> = (0..length).map(|_| random.below(256) as u8).collect();
            if random.below(2) == 0 {
                let header = long(1, length.max(23));
                bytes.resize(header.len(), 0);
                bytes[..23].copy_from_slice(&header[..23]);
            }
            bench.receive(&bytes, 1);
        }
        assert_eq!((bench.endpoint.connections(), config.counts().connections), (0, 0));
    }
}

#[test]
fn changed_initials_do_not_make_a_connection_of_an_honest_client() {
    let initials = initials();
    assert!(initials.iter().all(|initial| initial.len() >= 1200), "RFC 9000 §14.1");
    for seed in tidegate_testkit::seeds(10) {
        let mut random = Random::new(seed);
        let (mut bench, config) = Bench::new(TransportLimits::default());
        for port in 0..200 {
            let mut bytes = initials[random.below(initials.len())].clone();
            for _ in 0..=random.below(4) {
                let place = random.below(bytes.len());
                bytes[place] ^= 1 << random.below(8);
            }
            bytes.truncate(1 + random.below(bytes.len() * 2).min(bytes.len() - 1));
            bench.receive(&bytes, port);
        }
        // None was completed, and after the deadline of handshakes none is left.
        assert_eq!(config.counts().handshakes, 0);
        for _ in 0..60 {
            bench.now += Duration::from_secs(1);
            bench.endpoint.handle_timeout(bench.now);
            bench.sent();
        }
        assert_eq!((bench.endpoint.connections(), config.counts().connections), (0, 0));
        assert_eq!(bench.endpoint.poll_timeout(), None);
    }
}

#[test]
fn a_short_initial_is_dropped_and_a_whole_one_is_answered() {
    let initials = initials();
    let (mut bench, config) = Bench::new(TransportLimits::default());
    for length in [1, 23, 600, 1199] {
        assert!(bench.receive(&initials[0][..length], 1).is_empty());
    }
    assert_eq!(config.counts().begun, 0);
    let answers: usize =
        initials.iter().map(|initial| bench.receive(initial, 1).iter().map(Vec::len).sum::<usize>()).sum();
    let received: usize = initials.iter().map(Vec::len).sum();
    assert_eq!(config.counts().begun, 1);
    // RFC 9000 §8.1: three times as many bytes, until the address is validated.
    assert!(answers > 0 && answers <= 3 * received, "{answers} bytes for {received}");
}

#[test]
fn an_unvalidated_client_gets_three_times_its_bytes_and_no_more() {
    let initials = initials();
    let (mut bench, _) = Bench::new(TransportLimits::default());
    let received: usize = initials.iter().map(Vec::len).sum();
    let mut answers: usize =
        initials.iter().map(|initial| bench.receive(initial, 1).iter().map(Vec::len).sum::<usize>()).sum();
    for _ in 0..300 {
        bench.now += Duration::from_millis(100);
        bench.endpoint.handle_timeout(bench.now);
        answers += bench.sent().iter().map(Vec::len).sum::<usize>();
    }
    // quinn-proto begins a datagram while any of the budget is left, so one may exceed it.
    assert!(answers <= 3 * received + 1472, "{answers} bytes for {received}");
    assert_eq!(bench.endpoint.connections(), 0);
}

#[test]
fn many_clients_cost_bounded_memory() {
    let limits = TransportLimits { handshakes_max: 64, ..TransportLimits::default() };
    let (mut bench, config) = Bench::new(limits);
    let initials = initials();
    let mut retries = 0;
    for (port, initials) in (1..).zip(initials_of(100)) {
        let answers: Vec<_> = initials.iter().flat_map(|initial| bench.receive(initial, port)).collect();
        retries += usize::from(answers.iter().any(|answer| answer[0] & 0xf0 == 0xf0));
    }
    let counts = config.counts();
    assert_eq!((bench.endpoint.connections(), retries), (64 / 8 + 1, 100 - (64 / 8 + 1)), "{counts:?}");
    // An honest client among them is served, by a Retry.
    let answers: Vec<_> = initials.iter().flat_map(|initial| bench.receive(initial, 9999)).collect();
    assert!(answers.iter().any(|answer| answer[0] & 0xf0 == 0xf0));
}

#[test]
fn a_client_that_closes_with_its_first_packet_leaves_nothing() {
    let (mut bench, config) = Bench::new(TransportLimits::default());
    for (port, initial) in (1..).zip(closing_initials_of(20)) {
        bench.receive(&initial, port);
        assert_eq!((bench.endpoint.connections(), bench.endpoint.poll_timeout()), (0, None));
    }
    let counts = config.counts();
    assert_eq!((counts.begun, counts.connections, counts.handshakes_failed), (20, 0, 20));
    // Those that are under way are counted again.
    let initials = initials();
    initials.iter().for_each(|initial| drop(bench.receive(initial, 1)));
    assert_eq!((bench.endpoint.connections(), config.counts().retries), (1, 0));
}

#[test]
fn a_connection_that_is_over_counts_until_its_last_packets_have_left() {
    let limits = TransportLimits { connections_max: 1, ..TransportLimits::default() };
    let (mut bench, config) = Bench::new(limits);
    let clients = initials_of(3);
    clients[0].iter().for_each(|initial| drop(bench.receive(initial, 1)));
    assert_eq!((bench.endpoint.connections(), config.counts().refused), (1, 0));
    bench.endpoint.close_connection(SessionNumber(1 << 32), 0, "", bench.now);
    assert_eq!(bench.endpoint.connections(), 0);
    bench.receive(&clients[1][0], 2);
    assert_eq!((config.counts().begun, config.counts().refused), (1, 1));
    // Three times the probe timeout, RFC 9000 §10.2.
    bench.now += Duration::from_secs(10);
    bench.endpoint.handle_timeout(bench.now);
    bench.receive(&clients[2][0], 3);
    assert_eq!((config.counts().begun, config.counts().refused), (2, 1));
}

#[test]
fn a_datagram_has_no_more_memory_than_its_bytes() {
    let (mut bench, _) = Bench::new(TransportLimits::default());
    // A reset would need memory as well, and none is due for a connection of another loop.
    let mut bytes = [0x40; 100];
    (bytes[1], bytes[2]) = (7, 7 ^ 5);
    let datagram = Datagram::new(bench.pool.copy(&bytes), SocketAddr::from(([192, 0, 2, 7], 1)));
    let region = Region::new();
    bench.endpoint.handle_datagram(datagram, bench.now);
    let change = region.change();
    assert!((100..1024).contains(&change.bytes_allocated), "{change:?}");
}

#[test]
fn a_client_is_declined_once_a_batch_and_again_in_the_next_one() {
    let limits = TransportLimits { connections_max: 1, ..TransportLimits::default() };
    let (mut bench, config) = Bench::new(limits);
    let clients = initials_of(2);
    let datagram = |bench: &Bench, bytes: &[u8], port| {
        Datagram::new(bench.pool.copy(bytes), SocketAddr::from(([192, 0, 2, 7], port)))
    };
    for (initial, port) in [(&clients[0][0], 1), (&clients[1][0], 2), (&clients[1][0], 2)] {
        let datagram = datagram(&bench, initial, port);
        bench.endpoint.handle_datagram(datagram, bench.now);
    }
    assert_eq!((config.counts().begun, config.counts().refused), (1, 1));
    // The list has no room for the packets of the first client, which wait.
    let mut transmits = Transmits::new(&bench.pool).with_limits(1, 1 << 20);
    bench.endpoint.poll_transmit(bench.now, &mut transmits);
    assert_eq!(transmits.len(), 1);
    let datagram = datagram(&bench, &clients[1][0], 2);
    bench.endpoint.handle_datagram(datagram, bench.now);
    assert_eq!(config.counts().refused, 2);
}
