//! Moves pending bytes out of pages of which they use little.

use super::Outbound;
use crate::entries::{NIL, Part};
use crate::segment::{SEGMENT_BYTES, Segment};
use crate::slice::DETACHED_PART;

impl Outbound {
    /// Moves a few flushed bytes, if nothing else waits, from the page where they were written into memory of their
    /// size, so that a short response in flight does not keep a page.
    ///
    /// ```
    /// use tidegate::codec::{Outbound, Pool};
    ///
    /// let pool = Pool::new();
    /// let mut queue = Outbound::new(&pool);
    /// queue.write(b"ebb");
    /// queue.flush();
    /// assert!(pool.ledger().used() > 4000);
    /// queue.compact();
    /// assert!(pool.ledger().used() < 100);
    /// ```
    pub fn compact(&mut self) {
        let list = &self.list;
        let Some(pool) = self.pool.as_ref().filter(|_| list.entries == 1 && list.unflushed == NIL) else { return };
        let mut entries = pool.shared().entries.borrow_mut();
        let part = &mut entries.get_mut(list.head).part;
        let capacity = match part {
            Part::Copied { segment, .. } => segment.capacity(),
            Part::Slice(slice) => slice.segment().capacity(),
            _ => return,
        };
        let bytes = part.bytes().expect("it is no file");
        if bytes.len() < capacity / DETACHED_PART {
            let own = Part::Slice(pool.copy(bytes));
            let page = std::mem::replace(part, own);
            drop(entries);
            drop(page);
        }
    }

    /// Moves copied bytes out of pages of which they are a small part into memory of their size: for a peer that does
    /// not read, so that the heads of a few linked bodies do not keep a page. Large parts, and queues of many entries,
    /// stay.
    ///
    /// ```
    /// use tidegate::codec::{Outbound, Pool};
    ///
    /// let pool = Pool::new();
    /// let mut queue = Outbound::new(&pool);
    /// for _ in 0..2 {
    ///     queue.write(b"a head");
    ///     queue.link_static(&[0; 4096]);
    /// }
    /// queue.flush();
    /// assert!(pool.ledger().used() > 4000);
    /// queue.shrink();
    /// assert!(pool.ledger().used() < 400);
    /// ```
    pub fn shrink(&mut self) {
        self.move_copied(|bytes, pages| pages >= SEGMENT_BYTES && bytes <= pages / SHRUNK_PART);
    }

    /// The same for a queue that waits for its peer's window. Copied bytes leave pages that they do not fill. Views
    /// leave memory that the loop has received into and that they do not fill. An empty rest of a page, kept for later
    /// writes, is given up. So the queue costs little beside its bytes.
    ///
    /// ```
    /// use tidegate::codec::{Outbound, Pool};
    ///
    /// let pool = Pool::new();
    /// let mut queue = Outbound::new(&pool);
    /// queue.write(&[0; 2000]);
    /// queue.link_static(&[0; 4096]);
    /// queue.flush();
    /// queue.settle();
    /// assert!(pool.ledger().used() < 2200);
    /// queue.advance(2000);
    /// queue.settle();
    /// assert!(pool.ledger().used() < 50);
    /// ```
    pub fn settle(&mut self) {
        self.drop_unused_fill();
        self.copy_sparse_views();
        self.move_copied(|bytes, pages| pages >= SETTLED_BYTES_MIN && is_sparse(bytes, pages));
    }

    /// Takes out an empty tail, whose page is kept for later copies.
    fn drop_unused_fill(&mut self) {
        let (mut index, tail) = (self.list.head, self.list.tail);
        let few = 2..=SHRUNK_ENTRIES_MAX as u32;
        if !few.contains(&self.list.entries) || self.entries().get(tail).part.len() > 0 {
            return;
        }
        let entries = self.entries();
        let mut next = entries.get(index).next;
        while next != tail {
            (index, next) = (next, entries.get(next).next);
        }
        drop(entries);
        let unflushed = if self.list.unflushed == tail { NIL } else { self.list.unflushed };
        self.unlink_tail((index, unflushed));
    }

