//! `Cache`: sets of records by name and type, within a budget of memory.
//!
//! An entry is one set: the records of a type, or that there are none, or that servers failed. An alias is an entry of its
//! own, so that names that share it share the entry. Keys are names in lower case. Eviction is that of a clock: a hand
//! goes round the table, and an entry that was read since it last came by stays for another round.
//!
//! Time is an argument. Nothing is cached from the authority and additional sections except the SOA of a negative answer,
//! so no zone can prolong its own delegation (RFC 8767 is about answers, not about them).

use std::hash::BuildHasher;
use std::time::{Duration, Instant};

use foldhash::quality::RandomState;
use hashbrown::HashTable;

use crate::name::Name;
use crate::numbers::{RecordType, ResponseCode};
use crate::records::{Rdata, Record};

/// Limits and times of a cache.
///
/// ```
/// use tidegate::dns::CacheConfig;
///
/// let config = CacheConfig { memory_max: 1 << 20, ..CacheConfig::default() };
/// assert_eq!(config.ttl_max.as_secs(), 86_400);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CacheConfig {
    /// Bytes of all entries, with their shares of tables; 16 MiB.
    pub memory_max: usize,
    /// The least time that an answer is used, however short its TTL; 0.
    pub ttl_min: Duration,
    /// The most time that an answer is used, however long its TTL; one day.
    pub ttl_max: Duration,
    /// The most time that a negative answer is used; three hours (RFC 2308 §5).
    pub negative_ttl_max: Duration,
    /// How long an answer stays after its time for the case that no server answers; one day, zero for not at all
    /// (RFC 8767).
    pub stale_for: Duration,
    /// The time for which the first failure of a name is remembered; 1 s. It doubles with each further one.
    pub failure_ttl_min: Duration,
    /// The most time for which failures are remembered; 5 min (RFC 9520 §3.2).
    pub failure_ttl_max: Duration,
    /// How long a stale answer is used at once after the servers have failed, before they are asked again; 30 s (RFC 8767 §5).
    pub stale_retry: Duration,
    /// An answer that is read in the last `1 / prefetch_share` of its time is due to be looked up again; 10, zero for
    /// never.
    pub prefetch_share: u32,
}

impl Default for CacheConfig {
    fn default() -> Self {
        Self {
            memory_max: 16 << 20,
            ttl_min: Duration::ZERO,
            ttl_max: Duration::from_secs(86_400),
            negative_ttl_max: Duration::from_secs(3 * 3_600),
            stale_for: Duration::from_secs(86_400),
            failure_ttl_min: Duration::from_secs(1),
            failure_ttl_max: Duration::from_secs(300),
            stale_retry: Duration::from_secs(30),
            prefetch_share: 10,
        }
    }
}

/// An entry of the cache, as of the time of reading.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cached {
    /// The data of the set; empty for a negative answer and a failure.
    pub data: Vec<Rdata>,
    /// `NOERROR`, `NXDOMAIN`, or `SERVFAIL` for a failure.
    pub response_code: ResponseCode,
    /// The SOA of a negative answer.
    pub soa: Option<Record>,
    /// Seconds that are left; 30 for a stale entry (RFC 8767 §4).
    pub ttl: u32,
    /// Whether the time of the entry has passed.
    pub is_stale: bool,
    /// Whether the servers failed a short while ago when they were asked again: a stale entry is used at once then.
    pub has_failed: bool,
    /// Whether the entry is used and about to expire, so that it should be looked up now. One reader gets this.
    pub is_prefetch_due: bool,
}

/// Sets of records by name and type.
#[derive(Debug)]
pub struct Cache {
    config: CacheConfig,
    hasher: RandomState,
    places: HashTable<u32>,
    entries: Vec<Option<CacheEntry>>,
    free: Vec<u32>,
    hand: usize,
    memory: usize,
}

