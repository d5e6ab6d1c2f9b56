//! `Slots`: where a loop's connections, listeners and timers of tasks are.
//!
//! An entry is *taken out* of its slot while it is dispatched, and put back afterwards: absence keeps it from being
//! entered twice. Each slot has a timer.
//!
//! The entry that a handle of a channel used last lies *at hand*, outside of the table: a task uses one connection many
//! times in a row, and finds it there by comparing one token. Which of the two places an entry is in, no caller sees.

use tidegate_sys::Token;

use crate::pages::{Pages, place_bytes};
use crate::wheel::{Node, Nodes};

pub(crate) struct Slots<E: ?Sized> {
    table: Pages<Slot<E>>,
    /// The entry at hand. Its place in the table is empty.
    at_hand: Option<Box<E>>,
    /// The token of the entry at hand, or of the last one that was.
    token_at_hand: Token,
}

struct Slot<E: ?Sized> {
    node: Node,
    entry: Option<Box<E>>,
}

impl<E: ?Sized> Slots<E> {
    /// Reserves a slot. It is empty until an entry is put there.
    pub(crate) fn reserve(&mut self) -> Token {
        self.table.reserve()
    }

    /// Takes an entry out to dispatch it; `None` if it is out already, or gone.
    #[inline]
    pub(crate) fn take(&mut self, token: Token) -> Option<Box<E>> {
        if self.token_at_hand == token
            && let Some(entry) = self.at_hand.take()
        {
            return Some(entry);
        }
        self.table.get_mut(token)?.entry.take()
    }

    /// The entry, in its slot.
    #[inline]
    pub(crate) fn get(&self, token: Token) -> Option<&E> {
        if self.token_at_hand == token && self.at_hand.is_some() {
            return self.at_hand.as_deref();
        }
        self.table.get(token)?.entry.as_deref()
    }

    pub(crate) fn get_mut(&mut self, token: Token) -> Option<&mut E> {
        if self.token_at_hand == token && self.at_hand.is_some() {
            return self.at_hand.as_deref_mut();
        }
        Some(&mut **self.table.get_mut(token)?.entry.as_mut()?)
    }

    /// Puts an entry back.
    #[inline]
    pub(crate) fn put(&mut self, token: Token, entry: Box<E>) {
        if let Some(slot) = self.table.get_mut(token) {
            slot.entry = Some(entry);
        }
    }

    /// Puts an entry back that is probably the next one to be taken out as well. Its slot must not have been freed.
    #[inline]
    pub(crate) fn put_at_hand(&mut self, token: Token, entry: Box<E>) {
        if self.at_hand.is_some() {
            self.clear_hand();
        }
        self.token_at_hand = token;
        self.at_hand = Some(entry);
    }

    /// The entry at hand goes to its place in the table.
    #[inline(never)]
    fn clear_hand(&mut self) {
        if let Some(entry) = self.at_hand.take() {
            self.put(self.token_at_hand, entry);
        }
    }

    /// Frees a slot, and returns its entry. Its node must have been forgotten.
    pub(crate) fn release(&mut self, token: Token) -> Option<Box<E>> {
        if self.token_at_hand == token {
            self.clear_hand();
        }
        self.table.release(token)?.entry
    }

    /// Slots in use.
    pub(crate) fn len(&self) -> usize {
        self.table.len()
    }

    /// Whether the token's slot has not been freed.
    pub(crate) fn contains(&mut self, token: Token) -> bool {
        self.table.get_mut(token).is_some()
    }

    /// Every entry that is in its slot, with its token.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (Token, &E)> {
        let at_hand = self.at_hand.iter().map(|entry| (self.token_at_hand, &**entry));
        self.table.iter().filter_map(|(token, slot)| Some((token, &**slot.entry.as_ref()?))).chain(at_hand)
    }

    /// The same of some slots: those from a multiple of [`PAGE_PLACES`] on, up to another one.
    pub(crate) fn iter_between(&self, from: u32, to: u32) -> impl Iterator<Item = (Token, &E)> {
        let slots = from..to;
        let in_table = self.table.iter_between(from, to);
        let at_hand = self.at_hand.iter().map(|entry| (self.token_at_hand, &**entry));
        let at_hand = at_hand.filter(move |(token, _)| slots.contains(&token.slot));
        in_table.filter_map(|(token, slot)| Some((token, &**slot.entry.as_ref()?))).chain(at_hand)
    }

    /// One more than the highest slot that may be in use.
    pub(crate) fn end(&self) -> u32 {
        self.table.end()
    }

    /// The token of the present entry of a slot.
    pub(crate) fn token(&self, slot: u32) -> Option<Token> {
        self.table.token(slot)
    }
}

