//! The linked design: the outbound queue as Netty's change #2693 (2014) has it.
//!
//! A connection has a list of entries, linked and recycled in pages that all connections of a loop share, and no array:
//! the one array of parts is the loop's. **Each message is an entry of its own, in memory of its own**
//! (`../messages.rs`).
//!
//! The calls delimit messages: a codec encodes a message into memory with one call of `write`, `write_pieces` or
//! through one `writer`, so each of these makes one entry. Linked data, such as a body, is an entry as well, like a
//! buffer that a Netty encoder passes on; linked data is not copied unless necessary.
//!
//! The rest is the contract of `crates/buffer/src/outbound.rs`, and where a line is the same there, it says the same.

use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::panic::{AssertUnwindSafe, catch_unwind};

use bytes::Bytes;

use crate::cursor::Cursor;
use crate::entries::{ENTRY_BYTES, Entry, Messages, NIL, Part};
use crate::file_region::FileRegion;
use crate::injected::{self, Bug};
use crate::pieces::{Pieces, SizedPieces};
use crate::pool::Pool;
use crate::segment::{SEGMENT_BYTES, block_bytes};
use crate::slice::Slice;
use crate::types::{Gathered, LoadError, WritePosition};
pub use parked::ParkedQueue;

#[path = "../parked.rs"]
mod parked;

