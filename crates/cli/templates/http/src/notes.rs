//! The notes, in memory. A service of your own has a database here: an async function may await its driver.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde::{Deserialize, Serialize};

/// A note with its number.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Note {
    pub number: u64,
    pub text: String,
}

/// All notes. Clones are the same notes, on any loop.
#[derive(Debug, Clone, Default)]
pub struct Notes(Arc<Mutex<Stored>>);

#[derive(Debug, Default)]
struct Stored {
    notes: BTreeMap<u64, Note>,
    last_number: u64,
}

impl Notes {
    /// Adds a note, or returns `None` if there are [`NOTES_MAX`].
    pub fn add(&self, text: String) -> Option<Note> {
        let mut stored = self.lock();
        if stored.notes.len() >= NOTES_MAX {
            return None;
        }
        stored.last_number += 1;
        let note = Note {
            number: stored.last_number,
            text,
        };
        stored.notes.insert(note.number, note.clone());
        Some(note)
    }

    pub fn all(&self) -> Vec<Note> {
        self.lock().notes.values().cloned().collect()
    }

    pub fn get(&self, number: u64) -> Option<Note> {
        self.lock().notes.get(&number).cloned()
    }

    /// Whether there was such a note.
    pub fn remove(&self, number: u64) -> bool {
        self.lock().notes.remove(&number).is_some()
    }

    /// A panic elsewhere leaves the notes as they are.
    fn lock(&self) -> MutexGuard<'_, Stored> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The number of notes is bounded: peers decide how many are sent, the service decides how many it stores.
pub const NOTES_MAX: usize = 10_000;
