//! `RateLimit`: how many requests each client may make in a time.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use tidegate_engine::{ConnectionRate, task};
use tidegate_http::Middleware;
use tidegate_http::Request;
use tidegate_http::Response;
use tidegate_http1::Status;

use super::forwarded::client_ip;

/// Bounds the requests of each client address: middleware that answers 429 with `Retry-After` to those beyond a rate. An
/// IPv6 client counts by its /64. Clones share the counts, on all loops.
///
/// ```
/// use tidegate::ConnectionRate;
/// use tidegate::http::Router;
/// use tidegate::http::proxy::RateLimit;
///
/// let limit = RateLimit::new(ConnectionRate::per_second(100).burst(200));
/// let router = Router::new().get("/", || "rising").with(limit.clone());
/// # drop(router);
/// ```
#[derive(Debug, Clone)]
pub struct RateLimit(Arc<Table>);

#[derive(Debug)]
struct Table {
    interval: u64,
    burst: u64,
    start: OnceLock<Instant>,
    shards: [Mutex<HashMap<u64, u64>>; SHARDS],
}

impl RateLimit {
    /// A limit of so many requests for each address. It knows 65,536 addresses; further ones replace others, which begin
    /// with a full burst again then.
    #[must_use]
    pub fn new(rate: ConnectionRate) -> Self {
        Self(Arc::new(Table {
            interval: nanos(rate.interval).max(1),
            burst: u64::from(rate.burst.max(1)),
            start: OnceLock::new(),
            shards: std::array::from_fn(|_| Mutex::default()),
        }))
    }

    /// How long the client has to wait, if it may not make this request now.
    fn admit(&self, ip: IpAddr, now: Instant) -> Result<(), Duration> {
        let table = &*self.0;
        let now = nanos(now.saturating_duration_since(*table.start.get_or_init(|| now)));
        let key = key(ip);
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
        *arrival = next;
        Ok(())
    }
}

impl RateLimit {
    /// The response to a request beyond the rate.
    pub(super) fn check(&self, request: &Request) -> Result<(), Response> {
        let Some(ip) = client_ip(request) else { return Ok(()) };
        self.admit(ip, task::now()).map_err(|wait| {
            let seconds = wait.as_secs() + u64::from(wait.subsec_nanos() > 0);
            let mut response = Response::of_error(Status::TOO_MANY_REQUESTS);
            let _ = response.add_header("Retry-After", seconds.to_string());
            response
        })
    }
}

impl Middleware for RateLimit {
    fn before(&self, request: &mut Request) -> Result<(), Response> {
        self.check(request)
    }
}

/// The address, or the network of one of IPv6, as a number.
pub(super) fn key(ip: IpAddr) -> u64 {
    match ip {
        // No global address of IPv6 has such a /64.
        IpAddr::V4(ip) => u64::from(ip.to_bits()),
        IpAddr::V6(ip) => (ip.to_bits() >> 64) as u64,
    }
}

fn nanos(duration: Duration) -> u64 {
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
        let ip: IpAddr = [192, 0, 2, 1].into();
        let at = |millis| start + Duration::from_millis(millis);
        assert_eq!((0..5).filter(|_| limit.admit(ip, at(0)).is_ok()).count(), 3);
        assert_eq!(limit.admit(ip, at(40)), Err(Duration::from_millis(60)));
        assert_eq!(limit.admit(ip, at(100)), Ok(()));
        assert!(limit.admit(ip, at(100)).is_err());
        assert!(limit.admit([192, 0, 2, 2].into(), at(100)).is_ok(), "another address has its own");
        assert_eq!((0..5).filter(|_| limit.admit(ip, at(10_000)).is_ok()).count(), 3);
    }

    #[test]
    fn an_ipv6_client_counts_by_its_network() {
        let (limit, now) = (RateLimit::new(ConnectionRate::per_second(1)), Instant::now());
        let ip = |text: &str| text.parse::<IpAddr>().unwrap();
        assert!(limit.admit(ip("2001:db8::1"), now).is_ok());
        assert!(limit.admit(ip("2001:db8::2"), now).is_err());
        assert!(limit.admit(ip("2001:db8:0:1::1"), now).is_ok());
    }

    #[test]
    fn the_table_is_bounded() {
        let (limit, now) = (RateLimit::new(ConnectionRate::per_minute(1)), Instant::now());
        for number in 0..200_000_u32 {
            assert!(limit.admit(IpAddr::V4(number.into()), now).is_ok());
        }
        let known: usize = limit.0.shards.iter().map(|shard| shard.lock().unwrap().len()).sum();
        assert!(known <= SHARDS * ADDRESSES_PER_SHARD_MAX, "{known}");
    }
}
