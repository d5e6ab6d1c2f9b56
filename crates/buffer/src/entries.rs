//! The entries of a loop's outbound queues: one paged store, linked by `u32`, recycled.

use bytes::Bytes;

use crate::file_region::FileRegion;
use crate::segment::Segment;
use crate::slice::Slice;

/// Cost of one queue entry in bytes; it counts against the water marks and the ledger.
pub const ENTRY_BYTES: usize = size_of::<QueueEntry>();

/// One link of a queue.
#[derive(Debug)]
pub(crate) struct QueueEntry {
    pub(crate) part: Part,
    pub(crate) next: u32,
}

/// An entry's content.
#[derive(Debug)]
pub(crate) enum Part {
    /// Not in use; linked through `next` into its page's free list.
    Vacant,
    /// Bytes that were copied: a range of a segment that other entries may share.
    Copied { segment: Segment, start: u32, end: u32 },
    /// A view that was linked.
    Slice(Slice),
    /// Shared bytes that were linked.
    Bytes {
        bytes: Bytes,
        /// The ledger's charge: the whole length, until its last byte was sent; nothing for static bytes.
        charge: u32,
    },
    /// A piece of a file.
    File(FileRegion),
}

impl Part {
    pub(crate) fn len(&self) -> u64 {
        match self {
            Self::Vacant => 0,
            Self::Copied { start, end, .. } => u64::from(end - start),
            Self::Slice(slice) => slice.len() as u64,
            Self::Bytes { bytes, .. } => bytes.len() as u64,
            Self::File(region) => region.length,
        }
    }

    /// Forgets the first `count` bytes.
    ///
    /// # Panics
    /// If there are fewer: a view of a copied part is sound only within its range.
    pub(crate) fn advance(&mut self, count: u64) {
        assert!(count <= self.len(), "{count} bytes of a part of {}", self.len());
        match self {
            Self::Vacant => {}
            Self::Copied { start, .. } => *start += count as u32,
            Self::Slice(slice) => slice.advance(count as usize),
            Self::Bytes { bytes, .. } => bytes::Buf::advance(bytes, count as usize),
            Self::File(region) => {
                region.offset += count;
                region.length -= count;
            }
        }
    }

    /// Divides it: returns the first `count` bytes, and keeps the others. The charge is divided as well.
    ///
    /// # Panics
    /// If there are fewer.
    pub(crate) fn split_to(&mut self, count: u64) -> Self {
        assert!(count <= self.len(), "{count} bytes of a part of {}", self.len());
        let piece = match self {
            Self::Vacant => Self::Vacant,
            Self::Copied { segment, start, .. } => {
                Self::Copied { segment: segment.clone(), start: *start, end: *start + count as u32 }
            }
            Self::Slice(slice) => Self::Slice(slice.slice(..count as usize)),
            Self::Bytes { bytes, charge } => {
                let divided = (*charge).min(count as u32);
                *charge -= divided;
                Self::Bytes { bytes: bytes.slice(..count as usize), charge: divided }
            }
            Self::File(region) => Self::File(FileRegion { length: count, ..region.clone() }),
        };
        self.advance(count);
        piece
    }

    /// Its bytes, unless they are in a file.
    pub(crate) fn bytes(&self) -> Option<&[u8]> {
        match self {
            Self::Vacant => Some(&[]),
            Self::Copied { segment, start, end } => Some(segment.view(*start as usize, *end as usize)),
            Self::Slice(slice) => Some(slice),
            Self::Bytes { bytes, .. } => Some(bytes),
            Self::File(_) => None,
        }
    }
}

/// The store. An index names a page and a place in it. All empty pages but one are freed.
#[derive(Default)]
pub(crate) struct Entries {
    pages: Vec<Option<Box<Page>>>,
    /// Pages that may have room. A page may have been filled or freed since it was listed.
    non_full: Vec<u32>,
    /// Numbers of freed pages.
    vacant: Vec<u32>,
    empty_pages: u32,
}

struct Page {
    entries: [QueueEntry; PAGE_ENTRIES],
    free: u32,
    used: u32,
    listed: bool,
}

