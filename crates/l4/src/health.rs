//! Health of one upstream: the evidence of its responses and of active checks, and its share.
//!
//! All loops share it without a lock. Times are milliseconds since the set of upstreams was made; each method takes the
//! present time.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// When an upstream whose responses fail is left out: outlier ejection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Ejection {
    /// Failures in a row after which an upstream is left out; 5. 0 turns ejection off. A failure is a connection that
    /// cannot be made or that breaks before the response is complete, a response that comes too late, and a 502, 503 or
    /// 504.
    pub failures: u32,
    /// How long it is left out the first time; each further time without a success in between adds as much. 10 seconds.
    pub time: Duration,
    /// The longest time. 5 minutes.
    pub time_max: Duration,
    /// The share of the upstreams that may be left out at once, in percent; 50. Beyond it further ones stay in use: if all
    /// fail, the cause is elsewhere. An HTTP upstream that cannot be connected to is left out beyond it, as long as
    /// another one is not.
    pub percent_max: u32,
    /// Over how long an upstream that comes back gets a growing share, from a tenth to all of it. 10 seconds.
    pub slow_start: Duration,
}

impl Ejection {
    /// The default for servers below HTTP. Of servers of datagrams half may be left out: the reports of the network that
    /// eject them can be forged. Of others all but one may: each failure is a connection that cannot be made.
    #[must_use]
    pub fn default_for(is_udp: bool) -> Self {
        let default = Self::default();
        Self { percent_max: if is_udp { default.percent_max } else { 100 }, ..default }
    }
}

impl Default for Ejection {
    fn default() -> Self {
        Self {
            failures: 5,
            time: Duration::from_secs(10),
            time_max: Duration::from_secs(300),
            percent_max: 50,
            slow_start: Duration::from_secs(10),
        }
    }
}

/// Milliseconds since the set of upstreams was made.
pub type Millis = u64;

/// The health of one upstream.
#[derive(Debug, Default)]
pub struct Health {
    /// Failures since the last success.
    failures: AtomicU32,
    /// Ejections since the last success.
    ejections: AtomicU32,
    ejected_until: AtomicU64,
    /// Active checks have found it down.
    is_down: AtomicBool,
    /// When it came back, plus one; zero if it was never away.
    came_back: AtomicU64,
}

impl Health {
    /// Whether it takes requests.
    #[must_use]
    pub fn is_available(&self, now: Millis) -> bool {
        !self.is_down.load(Relaxed) && self.ejected_until.load(Relaxed) <= now
    }

    /// Whether active checks have not found it down: it may get requests if nothing else is left.
    #[must_use]
    pub fn is_last_resort(&self) -> bool {
        !self.is_down.load(Relaxed)
    }

    /// A response was complete, or as good as that.
    pub fn on_success(&self) {
        if self.failures.load(Relaxed) != 0 {
            self.failures.store(0, Relaxed);
        }
        if self.ejections.load(Relaxed) != 0 {
            self.ejections.store(0, Relaxed);
        }
    }

    /// A request has failed. `may_eject` is asked once that many have failed in a row; returns for how long the upstream
    /// is left out, if it is from now on.
    pub fn on_failure(&self, rules: &Ejection, now: Millis, may_eject: impl FnOnce() -> bool) -> Option<Millis> {
        let failures = self.failures.fetch_add(1, Relaxed).saturating_add(1);
        if rules.failures == 0 || failures < rules.failures || !self.is_available(now) || !may_eject() {
            return None;
        }
        self.failures.store(0, Relaxed);
        let ejections = self.ejections.fetch_add(1, Relaxed).saturating_add(1);
        let time = millis(rules.time.saturating_mul(ejections).min(rules.time_max));
        let until = now.saturating_add(time);
        self.ejected_until.store(until, Relaxed);
        self.came_back.store(until.saturating_add(1), Relaxed);
        Some(time)
    }

    /// The result of an active check; returns whether it is a change.
    pub fn set_down(&self, is_down: bool, now: Millis) -> bool {
        let was_down = self.is_down.swap(is_down, Relaxed);
        if was_down && !is_down {
            self.failures.store(0, Relaxed);
            self.ejected_until.store(0, Relaxed);
            self.came_back.store(now.saturating_add(1), Relaxed);
        }
        was_down != is_down
    }

    /// Its share of its weight, in percent.
    #[must_use]
    pub fn share(&self, slow_start: Duration, now: Millis) -> u32 {
        let (came_back, slow_start) = (self.came_back.load(Relaxed), millis(slow_start));
        let since = now.saturating_sub(came_back.saturating_sub(1));
        if came_back == 0 || since >= slow_start {
            return 100;
        }
        // Less than 100, since `since` is less than `slow_start`.
        (since.saturating_mul(100) / slow_start).max(10) as u32
    }
}

/// A time in milliseconds.
#[must_use]
pub fn millis(duration: Duration) -> Millis {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const RULES: Ejection = Ejection {
        failures: 3,
        time: Duration::from_secs(10),
        time_max: Duration::from_secs(25),
        percent_max: 50,
        slow_start: Duration::from_secs(10),
    };

    #[test]
    fn failures_in_a_row_eject_and_a_success_begins_the_row_anew() {
        let health = Health::default();
        for _ in 0..2 {
            assert_eq!(health.on_failure(&RULES, 0, || true), None);
        }
        health.on_success();
        for _ in 0..2 {
            assert_eq!(health.on_failure(&RULES, 0, || true), None);
        }
        assert_eq!(health.on_failure(&RULES, 0, || true), Some(10_000));
        assert!(!health.is_available(9_999) && health.is_available(10_000));
    }

    #[test]
    fn each_further_ejection_is_longer_up_to_a_bound() {
        let (health, mut now) = (Health::default(), 0);
        for expected in [10_000, 20_000, 25_000, 25_000] {
            for _ in 0..2 {
                assert_eq!(health.on_failure(&RULES, now, || true), None);
            }
            assert_eq!(health.on_failure(&RULES, now, || true), Some(expected));
            now += expected;
        }
        health.on_success();
        let again = (0..3).filter_map(|_| health.on_failure(&RULES, now, || true)).collect::<Vec<_>>();
        assert_eq!(again, [10_000]);
    }

    #[test]
    fn an_upstream_that_must_stay_is_not_ejected() {
        let health = Health::default();
        assert!((0..10).all(|_| health.on_failure(&RULES, 0, || false).is_none()));
        assert!(health.is_available(0));
        let off = Ejection { failures: 0, ..RULES };
        assert!((0..10).all(|_| health.on_failure(&off, 0, || true).is_none()));
    }

    #[test]
    fn an_upstream_that_comes_back_gets_a_growing_share() {
        let health = Health::default();
        assert_eq!(health.share(RULES.slow_start, 0), 100);
        for _ in 0..3 {
            health.on_failure(&RULES, 0, || true);
        }
        assert_eq!([10_000, 11_000, 15_000, 20_000].map(|now| health.share(RULES.slow_start, now)), [10, 10, 50, 100]);
        assert!(health.set_down(true, 30_000) && !health.set_down(true, 30_000));
        assert!(!health.is_available(40_000));
        assert!(health.set_down(false, 50_000) && health.is_available(50_000));
        assert_eq!([50_000, 55_000, 60_000].map(|now| health.share(RULES.slow_start, now)), [10, 50, 100]);
    }
}
