//! The tests of `tidegate-backplane` through its public interface: one program, a module for each noun.

#![forbid(unsafe_code)]

mod bad_input;
mod brokers;
mod differences;
mod disturbances;
mod faults;
mod kicks;
mod late_streams;
mod leases;
mod long_lists;
mod members;
mod nats_model;
mod processes;
mod redis_model;
mod refused_messages;
mod scripted_nats;
mod simulated_network;
mod simulated_nodes;
mod simulation;
mod subscribers;
mod users;
mod work;

/// It counts for each thread, so a test sees only its own thread's allocations.
#[global_allocator]
static ALLOCATOR: tidegate_testkit::allocations::CountingAllocator = tidegate_testkit::allocations::CountingAllocator;
