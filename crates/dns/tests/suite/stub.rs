//! `StubResolver` on a simulated network: loss, forged answers, dead servers, truncation, by seed.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::{Duration, Instant};

use tidegate_buffer::{Datagram, Transmit, Transmits};
use tidegate_codec::Endpoint;
use tidegate_dns::server::{
    ClientQuery, QueryHandler, Reply, Responder, Response, StreamHandler, datagram_bytes_max, respond,
};
use tidegate_dns::{
    CacheConfig, Header, LookupError, MessageView, MessageWriter, NameServer, Question, Rdata, Record, RecordType,
    ResolverConfig, ResponseCode, Section, ServerCodec, SharedCache, StubResolver,
};
use tidegate_engine::{Client, DatagramChannel, EndpointLimits, Limits, task};
use tidegate_sys::DatagramOptions;
use tidegate_testkit::network::{DatagramFaults, Host, Link, Network, SimNode};
use tidegate_testkit::{Random, seeds};

use crate::support::name;

/// `hN.example` has the address `192.0.2.N`; `many.example` has a hundred.
#[derive(Clone, Copy)]
struct Hosts;

impl Responder for Hosts {
    fn answer(&self, question: &Question) -> Response {
        let mut response = Response::of_code(ResponseCode::NOERROR);
        let mut add = |host| {
            let record = Record::new(question.name.clone(), 300, Rdata::a([192, 0, 2, host].into()));
            response.answers.push(record);
        };
        let text = question.name.to_lowercase().to_string();
        let label = text.split('.').next().unwrap_or_default();
        match label.strip_prefix('h').and_then(|number| number.parse().ok()) {
            Some(number) => add(number),
            None => (0..100).for_each(add),
        }
        response
    }
}

/// The same after a second.
#[derive(Clone, Copy)]
struct LateHosts;

impl QueryHandler for LateHosts {
    fn query(&self, query: &ClientQuery<'_>) -> Reply {
        let response = Hosts.answer(query.question);
        Reply::later(async move {
            task::sleep(Duration::from_secs(1)).await;
            response
        })
    }
}

/// A server of the simulated network.
struct Upstream {
    random: Random,
    /// Forged answers before each true one.
    forgeries: usize,
    truncates: bool,
    /// Where an accomplice sends answers with the right ID from.
    accomplice: Option<Rc<RefCell<DatagramChannel>>>,
    queries: Rc<Cell<usize>>,
    /// Ports from which queries come.
    ports: Rc<RefCell<BTreeSet<u16>>>,
    outgoing: Vec<Transmit>,
}

impl Upstream {
    /// An answer with the address 203.0.113.66, which no name has.
    fn forge(&mut self, query: &MessageView<'_>) -> Vec<u8> {
        let mut header = *query.header();
        let mut question = query.question().expect("it has one").to_question();
        if self.random.once_in(2) {
            // The other cases of all letters.
            let wire: Vec<Vec<u8>> = question
                .name
                .labels()
                .map(|label| {
                    label.iter().map(|byte| if byte.is_ascii_alphabetic() { byte ^ 0x20 } else { *byte }).collect()
                })
                .collect();
            question.name = tidegate_dns::Name::from_labels(wire.iter().map(|label| &label[..])).expect("a name");
        } else {
            header = Header { id: header.id ^ (1 + self.random.below(65_535) as u16), ..header };
        }
        let mut writer = MessageWriter::new(header.response(ResponseCode::NOERROR)).question(&question).expect("first");
        let forged = Rdata::a([203, 0, 113, 66].into());
        writer.rdata(Section::Answer, &question.name, 86_400, &forged).expect("it fits");
        writer.finish().to_vec()
    }
}

