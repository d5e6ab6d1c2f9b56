//! The figures of caches, as text for Prometheus.

use tidegate_metrics::{Kind, MetricsText};

use crate::cache::Cache;
use crate::counts::CacheCounts;

/// A label beside the name of the cache, and a value.
type Sample = (Option<[&'static str; 2]>, u64);

impl CacheCounts {
    /// Writes the figures of some caches, each by its name: the counters `tidegate_cache_requests_total`, by outcome,
    /// `tidegate_cache_stored_total`, `tidegate_cache_revalidated_total`, `tidegate_cache_disk_left_out_total` and
    /// `tidegate_cache_evictions_total`, and the gauges `tidegate_cache_bytes`, by place, and `tidegate_cache_entries`.
    ///
    /// ```
    /// use tidegate::http::cache::{Cache, CacheCounts};
    /// use tidegate::metrics::{Format, MetricsText};
    ///
    /// let cache = Cache::new();
    /// let mut text = MetricsText::new(Format::Prometheus);
    /// CacheCounts::write_metrics(&[("pages", &cache)], &mut text);
    /// assert!(text.finish().contains("tidegate_cache_requests_total{cache=\"pages\",outcome=\"hit\"} 0\n"));
    /// ```
    pub fn write_metrics(caches: &[(&str, &Cache)], text: &mut MetricsText) {
        let all: Vec<_> = caches.iter().map(|(name, cache)| (*name, cache.counts())).collect();
        let mut family = |name: &str, kind, help: &str, samples: &dyn Fn(&Self) -> Vec<Sample>| {
            text.family(name, kind, help);
            for (cache, counts) in &all {
                for (label, value) in samples(counts) {
                    match label {
                        Some([label, of]) => text.sample(&[("cache", cache), (label, of)], value),
                        None => text.sample(&[("cache", cache)], value),
                    }
                }
            }
        };
        family("tidegate_cache_requests", Kind::Counter, "Requests by their outcome at a cache.", &|counts| {
            [
                ("hit", counts.hits),
                ("stale", counts.stale),
                ("miss", counts.misses),
                ("joined", counts.joined),
                ("bypass", counts.bypassed),
            ]
            .map(|(outcome, count)| (Some(["outcome", outcome]), count))
            .to_vec()
        });
        let one = |of: fn(&Self) -> u64| move |counts: &Self| vec![(None, of(counts))];
        family("tidegate_cache_stored", Kind::Counter, "Responses that were stored.", &one(|counts| counts.stored));
        let revalidated = one(|counts| counts.revalidated);
        family("tidegate_cache_revalidated", Kind::Counter, "Stored responses that were validated.", &revalidated);
        let left_out = one(|counts| counts.disk_left_out);
        family(
            "tidegate_cache_disk_left_out",
            Kind::Counter,
            "Responses that were not written to the folder.",
            &left_out,
        );
        let evictions = one(|counts| counts.evictions);
        family("tidegate_cache_evictions", Kind::Counter, "Keys that were evicted from memory.", &evictions);
        family("tidegate_cache_bytes", Kind::Gauge, "Bytes of stored responses.", &|counts| {
            vec![(Some(["place", "memory"]), counts.memory_bytes as u64), (Some(["place", "disk"]), counts.disk_bytes)]
        });
        let entries = one(|counts| counts.entries as u64);
        family("tidegate_cache_entries", Kind::Gauge, "Stored responses in memory.", &entries);
    }
}
