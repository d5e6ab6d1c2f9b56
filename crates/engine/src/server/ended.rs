//! `Ended`: the end of a server as a future, for callers that must not block: the tasks of any executor.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use super::handle::{RunningLoops, ServerHandle};

/// The future of [`ServerHandle::ended`] and [`ServerHandle::drained`]: it completes when all loops have ended.
///
/// It is `Send`, works on every executor, and does not keep the server running.
#[must_use = "a future does nothing until it is awaited"]
pub struct Ended {
    loops: Arc<RunningLoops>,
    /// Where the waker of the last poll is.
    place: Option<usize>,
}

impl Ended {
    pub(super) fn new(loops: Arc<RunningLoops>) -> Self {
        Self { loops, place: None }
    }
}

impl Future for Ended {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let Self { loops, place } = &mut *self;
        loops.poll_ended(place, cx)
    }
}

impl Drop for Ended {
    fn drop(&mut self) {
        self.loops.forget(self.place.take());
    }
}

impl fmt::Debug for Ended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Ended")
    }
}

impl ServerHandle {
    /// A future that completes when all loops have ended: [`wait`](Self::wait) without blocking, on any executor.
    ///
    /// A task of one of these loops that awaits it is dropped before it completes.
    pub fn ended(&self) -> Ended {
        Ended::new(self.running_loops())
    }

    /// Drains the server, and completes when all loops have ended: [`drain`](Self::drain) without blocking. The drain
    /// begins with this call, also if the future is dropped.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use tidegate::framing::Lines;
    /// use tidegate::{Channel, Server};
    ///
    /// async fn discard(mut channel: Channel<Lines>) -> Result<(), Box<dyn std::error::Error>> {
    ///     while channel.recv().await?.is_some() {}
    ///     Ok(())
    /// }
    ///
    /// # tidegate::EventLoop::on(tidegate::Backend::Auto)?.block_on(async {
    /// // Within an async function, of tokio for example:
    /// let server = Server::bind("127.0.0.1:0")?.loops(1).serve(Lines::default, discard)?;
    /// println!("listening on {}", server.address());
    /// server.drained(Duration::from_secs(10)).await;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # })??;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn drained(&self, deadline: Duration) -> Ended {
        self.begin_drain(deadline);
        self.ended()
    }
}
