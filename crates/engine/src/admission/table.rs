//! `AddressTable`: how many connections each address has, and when it may open the next.
//!
//! An entry is there while its address has connections and, if there is a rate, until another address needs the place or
//! the rate would admit a full burst again. The table is bounded: at the bound, an address without connections gives up
//! its place: of its shard, the one that has been without for longest.
//!
//! The loops of a listener share it. Addresses are spread over shards, each behind a lock that is held for one lookup;
//! no two locks are held at once.

use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Instant;

use super::{ConnectionRate, Refusal};

/// The caps of an address.
#[derive(Debug, Clone, Copy)]
pub(super) struct Caps {
    pub(super) connections_max: u32,
    pub(super) rate: Option<ConnectionRate>,
    pub(super) addresses_max: usize,
}

#[derive(Debug)]
pub(super) struct AddressTable {
    caps: Caps,
    /// Times are counted in nanoseconds from here: when the first connection came.
    start: OnceLock<Instant>,
    /// Entries in all shards.
    addresses: AtomicUsize,
    shards: [Shard; SHARDS],
}

/// Each has a cache line of its own.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Shard(Mutex<Entries>);

#[derive(Debug, Default)]
struct Entries {
    by_address: HashMap<u64, AddressEntry>,
    /// Addresses that lost their last connection, the longest ago first. Each is here at most once; it may have
    /// connections again meanwhile.
    idle: VecDeque<u64>,
}

/// The state of an address.
#[derive(Debug)]
struct AddressEntry {
    /// The theoretical arrival time of the next connection at the sustained rate.
    arrival: u64,
    connections: u32,
    /// It is in the queue of idle ones.
    is_queued: bool,
}

impl AddressTable {
    pub(super) fn new(caps: Caps) -> Self {
        Self {
            caps,
            start: OnceLock::new(),
            addresses: AtomicUsize::new(0),
            shards: std::array::from_fn(|_| Shard::default()),
        }
    }

    pub(super) fn addresses(&self) -> usize {
        self.addresses.load(Relaxed)
    }

    pub(super) fn connections(&self, address: IpAddr) -> u32 {
        let key = key(address);
        self.shard(key).by_address.get(&key).map_or(0, |entry| entry.connections)
    }

    /// An address opens a connection.
    pub(super) fn admit(&self, address: IpAddr, now: Instant) -> Result<(), Refusal> {
        let key = key(address);
        let start = *self.start.get_or_init(|| now);
        let now = u64::try_from(now.saturating_duration_since(start).as_nanos()).unwrap_or(u64::MAX);
        loop {
            if let Some(admitted) = self.try_admit(key, now) {
                return admitted;
            }
            if !self.make_room(key) {
                return Err(Refusal::TooManyAddresses);
            }
        }
    }

    /// The same; `None` if the address is new and there is no place for it.
    fn try_admit(&self, key: u64, now: u64) -> Option<Result<(), Refusal>> {
        let shard = &mut *self.shard(key);
        if let Some(entry) = shard.by_address.get_mut(&key) {
            return Some(entry.admit(&self.caps, now));
        }
        let forgotten = shard.forget_idle(now, FORGOTTEN_MAX);
        self.addresses.fetch_sub(forgotten, Relaxed);
        let mut entry = AddressEntry { arrival: now, connections: 0, is_queued: false };
        if let Err(refusal) = entry.admit(&self.caps, now) {
            return Some(Err(refusal));
        }
        self.reserve().then(|| {
            shard.by_address.insert(key, entry);
            Ok(())
        })
    }

    /// A connection of an address is gone.
    pub(super) fn release(&self, address: IpAddr) {
        let key = key(address);
        let shard = &mut *self.shard(key);
        let Some(entry) = shard.by_address.get_mut(&key) else { return };
        entry.connections = entry.connections.saturating_sub(1);
        if entry.connections > 0 {
            return;
        }
        if self.caps.rate.is_none() {
            shard.remove(key);
            self.addresses.fetch_sub(1, Relaxed);
        } else if !std::mem::replace(&mut entry.is_queued, true) {
            shard.idle.push_back(key);
        }
    }

