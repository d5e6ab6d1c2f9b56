//! `Outbound`: the bytes of a connection on their way out.
//!
//! It grew from Netty's change #2693 (2014), which replaced two growing arrays in every connection by a linked list
//! of recycled entries and one array for gathering writes per thread. Here an empty queue is 40 bytes and no heap.
//! Small writes are copied one behind the other into the *fill segment*, which the entries share; large ones are
//! linked. A write returns only a number, its [`WritePosition`]. Messages of short pieces: `outbound/pieces.rs`.
//!
//! Invariants:
//! - `written - sent` is the sum of the lengths of all entries; the queue holds entries only while that is not zero.
//! - The fill segment is the one of the tail entry, and only while that entry is a copied one that no flush has passed.
//!   So that a head, a linked body and the next head share one segment, linking appends an empty copied entry.
//! - Entries before `unflushed` are flushed, the others are not; flushing costs the same however much waits.
//!   An empty tail is never flushed.
//! - The first flushed entry is never an empty one.
//! - The store of entries is never borrowed while queued data is dropped.

use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::panic::{AssertUnwindSafe, catch_unwind};

use bytes::Bytes;

use crate::cursor::Cursor;
use crate::entries::{ENTRY_BYTES, NIL, Part, QueueEntry};
use crate::file_region::FileRegion;
use crate::injected::{self, Bug};
use crate::pool::Pool;
use crate::segment::{SEGMENT_BYTES, Segment, block_bytes};
use crate::slice::Slice;
use crate::types::{Gathered, WritePosition};
pub use parked::ParkedQueue;

mod compact;
mod parked;
mod pieces;
mod reserve;

/// The outbound queue of one connection.
///
/// ```
/// use tidegate::codec::{Outbound, Pool};
///
/// let mut queue = Outbound::new(&Pool::new());
/// queue.write(b"HTTP/1.1 204 No Content\r\n\r\n");
/// assert_eq!(queue.front(), None, "nothing is sent before it is flushed");
/// queue.flush();
/// assert_eq!(queue.front().map(<[u8]>::len), Some(27));
/// queue.advance(27);
/// assert!(queue.is_empty());
/// ```
#[derive(Default)]
pub struct Outbound {
    pool: Option<Pool>,
    list: List,
    written: u64,
    sent: u64,
}

struct List {
    head: u32,
    unflushed: u32,
    tail: u32,
    entries: u32,
}

impl Outbound {
    /// An empty queue that takes its memory from `pool`.
    #[must_use]
    pub fn new(pool: &Pool) -> Self {
        Self { pool: Some(pool.clone()), list: List::default(), written: 0, sent: 0 }
    }

    /// Takes memory from `pool` from now on, unless the queue has a pool already.
    #[inline]
    pub fn attach(&mut self, pool: &Pool) {
        if self.pool.is_none() {
            self.pool = Some(pool.clone());
        }
    }

    /// Appends a copy of `bytes`.
    pub fn write(&mut self, bytes: &[u8]) {
        let appended = self.append_to_fill(bytes);
        if appended < bytes.len() {
            self.write_behind_fill(&bytes[appended..]);
        }
    }

