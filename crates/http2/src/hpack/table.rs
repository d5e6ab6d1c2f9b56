//! The dynamic table (RFC 7541 §2.3.2, §4): the fields that were sent last, newest first, of bounded size.
//!
//! The bytes of all entries lie one behind the other. Evicted bytes stay in front until they are as many as those in
//! use, so moving the rest costs a constant time for each byte.

use std::collections::VecDeque;

#[derive(Debug)]
pub(super) struct Table {
    bytes: Vec<u8>,
    /// The oldest entry first.
    entries: VecDeque<TableEntry>,
    /// The position of the first of `bytes`, counted since the table was made, modulo 2^32.
    base: u32,
    size: u32,
    size_max: u32,
}

#[derive(Debug, Clone, Copy)]
struct TableEntry {
    start: u32,
    name_length: u32,
    length: u32,
}

impl TableEntry {
    /// RFC 7541 §4.1.
    fn size(self) -> u32 {
        self.length + OVERHEAD_BYTES
    }
}

impl Table {
    pub(super) fn new(size_max: u32) -> Self {
        Self { bytes: Vec::new(), entries: VecDeque::new(), base: 0, size: 0, size_max }
    }

    pub(super) fn size_max(&self) -> u32 {
        self.size_max
    }

    /// Changes the largest size, which evicts entries beyond it.
    pub(super) fn set_size_max(&mut self, size_max: u32) {
        self.size_max = size_max;
        self.evict(0);
    }

    /// The field at a place, 0 for the newest.
    #[inline]
    pub(super) fn get(&self, place: u32) -> Option<(&[u8], &[u8])> {
        let index = self.entries.len().checked_sub(place as usize + 1)?;
        Some(self.field(self.entries[index]))
    }

    #[inline]
    fn field(&self, entry: TableEntry) -> (&[u8], &[u8]) {
        let start = entry.start.wrapping_sub(self.base) as usize;
        self.bytes[start..start + entry.length as usize].split_at(entry.name_length as usize)
    }

    /// The place of a field: of the same name and value, or else of the same name.
    pub(super) fn find(&self, name: &[u8], value: &[u8]) -> Option<(u32, bool)> {
        let mut named = None;
        for (place, entry) in self.entries.iter().rev().enumerate() {
            if entry.name_length as usize != name.len() {
                continue;
            }
            let (found, held) = self.field(*entry);
            if found == name {
                if held == value {
                    return Some((place as u32, true));
                }
                named.get_or_insert((place as u32, false));
            }
        }
        named
    }

    /// Adds a field. One that is larger than the table empties it (RFC 7541 §4.4).
    pub(super) fn insert(&mut self, name: &[u8], value: &[u8]) {
        let entry = TableEntry {
            start: self.base.wrapping_add(self.bytes.len() as u32),
            name_length: name.len() as u32,
            length: (name.len() + value.len()) as u32,
        };
        self.evict(entry.size());
        if entry.size() > self.size_max {
            return;
        }
        let start = self.base.wrapping_add(self.bytes.len() as u32);
        self.bytes.extend_from_slice(name);
        self.bytes.extend_from_slice(value);
        self.entries.push_back(TableEntry { start, ..entry });
        self.size += entry.size();
    }

    /// Evicts entries until `room` bytes more fit, or none is left.
    fn evict(&mut self, room: u32) {
        while self.size > self.size_max.saturating_sub(room)
            && let Some(oldest) = self.entries.pop_front()
        {
            self.size -= oldest.size();
        }
        let unused = match self.entries.front() {
            Some(oldest) => oldest.start.wrapping_sub(self.base) as usize,
            None => self.bytes.len(),
        };
        if unused * 2 >= self.bytes.len() {
            self.bytes.drain(..unused);
            self.base = self.base.wrapping_add(unused as u32);
        }
        if self.size_max == 0 {
            *self = Self { base: self.base, ..Self::new(0) };
        }
    }
}

/// The overhead of an entry beside its bytes (RFC 7541 §4.1).
pub(super) const OVERHEAD_BYTES: u32 = 32;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_table_is_a_bounded_list(
            fields in prop::collection::vec((prop::collection::vec(any::<u8>(), 0..40), prop::collection::vec(any::<u8>(), 0..90)), 0..60),
            sizes in prop::collection::vec(0_u32..500, 60),
        ) {
            let (mut table, mut model) = (Table::new(300), VecDeque::<(Vec<u8>, Vec<u8>)>::new());
            let size = |model: &VecDeque<(Vec<u8>, Vec<u8>)>| -> usize {
                model.iter().map(|(name, value)| name.len() + value.len() + 32).sum()
            };
            for ((name, value), size_max) in fields.into_iter().zip(sizes) {
                if size_max % 5 == 0 {
                    table.set_size_max(size_max);
                }
                table.insert(&name, &value);
                model.push_front((name, value));
                while size(&model) > table.size_max() as usize {
                    model.pop_back();
                }
                for (place, (name, value)) in model.iter().enumerate() {
                    prop_assert_eq!(table.get(place as u32), Some((&name[..], &value[..])));
                    let first = model.iter().position(|field| field == &(name.clone(), value.clone()));
                    prop_assert_eq!(table.find(name, value).map(|found| found.0 as usize), first);
                }
                prop_assert_eq!(table.get(model.len() as u32), None);
                prop_assert!(table.bytes.len() <= 2 * 500 + 130, "bytes that are evicted are given back");
            }
        }
    }
}
