//! Lookups: sharing, servers that are slow or dead, aliases, forged answers, the cache.

use std::time::Duration;

use tidegate_dns::{
    CacheConfig, Header, Lookup, LookupError, MessageView, MessageWriter, Name, Question, Rdata, Record, RecordType,
    ResolvConf, Resolver, ResolverConfig, ResolverServer, ResponseCode, Section, SharedCache, Transport,
};
use tidegate_testkit::{Random, replay, seeds};

use crate::simulation::{Behaviour, World};
use crate::support::name;

fn a(host: u8) -> Rdata {
    Rdata::a([192, 0, 2, host].into())
}

fn world() -> World {
    let mut world = World::new(vec![Behaviour::default(); 2], 7);
    world.add("a.example", 300, a(1));
    world
}

#[test]
fn an_answer_is_cached_until_its_time_has_passed() {
    let mut world = world();
    let answer = world.lookup("a.example").expect("an answer");
    assert_eq!((answer.addresses().count(), answer.records[0].ttl), (1, 300));
    world.now += Duration::from_secs(100);
    let answer = world.lookup("A.Example").expect("an answer");
    assert_eq!((world.queries.len(), answer.records[0].ttl), (1, 200));
    world.now += Duration::from_secs(201);
    world.lookup("a.example").expect("an answer");
    assert_eq!((world.queries.len(), world.resolver.counts().cache_hits), (2, 1));
}

#[test]
fn negative_answers_are_cached_for_the_minimum_of_the_soa() {
    let mut world = world();
    let answer = world.lookup("none.example").expect("an answer");
    assert_eq!((answer.response_code, answer.records.len()), (ResponseCode::NXDOMAIN, 0));
    assert_eq!(world.lookup("none.example").expect("an answer").soa.as_ref().map(|soa| soa.ttl), Some(60));
    assert_eq!(world.queries.len(), 1);
    // A name that does not exist has no records of another type (RFC 8020).
    let other = world.resolver.lookup(&name("none.example"), RecordType::AAAA, world.now);
    assert!(matches!(other, Lookup::Ready(Ok(_))), "{other:?}");
    world.now += Duration::from_secs(61);
    world.lookup("none.example").expect("an answer");
    assert_eq!(world.queries.len(), 2);
}

#[test]
fn each_lookup_begins_with_another_server_where_they_rotate() {
    let conf = ResolvConf::parse(b"nameserver 192.0.2.1\nnameserver 192.0.2.2\noptions rotate\n");
    let config = ResolverConfig { rotates: ResolverConfig::of_system(&conf).rotates, ..ResolverConfig::default() };
    let mut world = World::with(config, CacheConfig::default(), vec![Behaviour::default(); 2], 7);
    for number in 0..20 {
        // A host is looked up with both types. Turns that both share would leave each type to one server.
        for record_type in [RecordType::A, RecordType::AAAA] {
            let host = name(&format!("n{number}.example"));
            let begun = world.resolver.lookup(&host, record_type, world.now);
            assert!(matches!(begun, Lookup::Pending(_)), "{begun:?}");
            assert_eq!(
                world.resolver.poll_transmit().map(|query| query.server),
                Some(number % 2),
                "{host} {record_type:?}"
            );
        }
    }
}

#[test]
fn each_lookup_begins_with_the_fastest_server_where_they_do_not_rotate() {
    let slow = Behaviour { delay: Duration::from_millis(100), ..Behaviour::default() };
    let mut world = World::with(ResolverConfig::default(), CacheConfig::default(), vec![Behaviour::default(), slow], 7);
    for number in 0..20 {
        let host = format!("n{number}.example");
        world.add(&host, 300, a(1));
        world.lookup(&host).expect("an answer");
    }
    let first = world.queries.iter().filter(|(server, ..)| *server == 0).count();
    assert!((17..21).contains(&first), "{first} of {}", world.queries.len());
}

#[test]
fn equal_questions_in_flight_are_one_query() {
    let mut world = world();
    let Lookup::Pending(id) = world.begin("a.example") else { panic!("it is not cached") };
    for _ in 0..100 {
        assert_eq!(world.begin("A.EXAMPLE"), Lookup::Pending(id));
    }
    world.wait(id).expect("an answer");
    assert_eq!((world.queries.len(), world.resolver.counts().shared), (1, 100));
}