#[derive(Debug)]
struct CacheEntry {
    /// The name in lower case, then the type.
    key: Box<[u8]>,
    /// Each with a length in two bytes; of a negative answer the SOA's owner, then its data.
    data: Box<[u8]>,
    stored: Instant,
    lifetime: Duration,
    response_code: ResponseCode,
    /// Whether the data are those of an SOA.
    is_negative: bool,
    /// Failures in a row.
    failures: u8,
    was_read: bool,
    is_refreshing: bool,
    /// Milliseconds after `stored` until which servers that failed are not asked again.
    retry_after: u32,
}

/// An entry's kind.
#[derive(Debug, Clone, Copy)]
struct Kind {
    response_code: ResponseCode,
    is_negative: bool,
    failures: u8,
}

impl CacheEntry {
    const fn memory(&self) -> usize {
        ENTRY_BYTES + self.key.len() + self.data.len()
    }

    const fn is_failure(&self) -> bool {
        self.failures > 0
    }

    fn age(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.stored)
    }
}

impl Cache {
    /// An empty cache. It has no memory until the first entry.
    #[must_use]
    pub fn new(config: CacheConfig) -> Self {
        Self {
            config,
            hasher: RandomState::default(),
            places: HashTable::new(),
            entries: Vec::new(),
            free: Vec::new(),
            hand: 0,
            memory: 0,
        }
    }

    /// The limits and times.
    #[must_use]
    pub const fn config(&self) -> &CacheConfig {
        &self.config
    }

    /// Bytes of all entries.
    #[must_use]
    pub const fn memory_bytes(&self) -> usize {
        self.memory
    }

