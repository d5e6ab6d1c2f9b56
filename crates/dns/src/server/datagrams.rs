//! `DatagramServer`: the datagrams of a server, on one loop.
//!
//! A response that is ready leaves with those of its batch. One that a task waits for is queued by the task, which wakes
//! the endpoint. Rate limits decide when a response leaves, by its kind.

use std::cell::RefCell;
use std::net::IpAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use tidegate_buffer::{Datagram, Transmit, Transmits};
use tidegate_codec::Endpoint;
use tidegate_engine::{AdmissionControl, EndpointWaker, task};

use super::counters::{Counters, count};
use super::in_flight::Place;
use super::loop_handlers::QueryService;
use super::query_handler::{Begun, QueryHandler, begin};
use super::response_runs::push_joined;
use super::{QueryParts, RateDecision, RateLimiter, RateLimits, Response, ResponseKind, datagram_bytes_max};
use crate::edns::ExtendedError;
use crate::message_view::MessageView;
use crate::message_writer::EncodedMessage;
use crate::numbers::ResponseCode;

/// The endpoint of a server's loop.
#[derive(Debug)]
pub(super) struct DatagramServer<H> {
    /// Listeners of other transports have it too.
    service: Rc<QueryService<H>>,
    access: Option<Arc<AdmissionControl>>,
    limiter: Option<RateLimiter>,
    counters: Arc<Counters>,
    ready: Vec<Transmit>,
    /// Each task that waits has it too.
    waiting: Rc<Waiting>,
    waker: EndpointWaker,
    is_draining: bool,
}

/// Queries for whose responses tasks wait.
#[derive(Debug, Default)]
struct Waiting {
    /// Responses that are there now, each with its query.
    finished: RefCell<Vec<(Transmit, QueryParts)>>,
}

impl<H: QueryHandler> DatagramServer<H> {
    pub(super) fn new(
        service: Rc<QueryService<H>>,
        access: Option<Arc<AdmissionControl>>,
        rates: Option<RateLimits>,
        waker: EndpointWaker,
    ) -> Self {
        let (counters, ready, waiting) = (service.counters.clone(), Vec::new(), Rc::default());
        let limiter = rates.map(RateLimiter::new);
        Self { service, access, limiter, counters, ready, waiting, waker, is_draining: false }
    }

    fn answer(&mut self, datagram: &Datagram, now: Instant) {
        let header = MessageView::header_of(&datagram.payload);
        // A response is never answered: two servers would answer each other for ever. Nor is port 0, which cannot receive.
        let Some(header) = header.filter(|header| !header.is_response && datagram.source.port() != 0) else {
            return count(&self.counters.malformed);
        };
        count(&self.counters.datagram_queries);
        let client = datagram.source.ip().to_canonical();
        let Ok(query) = MessageView::parse(&datagram.payload) else {
            count(&self.counters.malformed);
            return self.send(datagram, crate::format_error(&header), None, now);
        };
        let bytes_max = Some(datagram_bytes_max(&query));
        let refusal = if self.access.as_ref().is_some_and(|access| !access.permits(client)) {
            count(&self.counters.denied);
            let extended_error = Some((ExtendedError::PROHIBITED, ""));
            Some(Response { extended_error, ..Response::of_code(ResponseCode::REFUSED) })
        } else {
            None
        };
        if let Some(refusal) = refusal {
            let parts = QueryParts::of(&query);
            return self.send(datagram, parts.encode(&refusal, bytes_max), Some(&query), now);
        }
        let can_wait = !self.is_draining && self.service.in_flight.has_room(Some(client));
        match begin(&*self.service.handler, query, Some(client), bytes_max, now, can_wait) {
            Begun::Ready(message) => self.send(datagram, message, Some(&query), now),
            Begun::Waiting(parts, future) if can_wait => {
                let (waiting, waker) = (self.waiting.clone(), self.waker.clone());
                let place = Place::take(&self.service.in_flight, Some(client));
                // The address alone: a task keeps no memory of the batch.
                let transmit = Transmit::response(datagram, Vec::new());
                drop(task::spawn(async move {
                    let response = future.await;
                    let payload = parts.encode(&response, bytes_max).into_bytes().into();
                    drop(place);
                    waiting.finished.borrow_mut().push((Transmit { payload, ..transmit }, parts));
                    drop(waiting);
                    waker.wake();
                }));
            }
            // Another handler than a `Forwarder`, which does not look at `can_wait`.
            Begun::Waiting(parts, _) => {
                count(&self.counters.overloaded);
                let message = parts.encode(&Response::of_code(ResponseCode::SERVFAIL), bytes_max);
                self.send(datagram, message, Some(&query), now);
            }
        }
    }