impl<E: ?Sized> Default for Slots<E> {
    fn default() -> Self {
        // No token has the generation 0.
        Self { table: Pages::default(), at_hand: None, token_at_hand: Token { slot: 0, generation: 0 } }
    }
}

impl<E: ?Sized> Nodes for Slots<E> {
    #[inline]
    fn node(&mut self, index: u32) -> &mut Node {
        &mut self.table.at(index).expect("a slot with a timer is not given up").node
    }
}

impl<E: ?Sized> Default for Slot<E> {
    fn default() -> Self {
        Self { node: Node::default(), entry: None }
    }
}

/// The token of a connection's number.
pub(crate) const fn token_of(connection_id: u64) -> Token {
    Token { slot: connection_id as u32, generation: (connection_id >> 32) as u32 }
}

/// A connection's number on its loop, as an application sees it.
pub(crate) fn connection_id(token: Token) -> u64 {
    u64::from(token.generation) << 32 | u64::from(token.slot)
}

const _: () = assert!(place_bytes::<Slot<dyn std::any::Any>>() == 40);

#[cfg(test)]
mod tests {
    use tidegate_sys::Token;

    use super::Slots;

    /// Three entries, with the numbers 0 to 2; the second is at hand.
    fn three() -> (Slots<usize>, [Token; 3]) {
        let mut slots = Slots::default();
        let tokens = [0, 1, 2].map(|number| {
            let token = slots.reserve();
            slots.put(token, Box::new(number));
            token
        });
        let entry = slots.take(tokens[1]).expect("it is there");
        slots.put_at_hand(tokens[1], entry);
        (slots, tokens)
    }

    fn numbers(slots: &Slots<usize>) -> Vec<(Token, usize)> {
        let mut all: Vec<_> = slots.iter().map(|(token, entry)| (token, *entry)).collect();
        all.sort_unstable();
        all
    }

    #[test]
    fn an_entry_at_hand_is_found_as_any_other() {
        let (mut slots, tokens) = three();
        assert_eq!(numbers(&slots), [(tokens[0], 0), (tokens[1], 1), (tokens[2], 2)]);
        assert_eq!(slots.get_mut(tokens[1]).map(|entry| *entry), Some(1));
        let entry = slots.take(tokens[1]).expect("it is there");
        assert!(slots.take(tokens[1]).is_none(), "it is out");
        assert!(slots.get_mut(tokens[1]).is_none(), "it is out");
        slots.put(tokens[1], entry);
        assert_eq!(slots.take(tokens[1]).map(|entry| *entry), Some(1));
    }

    #[test]
    fn another_entry_at_hand_takes_the_place_of_the_last() {
        let (mut slots, tokens) = three();
        let entry = slots.take(tokens[2]).expect("it is there");
        slots.put_at_hand(tokens[2], entry);
        assert_eq!(numbers(&slots), [(tokens[0], 0), (tokens[1], 1), (tokens[2], 2)]);
        for (number, token) in tokens.into_iter().enumerate() {
            assert_eq!(slots.take(token).map(|entry| *entry), Some(number));
        }
    }

    #[test]
    fn a_slot_is_freed_with_its_entry_at_hand() {
        let (mut slots, tokens) = three();
        assert_eq!(slots.release(tokens[1]).map(|entry| *entry), Some(1));
        assert!(slots.take(tokens[1]).is_none() && !slots.contains(tokens[1]));
        let next = slots.reserve();
        assert_eq!(next.slot, tokens[1].slot);
        assert!(slots.take(next).is_none(), "the next occupant has not come yet");
        assert_eq!(numbers(&slots), [(tokens[0], 0), (tokens[2], 2)]);
    }
}
