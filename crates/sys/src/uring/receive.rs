//! Receiving little: the buffers that the kernel fills, and what comes in them.

use std::collections::VecDeque;
use std::io;

use tidegate_buffer::injected::{self, Bug};
use tidegate_buffer::{Pool, SEGMENT_BYTES, Scratch, Slice};

use super::kernel::{Event, Kernel};
use super::table::Flags;
use super::{Machine, leak};
use crate::driver::{Completion, Token};
use crate::ready::HEAVY_RECEIVE_BYTES;

/// The buffers of a loop. Each is the kernel's until an event names it; then it is looked at by one visit, and given
/// back. Whoever keeps a view of it keeps the memory, and the ring gets other.
#[derive(Debug)]
pub(super) struct Buffers {
    all: Vec<Scratch>,
    /// What was told last: while it is looked at, it is not given back.
    last: Option<u16>,
    /// What is to be given back.
    own: Vec<u16>,
    /// Which of them the kernel has, one bit each. What it names without having it was told before.
    theirs: u64,
    /// Sockets that found no buffer, in the order in which they try again.
    starved: VecDeque<Token>,
}

impl Buffers {
    pub(super) fn new(pool: &Pool) -> Self {
        let all = (0..BUFFERS).map(|_| Scratch::with_room(pool, HEADROOM_BYTES, BUFFER_BYTES)).collect();
        Self { all, last: None, own: (0..BUFFERS).collect(), theirs: 0, starved: VecDeque::new() }
    }

    /// How many there are.
    pub(super) fn count(&self) -> u16 {
        self.all.len() as u16
    }

    /// Whether nobody waits for one.
    pub(super) fn suffice(&self) -> bool {
        self.starved.is_empty()
    }

    /// Takes back what was looked at.
    pub(super) fn reclaim(&mut self) {
        self.own.extend(self.last.take().filter(|_| !injected::is_injected(Bug::BufferLost)));
    }

    /// Gives the ring all that it may have.
    pub(super) fn give_back(&mut self, kernel: &mut impl Kernel) {
        for buffer in self.own.drain(..) {
            if let Some(scratch) = self.all.get_mut(usize::from(buffer)) {
                let space = scratch.space(BUFFER_BYTES);
                kernel.provide(buffer, space.as_mut_ptr(), space.len() as u32);
                self.theirs |= 1 << buffer;
            }
        }
    }

    /// Takes back what an event brought that nobody wants any more.
    pub(super) fn discard(&mut self, buffer: Option<u16>) {
        if let Some(buffer) = buffer.filter(|buffer| self.is_ours_again(*buffer)) {
            self.own.push(buffer);
        }
    }

    fn take(&mut self, buffer: u16, length: usize) -> Option<Slice> {
        if !self.is_ours_again(buffer) {
            return None;
        }
        self.last = Some(buffer);
        Some(self.all[usize::from(buffer)].received(length.min(BUFFER_BYTES)))
    }

    /// Whether the kernel had the buffer, which it has no more.
    fn is_ours_again(&mut self, buffer: u16) -> bool {
        let bit = 1_u64.checked_shl(buffer.into()).unwrap_or(0);
        let had = self.theirs & bit != 0;
        self.theirs &= !bit;
        had
    }

    /// Leaves the memory to a kernel that has not let go of it.
    pub(super) fn leak(&mut self) {
        leak(std::mem::take(&mut self.all));
    }
}

impl<K: Kernel> Machine<K> {
    /// Provides buffers, and lets as many sockets try again as there are: who comes first is served first, and nobody
    /// tries in vain for ever. While receiving is held back the ring gets none: what it still has fills, and then
    /// receives end of themselves.
    pub(super) fn provide(&mut self) {
        self.buffers.reclaim();
        if self.receives_paused {
            return;
        }
        self.buffers.give_back(&mut self.kernel);
        for _ in 0..BUFFERS {
            let Some(token) = self.buffers.starved.pop_front() else { return };
            let Some(socket) = self.sockets.get_mut(token) else { continue };
            socket.flags.set(Flags::STARVED, false);
            let flags = socket.flags;
            // Before those who have had one; and if the kernel takes it later only, with those who are lined up.
            self.line_up(token);
            let _ = self.arm_receive(token, self.wants(flags));
        }
    }

    pub(super) fn received(&mut self, token: Token, event: Event) -> Option<Completion> {
        if !event.more {
            self.line_up(token);
        }
        let socket = self.sockets.get_mut(token)?;
        if socket.flags.contains(Flags::POLLED) {
            return self.polled(token, event);
        }
        if socket.flags.intersects(Flags::ENDED.union(Flags::FAILED)) {
            self.buffers.discard(event.buffer);
            return None;
        }
        if event.result >= 0 {
            // One that came to nothing says nothing of what is there.
            socket.flags.set(Flags::READABLE, event.nonempty);
        }
        if event.result <= 0 {
            // Even what was cancelled may have taken a buffer.
            self.buffers.discard(event.buffer);
        }
        match (event.result, event.buffer) {
            (0, _) => {
                socket.flags.set(Flags::ENDED, true);
                Some(Completion::Ended)
            }
            (length @ 1.., Some(buffer)) => {
                let length = length as usize;
                socket.load.note_received(length);
                if socket.load.is_heavy() && socket.flags.raise(Flags::BULK) {
                    self.line_up(token);
                    if injected::is_injected(Bug::CallOvertakes) {
                        self.poll_socket_later(token);
                        self.bulk.ready.begin_turn();
                    }
                }
                self.buffers.take(buffer, length).map(Completion::Received)
            }
            (result, _) if -result == libc::ENOBUFS => {
                socket.flags.set(Flags::READABLE, true);
                if !event.more && socket.flags.raise(Flags::STARVED) && !injected::is_injected(Bug::StarvedForgotten) {
                    self.buffers.starved.push_back(token);
                }
                None
            }
            _ if event.came_to_nothing() => None,
            (result, _) => {
                socket.flags.set(Flags::FAILED, true);
                let errno = if result < 0 { -result } else { libc::EIO };
                Some(Completion::Failed(io::Error::from_raw_os_error(errno)))
            }
        }
    }
}

/// Buffers of a loop: 192 KiB. Since Linux 6.13 the kernel does the work of twenty sockets at a time, and twice in a
/// call that submits as well, however many are ready: with 48 nobody has to try again, with 32 two of five do. Where an
/// older kernel does the work of all at once, some try again.
const BUFFERS: u16 = 48;

const _: () = assert!(BUFFERS as u32 <= u64::BITS);

// A socket that fills a buffer leaves the ring.
const _: () = assert!(BUFFER_BYTES >= HEAVY_RECEIVE_BYTES);

/// Bytes that one receive may bring. Each buffer is a segment of the pool, which is one page.
pub(super) const BUFFER_BYTES: usize = SEGMENT_BYTES - HEADROOM_BYTES;

/// Room for a rest of the receive before.
const HEADROOM_BYTES: usize = 512;