impl Endpoint for Upstream {
    fn handle_datagram(&mut self, datagram: Datagram, _now: Instant) {
        self.queries.set(self.queries.get() + 1);
        self.ports.borrow_mut().insert(datagram.source.port());
        let query = MessageView::parse(&datagram.payload).expect("the resolver writes it");
        for _ in 0..self.forgeries {
            let forged = self.forge(&query);
            self.outgoing.push(Transmit::response(&datagram, forged));
        }
        if let Some(accomplice) = &self.accomplice {
            // All is right but the source.
            let question = query.question().expect("it has one").to_question();
            let header = query.header().response(ResponseCode::NOERROR);
            let mut writer = MessageWriter::new(header).question(&question).expect("first");
            writer
                .rdata(Section::Answer, &question.name, 86_400, &Rdata::a([203, 0, 113, 66].into()))
                .expect("it fits");
            let sent = accomplice.borrow_mut().send_to(writer.finish().to_vec(), datagram.source);
            sent.expect("the socket is open");
        }
        let bytes_max = if self.truncates { 40 } else { datagram_bytes_max(&query) };
        let mut response = respond(&Hosts, &query, Some(bytes_max)).to_vec();
        if self.truncates {
            let header = Header { is_truncated: true, ..query.header().response(ResponseCode::NOERROR) };
            let question = query.question().expect("it has one").to_question();
            response = MessageWriter::new(header).question(&question).expect("first").finish().to_vec();
        }
        self.outgoing.push(Transmit::response(&datagram, response));
    }

    fn poll_transmit(&mut self, _now: Instant, transmits: &mut Transmits) {
        self.outgoing.drain(..).for_each(|response| transmits.push(response));
    }
}

/// Servers, and a loop on which a resolver runs.
struct World {
    network: Network,
    servers: Vec<SimNode>,
    queries: Vec<Rc<Cell<usize>>>,
    client: Host,
    node: SimNode,
    seed: u64,
}

impl World {
    fn new(seed: u64) -> Self {
        let network = Network::new(seed);
        let client = network.host("10.0.0.9");
        let node = client.node();
        Self { network, servers: Vec::new(), queries: Vec::new(), client, node, seed }
    }

    /// One server more, over UDP and TCP.
    fn serve(&mut self, change: impl FnOnce(&mut Upstream)) {
        let node = self.network.host(&format!("10.0.0.{}", self.servers.len() + 1)).node();
        let queries = Rc::<Cell<usize>>::default();
        let mut upstream = Upstream {
            random: Random::new(self.seed ^ 7),
            forgeries: 0,
            truncates: false,
            accomplice: None,
            queries: queries.clone(),
            ports: Rc::default(),
            outgoing: Vec::new(),
        };
        change(&mut upstream);
        node.endpoint(53, &DatagramOptions::default(), EndpointLimits::default(), upstream).expect("the port is free");
        node.listen(53, Limits::default(), |_| (ServerCodec::default(), StreamHandler::new(Hosts)))
            .expect("it is free");
        self.servers.push(node);
        self.queries.push(queries);
    }

    fn resolver(&self, config: ResolverConfig, addresses: &[&str]) -> StubResolver {
        let servers = addresses.iter().map(|ip| NameServer::at(SocketAddr::new(ip.parse().expect("an address"), 53)));
        let host = self.client.clone();
        let open = move |server| {
            let options = DatagramOptions { peer: Some(server), ..DatagramOptions::default() };
            DatagramChannel::on(host.datagrams(0, &options)?, &options, EndpointLimits::default())
        };
        StubResolver::simulated(servers.collect(), config, SharedCache::new(CacheConfig::default()), self.seed, open)
    }

    fn run<T: 'static>(&self, future: impl Future<Output = T> + 'static) -> T {
        let task = self.node.spawn(future);
        self.network.run_task(Duration::from_secs(600), task)
    }
}

/// The last byte of the address of a name, and the time of the lookup.
async fn look_up(resolver: StubResolver, host: String) -> (Result<Vec<String>, LookupError>, Duration) {
    let begun = task::now();
    let answer = resolver.lookup(&name(&host), RecordType::A).await;
    let addresses = answer.map(|answer| answer.addresses().map(|address| address.to_string()).collect());
    (addresses, task::now() - begun)
}

async fn all(resolver: &StubResolver, count: usize) {
    let lookups: Vec<task::Task<_>> =
        (0..count).map(|number| task::spawn(look_up(resolver.clone(), format!("h{number}.example")))).collect();
    for (number, lookup) in lookups.into_iter().enumerate() {
        let (result, _) = lookup.await.expect("the task ends");
        assert_eq!(result, Ok(vec![format!("192.0.2.{number}")]), "h{number}.example");
    }
}

