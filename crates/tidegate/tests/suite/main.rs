//! The tests of `tidegate`, the facade, and of what the whole workspace keeps: one program, a module for each noun.

mod allocations;
mod gateway;
mod http;
mod imports;
mod module_circles;
mod packages;
mod programs;
mod suspension;
mod tree;

use tidegate_testkit::allocations::CountingAllocator;

/// It counts for each thread, so a test sees what its own thread allocates.
#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;
