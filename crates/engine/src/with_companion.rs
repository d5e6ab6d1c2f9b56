//! Servers and loops with a `Companion`, with the feature `tokio`.

use std::io;

use crate::companion::Companion;
use crate::event_loop::EventLoop;
use crate::server::Server;

impl Server {
    /// The tokio runtime in which the loops run; see [`Companion`].
    pub fn companion(mut self, companion: Companion) -> Self {
        self.companion = Some(companion);
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
    /// use tidegate::{Backend, Companion, EventLoop};
    ///
    /// let mut event_loop = EventLoop::on(Backend::Auto)?;
    /// event_loop.companion(Companion::shared())?;
    /// // `sleep` needs the runtime when it is called, so it is called on the loop.
    /// event_loop.block_on(async { tokio::time::sleep(Duration::from_millis(1)).await })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// The system's, if the runtime has to start and there is no thread or no descriptor left.
    pub fn companion(&mut self, companion: Companion) -> io::Result<()> {
        companion.start()?;
        self.set_companion(companion);
        Ok(())
    }
}
