//! `Refusals`: the servers that have refused early data.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

/// The names of servers that have refused early data of this client. The next connection to such a server sends none: its
/// handshake is complete, so that it brings new tickets, which are used before those that the server does not know. A clone is
/// another handle.
#[derive(Debug, Clone, Default)]
pub(crate) struct Refusals(Arc<Mutex<BTreeSet<Box<str>>>>);

impl Refusals {
    pub(crate) fn contains(&self, name: &str) -> bool {
        self.with(|names| names.contains(name))
    }

    /// A handshake with the server is complete, and it has refused early data or not.
    pub(crate) fn set(&self, name: Box<str>, has_refused: bool) {
        self.with(|names| {
            if !has_refused {
                names.remove(&name);
                return;
            }
            if names.len() >= NAMES_MAX {
                names.clear();
            }
            names.insert(name);
        });
    }

    fn with<T>(&self, act: impl FnOnce(&mut BTreeSet<Box<str>>) -> T) -> T {
        act(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Names that are remembered. A connection to a forgotten server may be refused once more.
const NAMES_MAX: usize = 1024;
