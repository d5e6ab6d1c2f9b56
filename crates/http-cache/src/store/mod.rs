//! `Store`: stored responses by key, shared by all loops: shards with a lock each.

pub(crate) mod disk;
mod file;
mod owner;
mod queues;
mod shard;

use std::hash::BuildHasher;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tidegate_http1::Headers;

pub(crate) use self::shard::Lookup;
use self::shard::Shard;
use crate::entry::Entry;
use crate::limits::CacheLimits;
use crate::rules::Millis;
use crate::rules::vary::Selector;

/// Stored responses in memory.
pub(crate) struct Store {
    shards: Box<[Mutex<Shard>]>,
    hasher: foldhash::fast::RandomState,
    /// Bytes of responses that are being stored.
    filling: AtomicUsize,
    filling_max: usize,
    pub(crate) evictions: AtomicU64,
}

impl Store {
    /// A store that leaves `other_bytes` of the memory to other parts of the cache.
    pub(crate) fn new(limits: &CacheLimits, other_bytes: usize) -> Self {
        let filling_max = limits.memory_bytes_max / 4;
        let stored_max = limits.memory_bytes_max - filling_max - other_bytes;
        // Half of a shard has room for the largest response, with its key and its fields.
        let parts = [limits.header_bytes_max, limits.header_bytes_max, limits.key_bytes_max, 1024];
        let entry_max = parts.into_iter().fold(limits.entry_max(), usize::saturating_add);
        let count = (stored_max / entry_max.saturating_mul(2)).clamp(1, SHARDS_MAX);
        let shard = || Mutex::new(Shard::new(stored_max / count, limits.variants_max.max(1)));
        Self {
            shards: std::iter::repeat_with(shard).take(count).collect(),
            hasher: foldhash::fast::RandomState::default(),
            filling: AtomicUsize::new(0),
            filling_max,
            evictions: AtomicU64::new(0),
        }
    }

    /// The response that is stored for a request.
    pub(crate) fn get(&self, key: &[u8], request: &Headers<'_>, now: Millis) -> Lookup {
        let hash = self.hasher.hash_one(key);
        self.shard(hash).get(hash, key, request, now)
    }

    /// The response for a key with these selecting fields.
    pub(crate) fn with_selector(&self, key: &[u8], selector: &Selector) -> Option<Arc<Entry>> {
        let hash = self.hasher.hash_one(key);
        self.shard(hash).with_selector(hash, key, selector)
    }

    /// Stores a response in the place of one with the same selecting fields, or with the `old` ones. Returns whether it has
    /// room.
    pub(crate) fn put(&self, key: &[u8], entry: Arc<Entry>, old: Option<&Selector>) -> bool {
        let hash = self.hasher.hash_one(key);
        let (is_stored, evicted) = self.shard(hash).put(hash, key, entry, old);
        self.evictions.fetch_add(evicted, Relaxed);
        is_stored
    }

    /// Notes that the responses for a key are not stored, until a time: requests for it do not wait for each other.
    pub(crate) fn mark(&self, key: &[u8], until: Millis) {
        let hash = self.hasher.hash_one(key);
        let evicted = self.shard(hash).mark(hash, key, until);
        self.evictions.fetch_add(evicted, Relaxed);
    }

    /// Removes all responses for a key. Returns how many there were.
    pub(crate) fn remove(&self, key: &[u8]) -> usize {
        let hash = self.hasher.hash_one(key);
        self.shard(hash).remove(hash, key)
    }

    /// Removes all responses for keys that are chosen.
    pub(crate) fn remove_where(&self, is_chosen: impl Fn(&[u8]) -> bool) -> usize {
        self.shards.iter().map(|shard| lock(shard).remove_where(&is_chosen)).sum()
    }

    /// The bytes and the number of stored responses.
    pub(crate) fn usage(&self) -> (usize, usize) {
        let of = |shard: &Mutex<Shard>| lock(shard).usage();
        self.shards.iter().map(of).fold((0, 0), |(bytes, count), (more, others)| (bytes + more, count + others))
    }

    /// Room for bytes of a response that is being stored.
    pub(crate) fn reserve(self: &Arc<Self>) -> Reservation {
        Reservation { store: self.clone(), bytes: 0, max: self.filling_max }
    }

    /// Room for bytes of a response that waits to be written to the folder: half of that for all that are being stored, so
    /// that a slow folder does not keep responses from memory.
    pub(crate) fn reserve_for_disk(self: &Arc<Self>) -> Reservation {
        Reservation { store: self.clone(), bytes: 0, max: self.filling_max / 2 }
    }

    fn shard(&self, hash: u64) -> MutexGuard<'_, Shard> {
        lock(&self.shards[(hash >> 48) as usize % self.shards.len()])
    }
}

/// The bytes of a response that is being stored, as part of the memory of the cache.
pub(crate) struct Reservation {
    store: Arc<Store>,
    bytes: usize,
    /// All reservations together, with this one.
    max: usize,
}

impl Reservation {
    /// Returns whether there is room for so many bytes more.
    pub(crate) fn grow(&mut self, bytes: usize) -> bool {
        let before = self.store.filling.fetch_add(bytes, Relaxed);
        self.bytes += bytes;
        before + bytes <= self.max
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.store.filling.fetch_sub(self.bytes, Relaxed);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

const SHARDS_MAX: usize = 16;
