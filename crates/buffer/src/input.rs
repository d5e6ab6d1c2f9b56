//! `Input`: the received bytes that a codec reads.
//!
//! One contiguous region of unread bytes. During a dispatch it usually lies in the loop's scratch, where the bytes were
//! received. Between dispatches it lies in a segment of its own size, and only if bytes are left.
//!
//! Invariants:
//! - `start` and `end` both carry the bit [`ESCAPING`], or neither does; likewise [`EXCLUSIVE`]. Their difference is
//!   therefore a length in all cases; only code that indexes the segment masks the bits off.
//! - While [`EXCLUSIVE`] is set, no other holder of the segment has a view of a byte from `start` to `end`. Reading moves
//!   `start` behind the bytes of the view that it returns, and each operation that changes the range otherwise clears
//!   the bit, so the bit needs no upkeep.

use std::ops::Range;

use crate::pool::Pool;
use crate::run;
use crate::segment::Segment;
use crate::slice::{DETACHED_PART, SHARED_BYTES, Slice};

/// The unread bytes of a connection, in one piece; 16 bytes large and without memory while there are none.
///
/// ```
/// use tidegate::codec::{Input, Pool};
///
/// let pool = Pool::new();
/// let mut input = Input::new();
/// input.append(pool.copy(b"GET / "), &pool);
/// input.append(pool.copy(b"HTTP/1.1"), &pool);
/// let method = input.take(3);
/// input.consume(1);
/// assert_eq!((&*method, input.bytes()), (&b"GET"[..], &b"/ HTTP/1.1"[..]));
/// ```
#[derive(Default)]
pub struct Input {
    segment: Option<Segment>,
    start: u32,
    end: u32,
}

impl Input {
    /// An input without bytes.
    #[must_use]
    pub const fn new() -> Self {
        Self { segment: None, start: 0, end: 0 }
    }

    /// Sets whether the application may keep slices taken from now on beyond the current event, without a time limit.
    ///
    /// If so, [`take`](Self::take) returns slices as [`Slice::detach`] would: it copies those of less than a sixteenth
    /// of their segment, so that a hundred bytes never pin 64 KiB. [`append`](Self::append) copies a short batch once,
    /// and `take` copies the messages of a long batch in runs, so that messages share one copy as far as that rule lets
    /// them. Bytes that are already unread are covered as well. Off by default, and in the value that
    /// [`std::mem::take`] leaves behind.
    ///
    /// ```
    /// use tidegate::codec::{Input, Pool};
    ///
    /// let pool = Pool::new();
    /// let mut input = Input::new();
    /// input.set_escaping(true);
    /// input.append(pool.copy(&[7; 64_000]), &pool);
    /// let kept = input.take(100);
    /// drop(input);
    /// assert_eq!(kept.len(), 100);
    /// assert!(pool.ledger().used() < 200, "the other 63,900 bytes are gone");
    /// ```
    pub fn set_escaping(&mut self, on: bool) {
        let bit = if on { ESCAPING } else { 0 };
        self.start = self.start & !ESCAPING | bit;
        self.end = self.end & !ESCAPING | bit;
    }

    /// Whether the application may keep views of taken bytes; see [`set_escaping`](Self::set_escaping).
    #[must_use]
    #[inline]
    pub fn is_escaping(&self) -> bool {
        self.start & ESCAPING != 0
    }

