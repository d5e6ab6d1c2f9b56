//! `Pool`: the source of a loop's segments and queue entries, to which they return.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;

use crate::datagram::Transmit;
use crate::entries::Entries;
use crate::ledger::Ledger;
use crate::segment::{LARGE_SEGMENT_BYTES, LongSpareBlock, SEGMENT_BYTES, Segment, SpareBlock, block_bytes};
use crate::slice::{DETACHED_PART, SHARED_BYTES, Slice};

/// A handle to the memory of one event loop. Cloning it is cheap and shares the memory.
///
/// Nothing is allocated in advance. Up to a quarter of a MiB of [`SEGMENT_BYTES`] blocks is kept for reuse, and as much
/// of [`LARGE_SEGMENT_BYTES`] blocks, and four times as much of blocks from 32 to 160 KiB; the rest returns to the
/// system at once, and [`trim`](Pool::trim) frees half of the kept blocks, and all of the long ones.
///
/// ```
/// use tidegate::codec::Pool;
///
/// let pool = Pool::new();
/// let segment = pool.segment();
/// assert_eq!(pool.ledger().used(), 4096);
/// drop(segment);
/// assert_eq!(pool.ledger().used(), 0);
/// ```
#[derive(Clone, Default)]
pub struct Pool {
    shared: Rc<PoolState>,
}

/// The state that all clones of a pool share. Every borrow in here is a leaf: no application code runs inside one.
pub(crate) struct PoolState {
    pub(crate) ledger: Ledger,
    pub(crate) entries: RefCell<Entries>,
    spare: RefCell<Vec<SpareBlock<SEGMENT_BYTES>>>,
    large_spare: RefCell<Vec<SpareBlock<LARGE_SEGMENT_BYTES>>>,
    /// In the order in which they became spare.
    long_spare: RefCell<Vec<LongSpareBlock>>,
    /// Empty buffers of datagrams.
    spare_buffers: RefCell<Vec<Vec<u8>>>,
    /// The empty queue of a list of datagrams that was sent.
    spare_transmits: RefCell<VecDeque<Transmit>>,
    /// The copy that the messages of a batch share. Its segments keep this pool alive, so a run has to end: with the
    /// dispatch, or with the scratch that it is a copy of.
    pub(crate) run: RefCell<Option<Run>>,
}

impl Pool {
    /// An empty pool, and a ledger without limit.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// A segment of the recycled class, [`SEGMENT_BYTES`] long.
    #[must_use]
    pub fn segment(&self) -> Segment {
        Segment::allocate(&self.shared, SEGMENT_BYTES)
    }

    /// A segment of the large recycled class, [`LARGE_SEGMENT_BYTES`] long and initialised.
    pub(crate) fn large_segment(&self) -> Segment {
        Segment::allocate(&self.shared, LARGE_SEGMENT_BYTES)
    }

    /// A segment for at least `capacity` bytes, of about that size: it comes from the recycled class only where that
    /// wastes little.
    ///
    /// # Panics
    /// If `capacity` exceeds 4 GiB.
    #[must_use]
    pub fn segment_for(&self, capacity: usize) -> Segment {
        let recycled = SEGMENT_BYTES * 3 / 4..=SEGMENT_BYTES;
        let capacity = match capacity {
            capacity if recycled.contains(&capacity) => SEGMENT_BYTES,
            capacity => capacity.checked_next_multiple_of(8).unwrap_or(capacity),
        };
        Segment::allocate(&self.shared, capacity)
    }

    /// A slice that holds a copy of `bytes` in memory of its own.
    #[must_use]
    pub fn copy(&self, bytes: &[u8]) -> Slice {
        let segment = self.segment_for(bytes.len());
        segment.append(bytes);
        Slice::new(segment, 0, bytes.len())
    }

