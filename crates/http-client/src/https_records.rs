//! `HttpsRecords`: the endpoints of origins by their HTTPS records (RFC 9460).
//!
//! Before the first request to an origin of `https`, its records are asked for beside its addresses. Requests share one lookup,
//! and wait for it no longer than `ClientLimits::https_records_wait`; a later answer is for later requests. A request waits
//! neither while an older answer is known nor where the pool has a connection. The first endpoint that has a version of this
//! client counts: connections go there, with the certificate of the origin, and QUIC begins at once if it has `h3`. Where
//! an endpoint cannot be reached, or does not answer soon, connections go to the origin itself, and the endpoint rests.
//!
//! Records change nothing for `http`, and nothing through a proxy.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::future::poll_fn;
use std::io::ErrorKind;
use std::rc::Rc;
use std::task::{Poll, Waker};
use std::time::{Duration, Instant};

use tidegate_codec::later;
use tidegate_engine::{HttpsEndpoint, HttpsEndpoints, task};
use tidegate_http_upstream::{Origin, ServiceEndpoint};

use super::alt_svc::{ORIGINS_MAX, key};
use super::core::ClientCore;
use super::error::ClientError;

/// The endpoints of a client's origins, and the lookups in progress.
#[derive(Debug, Default)]
pub(super) struct HttpsRecords {
    entries: RefCell<HashMap<OriginKey, RecordEntry>>,
    lookups: RefCell<HashMap<OriginKey, Rc<RecordLookup>>>,
}

/// The host and the port of an origin.
type OriginKey = (Box<str>, u16);

/// The result of a lookup.
#[derive(Debug, Clone)]
struct RecordEntry {
    /// Where connections over TCP go; `None` for the origin itself.
    endpoint: Option<ServiceEndpoint>,
    has_http1: bool,
    until: Instant,
    /// Until when the endpoint is not used, since it could not be reached.
    rests_until: Option<Instant>,
}

/// A lookup in progress, which all requests to its origin share.
#[derive(Debug)]
struct RecordLookup {
    /// Until when requests wait for it.
    wait_until: Instant,
    has_ended: Cell<bool>,
    wakers: RefCell<Vec<Waker>>,
}

impl RecordLookup {
    async fn wait(&self) {
        let ended = poll_fn(|cx| {
            if self.has_ended.get() {
                return Poll::Ready(());
            }
            let mut wakers = self.wakers.borrow_mut();
            if !wakers.iter().any(|waker| waker.will_wake(cx.waker())) {
                wakers.push(cx.waker().clone());
            }
            Poll::Pending
        });
        // One that takes longer goes on.
        let _ = task::timeout(self.wait_until.saturating_duration_since(task::now()), ended).await;
    }
}

/// Ends a lookup when it is dropped.
struct EndOfLookup {
    client: Rc<ClientCore>,
    origin: Rc<Origin>,
}

impl Drop for EndOfLookup {
    fn drop(&mut self) {
        let Some(records) = &self.client.https_records else { return };
        let ended = records.lookups.borrow_mut().remove(&key(&self.origin));
        if let Some(lookup) = ended {
            lookup.has_ended.set(true);
            lookup.wakers.take().into_iter().for_each(Waker::wake);
        }
    }
}

impl HttpsRecords {
    /// The last result, also one whose time has passed a while ago.
    fn get(&self, origin: &Origin, now: Instant) -> Option<RecordEntry> {
        self.entries.borrow().get(&key(origin)).filter(|entry| entry.until + STALE_MAX > now).cloned()
    }

    fn keep(&self, origin: &Origin, mut entry: RecordEntry) {
        let (mut origins, key) = (self.entries.borrow_mut(), key(origin));
        match origins.get(&key) {
            Some(known) if known.endpoint == entry.endpoint => entry.rests_until = known.rests_until,
            Some(_) => {}
            None if origins.len() < ORIGINS_MAX => {}
            None => {
                let first = origins.iter().min_by_key(|(_, one)| one.until).map(|(key, _)| key.clone());
                first.and_then(|first| origins.remove(&first));
            }
        }
        origins.insert(key, entry);
    }

