//! Lends the room at the end of a queue to another queue, so that what that one writes becomes part of this one without
//! a copy: the bytes of a stream, behind the head of their frame, in the queue of its session.
//!
//! The room lies behind a *gap* for the head. Lending moves the filled mark over the gap, so no other code writes there,
//! and no view covers it: only [`take_lent`](Outbound::take_lent) fills it, once for each loan. What is lent is an entry
//! of the store, which belongs either to the [`Room`] or to the queue that has borrowed it.

use super::{FILL_ROOM_MIN, Outbound};
use crate::entries::NIL;
use crate::part::Part;
use crate::pool::Pool;
use crate::segment::Segment;

/// Room at the end of a queue, which another queue may write into. It can be lent many times, by one queue after the
/// other, and keeps an entry and a segment for that until it is [released](Room::release).
///
/// ```
/// use tidegate::buffer::Room;
/// use tidegate::codec::{Outbound, Pool};
///
/// let pool = Pool::new();
/// let (mut session, mut stream) = (Outbound::new(&pool), Outbound::new(&pool));
/// let mut room = Room::new(&pool);
/// session.lend_room(&mut room, 2);
/// stream.borrow_room(&mut room);
/// stream.write(b"ebb");
/// assert!(session.take_lent(&mut room, &mut stream, b"3:"));
/// session.flush();
/// assert_eq!((session.front(), stream.pending(), stream.sent().0), (Some(&b"3:ebb"[..]), 0, 3));
/// ```
#[derive(Debug)]
pub struct Room {
    /// Holds the entry that a queue borrows, an empty one, unless a queue has it.
    spare: Outbound,
    /// The segment of the last loan.
    segment: Option<Segment>,
    /// Bytes ever written to the queue that lends, when its next room was prepared.
    written: u64,
    /// Where the gap begins.
    gap: u32,
    /// Where the room begins.
    start: u32,
    /// The filled mark was moved over the gap, which nothing has filled yet.
    is_lent: bool,
}

impl Room {
    /// Nothing yet, for queues with memory from `pool`.
    #[must_use]
    pub fn new(pool: &Pool) -> Self {
        let spare = Outbound::new(pool);
        Self { spare, segment: None, written: 0, gap: u32::MAX, start: u32::MAX, is_lent: false }
    }

    /// Releases the entry it keeps.
    pub fn release(&mut self) {
        self.segment = None;
        self.is_lent = false;
        self.spare.release();
    }

    /// Makes an entry for the room, in a segment.
    #[cold]
    fn make_entry(&mut self, segment: Segment) {
        self.spare.release();
        self.segment = Some(segment.clone());
        self.spare.push(Part::Copied { segment, start: self.start, end: self.start });
    }

    /// Takes the only entry of a queue.
    #[inline]
    fn take_entry(&mut self, from: &mut Outbound) {
        if self.has_entry() {
            return from.release();
        }
        self.take_list(from);
    }

    #[inline]
    fn take_list(&mut self, from: &mut Outbound) {
        self.spare.list = std::mem::take(&mut from.list);
        // If it was flushed, it may be written again.
        self.spare.list.unflushed = self.spare.list.head;
    }

    #[inline]
    fn has_entry(&self) -> bool {
        self.spare.list.head != NIL
    }
}

impl Outbound {
    /// Lends the room behind the last byte and a gap of `gap_bytes`, until [`take_lent`](Self::take_lent) or
    /// [`forgo_lent`](Self::forgo_lent). If the queue is written before that, memory is wasted, and no byte is lost.
    ///
    /// # Panics
    /// If the queue has no memory from the room's pool.
    #[inline]
    pub fn lend_room(&mut self, room: &mut Room, gap_bytes: usize) {
        // The usual case: the queue is as the last `take_lent` has left it.
        if let Some(segment) = &room.segment
            && room.has_entry()
            && room.written == self.written
            && self.list.unflushed != NIL
            && room.start.wrapping_sub(room.gap) as usize == gap_bytes
            && segment.filled() == room.gap as usize
        {
            room.is_lent = true;
            return segment.set_filled(room.start as usize);
        }
        if !self.lend_fill(room, gap_bytes) {
            self.push_fill(gap_bytes + LENT_BYTES_MIN);
            let lends = self.lend_fill(room, gap_bytes);
            assert!(lends, "there is room for as much");
        }
    }

