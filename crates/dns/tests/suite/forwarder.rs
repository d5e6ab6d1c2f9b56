//! `DnsServer` and `Forwarder` over sockets of the machine: answers, limits, access, messages of attackers.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::sync::Arc;
use std::time::Duration;

use tidegate_dns::server::{DnsServer, Forwarder, QueryHandler, ServerLimits, ServerMetrics};
use tidegate_dns::{
    CacheConfig, Edns, ExtendedError, Header, Message, MessageWriter, NameServer, ProtocolLimits, Question, RecordType,
    ResolverConfig, ResponseCode, SharedCache, StubResolver, Zone,
};
use tidegate_engine::{Admission, ServerHandle};
use tidegate_testkit::ClosedPort;

use crate::support::{frame, name, query, raw, uninterrupted};

/// A server with its address and its counts.
struct Running {
    handle: ServerHandle,
    metrics: ServerMetrics,
}

impl Running {
    fn start<H: QueryHandler + 'static>(
        change: impl FnOnce(DnsServer) -> DnsServer,
        make: impl Fn(&ServerMetrics) -> H + Send + Sync + 'static,
    ) -> Self {
        let metrics = ServerMetrics::new();
        let server = DnsServer::bind("127.0.0.1:0").expect("an address").loops(1).metrics(&metrics);
        let counted = metrics.clone();
        let handle = change(server).start(move |_| make(&counted)).expect("it starts");
        Self { handle, metrics }
    }

    fn zone() -> Self {
        let mut file = String::from("$ORIGIN tides.example.\n$TTL 300\n@ SOA ns root 1 2 3 4 60\nwww A 192.0.2.1\n");
        for index in 0..200 {
            file += &format!("many A 192.0.2.{index}\nh{index} A 192.0.2.{index}\n");
        }
        file += "alias CNAME www\n";
        let zone = Arc::new(Zone::parse(&file, None).expect("it is valid"));
        Self::start(|server| server, move |_| zone.clone())
    }

    /// A forwarder to servers at these addresses.
    fn forwarder(change: impl FnOnce(DnsServer) -> DnsServer, upstreams: Vec<SocketAddr>) -> Self {
        let cache = SharedCache::new(CacheConfig::default());
        Self::start(change, move |metrics| {
            let servers = upstreams.iter().copied().map(NameServer::at).collect();
            Forwarder::new(StubResolver::new(servers, ResolverConfig::default(), cache.clone()), metrics)
        })
    }

    fn address(&self) -> SocketAddr {
        self.handle.address().ip().expect("an IP address")
    }

    /// A socket from which the server gets datagrams.
    fn socket(&self) -> UdpSocket {
        let socket = UdpSocket::bind("127.0.0.1:0").expect("a socket");
        socket.connect(self.address()).expect("an address");
        socket.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        socket
    }

    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.address()).expect("it listens");
        stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        stream
    }
}

/// A bound against hanging.
const PATIENCE: Duration = Duration::from_secs(120);

fn parse(wire: &[u8]) -> Message {
    let pool = tidegate_buffer::Pool::new();
    Message::parse(pool.copy(wire), &ProtocolLimits::default()).expect("a message")
}

fn exchange(socket: &UdpSocket, query: &[u8]) -> Message {
    socket.send(query).expect("it is sent");
    let mut buffer = [0; 4_096];
    let length = uninterrupted(|| socket.recv(&mut buffer)).expect("a response");
    parse(&buffer[..length])
}

fn read_message(stream: &mut TcpStream) -> Message {
    let mut length = [0; 2];
    stream.read_exact(&mut length).expect("a length");
    let mut message = vec![0; usize::from(u16::from_be_bytes(length))];
    stream.read_exact(&mut message).expect("a message");
    parse(&message)
}

fn exchange_stream(stream: &mut TcpStream, query: &[u8]) -> Message {
    stream.write_all(&frame(query)).expect("the server reads");
    read_message(stream)
}

