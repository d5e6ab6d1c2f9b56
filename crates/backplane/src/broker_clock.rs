//! `BrokerClock`: when something happened that has a time of the broker's clock, in this node's time.
//!
//! The broker's clock may be set, and another server may take the broker's place; this node's monotonic clock never steps. So
//! each reply with the broker's time is a sample of the difference. As long as the difference stays the same, samples belong to
//! one *span*; a step begins the next one. A time of the broker's clock is looked for in each span: it happened there if the
//! span's difference puts it between the span's limits. The last sample before a step and the first one behind it are limits,
//! since the step happened at any point between them.
//!
//! If several spans are possible, the latest time counts. If none is, it happened before the first sample. So a kick is never
//! taken for older than it is, except by [`TOLERANCE`]; one that is taken for younger costs a connection that came back.

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
    /// This node's time and the broker's at one moment of the span.
    at: Instant,
    time: Duration,
    /// The limits of its first sample.
    first_sent_at: Instant,
    first_received_at: Instant,
    /// When the request of its last sample was sent.
    last_sent_at: Instant,
}

impl ClockSpan {
    /// This node's time at the broker's `time`, if this node has such a time.
    fn instant(&self, time: Duration) -> Option<Instant> {
        match time.checked_sub(self.time) {
            Some(later) => self.at.checked_add(later),
            None => self.at.checked_sub(self.time - time),
        }
    }

    fn agrees(&self, time: Duration, sent_at: Instant, received_at: Instant) -> bool {
        let earliest = sent_at.checked_sub(TOLERANCE).unwrap_or(sent_at);
        self.instant(time).is_some_and(|at| (earliest..=received_at + TOLERANCE).contains(&at))
    }
}

impl BrokerClock {
    /// The broker's clock showed `time` between these two of this node's times.
    pub(crate) fn sample(&mut self, time: Duration, sent_at: Instant, received_at: Instant) {
        let at = read_at(sent_at, received_at);
        if let Some(span) = self.spans.back_mut().filter(|span| span.agrees(time, sent_at, received_at)) {
            span.last_sent_at = span.last_sent_at.max(sent_at);
            // A late reply is inexact.
            if received_at.saturating_duration_since(sent_at) <= REPLY_DELAY_MAX {
                (span.at, span.time) = (at, time);
            }
            return;
        }
        if self.spans.len() >= SPANS_MAX {
            self.spans.pop_front();
        }
        let (first_sent_at, first_received_at) = (sent_at, received_at);
        self.spans.push_back(ClockSpan { at, time, first_sent_at, first_received_at, last_sent_at: sent_at });
    }

    /// How long before `read_at` the broker's clock showed `time`, which it reported until `received_at`. Nothing before the first
    /// sample.
    pub(crate) fn age(&self, time: Duration, read_at: Instant, received_at: Instant) -> Option<Duration> {
        let first = self.spans.front()?;
        let mut latest = None;
        for (place, span) in self.spans.iter().enumerate() {
            let end = self.spans.get(place + 1).map_or(received_at, |next| next.first_received_at);
            let at = span.instant(time).filter(|at| *at <= end + TOLERANCE);
            let Some(at) = at else { continue };
            let before = place.checked_sub(1).and_then(|before| self.spans.get(before));
            if before.is_none_or(|before| at + TOLERANCE >= before.last_sent_at) {
                latest = latest.max(Some(at));
            }
        }
        Some(read_at.saturating_duration_since(latest.unwrap_or(first.first_sent_at)))
    }
}

/// When the broker has read its clock, in this node's time: at the reply, unless that was late. A connection that entered
/// during the delay of a late reply would count as one that was there before.
pub(crate) fn read_at(sent_at: Instant, received_at: Instant) -> Instant {
    received_at.min(sent_at + REPLY_DELAY_MAX)
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

        fn age(&self, time: Duration) -> Option<u64> {
            let now = self.begin + Duration::from_millis(self.now);
            let age = self.clock.age(time, now, now);
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
        let sent_at = clocks.begin + Duration::from_millis(clocks.now);
        clocks.pass(5_000, 0);
        let read = clocks.broker_time();
        clocks.pass(20_000, 0);
        clocks.clock.sample(read, sent_at, clocks.begin + Duration::from_millis(clocks.now));
        clocks.sample();
        assert_eq!(clocks.clock.spans.len(), 1);
        assert!(is_about(clocks.age(read), 20_000));
    }
}
