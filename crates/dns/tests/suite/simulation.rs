//! A resolver and servers on a simulated network: delays, losses, dead servers and forged answers, by seed.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use tidegate_dns::{
    Answer, CacheConfig, Header, Lookup, LookupError, LookupId, MessageView, MessageWriter, Name, Rdata, Record,
    RecordType, Resolver, ResolverConfig, ResolverServer, ResponseCode, Section, SharedCache, Transmit, Transport,
};
use tidegate_testkit::Random;

use crate::support::name;

/// Results of a lookup, for tests.
pub(crate) type Outcome = Result<std::sync::Arc<Answer>, LookupError>;

/// How a server of the simulation behaves.
#[derive(Debug, Clone)]
pub(crate) struct Behaviour {
    pub(crate) delay: Duration,
    /// One datagram in so many is lost; 0 for none.
    pub(crate) loses_one_in: usize,
    pub(crate) is_dead: bool,
    pub(crate) truncates: bool,
    /// Streams get no answer.
    pub(crate) blocks_streams: bool,
    /// Queries with an OPT record get no answer.
    pub(crate) drops_edns: bool,
    /// The names in its answers are in lower case.
    pub(crate) lowers_case: bool,
    pub(crate) response_code: ResponseCode,
}

impl Default for Behaviour {
    fn default() -> Self {
        Self {
            delay: Duration::from_millis(10),
            loses_one_in: 0,
            is_dead: false,
            truncates: false,
            blocks_streams: false,
            drops_edns: false,
            lowers_case: false,
            response_code: ResponseCode::NOERROR,
        }
    }
}

/// A message that arrives at a time.
#[derive(Debug)]
struct Arrival {
    at: Instant,
    server: usize,
    transport: Transport,
    bytes: Vec<u8>,
}

pub(crate) struct World {
    pub(crate) resolver: Resolver,
    pub(crate) servers: Vec<Behaviour>,
    pub(crate) zone: HashMap<(Name, RecordType), Vec<Record>>,
    pub(crate) now: Instant,
    pub(crate) random: Random,
    /// Queries that were sent, without those that were lost.
    pub(crate) queries: Vec<(usize, Transport, Vec<u8>)>,
    /// Changes a response before it is sent.
    pub(crate) tamper: fn(&mut Vec<u8>),
    /// Sends so many forged answers to each query in a datagram, with guessed IDs and cases.
    pub(crate) forgeries: usize,
    arrivals: Vec<Arrival>,
    pub(crate) finished: HashMap<LookupId, Outcome>,
}

impl World {
    pub(crate) fn new(servers: Vec<Behaviour>, seed: u64) -> Self {
        Self::with(ResolverConfig::default(), CacheConfig::default(), servers, seed)
    }

    pub(crate) fn with(config: ResolverConfig, cache: CacheConfig, servers: Vec<Behaviour>, seed: u64) -> Self {
        let upstreams = servers.iter().map(|_| ResolverServer::default()).collect();
        Self {
            resolver: Resolver::seeded(config, upstreams, SharedCache::new(cache), seed),
            servers,
            zone: HashMap::new(),
            now: Instant::now(),
            random: Random::new(seed ^ 1),
            queries: Vec::new(),
            tamper: |_| {},
            forgeries: 0,
            arrivals: Vec::new(),
            finished: HashMap::new(),
        }
    }

    pub(crate) fn add(&mut self, owner: &str, ttl: u32, data: Rdata) {
        let record = Record::new(name(owner), ttl, data);
        self.zone.entry((name(owner), record.record_type())).or_default().push(record);
    }

    pub(crate) fn begin(&mut self, owner: &str) -> Lookup {
        let lookup = self.resolver.lookup(&name(owner), RecordType::A, self.now);
        self.pump();
        lookup
    }

    /// A lookup of addresses, to its end.
    pub(crate) fn lookup(&mut self, owner: &str) -> Outcome {
        match self.begin(owner) {
            Lookup::Ready(result) => result,
            Lookup::Pending(id) => self.wait(id),
        }
    }

    pub(crate) fn wait(&mut self, id: LookupId) -> Outcome {
        for _ in 0..10_000 {
            if let Some(result) = self.finished.remove(&id) {
                return result;
            }
            self.step();
        }
        panic!("a lookup does not end")
    }