    /// Has `fill` write into `length` bytes, and returns as many of them as it returns, in memory of their own. A decoder
    /// writes its output there once, and an [`Input`](crate::Input) takes it without a copy. The space is initialised
    /// with unspecified content. If `fill` uses less than a quarter of that memory, the bytes are
    /// moved into memory of their size.
    ///
    /// ```
    /// use tidegate::codec::Pool;
    ///
    /// let filled = Pool::new().fill(100, |space| {
    ///     space[..4].copy_from_slice(b"flow");
    ///     Ok::<_, std::convert::Infallible>(4)
    /// });
    /// assert_eq!(&*filled?, b"flow");
    /// # Ok::<(), std::convert::Infallible>(())
    /// ```
    ///
    /// # Errors
    /// The error of `fill`.
    ///
    /// # Panics
    /// If `fill` returns more than `length`, or if `length` exceeds 4 GiB.
    pub fn fill<E>(&self, length: usize, fill: impl FnOnce(&mut [u8]) -> Result<usize, E>) -> Result<Slice, E> {
        let segment = match length {
            LARGE_BYTES_MIN..=LARGE_SEGMENT_BYTES => self.large_segment(),
            _ => self.segment_for(length),
        };
        if !segment.is_initialised() {
            // SAFETY: the segment has at least `length` bytes and no other holder.
            unsafe { segment.base().write_bytes(0, length) };
        }
        // SAFETY: as above, and the bytes are initialised. `fill` has no access to the segment.
        let space = unsafe { std::slice::from_raw_parts_mut(segment.base(), length) };
        let count = fill(space)?;
        assert!(count <= length, "{count} bytes written into a space of {length}");
        segment.set_filled(count);
        let is_sparse = count < segment.capacity() / SPARSE_PART;
        let filled = Slice::new(segment, 0, count);
        Ok(if is_sparse { self.copy(&filled) } else { filled })
    }

    /// The memory in use by this loop.
    #[must_use]
    pub fn ledger(&self) -> &Ledger {
        &self.shared.ledger
    }

    /// Returns half of the spare memory to the system. The engine calls it when a loop is idle.
    pub fn trim(&self) {
        let mut spare = self.shared.spare.borrow_mut();
        let kept = spare.len() / 2;
        spare.truncate(kept);
        spare.shrink_to(kept.max(SPARE_SEGMENTS_MAX));
        drop(spare);
        let mut large = self.shared.large_spare.borrow_mut();
        let kept = large.len() / 2;
        large.truncate(kept);
        drop(large);
        self.shared.long_spare.take();
        self.shared.spare_buffers.take();
        self.shared.spare_transmits.take();
        self.shared.entries.borrow_mut().trim();
    }

    /// Bytes kept for reuse: spare segments and pages of entries.
    #[must_use]
    pub fn spare_bytes(&self) -> usize {
        self.shared.spare.borrow().len() * block_bytes(SEGMENT_BYTES)
            + self.shared.large_spare.borrow().len() * block_bytes(LARGE_SEGMENT_BYTES)
            + self.shared.long_spare_bytes()
            + self.shared.spare_buffers.borrow().iter().map(Vec::capacity).sum::<usize>()
            + self.shared.spare_transmits.borrow().capacity() * size_of::<Transmit>()
            + self.shared.entries.borrow().page_bytes()
    }

    /// Empty buffers for datagrams.
    pub(crate) fn spare_buffers(&self) -> &RefCell<Vec<Vec<u8>>> {
        &self.shared.spare_buffers
    }

    /// An empty queue of datagrams: its memory is that of one batch, which the lists of a loop have in turn.
    pub(crate) fn spare_transmits(&self) -> &RefCell<VecDeque<Transmit>> {
        &self.shared.spare_transmits
    }

    /// Messages that are taken from now on share this copy.
    pub(crate) fn begin_run(&self, run: Run) {
        let before = self.shared.run.replace(Some(run));
        drop(before);
    }

    /// The batch is over, and its scratch is free again.
    #[inline]
    pub(crate) fn end_run(&self) {
        self.shared.end_run();
    }

    pub(crate) fn shared(&self) -> &PoolState {
        &self.shared
    }

    pub(crate) fn of(segment: &Segment) -> Self {
        Self { shared: Rc::clone(segment.pool()) }
    }
}

impl PoolState {
    #[inline]
    pub(crate) fn end_run(&self) {
        if self.run.borrow().is_some() {
            let run = self.run.take();
            drop(run);
        }
    }

    pub(crate) fn pop_spare(&self) -> Option<SpareBlock<SEGMENT_BYTES>> {
        self.spare.borrow_mut().pop()
    }

