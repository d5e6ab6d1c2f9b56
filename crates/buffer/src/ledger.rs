//! The memory in use by a loop, and its budget.

use std::cell::Cell;

/// Counts the bytes that a loop's connections hold, inbound and outbound, against a budget.
///
/// Segments are charged whole, however few of their bytes are in use, because that is their cost. A linked
/// [`bytes::Bytes`] is charged in full to every queue that links it, until its last byte was sent: the ledger cannot
/// see its other owners and errs on the safe side. Entries of outbound queues are charged at
/// [`ENTRY_BYTES`](crate::ENTRY_BYTES) each. Static bytes, file regions and spare segments cost nothing. Memory outside
/// of the pool counts if it has a [`Charge`](crate::Charge).
///
/// The ledger only counts; the engine acts on it.
#[derive(Debug)]
pub struct Ledger {
    used: Cell<usize>,
    budget: Cell<usize>,
    #[cfg(debug_assertions)]
    copied: Cell<u64>,
}

impl Ledger {
    pub(crate) const fn new() -> Self {
        Self {
            used: Cell::new(0),
            budget: Cell::new(usize::MAX),
            #[cfg(debug_assertions)]
            copied: Cell::new(0),
        }
    }

    /// Bytes in use.
    #[must_use]
    pub fn used(&self) -> usize {
        self.used.get()
    }

    /// The budget in bytes; `usize::MAX` by default.
    #[must_use]
    pub fn budget(&self) -> usize {
        self.budget.get()
    }

    /// Sets the budget, in bytes.
    pub fn set_budget(&self, bytes: usize) {
        self.budget.set(bytes);
    }

    /// Whether the budget is used up: the loop reads nothing more until memory is released.
    #[must_use]
    pub fn is_exhausted(&self) -> bool {
        self.used.get() >= self.budget.get()
    }

    /// Bytes that this crate has copied from one place in memory to another: into queues, into inputs, into memory of
    /// their own. Only builds with debug assertions count them; in others it is `None`. Tests use it to check that a
    /// path copies nothing.
    #[must_use]
    pub fn copied_bytes(&self) -> Option<u64> {
        #[cfg(debug_assertions)]
        return Some(self.copied.get());
        #[cfg(not(debug_assertions))]
        None
    }

    /// Every function of this crate that copies bytes calls it.
    #[inline(always)]
    pub(crate) fn count_copy(&self, bytes: usize) {
        #[cfg(debug_assertions)]
        self.copied.set(self.copied.get() + bytes as u64);
        #[cfg(not(debug_assertions))]
        let _ = bytes;
    }

    pub(crate) fn charge(&self, bytes: usize) {
        self.used.set(self.used.get() + bytes);
    }

    pub(crate) fn refund(&self, bytes: usize) {
        debug_assert!(bytes <= self.used.get(), "refunded more than was charged");
        self.used.set(self.used.get().saturating_sub(bytes));
    }
}
