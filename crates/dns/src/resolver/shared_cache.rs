//! `SharedCache`: one cache of a process.

use std::sync::{Arc, Mutex, PoisonError};

use crate::cache::{Cache, CacheConfig};

/// A cache that several resolvers share: one for a process.
///
/// ```
/// use tidegate::dns::{CacheConfig, SharedCache};
///
/// let cache = SharedCache::new(CacheConfig::default());
/// assert_eq!(cache.with(|cache| cache.len()), 0);
/// ```
#[derive(Debug, Clone)]
pub struct SharedCache(Arc<Mutex<Cache>>);

impl SharedCache {
    /// An empty cache.
    #[must_use]
    pub fn new(config: CacheConfig) -> Self {
        Self(Arc::new(Mutex::new(Cache::new(config))))
    }

    /// Uses the cache, while no other thread does.
    pub fn with<T>(&self, f: impl FnOnce(&mut Cache) -> T) -> T {
        // The cache has no invariant that a panic of its reader could break.
        f(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
