//! `RateLimit`: how many requests each client may make in a time.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use tidegate_engine::{ConnectionRate, task};
use tidegate_http1::Status;

use super::Middleware;
use crate::client_address::TrustedProxies;
use crate::client_of::counted_ip;
use crate::cookie_value;
use crate::request::Request;
use crate::response::Response;

/// Bounds the requests of each client: middleware that answers 429 with `Retry-After` to those beyond a rate. A client is an
/// address, or another [`RateKey`]; an IPv6 client counts by its /64. Clones share the counts, on all loops.
///
/// ```
/// use tidegate::ConnectionRate;
/// use tidegate::http::{RateKey, RateLimit, Router};
///
/// let limit = RateLimit::new(ConnectionRate::per_second(100).burst(200));
/// let of_key = RateLimit::new(ConnectionRate::per_minute(600)).key(RateKey::Header("X-Api-Key".into()));
/// let router = Router::new().get("/", || "rising").with(limit.clone()).with(of_key);
/// # drop(router);
/// ```
#[derive(Debug, Clone)]
pub struct RateLimit {
    counts: Arc<RateCounts>,
    key: RateKey,
    trusted: TrustedProxies,
}

/// The part of a request by which a [`RateLimit`] tells clients apart.
///
/// A client may send any value, and each value has a burst of its own: bound the addresses as well, unless an earlier
/// middleware has checked the value. Values are kept as keyed hashes.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum RateKey {
    /// The address of the client.
    #[default]
    Client,
    /// The first field of this name; the address of the client where it is missing.
    Header(String),
    /// The first cookie of this name; the address of the client where it is missing.
    Cookie(String),
    /// The bearer token in `Authorization` (RFC 6750 §2.1); the address of the client where it is missing.
    Bearer,
}

/// The client of a request, as a [`RateKey`] tells clients apart.
pub(super) enum RequestClient<'r> {
    /// The [number](address_key) of its address.
    Address(u64),
    /// The value of a part of the request.
    Value(&'r [u8]),
}

#[derive(Debug)]
struct RateCounts {
    rate: ConnectionRate,
    interval: u64,
    burst: u64,
    start: OnceLock<Instant>,
    /// Keys of values that are no addresses.
    hasher: RandomState,
    shards: [Mutex<HashMap<u64, u64>>; SHARDS],
}

impl RateLimit {
    /// A limit of so many requests for each address. It knows 65,536 clients; further ones replace others, which begin
    /// with a full burst again then.
    #[must_use]
    pub fn new(rate: ConnectionRate) -> Self {
        let counts = Arc::new(RateCounts {
            rate,
            interval: nanos(rate.interval).max(1),
            burst: u64::from(rate.burst.max(1)),
            start: OnceLock::new(),
            hasher: RandomState::new(),
            shards: std::array::from_fn(|_| Mutex::default()),
        });
        Self { counts, key: RateKey::Client, trusted: TrustedProxies::default() }
    }

    /// Tells clients apart by another part of their requests.
    #[must_use]
    pub fn key(mut self, key: RateKey) -> Self {
        self.key = key;
        self
    }

    /// The client is the one that these proxies name; the proxy, where it names none.
    #[must_use]
    pub fn trusted(mut self, trusted: TrustedProxies) -> Self {
        self.trusted = trusted;
        self
    }

    /// The client of a request. One on a Unix socket has no address.
    pub(super) fn client_of<'r>(&self, request: &'r Request) -> Option<RequestClient<'r>> {
        let value = match &self.key {
            RateKey::Client => None,
            RateKey::Header(name) => request.header(name),
            RateKey::Cookie(name) => cookie_value::of(request, name),
            RateKey::Bearer => request.header("authorization").and_then(bearer),
        };
        if let Some(value) = value {
            return Some(RequestClient::Value(value));
        }
        counted_ip(self.trusted.networks(), request).map(|ip| RequestClient::Address(address_key(ip)))
    }

    /// The number under which a client counts.
    pub(super) fn number_of_client(&self, client: &RequestClient<'_>) -> u64 {
        match client {
            RequestClient::Address(number) => *number,
            RequestClient::Value(value) => self.counts.hasher.hash_one(value),
        }
    }

    pub(super) fn rate_key(&self) -> &RateKey {
        &self.key
    }

    pub(super) fn rate(&self) -> ConnectionRate {
        self.counts.rate
    }

    /// How long the client has to wait, if it may not make this request now.
    pub(super) fn admit(&self, key: u64, now: Instant) -> Result<(), Duration> {
        self.wait(key, now, true)
    }

    /// The same. A request that is only asked about does not count.
    fn wait(&self, key: u64, now: Instant, counts: bool) -> Result<(), Duration> {
        let table = &*self.counts;
        let now = nanos(now.saturating_duration_since(*table.start.get_or_init(|| now)));
        let shard = &table.shards[(key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 58) as usize % SHARDS];
        let mut arrivals = shard.lock().unwrap_or_else(PoisonError::into_inner);
        if arrivals.len() >= ADDRESSES_PER_SHARD_MAX && !arrivals.contains_key(&key) {
            arrivals.retain(|_, arrival| *arrival > now);
            if arrivals.len() >= ADDRESSES_PER_SHARD_MAX
                && let Some(other) = arrivals.keys().next().copied()
            {
                arrivals.remove(&other);
            }
        }
        // The generic cell rate algorithm: `arrival` is when the next request would come at the sustained rate.
        let arrival = arrivals.entry(key).or_insert(now);
        let next = (*arrival).max(now).saturating_add(table.interval);
        let allowed = now.saturating_add(table.interval.saturating_mul(table.burst));
        if next > allowed {
            return Err(Duration::from_nanos(next - allowed));
        }
        if counts {
            *arrival = next;
        }
        Ok(())
    }
}

