//! `UpstreamNote`: the upstream that a proxy has passed a request on to, for the access log of the request.
//!
//! The log adds it to the extensions of a request that it is going to log. Extensions have to be able to leave the thread.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The upstream of a request. A clone is the same.
#[derive(Debug, Clone, Default)]
pub struct UpstreamNote(Arc<Mutex<NotedUpstream>>);

/// Of the last attempt.
#[derive(Debug, Clone, Default)]
pub(crate) struct NotedUpstream {
    pub(crate) upstream: String,
    /// Why it has not answered.
    pub(crate) error: Option<String>,
}

impl UpstreamNote {
    /// Notes the upstream of an attempt, and why it has not answered.
    pub fn set(&self, upstream: String, error: Option<String>) {
        *self.lock() = NotedUpstream { upstream, error };
    }

    pub(crate) fn noted(&self) -> NotedUpstream {
        self.lock().clone()
    }

    fn lock(&self) -> MutexGuard<'_, NotedUpstream> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
