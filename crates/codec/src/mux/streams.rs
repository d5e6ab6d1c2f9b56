//! `Streams`: the streams of one session by number, their windows both ways, and the order in which they send.
//!
//! Flow control is by credit, as in RFC 9113 §5.2: a side sends no more bytes on a stream, and on all streams together,
//! than the other side has granted. The table counts both directions; a protocol only reads and writes the frames that
//! carry the numbers. Bytes beyond a window are an error; consumed bytes are granted again once they are half a window.
//!
//! A stream that closes gives the part of the session's window that it still occupies back, so no window is leaked.

mod credit;

use std::cell::Cell;

use hashbrown::HashTable;
use tidegate_buffer::injected::{self, Bug};

use super::received::ReceivedBytes;
use super::schedule::{Links, Schedule};

/// A stream of a session: its number, and its place in the table. A key of a stream that is closed finds nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct StreamKey {
    pub(super) index: u32,
    id: u32,
}

impl StreamKey {
    /// The number of the stream in the protocol.
    #[must_use]
    pub fn id(self) -> u32 {
        self.id
    }

    /// Its place in the table: unique among the streams that are open, and small.
    #[must_use]
    pub fn index(self) -> u32 {
        self.index
    }
}

/// The initial windows of a session and its streams, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Windows {
    /// The bytes that the peer may send on one stream before some of them are consumed.
    pub stream_receive: u32,
    /// The bytes that the peer may send on all streams together before some of them are consumed.
    pub session_receive: u32,
    /// The bytes that we may send on one stream before the peer grants more.
    pub stream_send: u32,
    /// The bytes that we may send on all streams together before the peer grants more.
    pub session_send: u32,
}

/// A peer that does not respect flow control.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum FlowError {
    /// It sent more bytes than the window of the stream or the session allows.
    Exceeded,
    /// It granted so much that the window has more than 2^31 − 1 bytes.
    Overflow,
    /// It opened and reset many more streams than it let end, so that they cost us more than it (CVE-2023-44487).
    ResetFlood,
}

/// Credit for the peer, which a protocol writes as a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WindowUpdate {
    /// The number of the stream; `None` for the session.
    pub stream: Option<u32>,
    /// How many bytes more the peer may send.
    pub bytes: u32,
}

/// The streams of one session; without memory of its own while there are none. `S` is a protocol's state for each.
#[derive(Debug)]
pub struct Streams<S = ()> {
    /// `None` while there is no stream, but within a dispatch.
    tables: Option<Box<Tables<S>>>,
    send_window: i64,
    receive: ReceivedBytes,
    windows: Windows,
    /// How large receive windows become; 0 if they stay as they are.
    window_max: u32,
    by_peer: u32,
    /// Streams that this side has opened and that have not ended in both directions.
    by_us: u32,
    /// Streams of the peer that it has reset, less those that have ended since.
    resets: u32,
    resets_max: u32,
    /// How many places the last table had. The next one grows to as many at once, if a few are not enough: a peer that
    /// sends its requests together has about as many streams each time, and growing costs more than the streams. A single
    /// stream that stays open after many holds no place of theirs.
    places_before: u32,
    /// The lowest urgency that the peer has asked for so far, or the one of streams for which it has not.
    most_urgent: u8,
}

/// The tables of a session's streams.
#[derive(Debug)]
struct Tables<S> {
    entries: Vec<StreamEntry<S>>,
    /// The first vacant entry.
    vacant: u32,
    by_id: HashTable<u32>,
    /// Where the last stream was found.
    found: Cell<u32>,
    schedule: Schedule,
    /// Streams whose window has to be announced.
    updates: Vec<u32>,
    /// Streams whose peer this side has stopped, until their owners know.
    stopped: Vec<StreamKey>,
}

impl<S> Default for Tables<S> {
    fn default() -> Self {
        Self {
            entries: Vec::new(),
            vacant: NONE,
            by_id: HashTable::new(),
            found: Cell::new(0),
            schedule: Schedule::default(),
            updates: Vec::new(),
            stopped: Vec::new(),
        }
    }
}

