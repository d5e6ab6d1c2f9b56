//! The tests of `tidegate-http` through its public interface: one program, a module for each noun.

#![forbid(unsafe_code)]

mod access_log;
mod capsules;
mod collected_memory;
mod compression;
mod conditions;
mod connect_udp;
mod connection_state;
mod debug_pages;
mod drain;
mod exchanges;
mod extended_connect;
mod extract;
mod files;
mod half_close;
mod held_requests;
mod http2;
mod http2_attacks;
mod http2_keep_alive;
mod http3;
mod http3_early;
mod http3_priorities;
mod http3_servers;
mod http3_stream_bytes;
mod http3_times;
mod idle_bytes;
mod long_work;
mod metrics;
mod middleware;
mod mistakes;
mod network;
mod parked_streams;
mod passwords;
mod redirects;
mod route_list;
mod route_paths;
mod route_refusals;
mod serving;
mod shared_rates;
mod stream_bytes;
mod support;
mod targets;
mod tasks;
mod telemetry;
mod upgrade;
mod websocket;
mod webtransport;
mod wrap;

use tidegate_testkit::allocations::CountingAllocator;

/// It counts for each thread, so a test sees only its own thread's allocations.
#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;
