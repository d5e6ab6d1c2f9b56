//! `AbuseBucket`: a leaky bucket for frames that bring no request forward. The limits of a connection have its rates.

use std::time::{Duration, Instant};

/// A leaky bucket for frames that bring no request forward (decision 69).
#[derive(Debug, Default)]
pub struct AbuseBucket {
    level: u32,
    /// For how many seconds from the start the bucket has leaked.
    leaked: u32,
    /// When the first stream was opened, or the first abuse came.
    start: Option<Instant>,
    /// Requests that were answered within the batch of frames in which they came, and that are credited at its
    /// end: the peer may disturb them in the same batch.
    answered: u32,
    /// The highest number of a stream before the batch.
    batch_id: u32,
}

impl AbuseBucket {
    /// Adds one, to a bucket for `max` that leaks `leak_per_second`. Returns whether it is within `max`.
    #[inline]
    pub fn add(&mut self, now: Instant, max: u32, leak_per_second: u32) -> bool {
        let seconds = self.since_start(now).as_secs();
        let seconds = u32::try_from(seconds).unwrap_or(u32::MAX);
        if seconds > self.leaked {
            let leaked = leak_per_second.saturating_mul(seconds - self.leaked);
            self.level = self.level.saturating_sub(leaked);
            self.leaked = seconds;
        }
        self.level = self.level.saturating_add(1);
        self.level <= max
    }

    /// The time in milliseconds, for the ages of streams. It begins again at zero after 49 days.
    #[inline]
    pub fn millis(&mut self, now: Instant) -> u32 {
        self.since_start(now).as_millis() as u32
    }

    #[inline]
    fn since_start(&mut self, now: Instant) -> Duration {
        now.saturating_duration_since(*self.start.get_or_insert(now))
    }

    /// A request is complete.
    #[inline]
    pub fn credit(&mut self, per_request: u32) {
        self.level = self.level.saturating_sub(per_request);
    }

    /// The request of a stream that the peer has opened is complete.
    #[inline]
    pub fn credit_stream(&mut self, id: u32, per_request: u32) {
        if id > self.batch_id { self.answered += 1 } else { self.credit(per_request) }
    }

    /// The peer resets a stream that is closed, or has it reset. If it is one of this batch, its request is not credited:
    /// the peer did not wait for the response.
    pub fn withdraw(&mut self, id: u32) {
        if id > self.batch_id {
            self.answered = self.answered.saturating_sub(1);
        }
    }

    /// The batch is over; `id` is the highest number of a stream.
    #[inline]
    pub fn end_batch(&mut self, id: u32, per_request: u32) {
        let answered = std::mem::take(&mut self.answered);
        self.level = self.level.saturating_sub(answered.saturating_mul(per_request));
        self.batch_id = id;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_a_second_are_not_lost() {
        let start = Instant::now();
        let mut abuse = AbuseBucket::default();
        for round in 0..1_000 {
            for _ in 0..19 {
                assert!(abuse.add(start + Duration::from_millis(1_900 * round), MAX, 10), "{round}");
            }
        }
    }

    #[test]
    fn requests_and_time_are_credited() {
        let start = Instant::now();
        let mut abuse = AbuseBucket::default();
        for _ in 0..MAX {
            assert!(abuse.add(start, MAX, LEAK));
        }
        assert!(!abuse.add(start, MAX, LEAK));
        abuse.credit(8);
        assert!(abuse.add(start, MAX, LEAK));
        for second in 1..10_000 {
            for _ in 0..LEAK {
                assert!(abuse.add(start + Duration::from_secs(second), MAX, LEAK), "as fast as it leaks");
            }
        }
    }

    const MAX: u32 = 1_000;
    const LEAK: u32 = 33;
}
