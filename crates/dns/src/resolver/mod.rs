//! `Resolver`: lookups over servers, free of I/O.
//!
//! Bytes and times go in by `handle_*`, datagrams and messages for streams come out by [`poll_transmit`](Resolver::poll_transmit),
//! and results by [`poll_finished`](Resolver::poll_finished). The caller owns the sockets: for each server as many as
//! [`sockets`](ResolverConfig::sockets), each bound to a port of the system's choice, and one stream.
//!
//! A datagram is an answer only if it comes from the server and to the socket of an attempt, has its ID, its question
//! with the letters' cases, and its cookie. One that fails this for the name of a lookup makes that lookup go on over a
//! stream at once: a forger gains nothing from more of them, and a lookup does not wait.
//!
//! `attempts.rs` sends, `receiving.rs` matches responses, `response.rs` has their meaning, `upstream.rs` measures
//! servers, `from_cache.rs` answers without them.

mod answer;
mod attempts;
mod config;
mod from_cache;
mod query_random;
mod receiving;
mod response;
mod shared_cache;
mod upstream;

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use tidegate_codec::later;

pub use answer::{Answer, LookupError};
pub use config::{ResolverConfig, ResolverServer};
pub use shared_cache::SharedCache;

use crate::message_writer::EncodedMessage;
use crate::name::Name;
use crate::numbers::RecordType;
use crate::records::Record;
use query_random::QueryRandom;
use upstream::Upstream;

/// The number of a lookup in flight. Equal questions have the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LookupId(u64);

/// The beginning of a lookup.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Lookup {
    /// The result, from the cache.
    Ready(Result<Arc<Answer>, LookupError>),
    /// [`poll_finished`](Resolver::poll_finished) has the result later.
    Pending(LookupId),
}

/// How a query is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Transport {
    /// In a datagram from the socket with this index.
    Datagram(u16),
    /// Over the stream to the server, which is opened if there is none.
    Stream,
}

/// A query to send.
#[derive(Debug, Clone)]
pub struct Transmit {
    /// The index of the server.
    pub server: usize,
    /// How it is sent.
    pub transport: Transport,
    /// The query.
    pub message: EncodedMessage,
}

/// Counts since a resolver began.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct ResolverCounts {
    /// Lookups that the cache answered.
    pub cache_hits: u64,
    /// Lookups that shared one in flight.
    pub shared: u64,
    /// Queries in datagrams.
    pub datagrams: u64,
    /// Queries over streams.
    pub stream_queries: u64,
    /// Responses that belong to an attempt.
    pub responses: u64,
    /// Responses that belong to none, or have another ID, name or cookie.
    pub mismatches: u64,
    /// Attempts without an answer in time.
    pub timeouts: u64,
    /// Stale answers.
    pub stale: u64,
}

/// Lookups over servers, free of I/O.
///
/// ```
/// use std::time::Instant;
/// use tidegate::dns::{
///     CacheConfig, Header, Lookup, MessageView, MessageWriter, Rdata, RecordType, Resolver, ResolverConfig,
///     ResolverServer, ResponseCode, Section, SharedCache, Transport,
/// };
///
/// let (now, cache) = (Instant::now(), SharedCache::new(CacheConfig::default()));
/// let mut resolver = Resolver::new(ResolverConfig::default(), vec![ResolverServer::default()], cache);
/// let Lookup::Pending(id) = resolver.lookup(&"tides.example".parse()?, RecordType::A, now) else { panic!("it is not cached") };
///
/// // The server's side.
/// let query = resolver.poll_transmit().expect("a query");
/// let Transport::Datagram(socket) = query.transport else { panic!("a datagram") };
/// let view = MessageView::parse(&query.message)?;
/// let question = view.question().expect("it has one").to_question();
/// let mut response = MessageWriter::new(view.header().response(ResponseCode::NOERROR)).question(&question)?;
/// response.rdata(Section::Answer, &question.name, 300, &Rdata::a([192, 0, 2, 1].into()))?;
///
/// resolver.handle_datagram(query.server, socket, &response.finish(), now);
/// let (finished, result) = resolver.poll_finished().expect("a result");
/// assert_eq!((finished, result.expect("an answer").addresses().count()), (id, 1));
/// # Ok::<(), tidegate::dns::DnsError>(())
/// ```
#[derive(Debug)]
pub struct Resolver {
    config: ResolverConfig,
    cache: SharedCache,
    upstreams: Vec<Upstream>,
    random: QueryRandom,
    next_id: u64,
    /// The next turn of a lookup for AAAA, and of any other.
    turns: [usize; 2],
    lookups: HashMap<LookupId, LookupState>,
    by_question: HashMap<(Name, RecordType), LookupId>,
    /// Attempts by server, transport and ID.
    in_flight: HashMap<(usize, Transport, u16), LookupId>,
    timers: BinaryHeap<Reverse<(Instant, LookupId)>>,
    transmits: VecDeque<Transmit>,
    finished: VecDeque<(LookupId, Result<Arc<Answer>, LookupError>)>,
    counts: ResolverCounts,
}