#[test]
fn a_forwarder_answers_over_both_transports_and_from_its_cache() {
    let zone = Running::zone();
    let server = Running::forwarder(|server| server, vec![zone.address()]);
    let (socket, mut stream) = (server.socket(), server.connect());
    for round in 0..3 {
        let reply = exchange(&socket, &query(round, "WWW.tides.example", RecordType::A));
        let view = reply.view();
        assert_eq!((view.header().id, view.answers().count()), (round, 1));
        assert!(view.header().recursion_available && !view.header().is_authoritative);
        let question = view.question().expect("it has one").name.to_name();
        assert_eq!(question.wire(), name("WWW.tides.example").wire());
        let over_stream = exchange_stream(&mut stream, &query(round, "alias.tides.example", RecordType::A));
        assert_eq!(over_stream.view().answers().count(), 2);
    }
    let none = exchange(&socket, &query(7, "none.tides.example", RecordType::A));
    assert_eq!((none.view().response_code(), none.view().authorities().count()), (ResponseCode::NXDOMAIN, 1));
    let many = exchange(&socket, &query(8, "many.tides.example", RecordType::A));
    assert!(many.view().header().is_truncated && many.wire().len() <= 512);
    let whole = exchange_stream(&mut stream, &query(8, "many.tides.example", RecordType::A));
    assert_eq!(whole.view().answers().count(), 200);
    let counts = server.metrics.counts();
    assert_eq!((counts.datagram_queries, counts.stream_queries), (5, 4));
    assert_eq!((counts.cache_hits, counts.cache_misses, counts.failures), (5, 4, 0));
}

#[test]
fn answers_that_come_again_have_the_letters_the_id_and_the_edns_of_each_query() {
    let zone = Running::zone();
    let server = Running::forwarder(|server| server, vec![zone.address()]);
    let socket = server.socket();
    let many = ["www.tides.example", "alias.tides.example", "none.tides.example", "h7.tides.example"];
    for round in 0..6_u16 {
        for (number, host) in many.iter().enumerate() {
            let id = round * 100 + number as u16;
            let host = if round % 2 == 0 { (*host).to_owned() } else { host.to_uppercase() };
            let question = Question::new(name(&host), RecordType::A);
            let header = Header { checking_disabled: round > 3, ..Header::query(id) };
            let writer = MessageWriter::new(header).question(&question).expect("first");
            let has_edns = round % 3 > 0;
            let wants_dnssec = round % 3 == 2;
            let edns = Edns { wants_dnssec, ..Edns::default() };
            let wire = if has_edns { writer.edns(&edns).expect("it fits") } else { writer }.finish();
            let reply = exchange(&socket, &wire);
            let view = reply.view();
            assert_eq!((view.header().id, view.header().checking_disabled), (id, round > 3));
            assert!(view.header().is_response && view.header().recursion_available && !view.header().is_truncated);
            assert_eq!(view.edns().map(|edns| edns.wants_dnssec), has_edns.then_some(wants_dnssec));
            assert_eq!(view.question().expect("it has one").name.to_name().wire(), question.name.wire());
            let counts = (view.answers().count(), view.authorities().count());
            assert_eq!(counts, [(1, 0), (2, 0), (0, 1), (1, 0)][number]);
            let code = if number == 2 { ResponseCode::NXDOMAIN } else { ResponseCode::NOERROR };
            assert_eq!(view.response_code(), code);
            let first = view.answers().next();
            assert!(first.is_none_or(|record| record.name() == question.name && record.ttl() <= 300));
        }
    }
    assert_eq!((server.metrics.counts().cache_hits, server.metrics.counts().cache_misses), (20, 4));
}

