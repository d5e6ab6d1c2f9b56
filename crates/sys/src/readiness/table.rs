//! The sockets of a readiness driver, by slot; 12 bytes each.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};

use crate::appetite::Appetite;
use crate::driver::Token;

/// What is known of a socket.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) descriptor: OwnedFd,
    generation: u32,
    pub(super) flags: Flags,
    pub(super) appetite: Appetite,
}

/// A set of yes-or-no facts about a socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Flags(u16);

impl Flags {
    pub(super) const NONE: Self = Self(0);
    /// epoll said so, and no receive has drained it since.
    pub(super) const READABLE: Self = Self(1);
    /// epoll said so since it was last asked.
    pub(super) const WRITABLE: Self = Self(1 << 1);
    /// The peer, or both sides, ended, or it has sent urgent bytes, before which a receive stops: a short one does not mean
    /// that there is nothing more.
    pub(super) const HUNG_UP: Self = Self(1 << 2);
    pub(super) const ERROR: Self = Self(1 << 3);
    /// It is in the line for attention.
    pub(super) const LINED_UP: Self = Self(1 << 4);
    /// The loop wants what arrives.
    pub(super) const RECEIVING: Self = Self(1 << 5);
    /// The kernel's buffer is full; an edge will come.
    pub(super) const SEND_BLOCKED: Self = Self(1 << 6);
    /// The peer's end was told.
    pub(super) const ENDED: Self = Self(1 << 7);
    /// The failure was told.
    pub(super) const FAILED: Self = Self(1 << 8);
    pub(super) const CONNECTING: Self = Self(1 << 9);
    pub(super) const LISTENER: Self = Self(1 << 10);
    pub(super) const ACCEPTING: Self = Self(1 << 11);
    /// It could be received from while receiving was held back, and is remembered for when it goes on.
    pub(super) const HELD: Self = Self(1 << 12);

    pub(super) const fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    pub(super) const fn has(self, flag: Self) -> bool {
        self.0 & flag.0 == flag.0
    }

    pub(super) const fn has_any(self, flags: Self) -> bool {
        self.0 & flags.0 != 0
    }

    pub(super) const fn set(&mut self, flag: Self, on: bool) {
        if on {
            self.0 |= flag.0;
        } else {
            self.0 &= !flag.0;
        }
    }

    /// Clears a flag and says whether it was set.
    pub(super) const fn take(&mut self, flag: Self) -> bool {
        let had = self.has(flag);
        self.set(flag, false);
        had
    }
}

impl AsFd for Entry {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

impl AsRawFd for Entry {
    fn as_raw_fd(&self) -> RawFd {
        self.descriptor.as_raw_fd()
    }
}

/// The table. A slot that is looked up with an old generation is empty.
#[derive(Debug, Default)]
pub(super) struct Sockets(Vec<Option<Entry>>);

impl Sockets {
    pub(super) fn insert(&mut self, token: Token, descriptor: OwnedFd, flags: Flags) {
        let slot = token.slot as usize;
        if slot >= self.0.len() {
            self.0.resize_with(slot + 1, || None);
        }
        self.0[slot] = Some(Entry { descriptor, generation: token.generation, flags, appetite: Appetite::default() });
    }

    pub(super) fn get(&self, token: Token) -> Option<&Entry> {
        self.0.get(token.slot as usize)?.as_ref().filter(|entry| entry.generation == token.generation)
    }

    pub(super) fn get_mut(&mut self, token: Token) -> Option<&mut Entry> {
        self.0.get_mut(token.slot as usize)?.as_mut().filter(|entry| entry.generation == token.generation)
    }

    pub(super) fn remove(&mut self, token: Token) -> Option<Entry> {
        self.get(token)?;
        self.0[token.slot as usize].take()
    }
}

const _: () = assert!(size_of::<Option<Entry>>() == 12);
