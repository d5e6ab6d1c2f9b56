//! `Counters`: the counts of an endpoint; `CounterSet`: those of all endpoints of a configuration.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tidegate_codec::SessionCounts as Counts;

/// The counts of an endpoint.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) connections: AtomicU64,
    pub(crate) begun: AtomicU64,
    pub(crate) handshakes: AtomicU64,
    pub(crate) handshakes_failed: AtomicU64,
    pub(crate) retries: AtomicU64,
    pub(crate) refused: AtomicU64,
    pub(crate) ignored: AtomicU64,
    pub(crate) packets_lost: AtomicU64,
    pub(crate) migrations: AtomicU64,
    pub(crate) idle_timeouts: AtomicU64,
    pub(crate) datagrams_dropped: AtomicU64,
}

impl Counters {
    pub(crate) fn read(&self) -> Counts {
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        Counts::from_numbers([
            read(&self.connections),
            read(&self.begun),
            read(&self.handshakes),
            read(&self.handshakes_failed),
            read(&self.retries),
            read(&self.refused),
            read(&self.ignored),
            read(&self.packets_lost),
            read(&self.migrations),
            read(&self.idle_timeouts),
            read(&self.datagrams_dropped),
        ])
    }
}

/// The counts of the endpoints of a configuration.
#[derive(Debug, Default)]
pub(crate) struct CounterSet(Mutex<CountersOfEndpoints>);

#[derive(Debug, Default)]
struct CountersOfEndpoints {
    open: Vec<Arc<Counters>>,
    /// Those of endpoints that are gone.
    gone: Counts,
}

impl CounterSet {
    /// The counts of a new endpoint.
    pub(crate) fn add_endpoint(&self) -> Arc<Counters> {
        let counters = Arc::<Counters>::default();
        self.lock().open.push(counters.clone());
        counters
    }

    /// An endpoint is gone, and its connections with it.
    pub(crate) fn remove_endpoint(&self, counters: &Arc<Counters>) {
        counters.connections.store(0, Ordering::Relaxed);
        let mut set = self.lock();
        set.open.retain(|other| !Arc::ptr_eq(other, counters));
        set.gone.add_change(&Counts::default(), &counters.read());
    }

    pub(crate) fn read(&self) -> Counts {
        let set = self.lock();
        let mut sum = set.gone;
        set.open.iter().for_each(|counters| sum.add_change(&Counts::default(), &counters.read()));
        sum
    }

    fn lock(&self) -> MutexGuard<'_, CountersOfEndpoints> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Adds to a count.
pub(crate) fn add(count: &AtomicU64, more: u64) {
    // Most packets add nothing, and an atomic addition costs as much then.
    if more > 0 {
        count.fetch_add(more, Ordering::Relaxed);
    }
}

/// One less of a gauge.
pub(crate) fn remove(count: &AtomicU64) {
    count.fetch_sub(1, Ordering::Relaxed);
}
