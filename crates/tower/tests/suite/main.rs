//! The tests of `tidegate-tower` through its public interface: one program, a module for each noun.

#![forbid(unsafe_code)]

mod axum;
mod bad_input;
mod collected_memory;
mod grpc;
mod http2;
#[expect(dead_code, reason = "the tests of `tidegate-http` use the rest of it")]
#[path = "../../../http/tests/suite/support/http2_peer.rs"]
mod http2_peer;
mod layers;
mod upgrades;
