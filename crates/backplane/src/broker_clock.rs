//! `BrokerClock`: when something happened that has a time of the broker's clock, in this node's time.
//!
//! The broker's clock may be set, and another server may take the broker's place; this node's monotonic clock never steps. So
//! each reply with the broker's time is a sample of the difference. As long as the difference stays the same, samples belong to
//! one *span*; a step begins the next one. A time of the broker's clock is looked for in each span: it happened there if the
//! span's difference puts it between the span's limits. The last sample before a step and the first one behind it are limits,
//! since the step happened at any point between them.
//!
//! If several spans are possible, the latest time counts. If none is, it happened before the first sample, or between two steps
//! without a sample between them: the last step counts, if there is one. So a kick is never taken for older than it is, except by
//! [`TOLERANCE`], and between two such steps by chance; one that is taken for younger costs a connection that came back.
//!
//! A reply may be late, since its request has waited for a connection: the broker has read its clock at any point between. A
//! late sample is inexact, and may hide a step: it says nothing about a span that is there, and an exact one begins the next.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// The differences between the broker's clock and this node's.
#[derive(Debug, Default)]
pub(crate) struct BrokerClock {
    /// Oldest first.
    spans: VecDeque<ClockSpan>,
}

/// A period without a step.
#[derive(Debug, Clone, Copy)]
struct ClockSpan {
    /// The broker's time at a moment of the span, and the limits of that moment in this node's time.
    time: Duration,
    earliest: Instant,
    latest: Instant,
    /// The limits of its first sample.
    first_received_at: Instant,
    /// When the request of its last sample was sent.
    last_sent_at: Instant,
}

impl ClockSpan {
    const fn new(time: Duration, sent_at: Instant, received_at: Instant) -> Self {
        let (earliest, latest) = (sent_at, received_at);
        Self { time, earliest, latest, first_received_at: received_at, last_sent_at: sent_at }
    }

    /// The limits of this node's time at the broker's `time`, if this node has such times.
    fn limits(&self, time: Duration) -> Option<(Instant, Instant)> {
        let moved = |at: Instant| match time.checked_sub(self.time) {
            Some(later) => at.checked_add(later),
            None => at.checked_sub(self.time - time),
        };
        Some((moved(self.earliest)?, moved(self.latest)?))
    }

    fn agrees(&self, time: Duration, sent_at: Instant, received_at: Instant) -> bool {
        let limits = self.limits(time);
        limits.is_some_and(|(earliest, latest)| earliest <= received_at + TOLERANCE && latest + TOLERANCE >= sent_at)
    }

    fn is_exact(&self) -> bool {
        !is_late(self.earliest, self.latest)
    }
}

fn is_late(sent_at: Instant, received_at: Instant) -> bool {
    received_at.saturating_duration_since(sent_at) > REPLY_DELAY_MAX
}

impl BrokerClock {
    /// The broker's clock showed `time` between these two of this node's times.
    pub(crate) fn sample(&mut self, time: Duration, sent_at: Instant, received_at: Instant) {
        if let Some(span) = self.spans.back_mut().filter(|span| span.agrees(time, sent_at, received_at)) {
            if is_late(sent_at, received_at) {
                return;
            }
            if span.is_exact() {
                (span.time, span.earliest, span.latest) = (time, sent_at, received_at);
                span.last_sent_at = span.last_sent_at.max(sent_at);
                return;
            }
        }
        if self.spans.len() >= SPANS_MAX {
            self.spans.pop_front();
        }
        self.spans.push_back(ClockSpan::new(time, sent_at, received_at));
    }

    /// When the first sample behind the last step came. A span that follows an inexact one need not be behind a step.
    fn last_step(&self) -> Option<Instant> {
        let steps = self.spans.iter().zip(self.spans.iter().skip(1));
        let is_step = |before: &ClockSpan, next: &ClockSpan| !before.agrees(next.time, next.earliest, next.latest);
        steps.rev().find(|(before, next)| is_step(before, next)).map(|(_, next)| next.first_received_at)
    }

