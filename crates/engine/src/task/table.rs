//! `Tasks`: stores and polls a loop's tasks.

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Instant;

use tidegate_codec::work::Work;
use tidegate_sys::Token;

use super::long_work_queue::LongWorkQueue;
use crate::limits::{MESSAGES_PER_DISPATCH_MAX, TASK_ROUNDS_MAX, TASKS_PER_RUN_MAX, WORK_PER_TASK_MAX};
use crate::mailbox::{Mailbox, TaskWaker};
use crate::pages::{Pages, place_bytes};
use crate::unwind::{catch_and_log, discard};

/// The tasks of one loop.
pub(crate) struct Tasks {
    mailbox: Arc<Mailbox>,
    table: RefCell<Pages<TaskEntry>>,
    /// Tasks that were woken and have not run yet. The memory is reused.
    woken: RefCell<WokenTasks>,
    /// Actions to run outside of any dispatch.
    deferred: RefCell<Vec<Deferred>>,
    /// Tasks that wait for a turn to do long work.
    pub(super) long_work: LongWorkQueue,
    /// Messages that the running task may still take before others get their turn.
    messages: Cell<u32>,
    /// The work of codecs and parsers up to the poll of the running task.
    work: Cell<Work>,
    /// When the running task asked first how long it runs.
    pub(super) asked: Cell<Option<Instant>>,
    panicked: Cell<u64>,
    /// Tasks that serve a connection: a drain waits for them.
    serving: Cell<usize>,
    /// Handles of connections: channels, their halves, and sessions.
    handles: Cell<usize>,
    /// Once the loop has ended: how many tasks the futures that are dropped may still spawn.
    last_spawns: Cell<Option<u32>>,
}

type Deferred = Box<dyn FnOnce()>;

#[derive(Default)]
struct TaskEntry {
    /// `None` while the task is polled.
    future: Option<Pin<Box<dyn Future<Output = ()>>>>,
    waker: Option<Arc<TaskWaker>>,
}

#[derive(Default)]
struct WokenTasks {
    tasks: Vec<Token>,
    /// How many of `tasks` have run.
    done: usize,
}

impl Tasks {
    pub(crate) fn new(mailbox: Arc<Mailbox>) -> Self {
        Self {
            mailbox,
            table: RefCell::default(),
            woken: RefCell::default(),
            deferred: RefCell::default(),
            long_work: LongWorkQueue::default(),
            messages: Cell::new(0),
            work: Cell::default(),
            asked: Cell::default(),
            panicked: Cell::new(0),
            serving: Cell::new(0),
            handles: Cell::new(0),
            last_spawns: Cell::new(None),
        }
    }

    /// Adds a future; it runs when the tasks run next.
    pub(crate) fn spawn(&self, future: Pin<Box<dyn Future<Output = ()>>>) -> Token {
        if self.is_exhausted() {
            // Dropping it might spawn the next one, and so on for ever.
            std::mem::forget(future);
            return NO_TASK;
        }
        let mut table = self.table.borrow_mut();
        let token = table.reserve();
        let waker = TaskWaker::new(self.mailbox.clone(), token);
        waker.wake_by_ref();
        if let Some(entry) = table.get_mut(token) {
            *entry = TaskEntry { future: Some(future), waker: Some(waker) };
        }
        token
    }

    /// Drops a task; if it is being polled, as soon as the poll returns.
    pub(crate) fn cancel(&self, token: Token) {
        let entry = self.table.borrow_mut().release(token);
        catch_and_log(move || drop(entry));
    }

    /// Runs `act` as soon as no dispatch is under way, on the loop's thread and within a turn of it.
    pub(crate) fn defer(&self, act: impl FnOnce() + 'static) {
        self.deferred.borrow_mut().push(Box::new(act));
    }

    #[inline]
    pub(crate) fn has_runnable(&self) -> bool {
        self.mailbox.has_woken() || self.has_collected()
    }

    #[inline]
    fn has_collected(&self) -> bool {
        let woken = self.woken.borrow();
        woken.done < woken.tasks.len() || !self.deferred.borrow().is_empty()
    }

    /// Runs woken tasks, and the tasks that they wake, up to a bound. The rest runs in the next turn.
    pub(crate) fn run(&self) {
        let mut rounds = TASK_ROUNDS_MAX;
        for _ in 0..TASKS_PER_RUN_MAX {
            let later = std::mem::take(&mut *self.deferred.borrow_mut());
            for act in later {
                catch_and_log(act);
            }
            match self.next(&mut rounds) {
                Some(token) => self.poll(token),
                None if self.deferred.borrow().is_empty() => return,
                None => {}
            }
        }
    }

    fn next(&self, rounds: &mut u32) -> Option<Token> {
        let mut woken = self.woken.borrow_mut();
        if woken.done == woken.tasks.len() {
            woken.tasks.clear();
            woken.done = 0;
            *rounds = rounds.checked_sub(1)?;
            self.mailbox.collect_woken(&mut woken.tasks);
        }
        let token = woken.tasks.get(woken.done).copied();
        woken.done += usize::from(token.is_some());
        token
    }

