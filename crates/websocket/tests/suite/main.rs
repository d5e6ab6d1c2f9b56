//! The tests of `tidegate-websocket` through its public interface: one program, a module for each noun.

#![forbid(unsafe_code)]

mod bad_input;
mod compression;
mod handshakes;
mod idle_bytes;
mod long_messages;
mod messages;
mod support;
mod unfinished;

use tidegate_testkit::allocations::CountingAllocator;

/// It counts for each thread, so a test sees only its own thread's allocations.
#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;
