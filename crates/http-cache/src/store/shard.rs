//! `Shard`: a table of keys with their responses, within a budget of bytes.

use std::sync::Arc;

use hashbrown::HashTable;
use slab::Slab;
use tidegate_http1::Headers;

use super::queues::{Queue, Queues, Token};
use crate::entry::Entry;
use crate::rules::Millis;
use crate::rules::vary::Selector;

/// A part of the stored responses.
pub(super) struct Shard {
    /// Places of records, by the hashes of their keys.
    table: HashTable<usize>,
    records: Slab<Record>,
    queues: Queues,
    bytes: usize,
    bytes_max: usize,
    /// Of those, the bytes of keys in the small queue.
    small_bytes: usize,
    /// How many responses there are.
    count: usize,
    variants_max: usize,
    generation: u32,
}

/// A key, and the responses for it.
struct Record {
    key: Box<[u8]>,
    hash: u64,
    generation: u32,
    queue: Queue,
    /// Uses since it entered its queue, at most [`USES_MAX`].
    uses: u8,
    /// The newest last.
    entries: Vec<Arc<Entry>>,
    /// Until then requests do not wait for each other.
    unstorable_until: Millis,
    /// As the shard has counted them.
    bytes: usize,
    count: usize,
}

/// The result of a search.
#[derive(Debug)]
pub(crate) enum Lookup {
    Found(Arc<Entry>),
    /// There are responses for the key, and none for these selecting fields.
    NoVariant,
    /// Responses for the key were not storable a moment ago.
    Unstorable,
    None,
}

impl Shard {
    pub(super) fn new(bytes_max: usize, variants_max: usize) -> Self {
        Self {
            table: HashTable::new(),
            records: Slab::new(),
            queues: Queues::default(),
            bytes: 0,
            bytes_max,
            small_bytes: 0,
            count: 0,
            variants_max,
            generation: 0,
        }
    }

    pub(super) fn get(&mut self, hash: u64, key: &[u8], request: &Headers<'_>, now: Millis) -> Lookup {
        let Some(record) = self.find(hash, key).map(|place| &mut self.records[place]) else { return Lookup::None };
        if let Some(entry) = record.entries.iter().rev().find(|entry| entry.selector.matches(request)) {
            record.uses = (record.uses + 1).min(USES_MAX);
            return Lookup::Found(entry.clone());
        }
        match record.entries.is_empty() {
            _ if now < record.unstorable_until => Lookup::Unstorable,
            true => Lookup::None,
            false => Lookup::NoVariant,
        }
    }

    pub(super) fn with_selector(&self, hash: u64, key: &[u8], selector: &Selector) -> Option<Arc<Entry>> {
        let record = &self.records[self.find(hash, key)?];
        record.entries.iter().rev().find(|entry| entry.selector == *selector).cloned()
    }

    /// Returns whether it is stored, and how many keys were evicted for it.
    pub(super) fn put(&mut self, hash: u64, key: &[u8], entry: Arc<Entry>, old: Option<&Selector>) -> (bool, u64) {
        if record_bytes(key) + entry.bytes() > self.bytes_max / 2 {
            // An older response is not used in its place.
            self.remove(hash, key);
            return (false, 0);
        }
        let place = self.place(hash, key);
        let variants_max = self.variants_max;
        let record = &mut self.records[place];
        record.unstorable_until = 0;
        record.entries.retain(|other| other.selector != entry.selector && Some(&other.selector) != old);
        if record.entries.len() >= variants_max {
            record.entries.remove(0);
        }
        record.entries.push(entry);
        // All variants together stay within half of the budget, so that eviction finds others.
        while record.entries.len() > 1 && record_bytes(key) + entries_bytes(record) > self.bytes_max / 2 {
            record.entries.remove(0);
        }
        self.account(place);
        (true, self.evict(place))
    }

    pub(super) fn mark(&mut self, hash: u64, key: &[u8], until: Millis) -> u64 {
        if record_bytes(key) > self.bytes_max / 2 {
            return 0;
        }
        let place = self.place(hash, key);
        self.records[place].unstorable_until = until;
        self.account(place);
        self.evict(place)
    }

    pub(super) fn remove(&mut self, hash: u64, key: &[u8]) -> usize {
        self.find(hash, key).map_or(0, |place| self.take(place).entries.len())
    }

