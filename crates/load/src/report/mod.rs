//! The reports of `tidegate load`: `table.rs` in wrk's form, with statuses or commands by
//! `tallies.rs` and a comparison by `baseline.rs`, `json.rs` for programs, `page.rs` as HTML, and
//! `progress.rs` while the load runs. All show the same figures, which `variation.rs` and the functions below derive.

pub(crate) mod baseline;
mod chart;
mod charts;
mod human;
mod json;
mod live;
mod page;
pub(crate) mod progress;
mod scale;
mod table;
mod tallies;
pub mod units;
mod variation;

use std::thread::available_parallelism;

pub(crate) use self::json::json;
pub(crate) use self::page::page;
pub(crate) use self::table::table;
use super::results::{Errors, LoadResults};

/// The percentiles of the reports, with their keys in `--json`: wrk's four, and two more for the tail.
const PERCENTILES: [(&str, f64); 6] =
    [("50", 0.5), ("75", 0.75), ("90", 0.9), ("99", 0.99), ("99.9", 0.999), ("99.99", 0.9999)];

/// From this share of its cores on, the load generator was the bottleneck.
const BUSY: f64 = 0.95;

/// A number of things as a rate: zero in zero time.
fn per_second(number: u64, seconds: f64) -> f64 {
    if seconds > 0.0 { number as f64 / seconds } else { 0.0 }
}

/// A share between 0 and 1: zero of zero.
fn share(part: f64, whole: f64) -> f64 {
    if whole > 0.0 { part / whole } else { 0.0 }
}

/// The cores that the load generator used and could have used, if it was the bottleneck: the figures then measure the
/// load generator, and the server may be faster.
fn bottleneck(figures: &LoadResults) -> Option<(f64, usize)> {
    let cores = figures.parameters.threads.min(available_parallelism().map_or(usize::MAX, usize::from));
    let used = share((figures.cpu.user + figures.cpu.system).as_secs_f64(), figures.elapsed.as_secs_f64());
    (cores > 0 && used >= BUSY * cores as f64).then_some((used, cores))
}

/// The message if no good response came although connections sent requests. That may happen without an error of any
/// kind, if the load ended before the timeout of a request.
pub(crate) fn no_responses(figures: &LoadResults) -> Option<String> {
    let LoadResults { unanswered, connecting, .. } = *figures;
    if figures.good > 0 || figures.parameters.connections == 0 || figures.parameters.never_read {
        return None;
    }
    let under_way: Vec<_> = [
        (unanswered, "request was in flight", "requests were in flight"),
        (connecting, "connection attempt was in progress", "connection attempts were in progress"),
    ]
    .into_iter()
    .filter(|(count, ..)| *count > 0)
    .map(|(count, one, many)| format!("{count} {}", if count == 1 { one } else { many }))
    .collect();
    let mut message = "No successful response arrived".to_owned();
    if !under_way.is_empty() {
        message.push_str(&format!("; at the end {}", under_way.join(" and ")));
    }
    Some(message)
}

/// The errors by kind, with the names that all reports use.
fn errors_by_kind(errors: &Errors) -> [(&'static str, u64); 10] {
    let Errors { connect, read, write, timeout, status, length, invalid, closed, reset, reply } = *errors;
    [
        ("connect", connect),
        ("read", read),
        ("write", write),
        ("timeout", timeout),
        ("status", status),
        ("length", length),
        ("invalid", invalid),
        ("closed", closed),
        ("reset", reset),
        ("reply", reply),
    ]
}

#[cfg(test)]
mod samples;
