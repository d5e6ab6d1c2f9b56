//! Tools for tests of protocols and applications, without a real network.
//!
//! - [`contract`] checks any codec against the contract that all codecs share: the same bytes in whatever pieces give
//!   the same messages, nothing leaks, nothing panics, and a declared length alone allocates nothing.
//! - [`CodecHarness`] drives one codec step by step, as an event loop does for a connection.
//! - [`Embedded`] runs a codec and its application, a handler or a channel, on a real event loop; the test is the peer
//!   and moves the clock. Users test their protocols with it. [`Peer`] is its other end as messages.
//! - [`network`] runs several event loops on hosts of a simulated network, with virtual time and seeded faults.
//! - [`TwoLoops`] runs a server and its client on one thread, over a driver of the kernel or in such a network.
//! - [`shim`] is a driver that wraps another one and fails system calls as planned.
//! - [`filters`] has two filters for tests, one of them a toy TLS. [`ToyMux`] is a small protocol with streams.
//! - [`Random`] is a small seeded generator, the same on every machine. A failing test prints its seed, and [`replay`]
//!   returns the command that runs it again.
//! - [`ClosedPort`] is a port without a server.
//! - [`MailboxFiller`] fills the mailbox of a loop.
//! - `allocations` counts the allocations of a test's thread.
//! - [`Postgres`] is a real PostgreSQL for one test, on a Unix socket of its own.
//!
//! Only tests and examples may depend on this crate.
//!
//! Read next: `embedded.rs`, or `contract.rs`.
//!
//! # Files
//!
//! | file | holds |
//! |---|---|
//! | `embedded.rs` | `Embedded`: a codec and its handler or channel on a real loop, with the test as peer and clock |
//! | `peer.rs` | `Peer`: the other end of such a connection, as messages |
//! | `toy_mux.rs` | `ToyMux`, a small protocol with streams |
//! | `two_loops.rs` | `TwoLoops`: a server and its client on one thread |
//! | `wire.rs` | the driver beneath it, made of byte vectors |
//! | `postgres.rs` | `Postgres`: a real PostgreSQL for one test, on a Unix socket of its own |
//! | `contract.rs` | the contract of codecs, for any codec |
//! | `codec_harness.rs` | one codec, step by step |
//! | `filters.rs` | two filters: a toy TLS, and one that strips a prefix |
//! | `network/` | `Network`: loops on hosts of a simulated network (`host.rs`), its clock (`world.rs`, `table.rs`), scheduled events (`event_queue.rs`), connecting (`connect.rs`), streams (`flow.rs`, `stream.rs`), the completions of a socket (`poll_socket.rs`), the driver (`driver.rs`), faults (`faults.rs`), whether two runs were the same (`trace.rs`) |
//! | `closed_port.rs` | `ClosedPort`: a port without a server |
//! | `mailbox_filler.rs` | `MailboxFiller`: wake-ups that find the mailbox of their loop full |
//! | `shim.rs` | `Shim`, a driver around any other: system calls fail as planned |
//! | `random.rs` | seeded randomness |
//! | `replay.rs` | the command that repeats a failed test |

#![forbid(unsafe_code)]

mod closed_port;
mod codec_harness;
pub mod contract;
mod embedded;
pub mod filters;
mod mailbox_filler;
pub mod network;
mod peer;
mod postgres;
mod random;
mod replay;
pub mod shim;
mod toy_mux;
mod two_loops;
mod wire;

pub use closed_port::ClosedPort;
pub use codec_harness::CodecHarness;
pub use embedded::Embedded;
pub use mailbox_filler::MailboxFiller;
pub use peer::Peer;
pub use postgres::Postgres;
pub use random::{Random, seed, seeds};
pub use replay::replay;
pub use tidegate_sys::allocations;
pub use toy_mux::{ToyMux, ToyMuxConfig, ToyMuxError};
pub use two_loops::TwoLoops;
