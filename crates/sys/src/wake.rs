//! `Waker`: ends a driver's wait from any thread.

use std::sync::Arc;

/// The waker of a driver, through which other threads reach its loop.
pub trait Wake: Send + Sync {
    /// Ends the wait that is under way, or the next one. Does nothing once the loop is gone.
    fn wake(&self);
}

/// A handle to a driver's [`Wake`].
#[derive(Clone)]
pub struct Waker(Arc<dyn Wake>);

impl Waker {
    /// A waker that calls `wake`.
    #[must_use]
    pub fn new(wake: Arc<dyn Wake>) -> Self {
        Self(wake)
    }

    /// Ends the wait that is under way, or the next one. Does nothing once the loop is gone.
    pub fn wake(&self) {
        self.0.wake();
    }
}

impl std::fmt::Debug for Waker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Waker")
    }
}