#[test]
fn lost_late_and_doubled_datagrams_cost_time_and_no_lookup() {
    for seed in seeds(20) {
        let run = || {
            let mut world = World::new(seed);
            let faults = DatagramFaults { lost: 6, duplicated: 5, delayed: 5, corrupted: 0, blocked: 9 };
            world.network.set_datagram_faults(faults);
            world.serve(|_| {});
            world.serve(|_| {});
            // Of three queries in ten nothing comes back.
            let config = ResolverConfig { rounds: 6, ..ResolverConfig::default() };
            let resolver = world.resolver(config, &["10.0.0.1", "10.0.0.2"]);
            world.run(async move { all(&resolver, 100).await });
            assert!(world.network.datagram_counts().lost > 0);
            world.network.trace()
        };
        assert_eq!(run(), run(), "seed {seed}");
    }
}

#[test]
fn callers_that_have_given_up_take_no_places_of_others() {
    let mut world = World::new(1);
    world.serve(|_| {});
    world.network.set_link(Link { latency: Duration::from_secs(1), ..Link::default() });
    let resolver = world.resolver(ResolverConfig { waiters_max: 3, ..ResolverConfig::default() }, &["10.0.0.1"]);
    let result = world.run(async move {
        let h1 = name("h1.example");
        for _ in 0..10 {
            let given_up = task::timeout(Duration::from_millis(1), resolver.lookup(&h1, RecordType::A)).await;
            assert!(given_up.is_err(), "{given_up:?}");
        }
        look_up(resolver, "h1.example".into()).await.0
    });
    assert_eq!(result, Ok(vec!["192.0.2.1".into()]));
}

#[test]
fn forged_answers_are_not_believed_and_cost_one_query_over_a_stream() {
    for seed in seeds(20) {
        let mut world = World::new(seed);
        let thief = world.network.host("10.0.0.66").node();
        let channel = thief.datagrams(53, &DatagramOptions::default(), EndpointLimits::default()).expect("a socket");
        let channel = Rc::new(RefCell::new(channel));
        let accomplice = channel.clone();
        world.serve(|upstream| (upstream.forgeries, upstream.accomplice) = (60, Some(accomplice)));
        let resolver = world.resolver(ResolverConfig::default(), &["10.0.0.1"]);
        let (again, counts) = world.run(async move {
            all(&resolver, 50).await;
            let again = look_up(resolver.clone(), "h7.example".into()).await.0;
            (again, resolver.counts())
        });
        assert_eq!(again, Ok(vec!["192.0.2.7".into()]), "seed {seed}: the cache has nothing forged");
        assert_eq!((counts.datagrams, counts.stream_queries), (50, 50), "seed {seed}");
        assert!(counts.mismatches >= 50 * 60, "seed {seed}: {counts:?}");
    }
}

#[test]
fn an_answer_from_another_address_is_dropped_and_costs_nothing() {
    for seed in seeds(10) {
        let mut world = World::new(seed);
        let thief = world.network.host("10.0.0.66").node();
        let channel = thief.datagrams(53, &DatagramOptions::default(), EndpointLimits::default()).expect("a socket");
        let accomplice = Rc::new(RefCell::new(channel));
        let kept = accomplice.clone();
        world.serve(|upstream| upstream.accomplice = Some(accomplice));
        let resolver = world.resolver(ResolverConfig::default(), &["10.0.0.1"]);
        let counts = world.run(async move {
            all(&resolver, 50).await;
            // Those that are still on their way arrive.
            task::sleep(Duration::from_secs(1)).await;
            resolver.counts()
        });
        assert_eq!((counts.datagrams, counts.stream_queries, counts.mismatches), (50, 0, 0), "seed {seed}");
        assert_eq!(world.network.datagram_counts().unreachable, 50, "seed {seed}: the sockets do not get them");
        drop(kept);
    }
}

#[test]
fn a_dead_server_delays_the_first_lookups_and_no_other() {
    for seed in seeds(10) {
        let mut world = World::new(seed);
        world.serve(|_| {});
        let resolver = world.resolver(ResolverConfig::default(), &["10.0.0.77", "10.0.0.1"]);
        let times: Vec<Duration> = world.run(async move {
            let mut times = Vec::new();
            for number in 0..50 {
                let (result, time) = look_up(resolver.clone(), format!("h{number}.example")).await;
                assert_eq!(result, Ok(vec![format!("192.0.2.{number}")]));
                times.push(time);
            }
            times
        });
        assert!(times.iter().all(|time| *time < Duration::from_secs(2)), "seed {seed}: {times:?}");
        let late = times.iter().skip(3).filter(|time| **time > Duration::from_millis(300)).count();
        assert_eq!(late, 0, "seed {seed}: {times:?}");
    }
}

