//! `Deadlines`: how long a peer may be silent, slow, or connected; and a loop's state for them.
//!
//! A connection stores nothing of its own. A loop has 16 bytes for each connection with such deadlines, in pages by slot
//! number, and no page where none are set. `connection/deadlines.rs` decides when one has come.
//!
//! A tick is at most twelve days away. A longer time has a tick after twelve days, and the loop keeps in a table of its own how much
//! of the time is over then, or is left.

use std::collections::HashMap;
use std::rc::Rc;
use std::time::Duration;

use tidegate_codec::scaled;

use crate::slot_table::SlotTable;
use crate::wheel::{DeadlineTick, Wheel};

/// How long a peer may be silent, slow, or connected. Only the handshake has a deadline by default: whether silence is
/// wrong, and how large a message is, depends on the protocol. HTTP/1.1 has deadlines of its own in its limits.
///
/// Each is precise to a millisecond; [`Duration::MAX`] never comes. A peer whose bytes have come in time, but were not read
/// yet because the loop was busy, is not late. Streams have none; their session has.
///
/// ```
/// use std::time::Duration;
/// use tidegate::{Deadlines, Limits};
///
/// let deadlines = Deadlines {
///     idle_timeout: Some(Duration::from_secs(300)),
///     read_timeout: Some(Duration::from_secs(30)),
///     age_max: Some(Duration::from_secs(3600)),
///     ..Deadlines::default()
/// };
/// let limits = Limits { deadlines, ..Limits::default() };
/// # drop(limits);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Deadlines {
    /// How long no byte may move in either direction; then the connection closes in good order. It stops peers that
    /// vanished, or that only occupy a connection. An application that works for longer on a request, without a byte,
    /// is cut off as well. Default: none.
    pub idle_timeout: Option<Duration>,
    /// A peer that has sent a part of a message, while the application waits for messages, has this long to complete it;
    /// if it sends [`read_rate_min`](Self::read_rate_min), it gets as long again. It stops peers that send a message a
    /// byte at a time. The time between messages does not count. Default: none.
    pub read_timeout: Option<Duration>,
    /// The lowest rate, in bytes per second and averaged over a `read_timeout`, at which a peer has to send the rest of
    /// a message; 0 if one byte in that time is enough. Default 240.
    pub read_rate_min: u32,
    /// How long the handshakes of filters may take, from the start of the connection; then it is reset. It stops peers
    /// that connect to a TLS port and never finish the handshake. Default 60 s.
    pub handshake_timeout: Option<Duration>,
    /// How long a connection may last, give or take a tenth, so that connections that began together do not end
    /// together. Then it drains, as all connections do when a server drains, and has `age_grace` to end. It lets
    /// clients of long connections find new servers, and bounds the life of negotiated parameters. Default: none. A QUIC server refuses it
    /// for its streams: HTTP/3 has a limit of its own, and QUIC alone does not end old connections.
    pub age_max: Option<Duration>,
    /// How long a connection that reached `age_max` may take to end, before it is closed. Default 30 s.
    pub age_grace: Duration,
}

impl Default for Deadlines {
    fn default() -> Self {
        Self {
            idle_timeout: None,
            read_timeout: None,
            read_rate_min: 240,
            handshake_timeout: Some(Duration::from_secs(60)),
            age_max: None,
            age_grace: Duration::from_secs(30),
        }
    }
}

impl Deadlines {
    /// Whether a connection has one after its handshake.
    pub(crate) fn outlast_the_handshake(&self) -> bool {
        self.idle_timeout.is_some() || self.read_timeout.is_some() || self.age_max.is_some()
    }

    /// How many bytes of a message a peer has to send in a `read_timeout`.
    pub(crate) fn read_bytes_min(&self) -> u32 {
        let millis = self.read_timeout.unwrap_or_default().as_millis();
        let bytes = millis.saturating_mul(self.read_rate_min.into()) / 1000;
        u32::try_from(bytes).unwrap_or(u32::MAX).max(1)
    }

    /// `age_max`, a tenth more or less by `seed`; none if it never comes.
    pub(crate) fn age(&self, seed: u64) -> Option<Duration> {
        let part = (seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32) as u32;
        self.age_max
            .filter(|age| *age != Duration::MAX)
            .map(|age| scaled(age, 0.9 + 0.2 * f64::from(part) / f64::from(u32::MAX)))
    }
}

