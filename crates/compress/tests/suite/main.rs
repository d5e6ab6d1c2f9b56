//! The tests of `tidegate-compress` through its public interface: one program, a module for each noun.

mod allocations;
mod bad_input;
mod filters;
mod references;
mod round_trips;
mod support;

use tidegate_testkit::allocations::CountingAllocator;

/// It counts for each thread, so a test sees only its own thread's allocations.
#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;
