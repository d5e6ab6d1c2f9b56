//! `Slots`: where a loop's connections, listeners and timers of tasks are.
//!
//! An entry is *taken out* of its slot while it is dispatched, and put back afterwards: absence keeps it from being
//! entered twice. Each slot has a timer.

use tidegate_sys::Token;

use crate::pages::{Pages, place_bytes};
use crate::wheel::{Node, Nodes};

pub(crate) struct Slots<E: ?Sized>(Pages<Slot<E>>);

struct Slot<E: ?Sized> {
    node: Node,
    entry: Option<Box<E>>,
}

impl<E: ?Sized> Slots<E> {
    /// Reserves a slot. It is empty until an entry is put there.
    pub(crate) fn reserve(&mut self) -> Token {
        self.0.reserve()
    }

    /// Takes an entry out to dispatch it; `None` if it is out already, or gone.
    #[inline]
    pub(crate) fn take(&mut self, token: Token) -> Option<Box<E>> {
        self.0.get_mut(token)?.entry.take()
    }

    /// The entry, in its slot.
    #[inline]
    pub(crate) fn get_mut(&mut self, token: Token) -> Option<&mut E> {
        Some(&mut **self.0.get_mut(token)?.entry.as_mut()?)
    }

    /// Puts an entry back.
    #[inline]
    pub(crate) fn put(&mut self, token: Token, entry: Box<E>) {
        if let Some(slot) = self.0.get_mut(token) {
            slot.entry = Some(entry);
        }
    }

    /// Puts an entry back, and returns it in its slot.
    #[inline]
    pub(crate) fn put_in(&mut self, token: Token, entry: Box<E>) -> Option<&mut E> {
        Some(&mut **self.0.get_mut(token)?.entry.insert(entry))
    }

    /// Frees a slot, and returns its entry. Its node must have been forgotten.
    pub(crate) fn release(&mut self, token: Token) -> Option<Box<E>> {
        self.0.release(token)?.entry
    }

    /// Slots in use.
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether the token's slot has not been freed.
    pub(crate) fn contains(&mut self, token: Token) -> bool {
        self.0.get_mut(token).is_some()
    }

    /// Every entry that is in its slot, with its token.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (Token, &E)> {
        self.0.iter().filter_map(|(token, slot)| Some((token, &**slot.entry.as_ref()?)))
    }

    /// The token of the present entry of a slot.
    pub(crate) fn token(&self, slot: u32) -> Option<Token> {
        self.0.token(slot)
    }
}

impl<E: ?Sized> Nodes for Slots<E> {
    #[inline]
    fn node(&mut self, index: u32) -> &mut Node {
        &mut self.0.at(index).expect("a slot with a timer is not given up").node
    }
}

impl<E: ?Sized> Default for Slots<E> {
    fn default() -> Self {
        Self(Pages::default())
    }
}

impl<E: ?Sized> Default for Slot<E> {
    fn default() -> Self {
        Self { node: Node::default(), entry: None }
    }
}

/// A connection's number on its loop, as an application sees it.
pub(crate) fn connection_id(token: Token) -> u64 {
    u64::from(token.generation) << 32 | u64::from(token.slot)
}

const _: () = assert!(place_bytes::<Slot<dyn std::any::Any>>() == 40);
