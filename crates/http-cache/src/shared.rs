//! `CacheShared`: the state that loops share.

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use tidegate_engine::task;

use crate::counts::Counters;
use crate::entry::Entry;
use crate::flights::{Flights, Lead};
use crate::limits::CacheLimits;
use crate::rules::Millis;
use crate::rules::freshness::FreshnessPolicy;
use crate::store::Store;
use crate::store::disk::Disk;

/// The settings of a [`Cache`](crate::Cache), and its state.
pub(crate) struct CacheShared {
    pub(crate) limits: CacheLimits,
    pub(crate) policy: FreshnessPolicy,
    /// Fields that replace `Cache-Control`.
    pub(crate) targets: Box<[Box<str>]>,
    /// The name in `Cache-Status`; `None` for none.
    pub(crate) name: Option<Box<str>>,
    pub(crate) ignores_client_control: bool,
    pub(crate) store: Arc<Store>,
    pub(crate) disk: Option<Arc<Disk>>,
    pub(crate) flights: Arc<Flights>,
    pub(crate) counters: Counters,
    /// Revalidations in the background.
    pub(crate) revalidations: AtomicUsize,
    pub(crate) clock: Clock,
}

/// The clock of a cache: that of its loops, from the time of the system at the start.
pub(crate) struct Clock {
    start: Instant,
    start_millis: Millis,
}

impl Clock {
    pub(crate) fn new() -> Self {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self { start: Instant::now(), start_millis: since.as_millis() as u64 }
    }

    fn now(&self) -> Millis {
        let since = task::now().saturating_duration_since(self.start);
        // In 64 bits, which hold more years than a program runs.
        self.start_millis + since.as_secs() * 1000 + u64::from(since.subsec_millis())
    }
}

impl CacheShared {
    pub(crate) fn now(&self) -> Millis {
        self.clock.now()
    }

    /// Stores a response in memory and in the folder, in the place of an old one if its validation has changed it. Returns
    /// whether it is in memory.
    pub(crate) fn put(&self, lead: Lead, entry: &Arc<Entry>, old: Option<&Arc<Entry>>) -> bool {
        let old = old.map(|old| &old.selector);
        let is_stored = lead.store(|key| {
            // The disk first: a lookup would put its older response into memory again.
            if let Some(disk) = &self.disk {
                disk.put(key, entry, old, &self.store);
            }
            self.store.put(key, entry.clone(), old)
        });
        if is_stored {
            Counters::add(&self.counters.stored);
        }
        is_stored
    }

    /// Requests for a key need not wait for each other for some time: the response is not storable.
    pub(crate) fn mark(&self, key: &[u8]) {
        self.store.mark(key, self.now() + UNSTORABLE_PAUSE);
    }

    /// Removes the responses for a key. Returns how many there were in memory.
    pub(crate) fn invalidate(&self, key: &[u8]) -> usize {
        self.flights.doom_key(key);
        if let Some(disk) = &self.disk {
            disk.remove(key);
        }
        self.store.remove(key)
    }

    /// Removes the responses for a key that another one has replaced which is not stored.
    pub(crate) fn forget(&self, key: &[u8]) {
        // The disk first: a lookup would put its response into memory again.
        if let Some(disk) = &self.disk {
            disk.remove(key);
        }
        self.store.remove(key);
    }

    pub(crate) fn invalidate_where(&self, is_chosen: impl Fn(&[u8]) -> bool) -> usize {
        self.flights.doom(&is_chosen);
        if let Some(disk) = &self.disk {
            disk.remove_where(&is_chosen);
        }
        self.store.remove_where(is_chosen)
    }
}

/// How long requests for a response that was not storable do not wait for each other, in milliseconds.
const UNSTORABLE_PAUSE: u64 = 10_000;
