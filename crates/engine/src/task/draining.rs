//! `draining`: waits until the loop drains.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use super::NO_LOOP;
use crate::local::Local;

/// Completes when the event loop of this thread begins to drain, at once if it drains already. For work that has no end of
/// its own, such as a body that is produced as long as its client stays: it ends in good order then, and need not be cut off
/// at the deadline of the drain.
///
/// ```
/// use std::time::Duration;
/// use tidegate::{Backend, EventLoop, task};
///
/// let mut event_loop = EventLoop::on(Backend::Auto)?;
/// event_loop.drain(Duration::ZERO);
/// event_loop.block_on(async { task::draining().await })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Panics
/// If no event loop runs on this thread.
pub fn draining() -> DrainWait {
    DrainWait { local: Local::current().expect(NO_LOOP), place: None }
}

/// The future of [`draining`].
#[must_use = "a future does nothing until it is awaited"]
pub struct DrainWait {
    local: Rc<Local>,
    /// The place of its waker, once it has waited.
    place: Option<usize>,
}

impl Future for DrainWait {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let Self { local, place } = &mut *self;
        if local.drain_waiters.has_begun() {
            return Poll::Ready(());
        }
        local.drain_waiters.wait(place, cx.waker());
        Poll::Pending
    }
}

impl Drop for DrainWait {
    fn drop(&mut self) {
        if let Some(place) = self.place {
            self.local.drain_waiters.forget(place);
        }
    }
}

impl fmt::Debug for DrainWait {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DrainWait").field("has_begun", &self.local.drain_waiters.has_begun()).finish()
    }
}
