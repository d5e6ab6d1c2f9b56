//! `LongWorkQueue`: the tasks of a loop that wait for a turn to do long work. Their future is in `long_work.rs`.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::task::Waker;

use tidegate_codec::work::Work;

use crate::limits::{LONG_WORK_AT_ONCE_MAX, LONG_WORK_TIME};

/// The tasks of a loop that wait for a turn to do long work, in the order in which they asked.
#[derive(Default)]
pub(crate) struct LongWorkQueue {
    waiting: RefCell<VecDeque<WaitState>>,
    /// The work of codecs and parsers up to the start of the turn.
    turn: Cell<Work>,
    /// Pieces that have begun in this turn without waiting.
    at_once: Cell<u32>,
    waits: Cell<u64>,
}

enum WaitState {
    Future(Rc<RefCell<Wait>>),
    /// A task that goes on as soon as it is woken.
    Task(Waker),
}

impl LongWorkQueue {
    pub(super) fn begin_turn(&self) {
        self.turn.set(Work::begin());
        self.at_once.set(0);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waiting.borrow().is_empty()
    }

    /// Whether work may begin without waiting: the work of this turn so far is short.
    pub(super) fn has_time(&self) -> bool {
        self.is_empty() && u128::from(self.turn.get().nanos()) < LONG_WORK_TIME.as_nanos()
    }

    /// Whether a piece of long work may begin without waiting. A piece of unknown length may take half of the turn's time.
    pub(super) fn begins_at_once(&self) -> bool {
        let begins = self.has_time() && self.at_once.get() < LONG_WORK_AT_ONCE_MAX;
        self.at_once.set(self.at_once.get() + u32::from(begins));
        begins
    }

    fn push(&self, waiting: WaitState) {
        self.waits.set(self.waits.get() + 1);
        self.waiting.borrow_mut().push_back(waiting);
    }

    pub(super) fn push_future(&self, wait: Rc<RefCell<Wait>>) {
        self.push(WaitState::Future(wait));
    }

    pub(super) fn push_task(&self, waker: Waker) {
        self.push(WaitState::Task(waker));
    }

    pub(super) fn waits(&self) -> u64 {
        self.waits.get()
    }

    /// Gives the turn to the first that still waits.
    pub(super) fn grant(&self) {
        loop {
            let first = self.waiting.borrow_mut().pop_front();
            match first {
                None => return,
                Some(WaitState::Task(waker)) => return waker.wake(),
                Some(WaitState::Future(wait)) => {
                    let before = wait.replace(Wait::Granted);
                    match before {
                        Wait::For(waker) => return waker.wake(),
                        // The future that is gone does not take it.
                        Wait::Granted | Wait::Over => {}
                    }
                }
            }
        }
    }
}

/// The state that a future and its place in the queue share.
#[derive(Debug)]
pub(super) enum Wait {
    /// The task waits in the queue.
    For(Waker),
    Granted,
    /// Its future was dropped.
    Over,
}