#[test]
fn callers_and_lookups_in_flight_have_bounds() {
    let config = ResolverConfig { waiters_max: 2, lookups_max: 2, ..ResolverConfig::default() };
    let mut world = World::with(config, CacheConfig::default(), vec![Behaviour::default()], 1);
    assert!(matches!(world.begin("a"), Lookup::Pending(_)));
    assert!(matches!(world.begin("a"), Lookup::Pending(_)));
    assert_eq!(world.begin("a"), Lookup::Ready(Err(LookupError::Overloaded)));
    assert!(matches!(world.begin("b"), Lookup::Pending(_)));
    assert_eq!(world.begin("c"), Lookup::Ready(Err(LookupError::Overloaded)));
    // A thousand questions for ANY cost nothing.
    let any = world.resolver.lookup(&name("a"), RecordType::ANY, world.now);
    assert_eq!(any, Lookup::Ready(Err(LookupError::Question)));
}

#[test]
fn a_caller_that_has_given_up_leaves_its_place_to_another() {
    let config = ResolverConfig { waiters_max: 2, ..ResolverConfig::default() };
    let mut world = World::with(config, CacheConfig::default(), vec![Behaviour::default()], 1);
    let Lookup::Pending(id) = world.begin("a") else { panic!("it is not cached") };
    world.begin("a");
    world.resolver.forget_waiter(id);
    assert_eq!(world.begin("a"), Lookup::Pending(id));
    (0..5).for_each(|_| world.resolver.forget_waiter(id));
    assert_eq!(world.begin("a"), Lookup::Pending(id));
    world.wait(id).expect("an answer");
}

#[test]
fn the_longest_times_are_times_that_never_come() {
    let never = Duration::MAX;
    let config = ResolverConfig {
        lookup_timeout: never,
        server_timeout: never,
        stale_after: never,
        ..ResolverConfig::default()
    };
    let cache = CacheConfig {
        ttl_min: never,
        ttl_max: never,
        negative_ttl_max: never,
        stale_for: never,
        failure_ttl_min: never,
        failure_ttl_max: never,
        stale_retry: never,
        ..CacheConfig::default()
    };
    for use_streams in [false, true] {
        let config = ResolverConfig { use_streams, ..config };
        let mut world = World::with(config, cache, vec![Behaviour::default()], 1);
        for _ in 0..3 {
            world.lookup("a.example").expect("an answer");
        }
        assert_eq!(world.queries.len(), 1);
        let failing = vec![Behaviour { response_code: ResponseCode::SERVFAIL, ..Behaviour::default() }];
        let mut world = World::with(config, cache, failing, 1);
        for _ in 0..3 {
            world.lookup("a.example").expect_err("the server fails");
        }
    }
}

#[test]
fn queries_have_random_ids_sockets_and_cases() {
    let mut world = world();
    let (mut ids, mut sockets, mut cases) = (Vec::new(), Vec::new(), Vec::new());
    for index in 0..50 {
        let _ = world.lookup(&format!("host{index}.abcdefghij.example"));
    }
    for (_, transport, bytes) in &world.queries {
        let view = MessageView::parse(bytes).expect("it is valid");
        ids.push(view.header().id);
        let Transport::Datagram(socket) = transport else { panic!("a datagram") };
        sockets.push(*socket);
        cases.push(view.question().expect("it has one").name.to_string()[6..].to_owned());
    }
    for unique in [&mut ids, &mut sockets] {
        unique.sort_unstable();
        unique.dedup();
    }
    cases.sort_unstable();
    cases.dedup();
    assert!(ids.len() > 45 && sockets.len() > 5 && cases.len() > 45, "{} {} {}", ids.len(), sockets.len(), cases.len());
}

#[test]
fn a_truncated_answer_is_asked_for_over_a_stream() {
    let mut world = world();
    world.servers = vec![Behaviour { truncates: true, ..Behaviour::default() }; 2];
    world.lookup("a.example").expect("an answer");
    let transports: Vec<bool> = world.queries.iter().map(|query| query.1 == Transport::Stream).collect();
    assert_eq!(transports, [false, true]);
    assert_eq!(world.queries[0].0, world.queries[1].0);
}

