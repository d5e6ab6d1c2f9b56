//! The figures as JSON: one object, which always has every key. Times are in microseconds.

use hdrhistogram::Histogram;
use serde_json::{Map, Value, json};

use super::variation::Variation;
use super::{PERCENTILES, comparison, errors_by_kind, per_second};
use crate::baseline::FORMAT;
use crate::redis::CommandCounts;
use crate::results::{HeldConnections, Interval, LoadResults, Protocol};

/// The output of `--json`.
pub(crate) fn json(figures: &LoadResults) -> Value {
    let parameters = &figures.parameters;
    let seconds = figures.elapsed.as_secs_f64();
    let rates = Variation::of_sample(&figures.thread_rates);
    let errors: Map<_, Value> =
        errors_by_kind(&figures.errors).map(|(name, count)| (name.to_owned(), count.into())).into_iter().collect();
    json!({
        "format": FORMAT,
        "protocol": parameters.protocol.name(),
        "url": parameters.url,
        "method": parameters.method,
        "backend": parameters.backend,
        "threads": parameters.threads,
        "connections": parameters.connections,
        "pipeline": parameters.pipeline,
        "version": (parameters.protocol == Protocol::Http).then(|| parameters.version.name()),
        // Of HTTP/2 and HTTP/3, on each connection.
        "streams": parameters.streams,
        "rate": parameters.rate,
        "seconds": seconds,
        // All responses, whatever their status; `good` are those without an error.
        "requests": figures.requests,
        "good": figures.good,
        "total": parameters.total,
        "statuses": figures.statuses.iter().map(|(status, count)| (status.to_string(), (*count).into())).collect::<Map<_, Value>>(),
        "redis": (parameters.protocol == Protocol::Redis).then(|| redis(figures)),
        "bytes_read": figures.bytes_read,
        "requests_per_second": per_second(figures.requests, seconds),
        "bytes_per_second": per_second(figures.bytes_read, seconds),
        "latency": latency(figures),
        "thread_rate": {
            "mean": rates.mean,
            "stdev": rates.stdev,
            "max": rates.max,
            "within_stdev": rates.within_stdev,
        },
        "errors": errors,
        "idle": { "requested": parameters.idle, "held": figures.idle.held, "lost": figures.idle.lost },
        "stuck": figures.parameters.never_read.then(|| held(figures.stuck)),
        // Not errors: requests in flight and connection attempts in progress at the end.
        "unanswered": figures.unanswered,
        "connecting": figures.connecting,
        "goaways": parameters.streams.map(|_| figures.goaways),
        // Requests that the server did not process, sent again.
        "refused": parameters.streams.map(|_| figures.refused),
        "unsent": figures.parameters.rate.map(|_| figures.unsent),
        "cpu_seconds": {
            "user": figures.cpu.user.as_secs_f64(),
            "system": figures.cpu.system.as_secs_f64(),
        },
        "baseline": comparison::to_json(figures),
        "over_time": figures.over_time.iter().map(interval).collect::<Vec<_>>(),
        "histogram": coarse(&figures.latency),
    })
}

fn redis(figures: &LoadResults) -> Value {
    let redis = &figures.redis;
    let commands: Vec<_> = redis
        .commands
        .iter()
        .map(|CommandCounts { name, replies, nulls, errors }| {
            json!({ "command": name, "replies": replies, "nil": nulls, "errors": errors })
        })
        .collect();
    let errors: Map<_, Value> =
        redis.errors.0.iter().map(|(word, (count, _))| (word.clone(), (*count).into())).collect();
    json!({
        "commands": commands,
        "error_replies": errors,
        // Connections by the version of the protocol.
        "resp3": redis.resp3,
        "resp2": redis.resp2,
        "subscribers": figures.parameters.subscribers,
        // As the server counts them, if messages were published.
        "receivers": redis.receivers,
    })
}

fn held(HeldConnections { held, lost }: HeldConnections) -> Value {
    json!({ "held": held, "lost": lost })
}

fn latency(figures: &LoadResults) -> Value {
    let spread = Variation::of_histogram(&figures.latency);
    let percentiles: Map<_, _> =
        PERCENTILES.into_iter().map(|(name, of)| (name.to_owned(), at(&figures.latency, of))).collect();
    json!({
        "unit": "us",
        // With a rate, latency starts at the scheduled send time; requests without a response or unsent at the end
        // count with the time that they have waited.
        "corrected": figures.parameters.rate.is_some(),
        "mean": us(spread.mean),
        "stdev": us(spread.stdev),
        "max": us(spread.max),
        "within_stdev": spread.within_stdev,
        "percentiles": percentiles,
    })
}

fn interval(interval: &Interval) -> Value {
    json!({
        "seconds": interval.until.as_secs_f64(),
        "requests": interval.requests,
        "latency_p50": at(&interval.latency, 0.5),
        "latency_p99": at(&interval.latency, 0.99),
        "latency_max": us(interval.latency.max() as f64),
    })
}

