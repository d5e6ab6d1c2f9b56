//! Servers and loops with a `TokioRuntime`, with the feature `tokio`.

use std::io;

use crate::event_loop::EventLoop;
use crate::server::Server;
use crate::tokio_runtime::TokioRuntime;

impl Server {
    /// The tokio runtime in which the loops run; see [`TokioRuntime`].
    pub fn tokio_runtime(mut self, tokio_runtime: TokioRuntime) -> Self {
        self.tokio_runtime = Some(tokio_runtime);
        self
    }
}

impl EventLoop {
    /// Runs this loop in a tokio runtime from now on: [`run`](Self::run), [`block_on`](Self::block_on) and
    /// [`turn`](Self::turn) enter it. A loop that belongs to no server runs in none unless this is called.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use tidegate::{Backend, TokioRuntime, EventLoop};
    ///
    /// let mut event_loop = EventLoop::on(Backend::Auto)?;
    /// event_loop.tokio_runtime(TokioRuntime::shared())?;
    /// // `sleep` needs the runtime when it is called, so it is called on the loop.
    /// event_loop.block_on(async { tokio::time::sleep(Duration::from_millis(1)).await })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// The system's, if the runtime has to start and there is no thread or no descriptor left.
    pub fn tokio_runtime(&mut self, tokio_runtime: TokioRuntime) -> io::Result<()> {
        tokio_runtime.start()?;
        self.set_tokio_runtime(tokio_runtime);
        Ok(())
    }
}
