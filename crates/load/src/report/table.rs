//! The figures as `wrk --latency` prints them, to the column, so that parsers of wrk's output accept ours. LoadResults that
//! wrk lacks follow below.

use std::fmt::{self, Write};

use super::variation::Variation;
use super::{PERCENTILES, bottleneck, comparison, errors_by_kind, no_responses, per_second, share, tallies, units};
use crate::results::{LoadResults, Protocol};

/// The table, with the latency distribution if `latency` is set, and a newline at the end.
pub(crate) fn table(figures: &LoadResults, latency: bool) -> String {
    let mut text = String::with_capacity(1024);
    as_wrk(&mut text, figures, latency).expect("a string takes everything");
    below(&mut text, figures).expect("a string takes everything");
    text
}

/// The part that wrk prints too.
fn as_wrk(text: &mut String, figures: &LoadResults, latency: bool) -> fmt::Result {
    let parameters = &figures.parameters;
    match parameters.total {
        Some(1) => writeln!(text, "Running a test of 1 request @ {}", parameters.url)?,
        Some(total) => writeln!(text, "Running a test of {total} requests @ {}", parameters.url)?,
        None => {
            let duration = units::whole_time(parameters.duration.as_secs_f64());
            writeln!(text, "Running {duration} test @ {}", parameters.url)?;
        }
    }
    writeln!(text, "  {} threads and {} connections", parameters.threads, parameters.connections)?;
    writeln!(text, "  Thread Stats   Avg      Stdev     Max   +/- Stdev")?;
    spread_line(text, "Latency", &Variation::of_histogram(&figures.latency), units::time)?;
    spread_line(text, "Req/Sec", &Variation::of_sample(&figures.thread_rates), units::metric)?;
    if latency {
        writeln!(text, "  Latency Distribution")?;
        for (name, quantile) in PERCENTILES {
            let value = units::time(figures.latency.value_at_quantile(quantile) as f64);
            writeln!(text, "{name:>7}%{}", aligned(&value, 10))?;
        }
    }
    let seconds = figures.elapsed.as_secs_f64();
    let (elapsed, read) = (units::time(seconds * 1e9), units::binary(figures.bytes_read as f64));
    writeln!(text, "  {} requests in {elapsed}, {read}B read", figures.requests)?;
    let [connect, read, write, timeout, status, ..] = errors_by_kind(&figures.errors).map(|(_, count)| count);
    if connect + read + write + timeout > 0 {
        writeln!(text, "  Socket errors: connect {connect}, read {read}, write {write}, timeout {timeout}")?;
    }
    if status > 0 {
        writeln!(text, "  Non-2xx or 3xx responses: {status}")?;
    }
    writeln!(text, "Requests/sec: {:9.2}", per_second(figures.requests, seconds))?;
    writeln!(text, "Transfer/sec: {:>10}B", units::binary(per_second(figures.bytes_read, seconds)))
}

/// The part that wrk lacks. Lines without information are left out.
fn below(text: &mut String, figures: &LoadResults) -> fmt::Result {
    if let Some(message) = no_responses(figures) {
        writeln!(text, "{message}")?;
    }
    unit_of_requests(text, figures)?;
    tallies::write(text, figures)?;
    let [.., length, invalid, closed, reset, _] = errors_by_kind(&figures.errors).map(|(_, count)| count);
    if length + invalid + closed > 0 {
        writeln!(text, "Other errors: length {length}, invalid {invalid}, closed {closed}")?;
    }
    let parameters = &figures.parameters;
    if let Some(streams) = parameters.streams {
        let (version, refused, goaways) = (parameters.version.name(), figures.refused, figures.goaways);
        write!(text, "{version}: {streams} streams on each connection, {reset} reset, {goaways} GOAWAY")?;
        match refused {
            0 => writeln!(text)?,
            _ => writeln!(text, ", {} not processed and sent again", super::human::count(refused))?,
        }
    }
    let stuck = if parameters.never_read { parameters.connections } else { 0 };
    for (name, of, counted) in
        [("Idle connections", parameters.idle, figures.idle), ("Connections never read", stuck, figures.stuck)]
    {
        if of > 0 {
            writeln!(text, "{name}: held {} of {of}, lost {}", counted.held, counted.lost)?;
        }
    }
    if let Some(rate) = figures.parameters.rate {
        // Each message is delivered to all subscribers.
        let rate = rate * parameters.subscribers.max(1) as f64;
        let reached = per_second(figures.requests, figures.elapsed.as_secs_f64());
        let percent = 100.0 * share(reached, rate);
        writeln!(
            text,
            "Rate: {reached:.2} of {rate:.2} requested ({percent:.1}%), {} due and not sent",
            figures.unsent
        )?;
        let latency = if parameters.subscribers > 0 {
            "Latency counts from the sending of a message to its delivery"
        } else {
            "Latency counts from when a request was due (corrected for coordinated omission)"
        };
        writeln!(text, "{latency}")?;
    }
    if let Some((used, cores)) = bottleneck(figures) {
        let cores = if cores == 1 { "1 core".to_owned() } else { format!("{cores} cores") };
        writeln!(text, "The load was the bottleneck: it used {used:.2} of {cores}; the server may be faster")?;
    }
    comparison::write(text, figures)
}

/// The unit of the requests of other protocols than HTTP.
fn unit_of_requests(text: &mut String, figures: &LoadResults) -> fmt::Result {
    match figures.parameters.protocol {
        Protocol::Redis => match tallies::deliveries(figures) {
            Some(deliveries) => {
                writeln!(text, "Requests are deliveries ({}): {deliveries}", tallies::version(figures))?;
            }
            None => writeln!(text, "Requests are commands of Redis ({})", tallies::version(figures))?,
        },
        Protocol::WebSocket if figures.parameters.broadcast => {
            writeln!(text, "Requests are deliveries of messages to the connections; each was sent once")?;
        }
        Protocol::WebSocket => writeln!(text, "Requests are messages of a WebSocket that came back")?,
        Protocol::Http => {}
    }
    Ok(())
}

/// One of the two lines below `Thread Stats`.
fn spread_line(text: &mut String, name: &str, spread: &Variation, unit: fn(f64) -> String) -> fmt::Result {
    let Variation { mean, stdev, max, within_stdev } = *spread;
    let [mean, stdev, max] = [(mean, 8), (stdev, 10), (max, 9)].map(|(value, width)| aligned(&unit(value), width));
    writeln!(text, "    {name:<10}{mean}{stdev}{max}{:8.2}%", 100.0 * within_stdev)
}

/// Right-aligned by the last digit: units shorter than two letters are padded with spaces.
fn aligned(value: &str, width: usize) -> String {
    let letters = value.bytes().rev().take(2).take_while(u8::is_ascii_alphabetic).count();
    let pad = 2 - letters;
    format!("{value:>width$}{:pad$}", "", width = width - pad)
}

#[cfg(test)]
mod tests;
