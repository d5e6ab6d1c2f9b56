//! The tests of `tidegate`, the facade, and the rules of the whole workspace: one program, a module for each noun.

mod allocations;
mod attributes;
mod faults;
mod features;
mod gateway;
mod http;
mod imports;
mod module_circles;
mod own_service;
mod packages;
mod programs;
#[cfg(all(feature = "http", feature = "redis"))]
mod shared_rates;
mod suspension;
mod tree;

use tidegate_testkit::allocations::CountingAllocator;

/// It counts for each thread, so a test sees only its own thread's allocations.
#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;
