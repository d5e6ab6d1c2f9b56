//! `Journal`: a record of the calls of handlers, for assertions afterwards.
//!
//! A handler that panics ends its own connection and no test, so handlers take notes, and the scenario asserts.

use std::cell::RefCell;
use std::rc::Rc;

use tidegate_engine::Event;

use crate::stage::Call;

/// The journal. Clones are the same journal.
#[derive(Clone, Default)]
pub(crate) struct Journal(Rc<RefCell<Notes>>);

#[derive(Default)]
struct Notes {
    events: Vec<String>,
    bytes: Vec<u8>,
}

impl Journal {
    /// Notes a call of a handler. Messages are noted by their bytes only, because their boundaries are random.
    pub(crate) fn note_call(&self, call: &Call) {
        match call {
            Call::Open => self.note("open"),
            Call::Message(bytes) => self.0.borrow_mut().bytes.extend_from_slice(bytes),
            Call::Event(Event::Posted(post)) => self.note(format!("posted {post}")),
            Call::Event(event) => self.note(format!("{event:?}")),
        }
    }

    pub(crate) fn note(&self, what: impl Into<String>) {
        self.0.borrow_mut().events.push(what.into());
    }

    /// How often something was noted.
    pub(crate) fn count(&self, what: &str) -> usize {
        self.0.borrow().events.iter().filter(|event| *event == what).count()
    }

    /// All notes except messages.
    pub(crate) fn events(&self) -> Vec<String> {
        self.0.borrow().events.clone()
    }

    /// The bytes of all messages.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        self.0.borrow().bytes.clone()
    }

    /// The number of messages.
    pub(crate) fn length(&self) -> usize {
        self.0.borrow().bytes.len()
    }
}
