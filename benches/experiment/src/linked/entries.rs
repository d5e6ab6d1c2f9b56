//! The entries of the linked design: the same paged store as ours, and beside it where the messages lie.

use std::ops::{Deref, DerefMut};

#[path = "../messages.rs"]
mod messages;
#[path = "../../../../crates/buffer/src/entries.rs"]
mod store;

pub(crate) use self::messages::Messages;
pub use self::store::ENTRY_BYTES;
pub(crate) use self::store::{Entry, NIL};

/// What the queues of a loop share.
#[derive(Default)]
pub(crate) struct Entries {
    store: store::Entries,
    pub(crate) messages: Messages,
}

impl Entries {
    pub(crate) fn trim(&mut self) {
        self.messages.let_go();
        self.store.trim();
    }
}

impl Deref for Entries {
    type Target = store::Entries;

    #[inline]
    fn deref(&self) -> &store::Entries {
        &self.store
    }
}

impl DerefMut for Entries {
    #[inline]
    fn deref_mut(&mut self) -> &mut store::Entries {
        &mut self.store
    }
}
