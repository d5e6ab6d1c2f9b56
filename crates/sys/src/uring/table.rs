//! The sockets of a completion driver, by slot; 20 bytes each.

use std::io;
use std::os::fd::OwnedFd;

use rustix::io::Errno;

use tidegate_buffer::injected::{self, Bug};

use super::operation::{GENERATION_MASK, OpStates};
use crate::driver::{Completion, Token};
use crate::flags;
use crate::ready::Load;
use crate::recv_sizer::RecvSizer;
use crate::slots::{HasGeneration, Slots};

/// The state of a socket.
#[derive(Debug)]
pub(super) struct SocketEntry {
    pub(super) descriptor: OwnedFd,
    generation: u32,
    /// The index of the guard that keeps the bytes of the send in flight, or `NOTHING`.
    pub(super) lent: u32,
    pub(super) flags: Flags,
    pub(super) operations: OpStates,
    pub(super) recv_sizer: RecvSizer,
    /// While the socket is heavy, it is polled, and receives by system calls.
    pub(super) load: Load,
    pub(super) room: SendRoom,
    pub(super) kind: SocketKind,
}

impl SocketEntry {
    /// The error of a socket that has nothing to receive, if its connection broke.
    pub(super) fn error_of_empty(&mut self) -> Option<Errno> {
        self.flags.set(Flags::READABLE, false);
        rustix::net::sockopt::socket_error(&self.descriptor).ok()?.err()
    }

    /// The socket's report when a receive has found the end: the end of the stream, or a failure if a send has taken
    /// the error.
    pub(super) fn ended(&mut self) -> Completion {
        if self.room == SendRoom::Broken {
            self.flags.set(Flags::FAILED, true);
            return Completion::Failed(io::ErrorKind::ConnectionReset.into());
        }
        self.flags.set(Flags::ENDED, true);
        Completion::Ended
    }
}

/// The kind of a socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SocketKind {
    Stream,
    /// A stream of which the loop wants to know when the peer ends it, also while the socket does not receive.
    WatchedStream,
    Listener,
    Datagram,
}

/// Whether the kernel has room for a send.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SendRoom {
    /// There is room, as far as the driver knows.
    Free,
    /// The kernel took nothing of the last send. A poll reports when there is room.
    Awaited,
    /// The poll has reported room, and the driver has not reported it to the loop yet.
    Found,
    /// The connection broke, and a send took the error from the kernel, where a receive finds only an end now. That end
    /// is reported as a failure.
    Broken,
}

/// Yes-or-no facts about a socket.
pub(super) type Flags = flags::FlagSet<SocketFlag>;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SocketFlag {}

impl Flags {
    /// The loop wants the bytes that arrive; for a listener, the connections.
    pub(super) const RECEIVING: Self = Self::flag_bit(0);
    /// The socket is in the line of those whose requests are armed or cancelled before the next wait.
    pub(super) const ARM_QUEUED: Self = Self::flag_bit(1);
    /// The loop has stopped receiving on the socket before, so its receives are single-shot.
    pub(super) const ONE_SHOT: Self = Self::flag_bit(2);
    /// The peer's end of the stream was reported.
    pub(super) const ENDED: Self = Self::flag_bit(3);
    /// The failure was reported.
    pub(super) const FAILED: Self = Self::flag_bit(4);
    pub(super) const CONNECTING: Self = Self::flag_bit(5);
    /// The socket is in the list of those that receive again when receives resume.
    pub(super) const RECV_PAUSED: Self = Self::flag_bit(6);
    /// The loop has closed the socket.
    pub(super) const CLOSING: Self = Self::flag_bit(7);
    /// Closing resets the connection.
    pub(super) const RESET: Self = Self::flag_bit(8);
    /// The loop has requested a send that could not start.
    pub(super) const SEND_WAITS: Self = Self::flag_bit(9);
    /// The socket is heavy: it is polled, and receives by system calls (`direct_io.rs`).
    pub(super) const HEAVY: Self = Self::flag_bit(10);
    /// The operation that is armed for receiving is that poll.
    pub(super) const POLLED: Self = Self::flag_bit(11);
    /// There may be bytes to receive or connections to accept, as the poll or the last receive reported.
    pub(super) const READABLE: Self = Self::flag_bit(12);
    /// The poll reported that the peer has hung up, or has sent urgent bytes, before which a receive stops.
    pub(super) const HUNG_UP: Self = Self::flag_bit(13);
    /// The socket is queued, to receive or accept by a system call, or to report that there is room to send.
    pub(super) const READY_QUEUED: Self = Self::flag_bit(14);
    /// The socket found no buffer, and is in the queue of those that wait for one.
    pub(super) const STARVED: Self = Self::flag_bit(15);
}

/// The table.
pub(super) type Sockets = Slots<SocketEntry>;

impl HasGeneration for SocketEntry {
    fn generation(&self) -> u32 {
        self.generation
    }
}

impl Sockets {
    pub(super) fn insert(&mut self, token: Token, descriptor: OwnedFd, kind: SocketKind, flags: Flags) {
        let entry = SocketEntry {
            descriptor,
            generation: token.generation,
            lent: NOTHING,
            flags,
            operations: OpStates::default(),
            recv_sizer: RecvSizer::default(),
            load: Load::default(),
            room: SendRoom::Free,
            kind,
        };
        self.put(token.slot, entry);
    }

    /// The token of the socket that an operation's name belongs to.
    pub(super) fn token(&self, slot: u32, generation: u32) -> Option<Token> {
        let entry = self.occupant(slot)?;
        let same = u64::from(entry.generation) & GENERATION_MASK == u64::from(generation)
            || injected::is_injected(Bug::StaleEventAccepted);
        same.then_some(Token { slot, generation: entry.generation })
    }
}

/// No send is in flight.
pub(super) const NOTHING: u32 = u32::MAX;

const _: () = assert!(size_of::<Option<SocketEntry>>() == 20);
