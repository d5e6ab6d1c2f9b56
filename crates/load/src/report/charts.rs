//! The four charts of the page: latency by percentile and as a distribution, and throughput and latency over the time
//! of the load.

use hdrhistogram::Histogram;

use super::chart::Chart;
use super::scale::{Axis, round_seconds};
use super::{human, per_second, share};
use crate::results::{Interval, LoadResults};

/// A chart with its title and legend.
#[derive(Debug)]
pub(super) struct Picture {
    pub(super) title: &'static str,
    /// Classes of lines and their names, if there is more than one.
    pub(super) legend: &'static [(&'static str, &'static str)],
    /// None if there is nothing to draw.
    pub(super) svg: Option<String>,
}

pub(super) fn all(figures: &LoadResults) -> [Picture; 4] {
    let pieces = pieces(&figures.over_time);
    [by_percentile(&figures.latency), distribution(&figures.latency), throughput(&pieces), over_time(&pieces)]
}

/// Percentiles on a logarithmic axis, by their nines: 90, 99 and 99.9 % are equally far apart.
fn by_percentile(latency: &Histogram<u64>) -> Picture {
    let svg = (!latency.is_empty()).then(|| {
        let nines = (latency.len() as f64).log10().ceil().clamp(1.0, NINES_MAX);
        let mut x = Axis::up_to(nines, 1.0, |nines| percentile(nines).replace('%', ""));
        x.ticks[0] = (MEDIAN_NINES, "50".to_owned());
        let at = |nines: f64| latency.value_at_quantile(1.0 - 10f64.powf(-nines)) as f64;
        // The axis starts at the 5th percentile: the lowest latencies are not the subject of this chart.
        let y = height(latency.value_at_quantile(0.05) as f64, at(nines));
        let is_log = y.is_log;
        let mut chart = Chart::new(
            "Latency by percentile",
            x,
            y,
            ["percentile: % of the responses that took no longer", named(is_log)],
        );
        let steps = (nines * STEPS_PER_NINE) as u32;
        let places: Vec<_> = (0..=steps).map(|n| f64::from(n) / STEPS_PER_NINE).collect();
        let curve: Vec<_> = places.iter().map(|nines| (*nines, at(*nines))).collect();
        // A logarithmic axis has no zero, so there is no area below the curve.
        if is_log {
            chart.line("main", &curve);
        } else {
            chart.area("main", &curve);
        }
        for nines in (1..=nines as u32).map(f64::from) {
            chart.dot("main", nines, at(nines), &human::time(at(nines)));
        }
        for pair in places.windows(2) {
            let [from, to] = [pair[0], pair[1]];
            chart.say(from, to, &format!("{} in {} or less", percentile(to), human::time(at(to))));
        }
        chart.finish()
    });
    Picture { title: "Latency by percentile", legend: &[], svg }
}

/// The axis of a latency: linear from zero, or logarithmic if most values would lie at the bottom of a linear axis.
fn height(low: f64, high: f64) -> Axis {
    let low = low.max(1.0);
    if high > LOG_FROM * low {
        Axis::log(low / 1.5, high * 1.2, human::time)
    } else {
        Axis::from_zero(high, human::time)
    }
}

/// Two nines are 99%.
fn percentile(nines: f64) -> String {
    let decimals = (nines.ceil() as usize).saturating_sub(2);
    // Rounded down: a share below one must not read as 100 %.
    let scale = 10f64.powi(decimals as i32);
    let percent = (100.0 * (1.0 - 10f64.powf(-nines)) * scale + 1e-6).floor() / scale;
    format!("{percent:.decimals$}%")
}

/// The latency distribution, in bars of equal width on a logarithmic axis.
fn distribution(latency: &Histogram<u64>) -> Picture {
    let svg = (!latency.is_empty()).then(|| {
        let (from, to) = (latency.min().max(1) as f64 / MARGIN, latency.max().max(1) as f64 * MARGIN);
        let width = ((to / from).ln() / BARS_MAX).max(BAR_WIDTH_MIN.ln());
        let count = ((to / from).ln() / width).ceil() as usize;
        let mut bars = vec![0_u64; count];
        for step in latency.iter_recorded() {
            let value = latency.median_equivalent(step.value_iterated_to()).max(1) as f64;
            let place = ((value / from).ln() / width).max(0.0) as usize;
            bars[place.min(count - 1)] += step.count_at_value();
        }
        let share_of = |bar: u64| share(bar as f64, latency.len() as f64);
        let x = Axis::log(from, to, human::time);
        let y = Axis::from_zero(bars.iter().copied().max().map_or(0.0, share_of), human::percent);
        let mut chart = Chart::new("Distribution of the latency", x, y, [named(true), "share of the responses"]);
        let edge = |n: usize| from * (n as f64 * width).exp();
        for (n, bar) in bars.iter().copied().enumerate().filter(|(_, bar)| *bar > 0) {
            chart.bar("main", edge(n), edge(n + 1), share_of(bar));
        }
        for (n, bar) in bars.iter().copied().enumerate() {
            let (low, high) = (human::time(edge(n)), human::time(edge(n + 1)));
            let (bar, percent) = (human::count(bar), human::percent(share_of(bar)));
            chart.say(edge(n), edge(n + 1), &format!("{low} to {high}: {bar} responses, {percent}"));
        }
        chart.finish()
    });
    Picture { title: "Distribution of the latency", legend: &[], svg }
}