    /// Advances to the next thing that happens; false if nothing will.
    pub(crate) fn step(&mut self) -> bool {
        let arrival = self.arrivals.iter().enumerate().min_by_key(|(_, arrival)| arrival.at);
        let arrival = arrival.map(|(index, arrival)| (index, arrival.at));
        let timer = self.resolver.poll_timeout();
        match (arrival, timer) {
            (None, None) => return false,
            (Some((index, at)), timer) if timer.is_none_or(|timer| at <= timer) => {
                let arrival = self.arrivals.remove(index);
                self.now = self.now.max(at);
                match arrival.transport {
                    Transport::Datagram(socket) => {
                        self.resolver.handle_datagram(arrival.server, socket, &arrival.bytes, self.now);
                    }
                    Transport::Stream => {
                        self.resolver.handle_stream_message(arrival.server, &arrival.bytes, self.now);
                    }
                }
            }
            (_, timer) => {
                self.now = self.now.max(timer.unwrap_or(self.now));
                self.resolver.handle_timeout(self.now);
            }
        }
        self.pump();
        true
    }

    fn pump(&mut self) {
        while let Some(transmit) = self.resolver.poll_transmit() {
            self.serve(&transmit);
        }
        while let Some((id, result)) = self.resolver.poll_finished() {
            assert!(self.finished.insert(id, result).is_none(), "a lookup has two results");
        }
    }

    fn serve(&mut self, transmit: &Transmit) {
        let Transmit { server, transport, message } = transmit;
        let behaviour = self.servers[*server].clone();
        self.queries.push((*server, *transport, message.to_vec()));
        let has_edns = || MessageView::parse(message).expect("the resolver writes it").edns().is_some();
        let is_blocked = behaviour.blocks_streams && *transport == Transport::Stream;
        if behaviour.is_dead || is_blocked || behaviour.drops_edns && has_edns() {
            return;
        }
        if let Transport::Datagram(_) = transport {
            self.forge(*server, *transport, message);
            if behaviour.loses_one_in > 0 && self.random.once_in(behaviour.loses_one_in) {
                return;
            }
        }
        let mut bytes = self.respond(message, &behaviour, *transport);
        if let Transport::Datagram(_) = transport {
            (self.tamper)(&mut bytes);
        }
        let jitter = Duration::from_micros(self.random.below(2_000) as u64);
        self.arrivals.push(Arrival {
            at: self.now + behaviour.delay + jitter,
            server: *server,
            transport: *transport,
            bytes,
        });
    }

    /// Answers with the address 203.0.113.66, which no zone has.
    fn forge(&mut self, server: usize, transport: Transport, query: &[u8]) {
        let view = MessageView::parse(query).expect("the resolver writes it");
        let mut question = view.question().expect("it has one").to_question();
        question.name = question.name.to_lowercase();
        for _ in 0..self.forgeries {
            let header = Header { id: self.random.bits() as u16, ..*view.header() };
            let mut writer =
                MessageWriter::new(header.response(ResponseCode::NOERROR)).question(&question).expect("first");
            writer
                .rdata(Section::Answer, &question.name, 86_400, &Rdata::a([203, 0, 113, 66].into()))
                .expect("it fits");
            let bytes = writer.finish().to_vec();
            self.arrivals.push(Arrival { at: self.now + Duration::from_millis(1), server, transport, bytes });
        }
    }

    fn respond(&self, query: &[u8], behaviour: &Behaviour, transport: Transport) -> Vec<u8> {
        let view = MessageView::parse(query).expect("the resolver writes it");
        let mut question = view.question().expect("it has one").to_question();
        if behaviour.lowers_case {
            question.name = question.name.to_lowercase();
        }
        let mut header = view.header().response(behaviour.response_code);
        if behaviour.truncates && transport != Transport::Stream {
            header.is_truncated = true;
            return MessageWriter::new(header).question(&question).expect("first").finish().to_vec();
        }
        let mut answers = Vec::new();
        let mut target = question.name.clone();
        for _ in 0..8 {
            if let Some(found) = self.zone.get(&(target.clone(), question.record_type)) {
                answers.extend(found.iter().cloned());
                break;
            }
            let Some(alias) = self.zone.get(&(target.clone(), RecordType::CNAME)) else { break };
            answers.extend(alias.iter().cloned());
            let tidegate_dns::RecordData::Cname(next) = alias[0].data.view() else { break };
            target = next.to_name();
        }
        let is_negative = answers.is_empty() && behaviour.response_code == ResponseCode::NOERROR;
        if is_negative {
            header.response_code = ResponseCode::NXDOMAIN;
        }
        let mut writer = MessageWriter::new(header).question(&question).expect("first");
        answers.iter().for_each(|answer| writer.record(Section::Answer, answer).expect("it fits"));
        if is_negative {
            let soa = Rdata::soa(&name("ns.example"), &name("root.example"), 1, [1, 1, 1, 60]);
            writer.rdata(Section::Authority, &Name::root(), 3_600, &soa).expect("it fits");
        }
        writer.finish().to_vec()
    }
}
