//! Receiving on light sockets: the provided buffers that the kernel fills, and the events that name them.

use std::collections::VecDeque;
use std::io;

use tidegate_buffer::injected::{self, Bug};
use tidegate_buffer::{Pool, SEGMENT_BYTES, Scratch, Slice};

use super::kernel::{Event, Kernel};
use super::table::Flags;
use super::{UringDriver, leak};
use crate::driver::{Completion, Token};
use crate::ready::HEAVY_RECEIVE_BYTES;

/// The buffers of a loop. The kernel owns a buffer until an event names it. Then the loop reads it during one dispatch,
/// and the driver gives it back. If the application keeps a view of a buffer, it keeps the memory, and the ring gets
/// other memory.
#[derive(Debug)]
pub(super) struct Buffers {
    all: Vec<Scratch>,
    /// The buffer that was reported last. It is not given back while the loop reads it.
    last: Option<u16>,
    /// Buffers that are to be given back.
    own: Vec<u16>,
    /// Which buffers the kernel has, one bit each. An event that names another buffer is a repetition.
    theirs: u64,
    /// Sockets that found no buffer, in the order in which they try again.
    starved: VecDeque<Token>,
}

impl Buffers {
    pub(super) fn new(pool: &Pool) -> Self {
        let all = (0..BUFFERS).map(|_| Scratch::with_room(pool, HEADROOM_BYTES, BUFFER_BYTES)).collect();
        Self { all, last: None, own: (0..BUFFERS).collect(), theirs: 0, starved: VecDeque::new() }
    }

    /// The number of buffers.
    pub(super) fn count(&self) -> u16 {
        self.all.len() as u16
    }

    /// Whether no socket waits for a buffer.
    pub(super) fn suffice(&self) -> bool {
        self.starved.is_empty()
    }

    /// Takes back the buffer that was reported last.
    pub(super) fn reclaim(&mut self) {
        self.own.extend(self.last.take().filter(|_| !injected::is_injected(Bug::BufferLeaked)));
    }

    /// Gives all buffers that are ours back to the ring.
    pub(super) fn give_back(&mut self, kernel: &mut impl Kernel) {
        for buffer in self.own.drain(..) {
            if let Some(scratch) = self.all.get_mut(usize::from(buffer)) {
                let space = scratch.space(BUFFER_BYTES);
                kernel.provide(buffer, space.as_mut_ptr(), space.len() as u32);
                self.theirs |= 1 << buffer;
            }
        }
    }

    /// Takes back the buffer of an event that is not reported.
    pub(super) fn discard(&mut self, buffer: Option<u16>) {
        if let Some(buffer) = buffer.filter(|buffer| self.take_from_kernel(*buffer)) {
            self.own.push(buffer);
        }
    }

    fn take(&mut self, buffer: u16, length: usize) -> Option<Slice> {
        if !self.take_from_kernel(buffer) {
            return None;
        }
        self.last = Some(buffer);
        Some(self.all[usize::from(buffer)].received(length.min(BUFFER_BYTES)))
    }

    /// Takes the buffer from the kernel. Returns whether the kernel had it.
    fn take_from_kernel(&mut self, buffer: u16) -> bool {
        let bit = 1_u64.checked_shl(buffer.into()).unwrap_or(0);
        let had = self.theirs & bit != 0;
        self.theirs &= !bit;
        had
    }

    /// Leaks the memory, because the kernel has not released it.
    pub(super) fn leak(&mut self) {
        leak(std::mem::take(&mut self.all));
    }
}

impl<K: Kernel> UringDriver<K> {
    /// Provides buffers, and arms the receives of as many starved sockets as there are buffers, in their order, so that
    /// no socket starves for ever. While receives are paused the ring gets no buffers: those that it still has are
    /// filled, and then the receives end.
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
            // Armed here, before the sockets that have had a buffer. If the kernel does not take the request now, the
            // socket is armed with the others in the queue.
            self.enqueue(token);
            let _ = self.arm_receive(token, self.wants(flags));
        }
    }

    pub(super) fn received(&mut self, token: Token, event: Event) -> Option<Completion> {
        if !event.more {
            self.enqueue(token);
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
            // A receive without a result does not show whether bytes are there.
            socket.flags.set(Flags::READABLE, event.nonempty);
        }
        if event.result <= 0 {
            // Even a cancelled receive may have taken a buffer.
            self.buffers.discard(event.buffer);
        }
        match (event.result, event.buffer) {
            (0, _) => Some(socket.ended()),
            (length @ 1.., Some(buffer)) => {
                let length = length as usize;
                socket.load.note_received(length);
                if socket.load.is_heavy() && socket.flags.raise(Flags::HEAVY) {
                    self.enqueue(token);
                    if injected::is_injected(Bug::DirectReceiveReordered) {
                        self.poll_socket_later(token);
                        self.direct_io.ready.begin_turn();
                    }
                }
                self.buffers.take(buffer, length).map(Completion::Received)
            }
            (result, _) if -result == libc::ENOBUFS => {
                socket.flags.set(Flags::READABLE, true);
                if !event.more && socket.flags.raise(Flags::STARVED) && !injected::is_injected(Bug::StarvedReceiveLost)
                {
                    self.buffers.starved.push_back(token);
                }
                None
            }
            _ if event.was_cancelled() => None,
            (result, _) => {
                socket.flags.set(Flags::FAILED, true);
                let errno = if result < 0 { -result } else { libc::EIO };
                Some(Completion::Failed(io::Error::from_raw_os_error(errno)))
            }
        }
    }
}

/// Buffers of a loop: 192 KiB. Since Linux 6.13 the kernel does the work of twenty sockets at a time, and twice in a
/// call that submits as well, however many are ready. With 48 buffers no receive gets `ENOBUFS`; with 32, two of five
/// do. An older kernel does the work of all sockets at once, so some receives get `ENOBUFS` and are armed again.
const BUFFERS: u16 = 48;

const _: () = assert!(BUFFERS as u32 <= u64::BITS);

// A socket that fills a buffer leaves the ring.
const _: () = assert!(BUFFER_BYTES >= HEAVY_RECEIVE_BYTES);

/// Bytes that one receive may bring. Each buffer is a segment of the pool, which is one page.
pub(super) const BUFFER_BYTES: usize = SEGMENT_BYTES - HEADROOM_BYTES;

/// SendRoom for undecoded bytes of the receive before.
const HEADROOM_BYTES: usize = 512;
