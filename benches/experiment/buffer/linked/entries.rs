//! The entries of the linked design: pages that all connections of a loop share, recycled, and linked by `u32`.
//!
//! An entry is taken from the front of one free list, and put back there: as little work as it can be. In return pages
//! are given back all at once, when no entry is in use, and not one by one, as ours are.

#[path = "../messages.rs"]
mod messages;
/// Only the content of an entry is ours.
#[path = "../../../../crates/buffer/src/entries.rs"]
mod ours;

pub(crate) use self::messages::Messages;
pub(crate) use self::ours::Part;

/// Cost of one queue entry in bytes; it counts against the water marks and the ledger.
pub const ENTRY_BYTES: usize = size_of::<Entry>();

/// One link of a queue.
pub(crate) struct Entry {
    pub(crate) part: Part,
    pub(crate) next: u32,
}

/// Shared state of a loop's queues.
pub(crate) struct Entries {
    #[expect(clippy::vec_box, reason = "a page must not be copied when there are more of them")]
    pages: Vec<Box<[Entry; PAGE_ENTRIES]>>,
    free: u32,
    used: u32,
    pub(crate) messages: Messages,
}

impl Entries {
    #[inline]
    pub(crate) fn insert(&mut self, part: Part) -> u32 {
        if self.free == NIL {
            self.add_page();
        }
        let index = self.free;
        let entry = self.get_mut(index);
        let vacant = std::mem::replace(entry, Entry { part, next: NIL });
        self.free = vacant.next;
        self.used += 1;
        // It holds nothing.
        std::mem::forget(vacant);
        index
    }

    /// Takes an entry out. The caller drops its content once the store is no longer borrowed: that may run code of a
    /// user.
    #[inline]
    pub(crate) fn remove(&mut self, index: u32) -> Entry {
        let free = std::mem::replace(&mut self.free, index);
        self.used -= 1;
        std::mem::replace(self.get_mut(index), Entry { part: Part::Vacant, next: free })
    }

    /// Where Netty follows a pointer there is an index here, which is not compared with anything either.
    #[inline]
    pub(crate) fn get(&self, index: u32) -> &Entry {
        let number = index as usize / PAGE_ENTRIES;
        debug_assert!(number < self.pages.len());
        // SAFETY: an index comes from `insert` or from the free list, and pages go only when no entry is in use and the
        // free list is forgotten; a queue forgets an index when it takes its entry out.
        let page = unsafe { self.pages.get_unchecked(number) };
        &page[index as usize % PAGE_ENTRIES]
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, index: u32) -> &mut Entry {
        let number = index as usize / PAGE_ENTRIES;
        debug_assert!(number < self.pages.len());
        // SAFETY: as in `get`.
        let page = unsafe { self.pages.get_unchecked_mut(number) };
        &mut page[index as usize % PAGE_ENTRIES]
    }

    pub(crate) fn page_bytes(&self) -> usize {
        self.pages.len() * size_of::<[Entry; PAGE_ENTRIES]>()
    }

    /// Gives the pages back, if no entry is in use.
    pub(crate) fn trim(&mut self) {
        self.messages.release_all();
        if self.used == 0 {
            (self.pages, self.free) = (Vec::new(), NIL);
        }
    }

    #[cold]
    fn add_page(&mut self) {
        let first = (self.pages.len() * PAGE_ENTRIES) as u32;
        let vacant = |place: usize| {
            let next = if place + 1 < PAGE_ENTRIES { first + place as u32 + 1 } else { NIL };
            Entry { part: Part::Vacant, next }
        };
        self.pages.push(Box::new(std::array::from_fn(vacant)));
        self.free = first;
    }
}

impl Default for Entries {
    fn default() -> Self {
        Self { pages: Vec::new(), free: NIL, used: 0, messages: Messages::default() }
    }
}

/// The end of a list.
pub(crate) const NIL: u32 = u32::MAX;

/// A power of two, so that an index splits by a shift; a page is 3 KiB.
const PAGE_ENTRIES: usize = 64;
