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
//!
//! # Files
//!
//! | file | holds |
//! |---|---|
//! | `driver.rs` | the interface of drivers: `Driver`, `Operation`, `Completion`, `Token` |
//! | `readiness/` | the driver on epoll, through mio |
//! | `uring/` | the driver on io_uring: operations and their states (`operation.rs`), the interface to a kernel and the real kernel (`kernel.rs`, `ring.rs`), requests of sockets (`arm.rs`, `accept.rs`), small transfers by the ring (`receive.rs`, `send.rs`), large ones by calls (`direct_io.rs`); `tests/` has a fake kernel |
//! | `datagram/` | datagrams in batches, for both drivers: `DatagramOptions` (`options.rs`), opening (`open.rs`), multicast groups (`groups.rs`), sending (`send.rs`), the system calls (`messages.rs`), control messages (`control.rs`), memory for short datagrams (`sparse_space.rs`), the choice among sockets of one address (`steering.rs`) |
//! | `gather.rs` | the part of sending that both drivers share |
//! | `slots.rs` | the table of a driver's sockets |
//! | `flags.rs` | sets of facts about a socket |
//! | `passed_descriptors.rs` | descriptors that come and go over Unix streams |
//! | `receive_space.rs` | the memory that both drivers receive into by system calls; a larger one for long bodies |
//! | `recv_sizer.rs` | the size of the next receive of a socket, by the receives before and by hints of its filter |
//! | `ready.rs` | which socket reports next: `Load`, `Class`, `ReadyQueue` |
//! | `socket.rs` | listeners and streams before a driver has them |
//! | `options.rs` | socket options by name |
//! | `socket_address.rs` | an `Address` as the system's, and back |
//! | `path_lock.rs` | `PathLock`: one process at a time changes the file at a path |
//! | `handover.rs` | listeners passed from one process to the next over a Unix socket |
//! | `message_pipe.rs` | messages from one process to another on the same machine |
//! | `inherited.rs` | listeners that were open at process start: `LISTEN_FDS` |
//! | `wake.rs` | `Waker` |
//! | `memory.rs` | the machine's memory, the process's; returning memory to the system |
//! | `allocations.rs` | `CountingAllocator`: the allocations of a thread, for tests |

#[doc(hidden)]
pub mod allocations;
mod datagram;
mod driver;
mod flags;
mod gather;
pub mod handover;
pub mod inherited;
pub mod memory;
pub mod message_pipe;
mod options;
mod passed_descriptors;
pub mod path_lock;
pub mod readiness;
mod ready;
mod receive_space;
mod recv_sizer;
mod slots;
mod socket;
mod socket_address;
pub mod uring;
mod wake;

pub use datagram::{DatagramOptions, SourceGroup, Steering};
pub use driver::{Accepted, Completion, Driver, Operation, Side, Token, Transmission};
pub use options::{ListenOptions, SocketOptions};
pub use passed_descriptors::PassedDescriptors;
pub use ready::{Class, Load, ReadyQueue};
pub use socket::Socket;
pub use tidegate_buffer::{Address, BadAddress, parse_zoned};
pub use wake::{Wake, Waker};
