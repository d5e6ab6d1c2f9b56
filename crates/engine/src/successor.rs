//! `Successor`: whether another server has the sockets of this one.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Whether another server has the sockets of this one. Clones share it, on all loops.
#[derive(Debug, Clone, Default)]
pub(crate) struct Successor(Arc<AtomicBool>);

impl Successor {
    /// Another server has them. It counts also if that one does not start.
    pub(crate) fn set(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_there(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}
