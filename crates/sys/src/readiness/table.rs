//! The sockets of a readiness driver, by slot; 12 bytes each.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};

use crate::driver::Token;
use crate::flags;
use crate::ready::Load;
use crate::recv_sizer::RecvSizer;
use crate::slots::{HasGeneration, Slots};

/// The state of a socket.
#[derive(Debug)]
pub(super) struct SocketEntry {
    pub(super) descriptor: OwnedFd,
    generation: u32,
    pub(super) flags: Flags,
    pub(super) recv_sizer: RecvSizer,
    pub(super) load: Load,
}

/// The flags of a socket.
pub(super) type Flags = flags::FlagSet<SocketFlag>;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SocketFlag {}

impl Flags {
    /// epoll reported it, and no receive has drained the socket since.
    pub(super) const READABLE: Self = Self::flag_bit(0);
    /// epoll reported it since `poll_socket` last cleared it.
    pub(super) const WRITABLE: Self = Self::flag_bit(1);
    /// The peer or both sides have ended the stream, or the peer has sent urgent bytes, before which a receive stops. A
    /// short receive then does not mean that the socket is drained.
    pub(super) const HUNG_UP: Self = Self::flag_bit(2);
    pub(super) const ERROR: Self = Self::flag_bit(3);
    /// The socket is queued.
    pub(super) const QUEUED: Self = Self::flag_bit(4);
    /// The loop wants the bytes that arrive.
    pub(super) const RECEIVING: Self = Self::flag_bit(5);
    /// The kernel's buffer is full; an edge follows when it has room.
    pub(super) const SEND_BLOCKED: Self = Self::flag_bit(6);
    /// The peer's end of the stream was reported.
    pub(super) const ENDED: Self = Self::flag_bit(7);
    /// The failure was reported.
    pub(super) const FAILED: Self = Self::flag_bit(8);
    pub(super) const CONNECTING: Self = Self::flag_bit(9);
    pub(super) const LISTENER: Self = Self::flag_bit(10);
    pub(super) const ACCEPTING: Self = Self::flag_bit(11);
    /// The socket is in the list of readable sockets whose receives are paused.
    pub(super) const RECV_PAUSED: Self = Self::flag_bit(12);
    /// The connection broke, and a send took the error from the kernel, where a receive finds only an end now. That end
    /// is reported as a failure.
    pub(super) const BROKEN: Self = Self::flag_bit(13);
    /// The loop wants to know when the peer ends the stream, also while the socket does not receive.
    pub(super) const WATCHED: Self = Self::flag_bit(14);
    /// The peer has ended the stream. Bytes of it may be unread.
    pub(super) const PEER_ENDED: Self = Self::flag_bit(15);
}

impl Flags {
    /// A datagram socket: a combination that no other socket has, so that streams are not tested for it.
    pub(super) const DATAGRAM: Self = Self::LISTENER.union(Self::CONNECTING);

    /// Whether the peer's end is reported apart from the peer's bytes.
    pub(super) fn is_end_due(self) -> bool {
        let is_found =
            self.contains(Self::ENDED) || (self.contains(Self::PEER_ENDED) && !self.contains(Self::RECEIVING));
        self.contains(Self::WATCHED) && is_found && !self.contains(Self::FAILED)
    }
}

impl AsFd for SocketEntry {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

impl AsRawFd for SocketEntry {
    fn as_raw_fd(&self) -> RawFd {
        self.descriptor.as_raw_fd()
    }
}

/// The table.
pub(super) type Sockets = Slots<SocketEntry>;

impl HasGeneration for SocketEntry {
    fn generation(&self) -> u32 {
        self.generation
    }
}

impl Sockets {
    pub(super) fn insert(&mut self, token: Token, descriptor: OwnedFd, flags: Flags) {
        let entry = SocketEntry {
            descriptor,
            generation: token.generation,
            flags,
            recv_sizer: RecvSizer::default(),
            load: Load::default(),
        };
        self.put(token.slot, entry);
    }
}

const _: () = assert!(size_of::<Option<SocketEntry>>() == 12);
