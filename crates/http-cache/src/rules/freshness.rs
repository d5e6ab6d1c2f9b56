//! `Freshness`: how long a stored response may be used (RFC 9111 §4.2), and how long beyond that.

use super::control::Directives;
use super::facts::ResponseFacts;
use super::{Millis, date};

/// The freshness of a stored response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Freshness {
    /// When the response had arrived.
    pub(crate) received: Millis,
    /// Its age then, in milliseconds (RFC 9111 §4.2.3).
    pub(crate) initial_age: u64,
    /// In milliseconds.
    pub(crate) lifetime: u64,
    /// How long a stale response may be sent while it is revalidated, in milliseconds.
    pub(crate) while_revalidate: u64,
    /// How long a stale response may be sent in the place of an error, in milliseconds.
    pub(crate) if_error: u64,
    /// Each use needs a validation: `no-cache`.
    pub(crate) needs_validation: bool,
    /// A stale response is never sent.
    pub(crate) forbids_stale: bool,
}

/// When the request was sent, and when the head of its response had arrived.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ExchangeTimes {
    pub(crate) sent: Millis,
    pub(crate) received: Millis,
}

/// The choices of the operator.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct FreshnessPolicy {
    /// The longest heuristic lifetime, in milliseconds; 0 for none.
    pub(crate) heuristic_max: u64,
    /// The least `stale-if-error`, in milliseconds.
    pub(crate) if_error: u64,
}

/// The verdict on a stored response for one request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Use {
    Fresh,
    /// The client accepts a stale response.
    Stale,
    /// It is sent, and revalidated in the background.
    WhileRevalidate,
    /// It has to be validated: the client asks for that (`true`), or it is stale.
    Validate {
        is_asked: bool,
    },
}

impl Freshness {
    /// Of a response with this status; `None` for a lifetime that nothing tells.
    pub(crate) fn of(
        status: u16,
        facts: &ResponseFacts<'_>,
        times: ExchangeTimes,
        policy: FreshnessPolicy,
    ) -> Option<Self> {
        let control = &facts.control;
        let date = facts.date.unwrap_or(times.received);
        let lifetime = match (control.s_maxage.or(control.max_age), facts.expires) {
            (Some(seconds), _) => seconds * 1000,
            (None, Some(expires)) => expires.map_or(0, |expires| expires.saturating_sub(date)),
            (None, None) => heuristic(status, facts, date, policy)?,
        };
        let apparent_age = times.received.saturating_sub(date);
        let delay = times.received.saturating_sub(times.sent);
        let millis = |seconds: Option<u64>| seconds.unwrap_or(0) * 1000;
        let says_stale = control.stale_while_revalidate.is_some() || control.stale_if_error.is_some();
        Some(Self {
            received: times.received,
            initial_age: apparent_age.max(facts.age.saturating_mul(1000).saturating_add(delay)),
            lifetime,
            while_revalidate: millis(control.stale_while_revalidate),
            if_error: millis(control.stale_if_error).max(policy.if_error),
            needs_validation: control.no_cache,
            // `s-maxage` has the meaning of `proxy-revalidate` (RFC 9111 §5.2.2.10), unless RFC 5861 is used with it.
            forbids_stale: control.must_revalidate
                || control.proxy_revalidate
                || (control.s_maxage.is_some() && !says_stale),
        })
    }

    /// The same of a response that was stored by an earlier process. If that had a clock ahead of this one, the age is not
    /// known: each use needs a validation.
    pub(crate) fn of_earlier_process(self, now: Millis) -> Self {
        Self { needs_validation: self.needs_validation || self.received > now, ..self }
    }

    /// In milliseconds (RFC 9111 §4.2.3).
    pub(crate) fn age(&self, now: Millis) -> u64 {
        self.initial_age.saturating_add(now.saturating_sub(self.received))
    }

    /// Whether it may be sent to any request that asks for nothing else.
    #[inline]
    pub(crate) fn is_fresh(&self, now: Millis) -> bool {
        !self.needs_validation && self.lifetime > self.age(now)
    }

    /// The lifetime that is left, in seconds; negative if the response is stale.
    pub(crate) fn ttl(&self, now: Millis) -> i64 {
        let (lifetime, age) = (self.lifetime, self.age(now));
        let seconds = |millis: u64| i64::try_from(millis / 1000).unwrap_or(i64::MAX);
        if age <= lifetime { seconds(lifetime - age) } else { -seconds((age - lifetime).saturating_add(999)) }
    }

    /// Whether a response may be sent as it is to a request with these directives (RFC 9111 §4, §5.2.1).
    pub(crate) fn usable(&self, request: &Directives, now: Millis) -> Use {
        let age = self.age(now);
        if request.no_cache {
            return Use::Validate { is_asked: true };
        }
        if self.needs_validation {
            return Use::Validate { is_asked: false };
        }
        if request.max_age.is_some_and(|max| age > max * 1000) && request.max_stale.is_none() {
            return Use::Validate { is_asked: true };
        }
        let least = request.min_fresh.unwrap_or(0) * 1000;
        if self.lifetime > age && self.lifetime - age >= least {
            return Use::Fresh;
        }
        if self.lifetime > age {
            return Use::Validate { is_asked: true };
        }
        let staleness = age - self.lifetime;
        if self.forbids_stale {
            return Use::Validate { is_asked: false };
        }
        if request.max_stale.is_some_and(|max| staleness <= max.saturating_mul(1000)) {
            return Use::Stale;
        }
        if staleness < self.while_revalidate && request.min_fresh.is_none() && request.max_age.is_none() {
            return Use::WhileRevalidate;
        }
        Use::Validate { is_asked: false }
    }

    /// Whether a response may be sent in the place of an error (RFC 5861 §4).
    pub(crate) fn may_replace_error(&self, now: Millis) -> bool {
        let staleness = self.age(now).saturating_sub(self.lifetime);
        !self.forbids_stale && !self.needs_validation && staleness < self.if_error
    }

    /// Whether it can be of use without a validator.
    pub(crate) fn is_of_use(&self, now: Millis) -> bool {
        let longest = self.lifetime.saturating_add(self.while_revalidate.max(self.if_error));
        !self.needs_validation && longest > self.age(now)
    }
}

/// A tenth of the time since the last modification (RFC 9111 §4.2.2).
fn heuristic(status: u16, facts: &ResponseFacts<'_>, date_of_response: Millis, policy: FreshnessPolicy) -> Option<u64> {
    if !(is_heuristically_cacheable(status) || facts.control.public) {
        return None;
    }
    let modified = facts.last_modified.and_then(date);
    match modified {
        Some(modified) => Some((date_of_response.saturating_sub(modified) / 10).min(policy.heuristic_max)),
        // It can be validated by its entity tag.
        None if facts.etag.is_some() => Some(0),
        None => None,
    }
}

/// RFC 9110 §15.1.
fn is_heuristically_cacheable(status: u16) -> bool {
    matches!(status, 200 | 203 | 204 | 300 | 301 | 308 | 404 | 405 | 410 | 414 | 501)
}
