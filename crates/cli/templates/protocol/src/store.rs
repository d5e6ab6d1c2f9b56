//! The values. Clones are the same store, on any loop.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

#[derive(Debug, Clone, Default)]
pub struct Store(Arc<Mutex<HashMap<String, String>>>);

impl Store {
    /// Whether there is room for the key.
    pub fn set(&self, key: String, value: String) -> bool {
        let mut values = self.lock();
        let has_room = values.len() < KEYS_MAX || values.contains_key(&key);
        if has_room {
            values.insert(key, value);
        }
        has_room
    }

    pub fn get(&self, key: &str) -> Option<String> {
        self.lock().get(key).cloned()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, String>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The number of keys is bounded: peers choose them.
pub const KEYS_MAX: usize = 100_000;