    #[inline(never)]
    fn lend_fill(&mut self, room: &mut Room, gap_bytes: usize) -> bool {
        assert!(self.shares_store(room), "a queue lends room of its own pool");
        if self.list.unflushed == NIL {
            return false;
        }
        let mut entries = self.entries();
        let Part::Copied { segment, end, .. } = &entries.get(self.list.tail).part else { return false };
        if *end as usize != segment.filled() || segment.room() < gap_bytes + LENT_BYTES_MIN {
            return false;
        }
        (room.gap, room.start) = (*end, *end + gap_bytes as u32);
        segment.set_filled(room.start as usize);
        room.is_lent = true;
        let base = segment.base();
        if room.has_entry()
            && room.segment.as_ref().is_some_and(|last| last.base() == base)
            && let Part::Copied { segment, start, end } = &mut entries.get_mut(room.spare.list.head).part
            && segment.base() == base
        {
            (*start, *end) = (room.start, room.start);
            return true;
        }
        let Part::Copied { segment, .. } = &entries.get(self.list.tail).part else { return false };
        let segment = segment.clone();
        drop(entries);
        room.make_entry(segment);
        true
    }

    /// Writes into lent room first, if the queue is empty.
    #[inline]
    pub fn borrow_room(&mut self, room: &mut Room) {
        if self.list.head == NIL && self.shares_store(room) {
            self.list = std::mem::take(&mut room.spare.list);
        }
    }

    /// Appends `head` and all that `from` holds, flushed or not, if `from` has borrowed the room of this queue, and has
    /// written there and nowhere else. Otherwise it returns `false`, and nothing happens.
    ///
    /// # Panics
    /// If the head is not as long as the gap.
    #[inline]
    pub fn take_lent(&mut self, room: &mut Room, from: &mut Self, head: &[u8]) -> bool {
        let length = from.pending();
        let is_alone = length > 0 && from.list.entries == 1 && self.list.unflushed != NIL;
        if !is_alone || !self.shares_store(room) || !from.shares_store(room) {
            return false;
        }
        let Some(lent) = room.segment.as_ref().filter(|_| room.is_lent) else { return false };
        assert!(head.len() == (room.start - room.gap) as usize, "a head of {} bytes", head.len());
        let mut entries = from.entries();
        let borrowed = from.list.head;
        let end = match &entries.get(borrowed).part {
            Part::Copied { segment, start, end } if segment.base() == lent.base() && *start == room.start => *end,
            _ => return false,
        };
        match &mut entries.get_mut(self.list.tail).part {
            Part::Copied { segment, end: tail_end, .. } if segment.base() == lent.base() && *tail_end == room.gap => {
                lent.fill_gap(room.gap as usize, head);
                *tail_end = end;
            }
            _ => return false,
        }
        room.is_lent = false;
        self.written += length + head.len() as u64;
        let next = end as usize + head.len();
        if !room.has_entry() && end as usize == lent.filled() && next + LENT_BYTES_MIN <= lent.capacity() {
            // Prepared for the next loan, which moves the mark.
            if let Part::Copied { start, end, .. } = &mut entries.get_mut(borrowed).part {
                (*start, *end) = (next as u32, next as u32);
            }
            drop(entries);
            (room.gap, room.start, room.written) = (end, next as u32, self.written);
            room.take_list(from);
        } else {
            drop(entries);
            room.take_entry(from);
        }
        from.sent = from.written;
        true
    }

    /// Gives lent room up: `from`, which may have written there, keeps its written bytes.
    #[inline]
    pub fn forgo_lent(&mut self, room: &mut Room, from: Option<&mut Self>) {
        if let Some(from) = from
            && from.is_empty()
            && from.list.entries == 1
            && from.shares_store(room)
        {
            room.take_entry(from);
        }
        if std::mem::take(&mut room.is_lent)
            && let Some(lent) = &room.segment
            && lent.filled() == room.start as usize
        {
            // Nothing was written behind the gap: the next write takes its place.
            lent.set_filled(room.gap as usize);
        }
        if self.is_empty() {
            self.release();
        }
    }

    #[inline]
    fn shares_store(&self, room: &Room) -> bool {
        match (&self.pool, &room.spare.pool) {
            (Some(pool), Some(other)) => std::ptr::eq(pool.shared(), other.shared()),
            _ => false,
        }
    }
}

/// Lent room has at least so many bytes.
const LENT_BYTES_MIN: usize = 256;

const _: () = assert!(LENT_BYTES_MIN >= FILL_ROOM_MIN);