#[test]
fn an_answer_with_a_wrong_id_or_case_leads_to_one_query_over_a_stream_at_once() {
    let tampers: [fn(&mut Vec<u8>); 3] = [|bytes| bytes[0] ^= 1, |bytes| bytes[13] ^= 0x20, |bytes| bytes.truncate(20)];
    for tamper in tampers {
        let mut world = world();
        world.tamper = tamper;
        let begun = world.now;
        assert_eq!(world.lookup("a.example").expect("an answer").addresses().count(), 1);
        assert_eq!(world.queries.len(), 2, "one datagram and one query over a stream");
        assert_eq!(world.queries[1].1, Transport::Stream);
        assert!(world.now - begun < Duration::from_millis(50), "no timeout was waited for");
    }
}

#[test]
fn forged_answers_are_never_believed() {
    for seed in seeds(200) {
        let mut world = World::new(vec![Behaviour::default(); 2], seed);
        world.add("a.example", 300, a(1));
        world.forgeries = 20;
        let answer = world.lookup("a.example").expect("an answer");
        let addresses: Vec<_> = answer.addresses().map(|address| address.to_string()).collect();
        assert_eq!(addresses, ["192.0.2.1"], "{}", replay(seed));
        assert_eq!(world.queries.len(), 2, "a flood causes one query over a stream: {}", replay(seed));
    }
}

#[test]
fn answers_that_nobody_asked_for_change_nothing() {
    let mut world = world();
    let question = Question::new(name("b.example"), RecordType::A);
    let header = Header::query(1).response(ResponseCode::NOERROR);
    let mut writer = MessageWriter::new(header).question(&question).expect("first");
    writer.rdata(Section::Answer, &question.name, 300, &a(66)).expect("it fits");
    let bytes = writer.finish();
    world.resolver.handle_datagram(0, 0, &bytes, world.now);
    world.resolver.handle_datagram(9, 0, &bytes, world.now);
    world.resolver.handle_datagram(0, 0, b"short", world.now);
    world.resolver.handle_stream_message(0, &bytes, world.now);
    assert_eq!(world.resolver.counts().mismatches, 4);
    assert!(world.resolver.cache().with(|cache| cache.is_empty()));
    // The answer of the other server is none of this server's attempt.
    let Lookup::Pending(_) = world.begin("b.example") else { panic!("it is not cached") };
    let (server, _, _) = world.queries[0];
    world.resolver.handle_datagram(1 - server, 0, &bytes, world.now);
    assert!(world.resolver.poll_finished().is_none());
    assert!(world.resolver.poll_transmit().is_none(), "it was not from the server that was asked");
}

#[test]
fn a_dead_server_delays_no_other_name() {
    let mut world = world();
    world.servers[0].is_dead = true;
    for index in 0..20 {
        world.add(&format!("n{index}.example"), 300, a(2));
        world.lookup(&format!("n{index}.example")).expect("an answer");
    }
    let begun = world.now;
    world.add("last.example", 300, a(2));
    world.lookup("last.example").expect("an answer");
    assert!(world.now - begun < Duration::from_millis(50), "{:?}", world.now - begun);
    let to_dead = world.queries.iter().filter(|query| query.0 == 0).count();
    assert!(to_dead <= 6, "{to_dead} queries to a dead server");
}

#[test]
fn a_server_that_refuses_is_followed_by_the_next() {
    for code in [ResponseCode::SERVFAIL, ResponseCode::REFUSED, ResponseCode::NOTIMP] {
        let mut world = world();
        world.servers[0].response_code = code;
        assert_eq!(world.lookup("a.example").expect("an answer").addresses().count(), 1, "{code}");
    }
    let mut world = world();
    world.servers.iter_mut().for_each(|server| server.response_code = ResponseCode::SERVFAIL);
    assert_eq!(world.lookup("a.example").err(), Some(LookupError::Failed));
}

#[test]
fn failures_are_remembered_for_longer_each_time() {
    let mut world = world();
    world.servers.iter_mut().for_each(|server| server.response_code = ResponseCode::SERVFAIL);
    assert_eq!(world.lookup("a.example").err(), Some(LookupError::Failed));
    for seconds in [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300] {
        assert_eq!(world.lookup("a.example").err(), Some(LookupError::CachedFailure), "{seconds}");
        world.now += Duration::from_secs(seconds) - Duration::from_millis(1);
        assert_eq!(world.lookup("a.example").err(), Some(LookupError::CachedFailure), "{seconds}");
        world.now += Duration::from_millis(2);
        assert_eq!(world.lookup("a.example").err(), Some(LookupError::Failed), "{seconds}");
    }
}

