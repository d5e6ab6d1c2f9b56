//! `Successor`: whether another server has the sockets of this one.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Whether another server has the sockets of this one. Clones share it, on all loops.
#[derive(Debug, Clone, Default)]
pub(crate) struct Successor {
    is_there: Arc<AtomicBool>,
    /// The clone of an endpoint's socket that a successor gets. It closes with the endpoint: otherwise the kernel would go
    /// on to queue datagrams for nobody.
    _kept: Option<Arc<OwnedFd>>,
}

impl Successor {
    /// The same for an endpoint with this socket.
    pub(crate) fn keeping(&self, socket: Arc<OwnedFd>) -> Self {
        Self { _kept: Some(socket), ..self.clone() }
    }

    /// Another server has them, and runs.
    pub(crate) fn set(&self) {
        self.is_there.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_there(&self) -> bool {
        self.is_there.load(Ordering::Relaxed)
    }
}