    /// How many entries there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.places.len()
    }

    /// Whether there is no entry.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// Reads an entry. A stale one is returned until [`stale_for`](CacheConfig::stale_for) is over, marked as such.
    pub fn get(&mut self, name: &Name, record_type: RecordType, now: Instant) -> Option<Cached> {
        let place = self.find(&key(name, record_type))?;
        let (stale_for, share) = (self.config.stale_for, self.config.prefetch_share);
        let entry = self.entries[place as usize].as_mut()?;
        let age = entry.age(now);
        let is_stale = age >= entry.lifetime;
        if is_stale && (entry.is_failure() || age >= entry.lifetime.saturating_add(stale_for)) {
            // A failure stays, so that the next one is remembered for longer.
            if !entry.is_failure() || age >= entry.lifetime.saturating_mul(2).saturating_add(stale_for) {
                self.remove(place);
            }
            return None;
        }
        let left = entry.lifetime.saturating_sub(age);
        let is_used = std::mem::replace(&mut entry.was_read, true);
        let is_late = share > 0 && left.saturating_mul(share) < entry.lifetime && !entry.is_failure();
        let is_prefetch_due = !is_stale && is_late && is_used && !std::mem::replace(&mut entry.is_refreshing, true);
        let ttl = if is_stale { STALE_TTL } else { left.as_secs() as u32 };
        let has_failed = age.as_millis() < u128::from(entry.retry_after);
        let (data, soa) = unpack(record_type, entry, ttl);
        Some(Cached { data, response_code: entry.response_code, soa, ttl, is_stale, has_failed, is_prefetch_due })
    }

    /// Stores the set of a name and a type. `ttl` is in seconds.
    pub fn insert(&mut self, name: &Name, record_type: RecordType, data: &[Rdata], ttl: u32, now: Instant) {
        let lifetime = Duration::from_secs(u64::from(ttl))
            .clamp(self.config.ttl_min, self.config.ttl_max.max(self.config.ttl_min));
        let mut packed = Vec::new();
        for data in data {
            pack(data.wire(), &mut packed);
        }
        let kind = Kind { response_code: ResponseCode::NOERROR, is_negative: false, failures: 0 };
        self.store(key(name, record_type), packed, lifetime, kind, now);
    }

    /// Stores that a name has no records of a type, or, with [`NXDOMAIN`](ResponseCode::NXDOMAIN), none at all. The time is
    /// the lesser of the SOA's TTL and its minimum (RFC 2308 §5); without an SOA nothing is stored.
    pub fn insert_negative(
        &mut self,
        name: &Name,
        record_type: RecordType,
        response_code: ResponseCode,
        soa: &Record,
        now: Instant,
    ) {
        let crate::RecordData::Soa(fields) = soa.data.view() else { return };
        let seconds = Duration::from_secs(u64::from(soa.ttl.min(fields.minimum)));
        let lifetime = seconds.min(self.config.negative_ttl_max);
        let mut packed = Vec::new();
        pack(soa.name.wire(), &mut packed);
        pack(soa.data.wire(), &mut packed);
        let kind = Kind { response_code, is_negative: true, failures: 0 };
        self.store(key(name, record_type), packed, lifetime, kind, now);
    }

    /// Stores that the servers failed for a name and a type. An answer that is stale stays instead, and is used for
    /// [`stale_retry`](CacheConfig::stale_retry) as one whose refresh [has failed](Cached::has_failed).
    pub fn insert_failure(&mut self, name: &Name, record_type: RecordType, now: Instant) {
        self.insert_failure_of(name, record_type, u8::MAX, self.config.stale_retry, now);
    }

    /// A failure that counts as at most so many in a row.
    fn insert_failure_of(
        &mut self,
        name: &Name,
        record_type: RecordType,
        failures_max: u8,
        stale_retry: Duration,
        now: Instant,
    ) {
        if self.note_failed_refresh(name, record_type, stale_retry, now) {
            return;
        }
        let key = key(name, record_type);
        let before = self.find(&key).and_then(|place| self.entries[place as usize].as_ref());
        let failures = before.map_or(1, |entry| entry.failures.saturating_add(1).min(failures_max));
        let doubled = self.config.failure_ttl_min.saturating_mul(1 << u32::from(failures - 1).min(16));
        let lifetime = doubled.min(self.config.failure_ttl_max);
        let kind = Kind { response_code: ResponseCode::SERVFAIL, is_negative: false, failures };
        self.store(key, Vec::new(), lifetime, kind, now);
    }

    /// Notes that the servers failed for an entry with an answer, also a stale one, which is used at once for this time. Returns
    /// false if there is none.
    pub(crate) fn note_failed_refresh(
        &mut self,
        name: &Name,
        record_type: RecordType,
        retry_after: Duration,
        now: Instant,
    ) -> bool {
        let place = self.find(&key(name, record_type));
        let Some(entry) = place.and_then(|place| self.entries[place as usize].as_mut()) else { return false };
        if entry.is_failure() || entry.age(now) >= entry.lifetime.saturating_add(self.config.stale_for) {
            return false;
        }
        entry.is_refreshing = false;
        entry.retry_after = entry.age(now).saturating_add(retry_after).as_millis().try_into().unwrap_or(u32::MAX);
        true
    }

    /// Stores that no server could be reached, for [`failure_ttl_min`](CacheConfig::failure_ttl_min) each time: the servers of a
    /// network that was away answer as soon as it is back. An answer that is stale stays instead.
    pub fn insert_unreachable(&mut self, name: &Name, record_type: RecordType, now: Instant) {
        self.insert_failure_of(name, record_type, 1, self.config.failure_ttl_min, now);
    }

    /// Removes all entries.
    pub fn clear(&mut self) {
        *self = Self::new(self.config);
    }

    fn store(&mut self, key: Vec<u8>, data: Vec<u8>, lifetime: Duration, kind: Kind, now: Instant) {
        if let Some(place) = self.find(&key) {
            self.remove(place);
        }
        if lifetime.is_zero() {
            return;
        }
        let (key, data) = (key.into_boxed_slice(), data.into_boxed_slice());
        let Kind { response_code, is_negative, failures } = kind;
        let (was_read, is_refreshing, retry_after) = (false, false, 0);
        let entry = CacheEntry {
            key,
            data,
            stored: now,
            lifetime,
            response_code,
            is_negative,
            failures,
            was_read,
            is_refreshing,
            retry_after,
        };
        // One entry may not push out most of the others.
        if entry.memory() > self.config.memory_max / ENTRY_SHARE_MIN {
            return;
        }
        self.memory += entry.memory();
        while self.memory > self.config.memory_max && self.evict(now) {}
        let hash = self.hasher.hash_one(&*entry.key);
        let place = self.free.pop().unwrap_or(self.entries.len() as u32);
        if place as usize == self.entries.len() {
            self.entries.push(None);
        }
        self.entries[place as usize] = Some(entry);
        let (entries, hasher) = (&self.entries, &self.hasher);
        self.places.insert_unique(hash, place, |place| {
            entries[*place as usize].as_ref().map_or(0, |entry| hasher.hash_one(&*entry.key))
        });
    }

    /// Removes one entry; false if there is none.
    fn evict(&mut self, now: Instant) -> bool {
        if self.places.is_empty() {
            return false;
        }
        // Two rounds find an entry: the first clears every mark.
        for _ in 0..=2 * self.entries.len() {
            self.hand = (self.hand + 1) % self.entries.len();
            let Some(entry) = &mut self.entries[self.hand] else { continue };
            let is_over = entry.age(now) >= entry.lifetime;
            if is_over || !std::mem::replace(&mut entry.was_read, false) {
                self.remove(self.hand as u32);
                return true;
            }
        }
        false
    }

    fn find(&self, key: &[u8]) -> Option<u32> {
        let has_key = |place: &u32| self.entries[*place as usize].as_ref().is_some_and(|entry| *entry.key == *key);
        self.places.find(self.hasher.hash_one(key), has_key).copied()
    }

    fn remove(&mut self, place: u32) {
        let Some(entry) = self.entries[place as usize].take() else { return };
        self.memory -= entry.memory();
        if let Ok(found) = self.places.find_entry(self.hasher.hash_one(&*entry.key), |other| *other == place) {
            found.remove();
        }
        self.free.push(place);
    }
}

