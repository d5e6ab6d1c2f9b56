//! `RefusedNames`: names that the server refuses to a subscriber on this connection, since the user may not have them.

use std::collections::BTreeSet;
use std::ops::Bound;
use std::time::Instant;

use tidegate_engine::Backoff;

use crate::client::subscriber_queue::{SubscriptionKind, SubscriptionName};

/// The names that the server has refused, and the time at which some of them are asked for again.
#[derive(Debug, Default)]
pub(crate) struct RefusedNames {
    names: BTreeSet<SubscriptionName>,
    /// The last name of the last attempt.
    last: Option<SubscriptionName>,
    retry_at: Option<Instant>,
    /// Attempts since the server has last taken a name.
    failures: u32,
}

impl RefusedNames {
    /// Adds a name. Returns whether it was not there.
    pub(crate) fn add(&mut self, name: SubscriptionName, now: Instant, backoff: &Backoff) -> bool {
        if self.retry_at.is_none() {
            let delay = backoff.delay(self.failures) / 2;
            let pause = delay + backoff.random_part(delay, self.failures.into());
            self.retry_at = now.checked_add(pause);
            self.failures = self.failures.saturating_add(1);
        }
        self.names.insert(name)
    }

    /// Removes a name: it is not wanted any more, or the server takes it. Returns whether it was there.
    pub(crate) fn remove(&mut self, kind: SubscriptionKind, name: &[u8]) -> bool {
        if self.names.is_empty() {
            return false;
        }
        let is_removed = self.names.remove(&SubscriptionName { kind, name: name.to_vec().into() });
        if self.names.is_empty() {
            self.retry_at = None;
        }
        is_removed
    }

    /// The server has taken a name: it may take others soon.
    pub(crate) fn reset_pause(&mut self) {
        self.failures = 0;
    }

    pub(crate) const fn retry_at(&self) -> Option<Instant> {
        self.retry_at
    }

    /// The names to ask for again, if it is time: those behind the names of the last attempt, at most one batch.
    pub(crate) fn take_due(&mut self, now: Instant) -> Vec<SubscriptionName> {
        if self.retry_at.is_none_or(|at| at > now) {
            return Vec::new();
        }
        self.retry_at = None;
        let behind = self.last.clone().map_or(Bound::Unbounded, Bound::Excluded);
        let mut names: Vec<_> = self.names.range((behind, Bound::Unbounded)).take(RETRIED_NAMES).cloned().collect();
        names.extend(self.names.iter().take(RETRIED_NAMES.min(self.names.len()) - names.len()).cloned());
        self.last = names.last().cloned();
        names.sort_unstable();
        names
    }
}

/// Names of an attempt.
const RETRIED_NAMES: usize = 256;

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn name(number: usize) -> SubscriptionName {
        SubscriptionName { kind: SubscriptionKind::Channel, name: format!("{number:04}").into() }
    }

    #[test]
    fn attempts_take_turns_among_many_names_and_pauses_grow_until_one_is_taken() {
        let backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(30));
        let (mut refused, mut now) = (RefusedNames::default(), Instant::now());
        (0..600).for_each(|number| assert!(refused.add(name(number), now, &backoff)));
        let mut seen = BTreeSet::new();
        for (attempt, seconds) in [1, 2, 4, 8, 16, 30, 30].into_iter().enumerate() {
            let (at, pause) = (refused.retry_at().expect("an attempt follows"), Duration::from_secs(seconds));
            assert!(at - now >= pause / 2 && at - now <= pause, "{attempt}: {:?}", at - now);
            assert_eq!(refused.take_due(now), [], "{attempt}");
            now = at;
            let due = refused.take_due(now);
            assert_eq!(due.len(), RETRIED_NAMES);
            for name in due {
                assert!(!refused.add(name.clone(), now, &backoff));
                seen.insert(name);
            }
        }
        assert_eq!(seen.len(), 600);
        assert!(
            refused.remove(SubscriptionKind::Channel, b"0007") && !refused.remove(SubscriptionKind::Pattern, b"0008")
        );
        refused.reset_pause();
        now += Duration::from_secs(30);
        let due = refused.take_due(now);
        assert!(due.len() == RETRIED_NAMES && !due.contains(&name(7)));
        refused.add(due[0].clone(), now, &backoff);
        assert!(refused.retry_at().is_some_and(|at| at <= now + Duration::from_secs(1)));
        for number in 0..600 {
            refused.remove(SubscriptionKind::Channel, &name(number).name);
        }
        assert_eq!((refused.retry_at(), refused.take_due(now + Duration::from_secs(30))), (None, Vec::new()));
    }
}
