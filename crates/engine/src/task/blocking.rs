//! `blocking`: runs work that would block an event loop on other threads. Its result is a future.
//!
//! The threads belong to the process, not to a loop. There are none until the first call, at most [`THREADS_MAX`] under
//! load, and none again a few seconds after the last work. The queue is bounded too, by [`WAITING_MAX`]. Work beyond
//! that is refused at once, while the caller can still react. That is the difference to the crate of the same name,
//! which has five hundred threads and an unbounded queue.
//!
//! Invariants. Waiting work is in `BlockingState::waiting` under its ticket, and nowhere else: the thread, or the drop of the
//! future, that removes it owns it. The state of a job is one [`Stage`] under one lock: the step that stores the result
//! takes the waker out, so it is woken once, and a poll either stores its waker before that step or finds the result
//! after it. No user code runs under either lock, except the clone of a waker.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::Duration;

use crate::unwind::catch_and_log;

/// Runs `work` on another thread, so that an event loop does not wait for it: reading a file, querying a database whose
/// client blocks, hashing a password. The work begins whether or not the future is polled.
///
/// Dropping the future before the work has begun cancels the work: it is dropped, and never run. Work that has begun
/// cannot be stopped; its result is then dropped on the thread that ran it.
///
/// At most 16 threads work for the whole process. Work that waits for other such work may wait for ever, and work that
/// does not end occupies one of the threads.
///
/// ```
/// use tidegate::{Backend, BlockingError, EventLoop, blocking};
///
/// let sum = EventLoop::on(Backend::Auto)?.block_on(async {
///     let sum = blocking(|| (1..=100).sum::<u32>()).await?;
///     Ok::<_, BlockingError>(sum)
/// })??;
/// assert_eq!(sum, 5050);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// A handler cannot await a future. It lets the work post its result, and gets that as
/// [`Event::Posted`](crate::Event::Posted):
///
/// ```no_run
/// use std::io;
///
/// use tidegate::framing::Lines;
/// use tidegate::{Context, Event, Handler, Outcome, Slice, blocking};
///
/// /// Answers the name of a file with its size.
/// struct Sizes;
///
/// impl Handler<Lines> for Sizes {
///     type Post = io::Result<u64>;
///
///     fn message(&mut self, path: Slice, cx: &mut Context<'_, Lines, Self::Post>) -> Outcome<Lines> {
///         let (remote, path) = (cx.remote(), String::from_utf8_lossy(&path).into_owned());
///         let size = blocking(move || {
///             let size = std::fs::metadata(path).map(|about| about.len());
///             // It fails if the connection is closed: the result is not needed then.
///             let _ = remote.post(size);
///         });
///         match size.detach() {
///             Ok(()) => Outcome::Continue,
///             Err(_) => cx.send("too busy".into()).into(),
///         }
///     }
///
///     fn event(&mut self, event: Event<Self::Post>, cx: &mut Context<'_, Lines, Self::Post>) -> Outcome<Lines> {
///         match event {
///             Event::Posted(Ok(bytes)) => cx.send(bytes.to_string().into()).into(),
///             Event::Posted(Err(_)) => cx.send("no such file".into()).into(),
///             other => other.by_default(cx),
///         }
///     }
/// }
/// ```
pub fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Blocking<T> {
    static POOL: OnceLock<Arc<ThreadPool>> = OnceLock::new();
    POOL.get_or_init(|| ThreadPool::new(THREADS_MAX, WAITING_MAX, IDLE_MAX)).submit(work)
}

/// The future that [`blocking`] returns: it yields the work's result, on any executor.
///
/// # Panics
/// If it is polled again after it was ready.
#[must_use = "dropping it cancels work that has not begun: await it, or `detach` it"]
pub struct Blocking<T> {
    job: Arc<Job<T>>,
    /// The queue that the work waits in, and its ticket; `None` if it was never queued.
    place: Option<(Arc<ThreadPool>, u64)>,
}

impl<T> Blocking<T> {
    /// A result that needs no work.
    pub(crate) fn done(result: Result<T, BlockingError>) -> Self {
        Self { job: Arc::new(Job::new(Stage::Done(result))), place: None }
    }

    /// Lets the work run without a future that waits for it: for work that reports its result by itself.
    ///
    /// # Errors
    /// [`BlockingError::Full`] or [`BlockingError::NoThread`] if the work was refused. Later failures are not returned;
    /// the panic hook prints a panic.
    pub fn detach(self) -> Result<(), BlockingError> {
        // `Stage::Over` leaves the drop of `self` nothing to cancel.
        match self.job.take_stage() {
            Stage::Done(Err(refused @ (BlockingError::Full | BlockingError::NoThread))) => Err(refused),
            _ => Ok(()),
        }
    }
}

impl<T> Future for Blocking<T> {
    type Output = Result<T, BlockingError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.job.poll(cx)
    }
}

impl<T> Drop for Blocking<T> {
    fn drop(&mut self) {
        let left = self.job.take_stage();
        if let (Stage::Pending(_), Some((threads, ticket))) = (left, &self.place) {
            // The work is user code: it is dropped here, outside the lock.
            let work = threads.state().waiting.remove(ticket);
            drop(work);
        }
    }
}

impl<T> fmt::Debug for Blocking<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Blocking")
    }
}

/// Why there is no result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum BlockingError {
    /// The work panicked.
    Panicked,
    /// 65,536 other pieces of work wait already: the work was refused.
    Full,
    /// The system could not start a thread, and none was running: the work was refused.
    NoThread,
}

impl fmt::Display for BlockingError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Panicked => "the work panicked",
            Self::Full => "too much blocking work waits already",
            Self::NoThread => "the system has no thread for blocking work",
        })
    }
}

