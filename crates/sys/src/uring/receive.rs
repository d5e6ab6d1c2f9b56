//! Receiving: the buffers that the kernel fills, and what comes in them.

use std::io;

use tidegate_buffer::{Pool, Scratch, Slice};

use super::Machine;
use super::kernel::{Event, Kernel};
use super::table::Flags;
use crate::driver::{Completion, Token};

/// The buffers of a loop. Each is the kernel's until an event names it; then it is looked at by one visit, and given back.
/// Whoever keeps a view of it keeps the memory, and the ring gets other.
#[derive(Debug)]
pub(super) struct Buffers {
    all: Vec<Scratch>,
    /// What was told last: while it is looked at, it is not given back.
    last: Option<u16>,
    /// How many of them the ring has been given. Others have no memory yet.
    provided: u16,
    /// Sockets that found no buffer since the last wait.
    starved: u16,
}

impl Buffers {
    pub(super) fn new(pool: &Pool) -> Self {
        let all = (0..BUFFERS).map(|_| Scratch::with_room(pool, BUFFER_BYTES)).collect();
        Self { all, last: None, provided: 0, starved: 0 }
    }

    pub(super) fn count(&self) -> u16 {
        self.all.len() as u16
    }

    /// Gives back what was looked at.
    pub(super) fn reclaim(&mut self, kernel: &mut impl Kernel) {
        if let Some(buffer) = self.last.take() {
            self.give_back(buffer, kernel);
        }
    }

    /// Provides more buffers if many sockets found none. One that is flooded finds none either, whatever there are: it
    /// is armed again with the next wait, as it would be read again by a driver on readiness.
    pub(super) fn provide(&mut self, kernel: &mut impl Kernel) {
        let starved = std::mem::take(&mut self.starved);
        let wanted = if self.provided == 0 {
            BUFFERS_MIN
        } else if starved > self.provided / 4 {
            self.provided * 2
        } else {
            return;
        };
        let wanted = wanted.min(self.count());
        (self.provided..wanted).for_each(|buffer| self.give_back(buffer, kernel));
        self.provided = wanted;
    }

    pub(super) fn give_back(&mut self, buffer: u16, kernel: &mut impl Kernel) {
        let Some(scratch) = self.all.get_mut(usize::from(buffer)) else { return };
        let space = scratch.space(BUFFER_BYTES);
        kernel.provide(buffer, space.as_mut_ptr(), space.len() as u32);
    }

    fn take(&mut self, buffer: u16, length: usize) -> Option<Slice> {
        let scratch = self.all.get(usize::from(buffer))?;
        self.last = Some(buffer);
        Some(scratch.received(length.min(BUFFER_BYTES)))
    }

    /// Leaves the memory to a kernel that has not let go of it.
    pub(super) fn leak(&mut self) {
        std::mem::forget(std::mem::take(&mut self.all));
    }
}

impl<K: Kernel> Machine<K> {
    pub(super) fn received(&mut self, token: Token, event: Event) -> Option<Completion> {
        if !event.more {
            self.line_up(token);
        }
        let socket = self.sockets.get_mut(token)?;
        if socket.flags.has(Flags::POLLED) {
            return self.polled(token, event);
        }
        if socket.flags.has_any(Flags::ENDED.and(Flags::FAILED)) {
            self.discard(event);
            return None;
        }
        match (event.result, event.buffer) {
            (0, buffer) => {
                socket.flags.set(Flags::ENDED, true);
                if buffer.is_some() {
                    self.discard(event);
                }
                Some(Completion::Ended)
            }
            (length @ 1.., Some(buffer)) => {
                let length = length as usize;
                if length >= BUFFER_BYTES && !socket.flags.has(Flags::BULK) {
                    socket.flags.set(Flags::BULK, true);
                    self.line_up(token);
                }
                self.buffers.take(buffer, length).map(Completion::Received)
            }
            (result, _) if -result == libc::ENOBUFS => {
                self.buffers.starved = self.buffers.starved.saturating_add(1);
                None
            }
            // Cancelled, interrupted: nothing is lost, and it is armed again where it is wanted.
            (result, _) if matches!(-result, libc::ECANCELED | libc::EINTR | libc::EAGAIN) => None,
            (result, _) => {
                socket.flags.set(Flags::FAILED, true);
                let errno = if result < 0 { -result } else { libc::EIO };
                Some(Completion::Failed(io::Error::from_raw_os_error(errno)))
            }
        }
    }
}

/// Buffers of a loop at most, a power of two: one and a half MiB, headroom included.
const BUFFERS: u16 = 128;

/// Buffers that a loop begins with: 96 KiB.
const BUFFERS_MIN: u16 = 8;

/// Bytes that one receive may bring.
pub(super) const BUFFER_BYTES: usize = 4 * 1024;
