//! Servers over TCP, the rules of all responses, and the resolver of a loop.

use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use tidegate_dns::server::{
    RateDecision, RateLimiter, RateLimits, ResponseKind, StreamHandler, datagram_bytes_max, respond,
};
use tidegate_dns::{
    CacheConfig, Edns, EncodedMessage, Header, Hosts, LookupError, MessageView, MessageWriter, Opcode, Question,
    RecordType, ResolvConf, ResolverConfig, ResponseCode, ServerCodec, SharedCache, StubResolver, Zone,
};
use tidegate_engine::{Backend, Client, EventLoop, Server, ServerHandle, task};
use tidegate_testkit::ClosedPort;

use crate::support::{frame, name, query, raw, uninterrupted};

fn zone() -> Arc<Zone> {
    let mut file = String::from(
        "$ORIGIN tides.example.\n$TTL 300\n@ SOA ns root 1 2 3 4 60\nwww A 192.0.2.1\n AAAA 2001:db8::1\n",
    );
    for index in 0..100 {
        file += &format!("many A 192.0.2.{index}\nh{index} A 192.0.2.{index}\n");
    }
    Arc::new(Zone::parse(&file, None).expect("it is valid"))
}

fn serve() -> ServerHandle {
    let zone = zone();
    let server = Server::bind("127.0.0.1:0").expect("a port").loops(1);
    server.start(move || (ServerCodec::default(), StreamHandler::new(zone.clone()))).expect("it starts")
}

fn address(server: &ServerHandle) -> SocketAddr {
    server.address().ip().expect("an IP address")
}

fn run<T: 'static>(test: impl Future<Output = T> + 'static) -> T {
    let mut event_loop = EventLoop::on(Backend::Auto).expect("a loop");
    let result = event_loop.block_on(async move { task::timeout(Duration::from_secs(120), test).await });
    result.expect("the loop runs").expect("the test does not hang")
}

fn read_message(stream: &mut TcpStream) -> Vec<u8> {
    let mut length = [0; 2];
    stream.read_exact(&mut length).expect("a length");
    let mut message = vec![0; usize::from(u16::from_be_bytes(length))];
    stream.read_exact(&mut message).expect("a message");
    message
}

fn reply(query: &[u8], is_datagram: bool) -> EncodedMessage {
    let view = MessageView::parse(query).expect("it is valid");
    respond(&*zone(), &view, is_datagram.then(|| datagram_bytes_max(&view)))
}

#[test]
fn a_thousand_queries_on_one_connection_are_answered_in_order() {
    let server = serve();
    let mut stream = TcpStream::connect(address(&server)).expect("it listens");
    let mut writer = stream.try_clone().expect("a handle");
    // The client writes all of them before it reads: the answers of 1.7 KB each wait in the kernel and behind it.
    let sender = std::thread::spawn(move || {
        for id in 0..1_000 {
            writer.write_all(&frame(&query(id, "many.tides.example", RecordType::A))).expect("the server reads on");
        }
    });
    for id in 0..1_000 {
        let message = read_message(&mut stream);
        let view = MessageView::parse(&message).expect("it is valid");
        assert_eq!((view.header().id, view.answers().count()), (id, 100));
    }
    sender.join().expect("it ends");
    drop(server);
}

#[test]
fn malformed_queries_have_their_codes() {
    let code = |wire: &[u8]| MessageView::parse(&reply(wire, true)).expect("it is valid").response_code();
    assert_eq!(code(&raw([0, 0, 0, 0], &[])), ResponseCode::FORMERR);
    let mut notify = query(1, "www.tides.example", RecordType::A).to_vec();
    notify[2] = Opcode::NOTIFY.0 << 3;
    assert_eq!(code(&notify), ResponseCode::NOTIMP);
    let question = Question::new(name("www.tides.example"), RecordType::A);
    let with = |edns: &Edns| {
        MessageWriter::new(Header::query(1)).question(&question).expect("first").edns(edns).expect("it fits").finish()
    };
    assert_eq!(code(&with(&Edns::default())), ResponseCode::NOERROR);
    assert_eq!(code(&with(&Edns::default().option(10, vec![0; 9]))), ResponseCode::FORMERR);
    let mut version = with(&Edns::default()).to_vec();
    let at = version.len() - 5;
    version[at] = 1;
    assert_eq!(code(&version), ResponseCode::BADVERS);
    assert_eq!(code(&query(1, "bank.example", RecordType::A)), ResponseCode::REFUSED);
}

#[test]
fn datagrams_are_short_and_streams_whole() {
    let many = query(1, "many.tides.example", RecordType::A);
    let short = reply(&many, true);
    assert!(short.len() <= 512 && MessageView::parse(&short).expect("it is valid").header().is_truncated);
    let whole = reply(&many, false);
    assert_eq!(MessageView::parse(&whole).expect("it is valid").answers().count(), 100);
    let question = Question::new(name("many.tides.example"), RecordType::A);
    let edns = Edns { udp_payload_bytes: 65_535, ..Edns::default() };
    let wire =
        MessageWriter::new(Header::query(1)).question(&question).expect("first").edns(&edns).expect("it fits").finish();
    let reply = reply(&wire, true);
    let view = MessageView::parse(&reply).expect("it is valid");
    assert!(reply.len() <= 1_232 && reply.len() > 1_200 && view.header().is_truncated && view.edns().is_some());
}