    fn send(&mut self, datagram: &Datagram, message: EncodedMessage, query: Option<&MessageView<'_>>, now: Instant) {
        match self.decide(datagram.source.ip(), &message, now) {
            RateDecision::Send => self.ready.push(Transmit::response(datagram, message.into_bytes())),
            RateDecision::Truncate => {
                if let Some(query) = query {
                    let truncated = QueryParts::of(query).truncated();
                    self.ready.push(Transmit::response(datagram, truncated.into_bytes()));
                }
            }
            RateDecision::Drop => {}
        }
    }

    /// Asks the rate limits. Peers of the same machine are not limited: no other machine can forge their addresses.
    fn decide(&mut self, peer: IpAddr, message: &[u8], now: Instant) -> RateDecision {
        let Some(limiter) = self.limiter.as_mut().filter(|_| !peer.to_canonical().is_loopback()) else {
            return RateDecision::Send;
        };
        let decision = limiter.check(peer, kind(message), now);
        match decision {
            RateDecision::Send => {}
            RateDecision::Truncate => count(&self.counters.rate_truncated),
            RateDecision::Drop => count(&self.counters.rate_dropped),
        }
        decision
    }

    /// The responses for which tasks have waited.
    fn finish(&mut self, now: Instant) {
        let finished = self.waiting.finished.take();
        for (transmit, parts) in finished {
            let peer = transmit.destination.map_or(IpAddr::from([0; 4]), |destination| destination.ip());
            match self.decide(peer, &transmit.payload, now) {
                RateDecision::Send => self.ready.push(transmit),
                RateDecision::Truncate => {
                    self.ready.push(Transmit { payload: parts.truncated().into_bytes().into(), ..transmit });
                }
                RateDecision::Drop => {}
            }
        }
    }
}

impl<H: QueryHandler> Endpoint for DatagramServer<H> {
    fn handle_datagram(&mut self, datagram: Datagram, now: Instant) {
        self.answer(&datagram, now);
    }

    fn poll_transmit(&mut self, now: Instant, transmits: &mut Transmits) {
        self.finish(now);
        push_joined(&mut self.ready, transmits);
    }

    // A drain: lookups in flight end, and their responses leave. No further one begins, so it ends under load too.
    fn drain(&mut self, _now: Instant) {
        self.is_draining = true;
    }

    fn is_drained(&self) -> bool {
        Rc::strong_count(&self.waiting) == 1 && self.waiting.finished.borrow().is_empty()
    }
}

