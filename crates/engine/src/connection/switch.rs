//! `Switch`: another codec and another application for a connection in its middle.

use std::fmt;

use tidegate_codec::Pipeline;

use super::Link;
use crate::slot_entry::SlotEntry;

/// A change of codec and handler in the middle of a connection; made by [`Outcome::switch`](crate::Outcome::switch).
pub struct Switch<C> {
    to: Box<dyn FnOnce(C) -> Box<dyn InstallProtocol>>,
}

impl<C: Pipeline> Switch<C> {
    pub(crate) fn new(to: impl FnOnce(C) -> Box<dyn InstallProtocol> + 'static) -> Self {
        Self { to: Box::new(to) }
    }

    pub(super) fn apply(self, codec: C) -> Box<dyn InstallProtocol> {
        (self.to)(codec)
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
