//! Tasks: futures that run on one event loop, and never leave its thread.
//!
//! A task runs right after the completion that woke it, before the next one. Its waker has a token and a mailbox, and
//! no reference to the future: so it may be used on any thread, and after the loop has ended, when it has no effect.
//! Read next: `table.rs`, which stores and polls tasks; `time.rs`, the timers that they await; `blocking.rs`, for work
//! that must not run on a loop.

pub(crate) mod blocking;
mod drain_waiters;
mod draining;
mod handler_task;
mod join;
mod long_work;
mod long_work_queue;
mod serving;
mod table;
mod time;

use std::cell::RefCell;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use tidegate_sys::Token;

pub(crate) use self::drain_waiters::DrainWaiters;
pub use self::draining::{DrainWait, draining, is_draining, until_drain};
pub use self::handler_task::HandlerTask;
pub use self::join::{TryJoin, try_join};
pub use self::long_work::{LongWork, long_work, may_work_long, yield_if_long};
pub(crate) use self::serving::ServingGuard;
pub(crate) use self::table::{BlockOnWaker, Tasks};
pub(crate) use self::time::Timer;
pub use self::time::{
    Elapsed, ExpiryTimer, Interval, Sleep, Tick, Timeout, interval, now, sleep, sleep_until, timeout,
};
use crate::local::Local;

/// Starts a task on the event loop of this thread. It need not be `Send`, and runs as soon as the caller has returned
/// to the loop. Dropping the handle lets the task run on; when the loop ends, the task is dropped.
///
/// A panic ends only the task itself; the loop logs and counts it.
///
/// ```
/// use std::rc::Rc;
/// use tidegate::{Backend, EventLoop, task};
///
/// let mut event_loop = EventLoop::on(Backend::Auto)?;
/// let sum = event_loop.block_on(async {
///     let shared = Rc::new(20);
///     let other = shared.clone();
///     let task = task::spawn(async move { *other + 1 });
///     *shared + task.await.expect("it neither panics nor is cancelled") + 1
/// })?;
/// assert_eq!(sum, 42);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Panics
/// If no event loop runs on this thread.
pub fn spawn<T: 'static>(future: impl Future<Output = T> + 'static) -> Task<T> {
    let local = Local::current().expect(NO_LOOP);
    let shared = Rc::new(RefCell::new(TaskState::Running(None)));
    let finish = Finish(shared.clone());
    let token = local.tasks.spawn(Box::pin(async move {
        let value = future.await;
        finish.with(Ok(value));
    }));
    Task { local, token, shared }
}

/// Whether an event loop runs on this thread, so that tasks can be started and time be read.
#[must_use]
pub fn can_spawn() -> bool {
    Local::current().is_some()
}

/// The number of the event loop of this thread, which no other loop of the process has: for state of each loop.
///
/// # Panics
/// If no event loop runs on this thread.
#[must_use]
pub fn loop_number() -> u64 {
    Local::current().expect(NO_LOOP).number
}

/// A handle to a task: a future of the task's result.
pub struct Task<T> {
    local: Rc<Local>,
    token: Token,
    shared: Rc<RefCell<TaskState<T>>>,
}

impl<T> Task<T> {
    /// Drops the task's future at the point where it waits. The rest of the task does not run.
    pub fn cancel(self) {
        self.local.tasks.cancel(self.token);
    }

    /// Whether the task has ended.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        !matches!(*self.shared.borrow(), TaskState::Running(_))
    }
}

impl<T> Future for Task<T> {
    type Output = Result<T, TaskError>;

    /// # Panics
    /// If it is polled after it was ready.
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut state = self.shared.borrow_mut();
        match std::mem::replace(&mut *state, TaskState::Taken) {
            TaskState::Running(_) => *state = TaskState::Running(Some(cx.waker().clone())),
            TaskState::Finished(result) => return Poll::Ready(result),
            TaskState::Taken => panic!("a task was awaited after it was ready"),
        }
        Poll::Pending
    }
}

impl<T> fmt::Debug for Task<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Task({}/{})", self.token.slot, self.token.generation)
    }
}

/// Why a task has no result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum TaskError {
    /// It was cancelled, or its loop ended.
    Cancelled,
    /// It panicked.
    Panicked,
}

impl fmt::Display for TaskError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Cancelled => "the task was cancelled",
            Self::Panicked => "the task panicked",
        })
    }
}

impl std::error::Error for TaskError {}

enum TaskState<T> {
    /// The waker is that of the task that awaits this one.
    Running(Option<Waker>),
    Finished(Result<T, TaskError>),
    Taken,
}

/// The task's side: reports how the task ended, also if its future was dropped.
struct Finish<T>(Rc<RefCell<TaskState<T>>>);

impl<T> Finish<T> {
    fn with(&self, result: Result<T, TaskError>) {
        let before = std::mem::replace(&mut *self.0.borrow_mut(), TaskState::Finished(result));
        if let TaskState::Running(Some(waker)) = before {
            waker.wake();
        }
    }
}

impl<T> Drop for Finish<T> {
    fn drop(&mut self) {
        if matches!(*self.0.borrow(), TaskState::Running(_)) {
            self.with(Err(if std::thread::panicking() { TaskError::Panicked } else { TaskError::Cancelled }));
        }
    }
}

pub(crate) const NO_LOOP: &str = "no event loop runs on this thread: call this from a task or a handler";