fn key(name: &Name, record_type: RecordType) -> Vec<u8> {
    let mut key = Vec::with_capacity(name.wire().len() + 2);
    key.extend_from_slice(name.wire());
    key.make_ascii_lowercase();
    key.extend_from_slice(&record_type.0.to_be_bytes());
    key
}

fn pack(bytes: &[u8], out: &mut Vec<u8>) {
    // Data of records and names have a length of at most 16 bits.
    out.extend_from_slice(&(bytes.len() as u16).to_be_bytes());
    out.extend_from_slice(bytes);
}

fn unpack(record_type: RecordType, entry: &CacheEntry, ttl: u32) -> (Vec<Rdata>, Option<Record>) {
    let mut rest = &entry.data[..];
    let parts = std::iter::from_fn(move || {
        let (length, behind) = rest.split_first_chunk::<2>()?;
        let (part, next) = behind.split_at_checked(usize::from(u16::from_be_bytes(*length)))?;
        rest = next;
        Some(part)
    });
    if !entry.is_negative {
        return (parts.map(|part| rdata(record_type, part)).collect(), None);
    }
    let parts: Vec<&[u8]> = parts.collect();
    let [owner, data] = parts[..] else { return (Vec::new(), None) };
    let soa = Name::from_wire(owner).map(|owner| Record::new(owner, ttl, rdata(RecordType::SOA, data)));
    (Vec::new(), soa.ok())
}

fn rdata(record_type: RecordType, wire: &[u8]) -> Rdata {
    Rdata::from_checked(record_type, wire.to_vec().into())
}

/// Bytes of an entry beside its key and data: the entry, its place, two allocations.
const ENTRY_BYTES: usize = size_of::<Option<CacheEntry>>() + 5 + 32;
/// The TTL of a stale answer in seconds (RFC 8767 §4).
const STALE_TTL: u32 = 30;
/// The largest entry is this part of the memory.
const ENTRY_SHARE_MIN: usize = 8;