/// The kind of a response, from its header.
fn kind(message: &[u8]) -> ResponseKind {
    let code = message.get(3).map_or(0, |byte| u16::from(byte & 15));
    let has_answers = message.get(6..8).is_some_and(|count| count != [0, 0]);
    match ResponseCode(code) {
        ResponseCode::NOERROR if has_answers => ResponseKind::Positive,
        ResponseCode::NOERROR | ResponseCode::NXDOMAIN => ResponseKind::Negative,
        _ => ResponseKind::Error,
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;
    use std::time::Duration;

    use tidegate_buffer::Pool;
    use tidegate_testkit::network::Network;

    use super::*;
    use crate::edns::Edns;
    use crate::records::{Question, Rdata, Record};
    use crate::server::in_flight::InFlight;
    use crate::server::{ClientQuery, Forwarder, Reply, Responder, ServerLimits, ServerMetrics};
    use crate::{
        CacheConfig, Header, MessageWriter, NameServer, RecordType, ResolverConfig, SharedCache, StubResolver,
    };

    /// Ten records for each name.
    struct Ten;

    impl Responder for Ten {
        fn answer(&self, question: &Question) -> Response {
            let mut response = Response::of_code(ResponseCode::NOERROR);
            for host in 0..10 {
                response.answers.push(Record::new(question.name.clone(), 60, Rdata::a([192, 0, 2, host].into())));
            }
            response
        }
    }

    fn made<H: QueryHandler>(handler: Rc<H>, limits: ServerLimits, metrics: &ServerMetrics) -> DatagramServer<H> {
        let service = QueryService {
            handler,
            in_flight: Rc::new(InFlight::new(&limits)),
            counters: metrics.register(),
            in_flight_per_connection_max: limits.in_flight_per_connection_max,
        };
        DatagramServer::new(Rc::new(service), None, limits.rates, EndpointWaker::default())
    }

    /// The codes of the responses that a server has ready.
    fn codes<H: QueryHandler>(server: &mut DatagramServer<H>, now: Instant) -> Vec<ResponseCode> {
        let pool = Pool::new();
        let mut transmits = Transmits::new(&pool);
        server.poll_transmit(now, &mut transmits);
        let code = |sent: &[u8]| MessageView::parse(sent).unwrap().response_code();
        transmits.iter().flat_map(messages).map(code).collect()
    }

    /// The responses of a run.
    fn messages(sent: &Transmit) -> impl Iterator<Item = &[u8]> {
        let size = sent.segment_size.map_or(sent.payload.len(), |size| usize::from(size.get()));
        sent.payload.chunks(size)
    }

    fn ask<H: QueryHandler>(server: &mut DatagramServer<H>, peer: &str, host: &str, now: Instant) {
        let question = Question::new(host.parse().unwrap(), RecordType::A);
        let query = MessageWriter::new(Header::query(7)).question(&question).unwrap().finish();
        server.handle_datagram(Datagram::new(Pool::new().copy(&query), peer.parse().unwrap()), now);
    }

    /// Runs a test on a loop of a simulated network.
    fn on_a_loop<T: 'static>(test: impl Future<Output = T> + 'static) -> T {
        let network = Network::new(1);
        let node = network.host("10.0.0.1").node();
        let task = node.spawn(test);
        network.run_task(Duration::from_secs(600), task)
    }

    #[test]
    fn a_client_without_room_begins_no_lookup_and_leaves_those_of_others() {
        on_a_loop(async {
            let cache = SharedCache::new(CacheConfig::default());
            let (now, known, data) = (task::now(), "known.example".parse().unwrap(), Rdata::a([192, 0, 2, 1].into()));
            cache.with(|cache| cache.insert(&known, RecordType::A, &[data], 60, now));
            let config = ResolverConfig { lookups_max: 3, ..ResolverConfig::default() };
            let upstream = NameServer::at("10.0.0.53:53".parse().unwrap());
            let resolver = StubResolver::simulated(vec![upstream], config, cache, 1, |_| {
                Err(std::io::ErrorKind::AddrNotAvailable.into())
            });
            let metrics = ServerMetrics::new();
            let forwarder = Rc::new(Forwarder::new(resolver.clone(), &metrics));
            let limits = ServerLimits { in_flight_per_client_max: 2, ..ServerLimits::default() };
            let mut server = made(forwarder, limits, &metrics);
            for host in 0..10 {
                ask(&mut server, "127.0.0.1:5300", &format!("h{host}.example"), now);
            }
            assert_eq!(codes(&mut server, now), [ResponseCode::SERVFAIL; 8]);
            assert_eq!((resolver.lookups_in_flight(), metrics.counts().overloaded), (2, 8));
            ask(&mut server, "127.0.0.1:5300", "known.example", now);
            assert_eq!(codes(&mut server, now), [ResponseCode::NOERROR]);
            ask(&mut server, "127.0.0.2:5300", "other.example", now);
            assert_eq!(codes(&mut server, now), []);
            assert_eq!((resolver.lookups_in_flight(), metrics.counts().overloaded), (3, 8));
            assert_eq!((metrics.counts().cache_hits, metrics.counts().cache_misses), (1, 3));
            // No client is above its limit here, and the resolver is above its own.
            ask(&mut server, "127.0.0.3:5300", "more.example", now);
            assert_eq!(codes(&mut server, now), [ResponseCode::SERVFAIL]);
            let counts = metrics.counts();
            assert_eq!((counts.overloaded, counts.cache_hits, counts.failures), (9, 1, 0));
        });
    }

    /// Each name has no records, after a second.
    struct Slow;

    impl QueryHandler for Slow {
        fn query(&self, _query: &ClientQuery<'_>) -> Reply {
            Reply::later(async {
                task::sleep(Duration::from_secs(1)).await;
                Response::of_code(ResponseCode::NOERROR)
            })
        }
    }

    #[test]
    fn a_drain_ends_though_queries_come() {
        on_a_loop(async {
            let (metrics, limits, begun) = (ServerMetrics::new(), ServerLimits::default(), task::now());
            let mut server = made(Rc::new(Slow), limits, &metrics);
            ask(&mut server, "127.0.0.1:5300", "first.example", begun);
            server.drain(begun);
            assert!(!server.is_drained(), "a query is in flight");
            task::sleep(Duration::from_millis(500)).await;
            ask(&mut server, "127.0.0.1:5300", "second.example", task::now());
            assert_eq!(codes(&mut server, task::now()), [ResponseCode::SERVFAIL]);
            task::sleep(Duration::from_millis(600)).await;
            assert!(!server.is_drained(), "a response has not left");
            assert_eq!(codes(&mut server, task::now()), [ResponseCode::NOERROR]);
            assert!(server.is_drained());
        });
    }

    /// How many whole and how many truncated responses a hundred queries of peers get.
    fn responses(rates: Option<RateLimits>, peer: impl Fn(u8) -> SocketAddr) -> (usize, usize, ServerMetrics) {
        let (metrics, pool, now) = (ServerMetrics::new(), Pool::new(), Instant::now());
        let limits = ServerLimits { rates, ..ServerLimits::default() };
        let mut server = made(Rc::new(Ten), limits, &metrics);
        let question = Question::new("tides.example".parse().unwrap(), RecordType::A);
        let query = MessageWriter::new(Header::query(7)).question(&question).unwrap().finish();
        for host in 0..100 {
            server.handle_datagram(Datagram::new(pool.copy(&query), peer(host)), now);
        }
        let mut transmits = Transmits::new(&pool);
        server.poll_transmit(now, &mut transmits);
        let is_truncated = |sent: &&[u8]| MessageView::parse(sent).unwrap().header().is_truncated;
        let all: Vec<&[u8]> = transmits.iter().flat_map(messages).collect();
        let truncated = all.iter().copied().filter(is_truncated).count();
        assert!(all.iter().copied().filter(is_truncated).all(|sent| sent.len() == query.len()));
        (all.len() - truncated, truncated, metrics)
    }

    #[test]
    fn a_flood_from_forged_sources_of_one_network_gets_few_responses_and_others_all() {
        let rates = RateLimits { responses_per_second: 10, burst: 20, slip: 2, ..RateLimits::default() };
        let (whole, truncated, metrics) = responses(Some(rates), |host| SocketAddr::from(([192, 0, 2, host], 53)));
        assert_eq!((whole, truncated), (20, 40));
        let counts = metrics.counts();
        assert_eq!((counts.rate_dropped, counts.rate_truncated, counts.datagram_queries), (40, 40, 100));
        let others = responses(Some(rates), |host| SocketAddr::from(([192, host, 2, 1], 53)));
        assert_eq!((others.0, others.1), (100, 0));
        let same_machine = responses(Some(rates), |_| SocketAddr::from(([127, 0, 0, 1], 53)));
        assert_eq!((same_machine.0, same_machine.1), (100, 0));
        let unlimited = responses(None, |host| SocketAddr::from(([192, 0, 2, host], 53)));
        assert_eq!((unlimited.0, unlimited.1), (100, 0));
    }

    #[test]
    fn a_truncated_response_has_the_opt_record_and_do_of_its_query() {
        let rates = RateLimits { responses_per_second: 1, burst: 1, slip: 1, ..RateLimits::default() };
        let (metrics, pool, now) = (ServerMetrics::new(), Pool::new(), Instant::now());
        let limits = ServerLimits { rates: Some(rates), ..ServerLimits::default() };
        let mut server = made(Rc::new(Ten), limits, &metrics);
        let question = Question::new("tides.example".parse().unwrap(), RecordType::A);
        for dnssec in [None, Some(false), Some(true)] {
            let writer = MessageWriter::new(Header::query(7)).question(&question).unwrap();
            let query = match dnssec {
                Some(wants_dnssec) => writer.edns(&Edns { wants_dnssec, ..Edns::default() }).unwrap().finish(),
                None => writer.finish(),
            };
            for is_truncated in [dnssec.is_some(), true] {
                server.handle_datagram(Datagram::new(pool.copy(&query), "192.0.2.1:53".parse().unwrap()), now);
                let mut transmits = Transmits::new(&pool);
                server.poll_transmit(now, &mut transmits);
                let sent = transmits.pop().unwrap();
                let view = MessageView::parse(&sent.payload).unwrap();
                let edns = view.edns().map(|edns| edns.wants_dnssec);
                assert_eq!((view.header().is_truncated, edns), (is_truncated, dnssec));
            }
        }
    }

    #[test]
    fn port_zero_gets_no_response() {
        let (whole, truncated, metrics) = responses(None, |_| SocketAddr::from(([127, 0, 0, 1], 0)));
        assert_eq!((whole, truncated, metrics.counts().malformed), (0, 0, 100));
    }
}