    /// A cursor over at least `length` bytes of contiguous memory at the end of the queue, if `length` is at most
    /// [`SEGMENT_BYTES`]. It is the fastest way to encode a message of several short pieces.
    #[inline]
    pub fn writer(&mut self, length: usize) -> Cursor<'_> {
        let length = length.clamp(1, SEGMENT_BYTES);
        let (next, room) = match self.claim_fill(length) {
            Some(claimed) => claimed,
            None => self.new_fill(length),
        };
        Cursor::new(self, next, room)
    }

    /// Appends a view: linked from [`LINK_BYTES_MIN`] bytes on if it is at least a quarter of its segment, which it keeps
    /// alive; copied otherwise.
    pub fn link(&mut self, slice: Slice) {
        if slice.len() < LINK_BYTES_MIN || slice.len() < slice.segment().capacity() / 4 {
            self.write(&slice);
        } else {
            self.push_linked(Part::Slice(slice));
        }
    }

    /// Appends a view that many queues share, as in a broadcast: linked, whatever its size, since a copy would cost
    /// each queue a segment. An empty view has no effect.
    ///
    /// The ledger is charged for the entry only; the segment is charged once, to the pool that allocated it, as long as
    /// the last queue keeps it alive.
    ///
    /// ```
    /// use tidegate::buffer::ENTRY_BYTES;
    /// use tidegate::codec::{Outbound, Pool};
    ///
    /// let pool = Pool::new();
    /// let news = pool.copy(b"high water at noon\n");
    /// let before = pool.ledger().used();
    /// let mut queues: Vec<_> = (0..100).map(|_| Outbound::new(&pool)).collect();
    /// for queue in &mut queues {
    ///     queue.link_shared(news.clone());
    /// }
    /// assert_eq!(pool.ledger().used(), before + 100 * ENTRY_BYTES);
    /// ```
    pub fn link_shared(&mut self, slice: Slice) {
        if !slice.is_empty() {
            self.push_linked(Part::Slice(slice));
        }
    }

    /// Appends shared bytes: linked from [`LINK_BYTES_MIN`] bytes on, copied below.
    pub fn link_bytes(&mut self, bytes: Bytes) {
        if bytes.len() < LINK_BYTES_MIN {
            self.write(&bytes);
        } else {
            let charge = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
            self.pool().ledger().charge(charge as usize);
            self.push_linked(Part::Bytes { bytes, charge });
        }
    }

    /// Appends static bytes: linked from [`LINK_BYTES_MIN`] bytes on, copied below. They cost nothing.
    pub fn link_static(&mut self, bytes: &'static [u8]) {
        if bytes.len() < LINK_BYTES_MIN {
            self.write(bytes);
        } else {
            self.push_linked(Part::Bytes { bytes: Bytes::from_static(bytes), charge: 0 });
        }
    }

    /// Appends a piece of a file. An empty one has no effect.
    pub fn link_file(&mut self, region: FileRegion) {
        if region.length > 0 {
            self.push_linked(Part::File(region));
        }
    }

    /// Permits sending everything written so far. Later writes wait for the next flush.
    pub fn flush(&mut self) {
        if self.list.unflushed == NIL {
            return;
        }
        // A cursor that was forgotten instead of dropped leaves an empty entry.
        self.drop_spent_heads();
        // An empty tail has nothing to send and stays as the fill entry; the head is not empty now.
        let tail = self.list.tail;
        let fill = tail != self.list.head && self.entries().get(tail).part.len() == 0;
        self.list.unflushed = if fill { tail } else { NIL };
    }

    /// Puts the next bytes to send into `parts`, at most `bytes_max`. A piece of a file comes alone.
    pub fn gather<'a, 'q>(&'q self, parts: &'a mut [MaybeUninit<IoSlice<'q>>], bytes_max: usize) -> Gathered<'a, 'q> {
        let Some(pool) = &self.pool else { return Gathered::Nothing };
        let entries = pool.shared().entries.borrow();
        let (mut index, mut count, mut room) = (self.list.head, 0, bytes_max.max(1));
        let mut is_before_file = false;
        while index != self.list.unflushed && count < parts.len() && room > 0 {
            let entry = entries.get(index);
            match &entry.part {
                Part::File(region) if count == 0 => return Gathered::File(region.clone()),
                Part::File(_) => {
                    is_before_file = true;
                    break;
                }
                part => {
                    let bytes = part.bytes().expect("only files have no bytes");
                    let bytes = &bytes[..bytes.len().min(room)];
                    if !bytes.is_empty() {
                        room -= bytes.len();
                        // SAFETY: the bytes lie in memory that the entry keeps alive and unchanged; the entry stays
                        // for as long as the queue is borrowed, since only `&mut self` takes entries out.
                        let bytes = unsafe { std::slice::from_raw_parts(bytes.as_ptr(), bytes.len()) };
                        parts[count].write(IoSlice::new(bytes));
                        count += 1;
                    }
                }
            }
            index = entry.next;
        }
        if count == 0 {
            return Gathered::Nothing;
        }
        let written = &parts[..count];
        // SAFETY: the first `count` elements were written above, and `MaybeUninit` has the layout of its element.
        let parts = unsafe { std::slice::from_raw_parts(written.as_ptr().cast(), written.len()) };
        if is_before_file { Gathered::PartsBeforeFile(parts) } else { Gathered::Parts(parts) }
    }

    /// Calls `see` with each flushed part, in order.
    pub(crate) fn for_each_flushed(&self, mut see: impl FnMut(&Part) -> bool) {
        let Some(pool) = &self.pool else { return };
        let entries = pool.shared().entries.borrow();
        let mut index = self.list.head;
        while index != self.list.unflushed {
            let entry = entries.get(index);
            if !see(&entry.part) {
                return;
            }
            index = entry.next;
        }
    }

    /// The first flushed bytes, in one piece; `None` if there are none, or if a piece of a file comes first.
    #[must_use]
    pub fn front(&self) -> Option<&[u8]> {
        let entries = self.pool.as_ref()?.shared().entries.borrow();
        let mut index = self.list.head;
        while index != self.list.unflushed {
            let entry = entries.get(index);
            let bytes = entry.part.bytes()?;
            if !bytes.is_empty() {
                // SAFETY: as in `gather`: the bytes stay for as long as the queue is borrowed.
                return Some(unsafe { std::slice::from_raw_parts(bytes.as_ptr(), bytes.len()) });
            }
            index = entry.next;
        }
        None
    }

    /// The first flushed bytes, at most `bytes_max`, as a view of the shared bytes that were linked; `None` if those that come
    /// first were copied, or are a slice or a piece of a file.
    #[must_use]
    pub fn front_bytes(&self, bytes_max: usize) -> Option<Bytes> {
        if self.list.head == self.list.unflushed {
            return None;
        }
        let entries = self.pool.as_ref()?.shared().entries.borrow();
        match &entries.get(self.list.head).part {
            Part::Bytes { bytes, .. } => Some(bytes.slice(..bytes.len().min(bytes_max))),
            _ => None,
        }
    }

    /// All bytes that wait, flushed or not, if they were copied into one piece of memory.
    #[must_use]
    #[inline]
    pub fn whole(&self) -> Option<&[u8]> {
        if self.list.entries != 1 {
            return None;
        }
        let entries = self.pool.as_ref()?.shared().entries.borrow();
        match &entries.get(self.list.head).part {
            Part::Copied { segment, start, end } => {
                let bytes = segment.view(*start as usize, *end as usize);
                // SAFETY: as in `gather`: the bytes stay for as long as the queue is borrowed.
                Some(unsafe { std::slice::from_raw_parts(bytes.as_ptr(), bytes.len()) })
            }
            _ => None,
        }
    }

    /// Whether a piece of a file comes first among the flushed parts.
    #[must_use]
    pub fn starts_with_file(&self) -> bool {
        self.has_flushed() && matches!(self.entries().get(self.list.head).part, Part::File(_))
    }

    /// Moves the flushed parts of `from` to the end of this queue. A copied part is copied once more if it is short and
    /// fits behind the tail, so that it does not keep a segment of its own; all other parts are moved.
    pub fn take_flushed(&mut self, from: &mut Self) {
        while from.has_flushed() {
            let part = from.unlink_head();
            from.sent += part.len();
            self.append_part(part);
        }
        from.drop_spent_heads();
    }

    /// The same for at most `bytes_max` bytes: a part that is longer is divided. Returns how many bytes it moved.
    pub fn take_flushed_up_to(&mut self, from: &mut Self, bytes_max: u64) -> u64 {
        let mut left = bytes_max;
        while left > 0 && from.has_flushed() {
            let mut entries = from.entries();
            let head = &mut entries.get_mut(from.list.head).part;
            let length = head.len();
            let part = if length > left {
                let piece = head.split_to(left);
                drop(entries);
                if let Part::Bytes { charge, .. } = &piece {
                    from.pool_ref().ledger().refund(*charge as usize);
                }
                piece
            } else {
                drop(entries);
                from.unlink_head()
            };
            left -= part.len();
            from.sent += part.len();
            self.append_part(part);
        }
        from.drop_spent_heads();
        bytes_max - left
    }

    /// Appends a part of another queue, which has given up the ledger's charge for it.
    fn append_part(&mut self, part: Part) {
        let length = part.len();
        match &part {
            _ if length == 0 => {}
            Part::Copied { segment, start, end } if self.would_copy(length as usize) => {
                self.write(segment.view(*start as usize, *end as usize));
            }
            _ => {
                if let Part::Bytes { charge, .. } = &part {
                    self.pool().ledger().charge(*charge as usize);
                }
                self.push(part);
                self.written += length;
            }
        }
    }

    /// Counts the first `count` bytes as sent, and releases their memory.
    ///
    /// # Panics
    /// If `count` is more than [`pending`](Self::pending).
    pub fn advance(&mut self, count: u64) {
        assert!(count <= self.pending(), "{count} bytes sent of {}", self.pending());
        self.sent += count;
        if self.sent == self.written {
            self.release();
        } else {
            ReleaseGuard { queue: self, left: count }.release_all(Outbound::pop);
        }
    }

    /// Discards everything that waits: it is never sent, and [`written`](Self::written) goes back to the bytes sent.
    pub fn clear(&mut self) {
        self.written = self.sent;
        self.release();
    }

    /// Clears the queue, and keeps a single unshared segment for later writes. [`clear`](Self::clear) releases that
    /// segment too.
    ///
    /// ```
    /// use tidegate::codec::{Outbound, Pool};
    ///
    /// let pool = Pool::new();
    /// let mut queue = Outbound::new(&pool);
    /// queue.write(b"ebb");
    /// queue.flush();
    /// queue.recycle();
    /// assert_eq!((queue.is_empty(), queue.written().0), (true, 0));
    /// assert!(pool.ledger().used() > 0);
    /// queue.write(b"flow");
    /// queue.flush();
    /// assert_eq!(queue.front(), Some(&b"flow"[..]));
    /// queue.clear();
    /// assert_eq!(pool.ledger().used(), 0);
    /// ```
    pub fn recycle(&mut self) {
        (self.written, self.sent) = (0, 0);
        if self.list.entries == 1 {
            let mut entries = self.entries();
            if let Part::Copied { segment, start, end } = &mut entries.get_mut(self.list.head).part
                && segment.is_unique()
            {
                // No view of the segment is left but that of the entry, which shows nothing now.
                segment.set_filled(0);
                (*start, *end) = (0, 0);
                drop(entries);
                self.list.unflushed = self.list.head;
                return;
            }
        }
        self.release();
    }

    /// Bytes that wait, flushed or not.
    #[must_use]
    #[inline]
    pub fn pending(&self) -> u64 {
        self.written - self.sent
    }

    /// Bytes of memory that the queue keeps alive: whole segments, each counted once where entries share it, and the
    /// ledger's charge for the rest. It walks the queue.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        let Some(pool) = &self.pool else { return 0 };
        let entries = pool.shared().entries.borrow();
        let (mut index, mut bytes, mut last) = (self.list.head, 0, None);
        while index != NIL {
            let entry = entries.get(index);
            bytes += ENTRY_BYTES;
            match &entry.part {
                Part::Copied { segment, .. } if last == Some(segment.base()) => {}
                Part::Copied { segment, .. } => {
                    last = Some(segment.base());
                    bytes += block_bytes(segment.capacity());
                }
                Part::Slice(slice) => bytes += block_bytes(slice.segment().capacity()),
                Part::Bytes { charge, .. } => bytes += *charge as usize,
                Part::File(_) | Part::Vacant => {}
            }
            index = entry.next;
        }
        bytes
    }

    /// Whether the queue is empty.
    #[must_use]
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.written == self.sent
    }

    /// Whether flushed bytes wait.
    #[must_use]
    #[inline]
    pub fn has_flushed(&self) -> bool {
        self.list.head != self.list.unflushed
    }

    /// Bytes that wait, plus the cost of their entries: the value compared with the water marks. A message without
    /// bytes costs nothing here and leaves no entry.
    #[must_use]
    #[inline]
    pub fn cost(&self) -> u64 {
        self.pending() + u64::from(self.list.entries) * ENTRY_BYTES as u64
    }

    /// Bytes ever written.
    #[must_use]
    #[inline]
    pub fn written(&self) -> WritePosition {
        WritePosition(self.written)
    }

    /// Bytes ever sent.
    #[must_use]
    #[inline]
    pub fn sent(&self) -> WritePosition {
        WritePosition(self.sent)
    }

    /// Appends the bytes that fit into the fill segment, and returns their count: `write` without a cursor, which would
    /// look the tail up twice.
    #[inline]
    fn append_to_fill(&mut self, bytes: &[u8]) -> usize {
        if self.list.unflushed == NIL {
            return 0;
        }
        let mut entries = self.entries();
        let appended = match &mut entries.get_mut(self.list.tail).part {
            Part::Copied { segment, end, .. } if *end as usize == segment.filled() => {
                let appended = segment.append(bytes);
                *end += appended as u32;
                appended
            }
            _ => 0,
        };
        drop(entries);
        self.written += appended as u64;
        appended
    }

    #[cold]
    fn write_behind_fill(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            self.push_fill(1);
            let appended = self.append_to_fill(bytes);
            bytes = &bytes[appended..];
        }
    }

    /// Claims the remaining room of the fill segment, if the tail entry may grow by `length` bytes: returns its start
    /// and its length.
    #[inline]
    pub(crate) fn claim_fill(&mut self, length: usize) -> Option<(*mut u8, usize)> {
        if self.list.unflushed == NIL {
            return None;
        }
        let entries = self.pool.as_ref()?.shared().entries.borrow();
        match &entries.get(self.list.tail).part {
            Part::Copied { segment, end, .. } if *end as usize == segment.filled() && segment.room() >= length => {
                Some(segment.claim())
            }
            _ => None,
        }
    }

    /// Releases the claim: `put` bytes of it are written.
    #[inline]
    pub(crate) fn commit(&mut self, put: usize) {
        self.written += put as u64;
        let tail = self.list.tail;
        let mut entries = self.entries();
        if let Part::Copied { segment, end, .. } = &mut entries.get_mut(tail).part {
            *end += put as u32;
            segment.set_filled(*end as usize);
        }
    }

    /// Appends a copied entry with room for `length` bytes, which are claimed.
    #[cold]
    fn new_fill(&mut self, length: usize) -> (*mut u8, usize) {
        self.push_fill(length);
        self.claim_fill(length).expect("there is room for as much")
    }

    /// Appends a copied entry with room for `length` bytes: in the segment of the tail if that has the room, in a fresh
    /// one otherwise.
    fn push_fill(&mut self, length: usize) {
        let segment = self.tail_segment(length.max(FILL_ROOM_MIN)).unwrap_or_else(|| self.pool().segment());
        let at = segment.filled() as u32;
        self.push(Part::Copied { segment, start: at, end: at });
    }

    /// Links `part`, and behind it the remaining room of the fill segment, for later copies.
    fn push_linked(&mut self, part: Part) {
        let length = part.len();
        let Some(segment) = self.tail_segment(FILL_ROOM_MIN) else {
            self.push(part);
            self.written += length;
            return;
        };
        let at = segment.filled() as u32;
        let fill = Part::Copied { segment, start: at, end: at };
        if self.list.unflushed != NIL && self.entries().get(self.list.tail).part.len() == 0 {
            // The tail is an empty fill entry: it moves behind the link, and the link takes its entry.
            let rest = std::mem::replace(&mut self.entries().get_mut(self.list.tail).part, part);
            drop(rest);
        } else {
            self.push(part);
        }
        self.push(fill);
        self.written += length;
    }

    /// Whether parts copied into another queue are better copied again than moved here: they are short, and fit behind
    /// the tail.
    fn would_copy(&self, length: usize) -> bool {
        length < LINK_BYTES_MIN && self.tail_segment(length.max(FILL_ROOM_MIN)).is_some()
    }

    /// The tail's segment, if no other holder has appended to it and there is room for `length` bytes.
    fn tail_segment(&self, length: usize) -> Option<Segment> {
        if self.list.tail == NIL {
            return None;
        }
        match &self.entries().get(self.list.tail).part {
            Part::Copied { segment, end, .. } if *end as usize == segment.filled() && segment.room() >= length => {
                Some(segment.clone())
            }
            _ => None,
        }
    }

    fn push(&mut self, part: Part) {
        self.pool();
        let mut entries = self.entries();
        let index = entries.insert(part);
        if self.list.tail != NIL {
            entries.get_mut(self.list.tail).next = index;
        }
        drop(entries);
        if self.list.head == NIL {
            self.list.head = index;
        }
        if self.list.unflushed == NIL {
            self.list.unflushed = index;
        }
        self.list.tail = index;
        self.count_entry();
    }

    fn count_entry(&mut self) {
        self.list.entries += 1;
        self.pool_ref().ledger().charge(ENTRY_BYTES);
    }

    /// Drops the first entry and its content, while the store is not borrowed.
    fn pop(&mut self) {
        drop(self.unlink_head());
    }

    /// The same while a panic unwinds: a second panic would abort the process.
    fn pop_catching(&mut self) {
        let part = self.unlink_head();
        if let Err(panic) = catch_unwind(AssertUnwindSafe(move || drop(part)))
            && let Err(again) = catch_unwind(AssertUnwindSafe(move || drop(panic)))
        {
            std::mem::forget(again);
        }
    }

    fn unlink_head(&mut self) -> Part {
        let QueueEntry { part, next, .. } = self.entries().remove(self.list.head);
        if self.list.unflushed == self.list.head {
            self.list.unflushed = next;
        }
        self.list.head = next;
        if next == NIL {
            self.list.tail = NIL;
        }
        self.list.entries -= 1;
        let ledger = self.pool_ref().ledger();
        ledger.refund(ENTRY_BYTES);
        if let Part::Bytes { charge, .. } = &part
            && !injected::is_injected(Bug::LedgerNotCharged)
        {
            ledger.refund(*charge as usize);
        }
        part
    }

    /// Releases an entry without bytes, in an empty queue.
    #[cold]
    pub(crate) fn release_unused(&mut self) {
        self.release();
    }

    /// Releases every entry.
    fn release(&mut self) {
        /// Continues after the drop of a queued part has panicked.
        struct PopOnDrop<'a>(&'a mut Outbound);
        impl PopOnDrop<'_> {
            fn pop_all(&mut self) {
                while self.0.list.head != NIL {
                    self.0.pop();
                }
            }
        }
        impl Drop for PopOnDrop<'_> {
            fn drop(&mut self) {
                while self.0.list.head != NIL {
                    self.0.pop_catching();
                }
            }
        }
        PopOnDrop(self).pop_all();
    }

    /// Drops entries without bytes from the front, so that the first entry has something to send.
    fn drop_spent_heads(&mut self) {
        while self.list.head != NIL && self.entries().get(self.list.head).part.len() == 0 {
            self.pop();
        }
    }

    fn second_is_spent(&self) -> bool {
        let entries = self.entries();
        let second = entries.get(self.list.head).next;
        second != NIL && entries.get(second).part.len() == 0
    }

    /// Takes the second entry out: a region that is loaded completely.
    fn unlink_spent_second(&mut self) {
        let mut entries = self.entries();
        let second = entries.get(self.list.head).next;
        let spent = entries.remove(second);
        entries.get_mut(self.list.head).next = spent.next;
        drop(entries);
        if self.list.tail == second {
            self.list.tail = self.list.head;
        }
        self.list.entries -= 1;
        self.pool_ref().ledger().refund(ENTRY_BYTES);
    }

    /// Takes the last entry out. `before` has the tail and the first unflushed entry before it was appended.
    fn unlink_tail(&mut self, before: (u32, u32)) {
        let mut entries = self.entries();
        let removed = entries.remove(self.list.tail);
        let (tail, _) = before;
        if tail != NIL {
            entries.get_mut(tail).next = NIL;
        }
        drop(entries);
        if tail == NIL {
            self.list.head = NIL;
        }
        (self.list.tail, self.list.unflushed) = before;
        self.list.entries -= 1;
        self.pool_ref().ledger().refund(ENTRY_BYTES);
        drop(removed);
    }

    /// A cursor has copied so many bytes.
    #[inline(always)]
    pub(crate) fn count_copy(&self, bytes: usize) {
        if cfg!(debug_assertions) {
            self.pool_ref().ledger().count_copy(bytes);
        }
    }

    fn pool(&mut self) -> &Pool {
        self.pool.get_or_insert_with(Pool::new)
    }

    #[inline]
    fn pool_ref(&self) -> &Pool {
        self.pool.as_ref().expect("a queue with entries has a pool")
    }

    #[inline]
    fn entries(&self) -> std::cell::RefMut<'_, crate::entries::Entries> {
        self.pool_ref().shared().entries.borrow_mut()
    }
}

