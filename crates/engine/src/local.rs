//! `Local`: what a loop shares with its tasks and with the handles that they hold.
//!
//! The core is borrowed while somebody is visited, and free while tasks run: that is when handles reach their
//! connections. A handle that is used from within a visit, by a handler that keeps it, finds the core borrowed and
//! says so; one that is dropped there is remembered until the visit is over.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Instant;

use tidegate_sys::Token;

use crate::connection::Occasion;
use crate::core::Core;
use crate::limits::UNFLUSHED_MAX;
use crate::task::Tasks;

pub(crate) struct Local {
    pub(crate) core: RefCell<Core>,
    pub(crate) tasks: Rc<Tasks>,
    /// The time of this turn; in the core as well, which may be borrowed.
    now: Cell<Instant>,
}

impl Local {
    pub(crate) fn new(core: Core) -> Rc<Self> {
        let (tasks, now) = (core.tasks.clone(), core.time.now());
        Rc::new(Self { core: RefCell::new(core), tasks, now: Cell::new(now) })
    }

    /// The loop that runs on this thread now, if one does.
    pub(crate) fn current() -> Option<Rc<Self>> {
        CURRENT.with_borrow(Clone::clone)
    }

    /// Makes this the current loop of the thread, until the guard is dropped. Many loops may take turns on a thread.
    pub(crate) fn enter(self: &Rc<Self>) -> Entered {
        Entered(CURRENT.replace(Some(self.clone())))
    }

    pub(crate) fn now(&self) -> Instant {
        self.now.get()
    }

    pub(crate) fn set_now(&self, now: Instant) {
        self.now.set(now);
    }

    /// Visits whoever has a slot, and runs the tasks which that has woken. Who has bytes in the scratch is then
    /// visited once more.
    #[inline]
    pub(crate) fn visit(self: &Rc<Self>, token: Token, occasion: Occasion) {
        self.core.borrow_mut().visit(token, occasion);
        self.run_tasks();
    }

    #[inline]
    pub(crate) fn run_tasks(self: &Rc<Self>) {
        if self.tasks.want_to_run() {
            self.tasks.run(self);
        }
        let mut core = self.core.borrow_mut();
        if let Some(token) = core.hot.take() {
            core.visit(token, Occasion::Again);
        }
        if core.unflushed >= UNFLUSHED_MAX {
            drop(core);
            self.visit_again();
        }
    }

    /// Visits whoever asked for it before this began; who asks now has to wait for the next time.
    pub(crate) fn visit_again(self: &Rc<Self>) {
        let wants = {
            let mut core = self.core.borrow_mut();
            core.unflushed = 0;
            core.wants_visits()
        };
        for _ in 0..wants {
            // Not in the head of an `if let`: the core must be free during the visit.
            let next = self.core.borrow_mut().next_again();
            if let Some(token) = next {
                self.core.borrow_mut().visit(token, Occasion::Again);
            }
        }
        self.core.borrow_mut().shorten_line();
    }

    /// Does something with the core: now, or as soon as the visit is over from within which this is called.
    pub(crate) fn with_core(self: &Rc<Self>, act: impl FnOnce(&mut Core) + 'static) {
        match self.core.try_borrow_mut() {
            Ok(mut core) => act(&mut core),
            Err(_) => self.tasks.later(move |local| act(&mut local.core.borrow_mut())),
        }
    }
}

/// Restores the loop that was current before.
pub(crate) struct Entered(Option<Rc<Local>>);

impl Drop for Entered {
    fn drop(&mut self) {
        CURRENT.set(self.0.take());
    }
}

thread_local! {
    static CURRENT: RefCell<Option<Rc<Local>>> = const { RefCell::new(None) };
}