#[test]
fn queries_with_padding_get_padded_responses_over_streams_and_none_in_datagrams() {
    let zone = Running::zone();
    let server = Running::forwarder(|server| server, vec![zone.address()]);
    let (socket, mut stream) = (server.socket(), server.connect());
    // Of a lookup, of the cache, in wire form; a long answer; without records.
    for host in ["www", "www", "www", "www", "many", "none", "h1"].map(|host| format!("{host}.tides.example")) {
        let question = Question::new(name(&host), RecordType::A);
        let writer = MessageWriter::new(Header::query(7)).question(&question).expect("first");
        let padded = Edns::default().padding(writer.wire_bytes(), 128);
        let wire = writer.edns(&padded).expect("it fits").finish();
        assert_eq!(wire.len(), 128);
        let reply = exchange_stream(&mut stream, &wire);
        assert_eq!(
            (reply.wire().len() % 468, reply.view().edns().map(|edns| edns.is_padded())),
            (0, Some(true)),
            "{host}"
        );
        let reply = exchange(&socket, &wire);
        assert_eq!(reply.view().edns().map(|edns| edns.is_padded()), Some(false), "{host}");
        let reply = exchange_stream(&mut stream, &query(7, &host, RecordType::A));
        assert!(reply.view().edns().is_none() && !reply.wire().len().is_multiple_of(468), "{host}");
    }
}

#[test]
fn queries_of_attackers_get_short_answers_or_none() {
    let zone = Running::zone();
    let server = Running::forwarder(|server| server, vec![zone.address()]);
    let socket = server.socket();
    let any = exchange(&socket, &query(1, "many.tides.example", RecordType::ANY));
    assert_eq!(any.view().answers().count(), 1);
    assert!(any.wire().len() < 100, "ANY amplifies");
    for refused in [RecordType(252), RecordType(251)] {
        let reply = exchange(&socket, &query(2, "tides.example", refused));
        assert_eq!(reply.view().response_code(), ResponseCode::REFUSED);
    }
    assert_eq!(exchange(&socket, &raw([0, 0, 0, 0], &[])).view().response_code(), ResponseCode::FORMERR);
    let two = [name("a.example").wire(), &[0, 1, 0, 1], name("b.example").wire(), &[0, 1, 0, 1]].concat();
    assert_eq!(exchange(&socket, &raw([2, 0, 0, 0], &two)).view().response_code(), ResponseCode::FORMERR);
    let mut without_recursion = query(3, "www.tides.example", RecordType::A).to_vec();
    without_recursion[2] &= !1;
    assert_eq!(exchange(&socket, &without_recursion).view().response_code(), ResponseCode::REFUSED);
    // A response and a message without a header are not answered: the next answer is that of the next query.
    let mut response = query(4, "www.tides.example", RecordType::A).to_vec();
    response[2] |= 0x80;
    socket.send(&response).expect("it is sent");
    socket.send(&[0; 5]).expect("it is sent");
    assert_eq!(exchange(&socket, &query(5, "www.tides.example", RecordType::A)).view().header().id, 5);
    assert_eq!(server.metrics.counts().malformed, 3);
}

#[test]
fn a_network_without_access_gets_refused_and_its_connections_are_reset() {
    let zone = Running::zone();
    let networks = |text: &str| Admission { allow: vec![text.parse().expect("a network")], ..Admission::default() };
    let denied = Running::forwarder(|server| server.access(networks("10.0.0.0/8")), vec![zone.address()]);
    let question = Question::new(name("www.tides.example"), RecordType::A);
    let writer = MessageWriter::new(Header::query(1)).question(&question).expect("first");
    let reply = exchange(&denied.socket(), &writer.edns(&Edns::default()).expect("it fits").finish());
    assert_eq!(reply.view().response_code(), ResponseCode::REFUSED);
    let error = reply.view().edns().and_then(|edns| edns.extended_error().map(|error| error.code));
    assert_eq!((error, denied.metrics.counts().denied), (Some(ExtendedError::PROHIBITED), 1));
    let mut stream = denied.connect();
    let _ = stream.write_all(&frame(&query(1, "www.tides.example", RecordType::A)));
    assert!(matches!(uninterrupted(|| stream.read(&mut [0])), Ok(0) | Err(_)), "the connection is reset");

    let permitted = Running::forwarder(|server| server.access(networks("127.0.0.0/8")), vec![zone.address()]);
    let reply = exchange(&permitted.socket(), &query(1, "www.tides.example", RecordType::A));
    assert_eq!(reply.view().response_code(), ResponseCode::NOERROR);
    let reply = exchange_stream(&mut permitted.connect(), &query(1, "www.tides.example", RecordType::A));
    assert_eq!(reply.view().response_code(), ResponseCode::NOERROR);
}