impl<S: Default> Tables<S> {
    /// Adds an entry, and returns its index. `places_before` is how many places the last table had.
    fn insert(&mut self, entry: StreamEntry<S>, places_before: usize) -> u32 {
        let id = entry.id;
        if self.vacant == NONE
            && self.entries.len() == self.entries.capacity()
            && self.entries.len() > 2 * self.by_id.len()
        {
            self.reclaim();
        }
        let index = if self.vacant == NONE {
            if self.entries.len() == self.entries.capacity() {
                self.grow(places_before);
            }
            self.entries.push(entry);
            self.entries.len() as u32 - 1
        } else {
            let index = self.vacant;
            self.vacant = self.entries[index as usize].next;
            self.entries[index as usize] = entry;
            index
        };
        let entries = &self.entries;
        self.by_id.insert_unique(hash(id), index, |&index| hash(entries[index as usize].id));
        index
    }

    #[cold]
    fn grow(&mut self, places_before: usize) {
        let count = self.entries.len();
        // By a sixteenth: doubling would waste half a record for each stream.
        let step = (count / 16).max(PLACES_MIN);
        let more = if count == 0 { step } else { step.max(places_before.saturating_sub(count)) };
        self.entries.reserve_exact(more);
        let entries = &self.entries;
        self.by_id.reserve(more, |&index| hash(entries[index as usize].id));
    }

    /// Finds the places of closed streams that are still in lists: while the session has no window, nothing else takes them
    /// out. At least every second place is one of those, so the cost is constant for each stream.
    #[cold]
    fn reclaim(&mut self) {
        self.schedule.remove_closed(&mut self.entries);
        for index in 0..self.entries.len() {
            if self.entries[index].flags & (VACANT | LISTED | UPDATES) == VACANT {
                self.vacate(index as u32);
            }
        }
    }

    /// Adds an entry that no list has to the vacant ones.
    fn vacate(&mut self, index: u32) {
        self.entries[index as usize].next = std::mem::replace(&mut self.vacant, index);
    }

    fn push_ready(&mut self, index: u32) {
        let entry = &mut self.entries[index as usize];
        entry.flags |= LISTED;
        let urgency = usize::from(entry.urgency);
        self.schedule.push_ready(&mut self.entries, index, urgency);
    }

    fn push_ready_first(&mut self, index: u32) {
        let entry = &mut self.entries[index as usize];
        entry.flags |= LISTED;
        let urgency = usize::from(entry.urgency);
        self.schedule.push_ready_first(&mut self.entries, index, urgency);
    }

    fn push_stalled(&mut self, index: u32) {
        let entry = &mut self.entries[index as usize];
        entry.flags |= LISTED;
        let urgency = usize::from(entry.urgency);
        self.schedule.push_stalled(&mut self.entries, index, urgency);
    }
}

#[derive(Debug)]
struct StreamEntry<S> {
    id: u32,
    /// The next entry of the list in which this one is: of vacant ones, of ready ones.
    next: u32,
    owner: [u32; 2],
    send_window: i32,
    receive: ReceivedBytes,
    flags: u8,
    urgency: u8,
    /// How often its receive window has doubled.
    doublings: u8,
    state: S,
}

/// The places of the first streams.
const PLACES_MIN: usize = 4;

/// The peer opened it, and it counts as open.
const BY_PEER: u8 = 1;
/// It is in a list of the schedule.
const LISTED: u8 = 1 << 1;
/// It has bytes and waits for its window.
const BLOCKED: u8 = 1 << 2;
/// We send no more on it.
const LOCAL_ENDED: u8 = 1 << 3;
/// The peer sends no more on it.
const PEER_ENDED: u8 = 1 << 4;
/// Its window is to be announced.
const UPDATES: u8 = 1 << 5;
/// No stream.
const VACANT: u8 = 1 << 6;
/// It sends all that it has before the next stream of its urgency takes a turn.
const IN_ORDER: u8 = 1 << 7;

/// Nothing more is sent or received on it.
const BOTH_ENDED: u8 = LOCAL_ENDED | PEER_ENDED;

impl<S> StreamEntry<S> {
    /// Whether this side has opened it, and it counts as open. Of a stream of the peer the flag is cleared when both sides
    /// have ended it.
    fn is_open_by_us(&self) -> bool {
        self.flags & BY_PEER == 0 && self.flags & BOTH_ENDED != BOTH_ENDED
    }
}

