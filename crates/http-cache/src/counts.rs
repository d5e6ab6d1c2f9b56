//! `CacheCounts`: the figures of a cache.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Counters of a cache, over all loops.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) hits: AtomicU64,
    pub(crate) stale: AtomicU64,
    pub(crate) misses: AtomicU64,
    pub(crate) bypassed: AtomicU64,
    pub(crate) revalidated: AtomicU64,
    pub(crate) joined: AtomicU64,
    pub(crate) stored: AtomicU64,
    pub(crate) disk_hits: AtomicU64,
}

impl Counters {
    pub(crate) fn add(counter: &AtomicU64) {
        counter.fetch_add(1, Relaxed);
    }
}

/// The figures of a [`Cache`](crate::Cache) at one moment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CacheCounts {
    /// Requests that a fresh stored response answered.
    pub hits: u64,
    /// Requests that a stale one answered.
    pub stale: u64,
    /// Requests that went to the upstream, since no stored response was usable.
    pub misses: u64,
    /// Requests that the cache passed on without a look: other methods, upgrades.
    pub bypassed: u64,
    /// Stored responses that the upstream has validated.
    pub revalidated: u64,
    /// Requests that another one, which was on its way, answered.
    pub joined: u64,
    /// Responses that were stored.
    pub stored: u64,
    /// Of the hits, those that came from the folder.
    pub disk_hits: u64,
    /// Keys that were evicted from memory.
    pub evictions: u64,
    /// Bytes of stored responses in memory.
    pub memory_bytes: usize,
    /// Stored responses in memory.
    pub entries: usize,
    /// Bytes of stored responses in the folder.
    pub disk_bytes: u64,
    /// Responses that were not written to the folder: it was too slow, or failed.
    pub disk_left_out: u64,
}