    /// How long before `received_at` the broker's clock showed `time`, which a reply of that time reports. Nothing before the
    /// first sample.
    pub(crate) fn age(&self, time: Duration, received_at: Instant) -> Option<Duration> {
        let first = self.spans.front()?.first_received_at;
        let last_step = self.last_step();
        let mut found = None;
        for (place, span) in self.spans.iter().enumerate() {
            let end = self.spans.get(place + 1).map_or(received_at, |next| next.first_received_at);
            let limits = span.limits(time).filter(|(earliest, _)| *earliest <= end + TOLERANCE);
            let Some((_, latest)) = limits else { continue };
            let before = place.checked_sub(1).and_then(|before| self.spans.get(before));
            let begin = before.map(|before| before.last_sent_at).or(last_step.is_some().then_some(first));
            if begin.is_none_or(|begin| latest + TOLERANCE >= begin) {
                found = found.max(Some(latest.min(end)));
            }
        }
        Some(received_at.saturating_duration_since(found.or(last_step).unwrap_or(first)))
    }
}

/// A reply that takes longer than this is late.
const REPLY_DELAY_MAX: Duration = Duration::from_millis(100);
/// Steps that are shorter are none: clocks drift, and are slewed.
const TOLERANCE: Duration = Duration::from_millis(100);
/// Spans that are remembered; the steps before them are forgotten.
const SPANS_MAX: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;

    /// A node's time, and a broker's clock that is set. Milliseconds.
    struct Clocks {
        begin: Instant,
        now: u64,
        /// How far the broker's clock is ahead.
        ahead: i64,
        clock: BrokerClock,
    }

    impl Clocks {
        fn new() -> Self {
            Self {
                begin: Instant::now() + Duration::from_secs(3600),
                now: 0,
                ahead: 1 << 40,
                clock: BrokerClock::default(),
            }
        }

        fn broker_time(&self) -> Duration {
            Duration::from_millis(self.now.checked_add_signed(self.ahead).expect("a time"))
        }

        /// Time passes, and the broker's clock is set by so much.
        fn pass(&mut self, milliseconds: u64, step: i64) {
            self.now += milliseconds;
            self.ahead += step;
        }

        fn sample(&mut self) {
            let now = self.begin + Duration::from_millis(self.now);
            self.clock.sample(self.broker_time(), now, now + Duration::from_millis(1));
        }

        /// A sample whose clock is read `before` milliseconds after its request and `after` ones before its reply. Returns the time
        /// that was read.
        fn late_sample(&mut self, before: u64, after: u64) -> Duration {
            let sent_at = self.begin + Duration::from_millis(self.now);
            self.pass(before, 0);
            let read = self.broker_time();
            self.pass(after, 0);
            self.clock.sample(read, sent_at, self.begin + Duration::from_millis(self.now));
            read
        }

        fn age(&self, time: Duration) -> Option<u64> {
            let now = self.begin + Duration::from_millis(self.now);
            let age = self.clock.age(time, now);
            age.map(|age| age.as_millis() as u64)
        }
    }

    /// Within the tolerance and the duration of a sample.
    fn is_about(age: Option<u64>, expected: u64) -> bool {
        age.is_some_and(|age| age.abs_diff(expected) <= 101)
    }

    #[test]
    fn a_step_after_the_kick_and_before_the_reply_changes_no_age() {
        // Back, far back, ahead, and a day ahead.
        for step in [-3_000, -3_600_000, 3_000, 24 * 3_600_000] {
            let mut clocks = Clocks::new();
            assert_eq!(clocks.age(clocks.broker_time()), None);
            clocks.sample();
            clocks.pass(20_000, 0);
            let kicked_at = clocks.broker_time();
            clocks.pass(5_000, 0);
            clocks.sample();
            // The node loses its connection, the clock is set, and the first reply comes.
            clocks.pass(10_000, step);
            clocks.pass(5_000, 0);
            clocks.sample();
            assert!(is_about(clocks.age(kicked_at), 20_000), "{step}: {:?}", clocks.age(kicked_at));
            // A kick behind the step.
            clocks.pass(10_000, 0);
            let kicked_at = clocks.broker_time();
            clocks.pass(4_000, 0);
            clocks.sample();
            assert!(is_about(clocks.age(kicked_at), 4_000), "{step}: {:?}", clocks.age(kicked_at));
        }
    }

    #[test]
    fn a_kick_between_the_samples_of_a_step_is_never_taken_for_older_than_it_is() {
        for (step, before, after) in
            [(-2_000, 3_000, 3_000), (-7_000, 5_000, 1_000), (2_000, 100, 5_000), (9_000, 3_000, 20)]
        {
            let mut clocks = Clocks::new();
            clocks.sample();
            clocks.pass(1_000, 0);
            let kicked_at = clocks.broker_time();
            clocks.pass(before, step);
            clocks.pass(after, 0);
            clocks.sample();
            let age = clocks.age(kicked_at).expect("a sample");
            assert!(age <= before + after + 101, "{step}: {age}");
        }
    }

    #[test]
    fn a_time_that_no_span_has_is_before_the_first_sample() {
        let mut clocks = Clocks::new();
        // The clock is set back by an hour before the first sample.
        let kicked_at = clocks.broker_time();
        clocks.pass(1_000, -3_600_000);
        clocks.sample();
        clocks.pass(50_000, 0);
        clocks.sample();
        assert!(is_about(clocks.age(kicked_at), 50_000), "{:?}", clocks.age(kicked_at));
        // An age of years.
        assert!(clocks.age(Duration::ZERO).is_some_and(|age| age >= 50_000));
        for power in 0..64 {
            assert!(clocks.age(Duration::from_secs(u64::MAX >> power)).is_some());
            clocks.clock.sample(Duration::from_secs(u64::MAX >> power), clocks.begin, clocks.begin);
        }
    }

    #[test]
    fn a_kick_between_two_steps_that_no_sample_separates_is_not_before_the_first_one() {
        for (first, second) in [(-86_400_000, -86_400_000), (3_600_000, -20_000), (3_600_000, 3_600_000)] {
            let mut clocks = Clocks::new();
            clocks.sample();
            clocks.pass(50_000, 0);
            clocks.sample();
            clocks.pass(1_000, first);
            clocks.pass(1_000, 0);
            let kicked_at = clocks.broker_time();
            clocks.pass(5_000, 0);
            clocks.pass(1_000, second);
            clocks.sample();
            clocks.pass(10_000, 0);
            let age = clocks.age(kicked_at).expect("a sample");
            assert!(age <= 16_000 + 101, "{first} {second}: {age}");
        }
    }

    #[test]
    fn drift_is_no_step_and_spans_are_bounded() {
        let mut clocks = Clocks::new();
        for _ in 0..1_000 {
            clocks.pass(10_000, 5);
            clocks.sample();
        }
        assert_eq!(clocks.clock.spans.len(), 1);
        for _ in 0..1_000 {
            clocks.pass(10_000, -5_000);
            clocks.sample();
        }
        assert_eq!(clocks.clock.spans.len(), SPANS_MAX);
    }

    #[test]
    fn a_late_reply_is_no_step() {
        let mut clocks = Clocks::new();
        clocks.sample();
        let read = clocks.late_sample(5_000, 20_000);
        clocks.sample();
        assert_eq!(clocks.clock.spans.len(), 1);
        assert!(is_about(clocks.age(read), 20_000));
    }

    #[test]
    fn a_late_first_reply_takes_no_kick_for_older_than_it_is() {
        // The broker has read its clock at the begin, or at the end.
        for (before, after) in [(0, 9_000), (9_000, 0), (4_000, 5_000)] {
            let mut clocks = Clocks::new();
            let kicked_at = clocks.broker_time();
            clocks.pass(3_000, 0);
            clocks.late_sample(before, after);
            let age = clocks.age(kicked_at).expect("a sample");
            assert!((3_000..=12_000).contains(&age), "{age}");
            // An exact sample counts for the kicks behind it, and late ones do not confirm the first one.
            clocks.sample();
            clocks.late_sample(before, after);
            clocks.pass(1_000, 0);
            let kicked_at = clocks.broker_time();
            clocks.pass(2_000, 0);
            assert!(is_about(clocks.age(kicked_at), 2_000), "{:?}", clocks.age(kicked_at));
            assert_eq!(clocks.clock.spans.len(), 2);
        }
    }

    #[test]
    fn a_late_reply_that_hides_a_step_takes_no_kick_for_older_than_it_is() {
        for step in [-3_000, 3_000] {
            let mut clocks = Clocks::new();
            clocks.sample();
            clocks.pass(1_000, step);
            clocks.pass(4_000, 0);
            let kicked_at = clocks.broker_time();
            clocks.pass(5_000, 0);
            clocks.late_sample(4_000, 4_000);
            clocks.pass(2_000, 0);
            clocks.sample();
            let age = clocks.age(kicked_at).expect("a sample");
            assert!(age <= 15_000 + 101, "{step}: {age}");
        }
    }
}
