//! `Journal`: what handlers were told, for scenarios to look at afterwards.
//!
//! A handler that panics ends its own connection and no test, so handlers take notes, and it is the scenario that
//! asserts.

use std::cell::RefCell;
use std::rc::Rc;

use tidegate_engine::Event;

use crate::stage::Told;

/// The journal. Clones are the same one.
#[derive(Clone, Default)]
pub(crate) struct Journal(Rc<RefCell<Notes>>);

#[derive(Default)]
struct Notes {
    events: Vec<String>,
    bytes: Vec<u8>,
}

impl Journal {
    /// Takes note of what a handler is told. Messages are noted by their bytes only: where they begin and end is chance.
    pub(crate) fn told(&self, told: &Told) {
        match told {
            Told::Open => self.note("open"),
            Told::Message(bytes) => self.0.borrow_mut().bytes.extend_from_slice(bytes),
            Told::Event(Event::Posted(post)) => self.note(format!("posted {post}")),
            Told::Event(event) => self.note(format!("{event:?}")),
        }
    }

    pub(crate) fn note(&self, what: impl Into<String>) {
        self.0.borrow_mut().events.push(what.into());
    }

    /// How often something was noted.
    pub(crate) fn count(&self, what: &str) -> usize {
        self.0.borrow().events.iter().filter(|event| *event == what).count()
    }

    /// Everything that was noted, messages apart.
    pub(crate) fn events(&self) -> Vec<String> {
        self.0.borrow().events.clone()
    }

    /// The bytes of all messages.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        self.0.borrow().bytes.clone()
    }

    /// How many they are.
    pub(crate) fn length(&self) -> usize {
        self.0.borrow().bytes.len()
    }
}
