//! Datagram sockets: reports of a batch, errors of single datagrams, runs, pauses.

use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::num::NonZeroU16;
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

use socket2::SockRef;
use tidegate_buffer::{
    Ancillary, ControlMessage, Datagram, DatagramError, DatagramErrorReason, Ecn, LocalAddress, Membership, Pool,
    Transmit, Transmits,
};
use tidegate_sys::{Completion, DatagramOptions, Driver, Operation, Side, Socket, SourceGroup, Token, Transmission};

use crate::driver::harness::{PATIENCE, uninterrupted};
use crate::driver::which::Which;

/// A driver with one datagram socket, and its reports.
pub(super) struct Endpoint {
    pub(super) driver: Box<dyn Driver>,
    pub(super) pool: Pool,
    pub(super) token: Token,
    /// Of UDP.
    address: SocketAddr,
    pub(super) datagrams: Vec<Datagram>,
    /// The lengths of the batches.
    batches: Vec<usize>,
    pub(super) errors: Vec<DatagramError>,
}

impl Endpoint {
    fn new(driver: Which, options: &DatagramOptions) -> Self {
        Self::at(driver, "127.0.0.1:0", options)
    }

    fn at(driver: Which, address: &str, options: &DatagramOptions) -> Self {
        Self::on(driver, Socket::bind_datagrams(address.parse().unwrap(), options).unwrap(), options)
    }

    pub(super) fn on(driver: Which, socket: Socket, options: &DatagramOptions) -> Self {
        let pool = Pool::new();
        let mut driver = driver.make(&pool).unwrap();
        let address = socket.address(Side::Local).unwrap().ip().unwrap_or(Datagram::NO_SOURCE);
        let token = Token { slot: 3, generation: 7 };
        assert!(driver.submit(token, Operation::Bind { socket, options }).is_none());
        driver.submit(token, Operation::Receive(true));
        Self { driver, pool, token, address, datagrams: Vec::new(), batches: Vec::new(), errors: Vec::new() }
    }

    /// One turn.
    fn turn(&mut self, timeout: Duration) {
        self.driver.wait(Some(timeout)).unwrap();
        while let Some((token, completion)) = self.driver.next_of_any() {
            assert_eq!(token, self.token);
            match completion {
                Completion::Datagrams(mut batch) => {
                    self.batches.push(batch.len());
                    self.datagrams.append(&mut batch);
                    self.driver.give_back(batch);
                }
                Completion::DatagramErrors(mut errors) => self.errors.append(&mut errors),
                other => panic!("{other:?}"),
            }
        }
    }

    pub(super) fn run_until(&mut self, mut is_so: impl FnMut(&Self) -> bool) {
        let deadline = Instant::now() + PATIENCE;
        while !is_so(self) {
            assert!(Instant::now() < deadline, "{:?} {:?}", self.datagrams, self.errors);
            self.turn(Duration::from_millis(100));
        }
    }

    /// Runs until a datagram has come that was sent after everything else.
    fn fence(&mut self) {
        let peer = UdpSocket::bind("127.0.0.1:0").unwrap();
        let to = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), self.address.port());
        peer.send_to(b"fence", to).unwrap();
        let from = peer.local_addr().unwrap();
        self.run_until(|endpoint| endpoint.datagrams.iter().any(|datagram| datagram.source == from));
        self.datagrams.retain(|datagram| datagram.source != from);
    }

    pub(super) fn send(&mut self, transmits: impl IntoIterator<Item = Transmit>) -> Transmission {
        let mut list = Transmits::new(&self.pool);
        transmits.into_iter().for_each(|transmit| list.push(transmit));
        match self.driver.submit(self.token, Operation::Transmit(&mut list)) {
            Some(Completion::Transmitted(mut transmission)) => {
                assert!(list.is_empty() && !transmission.is_blocked);
                self.errors.append(&mut transmission.errors);
                transmission
            }
            other => panic!("{other:?}"),
        }
    }

    pub(super) fn payloads(&self) -> Vec<&[u8]> {
        self.datagrams.iter().map(|datagram| &*datagram.payload).collect()
    }
}

fn peer() -> UdpSocket {
    let peer = UdpSocket::bind("127.0.0.1:0").unwrap();
    peer.set_read_timeout(Some(PATIENCE)).unwrap();
    peer
}

/// A socket that receives from itself alone, and its address: the kernel reports a datagram of another socket.
fn closed_port() -> (UdpSocket, SocketAddr) {
    let socket = peer();
    let address = socket.local_addr().unwrap();
    socket.connect(address).unwrap();
    (socket, address)
}

fn receive(peer: &UdpSocket) -> Vec<u8> {
    let mut bytes = vec![0; 70_000];
    let length = uninterrupted(|| peer.recv(&mut bytes)).unwrap();
    bytes.truncate(length);
    bytes
}

fn run(length: usize, size: u16, to: SocketAddr) -> Transmit {
    let bytes: Vec<u8> = (0..length).map(|place| (place / usize::from(size)) as u8).collect();
    Transmit { segment_size: NonZeroU16::new(size), ..Transmit::new(bytes, to) }
}

