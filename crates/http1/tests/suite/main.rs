//! The tests of `tidegate-http1` through its public interface: one program, a module for each noun.

mod ahead;
mod allocations;
mod client;
mod closing;
mod connections;
mod contract;
mod framing;
mod grammar;
mod httparse;
mod ledger;
mod llhttp;
mod requests;
mod responses;
mod smuggling;
mod support;

use tidegate_testkit::allocations::CountingAllocator;

/// It counts for each thread, so a test sees only its own thread's allocations.
#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;
