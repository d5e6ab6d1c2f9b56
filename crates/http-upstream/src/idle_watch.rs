//! `IdleWatch`: the task that waits for all idle connections of a pool.
//!
//! An idle connection is read from: its peer may close it, or send bytes that answer nothing. Either wakes the task, which
//! drops all connections that are no longer idle. A request never gets such a connection, since a pool polls each once more
//! before it is used.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::rc::{Rc, Weak};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tidegate_engine::task;

/// A pool whose idle connections a task watches.
pub trait WatchedPool: 'static {
    /// Its watch.
    fn idle_watch(&self) -> &IdleWatch;

    /// Drops the connections that are no longer idle, and has `cx` woken when another one ends.
    fn sweep(self: &Rc<Self>, cx: &mut Context<'_>);
}

/// Wakes the task that watches the idle connections of a pool. The task ends with the pool.
#[derive(Debug, Default)]
pub struct IdleWatch {
    /// `None` before the task has run.
    waker: RefCell<Option<Waker>>,
    has_task: Cell<bool>,
}

impl IdleWatch {
    /// A watch without a task.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Polls a connection that becomes idle. If it is pending, its end wakes the task of `pool`, which is started by the first
    /// call.
    ///
    /// # Panics
    /// If no event loop runs on this thread.
    pub fn poll<P: WatchedPool, T>(pool: &Rc<P>, poll: impl FnOnce(&mut Context<'_>) -> Poll<T>) -> Poll<T> {
        let watch = pool.idle_watch();
        if let Some(waker) = &*watch.waker.borrow() {
            return poll(&mut Context::from_waker(waker));
        }
        if !watch.has_task.replace(true) {
            drop(task::spawn(sweep_again(Rc::downgrade(pool))));
        }
        // The task polls all connections when it begins.
        poll(&mut Context::from_waker(Waker::noop()))
    }
}

impl Drop for IdleWatch {
    fn drop(&mut self) {
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }
}

/// Sweeps a pool whenever one of its idle connections ends, as long as there is a pool.
async fn sweep_again<P: WatchedPool>(pool: Weak<P>) {
    loop {
        let mut swept_at = None;
        let is_left = poll_fn(|cx| {
            let Some(pool) = pool.upgrade() else { return Poll::Ready(false) };
            if swept_at.is_some() {
                return Poll::Ready(true);
            }
            swept_at = Some(task::now());
            *pool.idle_watch().waker.borrow_mut() = Some(cx.waker().clone());
            pool.sweep(cx);
            Poll::Pending
        });
        if !is_left.await {
            return;
        }
        // Many connections may end one after the other: most of them are swept together.
        if let Some(next) = swept_at.and_then(|at| at.checked_add(SWEEP_PAUSE)) {
            task::sleep_until(next).await;
        }
    }
}

/// The shortest time between two sweeps. The entry of a closed connection is kept as long at most.
const SWEEP_PAUSE: Duration = Duration::from_millis(100);