pub(crate) fn a_datagram_has_its_source_its_local_address_its_mark_and_its_lifetime(driver: Which) {
    let mut endpoint = Endpoint::at(driver, "0.0.0.0:0", &DatagramOptions::default());
    let peer = peer();
    SockRef::from(&peer).set_tos_v4(Ecn::Ect0.bits().into()).unwrap();
    SockRef::from(&peer).set_ttl_v4(17).unwrap();
    peer.send_to(b"tide", (Ipv4Addr::LOCALHOST, endpoint.address.port())).unwrap();
    endpoint.run_until(|endpoint| !endpoint.datagrams.is_empty());
    let datagram = &endpoint.datagrams[0];
    assert_eq!((&*datagram.payload, datagram.source), (&b"tide"[..], peer.local_addr().unwrap()));
    assert_eq!(datagram.local.address, Some(IpAddr::V4(Ipv4Addr::LOCALHOST)));
    assert_ne!(datagram.local.interface, 0);
    assert_eq!((datagram.ecn, datagram.ttl), (Ecn::Ect0, Some(17)));
    assert_eq!((datagram.segment_size, datagram.truncated), (None, false));
}

pub(crate) fn a_socket_without_facts_reports_the_source_alone(driver: Which) {
    let options = DatagramOptions { facts: false, ..DatagramOptions::default() };
    for at in ["127.0.0.1:0", "[::]:0"] {
        let mut endpoint = Endpoint::at(driver, at, &options);
        let peer = peer();
        SockRef::from(&peer).set_tos_v4(Ecn::Ect0.bits().into()).unwrap();
        peer.send_to(b"tide", (Ipv4Addr::LOCALHOST, endpoint.address.port())).unwrap();
        endpoint.run_until(|endpoint| !endpoint.datagrams.is_empty());
        let datagram = &endpoint.datagrams[0];
        assert_eq!((&*datagram.payload, datagram.source), (&b"tide"[..], peer.local_addr().unwrap()));
        assert_eq!(datagram.local, LocalAddress::default());
        assert_eq!((datagram.ecn, datagram.ttl, datagram.truncated), (Ecn::NotCapable, None, false));
        let response = Transmit::response(datagram, b"ebb".to_vec());
        assert_eq!(endpoint.send([response]).sent, 1);
        assert_eq!(receive(&peer), b"ebb");
        // Reports of the network come in either case.
        let (_socket, closed) = closed_port();
        assert_eq!(endpoint.send([Transmit::new(b"none".to_vec(), closed)]).sent, 1);
        endpoint.run_until(|endpoint| !endpoint.errors.is_empty());
        assert_eq!(endpoint.errors[0].destination, Some(closed));
    }
}

pub(crate) fn a_response_leaves_from_the_address_that_the_query_came_to(driver: Which) {
    let options = DatagramOptions::default();
    let (mut one, mut other) = (Endpoint::at(driver, "0.0.0.0:0", &options), Endpoint::new(driver, &options));
    let second = IpAddr::from([127, 0, 0, 2]);
    let mut query = Transmit::new(b"query".to_vec(), SocketAddr::new(second, one.address.port()));
    query.ecn = Ecn::Ect1;
    assert_eq!(other.send([query]).sent, 1);
    one.run_until(|endpoint| !endpoint.datagrams.is_empty());
    assert_eq!((one.datagrams[0].local.address, one.datagrams[0].ecn), (Some(second), Ecn::Ect1));
    let response = Transmit::response(&one.datagrams[0], one.datagrams[0].payload.clone());
    assert_eq!(one.send([response]).sent, 1);
    other.run_until(|endpoint| !endpoint.datagrams.is_empty());
    assert_eq!(other.datagrams[0].source, SocketAddr::new(second, one.address.port()));
    assert_eq!(other.datagrams[0].ecn, Ecn::NotCapable);
}

pub(crate) fn a_socket_of_ipv6_has_peers_of_ipv4(driver: Which) {
    let mut endpoint = Endpoint::at(driver, "[::]:0", &DatagramOptions::default());
    let peer = peer();
    let v6 = UdpSocket::bind("[::1]:0").unwrap();
    v6.set_read_timeout(Some(PATIENCE)).unwrap();
    peer.send_to(b"4", (Ipv4Addr::LOCALHOST, endpoint.address.port())).unwrap();
    v6.send_to(b"6", ("::1", endpoint.address.port())).unwrap();
    endpoint.run_until(|endpoint| endpoint.datagrams.len() == 2);
    let sources = [peer.local_addr().unwrap(), v6.local_addr().unwrap()];
    let datagrams = std::mem::take(&mut endpoint.datagrams);
    for datagram in &datagrams {
        assert!(sources.contains(&datagram.source), "{datagram:?}");
        assert_eq!(datagram.local.address, Some(datagram.source.ip()));
        assert!(datagram.ttl.is_some());
        let mut response = Transmit::response(datagram, datagram.payload.clone());
        response.ecn = Ecn::Ect0;
        assert_eq!(endpoint.send([response]).sent, 1);
    }
    assert_eq!((receive(&peer), receive(&v6)), (b"4".to_vec(), b"6".to_vec()));
    assert_eq!(endpoint.errors, []);
}

