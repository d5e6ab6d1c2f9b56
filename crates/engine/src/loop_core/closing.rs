//! `Closing`: the rest of a closed connection, in its slot, and `Tombstone`, the entry of a slot without one.

use std::any::Any;
use std::rc::Rc;

use tidegate_sys::Token;

use super::Core;
use super::drain::ClosingMemory;
use crate::close_reason::CloseReason;
use crate::slot_entry::{Disposition, SlotEntry, SlotEvent, SocketState};

/// The rest of a closed connection with operations in flight: its memory, until the driver's last completion.
pub(super) struct Closing {
    pub(super) entry: Box<dyn SlotEntry>,
    pub(super) reason: Rc<CloseReason>,
    pub(super) closing_memory: ClosingMemory,
}

impl SlotEntry for Closing {
    fn dispatch(&mut self, _: &mut Core, _: Token, event: SlotEvent) -> Disposition {
        if matches!(event, SlotEvent::Closed) { Disposition::FinishClose } else { Disposition::Keep }
    }

    fn socket_state(&self) -> SocketState {
        SocketState::Closing
    }

    fn memory_bytes(&self) -> usize {
        self.entry.memory_bytes()
    }

    /// A handle still finds the connection that is closing.
    fn as_any(&mut self) -> &mut dyn Any {
        self.entry.as_any()
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }
}

/// Takes the place of an entry that was lost in a panic, or that never was.
pub(super) struct Tombstone;

impl SlotEntry for Tombstone {
    fn dispatch(&mut self, _: &mut Core, _: Token, _: SlotEvent) -> Disposition {
        Disposition::Keep
    }

    fn as_any(&mut self) -> &mut dyn Any {
        self
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }
}