    /// Takes a place for an entry, if there is one.
    fn reserve(&self) -> bool {
        let one_more = |count| (count < self.caps.addresses_max).then_some(count + 1);
        self.addresses.fetch_update(Relaxed, Relaxed, one_more).is_ok()
    }

    /// Forgets an address without connections: of the same shard if it has one, otherwise of another.
    fn make_room(&self, key: u64) -> bool {
        let first = shard_of(key);
        (first..SHARDS).chain(0..first).any(|number| {
            let forgotten = lock(&self.shards[number]).forget_idle(u64::MAX, 1);
            self.addresses.fetch_sub(forgotten, Relaxed);
            forgotten > 0
        })
    }

    fn shard(&self, key: u64) -> MutexGuard<'_, Entries> {
        lock(&self.shards[shard_of(key)])
    }
}

/// Nothing panics while it holds a lock, except the allocator; the entries are sound at any time.
fn lock(shard: &Shard) -> MutexGuard<'_, Entries> {
    shard.0.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Entries {
    /// Forgets up to so many addresses without connections, in the order of the queue, as far as their rates would admit
    /// a full burst at `now`. Returns how many were forgotten.
    fn forget_idle(&mut self, now: u64, count_max: usize) -> usize {
        let mut forgotten = 0;
        while forgotten < count_max
            && let Some(&key) = self.idle.front()
        {
            match self.by_address.get_mut(&key) {
                Some(entry) if entry.connections > 0 => entry.is_queued = false,
                Some(entry) if entry.arrival > now => break,
                Some(_) => {
                    self.remove(key);
                    forgotten += 1;
                }
                None => {}
            }
            self.idle.pop_front();
        }
        if self.idle.capacity() > KEPT_MIN && self.idle.len() < self.idle.capacity() / 4 {
            self.idle.shrink_to(self.idle.len() * 2);
        }
        forgotten
    }

    fn remove(&mut self, key: u64) {
        self.by_address.remove(&key);
        if self.by_address.capacity() > KEPT_MIN && self.by_address.len() < self.by_address.capacity() / 4 {
            self.by_address.shrink_to(self.by_address.len() * 2);
        }
    }
}

impl AddressEntry {
    /// One more connection, at `now` nanoseconds, if the caps admit it. Otherwise nothing changes.
    fn admit(&mut self, caps: &Caps, now: u64) -> Result<(), Refusal> {
        if self.connections >= caps.connections_max {
            return Err(Refusal::TooManyConnections);
        }
        if let Some(rate) = caps.rate {
            let interval = u64::try_from(rate.interval.as_nanos()).unwrap_or(u64::MAX);
            let tolerance = interval.saturating_mul(u64::from(rate.burst.saturating_sub(1)));
            if self.arrival > now.saturating_add(tolerance) {
                return Err(Refusal::TooFast);
            }
            self.arrival = self.arrival.max(now).saturating_add(interval);
        }
        self.connections += 1;
        Ok(())
    }
}

/// An address as a number: that of IPv4, or the first 64 bits of one of IPv6. The networks of IPv6 that have the numbers
/// of IPv4 addresses are reserved (RFC 4291 §2.4).
fn key(address: IpAddr) -> u64 {
    match address {
        IpAddr::V4(address) => u64::from(u32::from(address)),
        IpAddr::V6(address) => (u128::from(address) >> 64) as u64,
    }
}

/// Neighbours are in different shards. An attacker may choose the shard: that makes others wait for a lookup, at most.
fn shard_of(key: u64) -> usize {
    (key.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 60) as usize
}

const SHARDS: usize = 16;

/// How many addresses are forgotten at most when a new one comes, so that a full table shrinks and no accept takes long.
const FORGOTTEN_MAX: usize = 2;

/// Tables of this capacity do not shrink.
const KEPT_MIN: usize = 64;

#[cfg(test)]
mod tests;
