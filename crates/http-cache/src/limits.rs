//! `CacheLimits`: the bounds of a cache, with defaults that protect it.

use std::time::Duration;

/// Limits of a [`Cache`](crate::Cache). All bytes count keys, fields and bookkeeping with the bodies.
///
/// ```
/// use tidegate::http::cache::{Cache, CacheLimits};
///
/// let limits = CacheLimits { memory_bytes_max: 1024 * 1024 * 1024, ..CacheLimits::default() };
/// let cache = Cache::builder().limits(limits).build()?;
/// # drop(cache);
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CacheLimits {
    /// Bytes of the cache in memory: 128 MiB. A quarter is for responses that are being stored, and at most half of that
    /// waits to be written to the folder: beyond it, responses are not written. With a folder, an eighth is for its index.
    pub memory_bytes_max: usize,
    /// Bytes of all responses in the [folder](crate::CacheBuilder::folder), if there is one: 4 GiB.
    pub disk_bytes_max: u64,
    /// Bytes of one response; a longer one is passed on and not stored: 8 MiB, and a quarter of the memory at most.
    pub entry_bytes_max: usize,
    /// Bytes of the fields of one response: 16 KiB.
    pub header_bytes_max: usize,
    /// Bytes of a key, which is the URL: 2 KiB. The response to a request with a longer one is not stored.
    pub key_bytes_max: usize,
    /// Responses for one key, as `Vary` distinguishes them, in memory and in the folder: 16 each. Another one takes the place
    /// of the oldest.
    pub variants_max: usize,
    /// Requests that wait for one that is in progress for the same key: 1,024. Further ones go to the upstream.
    pub waiting_max: usize,
    /// How long a request waits for another one before it goes to the upstream itself: 5 s. No further request waits for that
    /// one then.
    pub waiting_timeout: Duration,
    /// Revalidations in the background at once, over all keys: 64.
    pub revalidations_max: usize,
    /// How long a revalidation in the background may take: 30 s.
    pub revalidation_timeout: Duration,
    /// The longest lifetime of a response that tells none: 1 day; none at all with zero.
    pub heuristic_lifetime_max: Duration,
}

impl Default for CacheLimits {
    fn default() -> Self {
        Self {
            memory_bytes_max: 128 * 1024 * 1024,
            disk_bytes_max: 4 * 1024 * 1024 * 1024,
            entry_bytes_max: 8 * 1024 * 1024,
            header_bytes_max: 16 * 1024,
            key_bytes_max: 2048,
            variants_max: 16,
            waiting_max: 1024,
            waiting_timeout: Duration::from_secs(5),
            revalidations_max: 64,
            revalidation_timeout: Duration::from_secs(30),
            heuristic_lifetime_max: Duration::from_secs(24 * 60 * 60),
        }
    }
}

impl CacheLimits {
    /// The bound of one response, which others have room beside.
    pub(crate) fn entry_max(&self) -> usize {
        self.entry_bytes_max.min(self.memory_bytes_max / 4)
    }
}