impl Default for List {
    fn default() -> Self {
        Self { head: NIL, unflushed: NIL, tail: NIL, entries: 0 }
    }
}

impl Drop for Outbound {
    fn drop(&mut self) {
        if std::thread::panicking() {
            while self.list.head != NIL {
                self.pop_catching();
            }
        } else {
            self.release();
        }
    }
}

/// Releases the sent parts. The drop of a queued part runs code of its owner and may panic: then the rest is released
/// while unwinding, so that nothing is sent twice and nothing stays in the store.
struct ReleaseGuard<'q> {
    queue: &'q mut Outbound,
    left: u64,
}

impl ReleaseGuard<'_> {
    fn release_all(&mut self, pop: fn(&mut Outbound)) {
        while self.left > 0 {
            let mut entries = self.queue.entries();
            let head = entries.get_mut(self.queue.list.head);
            let length = head.part.len();
            if self.left < length {
                let sent = std::mem::take(&mut self.left);
                if !injected::is_injected(Bug::PartRestarted) {
                    head.part.advance(sent);
                }
                return;
            }
            drop(entries);
            self.left -= length;
            pop(self.queue);
        }
        // The remaining room of a fill segment must not count as something to send.
        self.queue.drop_spent_heads();
    }
}

impl Drop for ReleaseGuard<'_> {
    fn drop(&mut self) {
        if self.left > 0 {
            self.release_all(Outbound::pop_catching);
        }
    }
}

impl std::fmt::Debug for Outbound {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Outbound")
            .field("pending", &self.pending())
            .field("sent", &self.sent)
            .field("entries", &self.list.entries)
            .finish_non_exhaustive()
    }
}

/// From this length on, shared bytes are linked instead of copied.
pub const LINK_BYTES_MIN: usize = 2048;
/// A fill segment with less room than this is not carried over a linked entry.
const FILL_ROOM_MIN: usize = 64;

const _: () = assert!(size_of::<Outbound>() <= 40);
const _: () = assert!(LINK_BYTES_MIN <= SEGMENT_BYTES);
