//! `Lease`: a request that an upstream has in progress. It is counted until this is dropped, and its outcome goes to the
//! upstream's health.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use tidegate_engine::task;

use super::upstreams::{Shared, Upstream};

pub(super) struct Lease {
    shared: Arc<Shared>,
    pub(super) upstream: Arc<Upstream>,
    /// The request has failed: a complete response, as of a 503, is no success then.
    has_failed: Cell<bool>,
}

impl Lease {
    pub(super) fn new(shared: Arc<Shared>, upstream: Arc<Upstream>) -> Self {
        upstream.active.fetch_add(1, Relaxed);
        Self { shared, upstream, has_failed: Cell::new(false) }
    }

    pub(super) fn id(&self) -> u64 {
        self.upstream.id
    }

    /// Whether a connection is for one request alone.
    pub(super) fn is_single(&self) -> bool {
        self.shared.sends_proxy_header
    }

    pub(super) fn succeed(&self) {
        if !self.has_failed.get() {
            self.upstream.health.on_success();
        }
    }

    pub(super) fn fail(&self) {
        if !self.has_failed.replace(true) {
            self.shared.on_failure(&self.upstream, task::now());
        }
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.upstream.active.fetch_sub(1, Relaxed);
    }
}
