//! The sockets of a completion driver, by slot; 20 bytes each.

use std::os::fd::OwnedFd;

use tidegate_buffer::planted::{self, Bug};

use super::operation::{Flights, GENERATION_MASK};
use super::receive::BUFFER_BYTES;
use crate::appetite::Appetite;
use crate::driver::Token;

/// What is known of a socket.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) descriptor: OwnedFd,
    generation: u32,
    /// Where the memory of the send in flight is held.
    pub(super) lent: u32,
    pub(super) flags: Flags,
    pub(super) flights: Flights,
    /// How many receives in a row have brought little.
    pub(super) little: u8,
    pub(super) appetite: Appetite,
    /// The kernel took nothing of the last send; a poll tells when it does.
    pub(super) blocked: bool,
}

impl Entry {
    /// Takes note of how much came, and says whether it was much.
    pub(super) fn note_length(&mut self, length: usize) -> bool {
        let much = length >= BUFFER_BYTES;
        self.little = if much { 0 } else { self.little.saturating_add(1) };
        much
    }
}

/// A set of yes-or-no facts about a socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Flags(u16);

impl Flags {
    pub(super) const NONE: Self = Self(0);
    /// The loop wants what arrives; of a listener, who arrives.
    pub(super) const RECEIVING: Self = Self(1);
    /// It is in the line of those whose operations are looked at before the next wait.
    pub(super) const LINED_UP: Self = Self(1 << 1);
    /// It stops receiving now and then, so each receive is an operation of its own.
    pub(super) const ONE_SHOT: Self = Self(1 << 2);
    /// The peer's end was told.
    pub(super) const ENDED: Self = Self(1 << 3);
    /// The failure was told.
    pub(super) const FAILED: Self = Self(1 << 4);
    pub(super) const CONNECTING: Self = Self(1 << 5);
    pub(super) const LISTENER: Self = Self(1 << 6);
    /// The loop has let go of it.
    pub(super) const CLOSING: Self = Self(1 << 7);
    /// Closing cuts it off.
    pub(super) const RESET: Self = Self(1 << 8);
    /// Something was to be sent when it could not be.
    pub(super) const SEND_WAITS: Self = Self(1 << 9);
    /// It brings much: it is polled, and received from by calls (`bulk.rs`).
    pub(super) const BULK: Self = Self(1 << 10);
    /// What is armed for receiving is that poll.
    pub(super) const POLLED: Self = Self(1 << 11);
    /// There may be something to receive, or somebody to accept: the poll said so, or the last receive.
    pub(super) const READABLE: Self = Self(1 << 12);
    /// The poll said that the peer has hung up, or sent urgent bytes, before which a receive stops.
    pub(super) const HUNG_UP: Self = Self(1 << 13);
    /// It is in the line of those that are received or accepted from by calls.
    pub(super) const ATTENDED: Self = Self(1 << 14);
    /// It found no buffer, and is in the line of those that wait for one.
    pub(super) const STARVED: Self = Self(1 << 15);

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

    /// Sets a flag and says whether it was clear.
    pub(super) const fn raise(&mut self, flag: Self) -> bool {
        let had = self.has(flag);
        self.set(flag, true);
        !had
    }

    /// Clears a flag and says whether it was set.
    pub(super) const fn take(&mut self, flag: Self) -> bool {
        let had = self.has(flag);
        self.set(flag, false);
        had
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
        let (generation, flights) = (token.generation, Flights::default());
        self.0[slot] = Some(Entry {
            descriptor,
            generation,
            lent: NOTHING,
            flags,
            flights,
            little: 0,
            appetite: Appetite::default(),
            blocked: false,
        });
    }

    pub(super) fn get(&self, token: Token) -> Option<&Entry> {
        self.0.get(token.slot as usize)?.as_ref().filter(|entry| entry.generation == token.generation)
    }

    pub(super) fn get_mut(&mut self, token: Token) -> Option<&mut Entry> {
        self.0.get_mut(token.slot as usize)?.as_mut().filter(|entry| entry.generation == token.generation)
    }

    /// Who an operation's name belongs to.
    pub(super) fn token(&self, slot: u32, generation: u32) -> Option<Token> {
        let entry = self.0.get(slot as usize)?.as_ref()?;
        let same =
            u64::from(entry.generation) & GENERATION_MASK == u64::from(generation) || planted::has(Bug::OldBelieved);
        same.then_some(Token { slot, generation: entry.generation })
    }

    pub(super) fn remove(&mut self, token: Token) -> Option<Entry> {
        self.get(token)?;
        self.0[token.slot as usize].take()
    }

    /// All there are.
    pub(super) fn tokens(&self) -> impl Iterator<Item = Token> {
        let entries = self.0.iter().enumerate();
        entries.filter_map(|(slot, entry)| {
            entry.as_ref().map(|entry| Token { slot: slot as u32, generation: entry.generation })
        })
    }
}

/// No send is in flight.
pub(super) const NOTHING: u32 = u32::MAX;

const _: () = assert!(size_of::<Option<Entry>>() == 20);