impl<S: Default> Streams<S> {
    /// A table without streams.
    ///
    /// # Panics
    /// If a window has more than 2^31 − 1 bytes.
    #[must_use]
    pub fn new(windows: Windows) -> Self {
        let Windows { stream_receive, session_receive, stream_send, session_send } = windows;
        let largest = stream_receive.max(session_receive).max(stream_send).max(session_send);
        assert!(i64::from(largest) <= WINDOW_MAX, "a window of {largest} bytes");
        Self {
            tables: None,
            send_window: session_send.into(),
            receive: ReceivedBytes::default(),
            windows,
            window_max: 0,
            by_peer: 0,
            by_us: 0,
            resets: 0,
            resets_max: RESETS_MAX,
            places_before: 0,
            most_urgent: URGENCY_DEFAULT,
        }
    }

    /// Has receive windows grow: whenever credit is written for a stream, or for the session, whose application has
    /// consumed all that arrived, the window doubles, up to `bytes_max`. So a peer that is far away gets a window for the
    /// whole way, and one whose bytes wait does not. That of the session doubles also when bytes that wait on streams
    /// occupy half of it, then beyond `bytes_max` as well: one stream may have that many. Windows stay as they are unless
    /// this is set.
    ///
    /// # Panics
    /// If a window would have more than 2^30 bytes.
    pub fn set_window_max(&mut self, bytes_max: u32) {
        assert!(bytes_max <= WINDOW_CEILING, "windows of {bytes_max} bytes");
        self.window_max = bytes_max;
    }

    /// Sets how many more streams the peer may reset than it lets end; 200 unless a protocol sets another number. One that
    /// counts resets itself sets `u32::MAX`: this number does not decrease with time.
    pub fn set_resets_max(&mut self, resets_max: u32) {
        self.resets_max = resets_max;
    }

    /// Streams that are not closed.
    #[must_use]
    pub fn len(&self) -> usize {
        self.tables.as_ref().map_or(0, |tables| tables.by_id.len())
    }

