//! The entries of the array design lie in the connections; these share only the memory of the messages.

#[path = "../messages.rs"]
mod messages;
/// Only the content of an entry is ours.
#[path = "../../../../crates/buffer/src/entries.rs"]
mod ours;

pub(crate) use self::messages::Messages;
pub(crate) use self::ours::Part;

/// Cost of one queue entry in bytes; it counts against the water marks and the ledger.
pub const ENTRY_BYTES: usize = size_of::<Part>();

/// Shared state of a loop's queues.
#[derive(Default)]
pub(crate) struct Entries {
    pub(crate) messages: Messages,
}

impl Entries {
    /// There are none: entries belong to the connections.
    pub(crate) fn page_bytes(&self) -> usize {
        0
    }

    pub(crate) fn trim(&mut self) {
        self.messages.release_all();
    }
}
