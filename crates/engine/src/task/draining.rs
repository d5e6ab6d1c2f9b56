//! `draining`: waits until the loop drains.

use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
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

/// Whether the event loop of this thread drains.
///
/// # Panics
/// If no event loop runs on this thread.
#[must_use]
pub fn is_draining() -> bool {
    Local::current().expect(NO_LOOP).drain_waiters.has_begun()
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

/// Runs a future until it is complete, or until the event loop of this thread begins to drain: `None` then, and the future
/// is dropped where it waits. For background tasks, such as one that refreshes a cache every minute.
///
/// ```
/// use std::time::Duration;
/// use tidegate::{Backend, EventLoop, task};
///
/// let mut event_loop = EventLoop::on(Backend::Auto)?;
/// event_loop.drain(Duration::ZERO);
/// let refreshing = async {
///     loop {
///         task::sleep(Duration::from_secs(60)).await;
///     }
/// };
/// let output: Option<()> = event_loop.block_on(async { task::until_drain(refreshing).await })?;
/// assert_eq!(output, None);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Panics
/// If no event loop runs on this thread.
pub async fn until_drain<F: Future>(future: F) -> Option<F::Output> {
    let (mut future, mut draining) = (pin!(future), draining());
    poll_fn(|cx| match future.as_mut().poll(cx) {
        Poll::Ready(output) => Poll::Ready(Some(output)),
        Poll::Pending => Pin::new(&mut draining).poll(cx).map(|()| None),
    })
    .await
}

impl fmt::Debug for DrainWait {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DrainWait").field("has_begun", &self.local.drain_waiters.has_begun()).finish()
    }
}