pub(crate) fn empty_datagrams_are_reported_as_any_other(driver: Which) {
    let mut endpoint = Endpoint::new(driver, &DatagramOptions::default());
    let peer = peer();
    for _ in 0..300 {
        peer.send_to(b"", endpoint.address).unwrap();
        endpoint.turn(Duration::ZERO);
    }
    endpoint.fence();
    assert_eq!(endpoint.datagrams.len(), 300);
    assert!(endpoint.datagrams.iter().all(|datagram| datagram.payload.is_empty() && datagram.count() == 1));
    let to = peer.local_addr().unwrap();
    assert_eq!(endpoint.send([Transmit::new(Vec::new(), to)]).sent, 1);
    assert_eq!(receive(&peer), b"");
}

/// A flood of them holds a turn up no longer than one of other datagrams.
pub(crate) fn an_empty_datagram_has_a_place_in_its_batch(driver: Which) {
    let mut endpoint = Endpoint::new(driver, &DatagramOptions::default());
    let peer = peer();
    for _ in 0..20 {
        for _ in 0..50 {
            peer.send_to(b"", endpoint.address).unwrap();
        }
        endpoint.turn(Duration::ZERO);
    }
    endpoint.fence();
    assert_eq!(endpoint.datagrams.len(), 1_000);
    // The last one is the fence.
    assert_eq!(endpoint.batches.iter().sum::<usize>(), 1_001);
    assert!(endpoint.batches.iter().all(|length| (1..=64).contains(length)), "{:?}", endpoint.batches);
}

/// The driver keeps nothing for an address.
pub(crate) fn datagrams_of_100_000_addresses_have_their_sources(driver: Which) {
    let mut endpoint = Endpoint::new(driver, &DatagramOptions::default());
    let mut sources = Vec::new();
    let before = endpoint.pool.ledger().used();
    for number in 0..100_000_u32 {
        let [_, high, middle, low] = number.to_be_bytes();
        let peer = UdpSocket::bind(SocketAddr::from(([127, 1 + high, middle, low], 0))).unwrap();
        sources.push(peer.local_addr().unwrap());
        peer.send_to(&number.to_be_bytes(), endpoint.address).unwrap();
        if number % 50 == 49 {
            let expected = sources.len();
            endpoint.run_until(|endpoint| endpoint.datagrams.len() == expected);
            // Payloads that are kept would keep their memory.
            let last = endpoint.datagrams.iter_mut().rev().take(50);
            last.for_each(|datagram| datagram.payload = Pool::new().copy(&datagram.payload));
        }
    }
    let seen: Vec<_> = endpoint.datagrams.iter().map(|datagram| datagram.source).collect();
    assert_eq!(seen, sources);
    let grown = endpoint.pool.ledger().used().saturating_sub(before);
    assert!(grown < 512 * 1024, "{grown} bytes");
}

pub(crate) fn a_datagram_that_is_too_long_is_truncated_and_marked(driver: Which) {
    let mut endpoint = Endpoint::new(driver, &DatagramOptions { payload_bytes_max: 100, ..Default::default() });
    let peer = peer();
    for length in [99, 100, 101, 65_000] {
        peer.send_to(&vec![7; length], endpoint.address).unwrap();
    }
    endpoint.run_until(|endpoint| endpoint.datagrams.len() == 4);
    let lengths: Vec<_> =
        endpoint.datagrams.iter().map(|datagram| (datagram.payload.len(), datagram.truncated)).collect();
    assert_eq!(lengths, [(99, false), (100, false), (100, true), (100, true)]);
}

pub(crate) fn a_port_without_a_socket_is_reported_and_the_socket_stays_usable(driver: Which) {
    let mut endpoint = Endpoint::new(driver, &DatagramOptions::default());
    let (peer, (_socket, closed)) = (peer(), closed_port());
    let to = peer.local_addr().unwrap();
    // The kernel reports the first one with the second, which is not lost.
    let sent = endpoint.send([Transmit::new(b"1".to_vec(), closed), Transmit::new(b"2".to_vec(), to)]);
    assert_eq!((sent.sent, sent.lost), (2, 0));
    endpoint.run_until(|endpoint| !endpoint.errors.is_empty());
    let reason = DatagramErrorReason::PortUnreachable;
    assert_eq!(endpoint.errors, [DatagramError { destination: Some(closed), reason }]);
    assert_eq!(receive(&peer), b"2");
    endpoint.fence();
    assert_eq!(endpoint.send([Transmit::new(b"3".to_vec(), to)]).sent, 1);
    assert_eq!(receive(&peer), b"3");
}

pub(crate) fn a_datagram_that_cannot_be_sent_is_dropped_alone(driver: Which) {
    let mut endpoint = Endpoint::new(driver, &DatagramOptions::default());
    let peer = peer();
    let to = peer.local_addr().unwrap();
    let broadcast = SocketAddr::from(([255; 4], 9));
    let sent = endpoint.send([
        Transmit::new(b"1".to_vec(), to),
        Transmit::new(vec![0; 65_530], to),
        Transmit::new(b"2".to_vec(), broadcast),
        Transmit { destination: None, ..Transmit::new(b"3".to_vec(), to) },
        Transmit { local: LocalAddress { address: Some([192, 0, 2, 1].into()), interface: 0 }, ..run(9, 3, to) },
        Transmit::new(b"4".to_vec(), to),
    ]);
    assert_eq!((sent.sent, sent.lost), (2, 6), "{:?}", endpoint.errors);
    assert_eq!((receive(&peer), receive(&peer)), (b"1".to_vec(), b"4".to_vec()));
    assert!(matches!(endpoint.errors[0].reason, DatagramErrorReason::TooLong { .. }), "{:?}", endpoint.errors[0]);
    assert_eq!(
        endpoint.errors.iter().map(|error| error.destination).collect::<Vec<_>>()[..3],
        [Some(to), Some(broadcast), None]
    );
}