#[test]
fn a_flood_of_one_network_is_limited_and_others_are_not() {
    let limits = RateLimits { responses_per_second: 10, burst: 20, slip: 2, ..RateLimits::default() };
    let mut limiter = RateLimiter::new(limits);
    let peer = |text: &str| text.parse::<IpAddr>().expect("an address");
    let now = Instant::now();
    let mut counts = [0; 3];
    for host in 0..100 {
        let decision = limiter.check(peer(&format!("192.0.2.{host}")), ResponseKind::Positive, now);
        counts[decision as usize] += 1;
    }
    assert_eq!(counts, [20, 40, 40]);
    assert_eq!(limiter.check(peer("192.0.2.1"), ResponseKind::Negative, now), RateDecision::Send);
    assert_eq!(limiter.check(peer("198.51.100.1"), ResponseKind::Positive, now), RateDecision::Send);
    let later = now + Duration::from_secs(1);
    let sent =
        (0..100).filter(|_| limiter.check(peer("192.0.2.9"), ResponseKind::Positive, later) == RateDecision::Send);
    assert_eq!(sent.count(), 10);
    // Mapped addresses are those of IPv4.
    assert_ne!(limiter.check(peer("::ffff:192.0.2.7"), ResponseKind::Positive, later), RateDecision::Send);
}

#[test]
fn a_resolver_on_a_loop_shares_connections_and_questions() {
    let server = serve();
    let upstream = Client::at(server.address().clone());
    run(async move {
        let cache = SharedCache::new(CacheConfig::default());
        let conf = ResolvConf::parse(b"search tides.example\n");
        let hosts = Hosts::parse(b"192.0.2.200 printer\n");
        let resolver = StubResolver::with_files(vec![upstream.into()], ResolverConfig::default(), cache, conf, hosts);
        let texts = |addresses: Vec<IpAddr>| addresses.iter().map(ToString::to_string).collect::<Vec<_>>();
        assert_eq!(texts(resolver.addresses("www").await.expect("an answer")), ["2001:db8::1", "192.0.2.1"]);
        assert_eq!(texts(resolver.addresses("printer").await.expect("hosts")), ["192.0.2.200"]);
        assert_eq!(texts(resolver.addresses("::1").await.expect("itself")), ["::1"]);
        assert_eq!(resolver.addresses("a..b").await, Err(LookupError::Question));
        let before = resolver.counts().stream_queries;
        let tasks: Vec<_> = (0..100)
            .map(|index| {
                let resolver = resolver.clone();
                task::spawn(async move {
                    resolver.lookup(&name(&format!("h{}.tides.example", index % 50)), RecordType::A).await
                })
            })
            .collect();
        for task in tasks {
            assert_eq!(task.await.expect("the task ends").expect("an answer").addresses().count(), 1);
        }
        assert_eq!(resolver.counts().stream_queries - before, 50);
        let none = resolver.lookup(&name("none.tides.example"), RecordType::A).await.expect("a negative answer");
        assert_eq!(none.response_code, ResponseCode::NXDOMAIN);
    });
    drop(server);
}

#[test]
fn a_server_that_is_not_there_is_followed_by_the_next() {
    let server = serve();
    let closed = ClosedPort::tcp();
    let gone = closed.address();
    let upstreams = vec![Client::at(gone).into(), Client::at(server.address().clone()).into()];
    run(async move {
        let resolver =
            StubResolver::new(upstreams, ResolverConfig::default(), SharedCache::new(CacheConfig::default()));
        let answer = resolver.lookup(&name("www.tides.example"), RecordType::A).await.expect("an answer");
        assert_eq!(answer.addresses().count(), 1);
        let alone = StubResolver::new(
            vec![Client::at(gone).into()],
            ResolverConfig::default(),
            SharedCache::new(CacheConfig::default()),
        );
        let error = alone.lookup(&name("www.tides.example"), RecordType::A).await.expect_err("nothing answers");
        assert_eq!(error, LookupError::Failed);
    });
    drop(server);
}

#[test]
fn a_connection_that_breaks_loses_no_lookup() {
    // The first connection ends after its query; the next is served.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let upstream = listener.local_addr().expect("its address");
    let server = std::thread::spawn(move || {
        let (mut first, _) = listener.accept().expect("a connection");
        let _ = read_message(&mut first);
        drop(first);
        let (mut second, _) = listener.accept().expect("a connection");
        let query = read_message(&mut second);
        second.write_all(&frame(&reply(&query, false))).expect("it reads");
        let _ = uninterrupted(|| second.read(&mut [0]));
    });
    run(async move {
        let resolver = StubResolver::new(
            vec![Client::at(upstream).into()],
            ResolverConfig::default(),
            SharedCache::new(CacheConfig::default()),
        );
        let answer = resolver.lookup(&name("www.tides.example"), RecordType::A).await.expect("an answer");
        assert_eq!(answer.addresses().count(), 1);
    });
    server.join().expect("it ends");
}
