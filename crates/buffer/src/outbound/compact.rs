//! Moves pending bytes out of pages of which they use little.

use super::Outbound;
use crate::entries::NIL;
use crate::part::Part;
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
        if pages < SEGMENT_BYTES || bytes > pages / SHRUNK_PART {
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

/// Queues of more entries keep much memory in any case.
const SHRUNK_ENTRIES_MAX: usize = 16;

/// Bytes that make up less than this part of their pages are moved.
const SHRUNK_PART: usize = 4;
