//! The driver over a kernel that is made for it: `fake.rs`. What one claim says is tried one by one in the files named
//! after the rooms of the driver; `play.rs` tries everything at once.

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
use super::Machine;
use super::direct_io::DirectIo;
use super::receive::Buffers;

/// A driver over a difficult kernel.
fn machine(pool: &Pool, seed: u64) -> Machine<Fake> {
    Machine::new(Fake::new(seed), Buffers::new(pool), DirectIo::new(pool)).unwrap()
}

/// What a poll of a descriptor says now.
fn look(fd: RawFd, events: i16) -> i16 {
    let mut look = libc::pollfd { fd, events, revents: 0 };
    // SAFETY: the call writes one `pollfd`, which is what the pointer and the count say.
    unsafe { libc::poll(&raw mut look, 1, 0) };
    look.revents
}
