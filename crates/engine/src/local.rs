//! `Local`: the state that a loop shares with its tasks and their handles.
//!
//! The core is borrowed while an entry is dispatched, and free while tasks run: that is when handles reach their
//! connections. A handle that is used from within a dispatch, by a handler that keeps it, finds the core borrowed and
//! returns an error; one that is dropped there is remembered until the dispatch is over.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use tidegate_sys::Token;

use crate::activity::Activity;
use crate::charges::Charges;
use crate::limits::{
    BACKLOG_TIME, FLUSH_TIME, HANDLER_TASKS_PER_DISPATCH_MAX, LONG_WORK_PER_TURN_MAX, LONG_WORK_TIME, UNFLUSHED_MAX,
};
use crate::loop_core::Core;
use crate::phase::Phase;
use crate::slot_entry::SlotEvent;
use crate::task::{DrainWaiters, Tasks};

pub(crate) struct Local {
    pub(crate) core: RefCell<Core>,
    pub(crate) tasks: Rc<Tasks>,
    pub(crate) charges: Rc<Charges>,
    /// The time of this turn; in the core as well, which may be borrowed.
    now: Cell<Instant>,
    /// The code that the loop executes, for the watchdog.
    pub(crate) activity: Activity,
    /// The tasks that wait until the loop drains.
    pub(crate) drain_waiters: DrainWaiters,
    /// No other loop of the process has it.
    pub(crate) number: u64,
}

impl Local {
    pub(crate) fn new(core: Core, activity: Activity) -> Rc<Self> {
        let (tasks, charges, now) = (core.tasks.clone(), core.charges.clone(), core.time.now());
        let drain_waiters = DrainWaiters::default();
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        Rc::new(Self { core: RefCell::new(core), tasks, charges, now: Cell::new(now), activity, drain_waiters, number })
    }

    /// The loop that runs on this thread now, if one does.
    pub(crate) fn current() -> Option<Rc<Self>> {
        CURRENT.with_borrow(Clone::clone)
    }

    /// Makes this the current loop of the thread, until the guard is dropped. Many loops may take turns on a thread.
    pub(crate) fn enter(self: &Rc<Self>) -> LoopGuard {
        LoopGuard(CURRENT.replace(Some(self.clone())))
    }

    pub(crate) fn now(&self) -> Instant {
        self.now.get()
    }

    pub(crate) fn set_now(&self, now: Instant) {
        self.now.set(now);
    }

    /// Dispatches the entry of a slot, and runs the tasks that were woken by that. A connection with bytes in the
    /// scratch is then dispatched once more.
    #[inline]
    pub(crate) fn dispatch(self: &Rc<Self>, token: Token, event: SlotEvent) {
        self.core.borrow_mut().dispatch(token, event);
        self.run_tasks();
    }

    #[inline]
    pub(crate) fn run_tasks(self: &Rc<Self>) {
        self.run_woken();
        let mut core = self.core.borrow_mut();
        if let Some(token) = core.pending_reader.take() {
            core.dispatch(token, SlotEvent::Scheduled);
            if core.pending_reader.is_some() {
                drop(core);
                self.continue_handler();
                core = self.core.borrow_mut();
            }
        }
        if core.unflushed >= UNFLUSHED_MAX {
            drop(core);
            self.dispatch_scheduled();
        }
    }

    #[inline]
    fn run_woken(self: &Rc<Self>) {
        if self.tasks.has_runnable() {
            let panicked = self.tasks.panicked();
            self.tasks.run();
            for _ in panicked..self.tasks.panicked() {
                self.core.borrow_mut().log.task_panicked(self.now());
            }
        }
    }

    /// A handler waits for a future once more, in the dispatch that followed the last one. Its messages leave when all
    /// of its futures were polled, but after a few of them at the latest.
    #[inline(never)]
    fn continue_handler(self: &Rc<Self>) {
        for left in (0..HANDLER_TASKS_PER_DISPATCH_MAX).rev() {
            self.run_woken();
            let mut core = self.core.borrow_mut();
            let Some(token) = core.pending_reader.take() else { return };
            core.may_await_tasks = left > 0;
            core.dispatch(token, SlotEvent::Scheduled);
            core.may_await_tasks = true;
        }
    }