pub(crate) fn a_flood_of_reports_loses_no_datagram(driver: Which) {
    let mut endpoint = Endpoint::new(driver, &DatagramOptions::default());
    let (peer, (_socket, closed)) = (peer(), closed_port());
    let to = peer.local_addr().unwrap();
    for number in 0..500_u16 {
        let number = number.to_be_bytes().to_vec();
        let sent = endpoint.send([Transmit::new(number.clone(), closed), Transmit::new(number.clone(), to)]);
        assert_eq!((sent.sent, sent.lost), (2, 0));
        assert_eq!(receive(&peer), number);
        peer.send_to(&number, endpoint.address).unwrap();
        // Reports and datagrams share the kernel's buffer.
        if number[1] % 32 == 0 {
            endpoint.fence();
        }
    }
    endpoint.run_until(|endpoint| endpoint.datagrams.len() == 500);
    // The kernel limits how many it reports.
    assert!(endpoint.errors.iter().all(|error| error.destination == Some(closed)));
    assert!(!endpoint.errors.is_empty());
}

pub(crate) fn a_run_is_sent_as_single_datagrams(driver: Which) {
    let mut endpoint = Endpoint::new(driver, &DatagramOptions::default());
    let peer = peer();
    SockRef::from(&peer).set_recv_buffer_size(4 << 20).unwrap();
    let to = peer.local_addr().unwrap();
    // Longer than the kernel splits with one call, and of more datagrams.
    for (length, size) in [(3_500, 1_000_u16), (130, 2), (90_000, 9_000), (5, 9), (1_200, 1_200)] {
        let sent = endpoint.send([run(length, size, to), Transmit::new(b"end".to_vec(), to)]);
        let count = length.div_ceil(usize::from(size));
        assert_eq!((sent.sent, sent.bytes, sent.lost), (count as u64 + 1, length as u64 + 3, 0));
        for number in 0..count {
            let expected = (length - number * usize::from(size)).min(usize::from(size));
            assert_eq!(receive(&peer), vec![number as u8; expected]);
        }
        assert_eq!(receive(&peer), b"end");
    }
}

pub(crate) fn joined_datagrams_are_reported_as_a_run(driver: Which) {
    let options = DatagramOptions { joins_runs: true, payload_bytes_max: 1_500, ..Default::default() };
    let mut receiver = Endpoint::new(driver, &options);
    let mut sender = Endpoint::new(driver, &DatagramOptions::default());
    let sent = sender.send([run(10_100, 1_000, receiver.address), Transmit::new(b"one".to_vec(), receiver.address)]);
    assert_eq!(sent.sent, 12);
    receiver.run_until(|endpoint| endpoint.datagrams.iter().map(Datagram::count).sum::<usize>() == 12);
    let runs: Vec<_> = receiver.datagrams.iter().map(|run| (run.payload.len(), run.segment_size)).collect();
    assert_eq!(runs, [(10_100, NonZeroU16::new(1_000)), (3, None)]);
    let singles: Vec<_> = receiver.datagrams.remove(0).into_singles().collect();
    for (number, single) in singles.iter().enumerate() {
        assert!(single.payload.iter().all(|byte| usize::from(*byte) == number));
    }
}

pub(crate) fn a_run_longer_than_64_kib_is_received_whole(driver: Which) {
    let options = DatagramOptions { joins_runs: true, payload_bytes_max: 1_500, ..Default::default() };
    let mut receiver = Endpoint::new(driver, &options);
    let mut sender = Endpoint::new(driver, &DatagramOptions::default());
    // 45 of these fill a packet of 64 KiB; the kernel joins up to 64 where it may.
    for _ in 0..4 {
        assert_eq!(sender.send([run(64 * 1_440, 1_440, receiver.address)]).sent, 64);
        // The kernel's buffer has room for two of them.
        let count = 64 + receiver.datagrams.iter().map(Datagram::count).sum::<usize>();
        receiver.run_until(|endpoint| endpoint.datagrams.iter().map(Datagram::count).sum::<usize>() == count);
    }
    receiver.run_until(|endpoint| endpoint.datagrams.iter().map(Datagram::count).sum::<usize>() == 256);
    assert!(receiver.datagrams.iter().all(|run| !run.truncated && run.payload.len() % 1_440 == 0));
    assert!(receiver.datagrams.iter().any(|run| run.payload.len() > 32 * 1_440));
}

