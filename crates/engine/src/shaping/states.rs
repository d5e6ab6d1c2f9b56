//! `ShapingStates`: the buckets of a loop's shaped connections, by slot, and those that connections share.
//!
//! A shared bucket serves in turn. A connection that may not send takes its turn in advance, into the debt of the
//! bucket, and waits until that debt is paid; a connection that comes later goes deeper into debt, and waits longer.
//! Received bytes are charged a turn at a time, and the connection that completes a turn waits until it is paid. So
//! each waits for the turns before its own, and none for another one twice.

use std::time::{Duration, Instant};

use slab::Slab;

use super::bucket::{Bucket, Nanos};
use super::{Rate, Shaping, TURN_BYTES_MAX};
use crate::limits::UNREAD_GRACE;
use crate::slot_table::SlotTable;

/// A loop's shaping state: empty if it shapes no connection.
#[derive(Debug)]
pub(crate) struct ShapingStates {
    /// Some connection is or was shaped.
    is_used: bool,
    start: Instant,
    states: SlotTable<ShapingState>,
    shared: Slab<SharedBuckets>,
}

/// A loop's state for a shaped connection.
#[derive(Debug, Clone, Copy, Default)]
struct ShapingState {
    receive_rate: Option<Rate>,
    send_rate: Option<Rate>,
    receive: Bucket,
    send: Bucket,
    /// The shared buckets, if it has any.
    shared: Option<u32>,
    /// Received bytes that the shared bucket has not been charged for.
    uncharged: u32,
    /// Bytes that the shared bucket has been charged for, and that are not sent yet.
    granted: u32,
    holds: [Hold; 2],
}

/// A time for which a connection does not receive or does not send.
#[derive(Debug, Clone, Copy, Default)]
struct Hold {
    is_held: bool,
    since: Nanos,
    until: Nanos,
}

impl Hold {
    fn begin(&mut self, now: Nanos, until: Nanos) {
        if !std::mem::replace(&mut self.is_held, true) {
            self.since = now;
        }
        self.until = until;
    }

    fn end(&mut self, now: Nanos) -> Option<Duration> {
        let ends = self.is_held && self.until <= now;
        self.is_held &= !ends;
        ends.then(|| Duration::from_nanos(now.saturating_sub(self.since)))
    }
}

/// The buckets of the connections with the same rates of the loop.
#[derive(Debug)]
struct SharedBuckets {
    receive_rate: Option<Rate>,
    send_rate: Option<Rate>,
    receive: Bucket,
    send: Bucket,
    members: usize,
}

/// For how long a connection was held that is held no more.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct HoldTimes {
    pub(crate) receive: Option<Duration>,
    pub(crate) send: Option<Duration>,
}

impl ShapingStates {
    pub(crate) fn new(start: Instant) -> Self {
        Self { is_used: false, start, states: SlotTable::default(), shared: Slab::new() }
    }

    /// Whether a connection of the loop may be shaped: one comparison where none is.
    #[inline]
    pub(crate) const fn is_used(&self) -> bool {
        self.is_used
    }

    /// Shapes a connection from now on, with full buckets of its own. If it was held, it is released.
    pub(crate) fn set(&mut self, slot: u32, shaping: &Shaping, now: Instant) {
        self.is_used = true;
        let now = self.nanos(now);
        let mut holds = self.states.get(slot).map_or([Hold::default(); 2], |state| state.holds);
        holds.iter_mut().for_each(|hold| hold.until = hold.until.min(now));
        self.remove(slot);
        let bucket = |rate: Option<Rate>| rate.map_or_else(Bucket::default, |rate| Bucket::full(rate, now));
        let state = ShapingState {
            receive_rate: shaping.receive,
            send_rate: shaping.send,
            receive: bucket(shaping.receive),
            send: bucket(shaping.send),
            shared: self.join(shaping, now),
            holds,
            ..ShapingState::default()
        };
        self.states.set(slot, state);
    }

    /// Becomes a member of the shared buckets of these rates, which are made if there are none.
    fn join(&mut self, shaping: &Shaping, now: Nanos) -> Option<u32> {
        let (receive_rate, send_rate) = (shaping.loop_receive, shaping.loop_send);
        if receive_rate.is_none() && send_rate.is_none() {
            return None;
        }
        let found = self
            .shared
            .iter_mut()
            .find(|(_, shared)| (shared.receive_rate, shared.send_rate) == (receive_rate, send_rate));
        if let Some((place, shared)) = found {
            shared.members += 1;
            return Some(place as u32);
        }
        // Buckets without members stay until they are full again: a debt does not end with the connections that made it.
        self.shared.retain(|_, shared| shared.members > 0 || !shared.is_full(now));
        let bucket = |rate: Option<Rate>| rate.map_or_else(Bucket::default, |rate| Bucket::full(rate, now));
        let (receive, send) = (bucket(receive_rate), bucket(send_rate));
        Some(self.shared.insert(SharedBuckets { receive_rate, send_rate, receive, send, members: 1 }) as u32)
    }

