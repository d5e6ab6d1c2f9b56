//! `ServerMetrics`: the counts of a server, summed over its loops.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Counts of a server since it began, over all loops.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct ServerCounts {
    /// Queries in datagrams.
    pub datagram_queries: u64,
    /// Queries over streams.
    pub stream_queries: u64,
    /// Queries of a [`QueryService`](super::QueryService): over HTTPS.
    pub https_queries: u64,
    /// Messages that could not be read, and were answered with FORMERR or dropped.
    pub malformed: u64,
    /// Queries in datagrams from networks that have no access, answered with REFUSED.
    pub denied: u64,
    /// Responses in datagrams that the rate limits dropped.
    pub rate_dropped: u64,
    /// Responses in datagrams that the rate limits truncated.
    pub rate_truncated: u64,
    /// Queries above the limits of queries in flight, or above those of a [`Forwarder`](super::Forwarder)'s resolver, answered
    /// with SERVFAIL.
    pub overloaded: u64,
    /// Queries that the cache of a [`Forwarder`](super::Forwarder) answered.
    pub cache_hits: u64,
    /// Queries for which a [`Forwarder`](super::Forwarder) asked its servers, or waited for others that did.
    pub cache_misses: u64,
    /// Lookups of a [`Forwarder`](super::Forwarder) that failed, also those whose failure the cache remembers, answered with
    /// SERVFAIL.
    pub failures: u64,
}

impl ServerCounts {
    /// Each count with its name and its description, for metrics.
    #[must_use]
    pub const fn named(&self) -> [(&'static str, &'static str, u64); 11] {
        [
            ("tidegate_dns_datagram_queries", "Queries in datagrams.", self.datagram_queries),
            ("tidegate_dns_stream_queries", "Queries over streams.", self.stream_queries),
            ("tidegate_dns_https_queries", "Queries over HTTPS.", self.https_queries),
            ("tidegate_dns_malformed", "Messages that could not be read.", self.malformed),
            ("tidegate_dns_denied", "Queries from networks that have no access.", self.denied),
            ("tidegate_dns_rate_dropped", "Responses that the rate limits dropped.", self.rate_dropped),
            ("tidegate_dns_rate_truncated", "Responses that the rate limits truncated.", self.rate_truncated),
            ("tidegate_dns_overloaded", "Queries above the limits of queries in flight.", self.overloaded),
            ("tidegate_dns_cache_hits", "Queries that the cache answered.", self.cache_hits),
            ("tidegate_dns_cache_misses", "Queries that the cache could not answer.", self.cache_misses),
            ("tidegate_dns_failures", "Lookups that failed.", self.failures),
        ]
    }
}

/// The counts of a server, for other threads. A clone has the same.
///
/// ```
/// use tidegate::dns::server::ServerMetrics;
///
/// assert_eq!(ServerMetrics::new().counts().datagram_queries, 0);
/// ```
#[derive(Debug, Clone, Default)]
pub struct ServerMetrics(Arc<Mutex<Vec<Arc<Counters>>>>);

impl ServerMetrics {
    /// Counts of no server yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The sums over all loops. Each is slightly stale; together they are no consistent snapshot.
    #[must_use]
    pub fn counts(&self) -> ServerCounts {
        let mut sums = ServerCounts::default();
        for counters in self.0.lock().unwrap_or_else(PoisonError::into_inner).iter() {
            let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
            sums.datagram_queries += read(&counters.datagram_queries);
            sums.stream_queries += read(&counters.stream_queries);
            sums.https_queries += read(&counters.https_queries);
            sums.malformed += read(&counters.malformed);
            sums.denied += read(&counters.denied);
            sums.rate_dropped += read(&counters.rate_dropped);
            sums.rate_truncated += read(&counters.rate_truncated);
            sums.overloaded += read(&counters.overloaded);
            sums.cache_hits += read(&counters.cache_hits);
            sums.cache_misses += read(&counters.cache_misses);
            sums.failures += read(&counters.failures);
        }
        sums
    }

    /// The counters of one more loop.
    pub(super) fn register(&self) -> Arc<Counters> {
        let counters = Arc::<Counters>::default();
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(counters.clone());
        counters
    }
}

/// The counters of one loop, which alone writes them.
#[derive(Debug, Default)]
pub(super) struct Counters {
    pub(super) datagram_queries: AtomicU64,
    pub(super) stream_queries: AtomicU64,
    pub(super) https_queries: AtomicU64,
    pub(super) malformed: AtomicU64,
    pub(super) denied: AtomicU64,
    pub(super) rate_dropped: AtomicU64,
    pub(super) rate_truncated: AtomicU64,
    pub(super) overloaded: AtomicU64,
    pub(super) cache_hits: AtomicU64,
    pub(super) cache_misses: AtomicU64,
    pub(super) failures: AtomicU64,
}

/// One more, by the only thread that writes it.
pub(super) fn count(counter: &AtomicU64) {
    counter.store(counter.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
}