#[test]
fn a_host_without_a_server_is_followed_by_the_next_at_once() {
    for seed in seeds(10) {
        let mut world = World::new(seed);
        world.serve(|_| {});
        let _nothing_listens = world.network.host("10.0.0.77").node();
        let resolver = world.resolver(ResolverConfig::default(), &["10.0.0.77", "10.0.0.1"]);
        let alone = world.resolver(ResolverConfig::default(), &["10.0.0.77"]);
        let (found, counts, failed) = world.run(async move {
            let found = look_up(resolver.clone(), "h1.example".into()).await;
            (found, resolver.counts(), look_up(alone, "h2.example".into()).await)
        });
        assert_eq!(found.0, Ok(vec!["192.0.2.1".into()]), "seed {seed}");
        assert_eq!((counts.datagrams, counts.timeouts), (2, 0), "seed {seed}");
        assert_eq!(failed.0, Err(LookupError::Failed), "seed {seed}");
        // Both are shorter than the patience for one server.
        assert!(found.1.max(failed.1) < Duration::from_millis(100), "seed {seed}: {found:?} {failed:?}");
    }
}

#[test]
fn a_busy_socket_is_replaced_and_stays_for_late_responses() {
    let mut world = World::new(6);
    let ports = Rc::<RefCell<BTreeSet<u16>>>::default();
    let seen = ports.clone();
    world.network.set_link(Link { latency: Duration::from_millis(150), ..Link::default() });
    world.serve(|upstream| upstream.ports = seen);
    let config = ResolverConfig { sockets: 1, ..ResolverConfig::default() };
    let resolver = world.resolver(config, &["10.0.0.1"]);
    let (counts, sockets) = world.run(async move {
        let mut lookups = Vec::new();
        // A query each 100 ms: two are in flight as the socket is replaced.
        for number in 0..700 {
            lookups.push(task::spawn(look_up(resolver.clone(), format!("h{}.n{number}.example", number % 200))));
            task::sleep(Duration::from_millis(100)).await;
        }
        let sockets = resolver.sockets();
        for (number, lookup) in lookups.into_iter().enumerate() {
            let (result, _) = lookup.await.expect("the task ends");
            assert_eq!(result, Ok(vec![format!("192.0.2.{}", number % 200)]));
        }
        task::sleep(Duration::from_secs(60)).await;
        (resolver.counts(), (sockets, resolver.sockets()))
    });
    assert_eq!((counts.datagrams, counts.timeouts, counts.stream_queries), (700, 0, 0));
    assert_eq!((ports.borrow().len(), sockets), (3, (1, 0)));
}

/// The results of lookups over one connection to a server that answers after a second; the server or the client drains
/// meanwhile, and is drained at the end.
fn drained_over_a_connection(seed: u64, drains_server: bool) -> Vec<Result<Vec<String>, LookupError>> {
    let mut world = World::new(seed);
    let server = world.network.host("10.0.0.1").node();
    let address = server
        .listen(53, Limits::default(), |_| (ServerCodec::default(), StreamHandler::new(LateHosts)))
        .expect("free");
    world.servers.push(server);
    let config = ResolverConfig { rounds: 1, ..ResolverConfig::default() };
    let upstream = NameServer::over_streams(Client::at(address));
    let cache = SharedCache::new(CacheConfig::default());
    let resolver =
        StubResolver::simulated(vec![upstream], config, cache, seed, |_| Err(std::io::ErrorKind::Unsupported.into()));
    let lookups: Vec<_> = (0..3)
        .map(|number| {
            let resolver = resolver.clone();
            world.node.spawn(async move {
                // The last one begins in the drain.
                task::sleep(Duration::from_millis(if number == 2 { 900 } else { number * 200 })).await;
                look_up(resolver, format!("h{number}.example")).await.0
            })
        })
        .collect();
    world.network.run_for(Duration::from_millis(500));
    let node = if drains_server { &world.servers[0] } else { &world.node };
    node.drain(Duration::from_secs(600));
    let results = lookups.into_iter().map(|lookup| world.network.run_task(Duration::from_secs(600), lookup)).collect();
    drop(resolver);
    assert!(world.network.run_until(Duration::from_secs(1), || node.is_drained()), "seed {seed}: it is drained");
    results
}