pub(crate) fn the_kernels_drops_are_counted(driver: Which) {
    let options = DatagramOptions { receive_buffer_bytes: Some(4_096), ..Default::default() };
    let mut endpoint = Endpoint::new(driver, &options);
    let peer = peer();
    for _ in 0..200 {
        peer.send_to(&[7; 1_000], endpoint.address).unwrap();
    }
    // The kernel reports its count with a datagram that came after the drops: one more is sent until it has come.
    let (mut sent, deadline) = (200, Instant::now() + PATIENCE);
    loop {
        peer.send_to(b"one more", endpoint.address).unwrap();
        sent += 1;
        endpoint.turn(Duration::from_millis(100));
        let drops = endpoint.driver.datagram_drops(endpoint.token);
        let received = endpoint.datagrams.len() as u64;
        if drops > 0 && drops + received == sent {
            break;
        }
        assert!(Instant::now() < deadline, "{drops} dropped and {received} received of {sent}");
    }
}

pub(crate) fn a_connected_socket_receives_from_its_peer_alone(driver: Which) {
    let (known, other) = (peer(), peer());
    let options = DatagramOptions { peer: Some(known.local_addr().unwrap()), ..Default::default() };
    let mut endpoint = Endpoint::new(driver, &options);
    other.send_to(b"other", endpoint.address).unwrap();
    known.send_to(b"known", endpoint.address).unwrap();
    endpoint.run_until(|endpoint| !endpoint.datagrams.is_empty());
    assert_eq!(endpoint.payloads(), [b"known"]);
    assert_eq!(endpoint.datagrams[0].source, known.local_addr().unwrap());
    let to_peer = Transmit { destination: None, ecn: Ecn::Ect0, ..run(20, 10, endpoint.address) };
    assert_eq!(endpoint.send([to_peer]).sent, 2);
    assert_eq!((receive(&known).len(), receive(&known).len()), (10, 10));
}

pub(crate) fn a_paused_socket_receives_nothing_and_resumes(driver: Which) {
    let mut endpoint = Endpoint::new(driver, &DatagramOptions::default());
    endpoint.turn(Duration::ZERO);
    endpoint.driver.submit(endpoint.token, Operation::Receive(false));
    let peer = peer();
    peer.send_to(b"1", endpoint.address).unwrap();
    for _ in 0..5 {
        endpoint.turn(Duration::from_millis(1));
    }
    assert_eq!(endpoint.datagrams.len(), 0);
    endpoint.driver.submit(endpoint.token, Operation::Receive(true));
    endpoint.run_until(|endpoint| endpoint.datagrams.len() == 1);
}

pub(crate) fn a_paused_driver_receives_no_datagrams(driver: Which) {
    let mut endpoint = Endpoint::new(driver, &DatagramOptions::default());
    endpoint.driver.pause_receives(true);
    let peer = peer();
    peer.send_to(b"1", endpoint.address).unwrap();
    for _ in 0..5 {
        endpoint.turn(Duration::from_millis(1));
    }
    assert_eq!(endpoint.datagrams.len(), 0);
    endpoint.driver.pause_receives(false);
    endpoint.run_until(|endpoint| endpoint.datagrams.len() == 1);
}

pub(crate) fn a_closed_socket_reports_no_datagrams(driver: Which) {
    let mut endpoint = Endpoint::new(driver, &DatagramOptions::default());
    let peer = peer();
    for _ in 0..100 {
        peer.send_to(b"late", endpoint.address).unwrap();
    }
    endpoint.driver.wait(Some(PATIENCE)).unwrap();
    let mut closed = false;
    match endpoint.driver.submit(endpoint.token, Operation::Close { reset: false }) {
        None => {}
        Some(Completion::Closed) => closed = true,
        Some(other) => panic!("{other:?}"),
    }
    let deadline = Instant::now() + PATIENCE;
    while !closed {
        assert!(Instant::now() < deadline);
        endpoint.driver.wait(Some(Duration::from_millis(10))).unwrap();
        while let Some((token, completion)) = endpoint.driver.next_of_any() {
            assert!(token == endpoint.token && matches!(completion, Completion::Closed), "{completion:?}");
            closed = true;
        }
    }
    assert!(UdpSocket::bind(endpoint.address).is_ok(), "the port is free again");
    let used = endpoint.pool.ledger().used();
    assert!(used < 8 * 1024 || driver == Which::Uring, "the memory of batches is given back: {used}");
}

pub(crate) fn a_payload_that_is_kept_is_not_overwritten(driver: Which) {
    let mut endpoint = Endpoint::new(driver, &DatagramOptions::default());
    let peer = peer();
    for number in 0..50_u8 {
        peer.send_to(&[number; 900], endpoint.address).unwrap();
        endpoint.run_until(|endpoint| endpoint.datagrams.len() == usize::from(number) + 1);
    }
    for (number, datagram) in endpoint.datagrams.iter().enumerate() {
        assert_eq!(*datagram.payload, [number as u8; 900]);
    }
}

pub(crate) fn a_batch_grows_with_the_datagrams_that_wait(driver: Which) {
    let mut endpoint = Endpoint::new(driver, &DatagramOptions::default());
    let peer = peer();
    for _ in 0..150 {
        peer.send_to(b"tide", endpoint.address).unwrap();
    }
    endpoint.run_until(|endpoint| endpoint.datagrams.len() == 150);
    assert_eq!(endpoint.batches.iter().sum::<usize>(), 150);
    assert!(endpoint.batches.contains(&64), "{:?}", endpoint.batches);
    assert!(endpoint.batches[0] <= 4, "{:?}", endpoint.batches);
}