    pub(crate) fn pop_large_spare(&self) -> Option<SpareBlock<LARGE_SEGMENT_BYTES>> {
        self.large_spare.borrow_mut().pop()
    }

    /// A spare block for `capacity` bytes that is not much longer.
    pub(crate) fn take_long_spare(&self, capacity: usize) -> Option<LongSpareBlock> {
        let mut spare = self.long_spare.borrow_mut();
        let fits = |block: &LongSpareBlock| (capacity..=capacity + capacity / 8).contains(&block.capacity());
        let at = spare.iter().rposition(fits)?;
        Some(spare.remove(at))
    }

    /// Keeps a long block, in the place of the oldest ones if there are enough.
    pub(crate) fn push_long_spare(&self, block: LongSpareBlock) {
        self.long_spare.borrow_mut().push(block);
        while self.long_spare_bytes() > LONG_SPARE_BYTES_MAX {
            drop(self.long_spare.borrow_mut().remove(0));
        }
    }

    fn long_spare_bytes(&self) -> usize {
        self.long_spare.borrow().iter().map(|block| block_bytes(block.capacity())).sum()
    }

    /// Keeps a block unless enough are kept already; returns whether it did.
    pub(crate) fn push_spare(&self, block: impl FnOnce() -> SpareBlock<SEGMENT_BYTES>) -> bool {
        let mut spare = self.spare.borrow_mut();
        let keep = spare.len() < SPARE_SEGMENTS_MAX;
        if keep {
            spare.push(block());
        }
        keep
    }

    /// The same for a block of the large class.
    pub(crate) fn push_large_spare(&self, block: impl FnOnce() -> SpareBlock<LARGE_SEGMENT_BYTES>) -> bool {
        let mut spare = self.large_spare.borrow_mut();
        let keep = spare.len() < LARGE_SPARE_SEGMENTS_MAX;
        if keep {
            spare.push(block());
        }
        keep
    }
}

/// A copy of some bytes of a scratch, which several messages share (`run.rs`).
pub(crate) struct Run {
    pub(crate) source: Segment,
    /// Where the copied bytes begin in the source.
    pub(crate) start: usize,
    pub(crate) copy: Segment,
}

impl Run {
    /// The copy of `count` bytes of `source` from `start` on, if a slice of it may be kept.
    #[inline]
    pub(crate) fn find(&self, source: &Segment, start: usize, count: usize) -> Option<(Segment, usize)> {
        let offset = start.checked_sub(self.start)?;
        let has_all = self.source.is_same(source) && offset + count <= self.copy.filled();
        let is_bounded = self.copy.capacity() <= DETACHED_PART * count + SHARED_BYTES;
        (has_all && is_bounded).then(|| (self.copy.clone(), offset))
    }
}

impl Default for PoolState {
    fn default() -> Self {
        Self {
            ledger: Ledger::new(),
            entries: RefCell::default(),
            spare: RefCell::default(),
            large_spare: RefCell::default(),
            long_spare: RefCell::default(),
            spare_buffers: RefCell::default(),
            spare_transmits: RefCell::default(),
            run: RefCell::default(),
        }
    }
}

impl std::fmt::Debug for Pool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pool")
            .field("used", &self.ledger().used())
            .field("spare", &self.spare_bytes())
            .finish_non_exhaustive()
    }
}

/// Recycled segments kept while unused: a quarter of a MiB, enough for one gathering write of a busy loop.
const SPARE_SEGMENTS_MAX: usize = 64;

/// The same for segments of the large class: a quarter of a MiB as well.
const LARGE_SPARE_SEGMENTS_MAX: usize = 16;

/// The bytes of long segments kept while unused: parts of a few messages. At most 32 blocks are as long.
const LONG_SPARE_BYTES_MAX: usize = 1024 * 1024;

/// Bytes that fill less than this part of the segment in which they were written are moved out.
pub(crate) const SPARSE_PART: usize = 4;

/// A shorter space has a segment of its size: in a large one it would be sparse.
pub(crate) const LARGE_BYTES_MIN: usize = LARGE_SEGMENT_BYTES.div_ceil(SPARSE_PART);
