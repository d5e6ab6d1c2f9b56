//! `Entry`: the functions that the attributes `main` and `test` call. Applications do not call them.

use std::future::Future;

use tidegate_engine::{Backend, EventLoop, StartError};

/// Runs the async function that an attribute stands at.
#[doc(hidden)]
#[derive(Debug)]
#[must_use = "nothing runs before `run`"]
pub struct Entry {
    backend: Backend,
    #[cfg(feature = "tokio")]
    tokio_runtime: crate::TokioRuntime,
}

impl Entry {
    /// In the tokio runtime of the process.
    pub fn main() -> Self {
        Self {
            backend: Backend::Auto,
            #[cfg(feature = "tokio")]
            tokio_runtime: crate::TokioRuntime::shared(),
        }
    }

    /// In a tokio runtime that ends with the test.
    pub fn test() -> Self {
        Self {
            backend: Backend::Auto,
            #[cfg(feature = "tokio")]
            tokio_runtime: crate::TokioRuntime::with_threads(1),
        }
    }

    /// The driver of the loop.
    ///
    /// # Panics
    /// If there is no such backend; the attribute has checked that.
    pub fn backend(mut self, name: &str) -> Self {
        self.backend = name.parse().expect("the attribute accepts the names of backends");
        self
    }

    /// How many threads the tokio runtime has.
    #[cfg(feature = "tokio")]
    pub fn tokio_threads(mut self, threads: usize) -> Self {
        self.tokio_runtime = crate::TokioRuntime::with_threads(threads);
        self
    }

    /// Runs a future on a loop of its own.
    ///
    /// # Panics
    /// If the loop does not start, or waiting for events fails again and again.
    pub fn run<F: Future>(self, future: F) -> F::Output {
        self.start(future).unwrap_or_else(|error| panic!("the event loop does not run: {error}"))
    }

    fn start<F: Future>(self, future: F) -> Result<F::Output, StartError> {
        let mut event_loop = EventLoop::on(self.backend)?;
        #[cfg(feature = "tokio")]
        event_loop.tokio_runtime(self.tokio_runtime).map_err(StartError::System)?;
        event_loop.block_on(future).map_err(StartError::System)
    }
}