pub(crate) fn a_group_may_be_named_twice(driver: Which) {
    let group = (IpAddr::from([239, 255, 7, 7]), 1);
    let options = DatagramOptions { groups: vec![group, group], ..Default::default() };
    let mut endpoint = Endpoint::at(driver, "0.0.0.0:0", &options);
    let peer = peer();
    SockRef::from(&peer).set_multicast_if_v4(&Ipv4Addr::LOCALHOST).unwrap();
    if let Err(error) = peer.send_to(b"to all", (Ipv4Addr::new(239, 255, 7, 7), endpoint.address.port())) {
        return println!("skipped: no multicast over loopback here: {error}");
    }
    endpoint.run_until(|endpoint| !endpoint.datagrams.is_empty());
    endpoint.fence();
    assert_eq!(endpoint.payloads(), [b"to all"]);
    let response = Transmit::response(&endpoint.datagrams[0], b"here".to_vec());
    assert_eq!((endpoint.datagrams[0].local.address, response.local.address), (Some(group.0), None));
    assert_eq!(endpoint.send([response]).sent, 1);
    assert_eq!(receive(&peer), b"here");
}

pub(crate) fn short_datagrams_come_in_large_batches_where_long_ones_may_come(driver: Which) {
    let options = DatagramOptions { payload_bytes_max: u16::MAX, fragments: true, ..Default::default() };
    let mut endpoint = Endpoint::new(driver, &options);
    let (peer, used) = (peer(), endpoint.pool.ledger().used());
    for _ in 0..150 {
        peer.send_to(b"tide", endpoint.address).unwrap();
    }
    endpoint.run_until(|endpoint| endpoint.datagrams.len() == 150);
    assert!(endpoint.batches.contains(&64), "{:?}", endpoint.batches);
    assert!(endpoint.payloads().iter().all(|payload| payload == b"tide"));
    endpoint.datagrams.clear();
    let grown = endpoint.pool.ledger().used() - used;
    // Two pages of each place, and the block of the first batches, which were small; 64 places of 64 KiB would be 4 MiB.
    assert!(grown < 1200 * 1024, "{grown} bytes for 64 datagrams of 4");
    // A long one among them is whole.
    for round in 0..6_u8 {
        for number in 0..30_u8 {
            let length = if number == 7 { 30_000 + usize::from(round) } else { usize::from(number) };
            peer.send_to(&vec![number; length], endpoint.address).unwrap();
        }
        endpoint.run_until(|endpoint| endpoint.datagrams.len() == 30);
        for (number, datagram) in endpoint.datagrams.drain(..).enumerate() {
            let length = if number == 7 { 30_000 + usize::from(round) } else { number };
            assert!(!datagram.truncated && *datagram.payload == *vec![number as u8; length], "{number}");
        }
    }
    // And each of many long ones is. The kernel's buffer has room for two.
    for round in 0..20_u8 {
        for number in 0..2_u8 {
            peer.send_to(&vec![round + number; 40_000], endpoint.address).unwrap();
        }
        endpoint.run_until(|endpoint| endpoint.datagrams.len() == 2);
        let is_whole = |(number, datagram): (u8, Datagram)| *datagram.payload == *vec![round + number; 40_000];
        assert!((0..2).zip(endpoint.datagrams.drain(..)).all(is_whole));
    }
    let grown = endpoint.pool.ledger().used() - used;
    assert!(grown < 2 * 1024 * 1024, "{grown} bytes");
}

pub(crate) fn short_datagrams_that_are_kept_are_not_overwritten(driver: Which) {
    let options = DatagramOptions { payload_bytes_max: u16::MAX, ..Default::default() };
    let mut endpoint = Endpoint::new(driver, &options);
    let peer = peer();
    for number in 0..400_u16 {
        peer.send_to(&number.to_be_bytes(), endpoint.address).unwrap();
        if number % 100 == 99 {
            endpoint.run_until(|endpoint| endpoint.datagrams.len() == usize::from(number) + 1);
        }
    }
    for (number, datagram) in endpoint.datagrams.iter().enumerate() {
        assert_eq!(*datagram.payload, (number as u16).to_be_bytes());
    }
}

pub(crate) fn a_batch_may_outlive_its_socket(driver: Which) {
    let mut endpoint = Endpoint::new(driver, &DatagramOptions::default());
    let peer = peer();
    for number in 0..20_u8 {
        peer.send_to(&[number], endpoint.address).unwrap();
    }
    let deadline = Instant::now() + PATIENCE;
    let mut batch = loop {
        assert!(Instant::now() < deadline);
        endpoint.driver.wait(Some(Duration::from_millis(100))).unwrap();
        match endpoint.driver.next_of_any() {
            Some((_, Completion::Datagrams(batch))) => break batch,
            Some((_, other)) => panic!("{other:?}"),
            None => {}
        }
    };
    let mut closed = endpoint.driver.submit(endpoint.token, Operation::Close { reset: false }).is_some();
    while !closed {
        assert!(Instant::now() < deadline);
        endpoint.driver.wait(Some(Duration::from_millis(10))).unwrap();
        while let Some((_, completion)) = endpoint.driver.next_of_any() {
            assert!(matches!(completion, Completion::Closed), "{completion:?}");
            closed = true;
        }
    }
    for (number, datagram) in batch.drain(..).enumerate() {
        assert_eq!(*datagram.payload, [number as u8]);
    }
    endpoint.driver.give_back(batch);
    // Its slot is free for another one, which has nothing of it.
    let (options, token) = (DatagramOptions::default(), Token { slot: 3, generation: 8 });
    let socket = Socket::bind_datagrams("127.0.0.1:0".parse().unwrap(), &options).unwrap();
    endpoint.address = socket.address(Side::Local).unwrap().ip().unwrap();
    assert!(endpoint.driver.submit(token, Operation::Bind { socket, options: &options }).is_none());
    endpoint.driver.submit(token, Operation::Receive(true));
    endpoint.token = token;
    peer.send_to(b"new", endpoint.address).unwrap();
    endpoint.run_until(|endpoint| !endpoint.datagrams.is_empty());
    assert_eq!(endpoint.payloads(), [b"new"]);
}

