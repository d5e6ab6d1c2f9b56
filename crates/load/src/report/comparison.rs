//! The comparison of a load with an earlier one: each figure with its ratio, and a verdict.

use std::fmt::{self, Write};

use serde_json::{Value, json};

use super::{human, per_second, share};
use crate::baseline::{Baseline, FIGURES, RATE, TAIL, Unit};
use crate::results::{LoadResults, Protocol};

/// A figure of both loads.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Comparison {
    pub(super) name: &'static str,
    pub(super) before: f64,
    pub(super) now: f64,
    unit: Unit,
}

/// Each figure of both loads.
pub(super) fn comparisons(baseline: &Baseline, figures: &LoadResults) -> Vec<Comparison> {
    let at = |quantile| figures.latency.value_at_quantile(quantile) as f64;
    let rate = per_second(figures.requests, figures.elapsed.as_secs_f64());
    let bytes = per_second(figures.bytes_read, figures.elapsed.as_secs_f64());
    let errors = figures.errors.total() as f64;
    let now = [rate, bytes, at(0.5), at(0.9), at(0.99), at(0.999), figures.latency.max() as f64, errors];
    let names = FIGURES.map(|(name, _, unit)| (name, unit)).into_iter().chain([("errors", Unit::Count)]);
    names
        .zip(baseline.values.iter().zip(now))
        .map(|((name, unit), (before, now))| Comparison { name, before: *before, now, unit })
        .collect()
}

impl Comparison {
    /// The figure now as a multiple of the one before; `None` if that is zero.
    pub(super) fn ratio(&self) -> Option<f64> {
        (self.before > 0.0).then(|| share(self.now, self.before))
    }

    pub(super) fn shown(&self) -> [String; 3] {
        let ratio = match self.ratio() {
            Some(ratio) => format!("{ratio:.2}"),
            None if self.now > 0.0 => "more".to_owned(),
            None => "1.00".to_owned(),
        };
        let show = |value: f64| match self.unit {
            Unit::Rate => human::short(value),
            Unit::Time => human::time(value),
            Unit::Count => human::count(value as u64),
        };
        [show(self.before), show(self.now), ratio]
    }
}

/// The parameters in which the loads differ, so that their figures may differ for that reason.
fn differences(baseline: &Baseline, figures: &LoadResults) -> Vec<&'static str> {
    let parameters = &figures.parameters;
    let now = [
        json!(parameters.connections),
        json!(parameters.pipeline),
        json!((parameters.protocol == Protocol::Http).then(|| parameters.version.name())),
        json!(parameters.streams),
        json!(parameters.rate),
        json!(parameters.threads),
        json!(parameters.backend),
    ];
    let pairs = baseline.parameters.iter().zip(now);
    // An output from before there was a version has none.
    let differ = |name: &str, before: &Value, now: &Value| before != now && !(name == "version" && before.is_null());
    pairs.filter(|((name, before), now)| differ(name, before, now)).map(|((name, _), _)| *name).collect()
}

/// The verdict in a sentence.
pub(super) fn verdict(baseline: &Baseline, figures: &LoadResults) -> String {
    let all = comparisons(baseline, figures);
    let ratio_of = |name: &str| all.iter().find(|one| one.name == name).and_then(Comparison::ratio);
    let (rate, tail) = (ratio_of(RATE), ratio_of(TAIL));
    // At a given rate, or for a number of requests, the latency shows the difference.
    let has_rate = figures.parameters.rate.is_some();
    let faster = rate.filter(|_| !has_rate).is_some_and(|ratio| ratio > 1.0 + ALIKE)
        || has_rate && tail.is_some_and(|ratio| ratio < 1.0 - ALIKE_TAIL);
    let slower =
        rate.is_some_and(|ratio| ratio < 1.0 - ALIKE) || has_rate && tail.is_some_and(|ratio| ratio > 1.0 + ALIKE_TAIL);
    let more_errors = all.iter().any(|one| one.unit == Unit::Count && one.now > one.before);
    let has_responses = rate.is_some() && figures.requests > 0;
    let mut text = match (slower, faster, more_errors) {
        _ if !has_responses => "not comparable: one of the loads has no responses",
        (_, _, true) => "worse: there are more errors",
        (true, ..) => "slower than the baseline",
        (false, true, _) => "faster than the baseline",
        _ => "as the baseline",
    }
    .to_owned();
    let by = |ratio: Option<f64>| ratio.map_or_else(|| "-".to_owned(), |ratio| format!("{ratio:.2}"));
    text.push_str(&format!(" (requests a second {}, 99% of the latency {})", by(rate), by(tail)));
    let differences = differences(baseline, figures);
    if !differences.is_empty() {
        text.push_str(&format!("; the loads differ in {}", differences.join(", ")));
    }
    text
}

