//! The tests of `tidegate-dns` through its public interface: one program, a module for each noun.

#![forbid(unsafe_code)]

mod cache;
mod failures;
mod forwarder;
mod forwarding_scenarios;
mod generated;
mod hickory;
mod host_resolver;
mod hostile_streams;
mod https_lookups;
mod idle_memory;
mod messages;
mod names;
mod over_https;
mod over_tls;
mod resolver;
mod servers;
mod simulation;
mod streams;
mod stub;
mod stub_on_loops;
mod support;
mod system_files;
mod texts;
mod zones;

use tidegate_testkit::allocations::CountingAllocator;

/// It counts for each thread, so a test sees only its own thread's allocations.
#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;
