//! `Cell`: a number that one thread writes and any thread reads.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

/// A number that one thread writes and any thread reads. If two threads write, numbers are lost; nothing else breaks.
///
/// ```
/// use tidegate::metrics::Cell;
///
/// let requests = Cell::default();
/// requests.add(2);
/// requests.add(1);
/// assert_eq!(requests.value(), 3);
/// ```
#[derive(Debug, Default)]
pub struct Cell(AtomicU64);

impl Cell {
    /// Adds to the number. It wraps around at its end, which no count of events reaches.
    #[inline]
    pub fn add(&self, more: u64) {
        // No `fetch_add`: that locks the bus, and there is one writer.
        self.0.store(self.0.load(Relaxed).wrapping_add(more), Relaxed);
    }

    /// Replaces the number, and returns the one before.
    #[inline]
    pub fn replace(&self, value: u64) -> u64 {
        let before = self.0.load(Relaxed);
        self.0.store(value, Relaxed);
        before
    }

    /// The number.
    #[inline]
    #[must_use]
    pub fn value(&self) -> u64 {
        self.0.load(Relaxed)
    }
}
