//! `ReplyCache`: values of keys that the server has promised to report when they change.
//!
//! A connection with a cache begins with CLIENT TRACKING. Values and invalidations come over the same connection, in the
//! order in which the server has them, so a value is never stored after its invalidation. The cache is empty while there is no
//! connection.

use std::collections::{BTreeMap, HashMap};
use std::sync::Mutex;

use bytes::Bytes;

use crate::client::slot::lock;
use crate::owned::OwnedValue;
use crate::value::Value;

/// The cache of a client.
#[derive(Debug)]
pub(crate) struct ReplyCache {
    bytes_max: usize,
    state: Mutex<CacheState>,
}

#[derive(Debug, Default)]
struct CacheState {
    /// Values, with their places in the order.
    values: HashMap<Bytes, (u64, OwnedValue)>,
    /// The keys, oldest first.
    order: BTreeMap<u64, Bytes>,
    next: u64,
    bytes: usize,
}

impl ReplyCache {
    pub(crate) fn new(bytes_max: usize) -> Self {
        Self { bytes_max, state: Mutex::default() }
    }

    pub(crate) fn get(&self, key: &[u8]) -> Option<OwnedValue> {
        lock(&self.state).values.get(key).map(|(_, value)| value.clone())
    }

    /// Stores a string, or that there is none.
    pub(crate) fn store(&self, key: &Bytes, value: &OwnedValue) {
        if !matches!(value, OwnedValue::Bulk(_) | OwnedValue::Null) {
            return;
        }
        let mut state = lock(&self.state);
        state.remove(key);
        let bytes = cost(key, value);
        if bytes > self.bytes_max {
            return;
        }
        let place = state.next;
        state.next += 1;
        state.bytes += bytes;
        state.values.insert(key.clone(), (place, value.clone()));
        state.order.insert(place, key.clone());
        while state.bytes > self.bytes_max {
            let Some(oldest) = state.order.first_key_value().map(|(_, key)| key.clone()) else { return };
            state.remove(&oldest);
        }
    }

    /// A push of the server: removes the keys that it names, or all.
    pub(crate) fn invalidate(&self, push: Value<'_>) {
        let Some(mut elements) = push.elements() else { return };
        if elements.next().and_then(|kind| kind.bytes()) != Some(b"invalidate") {
            return;
        }
        match elements.next().and_then(|keys| keys.elements()) {
            Some(keys) => {
                let mut state = lock(&self.state);
                keys.filter_map(|key| key.bytes()).for_each(|key| state.remove(key));
            }
            None => self.clear(),
        }
    }

    pub(crate) fn clear(&self) {
        *lock(&self.state) = CacheState::default();
    }
}

impl CacheState {
    fn remove(&mut self, key: &[u8]) {
        if let Some((place, value)) = self.values.remove(key) {
            self.bytes -= cost(key, &value);
            self.order.remove(&place);
        }
    }
}

/// The bytes of an entry, with its places in the table and in the order.
fn cost(key: &[u8], value: &OwnedValue) -> usize {
    let bytes = if let OwnedValue::Bulk(bytes) = value { bytes.len() } else { 0 };
    2 * key.len() + bytes + size_of::<(Bytes, OwnedValue)>() + size_of::<Bytes>()
}