#[test]
fn queries_above_those_that_may_be_in_flight_fail_at_once() {
    // It never answers.
    let silent = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    let limits = ServerLimits { in_flight_max: 3, ..ServerLimits::default() };
    let upstream = silent.local_addr().expect("its address");
    let server = Running::forwarder(|server| server.limits(limits), vec![upstream]);
    let socket = server.socket();
    for id in 0..3 {
        socket.send(&query(id, &format!("h{id}.example"), RecordType::A)).expect("it is sent");
    }
    let reply = exchange(&socket, &query(3, "h3.example", RecordType::A));
    assert_eq!((reply.view().header().id, reply.view().response_code()), (3, ResponseCode::SERVFAIL));
    assert_eq!(server.metrics.counts().overloaded, 1);
    // One client does not take the places of the others.
    let limits = ServerLimits { in_flight_per_client_max: 1, ..ServerLimits::default() };
    let server = Running::forwarder(|server| server.limits(limits), vec![upstream]);
    let socket = server.socket();
    socket.send(&query(0, "h0.example", RecordType::A)).expect("it is sent");
    assert_eq!(exchange(&socket, &query(1, "h1.example", RecordType::A)).view().header().id, 1);
}

#[test]
fn queries_on_connections_take_the_same_places_as_those_in_datagrams() {
    let silent = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    let upstream = silent.local_addr().expect("its address");
    let usual = ServerLimits::default();
    let of_all = ServerLimits { in_flight_max: 2, ..usual };
    let of_client = ServerLimits { in_flight_per_client_max: 2, ..usual };
    for limits in [of_all, of_client] {
        let server = Running::forwarder(|server| server.limits(limits), vec![upstream]);
        let (socket, mut stream) = (server.socket(), server.connect());
        socket.send(&query(0, "h0.example", RecordType::A)).expect("it is sent");
        socket.send(&query(1, "h1.example", RecordType::A)).expect("it is sent");
        assert_eq!(exchange(&socket, &query(2, "h2.example", RecordType::A)).view().header().id, 2);
        let reply = exchange_stream(&mut stream, &query(3, "h3.example", RecordType::A));
        assert_eq!((reply.view().header().id, reply.view().response_code()), (3, ResponseCode::SERVFAIL));
        assert_eq!(server.metrics.counts().overloaded, 2);
    }
    // The other way about: two queries of a connection leave no place to a datagram.
    let server = Running::forwarder(|server| server.limits(of_client), vec![upstream]);
    let (socket, mut stream) = (server.socket(), server.connect());
    let both = [0, 1].map(|id| frame(&query(id, &format!("h{id}.example"), RecordType::A))).concat();
    stream.write_all(&both).expect("the server reads");
    assert_eq!(exchange_stream(&mut stream, &query(2, "h2.example", RecordType::A)).view().header().id, 2);
    let reply = exchange(&socket, &query(3, "h3.example", RecordType::A));
    assert_eq!((reply.view().header().id, reply.view().response_code()), (3, ResponseCode::SERVFAIL));
}

#[test]
fn a_thousand_queries_on_one_connection_that_is_not_read_are_answered_when_it_is() {
    let zone = Running::zone();
    let limits = ServerLimits { in_flight_per_connection_max: 10, ..ServerLimits::default() };
    let server = Running::forwarder(|server| server.limits(limits), vec![zone.address()]);
    let mut stream = server.connect();
    let mut writer = stream.try_clone().expect("a handle");
    let sender = std::thread::spawn(move || {
        for id in 0..1_000 {
            // One half of the answers has 3 KB, and the others are looked up.
            let host = if id % 2 == 0 { "many".to_owned() } else { format!("h{}", id % 200) };
            let query = query(id, &format!("{host}.tides.example"), RecordType::A);
            writer.write_all(&frame(&query)).expect("the server reads on");
        }
    });
    let mut ids: Vec<u16> = (0..1_000).map(|_| read_message(&mut stream).view().header().id).collect();
    ids.sort_unstable();
    assert!(ids.into_iter().eq(0..1_000));
    sender.join().expect("it ends");
}