/// An ICMP message (RFC 792) about a datagram that this host has sent, as a router or an attacker sends it.
fn icmp(code: u8, mtu: u16, from: SocketAddr, to: SocketAddr) -> Vec<u8> {
    let (SocketAddr::V4(from), SocketAddr::V4(to)) = (from, to) else { unreachable!("of IPv4") };
    let mut message = vec![3, code, 0, 0, 0, 0];
    message.extend(mtu.to_be_bytes());
    message.extend([0x45, 0, 0x04, 0xcc, 0, 0, 0, 0, 64, 17, 0, 0]);
    message.extend(from.ip().octets());
    message.extend(to.ip().octets());
    message.extend(from.port().to_be_bytes());
    message.extend(to.port().to_be_bytes());
    message.extend([0x04, 0xb8, 0, 0]);
    let sum: u32 = message.chunks(2).map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]]))).sum();
    let checksum = !((sum >> 16) + (sum & 0xffff)) as u16;
    message[2..4].copy_from_slice(&checksum.to_be_bytes());
    message
}

/// A socket that sends ICMP messages; `None` without the privilege.
fn icmp_socket() -> Option<socket2::Socket> {
    let opened = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::RAW, Some(socket2::Protocol::ICMPV4));
    opened.map_err(|error| println!("skipped: no socket for ICMP: {error}")).ok()
}

pub(crate) fn a_forged_report_that_the_path_is_narrow_changes_nothing(driver: Which) {
    let Some(forger) = icmp_socket() else { return };
    let localhost = SocketAddr::from((Ipv4Addr::LOCALHOST, 0)).into();
    let mut endpoint = Endpoint::new(driver, &DatagramOptions::default());
    let peer = peer();
    let to = peer.local_addr().unwrap();
    for mtu in [0, 68, 552, 1_199, 1_279] {
        forger.send_to(&icmp(4, mtu, endpoint.address, to), &localhost).unwrap();
        endpoint.run_until(|endpoint| !endpoint.errors.is_empty());
        let error = endpoint.errors.remove(0);
        assert!(matches!(error.reason, DatagramErrorReason::TooLong { .. }), "{mtu}: {error:?}");
        // A datagram of QUIC is as long, and leaves whole.
        for length in [1_200, 1_452] {
            let sent = endpoint.send([Transmit::new(vec![7; length], to)]);
            assert_eq!((sent.sent, sent.lost), (1, 0), "{mtu}");
            assert_eq!(receive(&peer).len(), length);
        }
        endpoint.fence();
    }
}

pub(crate) fn a_flood_of_forged_reports_loses_no_datagram(driver: Which) {
    let Some(forger) = icmp_socket() else { return };
    let localhost = SocketAddr::from((Ipv4Addr::LOCALHOST, 0)).into();
    let mut endpoint = Endpoint::new(driver, &DatagramOptions::default());
    let peer = peer();
    let to = peer.local_addr().unwrap();
    for number in 0..300_u16 {
        for code in [0, 1, 3, 4, 13, 15] {
            forger.send_to(&icmp(code, 100, endpoint.address, to), &localhost).unwrap();
        }
        let number = number.to_be_bytes().to_vec();
        let sent = endpoint.send([Transmit::new(number.clone(), to)]);
        assert_eq!((sent.sent, sent.lost), (1, 0));
        assert_eq!(receive(&peer), number);
        // Reports and datagrams share the kernel's buffer.
        endpoint.turn(Duration::ZERO);
        if number[1] % 16 == 0 {
            endpoint.fence();
        }
    }
    endpoint.fence();
    assert!(endpoint.errors.len() > 300, "{}", endpoint.errors.len());
    assert!(endpoint.errors.iter().all(|error| error.destination == Some(to)));
}

