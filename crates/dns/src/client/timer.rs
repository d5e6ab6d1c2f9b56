//! The timers of all lookups: one task, while there are any.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::pin::pin;
use std::rc::{Rc, Weak};
use std::task::{Poll, Waker};
use std::time::Instant;

use tidegate_engine::task;

use super::Shared;

/// The state of the task.
#[derive(Debug, Default)]
pub(super) struct Timer {
    is_running: Cell<bool>,
    /// The time for which the task waits.
    at: Cell<Option<Instant>>,
    waker: RefCell<Option<Waker>>,
}

/// Starts the task, or has it wait for an earlier time.
pub(super) fn arm(this: &Rc<Shared>) {
    let Some(due) = this.resolver.borrow().poll_timeout() else { return };
    let timer = &this.timer;
    if !timer.is_running.replace(true) {
        drop(task::spawn(run(Rc::downgrade(this))));
    } else if timer.at.get().is_some_and(|at| due < at)
        && let Some(waker) = timer.waker.borrow_mut().take()
    {
        waker.wake();
    }
}

async fn run(this: Weak<Shared>) {
    loop {
        let Some(shared) = this.upgrade() else { return };
        let due = shared.resolver.borrow().poll_timeout();
        shared.timer.at.set(due);
        let Some(due) = due else { return shared.timer.is_running.set(false) };
        drop(shared);
        let mut sleep = pin!(task::sleep_until(due));
        let wait = poll_fn(|cx| {
            let Some(shared) = this.upgrade() else { return Poll::Ready(()) };
            if shared.resolver.borrow().poll_timeout().is_some_and(|earlier| earlier < due) {
                return Poll::Ready(());
            }
            *shared.timer.waker.borrow_mut() = Some(cx.waker().clone());
            sleep.as_mut().poll(cx)
        });
        wait.await;
        let Some(shared) = this.upgrade() else { return };
        shared.resolver.borrow_mut().handle_timeout(task::now());
        Shared::pump(&shared);
    }
}
