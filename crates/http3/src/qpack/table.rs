//! The entries of a dynamic table (RFC 9204 §3.2), in the order of their insertion. Both sides of a table have one.

use std::collections::VecDeque;

/// A dynamic table. An entry has an absolute index, which is the number of insertions before it.
#[derive(Debug)]
pub(super) struct Table<T> {
    entries: VecDeque<Placed<T>>,
    /// The absolute index of the oldest entry.
    dropped: u64,
    /// The sizes of all entries that were ever dropped.
    dropped_bytes: u64,
    /// The sizes of the entries.
    bytes: u32,
    capacity: u32,
}

/// An entry, its size, and the sizes of all entries up to it since the table is there.
#[derive(Debug)]
struct Placed<T> {
    entry: T,
    bytes: u32,
    end: u64,
}

impl<T> Default for Table<T> {
    fn default() -> Self {
        Self { entries: VecDeque::new(), dropped: 0, dropped_bytes: 0, bytes: 0, capacity: 0 }
    }
}

impl<T> Table<T> {
    /// How many entries were ever inserted.
    pub(super) fn inserted(&self) -> u64 {
        self.dropped + self.entries.len() as u64
    }

    pub(super) fn capacity(&self) -> u32 {
        self.capacity
    }

    /// Bytes of memory of the entries with their text.
    pub(super) fn memory_bytes(&self) -> usize {
        let text = self.bytes as usize - self.entries.len() * ENTRY_BYTES as usize;
        text + self.entries.capacity() * size_of::<Placed<T>>()
    }

    /// The entry with an absolute index, unless it is to come or was dropped.
    pub(super) fn get(&self, index: u64) -> Option<&T> {
        Some(&self.place(index)?.entry)
    }

    /// The size of an entry.
    pub(super) fn entry_bytes(&self, index: u64) -> Option<u32> {
        Some(self.place(index)?.bytes)
    }

    fn place(&self, index: u64) -> Option<&Placed<T>> {
        self.entries.get(usize::try_from(index.checked_sub(self.dropped)?).ok()?)
    }

    /// Sets the capacity. The oldest entries that have no room any more are dropped.
    pub(super) fn set_capacity(&mut self, capacity: u32) {
        self.capacity = capacity;
        while self.bytes > capacity && self.drop_oldest().is_some() {}
    }

    /// How many of the oldest entries an entry of this size would drop. `None` if it is larger than the table.
    pub(super) fn drops_for(&self, bytes: u32) -> Option<u64> {
        let room = self.capacity.checked_sub(bytes)?;
        let mut left = self.bytes;
        let mut oldest = self.entries.iter();
        let mut drops = 0;
        while left > room {
            left -= oldest.next()?.bytes;
            drops += 1;
        }
        Some(drops)
    }

    /// The absolute index of the oldest entry.
    pub(super) fn oldest(&self) -> u64 {
        self.dropped
    }

    /// Drops the oldest entry.
    pub(super) fn drop_oldest(&mut self) -> Option<T> {
        let Placed { entry, bytes, end } = self.entries.pop_front()?;
        (self.dropped, self.dropped_bytes) = (self.dropped + 1, end);
        self.bytes -= bytes;
        if self.entries.is_empty() {
            // A table without entries has no memory.
            self.entries = VecDeque::new();
        }
        Some(entry)
    }

    /// Inserts an entry. The oldest ones are dropped for it. Returns its absolute index, or `None` if it is larger than the table.
    pub(super) fn insert(&mut self, entry: T, bytes: u32) -> Option<u64> {
        for _ in 0..self.drops_for(bytes)? {
            self.drop_oldest();
        }
        let index = self.inserted();
        let end = self.dropped_bytes + u64::from(self.bytes) + u64::from(bytes);
        self.bytes += bytes;
        self.entries.push_back(Placed { entry, bytes, end });
        Some(index)
    }

    /// Whether an entry is among those that the next insertions drop: the last quarter of the capacity.
    pub(super) fn is_draining(&self, index: u64) -> bool {
        let next = (self.capacity / 4).saturating_sub(self.capacity - self.bytes);
        self.place(index).is_some_and(|place| place.end - self.dropped_bytes <= next.into())
    }
}

/// Bytes of an entry beside those of its name and its value (RFC 9204 §3.2.1).
pub(super) const ENTRY_BYTES: u32 = 32;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_entries_give_way() {
        let mut table = Table::default();
        assert_eq!(table.insert('a', 33), None, "a table of 0 bytes");
        table.set_capacity(100);
        assert_eq!([table.insert('a', 40), table.insert('b', 40), table.insert('c', 40)], [Some(0), Some(1), Some(2)]);
        assert_eq!([0, 1, 2, 3].map(|index| table.get(index).copied()), [None, Some('b'), Some('c'), None]);
        assert_eq!((table.insert('d', 101), table.inserted()), (None, 3), "it leaves the others");
        assert_eq!(table.insert('d', 100), Some(3));
        assert_eq!((table.get(2), table.oldest()), (None, 3));
        table.set_capacity(99);
        assert_eq!((table.get(3), table.inserted(), table.bytes), (None, 4, 0));
    }

    #[test]
    fn the_entries_that_are_next_to_go_are_known() {
        let mut table = Table::default();
        table.set_capacity(400);
        for name in 0..8 {
            table.insert(name, 40);
        }
        assert!((0..8).all(|index| !table.is_draining(index)), "80 bytes are free, and 20 more would be of a half");
        table.insert(8, 40);
        assert_eq!((0..9).map(|index| table.is_draining(index)).filter(|is| *is).count(), 1);
        table.insert(9, 40);
        assert_eq!((0..10).map(|index| table.is_draining(index)).filter(|is| *is).count(), 2);
    }
}
