//! Sockets and drivers: the I/O of an event loop.
//!
//! A [`Driver`] takes operations and returns completions, one at a time, so that received bytes are decoded while they
//! are in the cache. It knows tokens and sockets, never connections. [`readiness`] is the driver on epoll, through mio;
//! it imitates completion by trying an operation when the socket is ready for it. [`uring`] is the driver on io_uring.
//!
//! Addresses, listeners and socket options by name are here as well, since every driver needs them.
//!
//! This is one of the crates in which unsafe code is allowed. Read next: `driver.rs`, then `readiness/mod.rs` or
//! `uring/mod.rs`.

mod address;
#[doc(hidden)]
pub mod allocations;
mod driver;
mod flags;
mod gather;
pub mod handover;
pub mod inherited;
pub mod memory;
mod options;
pub mod path_lock;
pub mod readiness;
mod ready;
mod receive_space;
mod recv_sizer;
mod slots;
mod socket;
pub mod uring;
mod wake;

pub use address::{Address, BadAddress, parse_zoned};
pub use driver::{Accepted, Completion, Driver, Operation, Side, Token};
pub use options::{ListenOptions, SocketOptions};
pub use ready::{Class, Load, ReadyQueue};
pub use socket::Socket;
pub use wake::{Wake, Waker};