    /// The endpoint of an origin could not be reached: it rests for a while.
    pub(super) fn on_failure(&self, origin: &Origin, now: Instant) {
        if let Some(entry) = self.entries.borrow_mut().get_mut(&key(origin)) {
            entry.rests_until = Some(now + ENDPOINT_REST);
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
    /// `needs_http1` has no alternative, and no endpoint without HTTP/1.1.
    async fn with_endpoint(self: &Rc<Self>, origin: Rc<Origin>, needs_http1: bool) -> Rc<Origin> {
        let may_have = origin.is_secure && origin.via.is_none() && origin.at.is_none() && !origin.is_http3;
        let Some(records) = self.https_records.as_ref().filter(|_| may_have && is_name(&origin.host)) else {
            return origin;
        };
        let known = records.get(&origin, task::now());
        if known.as_ref().is_none_or(|entry| entry.until <= task::now()) {
            // A refresh, or a lookup for later connections, delays nothing.
            let waits = known.is_none() && !self.pool.has_connection(&origin);
            let lookup = self.begin_lookup(records, &origin, waits);
            if waits {
                lookup.wait().await;
            }
        }
        let now = task::now();
        let is_usable = |entry: &RecordEntry| {
            (entry.has_http1 || !needs_http1) && entry.rests_until.is_none_or(|until| until <= now)
        };
        let endpoint = records.get(&origin, now).filter(is_usable).and_then(|entry| entry.endpoint);
        let alternatives = self.alternatives.as_ref().filter(|_| !needs_http1);
        let alternative = alternatives.and_then(|alternatives| alternatives.endpoint(&origin, now));
        Rc::new(Origin { endpoint, alternative, ..Origin::clone(&origin) })
    }

    /// The lookup of an origin: the one in progress, or a new one.
    fn begin_lookup(
        self: &Rc<Self>,
        records: &HttpsRecords,
        origin: &Rc<Origin>,
        needs_addresses: bool,
    ) -> Rc<RecordLookup> {
        if let Some(lookup) = records.lookups.borrow().get(&key(origin)) {
            return lookup.clone();
        }
        let wait_until = later(task::now(), self.limits.https_records_wait);
        let (has_ended, wakers) = (Cell::new(false), RefCell::default());
        let lookup = Rc::new(RecordLookup { wait_until, has_ended, wakers });
        records.lookups.borrow_mut().insert(key(origin), lookup.clone());
        let end = EndOfLookup { client: self.clone(), origin: origin.clone() };
        drop(task::spawn(look_up(end, needs_addresses)));
        lookup
    }

    /// Keeps the result of a lookup; `None` for a failure.
    fn learn_records(&self, origin: &Origin, found: Option<HttpsEndpoints>) {
        let (now, records) = (task::now(), self.https_records.as_ref());
        let time = match &found {
            Some(found) => found.ttl.unwrap_or(UNKNOWN_TTL).clamp(TTL_MIN, TTL_MAX),
            None => FAILURE_TTL,
        };
        let until = now + time;
        let mut entry = RecordEntry { endpoint: None, has_http1: true, until, rests_until: None };
        if let Some(chosen) = found.and_then(|found| self.choose(found)) {
            let is_elsewhere = chosen.port != origin.port || !is_same_host(&chosen.host, &origin.host);
            let host = (!is_same_host(&chosen.host, &origin.host)).then(|| Rc::from(&*chosen.host));
            let endpoint = ServiceEndpoint { host, port: chosen.port };
            let has = |protocol: &[u8]| chosen.alpn.iter().any(|known| **known == *protocol);
            if let Some(alternatives) = self.alternatives.as_ref().filter(|_| has(b"h3")) {
                alternatives.learn_endpoint(origin, endpoint.clone(), until, now);
            }
            entry.has_http1 = chosen.alpn.is_empty() || has(b"http/1.1");
            entry.endpoint = (is_elsewhere && (entry.has_http1 || has(b"h2"))).then_some(endpoint);
        }
        if let Some(records) = records {
            records.keep(origin, entry);
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

/// Looks up the records of an origin.
async fn look_up(end: EndOfLookup, needs_addresses: bool) {
    let (client, origin) = (&end.client, &end.origin);
    let timeout = client.limits.resolve_timeout;
    let mut lookup = client.resolver.resolve_https(&origin.host, origin.port);
    let found = match poll_fn(|cx| Poll::Ready(lookup.as_mut().poll(cx))).await {
        Poll::Ready(found) => found,
        Poll::Pending => {
            if needs_addresses {
                // They are asked for at the same time: the resolver has them when the request needs them.
                let addresses = client.resolver.resolve(&origin.host, origin.port);
                drop(task::spawn(task::timeout(timeout, addresses)));
            }
            task::timeout(timeout, lookup).await.unwrap_or_else(|_| Err(ErrorKind::TimedOut.into()))
        }
    };
    match found {
        // The resolver has too much to do, and so says nothing about the origin.
        Err(error) if error.kind() == ErrorKind::ResourceBusy => {}
        found => client.learn_records(origin, found.ok()),
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

/// How long an answer counts: at least, at most, if its time is not known, and a failure.
const TTL_MIN: Duration = Duration::from_secs(5);
const TTL_MAX: Duration = Duration::from_secs(86_400);
const UNKNOWN_TTL: Duration = Duration::from_secs(300);
const FAILURE_TTL: Duration = Duration::from_secs(10);

/// How long an answer is used after its time while it is looked up again, and how long an endpoint rests that cannot be
/// reached.
const STALE_MAX: Duration = Duration::from_secs(3_600);
const ENDPOINT_REST: Duration = Duration::from_secs(60);
