//! `draining`: waits until the loop drains.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

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

/// The tasks of a loop that wait until it drains.
#[derive(Default)]
pub(crate) struct DrainWaiters {
    has_begun: Cell<bool>,
    wakers: RefCell<Vec<Option<Waker>>>,
    /// Places without a waker.
    free: RefCell<Vec<usize>>,
}

impl DrainWaiters {
    /// The loop drains: wakes all that wait.
    pub(crate) fn begin(&self) {
        self.has_begun.set(true);
        let wakers = self.wakers.take();
        self.free.take();
        wakers.into_iter().flatten().for_each(Waker::wake);
    }

    fn wait(&self, place: &mut Option<usize>, waker: &Waker) {
        let mut wakers = self.wakers.borrow_mut();
        if let Some(kept) = place.and_then(|place| wakers[place].as_mut()) {
            kept.clone_from(waker);
            return;
        }
        *place = Some(match self.free.borrow_mut().pop() {
            Some(free) => {
                wakers[free] = Some(waker.clone());
                free
            }
            None => {
                wakers.push(Some(waker.clone()));
                wakers.len() - 1
            }
        });
    }

    fn forget(&self, place: usize) {
        // There is none any more once the drain has begun.
        if let Some(waker) = self.wakers.borrow_mut().get_mut(place)
            && waker.take().is_some()
        {
            self.free.borrow_mut().push(place);
        }
    }
}

impl Future for DrainWait {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let Self { local, place } = &mut *self;
        if local.drain_waiters.has_begun.get() {
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
        f.debug_struct("DrainWait").field("has_begun", &self.local.drain_waiters.has_begun.get()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_used_again_and_none_is_left_after_the_drain() {
        let waiters = DrainWaiters::default();
        let (mut first, mut second, mut third) = (None, None, None);
        waiters.wait(&mut first, Waker::noop());
        waiters.wait(&mut second, Waker::noop());
        waiters.wait(&mut first, Waker::noop());
        assert_eq!((first, second), (Some(0), Some(1)));
        waiters.forget(0);
        waiters.wait(&mut third, Waker::noop());
        assert_eq!((third, waiters.wakers.borrow().len()), (Some(0), 2));
        waiters.begin();
        waiters.forget(0);
        waiters.forget(1);
        assert!(waiters.wakers.borrow().is_empty() && waiters.free.borrow().is_empty());
    }
}
