//! `MessageRate`: how many messages a peer may send.

use std::time::{Duration, Instant};

/// How many messages a peer may send, for an application to ask before it works on one: the generic cell rate
/// algorithm, in 16 bytes a connection. The application decides the consequence of a message too many: it drops the
/// message, reports it, or closes with [`CloseCode::POLICY_VIOLATION`](crate::CloseCode::POLICY_VIOLATION).
///
/// A rate in bytes is the engine's `Shaping`.
///
/// ```
/// use std::time::{Duration, Instant};
/// use tidegate::websocket::MessageRate;
///
/// const PER_SECOND: u32 = 10;
/// const BURST: u32 = 20;
///
/// let (mut rate, now) = (MessageRate::default(), Instant::now());
/// let taken = (0..30).filter(|_| rate.take(now, PER_SECOND, BURST)).count();
/// assert_eq!(taken, 20);
/// assert!(rate.take(now + Duration::from_millis(100), PER_SECOND, BURST));
/// ```
#[derive(Debug, Clone, Copy, Default)]
pub struct MessageRate {
    /// When the next message would come at the sustained rate.
    arrival: Option<Instant>,
}

impl MessageRate {
    /// Counts a message, and returns whether the peer may send it: `burst` at once, and `per_second` sustained. A rate
    /// or a burst of 0 is one of 1.
    #[must_use]
    pub fn take(&mut self, now: Instant, per_second: u32, burst: u32) -> bool {
        let interval = Duration::from_secs(1) / per_second.max(1);
        let arrival = self.arrival.map_or(now, |arrival| arrival.max(now));
        let Some(next) = arrival.checked_add(interval) else { return false };
        if next.saturating_duration_since(now) > interval.saturating_mul(burst.max(1)) {
            return false;
        }
        self.arrival = Some(next);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_may_send_a_burst_and_then_the_sustained_rate() {
        let (mut rate, begun) = (MessageRate::default(), Instant::now());
        let mut taken = 0;
        for millisecond in 0..10_000 {
            taken += u32::from(rate.take(begun + Duration::from_millis(millisecond), 10, 20));
        }
        assert!((118..=120).contains(&taken), "{taken}");
        // After a pause the burst is there again, and no more than that.
        let later = begun + Duration::from_secs(1000);
        assert_eq!((0..100).filter(|_| rate.take(later, 10, 20)).count(), 20);
    }

    #[test]
    fn zero_is_one() {
        let (mut rate, now) = (MessageRate::default(), Instant::now());
        assert!(rate.take(now, 0, 0) && !rate.take(now, 0, 0));
        assert!(rate.take(now + Duration::from_secs(1), 0, 0));
    }
}
