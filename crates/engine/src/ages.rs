//! `Ages`: when the connections of a loop were opened, without memory in any of them.
//!
//! The generation of a slot grows with every connection, so one mark a second, a generation with its time, says when
//! every connection was opened that came before the next mark. Marks thin out as they get older: an age is known to a
//! second, or to an eighth of itself.

use std::time::{Duration, Instant};

/// Marks of generations.
pub(crate) struct Ages {
    start: Instant,
    marks: Vec<Mark>,
}

#[derive(Clone, Copy)]
struct Mark {
    generation: u32,
    /// Since the start of the loop.
    seconds: u32,
}

impl Ages {
    pub(crate) fn new(start: Instant) -> Self {
        Self { start, marks: Vec::with_capacity(MARKS_MAX) }
    }

    /// A slot was reserved with this generation.
    #[inline]
    pub(crate) fn note(&mut self, generation: u32, now: Instant) {
        let seconds = self.seconds(now);
        if self.marks.last().is_none_or(|last| last.seconds < seconds || last.generation > generation) {
            self.add(Mark { generation, seconds });
        }
    }

    #[cold]
    fn add(&mut self, mark: Mark) {
        if self.marks.last().is_some_and(|last| last.generation > mark.generation) {
            // Generations have begun anew. Those that are left seem to be as old as the oldest mark.
            self.marks.clear();
        }
        if self.marks.len() == MARKS_MAX {
            self.thin(mark.seconds);
        }
        self.marks.push(mark);
    }

    /// Drops marks whose neighbours are no further apart than an eighth of the age of the older one.
    fn thin(&mut self, now: u32) {
        let mut newer = now;
        let mut kept = Vec::with_capacity(MARKS_MAX);
        for (at, mark) in self.marks.iter().enumerate().rev() {
            let older = at.checked_sub(1).map(|before| self.marks[before].seconds);
            let is_needed = |older: u32| newer.saturating_sub(older) > (now.saturating_sub(older) / 8).max(1);
            if older.is_none_or(is_needed) {
                kept.push(*mark);
                newer = mark.seconds;
            }
        }
        kept.truncate(MARKS_MAX / 4 * 3);
        kept.reverse();
        self.marks = kept;
    }

    /// How long ago the connection of this generation was opened.
    pub(crate) fn age(&self, generation: u32, now: Instant) -> Duration {
        let after = self.marks.partition_point(|mark| mark.generation <= generation);
        let opened = self.marks.get(after.saturating_sub(1)).map_or(0, |mark| mark.seconds);
        Duration::from_secs(u64::from(self.seconds(now).saturating_sub(opened)))
    }

    fn seconds(&self, now: Instant) -> u32 {
        u32::try_from(now.saturating_duration_since(self.start).as_secs()).unwrap_or(u32::MAX)
    }
}

/// Marks of a loop: 2 KiB.
const MARKS_MAX: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_age_is_known_to_a_second_or_an_eighth() {
        let start = Instant::now();
        let mut ages = Ages::new(start);
        // Ten connections a second for a week.
        let week = 7 * 86_400;
        for second in 0..week {
            for each in 0..10 {
                ages.note(second * 10 + each + 1, start + Duration::from_secs(second.into()));
            }
        }
        let now = start + Duration::from_secs(week.into());
        assert!(ages.marks.len() <= MARKS_MAX);
        for age in [1, 2, 5, 30, 100, 1000, 40_000, 500_000] {
            let known = ages.age((week - age) * 10 + 5, now).as_secs();
            let error = known.abs_diff(age.into());
            assert!(error <= 1 + u64::from(age) / 6, "{age} seconds: {known}");
        }
    }

    #[test]
    fn generations_that_begin_anew_are_young() {
        let start = Instant::now();
        let mut ages = Ages::new(start);
        let at = |seconds| start + Duration::from_secs(seconds);
        ages.note(u32::MAX, at(0));
        ages.note(1, at(10));
        assert_eq!(ages.age(1, at(12)), Duration::from_secs(2));
        assert_eq!(ages.age(u32::MAX, at(12)), Duration::from_secs(2), "at least");
    }
}