/// The table in the terminal.
pub(super) fn write(text: &mut String, figures: &LoadResults) -> fmt::Result {
    let Some(baseline) = &figures.baseline else { return Ok(()) };
    writeln!(text, "Compared with {}     Before         Now   Ratio", baseline.name)?;
    let width = "Compared with ".len() + baseline.name.chars().count();
    for one in comparisons(baseline, figures) {
        let [before, now, ratio] = one.shown();
        writeln!(text, "  {:<width$}{before:>9}{now:>12}{ratio:>8}", one.name, width = width)?;
    }
    writeln!(text, "Verdict: {}", verdict(baseline, figures))
}

/// The value in `--json`.
pub(super) fn to_json(figures: &LoadResults) -> Value {
    let Some(baseline) = &figures.baseline else { return Value::Null };
    let ratios = comparisons(baseline, figures).into_iter().map(|one| (one.name.to_owned(), json!(one.ratio())));
    json!({
        "file": baseline.name,
        "ratios": ratios.collect::<serde_json::Map<_, _>>(),
        "verdict": verdict(baseline, figures),
    })
}

/// Ratios this close to one are no difference: two runs of the same load differ as much.
const ALIKE: f64 = 0.05;
const ALIKE_TAIL: f64 = 0.2;

#[cfg(test)]
mod tests {
    use super::super::samples::{busy, redis};
    use super::*;

    fn of(figures: &LoadResults) -> Baseline {
        let text = super::super::json(figures).to_string();
        Baseline::parse(&text, "before.json", figures.parameters.protocol.name()).expect("it is right")
    }

    #[test]
    fn a_load_is_as_its_own_output() {
        for figures in [busy(), redis()] {
            let baseline = of(&figures);
            for one in comparisons(&baseline, &figures) {
                assert!(one.ratio().is_none_or(|ratio| (ratio - 1.0).abs() < 1e-6), "{one:?}");
            }
            assert!(verdict(&baseline, &figures).starts_with("as the baseline"), "{}", verdict(&baseline, &figures));
        }
    }

    #[test]
    fn the_verdict_names_what_is_worse_and_what_differs() {
        let before = of(&busy());
        let mut figures = busy();
        figures.requests = figures.requests * 8 / 10;
        assert_eq!(
            verdict(&before, &figures),
            "slower than the baseline (requests a second 0.80, 99% of the latency 1.00)"
        );
        figures.requests *= 2;
        figures.parameters.connections = 8;
        let expected = "faster than the baseline (requests a second 1.60, 99% of the latency 1.00); the loads differ in connections";
        assert_eq!(verdict(&before, &figures), expected);
        figures.errors.timeout = 1;
        assert!(verdict(&before, &figures).starts_with("worse: there are more errors"));
        let none = LoadResults { requests: 0, ..busy() };
        assert!(verdict(&before, &none).starts_with("not comparable"));
        figures.baseline = Some(before);
        let mut text = String::new();
        write(&mut text, &figures).expect("a string");
        assert!(
            text.starts_with("Compared with before.json     Before         Now   Ratio\n  requests a second"),
            "{text}"
        );
        assert!(text.lines().any(|line| line.ends_with("           0           1    more")), "{text}");
    }

    #[test]
    fn another_kind_or_version_is_no_baseline() {
        let good = super::super::json(&busy());
        let with = |name: &str, value: Value| {
            let mut changed = good.clone();
            changed[name] = value;
            changed.to_string()
        };
        for (text, part) in [
            (String::new(), "is no JSON"),
            ("[1]".to_owned(), "no output of --json"),
            ("{}".to_owned(), "no output of --json"),
            (with("format", 1.into()), "the format 1"),
            (with("protocol", "redis".into()), "is a load of redis, and this one is of http"),
            (with("latency", Value::Null), "lacks a figure"),
            (with("requests_per_second", (-1).into()), "lacks a figure"),
        ] {
            let error = Baseline::parse(&text, "a", "http").expect_err(part);
            assert!(error.contains(part), "{part}: {error}");
        }
    }
}
