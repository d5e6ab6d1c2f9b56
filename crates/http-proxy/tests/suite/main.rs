//! The tests of `tidegate-http-proxy` through the facade: one program, a module for each noun.

#![forbid(unsafe_code)]

mod blame;
mod cancellations;
mod connect_http2;
mod connect_udp;
mod dns;
mod early_data;
mod failures;
mod forwarding;
mod http2;
mod https_upstream;
mod idle_bytes;
mod interims;
mod metrics;
mod names;
mod network;
mod pipelines;
mod routes;
mod rules;
mod smuggling;
mod smuggling_http3;
mod support;
mod upstream_http2;
mod upstream_http3;
mod websocket_http2;
mod websocket_upstream_http2;

use tidegate_testkit::allocations::CountingAllocator;

/// It counts for each thread, so a test sees only its own thread's allocations.
#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;
