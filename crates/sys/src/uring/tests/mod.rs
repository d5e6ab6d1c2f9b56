//! The driver over a fake kernel (`fake.rs`). The files that are named after the modules of the driver test one claim
//! at a time; `play.rs` tests all of them with random operations.

mod accept;
mod close;
mod connect;
mod failure;
mod fake;
mod play;
mod random;
mod receive;
mod send;
mod stage;
mod wait;

use std::os::fd::RawFd;

use tidegate_buffer::Pool;

use self::fake::Fake;
use super::UringDriver;
use super::direct_io::DirectIo;
use super::receive::Buffers;

/// A driver over a fake kernel.
fn driver(pool: &Pool, seed: u64) -> UringDriver<Fake> {
    UringDriver::new(Fake::new(seed), Buffers::new(pool), DirectIo::new(pool)).unwrap()
}

/// The events that a poll of a descriptor reports now.
fn look(fd: RawFd, events: i16) -> i16 {
    let mut look = libc::pollfd { fd, events, revents: 0 };
    // SAFETY: the call writes one `pollfd`, as the pointer and the count state.
    unsafe { libc::poll(&raw mut look, 1, 0) };
    look.revents
}
