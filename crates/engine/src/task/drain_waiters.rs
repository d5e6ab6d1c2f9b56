//! `DrainWaiters`: the wakers of tasks that wait until their loop drains.

use std::cell::{Cell, RefCell};
use std::task::Waker;

/// The tasks of a loop that wait until it drains.
#[derive(Default)]
pub(crate) struct DrainWaiters {
    has_begun: Cell<bool>,
    wakers: RefCell<Vec<Option<Waker>>>,
    /// Places without a waker.
    free: RefCell<Vec<usize>>,
}

impl DrainWaiters {
    pub(super) fn has_begun(&self) -> bool {
        self.has_begun.get()
    }

    /// The loop drains: wakes all that wait.
    pub(crate) fn begin(&self) {
        self.has_begun.set(true);
        let wakers = self.wakers.take();
        self.free.take();
        wakers.into_iter().flatten().for_each(Waker::wake);
    }

    pub(super) fn wait(&self, place: &mut Option<usize>, waker: &Waker) {
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

    pub(super) fn forget(&self, place: usize) {
        // There is none any more once the drain has begun.
        if let Some(waker) = self.wakers.borrow_mut().get_mut(place)
            && waker.take().is_some()
        {
            self.free.borrow_mut().push(place);
        }
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
