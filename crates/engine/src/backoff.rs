//! `Backoff`: how long a client waits before it connects again.
//!
//! It has no state of a connection: the client counts its failures.

use std::hash::{BuildHasher as _, RandomState};
use std::time::Duration;

/// Delays before attempts to connect again: they double with each failure in a row, up to the longest, and a client
/// waits for a random part of each. So the clients of a server that restarts do not all come back in the same moment.
///
/// ```
/// use std::time::Duration;
/// use tidegate::engine::Backoff;
///
/// let backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(10));
/// let delays: Vec<_> = (0..5).map(|failures| backoff.delay(failures).as_secs()).collect();
/// assert_eq!(delays, [1, 2, 4, 8, 10]);
/// assert!(backoff.random_part(backoff.delay(2), 7) <= Duration::from_secs(4));
/// ```
#[derive(Debug, Clone)]
pub struct Backoff {
    min: Duration,
    max: Duration,
    random: RandomState,
}

impl Backoff {
    /// Delays from `min` to `max`.
    #[must_use]
    pub fn new(min: Duration, max: Duration) -> Self {
        Self { min, max, random: RandomState::new() }
    }

    /// The whole delay after so many failures in a row; the first delay is that after none.
    #[must_use]
    pub fn delay(&self, failures: u32) -> Duration {
        let factor = 1_u32.checked_shl(failures).unwrap_or(u32::MAX).max(1);
        self.min.saturating_mul(factor).min(self.max)
    }

    /// A random part of a delay: another one for each number of an attempt, and for each `Backoff`.
    #[must_use]
    pub fn random_part(&self, delay: Duration, attempt: u64) -> Duration {
        // The upper half of a keyed hash: evenly distributed, and unlike that of any other client.
        let random = (self.random.hash_one(attempt) >> 32) as u32;
        delay.mul_f64(f64::from(random) / f64::from(u32::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_double_up_to_the_longest() {
        let backoff = Backoff::new(Duration::from_secs(5), Duration::from_secs(60));
        let delays: Vec<_> = (0..6).map(|failures| backoff.delay(failures).as_secs()).collect();
        assert_eq!(delays, [5, 10, 20, 40, 60, 60]);
        assert_eq!(backoff.delay(u32::MAX), Duration::from_secs(60));
        assert_eq!(Backoff::new(Duration::MAX, Duration::MAX).delay(40), Duration::MAX);
    }

    #[test]
    fn a_client_waits_for_another_part_of_the_delay_each_time() {
        let delay = Duration::from_secs(60);
        let (one, other) = (Backoff::new(delay, delay), Backoff::new(delay, delay));
        let parts: Vec<_> = (0..1000).map(|attempt| one.random_part(delay, attempt)).collect();
        assert!(parts.iter().all(|part| *part <= delay));
        let mean = parts.iter().sum::<Duration>() / 1000;
        assert!(mean > Duration::from_secs(25) && mean < Duration::from_secs(35), "{mean:?}");
        assert_ne!(parts[..4], (0..4).map(|attempt| other.random_part(delay, attempt)).collect::<Vec<_>>()[..]);
    }
}