fn throughput(pieces: &[Piece]) -> Picture {
    let svg = pieces.last().map(|last| {
        let rate = |piece: &Piece| per_second(piece.requests, piece.until - piece.from);
        let y = Axis::from_zero(pieces.iter().map(rate).fold(0.0, f64::max), human::short);
        let mut chart = Chart::new(
            "Requests a second over time",
            time_axis(last.until),
            y,
            ["time since the start", "requests a second"],
        );
        let points: Vec<_> = pieces.iter().flat_map(|one| [(one.from, rate(one)), (one.until, rate(one))]).collect();
        chart.area("main", &points);
        for piece in pieces {
            chart.say(piece.from, piece.until, &format!("{}: {} a second", piece.when(), human::short(rate(piece))));
        }
        chart.finish()
    });
    Picture { title: "Throughput", legend: &[], svg }
}

fn over_time(pieces: &[Piece]) -> Picture {
    let answered: Vec<_> = pieces.iter().filter(|piece| piece.max > 0.0).collect();
    let svg = pieces.last().filter(|_| !answered.is_empty()).map(|last| {
        let (low, high) =
            answered.iter().fold((f64::MAX, 0.0_f64), |(low, high), piece| (low.min(piece.p50), high.max(piece.max)));
        let y = height(low, high);
        let what = "Median, 99th percentile and maximum of the latency over time";
        let y_name = named(y.is_log);
        let mut chart = Chart::new(what, time_axis(last.until), y, ["time since the start", y_name]);
        type Line = (&'static str, fn(&Piece) -> f64);
        let lines: [Line; 3] = [("most", |one| one.max), ("high", |one| one.p99), ("main", |one| one.p50)];
        // Intervals without responses have no latency: the lines have a gap there.
        for run in pieces.split(|piece| piece.max <= 0.0).filter(|run| !run.is_empty()) {
            for (class, value) in lines {
                let points = run.iter().map(|piece| (f64::midpoint(piece.from, piece.until), value(piece)));
                chart.line(class, &points.collect::<Vec<_>>());
            }
        }
        for piece in answered {
            let [p50, p99, max] = [piece.p50, piece.p99, piece.max].map(human::time);
            let text = format!("{}: median {p50}, 99% {p99}, maximum {max}", piece.when());
            chart.say(piece.from, piece.until, &text);
        }
        chart.finish()
    });
    let legend = &[("main", "median"), ("high", "99%"), ("most", "maximum")];
    Picture { title: "Latency over time", legend, svg }
}

fn named(is_log: bool) -> &'static str {
    if is_log { "latency (logarithmic)" } else { "latency" }
}

fn time_axis(seconds: f64) -> Axis {
    Axis::up_to(seconds, round_seconds(seconds / 6.0), |value| human::clock(value, seconds))
}

/// One or more intervals, merged to fit into the chart. Times are in seconds, latencies in nanoseconds.
#[derive(Debug, Clone, PartialEq)]
struct Piece {
    from: f64,
    until: f64,
    requests: u64,
    p50: f64,
    p99: f64,
    max: f64,
}

impl Piece {
    fn when(&self) -> String {
        format!("{:.1} to {:.1} s", self.from, self.until)
    }
}

fn pieces(intervals: &[Interval]) -> Vec<Piece> {
    let size = intervals.len().div_ceil(PIECES_MAX).max(1);
    let mut groups: Vec<&[Interval]> = intervals.chunks(size).collect();
    let ends: Vec<_> = [0.0].into_iter().chain(groups.iter().filter_map(|group| end(group))).collect();
    // A last interval that is much shorter than the others has too few samples for a rate: merge it into the previous.
    if let [.., start, before, rest] = ends[..]
        && rest - before < REST_MIN * (before - start)
    {
        groups.truncate(groups.len() - 2);
        groups.push(&intervals[groups.len() * size..]);
    }
    let mut from = 0.0;
    let mut pieces = Vec::with_capacity(groups.len());
    for group in groups {
        let (Some(until), [first, others @ ..]) = (end(group), group) else { continue };
        let mut latency = first.latency.clone();
        for interval in others {
            // A value that cannot be added is out of the range of any chart.
            let _ = latency.add(&interval.latency);
        }
        let requests = group.iter().map(|interval| interval.requests).sum();
        let [p50, p99] = [0.5, 0.99].map(|quantile| latency.value_at_quantile(quantile) as f64);
        pieces.push(Piece { from, until, requests, p50, p99, max: latency.max() as f64 });
        from = until;
    }
    pieces
}

