//! `Nuisance`: a leaky bucket of what a peer sends that brings no request forward.

use std::time::{Duration, Instant};

use crate::error::Exceeded;
use crate::limits::Limits;

#[derive(Debug, Default)]
pub(crate) struct Nuisance {
    level: u32,
    /// Up to when the bucket has leaked; `None` while it is empty.
    leaked: Option<Instant>,
}

impl Nuisance {
    /// Adds one.
    #[inline]
    pub(crate) fn add(&mut self, now: Instant, limits: &Limits) -> Result<(), Exceeded> {
        let since = *self.leaked.get_or_insert(now);
        let seconds = now.saturating_duration_since(since).as_secs();
        if seconds > 0 {
            let leaked = u64::from(limits.nuisance_per_second).saturating_mul(seconds);
            self.level = self.level.saturating_sub(u32::try_from(leaked).unwrap_or(u32::MAX));
            self.leaked = Some(since + Duration::from_secs(seconds));
        }
        self.level += 1;
        if self.level > limits.nuisance_max { Err(Exceeded::Nuisance) } else { Ok(()) }
    }

    /// A request is complete.
    #[inline]
    pub(crate) fn make_good(&mut self, limits: &Limits) {
        self.level = self.level.saturating_sub(limits.nuisance_per_request);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_a_second_are_not_lost() {
        let (limits, start) = (Limits { nuisance_per_second: 10, ..Limits::default() }, Instant::now());
        let mut nuisance = Nuisance::default();
        for round in 0..1_000 {
            for _ in 0..19 {
                assert_eq!(nuisance.add(start + Duration::from_millis(1_900 * round), &limits), Ok(()), "{round}");
            }
        }
    }

    #[test]
    fn requests_and_time_make_nuisance_good() {
        let (limits, start) = (Limits::default(), Instant::now());
        let mut nuisance = Nuisance::default();
        for _ in 0..limits.nuisance_max {
            assert_eq!(nuisance.add(start, &limits), Ok(()));
        }
        assert_eq!(nuisance.add(start, &limits), Err(Exceeded::Nuisance));
        nuisance.make_good(&limits);
        assert_eq!(nuisance.add(start, &limits), Ok(()));
        for second in 1..10_000 {
            for _ in 0..limits.nuisance_per_second {
                assert_eq!(nuisance.add(start + Duration::from_secs(second), &limits), Ok(()), "as fast as it leaks");
            }
        }
    }
}