/// The outbound queue of one connection.
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
    pub fn attach(&mut self, pool: &Pool) {
        if self.pool.is_none() {
            self.pool = Some(pool.clone());
        }
    }

    /// Appends a copy of `bytes`, as one message.
    #[inline]
    pub fn write(&mut self, bytes: &[u8]) {
        if !bytes.is_empty() {
            self.push(|messages, pool| messages.copy(bytes, pool));
            self.written += bytes.len() as u64;
        }
    }

    /// Appends copies of all `pieces`, one behind the other, as one message.
    #[inline]
    pub fn write_pieces(&mut self, pieces: impl Pieces) {
        let pieces = SizedPieces::new(pieces);
        match pieces.length() {
            0 => {}
            length @ 1..=MESSAGE_BYTES_MAX => {
                self.push(|messages, pool| messages.gather(&pieces, pool));
                self.written += length as u64;
            }
            _ => pieces.each(|piece| self.write(piece)),
        }
    }

    /// A cursor over at least `length` bytes of contiguous memory at the end of the queue, if `length` is at most
    /// [`SEGMENT_BYTES`]: for one message.
    #[inline]
    pub fn writer(&mut self, length: usize) -> Cursor<'_> {
        let length = length.clamp(1, SEGMENT_BYTES);
        if self.ends_empty() {
            // An earlier cursor was not used.
            let pool = self.pool_ref();
            let mut entries = pool.shared().entries.borrow_mut();
            let message = entries.messages.empty(length, pool);
            entries.get_mut(self.list.tail).part = message;
        } else {
            self.push(|messages, pool| messages.empty(length, pool));
        }
        let (next, room) = self.claim_fill(length).expect("there is room for as much");
        Cursor::new(self, next, room)
    }

    /// Has `fill` write into `length` bytes, and appends as many of them as it returns. This queue has no memory for
    /// them before it knows how many they are, so it copies them.
    pub fn write_with<E>(
        &mut self,
        length: usize,
        fill: impl FnOnce(&mut [u8]) -> Result<usize, E>,
    ) -> Result<usize, E> {
        let mut space = vec![0; length];
        let count = fill(&mut space)?;
        self.write(&space[..count]);
        Ok(count)
    }

    /// A cursor has copied so many bytes.
    pub(crate) fn count_copy(&self, _: usize) {}

    /// Appends a view, unless that would keep much more memory than it shows: then a copy.
    pub fn link(&mut self, slice: Slice) {
        if slice.len() < slice.segment().capacity() / 4 {
            self.write(&slice);
        } else {
            self.link_shared(slice);
        }
    }

    /// Appends a view that many queues share.
    pub fn link_shared(&mut self, slice: Slice) {
        if !slice.is_empty() {
            self.push_linked(Part::Slice(slice));
        }
    }

    /// Appends shared bytes.
    pub fn link_bytes(&mut self, bytes: Bytes) {
        if !bytes.is_empty() {
            let charge = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
            self.pool().ledger().charge(charge as usize);
            self.push_linked(Part::Bytes { bytes, charge });
        }
    }

    /// Appends bytes of the program. They cost nothing.
    pub fn link_static(&mut self, bytes: &'static [u8]) {
        if !bytes.is_empty() {
            self.push_linked(Part::Bytes { bytes: Bytes::from_static(bytes), charge: 0 });
        }
    }

    /// Appends a piece of a file. An empty one is nothing.
    pub fn link_file(&mut self, region: FileRegion) {
        if region.length > 0 {
            self.push_linked(Part::File(region));
        }
    }

    /// Lets everything written so far be sent. Later writes wait for the next flush.
    pub fn flush(&mut self) {
        if self.list.unflushed == NIL {
            return;
        }
        // A cursor that was forgotten instead of dropped has left an empty entry.
        self.drop_spent_heads();
        if self.is_empty() {
            self.let_go_of_messages();
        }
        // An empty tail has nothing to send, and is there for the next cursor.
        self.list.unflushed = if self.ends_empty() { self.list.tail } else { NIL };
    }

    /// Moves nothing: in the published design a message stays where it was encoded.
    pub fn compact(&mut self) {}

    /// Moves nothing either.
    pub fn shrink(&mut self) {}

    /// Nothing waits in a page of its own here.
    pub fn settle(&mut self) {}

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

    /// The flushed parts, in order.
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
        let mut part = [const { MaybeUninit::uninit() }];
        match self.gather(&mut part, usize::MAX) {
            Gathered::Parts([part]) | Gathered::PartsBeforeFile([part]) => {
                // SAFETY: as in `gather`: the bytes stay for as long as the queue is borrowed.
                Some(unsafe { std::slice::from_raw_parts(part.as_ptr(), part.len()) })
            }
            _ => None,
        }
    }

    /// The first flushed bytes, at most `bytes_max`, as a view of the shared bytes that were linked; `None` if other bytes
    /// come first.
    #[must_use]
    pub fn front_bytes(&self, bytes_max: usize) -> Option<Bytes> {
        if !self.has_flushed() {
            return None;
        }
        match &self.entries().get(self.list.head).part {
            Part::Bytes { bytes, .. } => Some(bytes.slice(..bytes.len().min(bytes_max))),
            _ => None,
        }
    }

    /// Whether a piece of a file comes first among the flushed parts.
    #[must_use]
    pub fn starts_with_file(&self) -> bool {
        self.has_flushed() && matches!(self.entries().get(self.list.head).part, Part::File(_))
    }

    /// Moves the flushed parts of `from` to the end of this queue.
    pub fn take_flushed(&mut self, from: &mut Self) {
        while from.has_flushed() {
            let part = from.unlink_head();
            let length = part.len();
            from.sent += length;
            if length > 0 {
                if let Part::Bytes { charge, .. } = &part {
                    self.pool().ledger().charge(*charge as usize);
                }
                self.push_linked(part);
            }
        }
        from.drop_spent_heads();
        // The moved parts may outlive everything else that `from` shares its memory with.
        from.turn_over();
    }

    /// Moves at most `bytes_max` of the flushed bytes to the end of this queue.
    pub fn take_flushed_up_to(&mut self, from: &mut Self, bytes_max: u64) -> u64 {
        let mut left = bytes_max;
        while left > 0 && from.has_flushed() {
            let mut entries = from.entries();
            let head = &mut entries.get_mut(from.list.head).part;
            let length = head.len();
            let piece = (length > left).then(|| head.split_to(left));
            drop(entries);
            let part = match piece {
                Some(piece) => {
                    if let Part::Bytes { charge, .. } = &piece {
                        from.pool_ref().ledger().refund(*charge as usize);
                    }
                    piece
                }
                None => from.unlink_head(),
            };
            left -= part.len();
            from.sent += part.len();
            if part.len() > 0 {
                if let Part::Bytes { charge, .. } = &part {
                    self.pool().ledger().charge(*charge as usize);
                }
                self.push_linked(part);
            }
        }
        from.drop_spent_heads();
        // The moved parts may outlive everything else that `from` shares its memory with.
        from.turn_over();
        bytes_max - left
    }

    /// Counts the first `count` bytes as sent, and lets go of their memory.
    ///
    /// # Panics
    /// If `count` exceeds the waiting bytes.
    pub fn advance(&mut self, count: u64) {
        assert!(count <= self.pending(), "{count} bytes sent of {}", self.pending());
        self.sent += count;
        if self.sent == self.written {
            self.release();
        } else {
            Sent { queue: self, left: count }.release_all(Outbound::pop);
        }
    }

    /// Clears the queue: the waiting bytes will never be sent, and [`written`](Self::written) returns to the count of
    /// sent bytes.
    pub fn clear(&mut self) {
        self.written = self.sent;
        self.release();
    }

    /// Makes the queue a new one, without the bytes that wait.
    pub fn recycle(&mut self) {
        (self.written, self.sent) = (0, 0);
        self.release();
    }

    /// All bytes that wait, flushed or not, if they are one message that was copied.
    #[must_use]
    pub fn whole(&self) -> Option<&[u8]> {
        if self.list.entries != 1 {
            return None;
        }
        match &self.entries().get(self.list.head).part {
            Part::Copied { segment, start, end } => {
                let bytes = segment.view(*start as usize, *end as usize);
                // SAFETY: as in `gather`: the bytes stay for as long as the queue is borrowed.
                Some(unsafe { std::slice::from_raw_parts(bytes.as_ptr(), bytes.len()) })
            }
            _ => None,
        }
    }

    /// If a piece of a file comes first among the flushed parts, puts up to `bytes_max` of its bytes in place of as
    /// much of it; for filters that must see them. Says whether it did. `read` gets the file and an offset and fills
    /// the front of the memory.
    ///
    /// # Errors
    /// [`LoadError::Short`] if the file ends within the region, [`LoadError::Read`] if reading fails. The queue is as
    /// it was.
    pub fn load_file(
        &mut self,
        bytes_max: usize,
        read: impl FnOnce(&FileRegion, &mut [u8]) -> std::io::Result<usize>,
    ) -> Result<bool, LoadError> {
        let Gathered::File(region) = self.gather(&mut [MaybeUninit::uninit()], 1) else { return Ok(false) };
        let length = usize::try_from(region.length).unwrap_or(usize::MAX).min(bytes_max.max(1));
        let mut bytes = vec![0; length];
        match read(&region, &mut bytes).map_err(LoadError::Read)? {
            0 => return Err(LoadError::Short),
            filled => bytes.truncate(filled),
        }
        let loaded = self.pool_ref().copy(&bytes);
        let mut entries = self.entries();
        entries.get_mut(self.list.head).part.advance(loaded.len() as u64);
        let index = entries.insert(Part::Slice(loaded));
        entries.get_mut(index).next = self.list.head;
        drop(entries);
        self.list.head = index;
        self.count_entry();
        if self.second_is_spent() {
            self.unlink_spent_second();
        }
        Ok(true)
    }

    /// Bytes that wait, flushed or not.
    #[must_use]
    #[inline]
    pub fn pending(&self) -> u64 {
        self.written - self.sent
    }

    /// Bytes of memory that it keeps alive: whole segments, each counted once where entries share it, and the ledger's
    /// charge for the rest. It walks the queue.
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

    /// Whether nothing waits.
    #[must_use]
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.written == self.sent
    }

    /// Whether something waits that was flushed.
    #[must_use]
    #[inline]
    pub fn has_flushed(&self) -> bool {
        self.list.head != self.list.unflushed
    }

    /// Waiting bytes and the cost of their entries: the level to compare with the water marks. A message without bytes
    /// costs nothing here, and the queue keeps no trace of it.
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

    /// Claims the rest of the last message's segment, if that may grow by `length` bytes: where it goes on, and how
    /// much room it has.
    #[inline]
    pub(crate) fn claim_fill(&mut self, length: usize) -> Option<(*mut u8, usize)> {
        let entries = self.pool.as_ref()?.shared().entries.borrow();
        match &entries.get(self.list.tail).part {
            Part::Copied { segment, end, .. } if *end as usize == segment.filled() && segment.room() >= length => {
                Some(segment.claim())
            }
            _ => None,
        }
    }

    /// Gives up the claim: `put` of the claimed bytes are written.
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

    /// Whether an entry without bytes comes last, and was not flushed.
    fn ends_empty(&self) -> bool {
        self.list.unflushed != NIL && self.entries().get(self.list.tail).part.len() == 0
    }

    fn push_linked(&mut self, part: Part) {
        let length = part.len();
        self.push(|_, _| part);
        self.written += length;
    }

    /// Appends the entry that `make` returns for the memory that the queues of this pool share.
    #[inline(always)]
    fn push(&mut self, make: impl FnOnce(&mut Messages, &Pool) -> Part) {
        let list = &mut self.list;
        let pool = self.pool.get_or_insert_with(Pool::new);
        let mut entries = pool.shared().entries.borrow_mut();
        let part = make(&mut entries.messages, pool);
        let index = entries.insert(part);
        if list.tail == NIL {
            list.head = index;
        } else {
            entries.get_mut(list.tail).next = index;
        }
        if list.unflushed == NIL {
            list.unflushed = index;
        }
        list.tail = index;
        list.entries += 1;
        pool.ledger().charge(ENTRY_BYTES);
    }

    fn count_entry(&mut self) {
        self.list.entries += 1;
        self.pool_ref().ledger().charge(ENTRY_BYTES);
    }

    /// Drops the first entry and its content, with the store not borrowed.
    fn pop(&mut self) {
        drop(self.unlink_head());
    }

    /// The same while a panic unwinds already: a second one would abort the process.
    fn pop_catching(&mut self) {
        let part = self.unlink_head();
        if let Err(panic) = catch_unwind(AssertUnwindSafe(move || drop(part)))
            && let Err(again) = catch_unwind(AssertUnwindSafe(move || drop(panic)))
        {
            std::mem::forget(again);
        }
    }

    fn unlink_head(&mut self) -> Part {
        let Entry { part, next, .. } = self.entries().remove(self.list.head);
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

    /// Lets go of an entry without bytes, in an empty queue.
    #[cold]
    pub(crate) fn release_unused(&mut self) {
        self.release();
    }

    /// Lets go of every entry, and of the memory of messages if these were the last of the loop.
    fn release(&mut self) {
        /// Goes on where the drop of something queued has panicked.
        struct Rest<'a>(&'a mut Outbound);
        impl Rest<'_> {
            fn pop_all(&mut self) {
                loop {
                    self.0.pop_copies();
                    if self.0.list.head == NIL {
                        return;
                    }
                    self.0.pop();
                }
            }
        }
        impl Drop for Rest<'_> {
            fn drop(&mut self) {
                while self.0.list.head != NIL {
                    self.0.pop_catching();
                }
                self.0.let_go_of_messages();
            }
        }
        // Everything is dropped, so from here on only the head of the list is maintained.
        (self.list.unflushed, self.list.tail) = (NIL, NIL);
        Rest(self).pop_all();
    }

    /// Removes the leading in-memory messages when everything is dropped. Their drop runs no foreign code, so the store
    /// stays borrowed meanwhile, and one update gives back the cost of their entries.
    fn pop_copies(&mut self) {
        let (Some(pool), list) = (&self.pool, &mut self.list) else { return };
        let mut entries = pool.shared().entries.borrow_mut();
        let before = list.entries;
        while list.head != NIL && matches!(entries.get(list.head).part, Part::Copied { .. }) {
            list.head = entries.remove(list.head).next;
            list.entries -= 1;
        }
        pool.ledger().refund((before - list.entries) as usize * ENTRY_BYTES);
    }

    /// Drops entries without bytes from the front, so that the first entry has bytes to send.
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

    /// Takes the second entry out: a region of which everything was loaded.
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

    fn let_go_of_messages(&self) {
        if let Some(pool) = &self.pool {
            pool.shared().entries.borrow_mut().messages.release_all();
        }
    }

    fn turn_over(&self) {
        if let Some(pool) = &self.pool {
            pool.shared().entries.borrow_mut().messages.turn_over();
        }
    }

    fn pool(&mut self) -> &Pool {
        self.pool.get_or_insert_with(Pool::new)
    }

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
            self.let_go_of_messages();
        } else {
            self.release();
        }
    }
}

/// Releases the sent parts. Dropping something that was queued may panic, since that runs code of its owner: then the
/// rest is let go while unwinding, so that nothing is sent twice and nothing stays in the store.
struct Sent<'q> {
    queue: &'q mut Outbound,
    left: u64,
}

impl Sent<'_> {
    #[inline]
    fn release_all(&mut self, pop: impl Fn(&mut Outbound)) {
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
        // The rest of a fill segment must not look like bytes to send.
        self.queue.drop_spent_heads();
    }
}

impl Drop for Sent<'_> {
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

/// From this length on, a message is linked instead of copied: codecs write shorter bodies behind their heads, as one
/// message.
pub const LINK_BYTES_MIN: usize = 2048;

/// Pieces that have more bytes together than this are several messages.
const MESSAGE_BYTES_MAX: usize = 1 << 30;

const _: () = assert!(size_of::<Outbound>() <= 40);
const _: () = assert!(LINK_BYTES_MIN <= SEGMENT_BYTES);