    pub(super) fn remove_where(&mut self, is_chosen: impl Fn(&[u8]) -> bool) -> usize {
        let places: Vec<_> =
            self.records.iter().filter(|(_, record)| is_chosen(&record.key)).map(|(place, _)| place).collect();
        places.into_iter().map(|place| self.take(place).entries.len()).sum()
    }

    pub(super) fn usage(&self) -> (usize, usize) {
        (self.bytes, self.count)
    }

    /// The place of a key, which is made if there is none.
    fn place(&mut self, hash: u64, key: &[u8]) -> usize {
        if let Some(place) = self.find(hash, key) {
            return place;
        }
        self.generation = self.generation.wrapping_add(1);
        let place = self.records.vacant_key();
        let queue = self.queues.enter(hash, (place, self.generation));
        let key: Box<[u8]> = key.into();
        let generation = self.generation;
        let entries = Vec::new();
        self.records.insert(Record {
            key,
            hash,
            generation,
            queue,
            uses: 0,
            entries,
            unstorable_until: 0,
            bytes: 0,
            count: 0,
        });
        let records = &self.records;
        self.table.insert_unique(hash, place, |&place| records[place].hash);
        place
    }

    fn find(&self, hash: u64, key: &[u8]) -> Option<usize> {
        self.table.find(hash, |&place| *self.records[place].key == *key).copied()
    }

    /// Counts the bytes of a key anew.
    fn account(&mut self, place: usize) {
        let record = &mut self.records[place];
        let (before, after) = (record.bytes, record_bytes(&record.key) + entries_bytes(record));
        record.bytes = after;
        self.count = self.count - record.count + record.entries.len();
        record.count = record.entries.len();
        self.bytes = self.bytes - before + after;
        if record.queue == Queue::Small {
            self.small_bytes = self.small_bytes - before + after;
        }
    }

    fn take(&mut self, place: usize) -> Record {
        let record = self.records.remove(place);
        if let Ok(found) = self.table.find_entry(record.hash, |&found| found == place) {
            found.remove();
        }
        self.bytes -= record.bytes;
        self.count -= record.count;
        if record.queue == Queue::Small {
            self.small_bytes -= record.bytes;
        }
        let records = &self.records;
        self.queues.compact(records.len(), |token| is_live(records, token));
        record
    }

    /// Evicts keys until the rest has room, but not the one that was just stored.
    fn evict(&mut self, new: usize) -> u64 {
        let mut evicted = 0;
        // Each round evicts a key, moves one to the main queue, or takes a use from one.
        while self.bytes > self.bytes_max {
            let from_small = self.small_bytes > self.bytes_max / SMALL_PART;
            let (first, second) = if from_small { (Queue::Small, Queue::Main) } else { (Queue::Main, Queue::Small) };
            let Some(token) = self.queues.pop(first).or_else(|| self.queues.pop(second)) else { break };
            if !is_live(&self.records, &token) {
                continue;
            }
            let record = &mut self.records[token.0];
            if token.0 == new || record.uses > 0 {
                record.uses = if record.queue == Queue::Small { 0 } else { record.uses.saturating_sub(1) };
                if record.queue == Queue::Small {
                    self.small_bytes -= record.bytes;
                    record.queue = Queue::Main;
                }
                self.queues.keep(token);
                continue;
            }
            if record.queue == Queue::Small {
                self.queues.note_evicted(record.hash);
            }
            self.take(token.0);
            evicted += 1;
        }
        evicted
    }
}

fn is_live(records: &Slab<Record>, token: &Token) -> bool {
    records.get(token.0).is_some_and(|record| record.generation == token.1)
}

fn entries_bytes(record: &Record) -> usize {
    record.entries.iter().map(|entry| entry.bytes()).sum()
}

/// A record with its key, and its places in the table and the queues.
fn record_bytes(key: &[u8]) -> usize {
    RECORD_BYTES + key.len()
}

const RECORD_BYTES: usize = 192;

/// The small queue has a tenth of the bytes.
const SMALL_PART: usize = 10;

/// A key that is used often outlives so many rounds of the main queue.
const USES_MAX: u8 = 3;

#[cfg(test)]
mod tests;
