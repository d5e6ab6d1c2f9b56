//! The entries of the array design lie in the connections; what these share is only where the messages lie.

#[path = "../messages.rs"]
mod messages;

pub(crate) use self::messages::Messages;
use crate::part::Part;

/// What one entry of a queue costs, in bytes; it counts against the water marks and the ledger.
pub const ENTRY_BYTES: usize = size_of::<Part>();

/// What the queues of a loop share.
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
