//! The stand-in for `TokioRuntime` without the feature `tokio`: loops run in no runtime.

use std::io;

/// No runtime.
#[derive(Debug, Clone)]
pub(crate) struct TokioRuntime;

impl TokioRuntime {
    pub(crate) const fn none() -> Self {
        Self
    }

    pub(crate) fn of_this_thread() -> Self {
        Self
    }

    #[expect(clippy::unused_self, clippy::unnecessary_wraps, reason = "the runtime of tokio has something to start")]
    pub(crate) fn start(&self) -> io::Result<()> {
        Ok(())
    }

    /// Nothing to enter; the caller keeps the value as it keeps a guard.
    #[expect(clippy::unused_self, reason = "the runtime of tokio has a handle to enter")]
    pub(crate) fn enter(&self) -> Option<()> {
        None
    }
}