pub(crate) fn a_group_of_one_source_drops_the_datagrams_of_others(driver: Which) {
    let group = Ipv4Addr::new(239, 255, 7, 8);
    let source = SourceGroup { group: group.into(), source: Ipv4Addr::LOCALHOST.into(), interface: 1 };
    let options = DatagramOptions { source_groups: vec![source, source], ..Default::default() };
    let mut endpoint = Endpoint::at(driver, "0.0.0.0:0", &options);
    let port = endpoint.address.port();
    for (from, payload) in [([127, 0, 0, 2], "of another"), ([127, 0, 0, 1], "of the source")] {
        let peer = UdpSocket::bind((Ipv4Addr::from(from), 0)).unwrap();
        SockRef::from(&peer).set_multicast_if_v4(&Ipv4Addr::LOCALHOST).unwrap();
        if let Err(error) = peer.send_to(payload.as_bytes(), (group, port)) {
            return println!("skipped: no multicast over loopback here: {error}");
        }
    }
    endpoint.run_until(|endpoint| !endpoint.datagrams.is_empty());
    endpoint.fence();
    assert_eq!(endpoint.payloads(), [b"of the source"]);
    let mixed = SourceGroup { source: "::1".parse().unwrap(), ..source };
    let options = DatagramOptions { source_groups: vec![mixed], ..Default::default() };
    let refused = Socket::bind_datagrams("0.0.0.0:0".parse().unwrap(), &options).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::InvalidInput);
}

pub(crate) fn a_group_that_another_socket_has_joined_brings_nothing(driver: Which) {
    let group = Ipv4Addr::new(239, 255, 7, 9);
    let other = UdpSocket::bind("0.0.0.0:0").unwrap();
    if let Err(error) = other.join_multicast_v4(&group, &Ipv4Addr::LOCALHOST) {
        return println!("skipped: no multicast over loopback here: {error}");
    }
    let options = DatagramOptions::default();
    let taken = UdpSocket::bind("0.0.0.0:0").unwrap();
    let mut taken = Endpoint::on(driver, Socket::from_datagrams(taken, &options).unwrap(), &options);
    let mut endpoint = Endpoint::at(driver, "0.0.0.0:0", &options);
    let peer = peer();
    SockRef::from(&peer).set_multicast_if_v4(&Ipv4Addr::LOCALHOST).unwrap();
    for endpoint in [&mut taken, &mut endpoint] {
        peer.send_to(b"to the others", (group, endpoint.address.port())).unwrap();
        endpoint.fence();
        assert!(endpoint.datagrams.is_empty(), "{:?}", endpoint.payloads());
    }
    let membership = Membership::join(group.into()).on_interface(1);
    endpoint.driver.set_membership(endpoint.token, &membership).unwrap();
    peer.send_to(b"to all", (group, endpoint.address.port())).unwrap();
    endpoint.run_until(|endpoint| !endpoint.datagrams.is_empty());
    assert_eq!(endpoint.payloads(), [b"to all"]);
}

pub(crate) fn a_broadcast_leaves_by_choice_alone(driver: Which) {
    let receiver = UdpSocket::bind("127.255.255.255:0").unwrap();
    receiver.set_read_timeout(Some(PATIENCE)).unwrap();
    let to = receiver.local_addr().unwrap();
    let mut without = Endpoint::new(driver, &DatagramOptions::default());
    assert_eq!(without.send([Transmit::new(b"refused".to_vec(), to)]).sent, 0);
    let reasons: Vec<_> = without.errors.iter().map(|error| error.reason).collect();
    assert_eq!(reasons, [DatagramErrorReason::Refused(ErrorKind::PermissionDenied)]);
    let mut with = Endpoint::new(driver, &DatagramOptions { broadcast: true, ..Default::default() });
    assert_eq!(with.send([Transmit::new(b"to all".to_vec(), to)]).sent, 1);
    assert_eq!(receive(&receiver), b"to all");
}

/// Has the kernel report when a datagram arrived (SO_TIMESTAMP).
fn report_arrivals(socket: &Socket) {
    let (on, length) = (1_i32, size_of::<i32>() as libc::socklen_t);
    let descriptor = socket.descriptor().unwrap().as_raw_fd();
    // SAFETY: the pointer and the length describe `on`, which the kernel only reads.
    let result =
        unsafe { libc::setsockopt(descriptor, libc::SOL_SOCKET, libc::SO_TIMESTAMP, (&raw const on).cast(), length) };
    assert_eq!(result, 0, "{}", std::io::Error::last_os_error());
}

pub(crate) fn control_messages_come_and_go_as_bytes(driver: Which) {
    let options = DatagramOptions { control_messages: true, ..Default::default() };
    let socket = Socket::bind_datagrams("127.0.0.1:0".parse().unwrap(), &options).unwrap();
    report_arrivals(&socket);
    let mut endpoint = Endpoint::on(driver, socket, &options);
    let mut ancillary = Ancillary::default();
    ancillary
        .push(ControlMessage { level: libc::IPPROTO_IP, kind: libc::IP_TTL, data: 9_i32.to_ne_bytes().to_vec() })
        .unwrap();
    let to_itself = Transmit { ancillary: Some(Box::new(ancillary)), ..Transmit::new(vec![1], endpoint.address) };
    assert_eq!(endpoint.send([to_itself]).sent, 1);
    endpoint.run_until(|endpoint| !endpoint.datagrams.is_empty());
    let datagram = &endpoint.datagrams[0];
    assert_eq!(datagram.ttl, Some(9), "the message that was sent is that of the packet");
    let messages = datagram.ancillary.as_ref().unwrap().messages();
    assert_eq!(
        messages.iter().map(|one| (one.level, one.kind)).collect::<Vec<_>>(),
        [(libc::SOL_SOCKET, libc::SCM_TIMESTAMP)]
    );
    assert_eq!(datagram.peer(), endpoint.address.into());
}
