//! `Bucket`: a token bucket in whole bytes, exact to a nanosecond, which may be in debt.
//!
//! Tokens come with time, at the rate, until the burst is full. The fraction of a byte is kept, so a bucket that is asked
//! often brings as much as one that is asked seldom. Nothing overflows: bytes saturate, and products have 128 bits.

use super::Rate;

/// Nanoseconds since the loop began to shape.
pub(super) type Nanos = u64;

/// Tokens, one for each byte.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Bucket {
    /// Negative while it is in debt.
    bytes: i64,
    /// Billionths of a byte.
    fraction: u32,
    /// Until when tokens have come.
    updated: Nanos,
}

impl Bucket {
    /// A full bucket.
    pub(super) fn full(rate: Rate, now: Nanos) -> Self {
        Self { bytes: burst(rate), fraction: 0, updated: now }
    }

    /// Adds the tokens that have come by `now`, and returns how many bytes there are. A clock that goes back brings
    /// nothing and costs nothing.
    pub(super) fn refill(&mut self, rate: Rate, now: Nanos) -> i64 {
        let elapsed = now.saturating_sub(std::mem::replace(&mut self.updated, now));
        if elapsed > 0 {
            let gained = u128::from(elapsed) * u128::from(rate.bytes_per_second()) + u128::from(self.fraction);
            let bytes = i128::from(self.bytes) + (gained / NANOS_PER_SECOND).cast_signed();
            self.bytes = i64::try_from(bytes).unwrap_or(i64::MAX);
            self.fraction = (gained % NANOS_PER_SECOND) as u32;
        }
        if self.bytes >= burst(rate) {
            (self.bytes, self.fraction) = (burst(rate), 0);
        }
        self.bytes
    }

    /// Takes tokens, also if they are not there yet.
    pub(super) fn take(&mut self, bytes: u64) {
        self.bytes = self.bytes.saturating_sub_unsigned(bytes);
    }

    /// Puts tokens back that were not used.
    pub(super) fn put_back(&mut self, bytes: u64) {
        self.bytes = self.bytes.saturating_add_unsigned(bytes);
    }

    /// When there will be so many bytes; `updated` if they are there.
    pub(super) fn time_of(&self, rate: Rate, bytes: u64) -> Nanos {
        let missing = i128::from(bytes) - i128::from(self.bytes);
        if missing <= 0 {
            return self.updated;
        }
        let missing = missing.cast_unsigned() * NANOS_PER_SECOND - u128::from(self.fraction);
        let wait = missing.div_ceil(rate.bytes_per_second().into());
        self.updated.saturating_add(Nanos::try_from(wait).unwrap_or(Nanos::MAX))
    }
}

fn burst(rate: Rate) -> i64 {
    i64::try_from(rate.burst_bytes()).unwrap_or(i64::MAX)
}

const NANOS_PER_SECOND: u128 = 1_000_000_000;

#[cfg(test)]
mod tests {
    use super::{Bucket, Rate};

    const SECOND: u64 = 1_000_000_000;

    #[test]
    fn tokens_come_exactly_however_often_the_bucket_is_asked() {
        let rate = Rate::per_second(999_983).burst(1 << 40);
        for step in [1, 7, 999, 1_000_003, SECOND] {
            let mut bucket = Bucket::full(rate, 0);
            bucket.take(1 << 40);
            let mut now = 0;
            while now < 10_000 * step {
                now += step;
                bucket.refill(rate, now);
            }
            let expected = u128::from(now) * 999_983 / u128::from(SECOND);
            assert_eq!(bucket.bytes as u128, expected, "step {step}");
        }
    }

    #[test]
    fn tokens_are_there_at_the_time_that_the_bucket_names_and_not_before() {
        for (rate, bytes) in [(3, 1), (7, 16_000), (1_000_000, 1), (999_983, 12_345), (u64::MAX, 5)] {
            let rate = Rate::per_second(rate);
            let mut bucket = Bucket::full(rate, 5);
            bucket.take(rate.burst_bytes() + 100);
            let at = bucket.time_of(rate, bytes);
            let mut before = bucket;
            assert!(at == 5 || before.refill(rate, at - 1) < bytes as i64, "{rate:?}");
            assert!(bucket.refill(rate, at) >= bytes as i64, "{rate:?}");
        }
    }

    #[test]
    fn a_bucket_holds_no_more_than_its_burst() {
        let rate = Rate::per_second(1_000).burst(500);
        let mut bucket = Bucket::full(rate, 0);
        assert_eq!(bucket.refill(rate, 1_000 * SECOND), 500);
        bucket.take(400);
        bucket.put_back(1_000);
        assert_eq!(bucket.refill(rate, 1_000 * SECOND), 500);
        bucket.take(500);
        assert_eq!(bucket.refill(rate, 1_000 * SECOND + SECOND / 10), 100);
    }

    #[test]
    fn nothing_overflows() {
        let rate = Rate::per_second(u64::MAX).burst(u64::MAX);
        let mut bucket = Bucket::full(rate, 0);
        (0..4).for_each(|_| bucket.take(u64::MAX));
        assert_eq!(bucket.bytes, i64::MIN);
        let slow = Rate::per_second(1);
        assert_eq!(bucket.time_of(slow, u64::MAX), u64::MAX);
        // Ages at the largest rate pay the largest debt.
        assert_eq!(bucket.refill(rate, u64::MAX), 1 << 50);
        (0..4).for_each(|_| bucket.put_back(u64::MAX));
        assert_eq!(bucket.refill(rate, u64::MAX), 1 << 50);
    }

    #[test]
    fn a_clock_that_jumps_brings_a_burst_at_most_and_one_that_goes_back_nothing() {
        let rate = Rate::per_second(1_000).burst(500);
        let mut bucket = Bucket::full(rate, SECOND);
        bucket.take(500);
        assert_eq!(bucket.refill(rate, 0), 0);
        assert_eq!(bucket.refill(rate, SECOND / 10), 100);
        assert_eq!(bucket.refill(rate, u64::MAX / 2), 500);
        bucket.take(10_500);
        // The debt is forgiven only at the rate.
        assert_eq!(bucket.refill(rate, u64::MAX / 2 + SECOND), -9_000);
    }
}
