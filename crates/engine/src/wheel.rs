//! The timer wheel: one per loop, 16 bytes per slot, re-armed lazily.
//!
//! A hierarchical wheel (Varghese and Lauck, 1987): six levels of 64 buckets, a tick of one millisecond. A bucket is a
//! doubly linked list through the nodes, which are in the slots. Postponing a deadline costs one store: the node stays
//! in its bucket, and is moved when its old time comes. Only an earlier deadline moves it at once.
//!
//! Ticks in nodes are 32 bits wide and wrap after 49 days. Deadlines are at most 12 days away, so the difference to the
//! present tick, which is 64 bits wide, is never ambiguous.

use std::time::{Duration, Instant};

use tidegate_buffer::injected::{self, Bug};

/// A deadline in ticks, as nodes store it. Zero means that there is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct DeadlineTick(u32);

impl DeadlineTick {
    pub(crate) const NEVER: Self = Self(0);

    /// A deadline that has passed. A tick that is stored after its time becomes ambiguous weeks later, so this value
    /// replaces it.
    pub(crate) const PASSED: Self = Self(u32::MAX);

    pub(crate) const fn is_set(self) -> bool {
        self.0 != 0
    }

    /// The sooner of the two; `NEVER` is later than any.
    pub(crate) const fn earlier(self, other: Self) -> Self {
        if !self.is_set() || (other.is_set() && (other.0.wrapping_sub(self.0) as i32) < 0) { other } else { self }
    }
}

impl DeadlineTick {
    /// The longest time between now and a tick.
    pub(crate) const HORIZON: Duration = Duration::from_millis(HORIZON_TICKS_MAX);

    /// The tick that comes `time` after this one, which is set; [`Duration::MAX`] is `NEVER`.
    pub(crate) fn after(self, time: Duration) -> Self {
        if time == Duration::MAX {
            return Self::NEVER;
        }
        let ticks = u64::try_from(time.as_millis()).unwrap_or(u64::MAX).clamp(1, HORIZON_TICKS_MAX);
        match Self(self.0.wrapping_add(ticks as u32)) {
            Self::NEVER | Self::PASSED => Self(1),
            tick => tick,
        }
    }
}

/// A slot's part of the wheel.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Node {
    next: u32,
    /// The node before it, or `HEAD` and the number of the bucket.
    previous: u32,
    /// The tick at which it is linked; zero if it is not linked.
    armed: DeadlineTick,
    /// When it is to fire; later than `armed` if the deadline was postponed.
    deadline: DeadlineTick,
}

impl Default for Node {
    fn default() -> Self {
        Self { next: NIL, previous: NIL, armed: DeadlineTick::NEVER, deadline: DeadlineTick::NEVER }
    }
}

/// Access to the nodes.
pub(crate) trait Nodes {
    fn node(&mut self, index: u32) -> &mut Node;
}

#[derive(Debug)]
pub(crate) struct Wheel {
    start: Instant,
    /// Everything up to this tick has fired.
    elapsed: u64,
    heads: [[u32; BUCKETS]; LEVELS],
    occupied: [u64; LEVELS],
}

impl Wheel {
    pub(crate) fn new(start: Instant) -> Self {
        Self { start, elapsed: 0, heads: [[NIL; BUCKETS]; LEVELS], occupied: [0; LEVELS] }
    }

    /// The first tick that is not before `at`, but at most `HORIZON_TICKS_MAX` ahead.
    pub(crate) fn tick(&self, at: Instant) -> DeadlineTick {
        let since = at.saturating_duration_since(self.start);
        let part = u64::from(since.subsec_nanos().div_ceil(NANOS_PER_TICK));
        let tick = since.as_secs().saturating_mul(TICKS_PER_SECOND).saturating_add(part);
        let tick = tick.clamp(self.elapsed + 1, self.elapsed + HORIZON_TICKS_MAX);
        // The two ticks in 49 days that mean something else when stored fire a millisecond or two late.
        DeadlineTick(if matches!(DeadlineTick(tick as u32), DeadlineTick::NEVER | DeadlineTick::PASSED) {
            1
        } else {
            tick as u32
        })
    }

    /// The tick at which an operation that may take `timeout` from `now` on is overdue.
    pub(crate) fn tick_after(&self, now: Instant, timeout: Duration) -> DeadlineTick {
        now.checked_add(timeout).map_or(DeadlineTick::NEVER, |at| self.tick(at))
    }

    /// Whether a deadline has passed.
    pub(crate) fn has_passed(&self, deadline: DeadlineTick) -> bool {
        deadline == DeadlineTick::PASSED || (deadline.is_set() && self.absolute(deadline) <= self.elapsed)
    }

    /// How long ago a deadline has passed; zero if it has not.
    pub(crate) fn since(&self, deadline: DeadlineTick) -> Duration {
        Duration::from_millis(self.elapsed.saturating_sub(self.absolute(deadline)))
    }

    /// Sets, moves or clears the deadline of a node.
    #[inline]
    pub(crate) fn set(&mut self, nodes: &mut impl Nodes, index: u32, deadline: DeadlineTick) {
        let node = nodes.node(index);
        node.deadline = deadline;
        let armed = node.armed;
        if !deadline.is_set() || (armed.is_set() && armed.earlier(deadline) == armed) {
            return;
        }
        if armed.is_set() {
            self.unlink(nodes, index);
        }
        self.link(nodes, index, deadline);
    }

