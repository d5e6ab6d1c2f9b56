//! `Scratch`: the one block of memory that a loop receives into, used again for every connection.

use crate::injected::{self, Bug};
use crate::pool::Pool;
use crate::segment::Segment;
use crate::slice::Slice;

/// The largest receive: the space behind the headroom.
pub const RECEIVE_BYTES_MAX: usize = 64 * 1024;

/// The size of a receive where so many bytes are missing, and come fast: see [`ReceiveHint::bulk_bytes`].
pub const BULK_RECEIVE_BYTES: usize = 256 * 1024;

/// The largest receive for a message that its codec decodes where it is whole: see [`ReceiveHint::whole_bytes`].
pub const FRAME_RECEIVE_BYTES: usize = 128 * 1024;

/// Bytes kept free in front of the received bytes, unless a scratch is made [with less](Scratch::with_room), so that
/// the rest of an earlier receive can be put before it and both be decoded as one piece: a part of a TLS record fits.
pub const HEADROOM_BYTES: usize = 16 * 1024 + 512;

/// How the next receive of a connection is best sized: so that it ends where a frame ends, and no part of a frame has to
/// be copied until the rest arrives. A filter that knows the lengths of frames returns it.
///
/// ```
/// use tidegate::codec::ReceiveHint;
///
/// let hint = ReceiveHint { missing_bytes: 100, frame_bytes: 16_406, ..ReceiveHint::default() };
/// assert_eq!(hint.receive_bytes(65_536), 100 + 3 * 16_406);
/// assert_eq!(hint.receive_bytes(2_048), 100);
/// assert_eq!(ReceiveHint { bytes_max: 1_460, ..hint }.receive_bytes(65_536), 1_460);
/// assert_eq!(ReceiveHint { whole_bytes: 100_000, ..hint }.receive_bytes(2_048), 100_000);
/// assert_eq!(ReceiveHint { whole_bytes: 1 << 30, ..hint }.receive_bytes(2_048), 128 * 1024);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReceiveHint {
    /// Bytes that are missing from the frame of which a part was received; zero if there is none.
    pub missing_bytes: u32,
    /// The length of the frames that probably follow, in bytes; zero if it is unknown.
    pub frame_bytes: u32,
    /// The length of a receive that brings a message whole: the rest of the one at hand, or all of the next one. The
    /// receive has at least this length, up to [`FRAME_RECEIVE_BYTES`]; zero if it is unknown.
    pub whole_bytes: u32,
    /// The most bytes that the receive should bring; zero counts as one. By default there is no such bound.
    pub bytes_max: u32,
}

impl Default for ReceiveHint {
    /// A hint that knows nothing.
    fn default() -> Self {
        Self { missing_bytes: 0, frame_bytes: 0, whole_bytes: 0, bytes_max: u32::MAX }
    }
}

impl ReceiveHint {
    /// The size of a receive that would be `usual` bytes without the hint: at least the missing bytes, and as many
    /// whole frames as fit; `usual` if neither is known or fits. At most [`RECEIVE_BYTES_MAX`], or `whole_bytes` up to
    /// [`FRAME_RECEIVE_BYTES`] if that is more. At most `bytes_max` in any case.
    #[must_use]
    pub fn receive_bytes(self, usual: usize) -> usize {
        let (missing, frame) = (self.missing_bytes as usize, self.frame_bytes as usize);
        let frames = usual.saturating_sub(missing).checked_div(frame).unwrap_or(0);
        let bytes = match missing + frames * frame {
            0 => usual,
            bytes => bytes.min(RECEIVE_BYTES_MAX),
        };
        let whole = (self.whole_bytes as usize).min(FRAME_RECEIVE_BYTES);
        bytes.max(whole).min((self.bytes_max as usize).max(1))
    }

    /// How many bytes a receive may bring that is not bounded by [`RECEIVE_BYTES_MAX`]: those that are missing, up to
    /// `bytes_max`. A driver receives [`BULK_RECEIVE_BYTES`] at a time from a peer that sends fast while so many are
    /// missing.
    #[must_use]
    pub fn bulk_bytes(self) -> usize {
        self.missing_bytes.min(self.bytes_max) as usize
    }
}

