//! `Switch`: another codec and another application for a connection in its middle.

use std::fmt;

use tidegate_codec::Pipeline;

use super::Link;
use crate::slot_entry::{SlotEntry, SlotEvent};

/// A change of codec and application, or of the application alone, in the middle of a connection. A handler returns one
/// in its outcome: [`Outcome::switch`](crate::Outcome::switch) and its relatives make it; a channel is
/// [switched](crate::Channel::switch_by) by one.
pub struct Switch<C> {
    to: Box<dyn FnOnce(C) -> Box<dyn InstallProtocol>>,
    keeps_codec: bool,
}

impl<C: 'static> Switch<C> {
    pub(crate) fn new(to: impl FnOnce(C) -> Box<dyn InstallProtocol> + 'static) -> Self {
        Self { to: Box::new(to), keeps_codec: false }
    }

    /// The codec stays as it is, in the middle of a message too: it is not opened again.
    pub(crate) fn keeping_codec(self) -> Self {
        Self { keeps_codec: true, ..self }
    }

    /// The same for a connection with another codec: `first` converts it into the codec that this one expects. So an
    /// upgraded protocol can receive its successor without the type of the connection.
    #[must_use]
    pub fn after<B: 'static>(self, first: impl FnOnce(B) -> C + 'static) -> Switch<B> {
        let Self { to, keeps_codec } = self;
        Switch { to: Box::new(move |codec| to(first(codec))), keeps_codec }
    }
}

impl<C: Pipeline> Switch<C> {
    /// Makes the new entry, and the event that it gets first.
    pub(super) fn apply(self, codec: C, link: Link) -> (Box<dyn SlotEntry>, SlotEvent) {
        let event = if self.keeps_codec { SlotEvent::ApplicationReplaced } else { SlotEvent::Switched };
        ((self.to)(codec).install(link), event)
    }
}

impl<C> fmt::Debug for Switch<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Switch")
    }
}

/// The codec and the application that a connection goes on with.
pub(crate) trait InstallProtocol {
    fn install(self: Box<Self>, link: Link) -> Box<dyn SlotEntry>;
}
