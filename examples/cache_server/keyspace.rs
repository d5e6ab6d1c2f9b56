//! `Keyspace`: keys and values in bounded memory, with expiry.
//!
//! When the memory is used up, the least recently used of five random keys goes, as in Redis. Keys that expire are in a
//! second table, ordered by time, so that removing them touches no other key.

use std::collections::{BTreeSet, HashMap};
use std::time::Instant;

use foldhash::quality::RandomState;
use indexmap::IndexMap;
use tidegate::Bytes;

/// The keys of a server. Times are in milliseconds since the server started.
#[derive(Debug)]
pub(crate) struct Keyspace {
    entries: IndexMap<Box<[u8]>, Value, RandomState>,
    /// The keys that expire, by time.
    expiries: BTreeSet<(u64, Box<[u8]>)>,
    bytes: usize,
    bytes_max: usize,
    /// Counts uses of keys.
    clock: u32,
    started: Instant,
    /// The last turn, and its time in milliseconds: many commands come in one turn.
    turn: (Instant, u64),
    /// The keys that connections watch.
    watched: HashMap<Box<[u8]>, WatchedKey>,
    /// The state of the sampling.
    random: u64,
}

#[derive(Debug)]
struct Value {
    bytes: Bytes,
    expires: Option<u64>,
    /// The clock at the last use.
    used: u32,
}

/// A key that connections watch, there or not.
#[derive(Debug, Default)]
struct WatchedKey {
    watchers: usize,
    changes: u64,
}

/// The memory is used up, and the value does not fit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct OutOfMemory;