impl RateLimit {
    /// The response to a request beyond the rate.
    #[doc(hidden)]
    pub fn check(&self, request: &Request) -> Result<(), Response> {
        self.response_to(request, true)
    }

    /// The same without counting the request.
    pub(super) fn look(&self, request: &Request) -> Result<(), Response> {
        self.response_to(request, false)
    }

    fn response_to(&self, request: &Request, counts: bool) -> Result<(), Response> {
        let Some(client) = self.client_of(request) else { return Ok(()) };
        self.wait(self.number_of_client(&client), task::now(), counts).map_err(too_many)
    }
}

/// The response to a client that has to wait.
pub(super) fn too_many(wait: Duration) -> Response {
    let seconds = wait.as_secs() + u64::from(wait.subsec_nanos() > 0);
    let mut response = Response::of_error(Status::TOO_MANY_REQUESTS);
    let _ = response.add_header("Retry-After", seconds.to_string());
    response
}

impl Middleware for RateLimit {
    fn before(&self, request: &mut Request) -> Result<(), Response> {
        self.check(request)
    }
}

/// The token of `Authorization: Bearer TOKEN`.
fn bearer(value: &[u8]) -> Option<&[u8]> {
    let (scheme, token) = value.split_at_checked(BEARER.len())?;
    scheme.eq_ignore_ascii_case(BEARER).then_some(token.trim_ascii()).filter(|token| !token.is_empty())
}

const BEARER: &[u8] = b"Bearer ";

/// The address, or the network of one of IPv6, as a number.
#[must_use]
#[inline]
pub fn address_key(ip: IpAddr) -> u64 {
    match ip {
        // No global address of IPv6 has such a /64.
        IpAddr::V4(ip) => u64::from(ip.to_bits()),
        IpAddr::V6(ip) => (ip.to_bits() >> 64) as u64,
    }
}

pub(super) fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// How many locks the table is spread over.
const SHARDS: usize = 64;

const ADDRESSES_PER_SHARD_MAX: usize = 1_024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_passes_and_then_the_rate() {
        let (limit, start) = (RateLimit::new(ConnectionRate::per_second(10).burst(3)), Instant::now());
        let ip = address_key([192, 0, 2, 1].into());
        let at = |millis| start + Duration::from_millis(millis);
        assert_eq!((0..5).filter(|_| limit.admit(ip, at(0)).is_ok()).count(), 3);
        assert_eq!(limit.admit(ip, at(40)), Err(Duration::from_millis(60)));
        assert_eq!(limit.admit(ip, at(100)), Ok(()));
        assert!(limit.admit(ip, at(100)).is_err());
        assert!(limit.admit(address_key([192, 0, 2, 2].into()), at(100)).is_ok(), "another address has its own");
        assert_eq!((0..5).filter(|_| limit.admit(ip, at(10_000)).is_ok()).count(), 3);
    }

    #[test]
    fn an_ipv6_client_counts_by_its_network() {
        let (limit, now) = (RateLimit::new(ConnectionRate::per_second(1)), Instant::now());
        let ip = |text: &str| address_key(text.parse().unwrap());
        assert!(limit.admit(ip("2001:db8::1"), now).is_ok());
        assert!(limit.admit(ip("2001:db8::2"), now).is_err());
        assert!(limit.admit(ip("2001:db8:0:1::1"), now).is_ok());
    }

    #[test]
    fn the_table_is_bounded() {
        let (limit, now) = (RateLimit::new(ConnectionRate::per_minute(1)), Instant::now());
        for number in 0..200_000_u32 {
            assert!(limit.wait(address_key(IpAddr::V4(number.into())), now, true).is_ok());
        }
        let known: usize = limit.counts.shards.iter().map(|shard| shard.lock().unwrap().len()).sum();
        assert!(known <= SHARDS * ADDRESSES_PER_SHARD_MAX, "{known}");
    }

    #[test]
    fn clients_are_told_apart_by_the_key() {
        let limit = RateLimit::new(ConnectionRate::per_second(1));
        let number = |key: &RateKey, lines: &str| {
            let request = crate::request::tests::request("GET", "/", lines);
            let limit = limit.clone().key(key.clone());
            limit.number_of_client(&limit.client_of(&request).unwrap())
        };
        let address = address_key([192, 0, 2, 1].into());
        let (header, cookie) = (RateKey::Header("X-Key".into()), RateKey::Cookie("sid".into()));
        for key in [&RateKey::Client, &header, &cookie, &RateKey::Bearer] {
            assert_eq!(number(key, "Authorization: Basic a\r\n"), address);
            assert_eq!(number(key, "Authorization: Bearer \r\n"), address);
        }
        for (key, one, same, other) in [
            (&header, "X-Key: 1\r\n", "x-key: 1\r\nX-Key: 2\r\n", "X-Key: 2\r\n"),
            (&cookie, "Cookie: sid=1\r\n", "Cookie: a=b; sid=1\r\n", "Cookie: sid=2\r\n"),
            (
                &RateKey::Bearer,
                "Authorization: Bearer 1\r\n",
                "Authorization: bearer  1\r\n",
                "Authorization: Bearer 2\r\n",
            ),
        ] {
            assert_eq!(number(key, one), number(key, same), "{one}");
            assert_ne!(number(key, one), number(key, other), "{one}");
            assert_ne!(number(key, one), address, "{one}");
        }
    }
}
