//! The tests of `tidegate-redis` through its public interface: one program, a module for each noun.

#![forbid(unsafe_code)]

mod backlog;
mod bad_input;
mod bounds;
mod client;
mod cluster;
mod commands;
mod conversations;
mod crossing;
mod faults;
mod handler;
mod loop_end;
mod mailbox;
mod pieces;
mod processes;
mod redis_server;
mod replies;
mod round_trips;
mod scripted;
mod sentinel;
mod several_servers;
mod streams;
mod subscriber;
mod subscription_memory;
mod tls;

/// It counts for each thread, so a test sees only its own thread's allocations.
#[global_allocator]
static ALLOCATOR: tidegate_testkit::allocations::CountingAllocator = tidegate_testkit::allocations::CountingAllocator;