    /// All unread bytes.
    #[must_use]
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        match &self.segment {
            Some(segment) => segment.view(self.first(), self.first() + self.len()),
            None => &[],
        }
    }

    /// How many bytes are unread.
    #[must_use]
    #[inline]
    pub fn len(&self) -> usize {
        (self.end - self.start) as usize
    }

    /// Whether all bytes were read.
    #[must_use]
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.start == self.end
    }

    /// Counts the first `count` bytes as read.
    ///
    /// # Panics
    /// If there are fewer.
    #[inline]
    pub fn consume(&mut self, count: usize) {
        assert!(count <= self.len(), "consume {count} of {} bytes", self.len());
        self.start += count as u32;
    }

    /// Reads the first `count` bytes as a view, without copying, unless the input is
    /// [escaping](Self::set_escaping) and they are few.
    ///
    /// # Panics
    /// If there are fewer.
    #[must_use]
    #[inline]
    pub fn take(&mut self, count: usize) -> Slice {
        assert!(count <= self.len(), "take {count} of {} bytes", self.len());
        let start = self.first();
        self.start += count as u32;
        // As a pair: both paths then keep it in registers.
        let (segment, start) = match &self.segment {
            Some(segment) if !self.is_escaping() => (segment.clone(), start),
            Some(segment) => detached(segment, start, count, self.len()),
            None => empty_view(),
        };
        Slice::new(segment, start, count)
    }

    /// Reads everything.
    #[must_use]
    pub fn take_all(&mut self) -> Slice {
        self.take(self.len())
    }

    /// The unread bytes, for decoding in place; `None` if another view of them may exist.
    ///
    /// Bytes that were just received have no other view. Views that [`take`](Self::take) and
    /// [`move_to`](Self::move_to) make of bytes that are read afterwards are no hindrance: they do not cover unread ones.
    ///
    /// ```
    /// use tidegate::codec::{Input, Pool};
    ///
    /// let pool = Pool::new();
    /// let mut input = Input::new();
    /// input.append(pool.copy(b"ebb flow"), &pool);
    /// input.bytes_mut().expect("this is the only view")[..3].make_ascii_uppercase();
    /// let ebb = input.take(3);
    /// input.bytes_mut().expect("`ebb` shows none of the unread bytes").make_ascii_uppercase();
    /// assert_eq!((&*ebb, input.bytes()), (&b"EBB"[..], &b" FLOW"[..]));
    /// ```
    #[must_use]
    pub fn bytes_mut(&mut self) -> Option<&mut [u8]> {
        let (first, length) = (self.first(), self.len());
        let Some(segment) = self.segment.as_ref().filter(|_| length > 0) else { return Some(&mut []) };
        // Its copy would lack the bytes written now.
        segment.pool().end_run();
        if self.start & EXCLUSIVE == 0 {
            if !segment.has_one_view() {
                return None;
            }
            self.start |= EXCLUSIVE;
            self.end |= EXCLUSIVE;
        }
        // SAFETY: `first <= end <= capacity`.
        let bytes = unsafe { segment.base().add(first) };
        // SAFETY: `view` documents that the range is initialised. No other view of it exists: `has_one_view` checked
        // that for the whole segment when the bit was set, and the invariant at the top of this file keeps it so.
        // `Scratch` gives the segment to the next receive only while it is the only holder, and makes one view of each.
        Some(unsafe { std::slice::from_raw_parts_mut(bytes, length) })
    }

    /// The same, for bytes that may have other views: then it copies them once into memory of their own. A filter uses
    /// it, since whether the bytes have other views is up to its caller.
    ///
    /// ```
    /// use tidegate::codec::{Input, Pool};
    ///
    /// let pool = Pool::new();
    /// let (mut input, shared) = (Input::new(), pool.copy(b"ebb"));
    /// input.append(shared.clone(), &pool);
    /// assert!(input.bytes_mut().is_none());
    /// input.make_mut(&pool).make_ascii_uppercase();
    /// assert_eq!((input.bytes(), &*shared), (&b"EBB"[..], &b"ebb"[..]));
    /// ```
    pub fn make_mut(&mut self, pool: &Pool) -> &mut [u8] {
        if self.bytes_mut().is_none() {
            self.move_out(pool);
        }
        self.bytes_mut().expect("a fresh segment has one view")
    }

    /// Reads up to the end of `range`, moves the bytes in `range` to the end of `plain`, and drops those before it: the
    /// step of a filter that has decoded a frame in place. An empty `plain` becomes a view of them, which is
    /// [exclusive](Self::bytes_mut) if this input was; for other cases see [`append`](Self::append).
    ///
    /// ```
    /// use tidegate::codec::{Input, Pool};
    ///
    /// let pool = Pool::new();
    /// let (mut wire, mut plain) = (Input::new(), Input::new());
    /// wire.append(pool.copy(b"<ebb><flow>"), &pool);
    /// let at = wire.bytes()[1..].as_ptr();
    /// wire.move_to(1..4, &mut plain, &pool);
    /// wire.consume(1);
    /// assert_eq!((plain.bytes(), wire.bytes()), (&b"ebb"[..], &b"<flow>"[..]));
    /// assert_eq!(plain.bytes().as_ptr(), at);
    /// ```
    ///
    /// # Panics
    /// If the range does not lie within the unread bytes.
    pub fn move_to(&mut self, range: Range<usize>, plain: &mut Self, pool: &Pool) {
        assert!(range.start <= range.end && range.end <= self.len(), "{range:?} of {} bytes", self.len());
        let first = self.first() + range.start;
        self.start += range.end as u32;
        let Some(segment) = self.segment.as_ref().filter(|_| !range.is_empty()) else { return };
        let was_empty = plain.is_empty();
        plain.append(Slice::new(segment.clone(), first, range.len()), pool);
        let is_view = plain.segment.as_ref().is_some_and(|own| own.base() == segment.base());
        if was_empty && is_view {
            plain.start |= self.start & EXCLUSIVE;
            plain.end |= self.start & EXCLUSIVE;
        }
    }

    /// Adds bytes behind the unread ones.
    ///
    /// An empty input becomes a view of them. A rest that is short, or not longer than they are, is copied in front of
    /// them, into the segment where they were received. For other rests the segment grows by doubling, so that the cost
    /// of a message in many pieces stays linear; from 16 to 64 KiB by a quarter.
    ///
    /// An [escaping](Self::set_escaping) input copies bytes that make up less than a sixteenth of their segment.
    ///
    /// # Panics
    /// If more than 1 GiB would be unread.
    #[inline]
    pub fn append(&mut self, more: Slice, pool: &Pool) {
        // The usual case: it keeps no segment, so it is empty.
        if self.segment.is_none() && !self.is_escaping() && !more.is_empty() && more.end() <= BYTES_MAX {
            let (segment, start, end) = more.into_parts();
            self.segment = Some(segment);
            (self.start, self.end) = (start as u32, end as u32);
        } else {
            self.append_behind(more, pool);
        }
    }

    #[inline(never)]
    fn append_behind(&mut self, more: Slice, pool: &Pool) {
        let total = self.len() + more.len();
        assert!(total <= BYTES_MAX, "{total} unread bytes are more than an input holds");
        if more.is_empty() {
            return;
        }
        let copies = self.is_escaping() && total < more.segment().capacity() / DETACHED_PART;
        if self.is_empty() {
            let (segment, start, end) = more.into_parts();
            if copies || end > BYTES_MAX {
                let own = pool.copy(segment.view(start, end));
                self.set_view(own.segment().clone(), 0, end - start);
            } else {
                self.set_view(segment, start, end);
            }
        } else if copies || !self.put_before(&more) {
            self.extend(&more, pool);
        }
    }

    /// Moves the unread bytes into memory with room for `total` bytes, so that a message that is received in parts is
    /// copied once. Does nothing if that memory would be more than about twice the unread bytes: bytes that did not
    /// come cost a connection no more than those that came. Does nothing if there is room already.
    ///
    /// ```
    /// use tidegate::codec::{Input, Pool};
    ///
    /// let pool = Pool::new();
    /// let mut input = Input::new();
    /// input.append(pool.copy(&[7; 50_000]), &pool);
    /// input.reserve(1 << 20, &pool);
    /// assert!(input.memory_bytes() < 60_000, "too little has come");
    /// input.reserve(70_000, &pool);
    /// let place = input.bytes().as_ptr();
    /// input.append(pool.copy(&[7; 20_000]), &pool);
    /// assert_eq!((input.len(), input.bytes().as_ptr()), (70_000, place));
    /// ```
    pub fn reserve(&mut self, total: usize, pool: &Pool) {
        let length = self.len();
        let missing = total.saturating_sub(length);
        // Less than the slack, since lengths are rounded up: `compact` must not release the reserved room.
        if missing == 0 || total > 2 * length + SLACK_BYTES / 2 || self.has_room(missing) {
            return;
        }
        let own = pool.segment_for(total);
        own.append(self.bytes());
        self.set_view(own, 0, length);
    }

    /// Moves the unread bytes into memory of their own, and releases the scratch, or a segment of which more than half
    /// was read. The engine calls it at the end of every dispatch.
    #[inline]
    pub fn compact(&mut self, pool: &Pool) {
        if self.is_escaping() {
            pool.end_run();
        }
        if self.is_empty() {
            self.segment = None;
            (self.start, self.end) = (self.start & ESCAPING, self.end & ESCAPING);
        } else {
            self.compact_rest(pool);
        }
    }

    #[inline(never)]
    fn compact_rest(&mut self, pool: &Pool) {
        if let Some(segment) = &self.segment
            && (segment.is_scratch() || segment.requested_at_least() > 2 * self.len() + SLACK_BYTES)
        {
            self.move_out(pool);
        }
    }

    /// Bytes of memory that the input keeps alive.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        self.segment.as_ref().map_or(0, Segment::capacity)
    }

    /// Where the first unread byte lies.
    #[inline]
    fn first(&self) -> usize {
        (self.start & !(ESCAPING | EXCLUSIVE)) as usize
    }

    /// Copies the unread bytes into memory of their own.
    fn move_out(&mut self, pool: &Pool) {
        let own = pool.segment_for(self.len());
        own.append(self.bytes());
        self.set_view(own, 0, self.len());
    }

    /// Becomes a view of other bytes, which may have other views; the escaping bit stays.
    fn set_view(&mut self, segment: Segment, start: usize, end: usize) {
        debug_assert!(start <= end && end <= BYTES_MAX);
        let bit = self.start & ESCAPING;
        *self = Self { segment: Some(segment), start: start as u32 | bit, end: end as u32 | bit };
    }

    /// Copies the unread bytes in front of `more`, if there is unseen room where `more` was received.
    fn put_before(&mut self, more: &Slice) -> bool {
        let rest = self.len();
        let (segment, start, end) = more.clone().into_parts();
        // No view covers the bytes below the floor. The floor of a scratch is above zero; that of any other segment is
        // zero.
        if start != segment.floor() || rest >= start || rest > more.len().max(SHORT_REST_BYTES) {
            return false;
        }
        let first = start - rest;
        // SAFETY: `first < start <= capacity`.
        let target = unsafe { segment.base().add(first) };
        // SAFETY: `first..start` lies in the segment below its floor, so no view covers it; views cover the bytes of
        // this input, so they lie elsewhere.
        unsafe { target.copy_from_nonoverlapping(self.bytes().as_ptr(), rest) };
        segment.pool().ledger.count_copy(rest);
        segment.lower_floor(first);
        self.set_view(segment, first, end);
        true
    }

    /// Whether so many bytes can be appended where the unread ones lie.
    fn has_room(&self, bytes: usize) -> bool {
        let end = self.first() + self.len();
        self.segment.as_ref().is_some_and(|segment| {
            !segment.is_scratch()
                && segment.filled() == end
                && segment.room() >= bytes
                && end.saturating_add(bytes) <= BYTES_MAX
        })
    }

    fn extend(&mut self, more: &[u8], pool: &Pool) {
        let total = self.len() + more.len();
        if !self.has_room(more.len()) {
            let grown = match self.len() {
                ..=SLACK_BYTES => total,
                // The unread bytes of a stream fit its window: they leave little of their memory unused.
                length @ FRAME_BYTES_MIN..WINDOW_BYTES => total.max(length + length / 4),
                length => total.max(2 * length).min(BYTES_MAX),
            };
            let grown = pool.segment_for(grown);
            grown.append(self.bytes());
            self.set_view(grown, 0, self.len());
        }
        let segment = self.segment.as_ref().expect("it has bytes, so it has a segment");
        let appended = segment.append(more);
        debug_assert_eq!(appended, more.len());
        self.end += appended as u32;
    }
}

