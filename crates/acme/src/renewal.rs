//! When a certificate is renewed, and how long a failure waits. Time is an argument here.

use std::hash::{BuildHasher, RandomState};
use std::time::{Duration, SystemTime};

/// The dates of a certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Lifetime {
    pub(crate) not_before: SystemTime,
    pub(crate) not_after: SystemTime,
}

/// The time of the next renewal of one certificate. The random part is chosen once, so that the time does not move with
/// each look at it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RenewalPlan {
    lifetime: Lifetime,
    /// From 0 to 1.
    fraction: f64,
    /// The window that the authority suggests (RFC 9773).
    window: Option<(SystemTime, SystemTime)>,
}

impl RenewalPlan {
    pub(crate) fn new(lifetime: Lifetime, fraction: f64) -> Self {
        Self { lifetime, fraction: fraction.clamp(0.0, 1.0), window: None }
    }

    pub(crate) fn set_window(&mut self, start: SystemTime, end: SystemTime) {
        self.window = (start <= end).then_some((start, end));
    }

    /// When a third of the lifetime is left, and up to a thirtieth of it earlier. A window of the authority counts
    /// instead, but not past the last sixth of the lifetime.
    pub(crate) fn time(&self) -> SystemTime {
        let Lifetime { not_before, not_after } = self.lifetime;
        let whole = not_after.duration_since(not_before).unwrap_or_default();
        let before_end = |time: Duration| not_after.checked_sub(time).unwrap_or(not_before);
        match self.window {
            None => before_end(whole / 3 + (whole / 30).mul_f64(self.fraction)),
            Some((start, end)) => {
                let length = end.duration_since(start).unwrap_or_default();
                let chosen = start.checked_add(length.mul_f64(self.fraction)).unwrap_or(start);
                chosen.min(before_end(whole / 6))
            }
        }
    }
}

/// The wait after so many failures in a row: three times as long each time, and up to a tenth longer by chance.
pub(crate) fn retry_delay(failures: u32, [min, max]: [Duration; 2], fraction: f64) -> Duration {
    let factor = 3_u32.saturating_pow(failures.saturating_sub(1).min(20));
    let delay = min.saturating_mul(factor).min(max);
    delay.saturating_add((delay / 10).mul_f64(fraction.clamp(0.0, 1.0)))
}

/// A random number from 0 to 1.
pub(crate) fn random_fraction() -> f64 {
    // The keys of a `RandomState` are random.
    let random = (RandomState::new().hash_one(0) >> 32) as u32;
    f64::from(random) / f64::from(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: Duration = Duration::from_secs(24 * 60 * 60);

    fn day(number: u32) -> SystemTime {
        SystemTime::UNIX_EPOCH + 20_000 * DAY + number * DAY
    }

    fn plan(fraction: f64) -> RenewalPlan {
        RenewalPlan::new(Lifetime { not_before: day(0), not_after: day(90) }, fraction)
    }

    #[test]
    fn a_third_of_the_lifetime_is_left_and_chance_makes_it_earlier() {
        assert_eq!(plan(0.0).time(), day(60));
        assert_eq!(plan(1.0).time(), day(57));
        assert!(plan(0.5).time() < day(59) && plan(0.5).time() > day(58));
    }

    #[test]
    fn the_window_of_the_authority_counts_within_the_lifetime() {
        let mut plan = plan(0.5);
        plan.set_window(day(10), day(20));
        assert_eq!(plan.time(), day(15));
        // A window in the past is due now: a revoked certificate, for example.
        plan.set_window(SystemTime::UNIX_EPOCH, SystemTime::UNIX_EPOCH + DAY);
        assert!(plan.time() < day(0));
        // A window behind the end would let the certificate expire.
        plan.set_window(day(89), day(400));
        assert_eq!(plan.time(), day(75));
        // One that ends before it begins is none.
        plan.set_window(day(20), day(10));
        assert!(plan.time() > day(57));
    }

    #[test]
    fn dates_in_the_wrong_order_are_due_at_once() {
        let plan = RenewalPlan::new(Lifetime { not_before: day(9), not_after: day(3) }, 0.5);
        assert_eq!(plan.time(), day(3));
    }

    #[test]
    fn each_failure_waits_longer_up_to_the_most() {
        let minute = Duration::from_secs(60);
        let bounds = [5 * minute, 6 * 60 * minute];
        let minutes: Vec<_> = (1..7).map(|failures| retry_delay(failures, bounds, 0.0).as_secs() / 60).collect();
        assert_eq!(minutes, [5, 15, 45, 135, 360, 360]);
        assert_eq!(retry_delay(u32::MAX, bounds, 1.0), Duration::from_secs(6 * 3600 + 2160));
        assert_eq!(retry_delay(1, [Duration::MAX; 2], 1.0), Duration::MAX);
    }

    #[test]
    fn chance_differs_each_time() {
        let some: Vec<_> = (0..8).map(|_| random_fraction()).collect();
        assert!(some.iter().all(|fraction| (0.0..=1.0).contains(fraction)));
        assert!(some.windows(2).any(|pair| pair[0] != pair[1]));
    }
}
