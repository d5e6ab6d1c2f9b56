//! Long work of tasks: pieces of about a millisecond without a wait, such as compressing a piece of a body.
//!
//! A task that does it piece by piece would hold up the other connections of its loop, the more the more such tasks there
//! are. So it asks for a turn before each piece. Tasks that asked have their turns one after the other at the end of the
//! loop's turn, for a bounded time (`do_long_work` in `local.rs`): the loop looks for bytes of other connections in
//! between, whatever the number of these tasks. The first pieces of a turn need not wait.

use std::cell::RefCell;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use super::long_work_queue::Wait;
use crate::limits::TASK_TIME_MAX;
use crate::local::Local;

/// Waits until it is this task's turn to do a piece of long work: at most a millisecond of computing, such as compressing
/// 32 KiB. Other connections of the loop have their turn before, so that none of them waits for more than a few such
/// pieces, however many tasks do long work. The tasks do it in turns, one piece each.
///
/// Work in larger pieces, and work that cannot be divided, is better done by [`blocking`](crate::blocking) on another
/// thread. Without an event loop on this thread there is nothing to wait for.
///
/// ```
/// use tidegate::{Backend, EventLoop, task};
///
/// let total = EventLoop::on(Backend::Auto)?.block_on(async {
///     let mut total = 0_u64;
///     for piece in [[1; 10_000], [2; 10_000]] {
///         task::long_work().await;
///         total += piece.iter().sum::<u64>();
///     }
///     total
/// })?;
/// assert_eq!(total, 30_000);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn long_work() -> LongWork {
    LongWork { wait: None }
}

/// Whether a piece of long work may begin now, where code cannot wait for its turn: no task waits for one, and the work of
/// this turn so far is short, as codecs have estimated it.
#[must_use]
pub fn may_work_long() -> bool {
    Local::current().is_none_or(|local| local.tasks.long_work.has_time())
}

/// Lets other tasks and connections of the loop run, if this task has run for half a millisecond. For a task that does
/// many short steps, and does not know how long each of them takes.
///
/// The time is counted from the first call after the task was woken, and includes the estimates of work that codecs make.
pub async fn yield_if_long() {
    let mut has_waited = false;
    poll_fn(|cx| {
        if has_waited || !has_run_long() {
            return Poll::Ready(());
        }
        has_waited = true;
        if let Some(local) = Local::current() {
            local.tasks.wake_for_long_work(cx.waker());
        }
        Poll::Pending
    })
    .await;
}

fn has_run_long() -> bool {
    let Some(local) = Local::current() else { return false };
    if local.tasks.has_done_long_work() {
        return true;
    }
    // It is borrowed within a dispatch, which ends when this future waits for the first time.
    let Ok(core) = local.core.try_borrow() else { return false };
    let now = core.driver.now();
    let asked = local.tasks.asked.get().unwrap_or(now);
    local.tasks.asked.set(Some(asked));
    now.saturating_duration_since(asked) >= TASK_TIME_MAX
}

/// The future of [`long_work`].
///
/// It may be kept: after it was ready it waits for the next turn.
#[must_use = "a future does nothing until it is awaited"]
#[derive(Debug, Default)]
pub struct LongWork {
    wait: Option<Rc<RefCell<Wait>>>,
}

impl Future for LongWork {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        if let Some(wait) = &self.wait {
            match &mut *wait.borrow_mut() {
                Wait::For(waker) => {
                    waker.clone_from(cx.waker());
                    return Poll::Pending;
                }
                Wait::Granted | Wait::Over => {}
            }
            self.wait = None;
            if let Some(local) = Local::current() {
                local.tasks.restart_work();
            }
            return Poll::Ready(());
        }
        let Some(local) = Local::current() else { return Poll::Ready(()) };
        if local.tasks.long_work.begins_at_once() {
            local.tasks.restart_work();
            return Poll::Ready(());
        }
        let wait = Rc::new(RefCell::new(Wait::For(cx.waker().clone())));
        local.tasks.long_work.push_future(wait.clone());
        self.wait = Some(wait);
        Poll::Pending
    }
}

impl Drop for LongWork {
    fn drop(&mut self) {
        if let Some(wait) = self.wait.take() {
            let before = wait.replace(Wait::Over);
            // The last waker may drop a task, and that other futures.
            drop(before);
        }
    }
}