/// A loop's state for a connection with deadlines.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct DeadlineState {
    /// When a byte moved last.
    pub(crate) moved: DeadlineTick,
    /// When the handshake began; afterwards when the present period of reading a message began. `NEVER` if the peer owes
    /// no message.
    pub(crate) reads_since: DeadlineTick,
    /// When the connection reaches its age, or the end of its grace.
    pub(crate) expires: DeadlineTick,
    received_and_drained: u32,
}

impl DeadlineState {
    /// The state of a connection that begins now.
    pub(crate) fn new(now: DeadlineTick, expires: DeadlineTick) -> Self {
        Self { moved: now, reads_since: now, expires, received_and_drained: 0 }
    }

    /// Bytes of messages in the present period; it does not count beyond 2 GiB.
    pub(crate) fn received(&self) -> u32 {
        self.received_and_drained >> 1
    }

    pub(crate) fn set_received(&mut self, bytes: u32) {
        self.received_and_drained = bytes.min(u32::MAX >> 1) << 1 | self.received_and_drained & 1;
    }

    /// Whether the connection has reached its age, and has its grace.
    pub(crate) fn is_drained(&self) -> bool {
        self.received_and_drained & 1 == 1
    }

    pub(crate) fn set_drained(&mut self) {
        self.received_and_drained |= 1;
    }
}

/// The states of a loop's connections, by slot.
#[derive(Debug, Default)]
pub(crate) struct DeadlineStates {
    /// Some connection has or had deadlines.
    is_used: bool,
    states: SlotTable<DeadlineState>,
    /// Deadlines of connections that have their own.
    own: HashMap<u32, Rc<Deadlines>>,
    /// Connections with times that are longer than the horizon of the wheel.
    long: HashMap<u32, LongTimes>,
}

/// The times of a connection that are longer than the horizon of the wheel.
#[derive(Debug, Clone, Copy, Default)]
struct LongTimes {
    periods: [LongPeriod; LONG_PERIODS],
    /// How much of the age, or of its grace, is left at [`DeadlineState::expires`].
    age_left: Duration,
}

/// A period without movement, or of reading a message.
#[derive(Debug, Clone, Copy, Default)]
struct LongPeriod {
    /// The tick in the state, unless the period has begun anew.
    since: DeadlineTick,
    /// The time before that tick.
    over: Duration,
}

/// A period of [`DeadlineState`] that has a deadline.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Period {
    /// Since a byte moved.
    Idle,
    /// Since a message, or the handshake, has begun.
    Reading,
}

/// How many there are.
const LONG_PERIODS: usize = 2;

impl DeadlineStates {
    /// Whether a connection of the loop may have deadlines: one comparison for those that have none.
    #[inline]
    pub(crate) const fn is_used(&self) -> bool {
        self.is_used
    }

    /// A connection with deadlines opens.
    pub(crate) const fn set_used(&mut self) {
        self.is_used = true;
    }

    /// Whether any connection has deadlines of its own.
    pub(crate) fn has_own(&self) -> bool {
        !self.own.is_empty()
    }

    /// The deadlines of a connection that has its own.
    pub(crate) fn own(&self, slot: u32) -> Option<Rc<Deadlines>> {
        self.own.get(&slot).cloned()
    }

    /// Gives a connection deadlines of its own; their times begin now.
    pub(crate) fn set_own(&mut self, slot: u32, deadlines: Deadlines) {
        self.is_used = true;
        self.remove_state(slot);
        self.own.insert(slot, Rc::new(deadlines));
    }

    pub(crate) fn get(&self, slot: u32) -> Option<DeadlineState> {
        self.states.get(slot)
    }

    pub(crate) fn get_mut(&mut self, slot: u32) -> Option<&mut DeadlineState> {
        self.states.get_mut(slot)
    }

    pub(crate) fn set(&mut self, slot: u32, state: DeadlineState) {
        self.states.set(slot, state);
    }

    /// A connection is gone.
    #[inline]
    pub(crate) fn remove(&mut self, slot: u32) {
        if self.is_used {
            self.own.remove(&slot);
            self.remove_state(slot);
        }
    }

    /// Removes the stored state, but not the deadlines.
    pub(crate) fn remove_state(&mut self, slot: u32) {
        self.states.remove(slot);
        if !self.long.is_empty() {
            self.long.remove(&slot);
        }
    }

