//! Failures of servers beside answers of the cache, and responses that ask for another query.

use std::time::{Duration, Instant};

use tidegate_dns::{
    Cache, CacheConfig, Edns, Header, Lookup, LookupError, MessageView, MessageWriter, Rdata, RecordType, Resolver,
    ResolverConfig, ResolverServer, ResponseCode, Section, SharedCache, Transmit, Transport,
};

use crate::simulation::{Behaviour, World};
use crate::support::name;

fn a(host: u8) -> Rdata {
    Rdata::a([192, 0, 2, host].into())
}

/// `www.example` is an alias of `a.example`.
fn world() -> World {
    let mut world = World::new(vec![Behaviour::default(); 2], 7);
    world.add("a.example", 300, a(1));
    world.add("www.example", 300, Rdata::cname(&name("a.example")));
    world
}

#[test]
fn servers_that_fail_are_asked_for_a_stale_name_twice_a_minute() {
    for host in ["a.example", "www.example"] {
        let mut world = world();
        world.lookup(host).expect("an answer");
        world.now += Duration::from_secs(301);
        world.servers.iter_mut().for_each(|server| server.response_code = ResponseCode::SERVFAIL);
        assert!(world.lookup(host).expect("an answer").is_stale);
        let queries = world.queries.len();
        for _ in 0..29 {
            world.now += Duration::from_secs(1);
            assert!(world.lookup(host).expect("an answer").is_stale, "{host}");
        }
        assert_eq!(world.queries.len(), queries, "{host}");
        world.now += Duration::from_secs(2);
        assert!(world.lookup(host).expect("an answer").is_stale, "{host}");
        assert!(world.queries.len() > queries, "{host}");
    }
}

#[test]
fn servers_that_fail_are_not_asked_again_for_the_longest_time_that_there_is() {
    let mut cache =
        Cache::new(CacheConfig { stale_retry: Duration::MAX, stale_for: Duration::MAX, ..CacheConfig::default() });
    let now = Instant::now();
    cache.insert(&name("a.example"), RecordType::A, &[a(1)], 300, now);
    let later = now + Duration::from_secs(301);
    cache.insert_failure(&name("a.example"), RecordType::A, later);
    let entry = cache.get(&name("a.example"), RecordType::A, later + Duration::from_secs(86_400)).expect("an entry");
    assert!(entry.is_stale && entry.has_failed);
}

#[test]
fn a_failure_hides_no_stale_answer_through_an_alias() {
    let mut world = world();
    world.lookup("www.example").expect("an answer");
    world.now += Duration::from_secs(301);
    world.servers.iter_mut().for_each(|server| server.is_dead = true);
    assert!(world.lookup("www.example").expect("an answer").is_stale);
    // The lookup ends without an answer.
    while world.step() {}
    let at = world.now;
    let answer = world.lookup("www.example").expect("an answer");
    assert_eq!((answer.is_stale, answer.records.len(), world.now), (true, 2, at));
    // A network that was away is asked again soon.
    world.now += Duration::from_secs(1);
    assert!(matches!(world.begin("www.example"), Lookup::Pending(_)));
}

#[test]
fn a_refresh_that_fails_leaves_the_answer_that_it_would_have_replaced() {
    for host in ["a.example", "www.example"] {
        let mut world = world();
        world.lookup(host).expect("an answer");
        world.lookup(host).expect("an answer");
        world.now += Duration::from_secs(280);
        world.servers.iter_mut().for_each(|server| server.response_code = ResponseCode::SERVFAIL);
        let queries = world.queries.len();
        world.lookup(host).expect("an answer");
        while world.step() {}
        assert!(world.queries.len() > queries, "{host}: it is refreshed");
        let answer = world.lookup(host).expect("an answer");
        assert!(!answer.is_stale && answer.records.last().is_some_and(|record| record.ttl > 0), "{host}: {answer:?}");
    }
}

/// The response to a query, with an address and the cookie of the server.
fn response(query: &Transmit, response_code: ResponseCode) -> Vec<u8> {
    let view = MessageView::parse(&query.message).expect("it is valid");
    let question = view.question().expect("it has one").to_question();
    let edns = view.edns().expect("it has one");
    let client = edns.cookie().expect("it is valid").expect("there is one").client;
    let header: Header = view.header().response(response_code);
    let mut writer = MessageWriter::new(header).question(&question).expect("first");
    if response_code == ResponseCode::NOERROR {
        writer.rdata(Section::Answer, &question.name, 60, &a(1)).expect("it fits");
    }
    writer.edns(&Edns::default().cookie(client, b"8 bytes!")).expect("it fits").finish().to_vec()
}

#[test]
fn a_server_that_wants_its_cookie_first_is_asked_again_over_a_stream() {
    let (now, cache) = (Instant::now(), SharedCache::new(CacheConfig::default()));
    let mut resolver = Resolver::seeded(ResolverConfig::default(), vec![ResolverServer::default()], cache, 3);
    let mut ask = |host: &str, codes: &[ResponseCode]| {
        assert!(matches!(resolver.lookup(&name(host), RecordType::A, now), Lookup::Pending(_)));
        let mut transports = Vec::new();
        for code in codes {
            let query = resolver.poll_transmit().expect("a query");
            transports.push(query.transport == Transport::Stream);
            match query.transport {
                Transport::Datagram(socket) => resolver.handle_datagram(0, socket, &response(&query, *code), now),
                Transport::Stream => resolver.handle_stream_message(0, &response(&query, *code), now),
            }
        }
        (transports, resolver.poll_finished().map(|(_, result)| result.map(|answer| answer.records.len())))
    };
    let (good, bad) = (ResponseCode::NOERROR, ResponseCode::BADCOOKIE);
    assert_eq!(ask("a.example", &[bad, good]), (vec![false, true], Some(Ok(1))));
    // The resolver has the server's cookie now.
    assert_eq!(ask("b.example", &[good]), (vec![false], Some(Ok(1))));
    assert_eq!(ask("c.example", &[bad, bad]), (vec![false, true], Some(Err(LookupError::Failed))));
}

#[test]
fn queries_over_streams_have_padding_for_servers_that_get_it_and_datagrams_have_none() {
    for (use_streams, pads_queries) in [(true, true), (true, false), (false, true)] {
        let server = ResolverServer { use_streams, pads_queries, ..ResolverServer::default() };
        let cache = SharedCache::new(CacheConfig::default());
        let mut resolver = Resolver::seeded(ResolverConfig::default(), vec![server], cache, 3);
        for labels in 1..=4 {
            let host = name(&format!("{}example", format!("{}.", "x".repeat(50)).repeat(labels)));
            assert!(matches!(resolver.lookup(&host, RecordType::A, Instant::now()), Lookup::Pending(_)));
            let query = resolver.poll_transmit().expect("a query");
            let is_padded = MessageView::parse(&query.message).expect("it is valid").edns().expect("one").is_padded();
            assert_eq!(is_padded, use_streams && pads_queries);
            assert!(!is_padded || query.message.len().is_multiple_of(128), "{}", query.message.len());
        }
    }
}
