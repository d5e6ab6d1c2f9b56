//! `HttpsRecords`: the endpoints of origins by their HTTPS records (RFC 9460).
//!
//! Before the first request to an origin of `https`, its records are asked for beside its addresses. The request waits for
//! them no longer than [`RECORD_WAIT`]; a later answer is for later requests. The first endpoint that has a version of this
//! client counts: connections go there, with the certificate of the origin, and QUIC begins at once if it has `h3`. Where
//! an endpoint cannot be reached, connections go to the origin itself until the record's time has passed.
//!
//! Records change nothing for `http`, and nothing through a proxy.

use std::cell::RefCell;
use std::collections::HashMap;
use std::future::poll_fn;
use std::rc::Rc;
use std::task::Poll;
use std::time::{Duration, Instant};

use tidegate_engine::{HttpsEndpoint, HttpsEndpoints, task};
use tidegate_http_upstream::{Origin, ServiceEndpoint};

use super::alt_svc::{ORIGINS_MAX, key};
use super::core::ClientCore;
use super::error::ClientError;

/// The endpoints of a client's origins.
#[derive(Debug, Default)]
pub(super) struct HttpsRecords(RefCell<HashMap<(Box<str>, u16), RecordEntry>>);

/// The result of a lookup.
#[derive(Debug, Clone)]
struct RecordEntry {
    /// Where connections over TCP go; `None` for the origin itself.
    endpoint: Option<ServiceEndpoint>,
    until: Instant,
}

impl HttpsRecords {
    fn get(&self, origin: &Origin, now: Instant) -> Option<RecordEntry> {
        self.0.borrow().get(&key(origin)).filter(|entry| entry.until > now).cloned()
    }

    fn keep(&self, origin: &Origin, entry: RecordEntry) {
        let (mut origins, key) = (self.0.borrow_mut(), key(origin));
        if origins.len() >= ORIGINS_MAX
            && !origins.contains_key(&key)
            && let Some(first) = origins.iter().min_by_key(|(_, one)| one.until).map(|(key, _)| key.clone())
        {
            origins.remove(&first);
        }
        origins.insert(key, entry);
    }

    /// The endpoint of an origin could not be reached.
    pub(super) fn on_failure(&self, origin: &Origin) {
        if let Some(entry) = self.0.borrow_mut().get_mut(&key(origin)) {
            entry.endpoint = None;
        }
    }
}

impl ClientCore {
    /// An origin with the way to it, and the endpoints of its HTTPS records.
    pub(super) async fn route_to(
        self: &Rc<Self>,
        origin: Origin,
        needs_http1: bool,
    ) -> Result<Rc<Origin>, ClientError> {
        Ok(self.with_endpoint(self.route(origin, needs_http1), needs_http1).await)
    }

    /// An origin with the endpoints of its HTTPS records, unless it has none, or the answer takes too long. A request that
    /// `needs_http1` has no alternative.
    async fn with_endpoint(self: &Rc<Self>, origin: Rc<Origin>, needs_http1: bool) -> Rc<Origin> {
        let may_have = origin.is_secure && origin.via.is_none() && origin.at.is_none() && !origin.is_http3;
        let Some(records) = self.https_records.as_ref().filter(|_| may_have && is_name(&origin.host)) else {
            return origin;
        };
        if records.get(&origin, task::now()).is_none() {
            let lookup = task::spawn(self.clone().look_up(origin.clone()));
            // One that takes longer goes on.
            let _ = task::timeout(RECORD_WAIT, lookup).await;
        }
        let endpoint = records.get(&origin, task::now()).and_then(|entry| entry.endpoint);
        let alternatives = self.alternatives.as_ref().filter(|_| !needs_http1);
        let alternative = alternatives.and_then(|alternatives| alternatives.endpoint(&origin, task::now()));
        Rc::new(Origin { endpoint, alternative, ..Origin::clone(&origin) })
    }

    async fn look_up(self: Rc<Self>, origin: Rc<Origin>) {
        let mut lookup = self.resolver.resolve_https(&origin.host, origin.port);
        let found = match poll_fn(|cx| Poll::Ready(lookup.as_mut().poll(cx))).await {
            Poll::Ready(found) => found.ok(),
            Poll::Pending => {
                // The addresses are asked for at the same time: the resolver has them when the request needs them.
                let addresses = self.resolver.resolve(&origin.host, origin.port);
                drop(task::spawn(task::timeout(self.limits.connect().resolve_timeout, addresses)));
                let found = task::timeout(self.limits.connect().resolve_timeout, lookup).await;
                found.ok().and_then(Result::ok)
            }
        };
        let (now, records) = (task::now(), self.https_records.as_ref());
        let time = match &found {
            Some(found) => found.ttl.unwrap_or(UNKNOWN_TTL).clamp(TTL_MIN, TTL_MAX),
            None => FAILURE_TTL,
        };
        let until = now + time;
        let chosen = found.and_then(|found| self.choose(found));
        let endpoint = chosen.and_then(|chosen| {
            let is_elsewhere = chosen.port != origin.port || !is_same_host(&chosen.host, &origin.host);
            let host = (!is_same_host(&chosen.host, &origin.host)).then(|| Rc::from(&*chosen.host));
            let endpoint = ServiceEndpoint { host, port: chosen.port };
            let has = |protocol: &[u8]| chosen.alpn.iter().any(|known| **known == *protocol);
            if let Some(alternatives) = self.alternatives.as_ref().filter(|_| has(b"h3")) {
                alternatives.learn_endpoint(&origin, endpoint.clone(), until);
            }
            let has_tcp = chosen.alpn.is_empty() || has(b"h2") || has(b"http/1.1");
            (is_elsewhere && has_tcp).then_some(endpoint)
        });
        if let Some(records) = records {
            records.keep(&origin, RecordEntry { endpoint, until });
        }
    }

    /// The first endpoint that has a version of this client.
    fn choose(&self, found: HttpsEndpoints) -> Option<HttpsEndpoint> {
        let is_known = |protocol: &[u8]| match protocol {
            b"h3" => self.alternatives.is_some(),
            b"h2" => self.connector.offers_http2(),
            protocol => protocol == b"http/1.1",
        };
        let is_usable = |endpoint: &HttpsEndpoint| {
            endpoint.alpn.is_empty() || endpoint.alpn.iter().any(|protocol| is_known(protocol))
        };
        found.endpoints.into_iter().find(is_usable)
    }
}

/// Whether a host has a name, and so may have records.
fn is_name(host: &str) -> bool {
    !host.contains([':', '%']) && host.parse::<std::net::IpAddr>().is_err()
}

/// Names with and without the dot at their end are the same.
fn is_same_host(one: &str, other: &str) -> bool {
    one.strip_suffix('.').unwrap_or(one).eq_ignore_ascii_case(other.strip_suffix('.').unwrap_or(other))
}

/// How long a request waits for the records of its origin: as long as for the addresses of a second family (RFC 8305 §3).
const RECORD_WAIT: Duration = Duration::from_millis(50);

/// How long an answer counts: at least, at most, if its time is not known, and a failure.
const TTL_MIN: Duration = Duration::from_secs(5);
const TTL_MAX: Duration = Duration::from_secs(86_400);
const UNKNOWN_TTL: Duration = Duration::from_secs(300);
const FAILURE_TTL: Duration = Duration::from_secs(10);