    /// Whether there is none.
    #[must_use]
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.tables.as_ref().is_none_or(|tables| tables.by_id.is_empty())
    }

    /// Streams that the peer has opened and that have not ended in both directions. A protocol bounds them.
    #[must_use]
    pub fn opened_by_peer(&self) -> usize {
        self.by_peer as usize
    }

    /// Streams that this side has opened and that have not ended in both directions. The peer bounds them.
    #[must_use]
    pub fn opened_locally(&self) -> usize {
        self.by_us as usize
    }

    /// Adds a stream. The caller has checked that the number is not in use.
    pub fn open(&mut self, id: u32, by_peer: bool) -> StreamKey {
        debug_assert!(self.find(id).is_none(), "stream {id} is open");
        let entry = StreamEntry {
            id,
            next: NONE,
            owner: [0; 2],
            send_window: self.windows.stream_send as i32,
            receive: ReceivedBytes::default(),
            flags: if by_peer { BY_PEER } else { 0 },
            urgency: URGENCY_DEFAULT,
            doublings: 0,
            state: S::default(),
        };
        self.by_peer += u32::from(by_peer);
        self.by_us += u32::from(!by_peer);
        let places = self.places_before as usize;
        StreamKey { index: self.tables.get_or_insert_default().insert(entry, places), id }
    }

    /// For how many streams there is memory.
    #[cfg(test)]
    pub(super) fn room(&self) -> usize {
        self.tables.as_ref().map_or(0, |tables| tables.entries.capacity())
    }

    /// The stream with a number, unless it is closed.
    #[must_use]
    #[inline]
    pub fn find(&self, id: u32) -> Option<StreamKey> {
        let tables = self.tables.as_ref()?;
        // A peer often sends several frames of one stream, or of streams that were opened one after the other.
        let last = tables.found.get();
        for index in [last, last.wrapping_add(1)] {
            if let Some(entry) = tables.entries.get(index as usize)
                && entry.id == id
                && entry.flags & VACANT == 0
            {
                tables.found.set(index);
                return Some(StreamKey { index, id });
            }
        }
        self.look_up(id)
    }

    fn look_up(&self, id: u32) -> Option<StreamKey> {
        let tables = self.tables.as_ref()?;
        let index = *tables.by_id.find(hash(id), |&index| tables.entries[index as usize].id == id)?;
        tables.found.set(index);
        Some(StreamKey { index, id })
    }

    /// The open stream at a place of the table.
    #[must_use]
    pub fn at(&self, index: u32) -> Option<StreamKey> {
        let entry = self.tables.as_ref()?.entries.get(index as usize).filter(|entry| entry.flags & VACANT == 0)?;
        Some(StreamKey { index, id: entry.id })
    }

    /// Every open stream.
    pub fn iter(&self) -> impl Iterator<Item = StreamKey> {
        (0..self.places()).filter_map(|index| self.at(index))
    }

    /// Removes a stream. The bytes that it received and that were not consumed count as consumed for the session.
    pub fn close(&mut self, key: StreamKey) {
        self.close_for_now(key);
        self.release();
    }

    /// Gives up the memory of the tables if there is no stream.
    pub fn release(&mut self) {
        if let Some(tables) = &self.tables
            && tables.by_id.is_empty()
        {
            self.places_before = tables.entries.len() as u32;
            self.tables = None;
        }
    }

    /// The same as [`close`](Self::close), but the memory of the tables stays until [`release`](Self::release): others will
    /// be opened in a moment.
    pub fn close_for_now(&mut self, key: StreamKey) {
        let Some(entry) = self.entry_mut(key) else { return };
        let rest = entry.receive.outstanding - entry.receive.consumed;
        let was_by_peer = entry.flags & BY_PEER != 0;
        let was_by_us = entry.is_open_by_us();
        let listed = entry.flags & (LISTED | UPDATES);
        entry.flags = VACANT | listed;
        entry.state = S::default();
        self.by_peer -= u32::from(was_by_peer);
        self.by_us -= u32::from(was_by_us);
        if rest > 0 && !injected::is_injected(Bug::WindowLeaked) {
            self.consume_session(rest);
        }
        let Some(tables) = &mut self.tables else { return };
        if let Ok(found) = tables.by_id.find_entry(hash(key.id), |&index| index == key.index) {
            found.remove();
        }
        if listed == 0 {
            tables.vacate(key.index);
        }
    }

    /// How many places the table has.
    fn places(&self) -> u32 {
        self.tables.as_ref().map_or(0, |tables| tables.entries.len() as u32)
    }

    fn entry(&self, key: StreamKey) -> Option<&StreamEntry<S>> {
        let entry = self.tables.as_ref()?.entries.get(key.index as usize)?;
        (entry.id == key.id && entry.flags & VACANT == 0).then_some(entry)
    }

    fn entry_mut(&mut self, key: StreamKey) -> Option<&mut StreamEntry<S>> {
        let entry = self.tables.as_mut()?.entries.get_mut(key.index as usize)?;
        (entry.id == key.id && entry.flags & VACANT == 0).then_some(entry)
    }

    /// The protocol's state for a stream.
    #[must_use]
    pub fn state(&mut self, key: StreamKey) -> Option<&mut S> {
        self.entry_mut(key).map(|entry| &mut entry.state)
    }

    /// The number that the owner of the stream's queue has set.
    #[must_use]
    pub fn owner(&self, key: StreamKey) -> Option<[u32; 2]> {
        self.entry(key).map(|entry| entry.owner)
    }

    /// Sets the number by which the stream's queue is found.
    pub fn set_owner(&mut self, key: StreamKey, owner: [u32; 2]) {
        if let Some(entry) = self.entry_mut(key) {
            entry.owner = owner;
        }
    }

    /// The peer sends no more on a stream. Returns whether it was not known.
    pub fn end_by_peer(&mut self, key: StreamKey) -> bool {
        self.end(key, PEER_ENDED)
    }

    /// We send no more on a stream: its end was written.
    pub fn end_locally(&mut self, key: StreamKey) {
        self.end(key, LOCAL_ENDED);
    }

    /// This side has written that it wants no more of the peer's bytes on a stream: nothing more comes, without an event.
    /// [`transmit`](super::transmit) informs the owner of the queue.
    #[cold]
    pub fn stop_peer(&mut self, key: StreamKey) {
        if self.end_by_peer(key)
            && let Some(tables) = &mut self.tables
        {
            tables.stopped.push(key);
        }
    }

    /// The next stream whose peer was stopped.
    pub(super) fn next_stopped(&mut self) -> Option<StreamKey> {
        self.tables.as_mut()?.stopped.pop()
    }

    fn end(&mut self, key: StreamKey, side: u8) -> bool {
        let Some(entry) = self.entry_mut(key) else { return false };
        let is_new = entry.flags & side == 0;
        let was_by_us = entry.is_open_by_us();
        entry.flags |= side;
        let has_ended = entry.flags & BOTH_ENDED == BOTH_ENDED;
        if has_ended && was_by_us {
            self.by_us -= 1;
        } else if has_ended && entry.flags & BY_PEER != 0 {
            entry.flags &= !BY_PEER;
            self.by_peer -= 1;
            self.resets = self.resets.saturating_sub(1);
        }
        is_new
    }

    /// Closes a stream [for now](Self::close_for_now), if it has ended in both directions. Returns whether it has.
    pub fn close_ended(&mut self, key: StreamKey) -> bool {
        let has_ended = self.has_ended(key);
        if has_ended {
            self.close_for_now(key);
        }
        has_ended
    }

    /// All that is sent on a stream, `bytes` and its end, was written in one turn, and the peer, which has opened the
    /// stream, has ended it. It is closed [for now](Self::close_for_now).
    #[inline]
    pub fn close_answered(&mut self, key: StreamKey, bytes: u32) {
        self.send_window -= i64::from(bytes);
        // It has ended in order.
        self.resets = self.resets.saturating_sub(1);
        self.close_for_now(key);
    }

    /// The peer has reset a stream: it has ended in both directions, and the caller closes it.
    ///
    /// # Errors
    /// [`FlowError::ResetFlood`].
    pub fn reset_by_peer(&mut self, key: StreamKey) -> Result<(), FlowError> {
        let Some(entry) = self.entry_mut(key) else { return Ok(()) };
        let (was_by_peer, was_by_us) = (entry.flags & BY_PEER != 0, entry.is_open_by_us());
        entry.flags = entry.flags & !BY_PEER | BOTH_ENDED;
        self.by_us -= u32::from(was_by_us);
        self.by_peer -= u32::from(was_by_peer);
        self.resets = self.resets.saturating_add(was_by_peer.into());
        if self.resets > self.resets_max { Err(FlowError::ResetFlood) } else { Ok(()) }
    }

    /// Whether the peer sends no more on a stream.
    #[must_use]
    pub fn has_peer_ended(&self, key: StreamKey) -> bool {
        self.entry(key).is_some_and(|entry| entry.flags & PEER_ENDED != 0)
    }

    /// Whether our end of a stream was written.
    #[must_use]
    pub fn has_ended_locally(&self, key: StreamKey) -> bool {
        self.entry(key).is_some_and(|entry| entry.flags & LOCAL_ENDED != 0)
    }

    /// Whether a stream has ended in both directions.
    #[must_use]
    pub fn has_ended(&self, key: StreamKey) -> bool {
        self.entry(key).is_some_and(|entry| entry.flags & BOTH_ENDED == BOTH_ENDED)
    }

    /// The urgency of a stream, from 0, the first, to 7, the last (RFC 9218 §4.1). Unset it is 3.
    pub fn set_urgency(&mut self, key: StreamKey, urgency: u8) {
        if let Some(entry) = self.entry_mut(key) {
            entry.urgency = urgency.min(URGENCIES as u8 - 1);
            self.most_urgent = self.most_urgent.min(urgency);
        }
    }

    /// Whether the peer has not asked for any stream yet to come before this one.
    #[inline]
    pub(super) fn is_most_urgent(&self, key: StreamKey) -> bool {
        self.entry(key).is_some_and(|entry| entry.urgency <= self.most_urgent)
    }

    /// Whether a stream takes turns with others of its urgency, one frame at a time, or sends all that it has before the
    /// next one does (RFC 9218 §4.2). Unset it takes turns.
    pub fn set_incremental(&mut self, key: StreamKey, is_incremental: bool) {
        if let Some(entry) = self.entry_mut(key) {
            entry.flags = entry.flags & !IN_ORDER | if is_incremental { 0 } else { IN_ORDER };
        }
    }

    /// A stream has bytes to send, or its end.
    pub fn set_ready(&mut self, key: StreamKey) {
        let Some(entry) = self.entry_mut(key) else { return };
        if entry.flags & (LISTED | BLOCKED) != 0 {
            return;
        }
        if let Some(tables) = &mut self.tables {
            tables.push_ready(key.index);
        }
    }

    /// Whether no stream is to send, and the session has a window.
    #[inline]
    pub(super) fn admits_at_once(&self) -> bool {
        self.send_window > 0 && !self.has_ready()
    }

    /// Whether a stream is to send, and the session's window does not stop it.
    #[must_use]
    pub fn has_ready(&self) -> bool {
        self.tables.as_ref().is_some_and(|tables| tables.schedule.has_ready())
    }

    /// The next stream that is to send: of the lowest urgency, in turns.
    pub(super) fn next_ready(&mut self) -> Option<StreamKey> {
        loop {
            let tables = self.tables.as_mut()?;
            let (index, urgency) = tables.schedule.pop_ready(&tables.entries)?;
            let entry = &mut tables.entries[index as usize];
            entry.flags &= !LISTED;
            if entry.flags & VACANT != 0 {
                if entry.flags & UPDATES == 0 {
                    tables.vacate(index);
                }
                continue;
            }
            if entry.flags & LOCAL_ENDED != 0 {
                continue;
            }
            let key = StreamKey { index, id: entry.id };
            if usize::from(entry.urgency) > urgency {
                // It has changed meanwhile.
                self.set_ready(key);
                continue;
            }
            return Some(key);
        }
    }

    /// In its turn so many bytes of a stream were written. If it has more, it takes its next turn, or waits for a window.
    pub fn on_sent(&mut self, key: StreamKey, bytes: u32, has_more: bool) {
        self.send_window -= i64::from(bytes);
        let session_window = self.send_window;
        let Some(entry) = self.entry_mut(key) else { return };
        entry.send_window -= bytes as i32;
        if !has_more {
            return;
        }
        if entry.send_window <= 0 {
            entry.flags |= BLOCKED;
        } else if session_window <= 0 {
            if let Some(tables) = &mut self.tables {
                tables.push_stalled(key.index);
            }
        } else if entry.flags & (LISTED | IN_ORDER) == IN_ORDER {
            if let Some(tables) = &mut self.tables {
                tables.push_ready_first(key.index);
            }
        } else {
            self.set_ready(key);
        }
    }
}

