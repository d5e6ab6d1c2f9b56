//! `Semaphore`: bounds the connection attempts of a thread.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::poll_fn;
use std::task::{Poll, Waker};

/// Bounds concurrent connection attempts: a listener's backlog is bounded.
#[derive(Debug)]
pub(crate) struct Semaphore {
    free: Cell<usize>,
    waiting: RefCell<VecDeque<Waker>>,
}

/// A permit of the semaphore. Dropping it wakes the next waiter.
pub(crate) struct Turn<'a>(&'a Semaphore);

impl Semaphore {
    pub(crate) fn new(free: usize) -> Self {
        Self { free: Cell::new(free), waiting: RefCell::default() }
    }

    pub(crate) async fn enter(&self) -> Turn<'_> {
        poll_fn(|cx| {
            if self.free.get() > 0 {
                self.free.set(self.free.get() - 1);
                return Poll::Ready(Turn(self));
            }
            self.waiting.borrow_mut().push_back(cx.waker().clone());
            Poll::Pending
        })
        .await
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.0.free.set(self.0.free.get() + 1);
        if let Some(waker) = self.0.waiting.borrow_mut().pop_front() {
            waker.wake();
        }
    }
}