    /// When a period of a connection ends that has begun at `since`. A longer time than the horizon moves `since` there, each time
    /// that it has come.
    #[inline]
    pub(crate) fn end_of(
        &mut self,
        (slot, period): (u32, Period),
        since: &mut DeadlineTick,
        time: Option<Duration>,
        wheel: &Wheel,
    ) -> DeadlineTick {
        match time {
            Some(time) if since.is_set() && (time <= DeadlineTick::HORIZON || time == Duration::MAX) => {
                since.after(time)
            }
            Some(time) if since.is_set() => self.end_of_long((slot, period), since, time, wheel),
            _ => DeadlineTick::NEVER,
        }
    }

    #[cold]
    fn end_of_long(
        &mut self,
        (slot, period): (u32, Period),
        since: &mut DeadlineTick,
        time: Duration,
        wheel: &Wheel,
    ) -> DeadlineTick {
        let kept = &mut self.long.entry(slot).or_default().periods[period as usize];
        if kept.since != *since {
            *kept = LongPeriod { since: *since, over: Duration::ZERO };
        }
        loop {
            let left = time.saturating_sub(kept.over);
            let next = since.after(left.min(DeadlineTick::HORIZON));
            if left <= DeadlineTick::HORIZON || !wheel.has_passed(next) {
                return next;
            }
            *since = next;
            (kept.since, kept.over) = (next, kept.over + DeadlineTick::HORIZON);
        }
    }

    /// The tick for [`DeadlineState::expires`] of an age, or a grace, that begins at `now`.
    pub(crate) fn begin_age(&mut self, slot: u32, now: DeadlineTick, age: Duration) -> DeadlineTick {
        let left = age.saturating_sub(DeadlineTick::HORIZON);
        if age != Duration::MAX && (!left.is_zero() || self.long.contains_key(&slot)) {
            self.long.entry(slot).or_default().age_left = left;
        }
        now.after(age)
    }

    /// When a connection is as old as it may be, although its tick in the state comes sooner.
    #[inline]
    pub(crate) fn end_of_age(&mut self, slot: u32, expires: DeadlineTick, wheel: &Wheel) -> DeadlineTick {
        if self.long.is_empty() || !wheel.has_passed(expires) {
            return expires;
        }
        let Some(long) = self.long.get_mut(&slot) else { return expires };
        let mut expires = expires;
        while !long.age_left.is_zero() && wheel.has_passed(expires) {
            let step = long.age_left.min(DeadlineTick::HORIZON);
            expires = expires.after(step);
            long.age_left -= step;
        }
        expires
    }
}

const _: () = assert!(size_of::<DeadlineState>() == 16);

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{DeadlineState, DeadlineStates, Deadlines};

    #[test]
    fn deadlines_of_a_connection_begin_anew_and_go_with_it() {
        let mut states = DeadlineStates::default();
        states.set(3, DeadlineState::default());
        states.set_own(3, Deadlines::default());
        assert!(states.get(3).is_none() && states.own(3).is_some());
        states.remove(3);
        assert!(!states.has_own());
    }

    #[test]
    fn a_state_counts_bytes_beside_its_mark() {
        let mut state = DeadlineState::default();
        state.set_received(5);
        state.set_drained();
        assert_eq!((state.received(), state.is_drained()), (5, true));
        state.set_received(u32::MAX);
        assert_eq!((state.received(), state.is_drained()), (u32::MAX >> 1, true));
    }

    #[test]
    fn ages_are_spread_over_a_fifth() {
        let deadlines = Deadlines { age_max: Some(Duration::from_secs(1000)), ..Deadlines::default() };
        let ages: Vec<_> = (0..1000).map(|seed| deadlines.age(seed).expect("it is set").as_secs()).collect();
        assert!(ages.iter().all(|age| (900..=1100).contains(age)));
        assert!(ages.iter().any(|age| *age < 910) && ages.iter().any(|age| *age > 1090));
    }

    #[test]
    fn the_longest_age_never_comes_and_others_have_no_product_that_overflows() {
        let aged = |age| Deadlines { age_max: Some(age), ..Deadlines::default() };
        assert!((0..1000).all(|seed| aged(Duration::MAX).age(seed).is_none()));
        let long = Duration::MAX - Duration::from_secs(1);
        assert!((0..1000).all(|seed| aged(long).age(seed) >= Some(Duration::MAX / 10 * 8)));
    }
}