#[test]
fn a_drain_of_a_server_answers_the_queries_in_flight_of_a_connection_and_no_other() {
    for seed in seeds(5) {
        let [first, second, late] = drained_over_a_connection(seed, true).try_into().expect("three");
        assert_eq!((first, second), (Ok(vec!["192.0.2.0".into()]), Ok(vec!["192.0.2.1".into()])), "seed {seed}");
        assert!(late.is_err(), "seed {seed}: {late:?}");
    }
}

#[test]
fn a_drain_of_a_client_waits_for_the_responses_over_its_connections() {
    for seed in seeds(5) {
        let [first, second, _late] = drained_over_a_connection(seed, false).try_into().expect("three");
        assert_eq!((first, second), (Ok(vec!["192.0.2.0".into()]), Ok(vec!["192.0.2.1".into()])), "seed {seed}");
    }
}

#[test]
fn lookups_without_any_server_end_and_are_remembered_as_failed() {
    let world = World::new(1);
    let resolver = world.resolver(ResolverConfig::default(), &["10.0.0.77", "10.0.0.78"]);
    let (first, second) = world.run(async move {
        let first = look_up(resolver.clone(), "h1.example".into()).await;
        (first, look_up(resolver, "h1.example".into()).await)
    });
    assert_eq!((first.0, first.1 <= Duration::from_secs(11)), (Err(LookupError::Timeout), true), "{:?}", first.1);
    assert_eq!(second, (Err(LookupError::CachedFailure), Duration::ZERO));
}

#[test]
fn truncated_answers_come_over_one_connection() {
    for seed in seeds(10) {
        let mut world = World::new(seed);
        world.serve(|upstream| upstream.truncates = true);
        let resolver = world.resolver(ResolverConfig::default(), &["10.0.0.1"]);
        let counts = world.run(async move {
            all(&resolver, 100).await;
            let (many, _) = look_up(resolver.clone(), "many.example".into()).await;
            assert_eq!(many.map(|addresses| addresses.len()), Ok(100));
            resolver.counts()
        });
        assert_eq!((counts.datagrams, counts.stream_queries), (101, 101));
        assert_eq!(world.servers[0].counts().accepted, 1, "seed {seed}");
    }
}

#[test]
fn equal_questions_in_flight_are_one_query() {
    let mut world = World::new(3);
    world.serve(|_| {});
    let resolver = world.resolver(ResolverConfig::default(), &["10.0.0.1"]);
    let counts = world.run(async move {
        let lookups: Vec<_> = (0..500).map(|_| task::spawn(look_up(resolver.clone(), "h5.example".into()))).collect();
        for lookup in lookups {
            assert_eq!(lookup.await.expect("it ends").0, Ok(vec!["192.0.2.5".into()]));
        }
        resolver.counts()
    });
    assert_eq!((world.queries[0].get(), counts.shared), (1, 499));
}

#[test]
fn an_idle_resolver_has_no_socket_and_no_connection() {
    let mut world = World::new(4);
    world.serve(|_| {});
    let config = ResolverConfig { sockets: 4, ..ResolverConfig::default() };
    let resolver = world.resolver(config, &["10.0.0.1"]);
    let used = world.run(async move {
        all(&resolver, 100).await;
        let (many, _) = look_up(resolver.clone(), "many.example".into()).await;
        assert!(many.is_ok());
        let used = resolver.sockets();
        task::sleep(Duration::from_secs(60)).await;
        (used, resolver.sockets(), look_up(resolver.clone(), "h101.example".into()).await.0.is_ok())
    });
    assert_eq!(used, (4, 0, true));
    world.network.run_for(Duration::from_secs(60));
    assert_eq!((world.node.counts().endpoints, world.node.counts().connections), (0, 0));
}

#[test]
fn a_drain_waits_for_responses_in_datagrams_and_for_no_idle_socket() {
    for seed in seeds(5) {
        let mut world = World::new(seed);
        world.network.set_link(Link { latency: Duration::from_millis(100), ..Link::default() });
        world.serve(|_| {});
        let resolver = world.resolver(ResolverConfig::default(), &["10.0.0.1"]);
        let kept = resolver.clone();
        let lookups = world.node.spawn(async move { all(&resolver, 10).await });
        world.network.run_for(Duration::from_millis(50));
        world.node.drain(Duration::from_secs(600));
        world.network.run_task(Duration::from_secs(600), lookups);
        assert_eq!((kept.counts().datagrams, kept.counts().timeouts), (10, 0), "seed {seed}");
        assert!(world.network.run_until(Duration::from_secs(1), || world.node.is_drained()), "seed {seed}");
    }
}
