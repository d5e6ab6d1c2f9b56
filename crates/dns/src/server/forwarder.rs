//! `Forwarder`: answers by asking other servers, with their answers cached.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Instant;

use super::Response;
use super::counters::{Counters, ServerMetrics, count};
use super::encoded_answers::EncodedAnswers;
use super::query_handler::{ClientQuery, QueryHandler, Reply};
use crate::client::{BegunLookup, StubResolver};
use crate::edns::ExtendedError;
use crate::message_view::MessageView;
use crate::message_writer::EncodedMessage;
use crate::numbers::{Class, RecordType, ResponseCode};
use crate::records::{Rdata, Record};
use crate::resolver::{Answer, LookupError};

/// A [`QueryHandler`] that asks the servers of a [`StubResolver`], and answers from its cache.
///
/// It answers queries of class IN that desire recursion. ANY gets one record that is of no use to an amplifier
/// (RFC 8482), transfers are refused. Answers carry no signatures: the forwarder does not verify, and does not say so.
///
/// ```
/// use tidegate::dns::server::{DnsServer, Forwarder, ServerMetrics};
/// use tidegate::dns::{CacheConfig, NameServer, ResolverConfig, SharedCache, StubResolver};
///
/// # fn start() -> Result<(), Box<dyn std::error::Error>> {
/// let (cache, metrics) = (SharedCache::new(CacheConfig::default()), ServerMetrics::new());
/// let upstream = "192.0.2.53:53".parse()?;
/// let server = DnsServer::bind("127.0.0.1:0")?.metrics(&metrics.clone()).start(move |_loop| {
///     let servers = vec![NameServer::at(upstream)];
///     Forwarder::new(StubResolver::new(servers, ResolverConfig::default(), cache.clone()), &metrics)
/// })?;
/// # drop(server);
/// # Ok(())
/// # }
/// # start().unwrap();
/// ```
#[derive(Debug)]
pub struct Forwarder {
    resolver: StubResolver,
    counters: Arc<Counters>,
    encoded: RefCell<EncodedAnswers>,
}

impl Forwarder {
    /// A forwarder on the loop of the resolver.
    #[must_use]
    pub fn new(resolver: StubResolver, metrics: &ServerMetrics) -> Self {
        let encoded = RefCell::new(EncodedAnswers::new(ENCODED_MAX));
        Self { resolver, counters: metrics.register(), encoded }
    }

    /// How many answers the loop keeps in wire form, each of at most 1,232 bytes, beside those of the cache; 4,096 unless
    /// set, 0 for none. They save most of the work of a query that comes often.
    #[must_use]
    pub fn encoded_max(mut self, answers: usize) -> Self {
        self.encoded = RefCell::new(EncodedAnswers::new(answers));
        self
    }

    /// The answer to a query that no lookup is for.
    fn without_lookup(query: &ClientQuery<'_>) -> Option<Response> {
        let question = query.question;
        let refused = Response { recursion_available: true, ..Response::of_code(ResponseCode::REFUSED) };
        if question.class != Class::IN || !query.message.header().recursion_desired {
            return Some(refused);
        }
        if question.record_type == RecordType::ANY {
            let record = Record::new(question.name.clone(), ANY_TTL, Rdata::any_refused());
            return Some(Response { answers: vec![record], response_code: ResponseCode::NOERROR, ..refused });
        }
        question.record_type.is_meta().then_some(refused)
    }
}

impl QueryHandler for Forwarder {
    fn encoded(&self, query: &MessageView<'_>, bytes_max: Option<usize>, now: Instant) -> Option<EncodedMessage> {
        let encoded = self.encoded.borrow();
        let message = encoded.get(query, bytes_max, now).filter(|_| query.header().recursion_desired);
        message.inspect(|_| count(&self.counters.cache_hits))
    }

    fn query(&self, query: &ClientQuery<'_>) -> Reply {
        if let Some(response) = Self::without_lookup(query) {
            return response.into();
        }
        if !query.can_wait {
            let cached = self.resolver.cached(&query.question.name, query.question.record_type, query.now);
            let result = cached.unwrap_or(Err(LookupError::Overloaded));
            count(counter_of(&self.counters, &result));
            return response_of(&result).into();
        }
        match self.resolver.begin_lookup(&query.question.name, query.question.record_type, query.now) {
            BegunLookup::Ready(result) => {
                count(counter_of(&self.counters, &result));
                let response = response_of(&result);
                if result.is_ok_and(|answer| !answer.is_stale) {
                    self.encoded.borrow_mut().insert(query, &response);
                }
                response.into()
            }
            BegunLookup::Waiting(waiting) => {
                count(&self.counters.cache_misses);
                let counters = self.counters.clone();
                Reply::later(async move {
                    let result = waiting.await;
                    if result.is_err() {
                        count(counter_of(&counters, &result));
                    }
                    response_of(&result)
                })
            }
        }
    }
}

/// Where a result counts that came at once, or an error that came later.
const fn counter_of<'a>(counters: &'a Counters, result: &Result<Arc<Answer>, LookupError>) -> &'a AtomicU64 {
    match result {
        Ok(_) => &counters.cache_hits,
        Err(LookupError::Overloaded) => &counters.overloaded,
        Err(_) => &counters.failures,
    }
}

/// The response with the result of a lookup.
fn response_of(result: &Result<Arc<Answer>, LookupError>) -> Response {
    let answer = match result {
        Ok(answer) => answer,
        Err(error) => {
            let extended_error = match error {
                LookupError::Timeout => Some((ExtendedError::NO_REACHABLE_AUTHORITY, "")),
                LookupError::Failed => Some((ExtendedError::NETWORK_ERROR, "")),
                LookupError::CachedFailure => Some((ExtendedError::CACHED_ERROR, "")),
                _ => None,
            };
            let failed = Response::of_code(ResponseCode::SERVFAIL);
            return Response { recursion_available: true, extended_error, ..failed };
        }
    };
    let stale = match answer.response_code {
        ResponseCode::NXDOMAIN => ExtendedError::STALE_NXDOMAIN_ANSWER,
        _ => ExtendedError::STALE_ANSWER,
    };
    Response {
        recursion_available: true,
        answers: answer.records.clone(),
        authorities: answer.soa.iter().cloned().collect(),
        extended_error: answer.is_stale.then_some((stale, "")),
        ..Response::of_code(answer.response_code)
    }
}

/// Answers in wire form for each loop.
const ENCODED_MAX: usize = 4_096;

/// The TTL of the record that answers ANY, in seconds.
const ANY_TTL: u32 = 3_600;