/// The histogram in steps of 3 %: pairs of an upper bound and the count since the previous bound. A few hundred pairs
/// at most, to draw a chart, where the histogram itself can have many thousands.
fn coarse(histogram: &Histogram<u64>) -> Vec<(f64, u64)> {
    let mut steps: Vec<(u64, u64)> = Vec::new();
    for step in histogram.iter_recorded() {
        let (value, count) = (step.value_iterated_to(), step.count_at_value());
        let end = step_end(value);
        match steps.last_mut() {
            Some((last, counted)) if *last == end => *counted += count,
            _ => steps.push((end, count)),
        }
    }
    steps.into_iter().map(|(end, count)| (us(end as f64), count)).collect()
}

/// The last value that has the same `STEP_BITS` leading bits.
fn step_end(value: u64) -> u64 {
    let below = (u64::BITS - value.leading_zeros()).saturating_sub(STEP_BITS);
    value | ((1 << below) - 1)
}

/// Each doubling has 32 steps.
const STEP_BITS: u32 = 6;

fn at(histogram: &Histogram<u64>, quantile: f64) -> Value {
    us(histogram.value_at_quantile(quantile) as f64).into()
}

/// Nanoseconds as microseconds.
fn us(ns: f64) -> f64 {
    ns / 1e3
}

#[cfg(test)]
mod tests {
    use super::super::samples::{busy, empty};
    use super::*;

    const KEYS: [&str; 34] = [
        "backend",
        "baseline",
        "bytes_per_second",
        "bytes_read",
        "connecting",
        "connections",
        "cpu_seconds",
        "errors",
        "format",
        "goaways",
        "good",
        "histogram",
        "idle",
        "latency",
        "method",
        "over_time",
        "pipeline",
        "protocol",
        "rate",
        "redis",
        "refused",
        "requests",
        "requests_per_second",
        "seconds",
        "statuses",
        "streams",
        "stuck",
        "thread_rate",
        "threads",
        "total",
        "unanswered",
        "unsent",
        "url",
        "version",
    ];

    fn keys(value: &Value) -> Vec<&str> {
        let mut keys: Vec<_> = value.as_object().expect("an object").keys().map(String::as_str).collect();
        keys.sort_unstable();
        keys
    }

    #[test]
    fn every_key_is_present_in_full_and_in_empty_figures() {
        for figures in [busy(), empty()] {
            let value = json(&figures);
            assert_eq!(keys(&value), KEYS);
            assert_eq!(
                keys(&value["latency"]),
                ["corrected", "max", "mean", "percentiles", "stdev", "unit", "within_stdev"]
            );
            assert_eq!(keys(&value["latency"]["percentiles"]), ["50", "75", "90", "99", "99.9", "99.99"]);
            assert_eq!(keys(&value["thread_rate"]), ["max", "mean", "stdev", "within_stdev"]);
            assert_eq!(
                keys(&value["errors"]),
                ["closed", "connect", "invalid", "length", "read", "reply", "reset", "status", "timeout", "write"]
            );
            assert_eq!(keys(&value["idle"]), ["held", "lost", "requested"]);
            assert_eq!(keys(&value["cpu_seconds"]), ["system", "user"]);
            for interval in value["over_time"].as_array().expect("a list") {
                assert_eq!(keys(interval), ["latency_max", "latency_p50", "latency_p99", "requests", "seconds"]);
            }
        }
    }

    #[test]
    fn empty_figures_are_zeros_and_not_nulls() {
        let value = json(&empty());
        assert_eq!(value["requests_per_second"], 0.0);
        assert_eq!(value["latency"]["mean"], 0.0);
        assert_eq!(value["latency"]["percentiles"]["99.99"], 0.0);
        assert_eq!(value["thread_rate"]["within_stdev"], 0.0);
        assert_eq!(value["histogram"], json!([]));
        // LoadResults of options that were not given are null, as documented.
        assert!(value["rate"].is_null() && value["stuck"].is_null());
    }

    #[test]
    fn the_histogram_is_short_and_loses_nothing() {
        let figures = busy();
        let steps = coarse(&figures.latency);
        assert!(steps.len() < 500, "{}", steps.len());
        assert_eq!(steps.iter().map(|(_, count)| count).sum::<u64>(), figures.latency.len());
        assert!(steps.is_sorted_by(|(one, _), (next, _)| one < next));
        assert!(steps.last().expect("some").0 >= us(figures.latency.max() as f64));
    }

    #[test]
    fn a_step_ends_within_a_part_in_thirty_two() {
        for value in [0, 1, 31, 63, 64, 65, 1000, 123_456_789, u64::MAX] {
            let end = step_end(value);
            assert!(end >= value && end - value <= value / 32, "{value}: {end}");
        }
    }

    #[test]
    fn latency_is_marked_as_corrected_with_a_rate() {
        let mut figures = busy();
        assert_eq!(json(&figures)["latency"]["corrected"], false);
        figures.parameters.rate = Some(1000.0);
        assert_eq!(json(&figures)["latency"]["corrected"], true);
        assert_eq!(json(&figures)["rate"], 1000.0);
    }

    #[test]
    fn never_reading_connections_are_held_or_lost() {
        let mut figures = empty();
        figures.parameters.never_read = true;
        figures.stuck = HeldConnections { held: 997, lost: 3 };
        assert_eq!(json(&figures)["stuck"], json!({ "held": 997, "lost": 3 }));
    }
}