#[test]
fn connections_that_are_idle_or_do_not_complete_a_message_or_do_not_read_close() {
    let zone = Running::zone();
    let short = Duration::from_millis(200);
    let ends = |limits: ServerLimits, bytes: &[u8]| {
        let server = Running::forwarder(|server| server.limits(limits), vec![zone.address()]);
        let mut stream = server.connect();
        stream.write_all(bytes).expect("the server reads");
        match uninterrupted(|| stream.read(&mut [0])) {
            Ok(0) => true,
            Err(error) => error.kind() == ErrorKind::ConnectionReset,
            Ok(_) => false,
        }
    };
    assert!(ends(ServerLimits { idle_timeout: short, ..ServerLimits::default() }, b""), "an idle connection");
    let reads = ServerLimits { read_timeout: short, ..ServerLimits::default() };
    assert!(ends(reads, &[1]), "a length that never comes");
    assert!(ends(reads, &[0, 100, 1, 2, 3]), "a message that never comes");
    // A message in pieces is answered within the usual limits.
    let server = Running::forwarder(|server| server, vec![zone.address()]);
    let mut stream = server.connect();
    for byte in frame(&query(9, "www.tides.example", RecordType::A)) {
        stream.write_all(&[byte]).expect("the server reads");
    }
    assert_eq!(read_message(&mut stream).view().answers().count(), 1);
    // A client that ends its side gets the answers to its queries.
    stream.write_all(&frame(&query(10, "h9.tides.example", RecordType::A))).expect("the server reads");
    stream.shutdown(std::net::Shutdown::Write).expect("it is open");
    assert_eq!(read_message(&mut stream).view().header().id, 10);
    assert_eq!(uninterrupted(|| stream.read(&mut [0])).expect("an end"), 0);

    let writes = ServerLimits { write_timeout: short, ..ServerLimits::default() };
    let server = Running::forwarder(|server| server.limits(writes), vec![zone.address()]);
    let mut stream = server.connect();
    // It writes until the server closes the connection, and reads nothing.
    let queries = frame(&query(1, "many.tides.example", RecordType::A)).repeat(1_000);
    while stream.write_all(&queries).is_ok() {}
    // The loop counts at the end of its turn.
    let begun = std::time::Instant::now();
    while server.handle.counts()[0].connections > 0 && begun.elapsed() < PATIENCE {
        std::thread::sleep(Duration::from_millis(1));
    }
    let counts = server.handle.counts().remove(0);
    assert_eq!(counts.closed_write_timeout, 1, "{counts:?}");
}

#[test]
fn a_forwarder_without_servers_that_answer_says_so_and_remembers_it() {
    let closed = ClosedPort::udp();
    let upstream = closed.address();
    let server = Running::start(
        |server| server,
        move |metrics| {
            let config = ResolverConfig { rounds: 1, ..ResolverConfig::default() };
            let cache = SharedCache::new(CacheConfig::default());
            Forwarder::new(StubResolver::new(vec![NameServer::at(upstream)], config, cache), metrics)
        },
    );
    let socket = server.socket();
    let question = Question::new(name("www.tides.example"), RecordType::A);
    let wire = || {
        let writer = MessageWriter::new(Header::query(1)).question(&question).expect("first");
        writer.edns(&Edns::default()).expect("it fits").finish()
    };
    let first = exchange(&socket, &wire());
    assert_eq!(first.view().response_code(), ResponseCode::SERVFAIL);
    // The system reports that the port is closed: the lookup does not wait for its deadline.
    let error = first.view().edns().and_then(|edns| edns.extended_error().map(|error| error.code));
    assert_eq!(error, Some(ExtendedError::NETWORK_ERROR));
    let again = exchange(&socket, &wire());
    let error = again.view().edns().and_then(|edns| edns.extended_error().map(|error| error.code));
    assert_eq!(error, Some(ExtendedError::CACHED_ERROR));
    let counts = server.metrics.counts();
    assert_eq!((counts.failures, counts.cache_hits, counts.cache_misses), (2, 0, 1), "a failure is no hit");
}