/// The memory that a loop receives into. As long as no view of the last receive exists, the same warm memory serves the
/// next receive; otherwise the views keep it, and a fresh block takes its place.
///
/// ```
/// use tidegate::buffer::Scratch;
/// use tidegate::codec::Pool;
///
/// let mut scratch = Scratch::new(&Pool::new());
/// scratch.space(64)[..5].copy_from_slice(b"hello");
/// let received = scratch.received(5);
/// assert_eq!(&*received, b"hello");
/// ```
#[derive(Debug)]
pub struct Scratch {
    pool: Pool,
    segment: Option<Segment>,
    /// Bytes kept free in front of the received bytes.
    headroom: usize,
    /// The largest space that a caller can get.
    room: usize,
    /// The length of the last requested space. The bytes behind it are from an earlier receive, perhaps of another
    /// connection, and must not become visible.
    requested: usize,
}

impl Scratch {
    /// A scratch without memory: the first receive takes it.
    #[must_use]
    pub fn new(pool: &Pool) -> Self {
        Self::with_room(pool, HEADROOM_BYTES, RECEIVE_BYTES_MAX)
    }

    /// One of several: a driver with many receives in flight has a smaller one for each.
    ///
    /// # Panics
    /// If it has more than 1 GiB, headroom included.
    #[must_use]
    pub fn with_room(pool: &Pool, headroom: usize, room: usize) -> Self {
        let capacity = headroom.checked_add(room);
        assert!(capacity.is_some_and(|bytes| bytes <= 1 << 30), "a scratch has at most 1 GiB");
        Self { pool: pool.clone(), segment: None, headroom, room, requested: 0 }
    }

    /// Whether no view of the last receive exists, so that the next one needs no other memory.
    #[must_use]
    pub fn is_free(&self) -> bool {
        self.segment.as_ref().is_none_or(Segment::is_unique)
    }

    /// Up to `length` bytes to receive into, at most [`RECEIVE_BYTES_MAX`] unless it was made [with
    /// less](Self::with_room). Bytes of the last receive that no view keeps are lost. The returned bytes are
    /// initialised with older content.
    pub fn space(&mut self, length: usize) -> &mut [u8] {
        let reuses = |segment: &Segment| segment.is_unique() || injected::is_injected(Bug::ViewOverwritten);
        if !self.segment.as_ref().is_some_and(reuses) {
            // A run that is over may be all that keeps it.
            self.pool.end_run();
        }
        if !self.segment.as_ref().is_some_and(reuses) {
            self.release();
        }
        let segment = self.segment.take().unwrap_or_else(|| self.allocate());
        segment.begin_receiving(self.headroom);
        self.requested = length.min(self.room);
        let segment = self.segment.insert(segment);
        // SAFETY: the headroom lies within the segment.
        let first = unsafe { segment.base().add(self.headroom) };
        // SAFETY: `allocate` initialised the segment from the headroom on, the range lies within it, and the segment is
        // unique, so no other holder can reach these bytes while `self` is borrowed.
        unsafe { std::slice::from_raw_parts_mut(first, self.requested) }
    }

    /// The first `length` bytes of the last requested space, as a view. There is one view of each space: an
    /// [`Input`](crate::Input) that has become this view may write to the bytes.
    ///
    /// # Panics
    /// If less space was requested, or none since the last view.
    #[must_use]
    pub fn received(&mut self, length: usize) -> Slice {
        assert!(length <= self.requested, "received {length} bytes in a space of {}", self.requested);
        self.requested = 0;
        let segment = self.segment.as_ref().expect("space is asked for before something is received");
        Slice::new(segment.clone(), self.headroom, length)
    }

    /// Releases the memory until the next receive.
    pub fn release(&mut self) {
        self.pool.end_run();
        if let Some(segment) = self.segment.take() {
            segment.end_receiving();
        }
        self.requested = 0;
    }

    fn allocate(&self) -> Segment {
        let capacity = self.headroom + self.room;
        let segment = self.pool.segment_for(capacity);
        // It may be a little longer.
        let capacity = segment.capacity();
        // SAFETY: the headroom lies within the segment.
        let first = unsafe { segment.base().add(self.headroom) };
        // SAFETY: the segment was allocated with this capacity and has no other holder. The headroom needs no content:
        // a view covers those of its bytes only that an input has put before the received ones.
        unsafe { first.write_bytes(0, capacity - self.headroom) };
        // All of it counts as filled: no holder may append to memory that the next receive writes into.
        segment.set_filled(capacity);
        segment
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        self.release();
    }
}

const _: () = assert!((HEADROOM_BYTES + RECEIVE_BYTES_MAX).is_multiple_of(8));
