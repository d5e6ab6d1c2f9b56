//! `Segment`: a counted block of memory; its last holder returns it to its pool.
//!
//! A segment is one allocation: a header, then `capacity` bytes. Its *filled mark* divides them. Bytes below the mark
//! may be visible through [`Slice`](crate::Slice)s, and are never written while a slice of them exists. Bytes from the
//! mark on belong to the holder that appends. Appending moves the mark: of two holders that both end at the mark, the
//! first to append wins, and the second finds that it no longer ends there and takes memory of its own. A holder that
//! writes for longer than one call *claims* the bytes above the mark first: until then the mark stands at the segment's
//! end.
//!
//! The count is not atomic and the type is not `Send`.

use std::alloc::{self, Layout};
use std::cell::Cell;
use std::ptr::NonNull;
use std::rc::Rc;

use crate::pool::PoolState;

/// Bytes that one segment of the pool's recycled class holds. With its header and the allocator's own, it fills
/// a page.
pub const SEGMENT_BYTES: usize = 4096 - HEADER_BYTES - ALLOCATOR_BYTES;

/// Bytes that one segment of the pool's second recycled class holds: one TLS record with 16 KiB of plain bytes and the
/// longest expansion of a cipher suite (RFC 8446 §5.2). All its bytes are initialised, always.
pub const LARGE_SEGMENT_BYTES: usize = 16 * 1024 + 512 - HEADER_BYTES - ALLOCATOR_BYTES;

/// The lengths of segments for parts of long messages. Spare ones are kept as they are: the allocator would give such
/// blocks back to the system each time, and the next message would be written to pages that the kernel has to clear.
pub(crate) const LONG_SEGMENT_BYTES_MIN: usize = 32 * 1024;
pub(crate) const LONG_SEGMENT_BYTES_MAX: usize = 160 * 1024;

/// A counted block of memory. Cloning counts; dropping the last clone gives the memory back.
pub struct Segment {
    header: NonNull<Header>,
}

struct Header {
    references: Cell<u32>,
    capacity: u32,
    /// Views may cover any byte below it; see the module's documentation.
    filled: Cell<u32>,
    /// No view covers a byte below it: zero, except in a scratch with a headroom. The highest bit is [`RECEIVING`].
    floor: Cell<u32>,
    pool: Rc<PoolState>,
}

impl Segment {
    /// Takes memory for `capacity` bytes and charges the ledger. The bytes are not initialised, unless there are
    /// [`LARGE_SEGMENT_BYTES`]. A long segment may have an eighth more of them.
    ///
    /// # Panics
    /// If `capacity` exceeds 4 GiB.
    pub(crate) fn allocate(pool: &Rc<PoolState>, mut capacity: usize) -> Self {
        assert!(capacity <= u32::MAX as usize, "segments are at most 4 GiB");
        let header = match capacity {
            SEGMENT_BYTES => pool.take_spare().unwrap_or_else(|| allocate_block(SEGMENT_BYTES)),
            LARGE_SEGMENT_BYTES => pool.take_large_spare().unwrap_or_else(allocate_large_block),
            ..LONG_SEGMENT_BYTES_MIN => allocate_block(capacity),
            _ => {
                let (header, bytes) = pool.allocate_long(capacity);
                capacity = bytes;
                header
            }
        };
        let value = Header {
            references: Cell::new(1),
            capacity: capacity as u32,
            filled: Cell::new(0),
            floor: Cell::new(0),
            pool: Rc::clone(pool),
        };
        // SAFETY: `header` is our own block without another holder, large enough and aligned for a `Header`.
        unsafe { header.write(value) };
        pool.ledger.charge(block_bytes(capacity));
        Self { header }
    }

    fn header(&self) -> &Header {
        // SAFETY: the block lives as long as a `Segment` points to it, and its header is initialised and only
        // changed through cells.
        unsafe { self.header.as_ref() }
    }

