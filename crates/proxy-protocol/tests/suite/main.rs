//! The tests of `tidegate-proxy-protocol` through its public interface: one program, a module for each noun.

mod allocations;
mod headers;
mod policies;
mod support;

use tidegate_testkit::allocations::CountingAllocator;

/// It counts for each thread, so a test sees only its own thread's allocations.
#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;
