//! `Backoff`: how long a client waits before it connects again; `ReconnectPauses`: the pauses of one client.

use std::hash::{BuildHasher as _, RandomState};
use std::time::Duration;

use tidegate_codec::scaled;

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
    seed: u64,
}

impl Backoff {
    /// Delays from `min` to `max`.
    #[must_use]
    pub fn new(min: Duration, max: Duration) -> Self {
        Self { min, max, seed: RandomState::new().hash_one(0) }
    }

    /// The same delays with other random parts, which follow from `seed`: for tests that repeat. Clients of one server have
    /// different seeds.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tidegate::engine::Backoff;
    ///
    /// let delay = Duration::from_secs(10);
    /// let [one, same] = [7, 7].map(|seed| Backoff::new(delay, delay).with_seed(seed));
    /// assert_eq!(one.random_part(delay, 1), same.random_part(delay, 1));
    /// ```
    #[must_use]
    pub fn with_seed(self, seed: u64) -> Self {
        Self { seed, ..self }
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
        // The finalizer of splitmix64 spreads both numbers over all bits: evenly distributed, and unlike any other client's.
        let mut mixed = self.seed ^ attempt.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        let random = ((mixed ^ (mixed >> 31)) >> 32) as u32;
        scaled(delay, f64::from(random) / f64::from(u32::MAX))
    }
}

/// The pauses of one client between its connections. They grow with each failure, and begin anew after a connection that has
/// lasted for longer than the pause before it.
///
/// ```
/// use std::time::Duration;
/// use tidegate::engine::{Backoff, ReconnectPauses};
///
/// let backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(10));
/// let mut pauses = ReconnectPauses::default();
/// assert!(pauses.next(&backoff, 1, None) <= Duration::from_secs(1));
/// assert!(pauses.next(&backoff, 1, None) <= Duration::from_secs(2));
/// assert!(pauses.next(&backoff, 1, Some(Duration::from_secs(60))) <= Duration::from_secs(1));
/// ```
#[derive(Debug, Clone, Default)]
pub struct ReconnectPauses {
    /// Connections in a row that have failed, or have not lasted.
    failures: u32,
    attempt: u64,
}

impl ReconnectPauses {
    /// The pause after a connection that has `lasted` so long since the client began to connect; `None` if the client could not
    /// use it. A client that tries several `servers` in turn has long pauses only when all of them have failed. It is at least a
    /// millisecond: a server that closes at once would keep the loop busy.
    pub fn next(&mut self, backoff: &Backoff, servers: usize, lasted: Option<Duration>) -> Duration {
        let rounds = |failures: u32| failures / u32::try_from(servers.max(1)).unwrap_or(u32::MAX);
        let is_stable = lasted.is_some_and(|lasted| lasted > backoff.delay(rounds(self.failures)));
        self.failures = if is_stable { 0 } else { self.failures.saturating_add(1) };
        self.attempt += 1;
        let delay = backoff.delay(rounds(self.failures.saturating_sub(1)));
        backoff.random_part(delay, self.attempt).max(Self::MIN)
    }

    /// The shortest pause.
    pub const MIN: Duration = Duration::from_millis(1);
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
    #[test]
    fn pauses_grow_when_all_servers_have_failed_until_a_connection_lasts() {
        let second = Duration::from_secs(1);
        let backoff = Backoff::new(second, 60 * second);
        // The longest of many clients is close to the whole delay.
        let longest = |lasted: &[Option<Duration>], servers| {
            let pause = |seed| {
                let backoff = backoff.clone().with_seed(seed);
                let mut pauses = ReconnectPauses::default();
                lasted.iter().fold(Duration::ZERO, |_, lasted| pauses.next(&backoff, servers, *lasted))
            };
            (0..1_000).map(pause).max().unwrap().as_secs_f64().ceil()
        };
        assert_eq!(longest(&[None], 1), 1.0);
        assert_eq!(longest(&[None, None, None], 1), 4.0);
        assert_eq!(longest(&[None, None, None], 3), 1.0);
        assert_eq!(longest(&[None, None, None, None], 3), 2.0);
        assert_eq!(longest(&[None, None, Some(5 * second)], 1), 1.0);
        assert_eq!(longest(&[None, None, Some(second)], 1), 4.0);
        let at_once = Backoff::new(Duration::ZERO, Duration::ZERO);
        assert_eq!(ReconnectPauses::default().next(&at_once, 1, None), ReconnectPauses::MIN);
    }

    #[test]
    fn the_longest_delay_has_a_random_part() {
        let backoff = Backoff::new(Duration::MAX, Duration::MAX);
        assert!((0..1000).all(|attempt| backoff.random_part(backoff.delay(3), attempt) <= Duration::MAX));
    }
}
