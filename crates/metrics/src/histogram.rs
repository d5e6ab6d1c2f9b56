//! `Histogram`, `SharedHistogram`: how long something took, in buckets of fixed bounds.
//!
//! There are two buckets for each power of two of microseconds, from 16 microseconds to 16 seconds, so a quantile is
//! known to a third of itself.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use crate::cell::Cell;

/// How long something took; one thread writes it.
#[derive(Debug)]
pub struct Histogram {
    buckets: [Cell; LATENCY_BUCKETS],
    sum_nanos: Cell,
}

impl Default for Histogram {
    fn default() -> Self {
        Self { buckets: std::array::from_fn(|_| Cell::default()), sum_nanos: Cell::default() }
    }
}

impl Histogram {
    /// Counts `count` events that took so long.
    #[inline]
    pub fn add(&self, took: Duration, count: u64) {
        let nanos = nanos(took);
        self.buckets[bucket(nanos / 1000)].add(count);
        self.sum_nanos.add(nanos.saturating_mul(count));
    }

    /// The counts so far.
    #[must_use]
    pub fn snapshot(&self) -> LatencySnapshot {
        LatencySnapshot { buckets: self.buckets.each_ref().map(Cell::value), sum_nanos: self.sum_nanos.value() }
    }
}

/// How long something took; any thread writes it. Where one thread alone does, a [`Histogram`] is cheaper.
///
/// ```
/// use std::time::Duration;
///
/// use tidegate::metrics::SharedHistogram;
///
/// let waits = SharedHistogram::default();
/// waits.add(Duration::from_millis(3));
/// assert_eq!((waits.snapshot().count(), waits.snapshot().sum()), (1, Duration::from_millis(3)));
/// ```
#[derive(Debug)]
pub struct SharedHistogram {
    buckets: [AtomicU64; LATENCY_BUCKETS],
    sum_nanos: AtomicU64,
}

impl Default for SharedHistogram {
    fn default() -> Self {
        Self { buckets: std::array::from_fn(|_| AtomicU64::new(0)), sum_nanos: AtomicU64::new(0) }
    }
}

impl SharedHistogram {
    /// Counts an event that took so long.
    #[inline]
    pub fn add(&self, took: Duration) {
        let nanos = nanos(took);
        self.buckets[bucket(nanos / 1000)].fetch_add(1, Relaxed);
        self.sum_nanos.fetch_add(nanos, Relaxed);
    }

    /// Adds the events of another histogram.
    pub fn merge(&self, other: &LatencySnapshot) {
        for (sum, more) in self.buckets.iter().zip(other.buckets) {
            sum.fetch_add(more, Relaxed);
        }
        self.sum_nanos.fetch_add(other.sum_nanos, Relaxed);
    }

    /// The counts so far.
    #[must_use]
    pub fn snapshot(&self) -> LatencySnapshot {
        let buckets = self.buckets.each_ref().map(|bucket| bucket.load(Relaxed));
        LatencySnapshot { buckets, sum_nanos: self.sum_nanos.load(Relaxed) }
    }
}

/// A time in nanoseconds: up to 584 years.
#[inline]
fn nanos(took: Duration) -> u64 {
    took.as_secs().saturating_mul(1_000_000_000).saturating_add(took.subsec_nanos().into())
}

/// The numbers of a [`Histogram`], or the sum of several.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LatencySnapshot {
    buckets: [u64; LATENCY_BUCKETS],
    sum_nanos: u64,
}

impl Default for LatencySnapshot {
    fn default() -> Self {
        Self { buckets: [0; LATENCY_BUCKETS], sum_nanos: 0 }
    }
}

impl LatencySnapshot {
    /// Adds those of another histogram.
    pub fn merge(&mut self, other: &Self) {
        for (sum, more) in self.buckets.iter_mut().zip(other.buckets) {
            *sum = sum.wrapping_add(more);
        }
        self.sum_nanos = self.sum_nanos.wrapping_add(other.sum_nanos);
    }

    /// The numbers of events, bucket by bucket.
    #[must_use]
    pub fn buckets(&self) -> &[u64] {
        &self.buckets
    }

    /// The number of all events.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.buckets.iter().sum()
    }

    /// The sum of all times.
    #[must_use]
    pub fn sum(&self) -> Duration {
        Duration::from_nanos(self.sum_nanos)
    }

    /// The exclusive upper bound of a bucket. The last has none.
    #[must_use]
    pub const fn bound(bucket: usize) -> Option<Duration> {
        if bucket + 1 >= LATENCY_BUCKETS {
            return None;
        }
        let (power, half) = (FIRST_POWER + bucket as u32 / 2, bucket as u64 % 2);
        Some(Duration::from_micros((1 << power) + half * (1 << (power - 1))))
    }
}

/// The bucket of a time.
pub(crate) fn bucket_of(took: Duration) -> usize {
    bucket(nanos(took) / 1000)
}

/// The same, in microseconds.
#[inline]
const fn bucket(micros: u64) -> usize {
    if micros < 1 << FIRST_POWER {
        return 0;
    }
    let power = micros.ilog2();
    let half = (micros >> (power - 1)) & 1;
    let bucket = 1 + 2 * (power - FIRST_POWER) as usize + half as usize;
    if bucket < LATENCY_BUCKETS { bucket } else { LATENCY_BUCKETS - 1 }
}

/// The first bucket ends at two to the power of this, in microseconds.
const FIRST_POWER: u32 = 4;

/// Buckets of a histogram: 350 bytes.
pub const LATENCY_BUCKETS: usize = 42;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_below_the_bound_of_its_bucket_and_not_below_the_one_before() {
        for micros in (0..40).flat_map(|power| [(1_u64 << power) - 1, 1 << power, 3 << power >> 1, (1 << power) + 1]) {
            let bucket = bucket(micros);
            let took = Duration::from_micros(micros);
            assert!(LatencySnapshot::bound(bucket).is_none_or(|bound| took < bound), "{micros}: {bucket}");
            let before = bucket.checked_sub(1).and_then(LatencySnapshot::bound);
            assert!(before.is_none_or(|bound| took >= bound), "{micros}: {bucket}");
        }
        assert_eq!(LatencySnapshot::bound(0), Some(Duration::from_micros(16)));
        assert_eq!(LatencySnapshot::bound(LATENCY_BUCKETS - 2), Some(Duration::from_micros(1 << 24)));
    }

    #[test]
    fn the_longest_time_there_is_counts_and_breaks_nothing() {
        let histogram = Histogram::default();
        histogram.add(Duration::MAX, 1);
        histogram.add(Duration::ZERO, 3);
        let mut snapshot = histogram.snapshot();
        snapshot.merge(&histogram.snapshot());
        assert_eq!((snapshot.count(), snapshot.buckets()[0]), (8, 6));
    }
}
