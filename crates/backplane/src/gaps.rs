//! `ConnectionGaps`: which gaps of a subscriber are those of a new connection.
//!
//! A new connection is reported as `Gap` and `Up`, and each room makes up for it by itself when it is subscribed again. Any other
//! gap stands for messages that this node did not take in time: rooms that are subscribed already have to know.

/// The gaps of one subscriber.
#[derive(Debug, Default)]
pub(crate) struct ConnectionGaps {
    is_pending: bool,
    is_up: bool,
    was_up: bool,
}

impl ConnectionGaps {
    /// A gap. Returns whether one before it is an overflow.
    pub(crate) const fn gap(&mut self) -> bool {
        std::mem::replace(&mut self.is_pending, true)
    }

    /// `Up`. Returns whether the gap before it is an overflow: the first connection has none, and neither has one whose
    /// predecessor was not reported as lost.
    pub(crate) const fn up(&mut self) -> bool {
        let is_new_connection = self.was_up && !self.is_up;
        (self.is_up, self.was_up) = (true, true);
        std::mem::replace(&mut self.is_pending, false) && !is_new_connection
    }

    /// `Down`. Returns whether an overflow is before it.
    pub(crate) const fn down(&mut self) -> bool {
        self.is_up = false;
        self.other()
    }

    /// Another event, or none for now. Returns whether an overflow is before it.
    pub(crate) const fn other(&mut self) -> bool {
        std::mem::replace(&mut self.is_pending, false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The overflows among events: `g` is a gap, `u` is up, `d` is down, and `m` is a message.
    fn overflows(events: &str) -> usize {
        let mut gaps = ConnectionGaps::default();
        let overflow = |event| match event {
            'g' => gaps.gap(),
            'u' => gaps.up(),
            'd' => gaps.down(),
            _ => gaps.other(),
        };
        events.chars().map(overflow).filter(|is_overflow| *is_overflow).count()
    }

    #[test]
    fn only_the_gap_between_down_and_up_is_that_of_a_connection() {
        for (events, expected) in [
            ("umdgum", 0),
            ("umgm", 1),
            ("umgdgum", 1),
            // Messages of the new connection are lost before it is up.
            ("umdmggum", 1),
            ("mgum", 1),
            // The loss of the connection was itself lost.
            ("umgum", 1),
        ] {
            assert_eq!(overflows(events), expected, "{events}");
        }
    }
}
