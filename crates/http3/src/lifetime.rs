//! `Lifetime`: when a server ends one of its connections, because it has no request for too long, or because of its age.

use std::time::{Duration, Instant};

use tidegate_codec::{SessionNumber, scaled};

use crate::limits::Limits;

/// The times of a server's connection.
#[derive(Debug)]
pub(crate) struct Lifetime {
    /// Since when there is no request.
    pub(crate) idle_since: Instant,
    /// When it is too old.
    too_old_at: Option<Instant>,
    /// GOAWAY was sent.
    ending: Option<Ending>,
}

/// The end of a connection whose peer was sent GOAWAY.
#[derive(Debug, Clone, Copy)]
struct Ending {
    /// When the peer has GOAWAY: without a request the connection ends.
    at: Instant,
    /// When it ends in any case.
    by: Option<Instant>,
}

/// The next step of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LifetimeStep {
    /// Nothing until then.
    Wait(Option<Instant>),
    /// It sends GOAWAY.
    Announce,
    /// It ends.
    End,
}

impl Lifetime {
    /// That of a connection that is established now. Connections that begin together do not end together.
    pub(crate) fn new(number: SessionNumber, limits: &Limits, now: Instant) -> Self {
        let part = (number.0.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32) as u32;
        let factor = 0.9 + 0.2 * f64::from(part) / f64::from(u32::MAX);
        let too_old_at = limits.age_max.and_then(|age| now.checked_add(scaled(age, factor)));
        Self { idle_since: now, too_old_at, ending: None }
    }

    /// When it is looked at first.
    pub(crate) fn first(&self, limits: &Limits) -> Option<Instant> {
        [self.idle_since.checked_add(limits.idle_timeout), self.too_old_at].into_iter().flatten().min()
    }

    /// The next step of a connection with requests, or without.
    pub(crate) fn step(&self, has_requests: bool, limits: &Limits, now: Instant) -> LifetimeStep {
        if let Some(Ending { at, by }) = self.ending {
            let is_over = by.is_some_and(|by| by <= now) || !has_requests && at <= now;
            if is_over {
                return LifetimeStep::End;
            }
            let next = if has_requests { now + LOOK_INTERVAL } else { at };
            return LifetimeStep::Wait(Some(by.map_or(next, |by| next.min(by))));
        }
        let since = if has_requests { now } else { self.idle_since };
        let idle_at = since.checked_add(limits.idle_timeout);
        let next = [idle_at, self.too_old_at].into_iter().flatten().min();
        if next.is_some_and(|at| at <= now) { LifetimeStep::Announce } else { LifetimeStep::Wait(next) }
    }

    /// GOAWAY was sent, which the peer has in `grace`. Returns when the connection is looked at next.
    pub(crate) fn announce(&mut self, grace: Duration, limits: &Limits, now: Instant) -> Instant {
        let is_old = self.too_old_at.is_some_and(|at| at <= now);
        let by = now.checked_add(limits.age_grace).filter(|_| is_old);
        let at = now + grace;
        self.ending = Some(Ending { at, by });
        by.map_or(at, |by| at.min(by))
    }
}

/// How often a connection that ends is looked at while it has requests.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn limits() -> Limits {
        Limits { idle_timeout: 60 * SECOND, age_max: Some(100 * SECOND), age_grace: 5 * SECOND, ..Limits::default() }
    }

    #[test]
    fn an_old_connection_ends_behind_its_requests_or_after_the_grace() {
        let (limits, start) = (limits(), Instant::now());
        let mut lifetime = Lifetime::new(SessionNumber(7), &limits, start);
        let busy = |lifetime: &Lifetime, at| lifetime.step(true, &limits, start + at);
        assert!(matches!(busy(&lifetime, 80 * SECOND), LifetimeStep::Wait(Some(_))));
        assert_eq!(busy(&lifetime, 111 * SECOND), LifetimeStep::Announce);
        let now = start + 111 * SECOND;
        assert_eq!(lifetime.announce(SECOND / 10, &limits, now), now + SECOND / 10);
        assert_eq!(
            lifetime.step(true, &limits, now + SECOND / 10),
            LifetimeStep::Wait(Some(now + SECOND / 10 + SECOND))
        );
        assert_eq!(lifetime.step(false, &limits, now + SECOND), LifetimeStep::End);
        assert_eq!(lifetime.step(true, &limits, now + 4 * SECOND), LifetimeStep::Wait(Some(now + 5 * SECOND)));
        assert_eq!(lifetime.step(true, &limits, now + 5 * SECOND), LifetimeStep::End);
    }

    #[test]
    fn ages_differ_by_a_tenth() {
        let (limits, start) = (limits(), Instant::now());
        for number in 0..1000 {
            let lifetime = Lifetime::new(SessionNumber(number), &limits, start);
            let age = lifetime.too_old_at.unwrap() - start;
            assert!((90 * SECOND..=110 * SECOND).contains(&age), "{age:?}");
        }
    }

    #[test]
    fn an_idle_connection_ends_once_its_peer_has_goaway() {
        let limits = Limits { age_max: None, ..limits() };
        let start = Instant::now();
        let mut lifetime = Lifetime::new(SessionNumber(1), &limits, start);
        assert_eq!(lifetime.first(&limits), Some(start + 60 * SECOND));
        assert_eq!(lifetime.step(true, &limits, start + 60 * SECOND), LifetimeStep::Wait(Some(start + 120 * SECOND)));
        assert_eq!(lifetime.step(false, &limits, start + 60 * SECOND), LifetimeStep::Announce);
        let now = start + 60 * SECOND;
        assert_eq!(lifetime.announce(SECOND, &limits, now), now + SECOND);
        assert_eq!(lifetime.step(false, &limits, now + SECOND), LifetimeStep::End);
    }
}