    /// Dispatches the connections that requested it before this began, and then the sessions, as far as the time of each
    /// goes. A connection that requests it now waits for the next time; the session of a stream does not.
    pub(crate) fn dispatch_scheduled(self: &Rc<Self>) {
        let mut core = self.core.borrow_mut();
        // Nothing runs the tasks behind each of these dispatches.
        core.may_await_tasks = false;
        core.dispatch_over();
        let mut phase = Phase::of(FLUSH_TIME);
        for _ in 0..core.queues.scheduled_count() {
            let Some(token) = core.queues.next_scheduled() else { break };
            core.dispatch(token, SlotEvent::Scheduled);
            if phase.is_over_after(1, &*core.driver) {
                break;
            }
        }
        if !phase.is_over() {
            core.unflushed = 0;
        }
        let mut phase = Phase::of(FLUSH_TIME);
        for _ in 0..core.queues.sessions_count() {
            let Some(token) = core.queues.next_session() else { break };
            core.dispatch(token, SlotEvent::Scheduled);
            if phase.is_over_after(1, &*core.driver) {
                break;
            }
        }
        core.may_await_tasks = true;
        core.queues.shrink();
    }

    /// Dispatches connections that had more to do than one dispatch may, as far as the time goes; the others keep
    /// their place.
    pub(crate) fn continue_backlog(self: &Rc<Self>) {
        let mut phase = Phase::of_long_items(BACKLOG_TIME);
        let backlog = self.core.borrow().queues.backlog_count();
        for _ in 0..backlog {
            let next = self.core.borrow_mut().queues.next_in_backlog();
            let Some(token) = next else { break };
            self.dispatch(token, SlotEvent::Scheduled);
            if phase.is_over_after(1, &*self.core.borrow().driver) {
                break;
            }
        }
    }

    /// Lets tasks do long work, one piece after the other, as far as the time goes; the others keep their place.
    pub(crate) fn do_long_work(self: &Rc<Self>) {
        if !self.tasks.has_long_work() {
            return;
        }
        let mut phase = Phase::of_long_items_from_now(LONG_WORK_TIME, &*self.core.borrow().driver);
        for _ in 0..LONG_WORK_PER_TURN_MAX {
            self.tasks.grant_long_work();
            self.run_tasks();
            if !self.tasks.has_long_work() || phase.is_over_after(1, &*self.core.borrow().driver) {
                break;
            }
        }
    }

    /// Calls `act` with the core: now, or as soon as the dispatch is over within which this is called.
    pub(crate) fn with_core(self: &Rc<Self>, act: impl FnOnce(&mut Core) + 'static) {
        match self.core.try_borrow_mut() {
            Ok(mut core) => act(&mut core),
            Err(_) => self.tasks.defer(move || {
                let local = Self::current().expect("a deferred call runs within a turn");
                act(&mut local.core.borrow_mut());
            }),
        }
    }
}

impl Activity {
    /// That of the event loop of this thread; one of its own if no loop runs here, as in a test without one.
    #[must_use]
    pub fn of_this_loop() -> Self {
        Local::current().map(|local| local.activity.clone()).unwrap_or_default()
    }
}

/// The loop of a handle: of a channel, of a half of one, or of a session. The loop counts its handles, so that a handler
/// can find out whether anything that it polls may use one.
pub(crate) struct HandleLocal(Rc<Local>);

impl HandleLocal {
    pub(crate) fn new(local: Rc<Local>) -> Self {
        local.tasks.count_handles(1);
        Self(local)
    }
}

impl Clone for HandleLocal {
    fn clone(&self) -> Self {
        Self::new(self.0.clone())
    }
}

impl std::ops::Deref for HandleLocal {
    type Target = Rc<Local>;

    fn deref(&self) -> &Rc<Local> {
        &self.0
    }
}

impl Drop for HandleLocal {
    fn drop(&mut self) {
        self.0.tasks.count_handles(-1);
    }
}

/// Restores the loop that was current before.
pub(crate) struct LoopGuard(Option<Rc<Local>>);

impl Drop for LoopGuard {
    fn drop(&mut self) {
        CURRENT.set(self.0.take());
    }
}

thread_local! {
    static CURRENT: RefCell<Option<Rc<Local>>> = const { RefCell::new(None) };
}
