//! `CountingAllocator`: the system's allocator, which counts for each thread on its own. For tests and measurements.
//!
//! A count for the whole process moves when another thread of a test, or of its harness, allocates.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

/// An allocator that counts the current thread's allocations and frees.
///
/// ```
/// use tidegate_sys::allocations::{CountingAllocator, Region};
///
/// #[global_allocator]
/// static ALLOCATOR: CountingAllocator = CountingAllocator;
///
/// let region = Region::new();
/// let bytes = std::hint::black_box(vec![0_u8; 100]);
/// assert_eq!((region.change().allocations, region.change().bytes_in_use()), (1, 100));
/// drop(bytes);
/// assert_eq!(region.change().bytes_in_use(), 0);
/// ```
#[derive(Debug, Clone, Copy, Default)]
pub struct CountingAllocator;

/// A thread's allocations and frees. Memory that another thread frees counts there.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Allocations {
    /// Blocks that were allocated.
    pub allocations: usize,
    /// Blocks that were freed.
    pub deallocations: usize,
    /// Blocks that became longer or shorter.
    pub reallocations: usize,
    /// Bytes that were allocated, those by which blocks became longer included.
    pub bytes_allocated: usize,
    /// Bytes that were freed, those by which blocks became shorter included.
    pub bytes_deallocated: usize,
}

impl Allocations {
    /// The bytes that were allocated and not freed; negative if memory from before was freed.
    #[must_use]
    pub const fn bytes_in_use(&self) -> isize {
        self.bytes_allocated.wrapping_sub(self.bytes_deallocated).cast_signed()
    }
}

/// A span of the current thread, from [`new`](Region::new) on.
#[derive(Debug)]
pub struct Region {
    begun: Allocations,
}

impl Region {
    /// A region that begins now.
    #[must_use]
    #[expect(clippy::new_without_default, reason = "a region begins at a moment, which a default does not suggest")]
    pub fn new() -> Self {
        Self { begun: COUNTS.get() }
    }

    /// The thread's allocations and frees since the region began.
    #[must_use]
    pub fn change(&self) -> Allocations {
        let (now, begun) = (COUNTS.get(), self.begun);
        Allocations {
            allocations: now.allocations - begun.allocations,
            deallocations: now.deallocations - begun.deallocations,
            reallocations: now.reallocations - begun.reallocations,
            bytes_allocated: now.bytes_allocated - begun.bytes_allocated,
            bytes_deallocated: now.bytes_deallocated - begun.bytes_deallocated,
        }
    }
}

thread_local! {
    /// Without a destructor and made at compile time, so that it allocates nothing and is there as long as its thread.
    static COUNTS: Cell<Allocations> = const {
        Cell::new(Allocations {
            allocations: 0,
            deallocations: 0,
            reallocations: 0,
            bytes_allocated: 0,
            bytes_deallocated: 0,
        })
    };
}

fn count(change: impl FnOnce(&mut Allocations)) {
    let mut counts = COUNTS.get();
    change(&mut counts);
    COUNTS.set(counts);
}

fn count_allocation(bytes: usize) {
    count(|counts| {
        counts.allocations += 1;
        counts.bytes_allocated += bytes;
    });
}

// SAFETY: every method calls that of the system's allocator with the arguments of its caller, and returns its result. The
// counting neither allocates nor panics: the counts have no destructor, and do not overflow.
unsafe impl GlobalAlloc for CountingAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count_allocation(layout.size());
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count_allocation(layout.size());
        // SAFETY: the caller's promise.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        count(|counts| {
            counts.deallocations += 1;
            counts.bytes_deallocated += layout.size();
        });
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(block, layout) }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        count(|counts| {
            counts.reallocations += 1;
            counts.bytes_allocated += bytes.saturating_sub(layout.size());
            counts.bytes_deallocated += layout.size().saturating_sub(bytes);
        });
        // SAFETY: the caller's promise.
        unsafe { System.realloc(block, layout, bytes) }
    }
}