impl std::error::Error for BlockingError {}

/// The state that a piece of work and its future share.
struct Job<T>(Mutex<Stage<T>>);

enum Stage<T> {
    /// The work waits or runs. The waker is that of the last poll.
    Pending(Option<Waker>),
    Done(Result<T, BlockingError>),
    /// The future has returned the result, or was dropped or detached.
    Over,
}

impl<T> Job<T> {
    fn new(stage: Stage<T>) -> Self {
        Self(Mutex::new(stage))
    }

    fn poll(&self, cx: &Context<'_>) -> Poll<Result<T, BlockingError>> {
        let mut stage = locked(&self.0);
        match mem::replace(&mut *stage, Stage::Over) {
            Stage::Pending(before) => {
                let same = before.as_ref().is_some_and(|waker| waker.will_wake(cx.waker()));
                let (kept, replaced) = if same { (before, None) } else { (Some(cx.waker().clone()), before) };
                *stage = Stage::Pending(kept);
                drop(stage);
                // Dropping a waker may drop the last handle to a task.
                drop(replaced);
                Poll::Pending
            }
            Stage::Done(result) => Poll::Ready(result),
            Stage::Over => {
                drop(stage);
                panic!("`Blocking` was polled after it was ready")
            }
        }
    }

    /// On the work's thread: stores the result, and wakes the task that waits for it.
    fn finish(&self, result: Result<T, BlockingError>) {
        let mut stage = locked(&self.0);
        // A result that no future takes is dropped here, after the lock was released.
        if let Stage::Pending(waker) = &mut *stage {
            let waker = waker.take();
            *stage = Stage::Done(result);
            drop(stage);
            if let Some(waker) = waker {
                waker.wake();
            }
        } else {
            drop(stage);
            drop(result);
        }
    }

    fn take_stage(&self) -> Stage<T> {
        mem::replace(&mut *locked(&self.0), Stage::Over)
    }
}

type Work = Box<dyn FnOnce() + Send>;

/// The threads, and the queue of waiting work.
struct ThreadPool {
    threads_max: usize,
    waiting_max: usize,
    /// How long a thread waits for work before it ends.
    idle_max: Duration,
    state: Mutex<BlockingState>,
    changed: Condvar,
}

#[derive(Default)]
struct BlockingState {
    /// By ticket, so in the order of submission.
    waiting: BTreeMap<u64, Work>,
    tickets: u64,
    threads: usize,
    /// Threads that will check the queue before they do anything else: those that sleep, and those that just begin.
    idle: usize,
}

impl ThreadPool {
    fn new(threads_max: usize, waiting_max: usize, idle_max: Duration) -> Arc<Self> {
        Arc::new(Self { threads_max, waiting_max, idle_max, state: Mutex::default(), changed: Condvar::new() })
    }

    fn submit<T: Send + 'static>(self: &Arc<Self>, work: impl FnOnce() -> T + Send + 'static) -> Blocking<T> {
        let job = Arc::new(Job::new(Stage::Pending(None)));
        let done = job.clone();
        let work = Box::new(move || {
            let result = catch_unwind(AssertUnwindSafe(work)).map_err(|panic| {
                catch_and_log(move || drop(panic));
                BlockingError::Panicked
            });
            done.finish(result);
        });
        match self.enqueue(work) {
            Ok(ticket) => Blocking { job, place: Some((self.clone(), ticket)) },
            Err((refused, work)) => {
                drop(work);
                Blocking::done(Err(refused))
            }
        }
    }

    /// Queues work, and starts a thread for it if necessary. Refused work is returned, so that the caller drops it
    /// outside the lock.
    fn enqueue(self: &Arc<Self>, work: Work) -> Result<u64, (BlockingError, Work)> {
        let mut state = self.state();
        if state.waiting.len() >= self.waiting_max {
            return Err((BlockingError::Full, work));
        }
        if state.waiting.len() >= state.idle
            && state.threads < self.threads_max
            // Without another thread the work waits for one of the existing ones.
            && self.spawn(&mut state).is_err()
            && state.threads == 0
        {
            return Err((BlockingError::NoThread, work));
        }
        state.tickets += 1;
        let ticket = state.tickets;
        state.waiting.insert(ticket, work);
        drop(state);
        self.changed.notify_one();
        Ok(ticket)
    }

    fn spawn(self: &Arc<Self>, state: &mut BlockingState) -> io::Result<()> {
        let threads = self.clone();
        thread::Builder::new().name("tidegate-blocking".into()).spawn(move || threads.work())?;
        state.threads += 1;
        state.idle += 1;
        Ok(())
    }

    /// The main function of a thread.
    fn work(&self) {
        let mut state = self.state();
        loop {
            if let Some((_, work)) = state.waiting.pop_first() {
                state.idle -= 1;
                drop(state);
                // The work's own panic is caught within; a waker or the drop of a result may panic as well.
                catch_and_log(work);
                state = self.state();
                state.idle += 1;
                continue;
            }
            let waited = self.changed.wait_timeout(state, self.idle_max);
            let (back, waited) = waited.unwrap_or_else(PoisonError::into_inner);
            state = back;
            if waited.timed_out() && state.waiting.is_empty() {
                state.idle -= 1;
                state.threads -= 1;
                return;
            }
        }
    }

    fn state(&self) -> MutexGuard<'_, BlockingState> {
        locked(&self.state)
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Threads of the process that do blocking work.
const THREADS_MAX: usize = 16;

/// Work that may wait for them.
const WAITING_MAX: usize = 65_536;

/// How long a thread without work stays.
const IDLE_MAX: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests;