    fn poll(&self, token: Token) {
        let taken = {
            let mut table = self.table.borrow_mut();
            table.get_mut(token).and_then(|entry| Some((entry.future.take()?, entry.waker.clone()?)))
        };
        let Some((mut future, waker)) = taken else { return };
        waker.begin();
        self.refill_message_budget();
        let waker = Waker::from(waker);
        let polled = catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(&mut Context::from_waker(&waker))));
        // If the entry is not there any more, the task was cancelled meanwhile.
        if matches!(polled, Ok(Poll::Pending))
            && let Some(entry) = self.table.borrow_mut().get_mut(token)
        {
            entry.future = Some(future);
            return;
        }
        let entry = self.table.borrow_mut().release(token);
        drop(entry);
        catch_and_log(move || drop(future));
        if let Err(panic) = polled {
            discard(panic);
            self.panicked.set(self.panicked.get() + 1);
        }
    }

    /// Sets how many messages the next task may take, and how much work it may do for them.
    pub(crate) fn refill_message_budget(&self) {
        self.messages.set(MESSAGES_PER_DISPATCH_MAX);
        self.work.set(Work::begin());
        self.asked.set(None);
    }

    /// The running task may do a piece of long work: earlier work does not count.
    pub(super) fn restart_work(&self) {
        self.work.set(Work::begin());
    }

    /// Whether the running task has done so much work that others get their turn.
    #[inline]
    pub(crate) fn has_done_long_work(&self) -> bool {
        self.work.get().nanos() >= WORK_PER_TASK_MAX
    }

    /// Wakes a task when it is its turn to do long work.
    #[cold]
    pub(crate) fn wake_for_long_work(&self, waker: &Waker) {
        self.long_work.push_task(waker.clone());
    }

    /// Begins a turn: the time for long work begins again.
    pub(crate) fn begin_turn(&self) {
        self.long_work.begin_turn();
    }

    /// Whether a task waits for a turn to do long work.
    #[inline]
    pub(crate) fn has_long_work(&self) -> bool {
        !self.long_work.is_empty()
    }

    /// Gives the turn to the task that has waited longest. It is woken, and does not run yet.
    pub(crate) fn grant_long_work(&self) {
        self.long_work.grant();
    }

    /// How many pieces of long work tasks have waited for.
    pub(crate) fn long_work_waits(&self) -> u64 {
        self.long_work.waits()
    }

    /// Whether the running task may take another message now; if not, it is woken again after the others.
    pub(crate) fn take_message_permit(&self) -> bool {
        let left = self.messages.get();
        self.messages.set(left.saturating_sub(1));
        left > 0
    }

    /// Tasks that have panicked so far.
    pub(crate) fn panicked(&self) -> u64 {
        self.panicked.get()
    }

    /// Changes the number of tasks that serve a connection.
    pub(crate) fn count_serving(&self, change: isize) {
        self.serving.set(self.serving.get().wrapping_add_signed(change));
    }

    pub(crate) fn count_handles(&self, change: isize) {
        self.handles.set(self.handles.get().wrapping_add_signed(change));
    }

    /// Handles of connections: channels, their halves, and sessions.
    pub(crate) fn handles(&self) -> usize {
        self.handles.get()
    }

    /// Tasks that serve a connection.
    pub(crate) fn serving(&self) -> usize {
        self.serving.get()
    }

    /// Whether the loop has ended, and dropped futures have spawned all tasks that they may.
    fn is_exhausted(&self) -> bool {
        let Some(left) = self.last_spawns.get() else { return false };
        self.last_spawns.set(Some(left.saturating_sub(1)));
        left == 0
    }

    /// Drops all tasks: the loop has ended.
    pub(crate) fn drop_tasks(&self) {
        self.last_spawns.set(Some(SPAWNS_AT_END_MAX));
        loop {
            // A dropped future may spawn tasks, up to a bound.
            let token = self.table.borrow().iter().next().map(|(token, _)| token);
            let Some(token) = token else { break };
            self.cancel(token);
        }
        let later = std::mem::take(&mut *self.deferred.borrow_mut());
        catch_and_log(move || drop(later));
    }
}

/// Wakes the future that a loop is blocked on. It is no task: it belongs to the caller of `block_on`.
pub(crate) struct BlockOnWaker {
    mailbox: Arc<Mailbox>,
    made: AtomicBool,
}

impl BlockOnWaker {
    /// A call that counts as made once: the future has not been polled yet.
    pub(crate) fn new(mailbox: Arc<Mailbox>) -> Arc<Self> {
        Arc::new(Self { mailbox, made: AtomicBool::new(true) })
    }

    /// Whether the call was made since the last check.
    pub(crate) fn take_woken(&self) -> bool {
        self.made.swap(false, Ordering::AcqRel)
    }
}

impl Wake for BlockOnWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if !self.made.swap(true, Ordering::AcqRel) {
            // No task has this token; the wake-up only keeps the loop from sleeping.
            self.mailbox.wake(NO_TASK);
        }
    }
}

/// Tasks that futures may spawn when the end of a loop drops them.
const SPAWNS_AT_END_MAX: u32 = 10_000;

/// A token that no task has.
const NO_TASK: Token = Token { slot: u32::MAX, generation: u32::MAX };

const _: () = assert!(place_bytes::<TaskEntry>() == 32);
