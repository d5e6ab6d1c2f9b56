//! `Phase`: how long one part of a turn may take.
//!
//! A turn is bounded in time as well as in counts. Each part of it (light completions, heavy ones, timers, messages,
//! connections with work left) serves a few items whatever they take, and goes on while its time lasts; the next turn
//! continues. So a flood in one part neither starves the others nor delays a light connection for long. In a simulation
//! time stands still within a turn, and counts bound it, with the estimates of work that codecs make
//! ([`work`](tidegate_codec::work)). An item that does much such work ends its part at once, so the clock is not read for
//! it.

use std::time::{Duration, Instant};

use tidegate_codec::work::Work;
use tidegate_sys::Driver;

/// The time of one part of a turn. It begins when the clock is first read.
#[derive(Debug)]
pub(crate) struct Phase {
    time: Duration,
    /// The clock is read once for so many items.
    stride: u64,
    items: u64,
    /// Set when the clock is read first: a part that has little to do does not read it.
    until: Option<Instant>,
    over: bool,
    work: Work,
}

impl Phase {
    /// A part of so much time, whose items are short.
    pub(crate) fn of(time: Duration) -> Self {
        Self { time, stride: ITEMS_PER_CLOCK_READ, items: 0, until: None, over: false, work: Work::begin() }
    }

    /// A part whose items may take long.
    pub(crate) fn of_long_items(time: Duration) -> Self {
        Self { stride: 1, ..Self::of(time) }
    }

    /// A part whose items may take long, and whose time begins before the first of them.
    pub(crate) fn of_long_items_from_now(time: Duration, driver: &dyn Driver) -> Self {
        Self { until: Some(driver.now() + time), ..Self::of_long_items(time) }
    }

    /// Counts items that were served. Returns whether the time is over.
    #[inline]
    pub(crate) fn is_over_after(&mut self, items: u64, driver: &dyn Driver) -> bool {
        self.items += items;
        if self.work.nanos() > self.time.as_nanos() as u64 {
            self.over = true;
        } else if self.items >= self.stride {
            self.items = 0;
            let now = driver.now();
            self.over = now >= *self.until.get_or_insert(now + self.time);
        }
        self.over
    }

    /// Whether the time was over at the last check.
    pub(crate) const fn is_over(&self) -> bool {
        self.over
    }
}

/// An item is some microseconds, so the clock is read every fifty or so.
const ITEMS_PER_CLOCK_READ: u64 = 8;

#[cfg(test)]
mod tests {
    use tidegate_buffer::Pool;
    use tidegate_codec::work;
    use tidegate_sys::readiness::Readiness;

    use super::*;

    #[test]
    fn a_part_is_over_when_its_time_has_passed_and_never_before_its_first_items() {
        let driver = Readiness::new(&Pool::new()).unwrap();
        let mut long = Phase::of(Duration::from_secs(3600));
        assert!((0..1000).all(|_| !long.is_over_after(1, &driver)));
        let mut none = Phase::of(Duration::ZERO);
        let over = (1..100).find(|_| none.is_over_after(1, &driver));
        assert_eq!(over, Some(ITEMS_PER_CLOCK_READ));
        assert!(none.is_over());
        assert!(Phase::of_long_items(Duration::ZERO).is_over_after(1, &driver));
        assert!(Phase::of(Duration::ZERO).is_over_after(100, &driver), "an item that costs as much as many");
    }

    #[test]
    fn a_part_is_over_when_its_items_have_done_as_much_work_as_it_has_time() {
        let driver = Readiness::new(&Pool::new()).unwrap();
        let mut part = Phase::of(Duration::from_secs(3600));
        work::add(3_600_000_000_000);
        assert!(!part.is_over_after(1, &driver));
        work::add(1);
        assert!(part.is_over_after(1, &driver) && part.is_over());
        assert!(!Phase::of(Duration::from_secs(3600)).is_over_after(1, &driver), "the next part has its own");
    }
}
