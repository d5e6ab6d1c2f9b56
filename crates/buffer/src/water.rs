//! Back-pressure as numbers: water marks, and writability as a level with reasons.

/// How much may wait in the outbound queue of one connection, in bytes.
///
/// Past `high` a connection is unwritable, below `low` it is writable again; both comparisons are strict, so that a
/// queue whose length equals a mark does not flap. A connection without pending bytes is writable, whatever the marks are. Up to `cap` sends are still accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WaterMarks {
    /// Unwritable above this.
    pub high: u64,
    /// Writable again below this.
    pub low: u64,
    /// Sends of the application are refused above this. A connection is unwritable then, even if `high` is more.
    pub cap: u64,
    /// A connection whose codec has this many bytes of its own replies unread by the peer is closed.
    pub replies_cap: u64,
}

impl WaterMarks {
    /// Marks at `high` and `low`, with both caps at four times `high`.
    ///
    /// # Panics
    /// If `low` is zero or above `high`.
    #[must_use]
    pub const fn new(high: u64, low: u64) -> Self {
        let marks = Self { high, low, cap: high.saturating_mul(4), replies_cap: high.saturating_mul(4) };
        assert!(marks.is_sound(), "the low water mark lies above zero and not above the high one");
        marks
    }

    /// Whether a connection that has become unwritable becomes writable again before all of its bytes have left. A server refuses
    /// other marks.
    #[must_use]
    pub const fn is_sound(&self) -> bool {
        0 < self.low && self.low <= self.high
    }
}

impl Default for WaterMarks {
    /// 64 and 32 KiB.
    fn default() -> Self {
        Self::new(64 * 1024, 32 * 1024)
    }
}

/// Whether a connection is writable, and why not: a level, stored as a set of reasons.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Writability {
    reasons: u8,
}

impl Writability {
    const MARK: u8 = 1;
    const SHAPING: u8 = 2;
    const USER: u8 = 4;

    /// Whether there is no reason against writing.
    #[must_use]
    pub const fn is_writable(self) -> bool {
        self.reasons == 0
    }

    /// Compares the pending bytes with the marks.
    pub const fn update(&mut self, pending: u64, marks: &WaterMarks) {
        if pending > marks.high {
            self.reasons |= Self::MARK;
        } else if pending < marks.low || pending == 0 {
            self.reasons &= !Self::MARK;
        }
    }

    /// Sets or clears the reason of a traffic shaper.
    pub const fn set_shaped(&mut self, shaped: bool) {
        self.set(Self::SHAPING, shaped);
    }

    /// Sets or clears the application's own reason.
    pub const fn set_blocked(&mut self, blocked: bool) {
        self.set(Self::USER, blocked);
    }

    const fn set(&mut self, reason: u8, on: bool) {
        if on {
            self.reasons |= reason;
        } else {
            self.reasons &= !reason;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_queue_that_sits_on_a_mark_does_not_flap() {
        let marks = WaterMarks::new(100, 50);
        let mut level = Writability::default();
        let mut seen = Vec::new();
        for pending in [100, 101, 100, 50, 51, 50, 49, 50, 100] {
            level.update(pending, &marks);
            seen.push(level.is_writable());
        }
        assert_eq!(seen, [true, false, false, false, false, false, true, true, true]);
    }

    #[test]
    fn an_empty_queue_is_writable_whatever_the_marks_are() {
        let marks = WaterMarks { high: 0, low: 0, cap: 0, replies_cap: 0 };
        let mut level = Writability::default();
        let writable = [0, 1, 1, 0].map(|pending| {
            level.update(pending, &marks);
            level.is_writable()
        });
        assert_eq!(writable, [true, false, false, true]);
    }

    #[test]
    fn reasons_are_counted_separately() {
        let mut level = Writability::default();
        level.set_shaped(true);
        level.set_blocked(true);
        level.set_shaped(false);
        assert!(!level.is_writable());
        level.set_blocked(false);
        assert!(level.is_writable());
    }
}