#[test]
fn without_servers_a_stale_answer_comes_after_a_while_and_then_at_once() {
    let mut world = world();
    world.lookup("a.example").expect("an answer");
    world.now += Duration::from_secs(301);
    world.servers.iter_mut().for_each(|server| server.is_dead = true);
    let begun = world.now;
    let answer = world.lookup("a.example").expect("an answer");
    assert!(answer.is_stale && answer.records[0].ttl == 30, "{answer:?}");
    assert_eq!((world.now - begun).as_millis(), 1_800);
    let at = world.now;
    assert!(world.lookup("a.example").expect("an answer").is_stale);
    assert_eq!(world.now, at, "the lookup is still in flight, and nobody waits for it again");
    while world.step() {}
    world.now += Duration::from_secs(2 * 86_400);
    assert_eq!(world.lookup("a.example").err(), Some(LookupError::Timeout));
}

#[test]
fn an_answer_that_is_used_is_looked_up_before_it_expires() {
    let mut world = world();
    world.lookup("a.example").expect("an answer");
    world.lookup("a.example").expect("an answer");
    world.now += Duration::from_secs(280);
    world.lookup("a.example").expect("an answer");
    world.lookup("a.example").expect("an answer");
    assert_eq!(world.queries.len(), 2, "one refresh");
    while world.step() {}
    assert_eq!(world.lookup("a.example").expect("an answer").records[0].ttl, 300);
}

#[test]
fn aliases_are_followed_and_those_that_lead_back_are_refused() {
    let mut world = world();
    world.add("www.example", 60, Rdata::cname(&name("a.example")));
    let answer = world.lookup("www.example").expect("an answer");
    assert_eq!((answer.records.len(), answer.canonical_name(&name("www.example"))), (2, name("a.example")));
    // The alias and its target are entries of their own.
    world.lookup("a.example").expect("an answer");
    world.lookup("www.example").expect("an answer");
    assert_eq!(world.queries.len(), 1);

    world.add("x.example", 60, Rdata::cname(&name("y.example")));
    world.add("y.example", 60, Rdata::cname(&name("x.example")));
    world.add("self.example", 60, Rdata::cname(&name("self.example")));
    assert_eq!(world.lookup("x.example").err(), Some(LookupError::Aliases));
    assert_eq!(world.lookup("self.example").err(), Some(LookupError::Aliases));
    // The server answers with eight aliases at a time, so this takes several responses.
    for index in 0..100 {
        world.add(&format!("c{index}.example"), 60, Rdata::cname(&name(&format!("c{}.example", index + 1))));
    }
    let before = world.queries.len();
    assert_eq!(world.lookup("c0.example").err(), Some(LookupError::Aliases));
    assert!(world.queries.len() - before <= 4, "{}", world.queries.len() - before);
    world.add("c100.example", 60, a(9));
    let answer = world.lookup("c90.example").expect("ten aliases are not too many");
    assert_eq!(answer.records.len(), 11);
}

/// A response to the only query of a resolver, with these records.
fn respond(bailiwick: &str, records: &[(Section, Record)]) -> (Resolver, std::time::Instant) {
    let now = std::time::Instant::now();
    let server = ResolverServer { bailiwick: name(bailiwick), ..ResolverServer::default() };
    let cache = SharedCache::new(CacheConfig::default());
    let mut resolver = Resolver::seeded(ResolverConfig::default(), vec![server], cache, 3);
    assert!(matches!(resolver.lookup(&name("www.tides.example"), RecordType::A, now), Lookup::Pending(_)));
    let query = resolver.poll_transmit().expect("a query");
    let view = MessageView::parse(&query.message).expect("it is valid");
    let question = view.question().expect("it has one").to_question();
    let mut writer =
        MessageWriter::new(view.header().response(ResponseCode::NOERROR)).question(&question).expect("first");
    records.iter().for_each(|(section, record)| writer.record(*section, record).expect("it fits"));
    let Transport::Datagram(socket) = query.transport else { panic!("a datagram") };
    resolver.handle_datagram(0, socket, &writer.finish(), now);
    (resolver, now)
}

