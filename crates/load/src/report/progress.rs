//! `ProgressDisplay`: the progress of a load, on standard error: on a terminal a live table, or a bar where it has no room;
//! otherwise a line every five seconds.
//! Standard output is reserved for the figures.

use std::io::{self, IsTerminal, Write};
use std::time::Duration;

use console::Term;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressFinish, ProgressStyle};

use super::{live, per_second, units};
use crate::counters::LiveFigures;

/// The state of the progress display.
#[derive(Debug)]
pub(crate) struct ProgressDisplay {
    duration: Duration,
    /// The number of requests, if it is given.
    total: Option<u64>,
    /// The rate of the last second, which is more useful than the overall rate.
    rate: f64,
    rate_from: (Duration, u64),
    shown: DisplayState,
}

#[derive(Debug)]
enum DisplayState {
    /// Erased on drop, so that the figures take its place.
    Bar(ProgressBar),
    /// A bar with a table below it, and when it is drawn next.
    Table { bar: ProgressBar, next: Duration },
    /// The time of the next line.
    Lines { next: Duration },
}

impl ProgressDisplay {
    /// Starts the display of a load with this duration, or with this number of requests.
    pub(crate) fn start(duration: Duration, total: Option<u64>) -> Self {
        if !io::stderr().is_terminal() {
            return Self::shown(duration, total, DisplayState::Lines { next: LINE_INTERVAL });
        }
        let has_room = Term::stderr()
            .size_checked()
            .is_some_and(|(rows, columns)| columns >= live::ROOM.0 && rows >= live::ROOM.1);
        let length = total.unwrap_or_else(|| millis(duration));
        let bar = ProgressBar::with_draw_target(Some(length), ProgressDrawTarget::stderr());
        let style = ProgressStyle::with_template(if has_room { TABLE } else { BAR }).expect("the template is right");
        let bar = bar.with_style(style.progress_chars(BAR_CHARS)).with_finish(ProgressFinish::AndClear);
        let shown = if has_room { DisplayState::Table { bar, next: Duration::ZERO } } else { DisplayState::Bar(bar) };
        Self::shown(duration, total, shown)
    }

    fn shown(duration: Duration, total: Option<u64>, shown: DisplayState) -> Self {
        Self { duration, total, rate: 0.0, rate_from: (Duration::ZERO, 0), shown }
    }

    /// Whether it shows a live table.
    pub(crate) fn has_table(&self) -> bool {
        matches!(self.shown, DisplayState::Table { .. })
    }

    /// Updates the display with the counts since the start of the load. Cheap enough for many calls a second: the
    /// figures of the table are asked for when it is drawn.
    pub(crate) fn update(
        &mut self,
        elapsed: Duration,
        requests: u64,
        errors: u64,
        figures: impl FnOnce() -> LiveFigures,
    ) {
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
        let position = if self.total.is_some() { requests } else { millis(elapsed) };
        let (time, rate) = (self.time(elapsed, requests), self.rate);
        let message = self.message(elapsed, requests, errors);
        match &mut self.shown {
            DisplayState::Bar(bar) => {
                bar.set_message(message);
                bar.set_position(position);
            }
            DisplayState::Table { bar, next } if elapsed >= *next => {
                *next = elapsed + TABLE_INTERVAL;
                bar.set_message(format!("{time}\n{}", live::lines(&figures(), requests, rate)));
                bar.set_position(position);
            }
            DisplayState::Table { .. } | DisplayState::Lines { .. } => {}
        }
    }

    /// Ends the display.
    pub(crate) fn finish(self) {
        drop(self);
    }

    /// The time that has passed, and what is left.
    fn time(&self, elapsed: Duration, requests: u64) -> String {
        let passed = elapsed.as_secs();
        match self.total {
            Some(total) => format!("{passed}s, {} requests left", total.saturating_sub(requests)),
            None => format!("{passed}s, {}s left", self.duration.saturating_sub(elapsed).as_secs_f64().ceil()),
        }
    }

    fn message(&self, elapsed: Duration, requests: u64, errors: u64) -> String {
        let (rate, errors) = (units::metric(self.rate), errors_said(errors));
        format!("{}, {rate} requests/s, {errors}", self.time(elapsed, requests))
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
        Some(match self.total {
            Some(total) => format!("{seconds}s: {requests} of {total} requests, {rate} requests/s, {errors}"),
            None => format!("{seconds}s of {of}: {requests} requests, {rate} requests/s, {errors}"),
        })
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
const TABLE_INTERVAL: Duration = Duration::from_millis(500);
const TABLE: &str = "{bar:40} {msg}";
const BAR: &str = "{bar:24} {msg}";
const BAR_CHARS: &str = "━╸─";

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(duration: Duration) -> ProgressDisplay {
        ProgressDisplay::shown(duration, None, DisplayState::Lines { next: LINE_INTERVAL })
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
            progress.update(Duration::from_millis(millis), requests, 0, LiveFigures::default);
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
        let mut progress = ProgressDisplay::start(Duration::from_secs(30), None);
        progress.rate = 1_200_000.0;
        let message = progress.message(Duration::from_millis(12_300), 100, 7);
        assert_eq!(message, "12s, 18s left, 1.20M requests/s, 7 errors");
        // A load that takes longer than its duration.
        assert!(progress.message(Duration::from_secs(31), 100, 0).starts_with("31s, 0s left"));
        progress.total = Some(150);
        assert!(progress.message(Duration::from_secs(31), 100, 0).starts_with("31s, 50 requests left"));
        assert!(ProgressStyle::with_template(BAR).is_ok() && ProgressStyle::with_template(TABLE).is_ok());
    }
}
