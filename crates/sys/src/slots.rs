//! The sockets of a driver, by slot.

use crate::driver::Token;

/// An entry of the table: the state of a socket, which has the generation of its token.
pub(crate) trait HasGeneration {
    fn generation(&self) -> u32;
}

/// The table. A lookup with an old generation finds no entry.
#[derive(Debug)]
pub(crate) struct Slots<E>(Vec<Option<E>>);

impl<E> Default for Slots<E> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<E: HasGeneration> Slots<E> {
    pub(crate) fn put(&mut self, slot: u32, entry: E) {
        let slot = slot as usize;
        if slot >= self.0.len() {
            self.0.resize_with(slot + 1, || None);
        }
        self.0[slot] = Some(entry);
    }

    /// The current entry of a slot, whatever its generation.
    pub(crate) fn occupant(&self, slot: u32) -> Option<&E> {
        self.0.get(slot as usize)?.as_ref()
    }

    pub(crate) fn get(&self, token: Token) -> Option<&E> {
        self.occupant(token.slot).filter(|entry| entry.generation() == token.generation)
    }

    pub(crate) fn get_mut(&mut self, token: Token) -> Option<&mut E> {
        self.0.get_mut(token.slot as usize)?.as_mut().filter(|entry| entry.generation() == token.generation)
    }

    pub(crate) fn remove(&mut self, token: Token) -> Option<E> {
        self.get(token)?;
        self.0[token.slot as usize].take()
    }

    /// The tokens of all entries.
    pub(crate) fn tokens(&self) -> impl Iterator<Item = Token> {
        let entries = self.0.iter().enumerate();
        entries.filter_map(|(slot, entry)| {
            entry.as_ref().map(|entry| Token { slot: slot as u32, generation: entry.generation() })
        })
    }
}