    /// How many bytes the segment can hold.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.header().capacity as usize
    }

    /// The least capacity that its caller may have requested: that of a long segment may be an eighth more.
    pub(crate) fn requested_at_least(&self) -> usize {
        match self.capacity() {
            capacity @ ..LONG_SEGMENT_BYTES_MIN => capacity,
            capacity => capacity - capacity / 9,
        }
    }

    /// How many of them views may cover.
    #[must_use]
    pub fn filled(&self) -> usize {
        self.header().filled.get() as usize
    }

    /// Bytes that can still be appended.
    #[must_use]
    pub fn room(&self) -> usize {
        self.capacity() - self.filled()
    }

    /// Whether this is the only one that holds the segment.
    #[must_use]
    pub fn is_unique(&self) -> bool {
        self.header().references.get() == 1
    }

    /// Whether both are the same block of memory.
    #[inline]
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        self.header == other.header
    }

    /// The lowest byte that a view may cover; above zero in a loop's scratch only.
    pub(crate) fn floor(&self) -> usize {
        (self.header().floor.get() & !RECEIVING) as usize
    }

    /// Moves the floor of a loop's scratch down to bytes that are put before the received ones.
    pub(crate) fn lower_floor(&self, floor: usize) {
        debug_assert!(0 < floor && floor <= self.floor());
        let receiving = self.header().floor.get() & RECEIVING;
        self.header().floor.set(floor as u32 | receiving);
    }

    /// A [`Scratch`](crate::Scratch) holds this segment and receives into it from `floor` on.
    pub(crate) fn begin_receiving(&self, floor: usize) {
        debug_assert!(floor <= self.capacity() && floor & RECEIVING as usize == 0);
        self.header().floor.set(floor as u32 | RECEIVING);
    }

    /// The [`Scratch`](crate::Scratch) that holds this segment releases it.
    pub(crate) fn end_receiving(&self) {
        let floor = &self.header().floor;
        floor.set(floor.get() & !RECEIVING);
    }

    /// Whether this is a loop's scratch, of which no view may live long.
    pub(crate) fn is_scratch(&self) -> bool {
        self.header().floor.get() != 0
    }

    /// Whether no other holder can see a byte. The [`Scratch`](crate::Scratch) that receives into the segment counts
    /// as a holder, but sees nothing until no view is left.
    pub(crate) fn has_one_view(&self) -> bool {
        let holders = if self.header().floor.get() & RECEIVING == 0 { 1 } else { 2 };
        self.header().references.get() == holders
    }

    /// Whether all bytes are initialised, those above the filled mark included.
    pub(crate) fn is_initialised(&self) -> bool {
        self.capacity() == LARGE_SEGMENT_BYTES
    }

    pub(crate) fn pool(&self) -> &Rc<PoolState> {
        &self.header().pool
    }

    /// Where the first byte lies.
    pub(crate) fn base(&self) -> *mut u8 {
        let block = self.header.as_ptr().cast::<u8>();
        // SAFETY: every block is `HEADER_BYTES + capacity` long.
        unsafe { block.add(HEADER_BYTES) }
    }

    pub(crate) fn set_filled(&self, filled: usize) {
        debug_assert!(filled <= self.capacity());
        self.header().filled.set(filled as u32);
    }

    /// Claims all bytes above the mark: returns their start and their length. No other holder appends until the mark is
    /// set back to the end of the written bytes.
    pub(crate) fn claim(&self) -> (*mut u8, usize) {
        let (top, room) = (self.top(), self.room());
        self.set_filled(self.capacity());
        (top, room)
    }

    /// Where the next byte will be.
    pub(crate) fn top(&self) -> *mut u8 {
        // SAFETY: `filled <= capacity`.
        unsafe { self.base().add(self.filled()) }
    }

    /// Appends the part of `bytes` that fits, and returns its length.
    pub(crate) fn append(&self, bytes: &[u8]) -> usize {
        let filled = self.filled();
        let length = bytes.len().min(self.capacity() - filled);
        let target = self.top();
        // SAFETY: `length` bytes from `filled` on lie within the segment, no view covers them yet, and `bytes` is a
        // live slice, which cannot overlap memory without a view.
        unsafe { target.copy_from_nonoverlapping(bytes.as_ptr(), length) };
        self.set_filled(filled + length);
        self.pool().ledger.count_copy(length);
        length
    }

    /// The bytes from `start` to `end`.
    ///
    /// The caller promises that they have been written and lie below the filled mark.
    pub(crate) fn view(&self, start: usize, end: usize) -> &[u8] {
        debug_assert!(start <= end && end <= self.capacity());
        // SAFETY: views are only made of written ranges below the filled mark (every caller in this crate keeps
        // such a range), so `start <= capacity`.
        let first = unsafe { self.base().add(start) };
        // SAFETY: as above, and bytes below the filled mark do not change while a view of them lives.
        unsafe { std::slice::from_raw_parts(first, end - start) }
    }
}

impl Clone for Segment {
    #[inline]
    fn clone(&self) -> Self {
        let references = &self.header().references;
        references.set(references.get().checked_add(1).expect("fewer than 4 billion views of a segment"));
        Self { header: self.header }
    }
}

impl Drop for Segment {
    #[inline]
    fn drop(&mut self) {
        let references = &self.header().references;
        match references.get() {
            1 => self.free(),
            more => references.set(more - 1),
        }
    }
}

impl Segment {
    /// Frees the block; only the last holder may, and no code reads it afterwards.
    fn free(&mut self) {
        // SAFETY: this is the last holder; the header is initialised and is not read again, since the block below is
        // only memory.
        let Header { capacity, pool, .. } = unsafe { self.header.read() };
        let capacity = capacity as usize;
        pool.ledger.refund(block_bytes(capacity));
        let kept = match capacity {
            SEGMENT_BYTES => pool.keep_spare(self.header),
            LARGE_SEGMENT_BYTES => pool.keep_large_spare(self.header),
            ..LONG_SEGMENT_BYTES_MIN => false,
            _ => pool.keep_long_spare(self.header, capacity),
        };
        if !kept {
            // SAFETY: the block has no holder any more, and it was allocated for `capacity`.
            unsafe { free_block(self.header.cast(), capacity) };
        }
    }
}