fn end(group: &[Interval]) -> Option<f64> {
    group.last().map(|interval| interval.until.as_secs_f64())
}

const NINES_MAX: f64 = 6.0;
/// The median, as nines.
const MEDIAN_NINES: f64 = std::f64::consts::LOG10_2;
const STEPS_PER_NINE: f64 = 20.0;
const BARS_MAX: f64 = 84.0;
/// Narrower bars would show the steps of the histogram.
const BAR_WIDTH_MIN: f64 = 1.02;
/// The margin around the shortest and the longest latency, so that a single value is a bar too.
const MARGIN: f64 = 1.1;
/// From this ratio on, low values would lie at the bottom of a linear axis.
const LOG_FROM: f64 = 20.0;
const PIECES_MAX: usize = 240;
const REST_MIN: f64 = 0.3;

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::samples::{busy, empty};
    use super::*;

    fn interval(until: u64, requests: u64, latency: u64) -> Interval {
        let mut histogram = Histogram::new(3).expect("three digits");
        if requests > 0 {
            histogram.record_n(latency, requests).expect("it grows");
        }
        Interval { until: Duration::from_millis(until), requests, latency: histogram }
    }

    #[test]
    fn percentiles_are_never_rounded_up() {
        for (nines, expected) in [
            (0.0, "0%"),
            (MEDIAN_NINES, "50%"),
            (1.0, "90%"),
            (1.95, "98%"),
            (2.0, "99%"),
            (2.05, "99.1%"),
            (3.0, "99.9%"),
            (6.0, "99.9999%"),
        ] {
            assert_eq!(percentile(nines), expected, "{nines}");
        }
    }

    #[test]
    fn without_responses_there_is_nothing_to_draw() {
        assert!(all(&empty()).iter().all(|picture| picture.svg.is_none()));
        // Time passed without responses: there is a throughput of zero, and no latency.
        let silent = LoadResults { over_time: vec![interval(1000, 0, 1), interval(2000, 0, 1)], ..empty() };
        assert_eq!(all(&silent).map(|picture| picture.svg.is_some()), [false, false, true, false]);
    }

    #[test]
    fn a_single_response_is_drawn() {
        for latency in [0, 1, 1_000_000, 60_000_000_000] {
            let mut one = LoadResults { over_time: vec![interval(1000, 1, latency)], requests: 1, ..empty() };
            one.latency.record(latency).expect("it grows");
            for picture in all(&one) {
                let svg = picture.svg.unwrap_or_default();
                assert!(!svg.contains("NaN") && !svg.contains("inf"), "{}: {svg}", picture.title);
            }
        }
    }

    #[test]
    fn a_short_last_interval_is_merged_into_the_previous() {
        let rest = [interval(1000, 100, 10), interval(2000, 50, 20), interval(2003, 50, 30)];
        let rest = pieces(&rest);
        assert_eq!(rest.len(), 2);
        assert_eq!((rest[1].from, rest[1].until, rest[1].requests, rest[1].max), (1.0, 2.003, 100, 30.0));
        let whole = [interval(1000, 100, 10), interval(1500, 50, 20)];
        assert_eq!(pieces(&whole).len(), 2);
    }

    #[test]
    fn many_intervals_are_merged_into_few_pieces() {
        for count in [1, 239, 240, 241, 3001] {
            let intervals: Vec<_> = (1..=count).map(|n| interval(n * 100, n, n)).collect();
            let pieces = pieces(&intervals);
            assert!(pieces.len() <= PIECES_MAX, "{count}");
            assert_eq!(pieces.iter().map(|piece| piece.requests).sum::<u64>(), count * (count + 1) / 2);
            assert!(pieces.windows(2).all(|pair| pair[0].until == pair[1].from));
            assert_eq!(pieces.last().expect("some").until, count as f64 / 10.0);
        }
    }

    #[test]
    fn the_bars_include_every_response() {
        let figures = busy();
        let svg = distribution(&figures.latency).svg.expect("there is something");
        let message = svg.split("<title>").skip(1).map(|title| {
            let (_, rest) = title.split_once(": ").expect("a range before");
            let (count, _) = rest.split_once(" responses").expect("a count");
            count.replace(',', "").parse::<u64>().expect("a number")
        });
        assert_eq!(message.sum::<u64>(), figures.latency.len());
    }
}
