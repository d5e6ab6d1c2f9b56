//! `Counts`: numbers of the endpoints of one configuration.

use std::sync::atomic::{AtomicU64, Ordering};

/// The counts of all endpoints of a configuration, since its beginning.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Counts {
    /// Connections now, with those in their handshake.
    pub connections: u64,
    /// Connections that were accepted or begun.
    pub begun: u64,
    /// Handshakes that were completed.
    pub handshakes: u64,
    /// Handshakes that failed, or took too long.
    pub handshakes_failed: u64,
    /// Retry packets that were sent (RFC 9000 §8.1.2).
    pub retries: u64,
    /// Clients that were refused, because of the number of connections or by the application.
    pub refused: u64,
    /// Initials that were dropped, because of the number of handshakes or by the application.
    pub ignored: u64,
    /// Packets that were lost, of connections that are over.
    pub packets_lost: u64,
    /// Addresses of peers that have changed.
    pub migrations: u64,
    /// Connections that were idle for too long.
    pub idle_timeouts: u64,
}

/// The same while endpoints count.
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
}

impl Counters {
    pub(crate) fn read(&self) -> Counts {
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        Counts {
            connections: read(&self.connections),
            begun: read(&self.begun),
            handshakes: read(&self.handshakes),
            handshakes_failed: read(&self.handshakes_failed),
            retries: read(&self.retries),
            refused: read(&self.refused),
            ignored: read(&self.ignored),
            packets_lost: read(&self.packets_lost),
            migrations: read(&self.migrations),
            idle_timeouts: read(&self.idle_timeouts),
        }
    }
}

/// Adds to a count.
pub(crate) fn add(count: &AtomicU64, more: u64) {
    count.fetch_add(more, Ordering::Relaxed);
}

/// One less of a gauge.
pub(crate) fn remove(count: &AtomicU64) {
    count.fetch_sub(1, Ordering::Relaxed);
}
