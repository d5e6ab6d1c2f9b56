//! The tests of `tidegate-http-client` through the facade: one program, a module for each noun.

#![forbid(unsafe_code)]

mod bodies;
mod deadlines;
mod handle;
mod http2;
mod http2_hostile;
mod http3;
mod http3_early;
mod http3_stage;
mod https_records;
mod idle_bytes;
mod liars;
mod network;
mod pool;
mod proxies;
mod redirects;
mod support;
mod upgrades;
mod websockets;

use tidegate_testkit::allocations::CountingAllocator;

/// It counts for each thread, so a test sees only its own thread's allocations.
#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;