/// A lookup in flight.
#[derive(Debug)]
struct LookupState {
    name: Name,
    record_type: RecordType,
    /// The end of the aliases so far.
    target: Name,
    aliases: Vec<Record>,
    waiters: usize,
    /// Which server has the turn, if turns rotate.
    turn: usize,
    deadline: Instant,
    /// When the next server is tried.
    next_attempt: Instant,
    attempts: Vec<Attempt>,
    /// Attempts for this target.
    tried: u32,
    /// Servers that failed for this target.
    failed: Vec<usize>,
    /// Servers that this lookup could not reach: their ports are closed, or their connections end.
    unreachable: Vec<usize>,
    /// Whether a server has responded, however.
    has_response: bool,
    is_stream: bool,
    mismatches: u32,
    /// Servers whose answers had the name in other cases.
    other_cases: Vec<usize>,
    stale: Option<Arc<Answer>>,
    stale_at: Instant,
    /// The timer that counts.
    timer: Option<Instant>,
}

/// A query that may be answered.
#[derive(Debug)]
struct Attempt {
    server: usize,
    transport: Transport,
    id: u16,
    /// The name with the cases of its letters.
    name: Name,
    sent: Instant,
    has_edns: bool,
    is_late: bool,
}

impl Resolver {
    /// A resolver with servers, which are known by their indices, and a cache.
    ///
    /// # Panics
    /// If there is no server.
    #[must_use]
    pub fn new(config: ResolverConfig, servers: Vec<ResolverServer>, cache: SharedCache) -> Self {
        Self::with_random(config, servers, cache, QueryRandom::from_system())
    }

    /// As [`new`](Self::new), with numbers that follow from a seed: for simulations, never for a network.
    ///
    /// # Panics
    /// As for [`new`](Self::new).
    #[must_use]
    pub fn seeded(config: ResolverConfig, servers: Vec<ResolverServer>, cache: SharedCache, seed: u64) -> Self {
        Self::with_random(config, servers, cache, QueryRandom::seeded(seed))
    }

    fn with_random(
        config: ResolverConfig,
        servers: Vec<ResolverServer>,
        cache: SharedCache,
        mut random: QueryRandom,
    ) -> Self {
        assert!(!servers.is_empty(), "a resolver has at least one server");
        let upstreams = servers.into_iter().map(|server| Upstream::new(server, random.bits().to_be_bytes()));
        Self {
            upstreams: upstreams.collect(),
            config,
            cache,
            random,
            next_id: 0,
            turns: [0; 2],
            lookups: HashMap::new(),
            by_question: HashMap::new(),
            in_flight: HashMap::new(),
            timers: BinaryHeap::new(),
            transmits: VecDeque::new(),
            finished: VecDeque::new(),
            counts: ResolverCounts::default(),
        }
    }

    /// Counts since the beginning.
    #[must_use]
    pub const fn counts(&self) -> ResolverCounts {
        self.counts
    }

    /// The cache.
    #[must_use]
    pub const fn cache(&self) -> &SharedCache {
        &self.cache
    }

    /// The most time that a server has to answer before the next is tried.
    pub(crate) const fn server_timeout(&self) -> Duration {
        self.config.server_timeout
    }

    /// Lookups in flight.
    #[must_use]
    pub fn lookups_in_flight(&self) -> usize {
        self.lookups.len()
    }

    /// Begins a lookup, or joins one in flight.
    pub fn lookup(&mut self, name: &Name, record_type: RecordType, now: Instant) -> Lookup {
        // ANY is refused too: its answers are the most useful to an amplifier, and no cache has them (RFC 8482).
        if record_type.is_meta() {
            return Lookup::Ready(Err(LookupError::Question));
        }
        let cached = from_cache::read(&self.cache, name, record_type, self.config.aliases_max, now);
        if let Some(ready) = cached.result {
            match &ready {
                Ok(answer) if answer.is_stale => self.counts.stale += 1,
                _ => self.counts.cache_hits += 1,
            }
            if cached.is_prefetch_due {
                // Nobody waits for it, and its failure leaves the entry as it is.
                let _ = self.begin(name, record_type, 0, None, now);
            }
            return Lookup::Ready(ready);
        }
        self.begin(name, record_type, 1, cached.stale, now)
    }