    /// The deadline of a node.
    pub(crate) fn deadline(&self, nodes: &mut impl Nodes, index: u32) -> DeadlineTick {
        nodes.node(index).deadline
    }

    /// Unlinks and resets a node whose slot is released.
    pub(crate) fn forget(&mut self, nodes: &mut impl Nodes, index: u32) {
        if nodes.node(index).armed.is_set() {
            self.unlink(nodes, index);
        }
        *nodes.node(index) = Node::default();
    }

    /// The time from `now` until the next node may fire.
    pub(crate) fn timeout(&self, now: Instant) -> Option<Duration> {
        let (tick, ..) = self.next_bucket()?;
        Some((self.start + Duration::from_millis(tick)).saturating_duration_since(now))
    }

    /// The next node whose deadline has come by `now`; it is disarmed.
    pub(crate) fn expire(&mut self, nodes: &mut impl Nodes, now: Instant) -> Option<u32> {
        let until = now.saturating_duration_since(self.start).as_millis() as u64;
        loop {
            let bucket = self.next_bucket().filter(|(tick, ..)| *tick <= until);
            let Some((tick, level, bucket)) = bucket else {
                self.elapsed = self.elapsed.max(until);
                return None;
            };
            self.elapsed = self.elapsed.max(tick);
            let index = self.heads[level][bucket];
            let deadline = nodes.node(index).deadline;
            self.unlink(nodes, index);
            if !deadline.is_set() {
                continue;
            }
            if self.absolute(deadline) <= self.elapsed {
                nodes.node(index).deadline = DeadlineTick::NEVER;
                return Some(index);
            }
            if !injected::is_injected(Bug::DeadlineLost) {
                self.link(nodes, index, deadline);
            }
        }
    }

    /// The start of the first occupied bucket, with its level and number. While a bucket of a higher level is being
    /// emptied into lower ones, the nodes left in it may be sooner than those in the lower ones.
    fn next_bucket(&self) -> Option<(u64, usize, usize)> {
        (0..LEVELS).filter_map(|level| self.next_bucket_of(level)).min()
    }

    #[inline]
    fn next_bucket_of(&self, level: usize) -> Option<(u64, usize, usize)> {
        if self.occupied[level] == 0 {
            return None;
        }
        let shift = level as u32 * BUCKET_BITS;
        let current = (self.elapsed >> shift) as usize % BUCKETS;
        let ahead = self.occupied[level].rotate_right(current as u32).trailing_zeros() as usize;
        let bucket = (current + ahead) % BUCKETS;
        let round = self.elapsed >> (shift + BUCKET_BITS) << (shift + BUCKET_BITS);
        let mut tick = round + ((bucket as u64) << shift);
        if bucket < current {
            tick += 1 << (shift + BUCKET_BITS);
        }
        Some((tick, level, bucket))
    }

    fn link(&mut self, nodes: &mut impl Nodes, index: u32, tick: DeadlineTick) {
        let at = self.absolute(tick);
        let differing = 63 - ((at ^ self.elapsed) | (BUCKETS as u64 - 1)).leading_zeros();
        let level = ((differing / BUCKET_BITS) as usize).min(LEVELS - 1);
        let bucket = (at >> (level as u32 * BUCKET_BITS)) as usize % BUCKETS;
        let next = std::mem::replace(&mut self.heads[level][bucket], index);
        self.occupied[level] |= 1 << bucket;
        let node = nodes.node(index);
        (node.next, node.previous, node.armed) = (next, HEAD | (level * BUCKETS + bucket) as u32, tick);
        if next != NIL {
            nodes.node(next).previous = index;
        }
    }

    fn unlink(&mut self, nodes: &mut impl Nodes, index: u32) {
        let node = nodes.node(index);
        let (next, previous) = (node.next, node.previous);
        node.armed = DeadlineTick::NEVER;
        if next != NIL {
            nodes.node(next).previous = previous;
        }
        if previous & HEAD == 0 {
            nodes.node(previous).next = next;
            return;
        }
        let place = (previous & !HEAD) as usize;
        let (level, bucket) = (place / BUCKETS, place % BUCKETS);
        self.heads[level][bucket] = next;
        if next == NIL {
            self.occupied[level] &= !(1 << bucket);
        }
    }

    /// A stored tick at full width: the one nearest to the present.
    fn absolute(&self, tick: DeadlineTick) -> u64 {
        let away = tick.0.wrapping_sub(self.elapsed as u32) as i32;
        self.elapsed.saturating_add_signed(i64::from(away))
    }
}

const LEVELS: usize = 6;
const BUCKETS: usize = 64;
const BUCKET_BITS: u32 = 6;
const TICKS_PER_SECOND: u64 = 1000;
const NANOS_PER_TICK: u32 = 1_000_000;

/// 12 days.
const HORIZON_TICKS_MAX: u64 = i32::MAX as u64 / 2;

const NIL: u32 = u32::MAX;

/// The bit that marks a `previous` as the number of a bucket. Slot numbers are below it.
const HEAD: u32 = 1 << 31;

const _: () = assert!(size_of::<Node>() == 16);
const _: () = assert!(HORIZON_TICKS_MAX < 1 << (BUCKET_BITS * LEVELS as u32));

#[cfg(test)]
mod tests;