/// A view of `count` bytes, which the application may keep; `left` unread ones lie behind them. Outlined from `take`, so
/// that little code is inlined.
#[inline(never)]
fn detached(segment: &Segment, start: usize, count: usize, left: usize) -> (Segment, usize) {
    if segment.is_scratch() {
        return run::detached(segment, start, count, left);
    }
    // The messages of a small batch share its copy.
    if segment.capacity() <= DETACHED_PART * count + SHARED_BYTES {
        return (segment.clone(), start);
    }
    let (segment, start, _) = Slice::new(segment.clone(), start, count).detach().into_parts();
    (segment, start)
}

/// The offset in an input that has never received bytes.
#[cold]
fn empty_view() -> (Segment, usize) {
    (Pool::new().segment_for(0), 0)
}

impl std::fmt::Debug for Input {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Input(b\"{}\")", self.bytes().escape_ascii())
    }
}

/// If a segment exceeds twice its unread bytes by no more than this, a copy costs more than it saves.
const SLACK_BYTES: usize = 512;

/// From this length on, a whole HTTP/2 frame, the memory of a rest grows by a quarter.
const FRAME_BYTES_MIN: usize = 16 * 1024;

/// Up to this length, the usual window of a stream; beyond it the memory doubles.
const WINDOW_BYTES: usize = 64 * 1024;

/// A rest of this length is copied in front of the received bytes even if those are fewer.
const SHORT_REST_BYTES: usize = 4 * 1024 - 1;

/// The bit of `start` and `end` that marks an escaping input.
const ESCAPING: u32 = 1 << 31;

/// The bit of `start` and `end` that is set while no other view of the unread bytes exists. If it is not set, there may
/// be none either: `bytes_mut` finds out.
const EXCLUSIVE: u32 = 1 << 30;

/// The most bytes that are unread at a time, and the highest offset in a segment: the largest value below those bits.
const BYTES_MAX: usize = EXCLUSIVE as usize - 1;

const _: () = assert!(size_of::<Input>() == 16);
