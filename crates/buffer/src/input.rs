//! `Input`: what a codec reads from.
//!
//! One contiguous region of unread bytes. While a connection is visited it usually lies in the loop's scratch, where
//! the bytes were received; between visits it lies in a right-sized segment of its own, and only if bytes are left.

use crate::pool::Pool;
use crate::segment::Segment;
use crate::slice::Slice;

/// The unread bytes of a connection, in one piece; 16 bytes large and without memory while there are none.
///
/// ```
/// use tidegate_buffer::{Input, Pool};
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

    /// TEMP
    pub fn set_escaping(&mut self, _on: bool) {}

    /// All unread bytes.
    #[must_use]
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        match &self.segment {
            Some(segment) => segment.view(self.start as usize, self.end as usize),
            None => &[],
        }
    }

    /// How many bytes are unread.
    #[must_use]
    #[inline]
    pub fn len(&self) -> usize {
        (self.end - self.start) as usize
    }

    /// Whether all was read.
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

    /// Reads the first `count` bytes as a view, without copying.
    ///
    /// # Panics
    /// If there are fewer.
    #[must_use]
    #[inline]
    pub fn take(&mut self, count: usize) -> Slice {
        assert!(count <= self.len(), "take {count} of {} bytes", self.len());
        let start = self.start as usize;
        self.start += count as u32;
        match &self.segment {
            Some(segment) => Slice::new(segment.clone(), start, count),
            None => Pool::new().copy(&[]),
        }
    }

    /// Reads everything.
    #[must_use]
    pub fn take_all(&mut self) -> Slice {
        self.take(self.len())
    }

    /// Adds bytes behind the unread ones.
    ///
    /// An empty input becomes a view of them. A short rest is copied in front of them where they were received. A
    /// long one grows by doubling, so that the cost of a message that arrives in many pieces stays linear.
    pub fn append(&mut self, more: Slice, pool: &Pool) {
        if more.is_empty() {
            return;
        }
        if self.is_empty() {
            let (segment, start, end) = more.into_parts();
            *self = Self { segment: Some(segment), start: start as u32, end: end as u32 };
        } else if !self.put_before(&more) {
            self.extend(&more, pool);
        }
    }

    /// Moves what is left into memory of its own, and lets go of the scratch or of a segment of which
    /// more than half was read. The engine calls it at the end of every visit.
    pub fn settle(&mut self, pool: &Pool) {
        if self.is_empty() {
            *self = Self::new();
            return;
        }
        if let Some(segment) = &self.segment
            && (segment.is_scratch() || segment.capacity() > 2 * self.len() + SLACK_BYTES)
        {
            let own = pool.copy(self.bytes());
            *self = Self { segment: Some(own.segment().clone()), start: 0, end: own.len() as u32 };
        }
    }

    /// Bytes of memory that it keeps alive.
    #[must_use]
    pub fn held(&self) -> usize {
        self.segment.as_ref().map_or(0, Segment::capacity)
    }

    /// Copies the unread bytes in front of `more`, if there is unseen room where `more` was received.
    fn put_before(&mut self, more: &Slice) -> bool {
        let rest = self.len();
        let (segment, start, end) = more.clone().into_parts();
        // What lies below the floor nobody sees. The floor stays above zero, which is how a scratch is told.
        if start != segment.floor() || rest >= start {
            return false;
        }
        let first = start - rest;
        // SAFETY: `first < start <= capacity`.
        let target = unsafe { segment.base().add(first) };
        // SAFETY: `first..start` lies in the segment below its floor, so nobody sees it; the bytes of this input are
        // seen, so they lie elsewhere.
        unsafe { target.copy_from_nonoverlapping(self.bytes().as_ptr(), rest) };
        segment.set_floor(first);
        *self = Self { segment: Some(segment), start: first as u32, end: end as u32 };
        true
    }

    fn extend(&mut self, more: &[u8], pool: &Pool) {
        let total = self.len() + more.len();
        let in_place = self.segment.as_ref().is_some_and(|segment| {
            !segment.is_scratch() && segment.filled() == self.end as usize && segment.room() >= more.len()
        });
        if !in_place {
            let grown = pool.segment_for(if self.len() > SLACK_BYTES { total.max(2 * self.len()) } else { total });
            grown.append(self.bytes());
            *self = Self { end: self.len() as u32, start: 0, segment: Some(grown) };
        }
        let segment = self.segment.as_ref().expect("it has bytes, so it has a segment");
        let appended = segment.append(more);
        debug_assert_eq!(appended, more.len());
        self.end += appended as u32;
    }
}

impl std::fmt::Debug for Input {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Input(b\"{}\")", self.bytes().escape_ascii())
    }
}

/// A segment this much larger than twice its unread bytes is not worth a copy to get rid of.
const SLACK_BYTES: usize = 512;

const _: () = assert!(size_of::<Input>() == 16);
