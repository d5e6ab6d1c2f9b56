//! The tests of `tidegate-engine` through its public interface: one program, a module for each noun.

#![forbid(unsafe_code)]

mod admission;
mod allocations;
mod bursts;
mod channel;
mod client;
mod endpoint;
mod forward;
mod group;
mod handler;
mod inspection;
mod journal;
mod over;
mod peer_deadlines;
mod server;
mod shaping;
mod stream_memory;
mod streams;
mod supervisor;
mod task;

use tidegate_testkit::allocations::CountingAllocator;

/// It counts for each thread, so a test sees only its own thread's allocations.
#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;