    /// As [`lookup`](Self::lookup), but the servers are asked also if the cache has an answer; that one is used if none of
    /// them answers. A failure of a short while ago is not asked for again (RFC 9520).
    pub fn lookup_fresh(&mut self, name: &Name, record_type: RecordType, now: Instant) -> Lookup {
        if record_type.is_meta() {
            return Lookup::Ready(Err(LookupError::Question));
        }
        let cached = from_cache::read(&self.cache, name, record_type, self.config.aliases_max, now);
        match cached.result {
            Some(Err(error)) => Lookup::Ready(Err(error)),
            Some(Ok(known)) => self.begin(name, record_type, 1, Some(known), now),
            None => self.begin(name, record_type, 1, cached.stale, now),
        }
    }

    /// The answer of the cache, also one whose time has passed. It begins no lookup, and joins none: for a caller that
    /// cannot wait.
    pub fn cached(
        &mut self,
        name: &Name,
        record_type: RecordType,
        now: Instant,
    ) -> Option<Result<Arc<Answer>, LookupError>> {
        let cached = from_cache::read(&self.cache, name, record_type, self.config.aliases_max, now);
        if cached.result.is_some() {
            self.counts.cache_hits += 1;
            return cached.result;
        }
        self.counts.stale += u64::from(cached.stale.is_some());
        cached.stale.map(Ok)
    }

    fn begin(
        &mut self,
        name: &Name,
        record_type: RecordType,
        waiters: usize,
        stale: Option<Arc<Answer>>,
        now: Instant,
    ) -> Lookup {
        let key = (name.clone(), record_type);
        if let Some(id) = self.by_question.get(&key)
            && let Some(lookup) = self.lookups.get_mut(id)
        {
            if let Some(stale) = lookup.stale.as_ref().filter(|_| now >= lookup.stale_at) {
                self.counts.stale += 1;
                return Lookup::Ready(Ok(stale.clone()));
            }
            if lookup.waiters + waiters > self.config.waiters_max {
                return Lookup::Ready(Err(LookupError::Overloaded));
            }
            lookup.waiters += waiters;
            self.counts.shared += waiters as u64;
            return Lookup::Pending(*id);
        }
        if self.lookups.len() >= self.config.lookups_max {
            return Lookup::Ready(stale.ok_or(LookupError::Overloaded));
        }
        let id = LookupId(self.next_id);
        self.next_id += 1;
        let lookup = LookupState {
            name: name.clone(),
            record_type,
            target: name.clone(),
            aliases: Vec::new(),
            waiters,
            turn: self.turn(record_type),
            deadline: later(now, self.config.lookup_timeout),
            next_attempt: now,
            attempts: Vec::new(),
            tried: 0,
            failed: Vec::new(),
            unreachable: Vec::new(),
            has_response: false,
            is_stream: self.config.use_streams,
            mismatches: 0,
            other_cases: Vec::new(),
            stale,
            stale_at: later(now, self.config.stale_after),
            timer: None,
        };
        self.lookups.insert(id, lookup);
        self.by_question.insert(key, id);
        self.attempt(id, now);
        Lookup::Pending(id)
    }

    /// The turn of a new lookup. A host is looked up with a question for A and one for AAAA: if they shared the turns, one
    /// server of two would have all questions for A.
    fn turn(&mut self, record_type: RecordType) -> usize {
        let next = &mut self.turns[usize::from(record_type == RecordType::AAAA)];
        let turn = *next;
        *next = (turn + 1) % self.upstreams.len();
        turn
    }

    /// A caller waits no longer for a lookup, which goes on: its answer is stored for others.
    pub fn forget_waiter(&mut self, id: LookupId) {
        if let Some(lookup) = self.lookups.get_mut(&id) {
            lookup.waiters = lookup.waiters.saturating_sub(1);
        }
    }

    /// The next query to send.
    pub fn poll_transmit(&mut self) -> Option<Transmit> {
        self.transmits.pop_front()
    }

    /// The next result. Each lookup has one, however many callers wait for it.
    pub fn poll_finished(&mut self) -> Option<(LookupId, Result<Arc<Answer>, LookupError>)> {
        self.finished.pop_front()
    }

