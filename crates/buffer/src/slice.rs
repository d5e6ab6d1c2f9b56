//! `Slice`: a view of bytes in a segment.

use std::ops::{Deref, RangeBounds};

use bytes::Bytes;

use crate::pool::Pool;
use crate::segment::Segment;

/// A counted view of some bytes of a [`Segment`]; 16 bytes large, cloned without copying.
///
/// A view keeps its whole segment alive. A handler that keeps one beyond its event calls [`detach`](Slice::detach), so
/// that a hundred bytes never pin 64 KiB. To leave the loop's thread, bytes are copied: [`to_bytes`](Slice::to_bytes).
///
/// ```
/// use tidegate::codec::Pool;
///
/// let slice = Pool::new().copy(b"tide gate");
/// let word = slice.slice(5..);
/// assert_eq!(&*word, b"gate");
/// ```
#[derive(Clone)]
pub struct Slice {
    segment: Segment,
    start: u32,
    length: u32,
}

impl Slice {
    /// The `length` bytes from `start` on; the caller promises that they lie below the filled mark.
    #[inline]
    pub(crate) fn new(segment: Segment, start: usize, length: usize) -> Self {
        debug_assert!(start + length <= segment.filled());
        Self { segment, start: start as u32, length: length as u32 }
    }

    /// How many bytes it shows.
    #[must_use]
    pub fn len(&self) -> usize {
        self.length as usize
    }

    /// Whether it has no bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// A view of a part of this one.
    ///
    /// # Panics
    /// If the range does not lie within the slice.
    #[must_use]
    pub fn slice(&self, range: impl RangeBounds<usize>) -> Self {
        let (start, end) = bounds(&range, self.len());
        assert!(start <= end && end <= self.len(), "range {start}..{end} is outside a slice of {}", self.len());
        Self { segment: self.segment.clone(), start: self.start + start as u32, length: (end - start) as u32 }
    }

    /// Removes the first `count` bytes from the view.
    ///
    /// # Panics
    /// If there are fewer.
    pub fn advance(&mut self, count: usize) {
        assert!(count <= self.len(), "advance by {count} in a slice of {}", self.len());
        self.start += count as u32;
        self.length -= count as u32;
    }

    /// A slice that may be kept: copied out where it is less than a sixteenth of its segment, shared otherwise.
    #[must_use]
    pub fn detach(self) -> Self {
        if self.len() >= self.segment.capacity() / DETACHED_PART {
            return self;
        }
        Pool::of(&self.segment).copy(&self)
    }

    /// The same bytes in memory of which they fill at least three quarters: copied out where they fill less of their
    /// segment. A queue whose peer may read nothing takes them so.
    ///
    /// ```
    /// use tidegate::codec::Pool;
    ///
    /// let pool = Pool::new();
    /// let part = pool.copy(&[7; 64_000]).slice(..16_000).fit();
    /// assert!(pool.ledger().used() < 16_100);
    /// # drop(part);
    /// ```
    #[must_use]
    pub fn fit(self) -> Self {
        let capacity = self.segment.capacity();
        if self.len() >= capacity - capacity / UNFIT_PART { self } else { Pool::of(&self.segment).copy(&self) }
    }

    /// A copy that may leave the loop's thread.
    #[must_use]
    pub fn to_bytes(&self) -> Bytes {
        self.segment.pool().ledger.count_copy(self.len());
        Bytes::copy_from_slice(self)
    }

    /// The end of the view in its segment.
    #[inline]
    pub(crate) fn end(&self) -> usize {
        self.start as usize + self.len()
    }

    #[inline]
    pub(crate) fn into_parts(self) -> (Segment, usize, usize) {
        let (start, end) = (self.start as usize, self.start as usize + self.len());
        (self.segment, start, end)
    }

    pub(crate) fn segment(&self) -> &Segment {
        &self.segment
    }
}

impl Deref for Slice {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        let start = self.start as usize;
        self.segment.view(start, start + self.len())
    }
}

impl AsRef<[u8]> for Slice {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl PartialEq for Slice {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl Eq for Slice {}

impl std::fmt::Debug for Slice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "b\"{}\"", self.escape_ascii())
    }
}

fn bounds(range: &impl RangeBounds<usize>, length: usize) -> (usize, usize) {
    use std::ops::Bound;
    let start = match range.start_bound() {
        Bound::Included(&start) => start,
        Bound::Excluded(&start) => start.saturating_add(1),
        Bound::Unbounded => 0,
    };
    let end = match range.end_bound() {
        Bound::Included(&end) => end.saturating_add(1),
        Bound::Excluded(&end) => end,
        Bound::Unbounded => length,
    };
    (start, end)
}

/// A view of less than this part of its segment, a sixteenth, is copied when it is detached.
pub(crate) const DETACHED_PART: usize = 16;

/// A view that fits leaves at most this part of its segment, a quarter, unused.
const UNFIT_PART: usize = 4;

/// Bytes of a small batch that a message may pin beyond the sixteenth: less than a copy costs besides its bytes.
pub(crate) const SHARED_BYTES: usize = 24;

const _: () = assert!(size_of::<Slice>() == 16);
const _: () = assert!(size_of::<Option<Slice>>() == 16);
