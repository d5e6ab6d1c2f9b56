//! Tools for tests of protocols and applications, without a real network.
//!
//! - [`contract`] checks any codec against the contract that all codecs share: the same bytes in whatever pieces give
//!   the same messages, nothing leaks, nothing panics, and a declared length alone allocates nothing.
//! - [`CodecHarness`] drives one codec step by step, as an event loop does for a connection.
//! - [`Embedded`] runs a codec and its application, a handler or a channel, on a real event loop; the test is the peer
//!   and moves the clock. Users test their protocols with it. [`Peer`] is its other end as messages.
//! - [`network`] runs several event loops on hosts of a simulated network, with virtual time and seeded faults.
//! - [`shim`] is a driver that wraps another one and fails system calls as planned.
//! - [`filters`] has two filters for tests, one of them a toy TLS. [`ToyMux`] is a small protocol with streams.
//! - [`Random`] is a small seeded generator, the same on every machine. A failing test prints its seed, and [`replay`]
//!   returns the command that runs it again.
//! - `allocations` counts the allocations of a test's thread.
//! - [`Postgres`] is a real PostgreSQL for one test, on a Unix socket of its own.
//!
//! Only tests and examples may depend on this crate.
//!
//! Read next: `embedded.rs`, or `contract.rs`.

#![forbid(unsafe_code)]

mod codec_harness;
pub mod contract;
mod embedded;
pub mod filters;
pub mod network;
mod peer;
mod postgres;
mod random;
mod replay;
pub mod shim;
mod toy_mux;
mod wire;

pub use codec_harness::CodecHarness;
pub use embedded::Embedded;
pub use peer::Peer;
pub use postgres::Postgres;
pub use random::{Random, seed, seeds};
pub use replay::replay;
pub use tidegate_sys::allocations;
pub use toy_mux::{ToyMux, ToyMuxConfig, ToyMuxError};