impl Keyspace {
    /// No keys, and room for so many bytes.
    pub(crate) fn new(bytes_max: usize) -> Self {
        let started = Instant::now();
        Self {
            entries: IndexMap::default(),
            expiries: BTreeSet::new(),
            bytes: 0,
            bytes_max,
            clock: 0,
            started,
            turn: (started, 0),
            watched: HashMap::new(),
            random: 0x9E37_79B9_7F4A_7C15,
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// The time of a turn.
    pub(crate) fn millis(&mut self, now: Instant) -> u64 {
        if self.turn.0 != now {
            self.turn = (now, now.saturating_duration_since(self.started).as_millis() as u64);
        }
        self.turn.1
    }

    /// The value of a key that has not expired.
    pub(crate) fn get(&mut self, key: &[u8], now: u64) -> Option<Bytes> {
        self.clock = self.clock.wrapping_add(1);
        let value = self.entries.get_mut(key)?;
        if value.expires.is_some_and(|at| at <= now) {
            self.remove(key);
            return None;
        }
        value.used = self.clock;
        Some(value.bytes.clone())
    }

    pub(crate) fn has(&mut self, key: &[u8], now: u64) -> bool {
        self.get(key, now).is_some()
    }

    /// When a key expires; `None` for one that does not exist.
    pub(crate) fn expiry(&mut self, key: &[u8], now: u64) -> Option<Option<u64>> {
        self.has(key, now).then(|| self.entries.get(key).and_then(|value| value.expires))
    }

    /// Counts the changes of a key from now on, until [`unwatch`](Self::unwatch). Returns the count so far.
    pub(crate) fn watch(&mut self, key: &[u8], now: u64) -> u64 {
        // A key that has expired is removed now, and not as a change later.
        self.has(key, now);
        let watched = self.watched.entry(key.into()).or_default();
        watched.watchers += 1;
        watched.changes
    }

    /// How often a watched key has changed.
    pub(crate) fn changes(&mut self, key: &[u8], now: u64) -> u64 {
        self.has(key, now);
        self.watched.get(key).map_or(0, |watched| watched.changes)
    }

    pub(crate) fn unwatch(&mut self, key: &[u8]) {
        let Some(watched) = self.watched.get_mut(key) else { return };
        watched.watchers -= 1;
        if watched.watchers == 0 {
            self.watched.remove(key);
        }
    }

    /// A key changes.
    fn touch(&mut self, key: &[u8]) {
        if !self.watched.is_empty()
            && let Some(watched) = self.watched.get_mut(key)
        {
            watched.changes += 1;
        }
    }

    /// Sets a value that expires at that time, if at all.
    pub(crate) fn set(&mut self, key: &[u8], bytes: Bytes, expires: Option<u64>) -> Result<(), OutOfMemory> {
        let cost = cost(key, &bytes);
        if cost > self.bytes_max {
            return Err(OutOfMemory);
        }
        self.clock = self.clock.wrapping_add(1);
        self.touch(key);
        let value = Value { bytes, expires, used: self.clock };
        let old = match self.entries.get_mut(key) {
            Some(old) => Some(std::mem::replace(old, value)),
            None => self.entries.insert(key.into(), value),
        };
        if let Some(old) = old {
            self.bytes -= self::cost(key, &old.bytes);
            if let Some(at) = old.expires {
                self.expiries.remove(&(at, key.into()));
            }
        }
        if let Some(at) = expires {
            self.expiries.insert((at, key.into()));
        }
        self.bytes += cost;
        while self.bytes > self.bytes_max && self.evict() {}
        Ok(())
    }

    /// Appends to a value, which keeps its expiry; returns the new length.
    pub(crate) fn append(&mut self, key: &[u8], more: &[u8], now: u64) -> Result<usize, OutOfMemory> {
        let expires = self.expiry(key, now).flatten();
        let length = self.entries.get(key).map_or(0, |value| value.bytes.len());
        if cost(key, more) + length > self.bytes_max {
            return Err(OutOfMemory);
        }
        let old = self.entries.get_mut(key).map(|value| std::mem::take(&mut value.bytes)).unwrap_or_default();
        self.bytes -= old.len();
        // Without a copy, unless a reply still has the old value.
        let mut bytes = Vec::from(old);
        bytes.extend_from_slice(more);
        let length = bytes.len();
        self.set(key, bytes.into(), expires).map(|()| length)
    }

    /// Changes when a key expires. Returns whether there is such a key.
    pub(crate) fn set_expiry(&mut self, key: &[u8], expires: Option<u64>) -> bool {
        self.touch(key);
        let Some(value) = self.entries.get_mut(key) else { return false };
        if let Some(at) = std::mem::replace(&mut value.expires, expires) {
            self.expiries.remove(&(at, key.into()));
        }
        if let Some(at) = expires {
            self.expiries.insert((at, key.into()));
        }
        true
    }

    /// Removes a key. Returns whether it was there, expired or not.
    pub(crate) fn remove(&mut self, key: &[u8]) -> bool {
        let Some((key, value)) = self.entries.swap_remove_entry(key) else { return false };
        self.touch(&key);
        self.bytes -= cost(&key, &value.bytes);
        if let Some(at) = value.expires {
            self.expiries.remove(&(at, key));
        }
        true
    }

    pub(crate) fn clear(&mut self) {
        for (key, watched) in &mut self.watched {
            watched.changes += u64::from(self.entries.contains_key(key));
        }
        self.entries = IndexMap::default();
        self.expiries.clear();
        self.bytes = 0;
    }

    /// Removes at most `max` keys that have expired; returns how many it removed.
    pub(crate) fn expire(&mut self, now: u64, max: usize) -> usize {
        let mut count = 0;
        while count < max
            && let Some((_, key)) = self.expiries.first().filter(|(at, _)| *at <= now)
        {
            let key = key.clone();
            self.remove(&key);
            count += 1;
        }
        count
    }

    /// All keys that have not expired.
    pub(crate) fn keys(&self, now: u64) -> impl Iterator<Item = &[u8]> {
        let lives = move |value: &Value| value.expires.is_none_or(|at| at > now);
        self.entries.iter().filter(move |(_, value)| lives(value)).map(|(key, _)| &**key)
    }

    /// The keys at the `count` places below `cursor`, and the next cursor; zero begins and ends. A removed key's place goes
    /// to the last key. A scan from the last place to the first returns each key that is there all the time.
    pub(crate) fn scan(&self, cursor: usize, count: usize, now: u64) -> (usize, Vec<&[u8]>) {
        let end = if cursor == 0 { self.len() } else { cursor.min(self.len()) };
        let start = end.saturating_sub(count);
        let places = self.entries.get_range(start..end).into_iter().flatten();
        let keys = places.filter(|(_, value)| value.expires.is_none_or(|at| at > now)).map(|(key, _)| &**key);
        (start, keys.collect())
    }

    /// Removes the least recently used of some random keys. Returns whether there was one.
    fn evict(&mut self) -> bool {
        let count = self.entries.len() as u64;
        let mut oldest: Option<(u32, usize)> = None;
        for _ in 0..if count == 0 { 0 } else { SAMPLES } {
            // The generator of Marsaglia: quality does not matter here.
            self.random ^= self.random << 13;
            self.random ^= self.random >> 7;
            self.random ^= self.random << 17;
            let place = (self.random % count) as usize;
            let age = self.entries.get_index(place).map_or(0, |(_, value)| self.clock.wrapping_sub(value.used));
            if oldest.is_none_or(|(most, _)| age > most) {
                oldest = Some((age, place));
            }
        }
        let key = oldest.and_then(|(_, place)| self.entries.get_index(place)).map(|(key, _)| key.clone());
        key.is_some_and(|key| self.remove(&key))
    }
}

/// The memory of a key, its value and its places in the tables, roughly.
fn cost(key: &[u8], value: &[u8]) -> usize {
    key.len() + value.len() + ENTRY_BYTES
}

const ENTRY_BYTES: usize = 120;

/// As in Redis.
const SAMPLES: usize = 5;

#[cfg(test)]
mod tests {
    use super::*;

    fn with(keys: impl IntoIterator<Item = u32>, keyspace: &mut Keyspace) {
        for key in keys {
            keyspace.set(&key.to_be_bytes(), Bytes::from_static(b"1234"), None).unwrap();
        }
    }

    #[test]
    fn memory_stays_within_its_bound_and_used_keys_survive() {
        let mut keyspace = Keyspace::new(100_000);
        with(0..1, &mut keyspace);
        for key in 1..20_000 {
            with([key], &mut keyspace);
            assert!(keyspace.get(&0_u32.to_be_bytes(), 0).is_some(), "used all the time");
            assert!(keyspace.bytes <= 100_000);
        }
        assert!(keyspace.len() > 700);
        assert_eq!(keyspace.set(b"a", vec![0; 100_000].into(), None), Err(OutOfMemory));
        keyspace.clear();
        assert_eq!(keyspace.bytes, 0);
    }

    #[test]
    fn keys_expire_in_order_and_a_few_at_a_time() {
        let mut keyspace = Keyspace::new(1 << 20);
        for key in 0..100_u32 {
            keyspace.set(&key.to_be_bytes(), Bytes::new(), Some(u64::from(key))).unwrap();
        }
        assert_eq!(keyspace.expire(49, 10), 10);
        assert!(keyspace.set_expiry(&20_u32.to_be_bytes(), None));
        assert_eq!(keyspace.expire(49, 1_000), 39);
        assert_eq!((keyspace.len(), keyspace.expire(49, 1_000)), (51, 0));
        assert!(keyspace.has(&20_u32.to_be_bytes(), 1_000));
        assert_eq!(keyspace.get(&60_u32.to_be_bytes(), 60), None);
        assert_eq!(keyspace.len(), 50, "a look removes it as well");
    }

    #[test]
    fn a_scan_returns_the_keys_that_stay() {
        let mut keyspace = Keyspace::new(1 << 20);
        with(0..1_000, &mut keyspace);
        let (mut cursor, mut seen, mut next) = (0, BTreeSet::new(), 1);
        loop {
            let (after, keys) = keyspace.scan(cursor, 10, 0);
            seen.extend(keys.into_iter().map(<[u8]>::to_vec));
            cursor = after;
            if cursor == 0 {
                break;
            }
            // Odd keys go meanwhile.
            keyspace.remove(&u32::to_be_bytes(next));
            next += 2;
        }
        assert!((0..1_000_u32).step_by(2).all(|key| seen.contains(&key.to_be_bytes()[..])));
    }

    #[test]
    fn appending_counts_its_bytes() {
        let mut keyspace = Keyspace::new(1 << 20);
        assert_eq!(keyspace.append(b"a", b"ebb", 0), Ok(3));
        let kept = keyspace.get(b"a", 0).unwrap();
        assert_eq!(keyspace.append(b"a", b"flow", 0), Ok(7));
        assert_eq!(keyspace.append(b"a", &[0; 1 << 20], 0), Err(OutOfMemory));
        assert_eq!((&kept[..], keyspace.get(b"a", 0).unwrap()), (&b"ebb"[..], Bytes::from("ebbflow")));
        assert!(keyspace.remove(b"a"));
        assert_eq!(keyspace.bytes, 0);
    }
}