    /// Copies views of memory that the loop has received into, unless those of this queue fill most of it.
    fn copy_sparse_views(&mut self) {
        let few = 1..=SHRUNK_ENTRIES_MAX as u32;
        let Some(pool) = self.pool.as_ref().filter(|_| few.contains(&self.list.entries)) else { return };
        let mut entries = pool.shared().entries.borrow_mut();
        let mut views = [(NIL, std::ptr::null_mut(), 0); SHRUNK_ENTRIES_MAX];
        let (mut index, mut count) = (self.list.head, 0);
        while index != NIL {
            let entry = entries.get(index);
            if let Part::Slice(slice) = &entry.part
                && slice.segment().is_scratch()
            {
                views[count] = (index, slice.segment().base(), slice.len());
                count += 1;
            }
            index = entry.next;
        }
        let mut left = [const { None::<Part> }; SHRUNK_ENTRIES_MAX];
        for (&(index, base, _), place) in views[..count].iter().zip(&mut left) {
            let shown: usize = views[..count].iter().filter(|view| view.1 == base).map(|view| view.2).sum();
            let part = &mut entries.get_mut(index).part;
            if let Part::Slice(slice) = part
                && is_sparse(shown, slice.segment().capacity())
            {
                let own = Part::Slice(pool.copy(slice));
                *place = Some(std::mem::replace(part, own));
            }
        }
        // Drop the views after the borrow of the store ends.
        drop(entries);
        drop(left);
    }

    /// Moves copied bytes into memory of their size, if these many bytes in pages of so many are worth it.
    fn move_copied(&mut self, is_worth: impl Fn(usize, usize) -> bool) {
        let few = 1..=SHRUNK_ENTRIES_MAX as u32;
        let Some(pool) = self.pool.as_ref().filter(|_| few.contains(&self.list.entries)) else { return };
        let mut entries = pool.shared().entries.borrow_mut();
        let (mut index, mut bytes, mut pages, mut last) = (self.list.head, 0, 0, None);
        while index != NIL {
            let entry = entries.get(index);
            if let Part::Copied { segment, start, end } = &entry.part {
                bytes += (end - start) as usize;
                if last != Some(segment.base()) {
                    (last, pages) = (Some(segment.base()), pages + segment.capacity());
                }
            }
            index = entry.next;
        }
        if !is_worth(bytes, pages) {
            return;
        }
        let own = pool.segment_for(bytes);
        let mut left = [const { None::<Segment> }; SHRUNK_ENTRIES_MAX];
        let (mut index, mut places) = (self.list.head, left.iter_mut());
        while index != NIL {
            let entry = entries.get_mut(index);
            if let Part::Copied { segment, start, end } = &mut entry.part
                && let Some(place) = places.next()
            {
                let at = own.filled() as u32;
                own.append(segment.view(*start as usize, *end as usize));
                (*start, *end) = (at, own.filled() as u32);
                *place = Some(std::mem::replace(segment, own.clone()));
            }
            index = entry.next;
        }
        // Drop the pages after the borrow of the store ends.
        drop(entries);
        drop(left);
    }
}

/// Whether bytes leave more than a quarter of their memory unused.
fn is_sparse(bytes: usize, memory: usize) -> bool {
    bytes < memory - memory / UNSETTLED_PART
}

/// Queues of more entries keep much memory in any case.
const SHRUNK_ENTRIES_MAX: usize = 16;

/// Bytes that make up less than this part of their pages are moved.
const SHRUNK_PART: usize = 4;

/// A settled queue leaves less than this part of its pages unused.
const UNSETTLED_PART: usize = 4;

/// Less memory is not worth a copy.
const SETTLED_BYTES_MIN: usize = 512;