impl<S> Links for Vec<StreamEntry<S>> {
    fn next(&self, index: u32) -> u32 {
        self[index as usize].next
    }

    fn set_next(&mut self, index: u32, next: u32) {
        self[index as usize].next = next;
    }

    fn unlist_closed(&mut self, index: u32) -> bool {
        let entry = &mut self[index as usize];
        let is_closed = entry.flags & VACANT != 0;
        if is_closed {
            entry.flags &= !LISTED;
        }
        is_closed
    }
}

/// The most bytes of a window that grows.
const WINDOW_CEILING: u32 = 1 << 30;

/// Numbers of streams come from the peer, in increasing order. A multiplication spreads them, and a table has no more
/// streams than the protocol's limit.
fn hash(id: u32) -> u64 {
    // The table uses the lowest and the highest bits; the best ones are in the middle and above.
    u64::from(id).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(24)
}

/// The end of a list.
pub(super) const NONE: u32 = u32::MAX;

/// Urgencies are below this.
pub(super) const URGENCIES: usize = 8;

const URGENCY_DEFAULT: u8 = 3;

/// How many more streams a peer may reset than it lets end.
const RESETS_MAX: u32 = 200;

/// The largest window (RFC 9113 §6.9.1).
const WINDOW_MAX: i64 = (1 << 31) - 1;

const _: () = assert!(size_of::<StreamEntry<()>>() == 32);