#[test]
fn records_of_other_names_and_zones_are_dropped() {
    let record = |owner: &str, data: Rdata| Record::new(name(owner), 86_400, data);
    let records = [
        (Section::Answer, record("www.tides.example", a(1))),
        (Section::Answer, record("bank.example", a(66))),
        (Section::Answer, record("alias.example", Rdata::cname(&name("evil.test")))),
        (Section::Authority, record("example", Rdata::ns(&name("ns.evil.test")))),
        (Section::Authority, record("tides.example", Rdata::ns(&name("ns.tides.example")))),
        (Section::Additional, record("ns.tides.example", a(66))),
        (Section::Additional, record("ns.evil.test", a(66))),
    ];
    let (mut resolver, now) = respond(".", &records);
    let (_, answer) = resolver.poll_finished().expect("a result");
    assert_eq!(answer.expect("an answer").records.len(), 1);
    assert_eq!(resolver.cache().with(|cache| cache.len()), 1, "the answer, and nothing else");
    // So a zone that is no longer delegated cannot renew the TTL of its delegation.
    assert!(matches!(resolver.lookup(&name("tides.example"), RecordType::NS, now), Lookup::Pending(_)));
}

#[test]
fn a_server_of_one_zone_is_believed_for_that_zone_only() {
    let alias = Record::new(name("www.tides.example"), 60, Rdata::cname(&name("www.bank.test")));
    let forged = Record::new(name("www.bank.test"), 60, a(66));
    let records = [(Section::Answer, alias), (Section::Answer, forged)];
    let (mut resolver, now) = respond("tides.example", &records);
    // The alias leads to another zone, which this server cannot answer for.
    assert!(resolver.cache().with(|cache| cache.get(&name("www.bank.test"), RecordType::A, now)).is_none());
    let query = resolver.poll_transmit().expect("the target is asked for");
    let view = MessageView::parse(&query.message).expect("it is valid");
    assert!(view.question().expect("it has one").name == name("www.bank.test"));
    let (mut trusting, _) = respond(".", &records);
    assert!(trusting.poll_transmit().is_none() && trusting.poll_finished().is_some());
    // A DNAME alone, and an SOA of another zone, answer nothing.
    let dname = Rdata::parse(RecordType::DNAME, "evil.test.", &Name::root()).expect("it is valid");
    let soa = Rdata::soa(&name("ns.evil.test"), &name("a.evil.test"), 1, [1, 1, 1, 86_400]);
    let (mut resolver, _) = respond(
        ".",
        &[
            (Section::Answer, Record::new(name("tides.example"), 60, dname)),
            (Section::Authority, Record::new(name("evil.test"), 60, soa)),
        ],
    );
    let (_, answer) = resolver.poll_finished().expect("a result");
    assert!(answer.expect("a negative answer").soa.is_none());
    assert!(resolver.cache().with(|cache| cache.is_empty()));
}

#[test]
fn a_stream_that_ends_makes_its_lookups_try_another_server() {
    let config = ResolverConfig { use_streams: true, ..ResolverConfig::default() };
    let mut world = World::with(config, CacheConfig::default(), vec![Behaviour::default(); 2], 5);
    world.add("a.example", 300, a(1));
    let Lookup::Pending(id) = world.resolver.lookup(&name("a.example"), RecordType::A, world.now) else {
        panic!("pending")
    };
    let query = world.resolver.poll_transmit().expect("a query");
    assert_eq!(query.transport, Transport::Stream);
    world.resolver.handle_stream_closed(query.server, world.now);
    assert_eq!(world.wait(id).expect("an answer").addresses().count(), 1);
    assert_eq!(world.queries[0].0, 1 - query.server);
}

#[test]
fn a_socket_that_fails_counts_once_and_not_again_for_late_attempts() {
    let config = ResolverConfig { sockets: 1, ..ResolverConfig::default() };
    let servers = vec![Behaviour { is_dead: true, ..Behaviour::default() }; 2];
    let mut world = World::with(config, CacheConfig::default(), servers, 5);
    let Lookup::Pending(_) = world.begin("a.example") else { panic!("pending") };
    let first = world.queries[0].0;
    // The first attempt is late, and the second server is asked.
    while world.queries.len() < 2 {
        world.step();
    }
    assert_eq!((world.queries[1].0, world.resolver.counts().timeouts), (1 - first, 1));
    world.resolver.handle_socket_closed(first, 0, world.now);
    assert!(world.resolver.poll_transmit().is_none(), "the lookup waits for the other server");
    world.resolver.handle_socket_closed(1 - first, 0, world.now);
    let third = world.resolver.poll_transmit().expect("a third query");
    assert!(world.resolver.poll_transmit().is_none(), "one query: {third:?}");
}

