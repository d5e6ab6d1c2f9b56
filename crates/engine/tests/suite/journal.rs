//! Shared by several test suites: a journal, and a future that is polled once. Each suite includes this file by its
//! path.

use std::cell::RefCell;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;

/// Notes in order; shared by a test and its tasks.
#[derive(Debug, Clone, Default)]
pub(crate) struct Journal(Rc<RefCell<Vec<String>>>);

impl Journal {
    pub(crate) fn note(&self, what: impl Into<String>) {
        self.0.borrow_mut().push(what.into());
    }

    pub(crate) fn len(&self) -> usize {
        self.0.borrow().len()
    }

    /// The notes since the last call.
    pub(crate) fn take(&self) -> Vec<String> {
        self.0.take()
    }
}

/// Polls a future once, and drops it.
pub(crate) async fn once<F: Future>(future: F) -> Option<F::Output> {
    let mut future = pin!(future);
    poll_fn(|cx| match future.as_mut().poll(cx) {
        Poll::Ready(output) => Poll::Ready(Some(output)),
        Poll::Pending => Poll::Ready(None),
    })
    .await
}
