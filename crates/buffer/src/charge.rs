//! `Charge`: memory outside of the pool that counts as in use.

use std::fmt;

use crate::pool::Pool;

/// Bytes of memory outside of the pool, in the [ledger](crate::Ledger) of a loop until this is dropped: a body that is
/// collected, a context of compression. The memory itself may be anywhere; a charge only counts.
///
/// ```
/// use tidegate::codec::Pool;
///
/// let pool = Pool::new();
/// let mut charge = pool.charge(1000);
/// charge.resize(400);
/// assert_eq!(pool.ledger().used(), 400);
/// drop(charge);
/// assert_eq!(pool.ledger().used(), 0);
/// ```
pub struct Charge {
    pool: Pool,
    bytes: usize,
}

impl Pool {
    /// Counts `bytes` of memory outside of this pool as in use, until the charge is dropped.
    #[must_use = "the bytes are no longer counted once the charge is dropped"]
    pub fn charge(&self, bytes: usize) -> Charge {
        let mut charge = Charge { pool: self.clone(), bytes: 0 };
        charge.resize(bytes);
        charge
    }
}

impl Charge {
    /// The bytes that it counts.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    pub(crate) fn pool(&self) -> &Pool {
        &self.pool
    }

    /// Counts `bytes` from now on.
    #[inline]
    pub fn resize(&mut self, bytes: usize) {
        if bytes == self.bytes {
            return;
        }
        let ledger = self.pool.ledger();
        ledger.charge(bytes);
        ledger.refund(self.bytes);
        self.bytes = bytes;
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.resize(0);
    }
}

impl fmt::Debug for Charge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Charge").field("bytes", &self.bytes).finish_non_exhaustive()
    }
}
