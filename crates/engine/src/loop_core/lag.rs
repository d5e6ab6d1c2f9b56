//! `Lag`: how late the loop was a moment ago, which excuses peers whose bytes it could not read.

use std::time::{Duration, Instant};

use crate::limits::{LAG_MIN, UNREAD_GRACE};

/// The last delay of a loop, while peers are excused for it.
#[derive(Default)]
pub(crate) struct Lag {
    /// The loop was delayed for so long; until then a peer is excused whose bytes wait to be read.
    last: Option<(Duration, Instant)>,
}

impl Lag {
    /// Takes note of how much later than planned the loop came back.
    pub(crate) fn note(&mut self, lag: Duration, now: Instant) {
        if lag >= LAG_MIN {
            self.last = Some((lag, now + UNREAD_GRACE));
        } else if self.last.is_some_and(|(_, until)| until <= now) {
            self.last = None;
        }
    }

    /// Whether the loop was delayed a moment ago, so that a deadline may have come while it could not read.
    pub(crate) fn was_delayed(&self) -> bool {
        self.last.is_some()
    }

    /// Whether a peer that is late by so much, and whose bytes have come and were not read, is excused.
    pub(crate) fn allows_grace(&self, late: Duration) -> bool {
        late < UNREAD_GRACE + self.last.map_or(Duration::ZERO, |(lag, _)| lag)
    }
}