#[test]
fn a_server_that_cannot_be_reached_takes_no_turn_of_one_that_was_down_before() {
    let servers = vec![Behaviour::default(); 2];
    let mut world = World::with(ResolverConfig::default(), CacheConfig::default(), servers, 5);
    world.add("a.example", 300, a(1));
    world.add("other.example", 300, a(2));
    // Both servers were away for a while, and the first one has answered since.
    world.servers.iter_mut().for_each(|server| server.is_dead = true);
    for lost in ["lost1.example", "lost2.example"] {
        assert_eq!(world.lookup(lost).err(), Some(LookupError::Timeout));
    }
    world.servers[0].is_dead = false;
    world.lookup("other.example").expect("an answer");
    world.queries.clear();
    let Lookup::Pending(id) = world.resolver.lookup(&name("a.example"), RecordType::A, world.now) else {
        panic!("pending")
    };
    // Whenever the first one is asked, its port is closed.
    for _ in 0..4 {
        let query = world.resolver.poll_transmit().expect("a query");
        let Transport::Datagram(socket) = query.transport else { panic!("a datagram") };
        if query.server == 1 {
            let view = MessageView::parse(&query.message).expect("valid");
            let question = view.question().expect("it has one").to_question();
            let header = view.header().response(ResponseCode::NOERROR);
            let mut response = MessageWriter::new(header).question(&question).expect("first");
            response.rdata(Section::Answer, &question.name, 300, &a(1)).expect("it fits");
            world.resolver.handle_datagram(1, socket, &response.finish(), world.now);
            break;
        }
        world.resolver.handle_socket_closed(0, socket, world.now);
    }
    let (finished, result) = world.resolver.poll_finished().expect("a result");
    assert_eq!((finished, result.expect("an answer").addresses().count()), (id, 1));
}

#[test]
fn servers_that_cannot_be_reached_are_asked_again_after_a_second_each_time() {
    let mut world = world();
    world.servers.iter_mut().for_each(|server| server.is_dead = true);
    for _ in 0..5 {
        let begun = world.now;
        assert_eq!(world.lookup("a.example").err(), Some(LookupError::Timeout));
        assert!(world.now > begun, "the servers are asked");
        world.now += Duration::from_millis(999);
        assert_eq!(world.lookup("a.example").err(), Some(LookupError::CachedFailure));
        world.now += Duration::from_millis(2);
    }
    world.servers.iter_mut().for_each(|server| server.is_dead = false);
    world.now += Duration::from_secs(60);
    assert_eq!(world.lookup("a.example").expect("an answer").addresses().count(), 1);
}

#[test]
fn lookups_end_under_losses_dead_servers_and_forgeries() {
    for seed in seeds(100) {
        let mut random = Random::new(seed);
        let servers = (0..=random.below(4)).map(|_| Behaviour {
            delay: Duration::from_millis(random.below(400) as u64),
            loses_one_in: random.below(4),
            is_dead: random.once_in(4),
            truncates: random.once_in(4),
            response_code: if random.once_in(5) { ResponseCode::SERVFAIL } else { ResponseCode::NOERROR },
            ..Behaviour::default()
        });
        let mut world = World::new(servers.collect(), seed);
        world.forgeries = random.below(3);
        for index in 0..10 {
            world.add(&format!("h{index}.example"), random.below(600) as u32, a(index));
        }
        for _ in 0..100 {
            let index = random.below(12) as u8;
            if let Ok(answer) = world.lookup(&format!("h{index}.example")) {
                let expected = (index < 10).then(|| std::net::Ipv4Addr::new(192, 0, 2, index).into());
                assert_eq!(answer.addresses().next(), expected, "{}", replay(seed));
            }
            world.now += Duration::from_millis(random.below(20_000) as u64);
        }
        while world.step() {}
        assert_eq!(world.resolver.lookups_in_flight(), 0, "{}", replay(seed));
    }
}

