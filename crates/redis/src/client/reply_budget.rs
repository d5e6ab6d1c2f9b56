//! `ReplyBudget`: how many bytes of replies may wait for their readers.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A bound of the bytes that wait for the readers of several [replies](crate::WireReply). Clones share it.
///
/// ```
/// use tidegate::redis::ReplyBudget;
///
/// let proxy = ReplyBudget::new(256 << 20);
/// let client = proxy.part(16 << 20);
/// assert_eq!((proxy.used(), client.used()), (0, 0));
/// ```
#[derive(Debug, Clone)]
pub struct ReplyBudget(Arc<BudgetState>);

#[derive(Debug)]
struct BudgetState {
    bytes_max: usize,
    used: AtomicUsize,
    /// Its bytes count there as well.
    whole: Option<ReplyBudget>,
}

impl ReplyBudget {
    /// A budget of so many bytes.
    #[must_use]
    pub fn new(bytes_max: usize) -> Self {
        Self::with(bytes_max, None)
    }

    /// A budget whose bytes count in this one as well: that of one client of a proxy.
    #[must_use]
    pub fn part(&self, bytes_max: usize) -> Self {
        Self::with(bytes_max, Some(self.clone()))
    }

    /// The bytes that wait at present.
    #[must_use]
    pub fn used(&self) -> usize {
        self.0.used.load(Ordering::Relaxed)
    }

    fn with(bytes_max: usize, whole: Option<Self>) -> Self {
        Self(Arc::new(BudgetState { bytes_max, used: AtomicUsize::new(0), whole }))
    }

    /// Takes bytes, unless that exceeds a bound.
    pub(crate) fn take(&self, bytes: usize) -> bool {
        let used = self.0.used.fetch_add(bytes, Ordering::Relaxed).saturating_add(bytes);
        if used <= self.0.bytes_max && self.0.whole.as_ref().is_none_or(|whole| whole.take(bytes)) {
            return true;
        }
        self.0.used.fetch_sub(bytes, Ordering::Relaxed);
        false
    }

    pub(crate) fn release(&self, bytes: usize) {
        self.0.used.fetch_sub(bytes, Ordering::Relaxed);
        if let Some(whole) = &self.0.whole {
            whole.release(bytes);
        }
    }
}
