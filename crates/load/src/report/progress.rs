//! `ProgressDisplay`: the progress of a load, on standard error: a bar on a terminal, otherwise a line every five seconds.
//! Standard output is reserved for the figures.

use std::io::{self, IsTerminal, Write};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressFinish, ProgressStyle};

use super::{per_second, units};

/// The state of the progress display.
#[derive(Debug)]
pub(crate) struct ProgressDisplay {
    duration: Duration,
    /// The rate of the last second, which is more useful than the overall rate.
    rate: f64,
    rate_from: (Duration, u64),
    shown: DisplayState,
}

#[derive(Debug)]
enum DisplayState {
    /// Erased on drop, so that the figures take its place.
    Bar(ProgressBar),
    /// The time of the next line.
    Lines { next: Duration },
}

impl ProgressDisplay {
    /// Starts the display of a load with this duration.
    pub(crate) fn start(duration: Duration) -> Self {
        let shown = if io::stderr().is_terminal() {
            let bar = ProgressBar::with_draw_target(Some(millis(duration)), ProgressDrawTarget::stderr());
            let style = ProgressStyle::with_template(BAR).expect("the template is right");
            DisplayState::Bar(bar.with_style(style.progress_chars(BAR_CHARS)).with_finish(ProgressFinish::AndClear))
        } else {
            DisplayState::Lines { next: LINE_INTERVAL }
        };
        Self::shown(duration, shown)
    }

    fn shown(duration: Duration, shown: DisplayState) -> Self {
        Self { duration, rate: 0.0, rate_from: (Duration::ZERO, 0), shown }
    }

    /// Updates the display with the counts since the start of the load. Cheap enough for many calls a second.
    pub(crate) fn update(&mut self, elapsed: Duration, requests: u64, errors: u64) {
        let (from, counted) = self.rate_from;
        let passed = elapsed.saturating_sub(from);
        let is_first = from.is_zero();
        if passed >= RATE_INTERVAL || is_first {
            self.rate = per_second(requests.saturating_sub(counted), passed.as_secs_f64());
        }
        if passed >= RATE_INTERVAL {
            self.rate_from = (elapsed, requests);
        }
        if let Some(line) = self.line(elapsed, requests, errors) {
            // A closed standard error does not stop the load.
            let _ = writeln!(io::stderr(), "tidegate: {line}");
        }
        if let DisplayState::Bar(bar) = &self.shown {
            bar.set_message(self.message(elapsed, errors));
            bar.set_position(millis(elapsed));
        }
    }

    /// Ends the display.
    pub(crate) fn finish(self) {
        drop(self);
    }

    fn message(&self, elapsed: Duration, errors: u64) -> String {
        let left = self.duration.saturating_sub(elapsed).as_secs_f64().ceil();
        let (rate, errors) = (units::metric(self.rate), errors_said(errors));
        format!("{}s, {left}s left, {rate} requests/s, {errors}", elapsed.as_secs())
    }

    /// The next line, if it is due. There is none at the end: the figures follow.
    fn line(&mut self, elapsed: Duration, requests: u64, errors: u64) -> Option<String> {
        let DisplayState::Lines { next } = &mut self.shown else { return None };
        if elapsed < *next || elapsed >= self.duration {
            return None;
        }
        *next = elapsed + LINE_INTERVAL;
        let (seconds, of) = (elapsed.as_secs(), units::whole_time(self.duration.as_secs_f64()));
        let (rate, errors) = (units::metric(self.rate), errors_said(errors));
        Some(format!("{seconds}s of {of}: {requests} requests, {rate} requests/s, {errors}"))
    }
}

fn errors_said(errors: u64) -> String {
    match errors {
        0 => "no errors".to_owned(),
        1 => "1 error".to_owned(),
        _ => format!("{errors} errors"),
    }
}

fn millis(duration: Duration) -> u64 {
    duration.as_millis().try_into().unwrap_or(u64::MAX)
}

const LINE_INTERVAL: Duration = Duration::from_secs(5);
const RATE_INTERVAL: Duration = Duration::from_secs(1);
const BAR: &str = "{bar:24} {msg}";
const BAR_CHARS: &str = "━╸─";

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(duration: Duration) -> ProgressDisplay {
        ProgressDisplay::shown(duration, DisplayState::Lines { next: LINE_INTERVAL })
    }

    fn lines_of(seconds: f64) -> Vec<String> {
        let duration = Duration::from_secs_f64(seconds);
        let mut progress = lines(duration);
        progress.rate = 87_012.0;
        let ticks = (1..).map(|n| Duration::from_millis(n * 30)).take_while(|elapsed| *elapsed < duration * 2);
        ticks.filter_map(|elapsed| progress.line(elapsed, elapsed.as_millis() as u64 * 87, 1)).collect()
    }

    #[test]
    fn a_line_is_due_every_five_seconds_and_none_at_the_end() {
        for (seconds, expected) in [(0.0, 0), (2.0, 0), (4.9, 0), (5.0, 0), (6.0, 1), (30.0, 5)] {
            assert_eq!(lines_of(seconds).len(), expected, "{seconds}");
        }
        assert_eq!(lines_of(7.0), ["5s of 7s: 435870 requests, 87.01k requests/s, 1 error"]);
    }

    #[test]
    fn the_rate_is_that_of_the_last_second() {
        let mut progress = lines(Duration::from_secs(4));
        let mut update = |millis, requests| {
            progress.update(Duration::from_millis(millis), requests, 0);
            progress.rate
        };
        assert_eq!(update(0, 0), 0.0);
        assert_eq!(update(500, 100), 200.0);
        assert_eq!(update(1000, 300), 300.0);
        assert_eq!(update(1500, 5_000), 300.0);
        assert_eq!(update(2000, 1_300), 1000.0);
        progress.finish();
    }

    #[test]
    fn the_bar_shows_elapsed_and_remaining_time() {
        // The bar is not drawn before the first update.
        let mut progress = ProgressDisplay::start(Duration::from_secs(30));
        progress.rate = 1_200_000.0;
        let message = progress.message(Duration::from_millis(12_300), 7);
        assert_eq!(message, "12s, 18s left, 1.20M requests/s, 7 errors");
        // A load that takes longer than its duration.
        assert!(progress.message(Duration::from_secs(31), 0).starts_with("31s, 0s left"));
        assert!(ProgressStyle::with_template(BAR).is_ok());
    }
}
