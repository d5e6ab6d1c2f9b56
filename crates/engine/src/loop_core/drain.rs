//! `DrainState`: the drain of a loop, and the entries that it waits for.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Instant;

/// The deadline of a drain, and counts of the entries that it waits for. These are counted before it begins as well.
#[derive(Default)]
pub(crate) struct DrainState {
    /// When the drain that is under way ends.
    until: Option<Instant>,
    /// Slot entries that a drain waits for.
    awaited: usize,
    /// Those among them that are closed but for the driver's last completion.
    closing: usize,
    /// Bytes of memory that those had in use when they were closed.
    closing_memory: Rc<Cell<usize>>,
    /// Every entry was notified that none of the tasks that serve is left.
    has_notified_serving_done: bool,
}

impl DrainState {
    /// A drain begins, or gets an earlier deadline. Returns whether it begins.
    pub(crate) fn begin(&mut self, until: Instant) -> bool {
        let before = self.until.replace(until);
        if let Some(before) = before {
            self.until = Some(before.min(until));
        }
        before.is_none()
    }

    /// When the drain that is under way ends.
    pub(crate) fn until(&self) -> Option<Instant> {
        self.until
    }

    #[inline]
    pub(crate) fn is_under_way(&self) -> bool {
        self.until.is_some()
    }

    /// Whether the deadline of the drain has come.
    pub(crate) fn is_overdue(&self, now: Instant) -> bool {
        self.until.is_some_and(|until| until <= now)
    }

    /// A drain waits for one more entry.
    #[inline]
    pub(super) fn on_opened(&mut self) {
        self.awaited += 1;
    }

    /// The driver has nothing of an entry any more.
    #[inline]
    pub(super) fn on_closed(&mut self) {
        self.awaited -= 1;
    }

    /// An entry with so many bytes of memory is closed but for the driver's last completion.
    pub(super) fn begin_closing(&mut self, bytes: usize) -> ClosingMemory {
        self.closing += 1;
        ClosingMemory::new(bytes, &self.closing_memory)
    }

    /// The place of an entry that was lost while it was closing.
    pub(super) fn replace_closing(&self) -> ClosingMemory {
        ClosingMemory::new(0, &self.closing_memory)
    }

    /// The driver's last completion for a closing entry has come.
    pub(super) fn finish_closing(&mut self) {
        self.closing -= 1;
    }

    /// Whether no entry is left that a drain waits for.
    pub(crate) fn has_no_awaited_entry(&self) -> bool {
        self.awaited == 0
    }

    /// Whether a drain waits for no entry, or only for the driver's last completions, which end the loop's sleep.
    pub(crate) fn awaits_driver_only(&self) -> bool {
        self.awaited == self.closing
    }

    /// Bytes of memory that closed connections keep until the driver's last completion for each.
    pub(crate) fn closing_memory(&self) -> usize {
        self.closing_memory.get()
    }

    /// Returns `true` in a drain when none of the tasks that serve is left, and again whenever others have begun and
    /// ended since. `serving` is how many of these tasks there are.
    pub(super) fn take_serving_done(&mut self, serving: usize) -> bool {
        let is_done = self.is_under_way() && serving == 0;
        let was_done = std::mem::replace(&mut self.has_notified_serving_done, is_done);
        is_done && !was_done
    }

    /// Whether a new entry has to be notified that none of the tasks that serve is left, as the others were. If such a
    /// task has begun since, on a connection that had a handler before, it needs the new entry, which is notified once
    /// no such task is left again.
    #[inline]
    pub(super) fn was_serving_done(&mut self, serving: impl FnOnce() -> usize) -> bool {
        self.has_notified_serving_done = self.has_notified_serving_done && serving() == 0;
        self.has_notified_serving_done
    }
}

/// The bytes of memory that a connection had in use when it was closed. They count as returning until this is
/// dropped.
pub(super) struct ClosingMemory {
    bytes: usize,
    all: Rc<Cell<usize>>,
}

impl ClosingMemory {
    fn new(bytes: usize, all: &Rc<Cell<usize>>) -> Self {
        all.set(all.get() + bytes);
        Self { bytes, all: all.clone() }
    }
}

impl Drop for ClosingMemory {
    fn drop(&mut self) {
        self.all.set(self.all.get() - self.bytes);
    }
}
