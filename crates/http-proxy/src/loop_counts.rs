//! `LoopCounts`: a number of each loop, which other threads sum; and `CountedList`, a list whose length is such a number.
//!
//! A loop writes its own number by a plain store, and a scrape takes nothing from it. A number leaves the sum with the
//! list that it counts, so the sum is never negative, and nothing has to be counted down.

use std::sync::{Arc, Mutex, PoisonError, Weak};

use tidegate_metrics::Cell;

/// The numbers of all loops.
#[derive(Debug, Default)]
pub(super) struct LoopCounts(Mutex<Vec<Weak<Cell>>>);

impl LoopCounts {
    /// A number of the loop of this thread, which counts until it is dropped.
    pub(super) fn add(&self) -> Arc<Cell> {
        let cell = Arc::new(Cell::default());
        let mut cells = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        cells.retain(|cell| cell.strong_count() > 0);
        cells.push(Arc::downgrade(&cell));
        cell
    }

    pub(super) fn sum(&self) -> u64 {
        let cells = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        cells.iter().filter_map(Weak::upgrade).map(|cell| cell.value()).sum()
    }
}

/// A list of one loop whose length other threads can read.
pub(super) struct CountedList<T> {
    items: Vec<T>,
    length: Arc<Cell>,
}

impl<T> CountedList<T> {
    pub(super) fn new(counts: &LoopCounts) -> Self {
        Self { items: Vec::new(), length: counts.add() }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// Changes the list.
    #[inline]
    pub(super) fn edit<R>(&mut self, edit: impl FnOnce(&mut Vec<T>) -> R) -> R {
        let result = edit(&mut self.items);
        self.length.replace(self.items.len() as u64);
        result
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_counts_until_it_is_dropped() {
        let counts = LoopCounts::default();
        let (mut one, mut other) = (CountedList::new(&counts), CountedList::new(&counts));
        one.edit(|items| items.extend([1, 2, 3]));
        other.edit(|items| items.push(4));
        assert_eq!(counts.sum(), 4);
        one.edit(|items| items.pop());
        assert_eq!(counts.sum(), 3);
        drop(one);
        assert_eq!(counts.sum(), 1);
        other.edit(Vec::clear);
        assert_eq!((counts.sum(), other.is_empty()), (0, true));
    }
}