    /// A connection is gone. The unused rest of its turn is there for others.
    #[inline]
    pub(crate) fn remove(&mut self, slot: u32) {
        if self.is_used {
            self.remove_state(slot);
        }
    }

    #[cold]
    fn remove_state(&mut self, slot: u32) {
        let Some(state) = self.states.get(slot) else { return };
        self.states.remove(slot);
        if let Some(shared) = state.shared.and_then(|place| self.shared.get_mut(place as usize)) {
            shared.members -= 1;
            shared.receive.take(state.uncharged.into());
            shared.send.put_back(state.granted.into());
        }
    }

    /// A connection has received bytes. It may be held from now on.
    pub(crate) fn received(&mut self, slot: u32, bytes: usize, now: Instant) {
        let now = self.nanos(now);
        let Some(state) = self.states.get_mut(slot) else { return };
        let mut until = now;
        if let Some(rate) = state.receive_rate {
            state.receive.refill(rate, now);
            state.receive.take(bytes as u64);
            until = state.receive.time_of(rate, rate.turn_bytes());
        }
        if let Some(shared) = state.shared.and_then(|place| self.shared.get_mut(place as usize))
            && let Some(rate) = shared.receive_rate
        {
            let uncharged = u64::from(state.uncharged) + bytes as u64;
            if uncharged < rate.turn_bytes() {
                state.uncharged = uncharged as u32;
            } else {
                state.uncharged = 0;
                shared.receive.refill(rate, now);
                shared.receive.take(uncharged);
                until = until.max(shared.receive.time_of(rate, 0));
            }
        }
        if until > now {
            let hold = &mut state.holds[RECEIVE];
            hold.begin(now, until.max(hold.until));
        }
    }

    /// The most bytes that the next receive of a connection should bring.
    pub(crate) fn receive_bytes_max(&mut self, slot: u32, now: Instant) -> u32 {
        let now = self.nanos(now);
        let Some(state) = self.states.get_mut(slot) else { return u32::MAX };
        let own = state.receive_rate.map(|rate| state.receive.refill(rate, now).max(1).cast_unsigned());
        let shared = state.shared.and_then(|place| self.shared.get(place as usize));
        let turn = shared.and_then(|shared| shared.receive_rate).map(Rate::turn_bytes);
        let most = own.unwrap_or(u64::MAX).min(turn.unwrap_or(u64::MAX));
        u32::try_from(most).unwrap_or(u32::MAX)
    }

    /// How many of `wanted` bytes a connection may send now. If `None`, it is held until it may send more.
    pub(crate) fn admit_send(&mut self, slot: u32, wanted: u64, now: Instant) -> Option<u64> {
        let now = self.nanos(now);
        let Some(state) = self.states.get_mut(slot) else { return Some(wanted) };
        let hold = &mut state.holds[SEND];
        // A driver may report room that nothing has waited for.
        if hold.is_held && hold.until > now {
            return None;
        }
        hold.is_held = false;
        let mut most = wanted;
        if let Some(rate) = state.send_rate {
            let there = state.send.refill(rate, now).max(0).cast_unsigned();
            let enough = wanted.min(rate.turn_bytes());
            if there < enough {
                state.holds[SEND].begin(now, state.send.time_of(rate, enough));
                return None;
            }
            most = most.min(there);
        }
        if let Some(shared) = state.shared.and_then(|place| self.shared.get_mut(place as usize))
            && let Some(rate) = shared.send_rate
        {
            if state.granted == 0 {
                let turn = most.min(rate.turn_bytes());
                let there = shared.send.refill(rate, now).max(0).cast_unsigned();
                // Without debt no other connection waits.
                let granted = if there < turn { turn } else { most.min(there).min(TURN_BYTES_MAX) };
                shared.send.take(granted);
                state.granted = granted as u32;
                if there < turn {
                    state.holds[SEND].begin(now, shared.send.time_of(rate, 0));
                    return None;
                }
            }
            most = most.min(state.granted.into());
        }
        Some(most)
    }

    /// A connection has sent bytes.
    pub(crate) fn sent(&mut self, slot: u32, bytes: usize, now: Instant) {
        let now = self.nanos(now);
        let Some(state) = self.states.get_mut(slot) else { return };
        if let Some(rate) = state.send_rate {
            state.send.refill(rate, now);
            state.send.take(bytes as u64);
        }
        let granted = (state.granted as usize).min(bytes);
        state.granted -= granted as u32;
        if let Some(shared) = state.shared.and_then(|place| self.shared.get_mut(place as usize)) {
            shared.send.take((bytes - granted) as u64);
        }
    }

    /// Ends the holds of a connection whose time is over.
    pub(crate) fn release(&mut self, slot: u32, now: Instant) -> HoldTimes {
        let now = self.nanos(now);
        let Some(state) = self.states.get_mut(slot) else { return HoldTimes::default() };
        let [receive, send] = &mut state.holds;
        HoldTimes { receive: receive.end(now), send: send.end(now) }
    }

