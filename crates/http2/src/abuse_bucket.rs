//! `AbuseBucket`: a leaky bucket for frames that bring no request forward.

use std::time::{Duration, Instant};

use crate::error::Exceeded;
use crate::limits::Limits;

#[derive(Debug, Default)]
pub(crate) struct AbuseBucket {
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
    /// Adds one, to a bucket for `max`.
    #[inline]
    pub(crate) fn add(&mut self, now: Instant, max: u32, limits: &Limits) -> Result<(), Exceeded> {
        let seconds = self.since_start(now).as_secs();
        let seconds = u32::try_from(seconds).unwrap_or(u32::MAX);
        if seconds > self.leaked {
            let leaked = limits.abuse_leak_per_second.saturating_mul(seconds - self.leaked);
            self.level = self.level.saturating_sub(leaked);
            self.leaked = seconds;
        }
        self.level = self.level.saturating_add(1);
        if self.level > max { Err(Exceeded::Abuse) } else { Ok(()) }
    }

    /// The time in milliseconds, for the ages of streams. It begins again at zero after 49 days.
    #[inline]
    pub(crate) fn millis(&mut self, now: Instant) -> u32 {
        self.since_start(now).as_millis() as u32
    }

    #[inline]
    fn since_start(&mut self, now: Instant) -> Duration {
        now.saturating_duration_since(*self.start.get_or_insert(now))
    }

    /// A request is complete.
    #[inline]
    pub(crate) fn credit(&mut self, limits: &Limits) {
        self.level = self.level.saturating_sub(limits.abuse_credit_per_request);
    }

    /// The request of a stream that the peer has opened is complete.
    #[inline]
    pub(crate) fn credit_stream(&mut self, id: u32, limits: &Limits) {
        if id > self.batch_id { self.answered += 1 } else { self.credit(limits) }
    }

    /// The peer resets a stream that is closed, or has it reset. If it is one of this batch, its request is not credited:
    /// the peer did not wait for the response.
    pub(crate) fn withdraw(&mut self, id: u32) {
        if id > self.batch_id {
            self.answered = self.answered.saturating_sub(1);
        }
    }

    /// The batch is over; `id` is the highest number of a stream.
    #[inline]
    pub(crate) fn end_batch(&mut self, id: u32, limits: &Limits) {
        let answered = std::mem::take(&mut self.answered);
        self.level = self.level.saturating_sub(answered.saturating_mul(limits.abuse_credit_per_request));
        self.batch_id = id;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_a_second_are_not_lost() {
        let (limits, start) = (Limits { abuse_leak_per_second: 10, ..Limits::default() }, Instant::now());
        let mut abuse = AbuseBucket::default();
        for round in 0..1_000 {
            for _ in 0..19 {
                assert_eq!(
                    abuse.add(start + Duration::from_millis(1_900 * round), limits.abuse_max, &limits),
                    Ok(()),
                    "{round}"
                );
            }
        }
    }

    #[test]
    fn requests_and_time_are_credited() {
        let (limits, start) = (Limits::default(), Instant::now());
        let mut abuse = AbuseBucket::default();
        for _ in 0..limits.abuse_max {
            assert_eq!(abuse.add(start, limits.abuse_max, &limits), Ok(()));
        }
        assert_eq!(abuse.add(start, limits.abuse_max, &limits), Err(Exceeded::Abuse));
        abuse.credit(&limits);
        assert_eq!(abuse.add(start, limits.abuse_max, &limits), Ok(()));
        for second in 1..10_000 {
            for _ in 0..limits.abuse_leak_per_second {
                assert_eq!(
                    abuse.add(start + Duration::from_secs(second), limits.abuse_max, &limits),
                    Ok(()),
                    "as fast as it leaks"
                );
            }
        }
    }
}