impl std::fmt::Debug for Segment {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Segment")
            .field("capacity", &self.capacity())
            .field("filled", &self.filled())
            .field("references", &self.header().references.get())
            .finish()
    }
}

/// A block with `CAPACITY` bytes that waits in the pool to be used again: memory without a header.
pub(crate) struct SpareBlock<const CAPACITY: usize>(NonNull<u8>);

impl<const CAPACITY: usize> SpareBlock<CAPACITY> {
    fn into_header(self) -> NonNull<Header> {
        let header = self.0.cast();
        std::mem::forget(self);
        header
    }
}

impl<const CAPACITY: usize> Drop for SpareBlock<CAPACITY> {
    fn drop(&mut self) {
        // SAFETY: `PoolState` below keeps only blocks that were allocated for `CAPACITY` bytes, and a spare block has no
        // other holder.
        unsafe { free_block(self.0, CAPACITY) };
    }
}

/// The same for a block of any length between [`LONG_SEGMENT_BYTES_MIN`] and [`LONG_SEGMENT_BYTES_MAX`].
pub(crate) struct LongSpareBlock {
    block: NonNull<u8>,
    capacity: usize,
}

impl LongSpareBlock {
    pub(crate) fn capacity(&self) -> usize {
        self.capacity
    }

    fn into_header(self) -> (NonNull<Header>, usize) {
        let (header, capacity) = (self.block.cast(), self.capacity);
        std::mem::forget(self);
        (header, capacity)
    }
}

impl Drop for LongSpareBlock {
    fn drop(&mut self) {
        // SAFETY: `Segment::free`, the only place that makes one, has allocated the block for `capacity` bytes and was
        // its last holder.
        unsafe { free_block(self.block, self.capacity) };
    }
}

impl PoolState {
    /// A block for `capacity` bytes or a few more, and for how many.
    #[inline(never)]
    fn allocate_long(&self, capacity: usize) -> (NonNull<Header>, usize) {
        let spare = if capacity <= LONG_SEGMENT_BYTES_MAX { self.take_long_spare(capacity) } else { None };
        spare.map_or_else(|| (allocate_block(capacity), capacity), LongSpareBlock::into_header)
    }

    #[inline(never)]
    fn keep_long_spare(&self, block: NonNull<Header>, capacity: usize) -> bool {
        let keep = capacity <= LONG_SEGMENT_BYTES_MAX;
        if keep {
            self.push_long_spare(LongSpareBlock { block: block.cast(), capacity });
        }
        keep
    }

    fn take_spare(&self) -> Option<NonNull<Header>> {
        self.pop_spare().map(SpareBlock::into_header)
    }

    fn keep_spare(&self, block: NonNull<Header>) -> bool {
        self.push_spare(|| SpareBlock(block.cast()))
    }

    fn take_large_spare(&self) -> Option<NonNull<Header>> {
        self.pop_large_spare().map(SpareBlock::into_header)
    }

    fn keep_large_spare(&self, block: NonNull<Header>) -> bool {
        self.push_large_spare(|| SpareBlock(block.cast()))
    }
}

/// The cost of a segment of `capacity`, header and allocator included.
pub(crate) const fn block_bytes(capacity: usize) -> usize {
    capacity + HEADER_BYTES + ALLOCATOR_BYTES
}

fn layout(capacity: usize) -> Layout {
    let bytes = HEADER_BYTES + capacity;
    Layout::from_size_align(bytes, align_of::<Header>()).expect("segments are at most 4 GiB")
}

fn allocate_block(capacity: usize) -> NonNull<Header> {
    let layout = layout(capacity);
    // SAFETY: the layout is never empty, it has room for the header.
    let block = unsafe { alloc::alloc(layout) };
    NonNull::new(block.cast()).unwrap_or_else(|| alloc::handle_alloc_error(layout))
}

/// The same for [`LARGE_SEGMENT_BYTES`], with bytes that are zero. They stay initialised while the block is recycled.
fn allocate_large_block() -> NonNull<Header> {
    let layout = layout(LARGE_SEGMENT_BYTES);
    // SAFETY: the layout is never empty, it has room for the header.
    let block = unsafe { alloc::alloc_zeroed(layout) };
    NonNull::new(block.cast()).unwrap_or_else(|| alloc::handle_alloc_error(layout))
}

/// # Safety
/// `block` came from `allocate_block(capacity)`, or from `allocate_large_block` if that is its capacity, and has no
/// holder any more.
unsafe fn free_block(block: NonNull<u8>, capacity: usize) {
    // SAFETY: the caller's promise.
    unsafe { alloc::dealloc(block.as_ptr(), layout(capacity)) };
}

/// The bit of a floor that is set while a [`Scratch`](crate::Scratch) holds the segment.
const RECEIVING: u32 = 1 << 31;

const HEADER_BYTES: usize = size_of::<Header>();

/// The overhead of the system's allocator per block; an estimate, used for sizes and the ledger only.
const ALLOCATOR_BYTES: usize = 16;

const _: () = assert!(HEADER_BYTES == 24);
const _: () = assert!(size_of::<Option<Segment>>() == 8);