    /// When a connection is to be released next.
    pub(crate) fn next_release(&self, slot: u32) -> Option<Instant> {
        let state = self.states.get(slot)?;
        let until = state.holds.iter().filter(|hold| hold.is_held).map(|hold| hold.until).min()?;
        // The wheel goes no further than days.
        self.start.checked_add(Duration::from_nanos(until))
    }

    /// Whether a connection does not receive at present.
    pub(crate) fn is_receive_held(&self, slot: u32) -> bool {
        self.states.get(slot).is_some_and(|state| state.holds[RECEIVE].is_held)
    }

    /// Whether a connection does not send at present.
    pub(crate) fn is_send_held(&self, slot: u32) -> bool {
        self.states.get(slot).is_some_and(|state| state.holds[SEND].is_held)
    }

    /// Whether a connection is held, or was until a moment ago.
    pub(crate) fn was_held_lately(&self, slot: u32, now: Instant) -> bool {
        let lately = self.nanos(now).saturating_sub(UNREAD_GRACE.as_nanos() as Nanos);
        let was_held = |hold: &Hold| hold.is_held || hold.until > lately;
        self.states.get(slot).is_some_and(|state| state.holds.iter().any(was_held))
    }

    fn nanos(&self, now: Instant) -> Nanos {
        Nanos::try_from(now.saturating_duration_since(self.start).as_nanos()).unwrap_or(Nanos::MAX)
    }
}

impl SharedBuckets {
    fn is_full(&mut self, now: Nanos) -> bool {
        let is_full = |rate: Option<Rate>, bucket: &mut Bucket| {
            rate.is_none_or(|rate| bucket.refill(rate, now) >= rate.burst_bytes().cast_signed())
        };
        is_full(self.receive_rate, &mut self.receive) && is_full(self.send_rate, &mut self.send)
    }
}

const _: () = assert!(size_of::<ShapingState>() <= 144);

const RECEIVE: usize = 0;
const SEND: usize = 1;

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::{Rate, Shaping, ShapingStates};

    fn shaping(rate: Rate) -> Shaping {
        Shaping { loop_send: Some(rate), loop_receive: Some(rate), ..Shaping::default() }
    }

    #[test]
    fn connections_that_share_a_rate_send_in_turn() {
        let (start, rate) = (Instant::now(), Rate::per_second(1_000_000).burst(20_000));
        let mut states = ShapingStates::new(start);
        (0..4).for_each(|slot| states.set(slot, &shaping(rate), start));
        assert_eq!(states.admit_send(0, 1 << 20, start), Some(20_000));
        states.sent(0, 20_000, start);
        // One after the other gets a turn of 10 ms, and the first comes last.
        for slot in [1, 2, 3, 0] {
            assert_eq!(states.admit_send(slot, 1 << 20, start), None);
        }
        // A driver that reports room does not end a hold.
        assert_eq!(states.admit_send(1, 1 << 20, start), None);
        for (slot, millis) in [(1, 10), (2, 20), (3, 30), (0, 40)] {
            let at = start + Duration::from_millis(millis);
            assert_eq!(states.next_release(slot), Some(at));
            assert!(states.release(slot, at).send.is_some());
            assert_eq!(states.admit_send(slot, 1 << 20, at), Some(10_000));
        }
    }

    #[test]
    fn a_turn_that_is_not_used_goes_to_others_and_a_debt_outlives_its_connections() {
        let (start, rate) = (Instant::now(), Rate::per_second(1_000_000).burst(10_000));
        let mut states = ShapingStates::new(start);
        (0..2).for_each(|slot| states.set(slot, &shaping(rate), start));
        assert_eq!(states.admit_send(0, 4_000, start), Some(4_000));
        states.remove(0);
        assert_eq!(states.admit_send(1, 10_000, start), Some(10_000));
        states.received(1, 3_000_000, start);
        states.remove(1);
        // Shared buckets of other rates come and go.
        states.set(2, &shaping(rate.burst(20_000)), start + Duration::from_secs(1));
        states.set(3, &shaping(rate), start + Duration::from_secs(1));
        states.received(3, 10_000, start + Duration::from_secs(1));
        assert_eq!(states.next_release(3), Some(start + Duration::from_secs(3)));
        states.remove(2);
        states.remove(3);
        states.set(4, &shaping(rate.burst(30_000)), start + Duration::from_secs(9));
        assert_eq!(states.shared.len(), 1, "the others are full");
    }

    #[test]
    fn short_messages_wait_only_when_they_are_a_turn() {
        let (start, rate) = (Instant::now(), Rate::per_second(1_000_000).burst(20_000));
        let mut states = ShapingStates::new(start);
        (0..2).for_each(|slot| states.set(slot, &shaping(rate), start));
        states.received(0, 120_000, start);
        assert!(states.is_receive_held(0));
        for _ in 0..99 {
            states.received(1, 100, start);
            assert!(!states.is_receive_held(1));
        }
        states.received(1, 100, start);
        assert_eq!(states.next_release(1), Some(start + Duration::from_millis(110)));
        assert_eq!(states.next_release(0), Some(start + Duration::from_millis(100)));
    }
}