impl Entries {
    pub(crate) fn insert(&mut self, part: Part) -> u32 {
        let number = self.page_with_room();
        let page = self.pages[number as usize].as_mut().expect("a page with room exists");
        let place = page.free;
        let entry = &mut page.entries[place as usize];
        page.free = entry.next;
        if page.used == 0 {
            self.empty_pages -= 1;
        }
        page.used += 1;
        // The previous entry is vacant, so there is nothing to drop.
        std::mem::forget(std::mem::replace(entry, QueueEntry { part, next: NIL }));
        number * PAGE_ENTRIES as u32 + place
    }

    /// Takes an entry out. The caller drops the entry's content after the borrow of the store ends: dropping may run
    /// code of the application.
    pub(crate) fn remove(&mut self, index: u32) -> QueueEntry {
        let (number, place) = split(index);
        let page = self.pages[number].as_mut().expect("an entry in use lies in a page");
        let vacant = QueueEntry { part: Part::Vacant, next: page.free };
        let entry = std::mem::replace(&mut page.entries[place], vacant);
        page.free = place as u32;
        page.used -= 1;
        if page.used == 0 {
            self.empty_pages += 1;
        }
        if page.used == 0 && self.empty_pages > EMPTY_PAGES_MAX {
            self.free_page(number);
        } else if !page.listed {
            page.listed = true;
            self.non_full.push(number as u32);
        }
        entry
    }

    #[inline(always)]
    pub(crate) fn get(&self, index: u32) -> &QueueEntry {
        let (number, place) = split(index);
        &self.pages[number].as_ref().expect("an entry in use lies in a page").entries[place]
    }

    #[inline(always)]
    pub(crate) fn get_mut(&mut self, index: u32) -> &mut QueueEntry {
        let (number, place) = split(index);
        &mut self.pages[number].as_mut().expect("an entry in use lies in a page").entries[place]
    }

    pub(crate) fn page_bytes(&self) -> usize {
        self.pages.iter().flatten().count() * size_of::<Page>()
    }

    /// Frees every empty page.
    pub(crate) fn trim(&mut self) {
        for number in 0..self.pages.len() {
            if self.pages[number].as_ref().is_some_and(|page| page.used == 0) {
                self.free_page(number);
            }
        }
        if self.pages.iter().all(Option::is_none) {
            *self = Self::default();
        }
    }

    fn free_page(&mut self, number: usize) {
        self.pages[number] = None;
        self.empty_pages -= 1;
        self.vacant.push(number as u32);
    }

    fn page_with_room(&mut self) -> u32 {
        while let Some(&number) = self.non_full.last() {
            match &mut self.pages[number as usize] {
                Some(page) if page.free != NIL => return number,
                Some(page) => page.listed = false,
                None => {}
            }
            self.non_full.pop();
        }
        let number = self.vacant.pop().unwrap_or_else(|| {
            self.pages.push(None);
            self.pages.len() as u32 - 1
        });
        self.pages[number as usize] = Some(Page::new());
        self.non_full.push(number);
        self.empty_pages += 1;
        number
    }
}

impl Page {
    fn new() -> Box<Self> {
        let vacant = |place: usize| {
            let next = if place + 1 < PAGE_ENTRIES { place as u32 + 1 } else { NIL };
            QueueEntry { part: Part::Vacant, next }
        };
        Box::new(Self { entries: std::array::from_fn(vacant), free: 0, used: 0, listed: true })
    }
}

#[inline]
const fn split(index: u32) -> (usize, usize) {
    (index as usize / PAGE_ENTRIES, index as usize % PAGE_ENTRIES)
}

/// The end of a list.
pub(crate) const NIL: u32 = u32::MAX;

/// A power of two, so that an index splits by a shift; a page is 3 KiB.
const PAGE_ENTRIES: usize = 64;

/// Empty pages kept, so that one connection that fills and empties its queue does not allocate each time.
const EMPTY_PAGES_MAX: u32 = 1;

const _: () = assert!(ENTRY_BYTES <= 48);