    /// The time of the next call of [`handle_timeout`](Self::handle_timeout), if any.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.timers.peek().map(|Reverse((time, _))| *time)
    }

    /// Times have come: other servers are tried, and lookups end.
    pub fn handle_timeout(&mut self, now: Instant) {
        while let Some(Reverse((time, id))) = self.timers.peek().copied()
            && time <= now
        {
            self.timers.pop();
            if let Some(lookup) = self.lookups.get_mut(&id).filter(|lookup| lookup.timer == Some(time)) {
                lookup.timer = None;
                self.on_time(id, now);
            }
        }
    }

    fn on_time(&mut self, id: LookupId, now: Instant) {
        let Some(lookup) = self.lookups.get_mut(&id) else { return };
        if lookup.waiters > 0
            && now >= lookup.stale_at
            && let Some(stale) = &lookup.stale
        {
            self.finished.push_back((id, Ok(stale.clone())));
            self.counts.stale += lookup.waiters as u64;
            lookup.waiters = 0;
        }
        if now >= lookup.deadline {
            return self.fail(id, LookupError::Timeout, now);
        }
        if now >= lookup.next_attempt {
            let is_on_stream = |attempt: &&Attempt| attempt.transport == Transport::Stream;
            let streams: Vec<usize> =
                lookup.attempts.iter().filter(is_on_stream).map(|attempt| attempt.server).collect();
            for attempt in lookup.attempts.iter_mut().filter(|attempt| !attempt.is_late) {
                // A later answer still counts.
                attempt.is_late = true;
                self.counts.timeouts += 1;
                self.upstreams[attempt.server].on_timeout(now);
            }
            streams.into_iter().for_each(|server| self.on_stream_failed(id, server));
            self.attempt(id, now);
        } else {
            self.arm(id);
        }
    }

    /// Sets the timer of a lookup for the next thing that is due.
    fn arm(&mut self, id: LookupId) {
        let Some(lookup) = self.lookups.get_mut(&id) else { return };
        let mut time = lookup.deadline.min(lookup.next_attempt);
        if lookup.stale.is_some() && lookup.waiters > 0 {
            time = time.min(lookup.stale_at);
        }
        // A timer that was set before is obsolete, and does nothing when its time comes.
        if lookup.timer.replace(time) != Some(time) {
            self.timers.push(Reverse((time, id)));
        }
        if self.timers.len() > TIMERS_MIN + 4 * self.lookups.len() {
            let lookups = &self.lookups;
            let counts = |timer: &Reverse<(Instant, LookupId)>| {
                lookups.get(&timer.0.1).is_some_and(|lookup| lookup.timer == Some(timer.0.0))
            };
            self.timers.retain(counts);
        }
    }

    /// Ends a lookup with an answer.
    fn finish(&mut self, id: LookupId, result: Result<Arc<Answer>, LookupError>) {
        let Some(lookup) = self.lookups.remove(&id) else { return };
        for attempt in &lookup.attempts {
            self.in_flight.remove(&(attempt.server, attempt.transport, attempt.id));
        }
        self.by_question.remove(&(lookup.name, lookup.record_type));
        if self.lookups.is_empty() {
            // All of them are obsolete.
            self.timers.clear();
            if self.lookups.capacity() > LOOKUPS_KEPT {
                self.release_memory();
            }
        }
        if lookup.waiters > 0 {
            self.finished.push_back((id, result));
        }
    }

    /// Gives back the memory of tables that a burst of lookups has left. A resolver without lookups has few bytes then.
    pub fn release_memory(&mut self) {
        self.lookups.shrink_to_fit();
        self.by_question.shrink_to_fit();
        self.in_flight.shrink_to_fit();
        self.timers.shrink_to_fit();
        self.transmits.shrink_to_fit();
        self.finished.shrink_to_fit();
    }

    /// Ends a lookup without an answer, unless a stale one is left.
    fn fail(&mut self, id: LookupId, error: LookupError, now: Instant) {
        let Some(lookup) = self.lookups.get(&id) else { return };
        let (name, record_type, stale) = (lookup.target.clone(), lookup.record_type, lookup.stale.clone());
        let (question, has_response) = (lookup.name.clone(), lookup.has_response);
        if !matches!(error, LookupError::Overloaded | LookupError::Question) {
            let aliases_max = self.config.aliases_max;
            self.cache.with(|cache| {
                // The name may have an answer through an alias, which a failure of its own would hide.
                if from_cache::keep_answer(cache, &question, record_type, aliases_max, has_response, now)
                    && question == name
                {
                    return;
                }
                match has_response {
                    true => cache.insert_failure(&name, record_type, now),
                    false => cache.insert_unreachable(&name, record_type, now),
                }
            });
        }
        if stale.is_some() && lookup.waiters > 0 {
            self.counts.stale += lookup.waiters as u64;
        }
        self.finish(id, stale.ok_or(error));
    }
}

/// Timers, most of them obsolete, that a resolver keeps beside four for each lookup.
const TIMERS_MIN: usize = 64;

/// The capacity of the table of lookups that an idle resolver keeps until its sockets close.
const LOOKUPS_KEPT: usize = 128;
