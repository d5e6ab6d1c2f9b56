//! What tests of protocols and applications need, without a real network.
//!
//! - [`contract`] puts any codec through the contract that all codecs share: the same bytes in whatever pieces give
//!   the same messages, nothing leaks, nothing panics, nothing is allocated because a peer declared it.
//! - [`CodecHarness`] does with one codec what an event loop does with a connection, step by step.
//! - [`Embedded`] runs a codec and its application, a handler or a channel, on a real event loop, with the test as the
//!   peer and as the clock: what users test their protocols with.
//! - [`network`] runs several event loops on hosts of a simulated network, with virtual time and seeded faults.
//! - [`shim`] is a driver around any other, in which calls to the system fail as planned.
//! - [`filters`] holds two filters made for tests, a toy TLS among them.
//! - [`Random`] is small, seeded, and the same everywhere. A failing test names the seed, and [`replay`]
//!   is the command that runs it again.
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
mod random;
mod replay;
pub mod shim;
mod wire;

pub use codec_harness::CodecHarness;
pub use embedded::Embedded;
pub use random::{Random, seed, seeds};
pub use replay::replay;