#[test]
fn one_server_is_asked_less_and_less_often_until_the_time_of_the_lookup_is_over() {
    let mut world = World::new(vec![Behaviour { is_dead: true, ..Behaviour::default() }], 3);
    world.add("a.example", 300, a(1));
    let begun = world.now;
    let Lookup::Pending(id) = world.begin("a.example") else { panic!("it is not cached") };
    let mut times = vec![Duration::ZERO];
    while world.queries.len() < 5 {
        assert!(world.step() && world.finished.is_empty(), "{times:?}");
        if world.queries.len() > times.len() {
            times.push(world.now - begun);
        }
    }
    assert_eq!(times, [0, 400, 1_200, 2_800, 6_000].map(Duration::from_millis));
    assert_eq!(world.wait(id).err(), Some(LookupError::Timeout));
    assert_eq!((world.now - begun, world.queries.len()), (Duration::from_secs(10), 5));
    // A measured time does not end the lookup early: the server was away for three seconds.
    let mut world = World::new(vec![Behaviour::default()], 4);
    world.add("a.example", 300, a(1));
    let _ = world.lookup("none.example");
    world.servers[0].is_dead = true;
    let begun = world.now;
    let Lookup::Pending(id) = world.begin("a.example") else { panic!("it is not cached") };
    while world.now < begun + Duration::from_secs(3) {
        assert!(world.step());
    }
    world.servers[0].is_dead = false;
    assert_eq!(world.wait(id).expect("an answer").addresses().count(), 1);
    assert!(world.queries.len() < 12, "{}", world.queries.len());
}

#[test]
fn a_server_that_lowers_case_and_has_no_stream_is_asked_without_random_cases() {
    for closes in [false, true] {
        let server = Behaviour { blocks_streams: true, lowers_case: true, ..Behaviour::default() };
        let mut world = World::new(vec![server], 5);
        world.add("abcdefghijklmnop.example", 300, a(1));
        world.add("ponmlkjihgfedcba.example", 300, a(2));
        let Lookup::Pending(id) = world.begin("ABCDEFGHIJKLMNOP.example") else { panic!("it is not cached") };
        while world.queries.len() < 2 {
            assert!(world.step());
        }
        if closes {
            world.resolver.handle_stream_closed(0, world.now);
        }
        assert_eq!(world.wait(id).expect("an answer").addresses().count(), 1);
        let streams = |world: &World| world.queries.iter().filter(|query| query.1 == Transport::Stream).count();
        assert_eq!((world.queries.len(), streams(&world)), (3, 1));
        // It is remembered.
        assert_eq!(world.lookup("ponmlkjihgfedcba.example").expect("an answer").addresses().count(), 1);
        assert_eq!((world.queries.len(), streams(&world)), (4, 1));
    }
}

#[test]
fn a_server_that_gets_no_query_with_an_opt_record_is_asked_without() {
    let mut world = World::new(vec![Behaviour { drops_edns: true, ..Behaviour::default() }], 6);
    world.add("a.example", 300, a(1));
    world.add("b.example", 300, a(2));
    assert_eq!(world.lookup("a.example").expect("an answer").addresses().count(), 1);
    assert_eq!(world.queries.len(), 3);
    assert_eq!(world.lookup("b.example").expect("an answer").addresses().count(), 1);
    assert_eq!(world.queries.len(), 4, "it is remembered");
}

#[test]
fn a_name_without_an_ipv6_address_that_a_server_denies_has_an_ipv4_one() {
    let mut world = world();
    world.add("zero.example", 0, a(9));
    for _ in 0..2 {
        assert_eq!(world.lookup("zero.example").expect("an answer").addresses().count(), 1);
        match world.resolver.lookup(&name("zero.example"), RecordType::AAAA, world.now) {
            Lookup::Ready(result) => assert_eq!(result.expect("an answer").response_code, ResponseCode::NXDOMAIN),
            Lookup::Pending(_) => while world.step() {},
        }
    }
}

#[test]
fn a_fresh_lookup_asks_the_servers_and_falls_back_to_the_cache() {
    let mut world = world();
    world.lookup("a.example").expect("an answer");
    world.zone.clear();
    world.add("a.example", 300, a(2));
    let fresh = |world: &mut World| {
        let Lookup::Pending(id) = world.resolver.lookup_fresh(&name("a.example"), RecordType::A, world.now) else {
            panic!("the servers are asked")
        };
        world.step();
        world.wait(id).expect("an answer").addresses().next()
    };
    let second = Some(std::net::IpAddr::from([192, 0, 2, 2]));
    assert_eq!(fresh(&mut world), second);
    world.servers.iter_mut().for_each(|server| server.is_dead = true);
    let begun = world.now;
    assert_eq!(fresh(&mut world), second);
    assert_eq!(world.now - begun, Duration::from_millis(1_800));
    assert_eq!(world.lookup("a.example").expect("an answer").addresses().next(), second);
}
