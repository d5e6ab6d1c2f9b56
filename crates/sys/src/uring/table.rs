//! The sockets of a completion driver, by slot; 20 bytes each.

use std::os::fd::OwnedFd;

use tidegate_buffer::injected::{self, Bug};

use super::operation::{GENERATION_MASK, OpStates};
use crate::driver::Token;
use crate::flags;
use crate::ready::Load;
use crate::recv_sizer::RecvSizer;
use crate::slots::{HasGeneration, Slots};

/// What is known of a socket.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) descriptor: OwnedFd,
    generation: u32,
    /// Where the memory of the send in flight is held.
    pub(super) lent: u32,
    pub(super) flags: Flags,
    pub(super) operations: OpStates,
    pub(super) appetite: RecvSizer,
    /// While the socket is heavy, it is polled, and received from by calls.
    pub(super) load: Load,
    pub(super) room: Room,
    /// It is among the sockets that receive again when receiving goes on.
    pub(super) paused: bool,
}

/// Whether the kernel has room for a send.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Room {
    /// As far as is known.
    Free,
    /// It took nothing of the last send. A poll reports when there is room.
    Awaited,
    /// The poll has reported room, and the loop does not know yet.
    Found,
}

/// Yes-or-no facts about a socket.
pub(super) type Flags = flags::Flags<Fact>;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fact {}

impl Flags {
    /// The loop wants what arrives; of a listener, who arrives.
    pub(super) const RECEIVING: Self = Self::fact(0);
    /// It is in the line of those whose operations are looked at before the next wait.
    pub(super) const LINED_UP: Self = Self::fact(1);
    /// It stops receiving now and then, so each receive is an operation of its own.
    pub(super) const ONE_SHOT: Self = Self::fact(2);
    /// The peer's end was told.
    pub(super) const ENDED: Self = Self::fact(3);
    /// The failure was told.
    pub(super) const FAILED: Self = Self::fact(4);
    pub(super) const CONNECTING: Self = Self::fact(5);
    pub(super) const LISTENER: Self = Self::fact(6);
    /// The loop has let go of it.
    pub(super) const CLOSING: Self = Self::fact(7);
    /// Closing cuts it off.
    pub(super) const RESET: Self = Self::fact(8);
    /// Something was to be sent when it could not be.
    pub(super) const SEND_WAITS: Self = Self::fact(9);
    /// It brings much: it is polled, and received from by calls (`direct_io.rs`).
    pub(super) const BULK: Self = Self::fact(10);
    /// What is armed for receiving is that poll.
    pub(super) const POLLED: Self = Self::fact(11);
    /// There may be something to receive, or somebody to accept: the poll said so, or the last receive.
    pub(super) const READABLE: Self = Self::fact(12);
    /// The poll said that the peer has hung up, or sent urgent bytes, before which a receive stops.
    pub(super) const HUNG_UP: Self = Self::fact(13);
    /// It is queued: to be received or accepted from by a call, or to report that there is room to send.
    pub(super) const ATTENDED: Self = Self::fact(14);
    /// It found no buffer, and is in the line of those that wait for one.
    pub(super) const STARVED: Self = Self::fact(15);
}

/// The table.
pub(super) type Sockets = Slots<Entry>;

impl HasGeneration for Entry {
    fn generation(&self) -> u32 {
        self.generation
    }
}

impl Sockets {
    pub(super) fn insert(&mut self, token: Token, descriptor: OwnedFd, flags: Flags) {
        let entry = Entry {
            descriptor,
            generation: token.generation,
            lent: NOTHING,
            flags,
            operations: OpStates::default(),
            appetite: RecvSizer::default(),
            load: Load::default(),
            room: Room::Free,
            paused: false,
        };
        self.put(token.slot, entry);
    }

    /// Who an operation's name belongs to.
    pub(super) fn token(&self, slot: u32, generation: u32) -> Option<Token> {
        let entry = self.occupant(slot)?;
        let same = u64::from(entry.generation) & GENERATION_MASK == u64::from(generation)
            || injected::is_injected(Bug::OldBelieved);
        same.then_some(Token { slot, generation: entry.generation })
    }
}

/// No send is in flight.
pub(super) const NOTHING: u32 = u32::MAX;

const _: () = assert!(size_of::<Option<Entry>>() == 20);
