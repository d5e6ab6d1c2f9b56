//! The figures as one self-contained HTML file, without scripts and other files. The template is `page.html`; the
//! charts come from `charts.rs`.

use std::fmt::{self, Display, Write};

use super::chart::EscapedText;
use super::charts::{self, Picture};
use super::variation::Variation;
use super::{PERCENTILES, bottleneck, comparison, errors_by_kind, human, no_responses, per_second, share, tallies};
use crate::results::{LoadResults, Protocol};

/// The output of `--html`.
pub(crate) fn page(figures: &LoadResults) -> String {
    fill(TEMPLATE, |name| match name {
        "url" => EscapedText(&figures.parameters.url).to_string(),
        "parameters" => parameters_line(figures),
        "tiles" => tiles(figures),
        "notes" => notes(figures),
        "charts" => charts::all(figures).iter().map(figure).collect(),
        "errors" => errors(figures),
        "comparison" => compared(figures),
        "tallies" => tally(figures),
        "latency" => table("Latency", "", &latency(figures)),
        "load" => table("Load", "", &load(figures)),
        "version" => env!("CARGO_PKG_VERSION").to_owned(),
        _ => unreachable!("{name} is not in the template"),
    })
}

/// Replaces each `{{name}}` of the template, in one pass: replacements are not expanded again.
fn fill(template: &str, value: impl Fn(&str) -> String) -> String {
    let mut page = String::with_capacity(64 * 1024);
    let mut rest = template;
    while let Some((before, after)) = rest.split_once("{{") {
        let (name, after) = after.split_once("}}").expect("the template closes each placeholder");
        page.push_str(before);
        page.push_str(&value(name));
        rest = after;
    }
    page.push_str(rest);
    page
}

/// The parameters of the load, in a line.
fn parameters_line(figures: &LoadResults) -> String {
    let parameters = &figures.parameters;
    let (sent, what) = match parameters.protocol {
        Protocol::Redis if parameters.subscribers > 0 => ("messages", "Published messages"),
        Protocol::Redis => ("commands", "Commands of Redis"),
        Protocol::Http | Protocol::WebSocket => ("requests", &*parameters.method),
    };
    let length = match parameters.total {
        Some(total) => format!("{} requests", human::count(total)),
        None => human::time(parameters.duration.as_secs_f64() * 1e9),
    };
    let mut line = format!("{} over {}, {length}", EscapedText(what), some(parameters.connections, "connection"));
    if parameters.subscribers > 0 {
        line.push_str(&format!(", to {}", some(parameters.subscribers, "subscriber")));
    }
    if parameters.pipeline > 1 {
        line.push_str(&format!(", {} {sent} deep", parameters.pipeline));
    }
    if let Some(streams) = parameters.streams {
        let version = parameters.version.name();
        line.push_str(&format!(", {} of {version} on each", some(streams as usize, "stream")));
    }
    if let Some(rate) = parameters.rate {
        line.push_str(&format!(", {} a second", human::short(rate)));
    }
    line
}

/// The main figures.
fn tiles(figures: &LoadResults) -> String {
    let at = |quantile| human::time(figures.latency.value_at_quantile(quantile) as f64);
    let failed: u64 = errors_by_kind(&figures.errors).iter().map(|(_, count)| count).sum();
    let rate = match figures.parameters.protocol {
        Protocol::Redis if figures.parameters.subscribers > 0 => "deliveries a second",
        Protocol::Redis => "commands a second",
        Protocol::Http | Protocol::WebSocket => "requests a second",
    };
    [
        ("", rate, human::short(per_second(figures.requests, figures.elapsed.as_secs_f64()))),
        ("", "median", at(0.5)),
        ("", "99%", at(0.99)),
        ("", "maximum", human::time(figures.latency.max() as f64)),
        (if failed > 0 { "bad" } else { "" }, "errors", human::count(failed)),
    ]
    .map(|(class, name, value)| format!("<div class=\"tile {class}\"><dt>{name}</dt><dd>{value}</dd></div>\n"))
    .concat()
}

/// Warnings that qualify the figures.
fn notes(figures: &LoadResults) -> String {
    let mut notes = String::new();
    let mut note = |text: fmt::Arguments<'_>| {
        writeln!(notes, "<p class=\"note\">{text}</p>").expect("a string takes everything");
    };
    if let Some(message) = no_responses(figures) {
        note(format_args!("{message}."));
    }
    if let Some(deliveries) = tallies::deliveries(figures) {
        note(format_args!("{deliveries}."));
    }
    if let Some((used, cores)) = bottleneck(figures) {
        let cores = some(cores, "core");
        note(format_args!("The load was the bottleneck: it used {used:.2} of {cores}. The server may be faster."));
    }
    // The deliveries of a rate of messages are in the note above.
    if let Some(rate) = figures.parameters.rate.filter(|_| figures.parameters.subscribers == 0) {
        let reached = per_second(figures.requests, figures.elapsed.as_secs_f64());
        let (percent, reached, rate) =
            (human::percent(share(reached, rate)), human::short(reached), human::short(rate));
        note(format_args!(
            "{reached} of {rate} requests a second were reached, {percent}. Latency starts at the scheduled send time, \
             unanswered requests included (corrected for coordinated omission)."
        ));
    }
    notes
}

fn figure(picture: &Picture) -> String {
    let Picture { title, legend, svg } = picture;
    let key = |(class, name): &(&str, &str)| format!("<span class=\"key {class}\">{name}</span>");
    let legend: String = legend.iter().map(key).collect();
    let svg = svg.as_deref().unwrap_or("<p class=\"none\">Nothing to show.</p>");
    format!("<figure>\n<figcaption><h2>{title}</h2>{legend}</figcaption>\n{svg}\n</figure>\n")
}

/// The table of errors, empty if there are none.
fn errors(figures: &LoadResults) -> String {
    let rows: Vec<_> = errors_by_kind(&figures.errors)
        .into_iter()
        .zip(ERRORS)
        .filter(|((_, count), _)| *count > 0)
        .map(|((_, count), what)| (what, human::count(count)))
        .collect();
    let replies = figures.redis.errors.0.iter();
    let replies = replies.map(|(_, (count, text))| (EscapedText(text).to_string(), human::count(*count)));
    let rows: Vec<_> = rows.into_iter().map(|(what, count)| (what.to_owned(), count)).chain(replies).collect();
    if rows.is_empty() { String::new() } else { table("Errors", "bad", &rows) }
}

/// The comparison with a baseline, empty if there is none.
fn compared(figures: &LoadResults) -> String {
    let Some(baseline) = &figures.baseline else { return String::new() };
    let rows = comparison::comparisons(baseline, figures).into_iter().map(|one| {
        let [before, now, ratio] = one.shown();
        format!("<tr><th scope=\"row\">{}</th><td>{before}</td><td>{now}</td><td>{ratio}</td></tr>\n", one.name)
    });
    format!(
        "<section class=\"wide\">\n<h2>Compared with {}</h2>\n<p>{}</p>\n<table>\n<tr><th></th><td>before</td>\
         <td>now</td><td>ratio</td></tr>\n{}</table>\n</section>\n",
        EscapedText(&baseline.name),
        EscapedText(&comparison::verdict(baseline, figures)),
        rows.collect::<String>()
    )
}

/// The table of statuses or commands, empty if there are none.
fn tally(figures: &LoadResults) -> String {
    let title = if figures.parameters.protocol == Protocol::Redis { "Commands" } else { "Responses by status" };
    let rows = tallies::rows(figures).into_iter().map(|(name, count)| (EscapedText(&name).to_string(), count));
    let rows: Vec<_> = rows.collect();
    if rows.is_empty() { String::new() } else { table(title, "wide", &rows) }
}

fn latency(figures: &LoadResults) -> Vec<(String, String)> {
    let latency = &figures.latency;
    let spread = Variation::of_histogram(latency);
    let at =
        |(name, quantile): (&str, f64)| (format!("{name}%"), human::time(latency.value_at_quantile(quantile) as f64));
    let mut rows = vec![("minimum".to_owned(), human::time(latency.min() as f64))];
    rows.extend(PERCENTILES.map(at));
    rows.extend([
        ("maximum".to_owned(), human::time(spread.max)),
        ("mean".to_owned(), human::time(spread.mean)),
        ("standard deviation".to_owned(), human::time(spread.stdev)),
        ("within one of the mean".to_owned(), human::percent(spread.within_stdev)),
    ]);
    rows
}

fn load(figures: &LoadResults) -> Vec<(&'static str, String)> {
    let parameters = &figures.parameters;
    let seconds = figures.elapsed.as_secs_f64();
    let (user, system) = (figures.cpu.user.as_secs_f64(), figures.cpu.system.as_secs_f64());
    let mut rows = vec![
        ("responses", human::count(figures.requests)),
        ("time", format!("{seconds:.2} s")),
        ("received", human::bytes(figures.bytes_read as f64)),
        ("received a second", human::bytes(per_second(figures.bytes_read, seconds))),
        ("connections", human::count(parameters.connections as u64)),
        ("pipelined", human::count(parameters.pipeline as u64)),
        ("threads", human::count(parameters.threads as u64)),
        ("backend", parameters.backend.to_owned()),
        ("CPU of the load, user", format!("{user:.2} s")),
        ("CPU of the load, system", format!("{system:.2} s")),
    ];
    if parameters.protocol == Protocol::Redis {
        rows.push(("protocol", tallies::version(figures).to_owned()));
    }
    if parameters.idle > 0 {
        rows.push(("idle connections requested", human::count(parameters.idle as u64)));
        rows.push(("idle connections held", human::count(figures.idle.held)));
        rows.push(("idle connections lost", human::count(figures.idle.lost)));
    }
    if parameters.never_read {
        rows.push(("never read and held", human::count(figures.stuck.held)));
        rows.push(("never read and lost", human::count(figures.stuck.lost)));
    }
    rows
}

fn table<T: Display>(title: &str, class: &str, rows: &[(T, String)]) -> String {
    let rows: String =
        rows.iter().map(|(name, value)| format!("<tr><th scope=\"row\">{name}</th><td>{value}</td></tr>\n")).collect();
    format!("<section class=\"{class}\">\n<h2>{title}</h2>\n<table>\n{rows}</table>\n</section>\n")
}

fn some(count: usize, thing: &str) -> String {
    let number = human::count(count as u64);
    if count == 1 { format!("{number} {thing}") } else { format!("{number} {thing}s") }
}

const TEMPLATE: &str = include_str!("page.html");

/// Descriptions of the errors, in the order of [`errors_by_kind`].
const ERRORS: [&str; 10] = [
    "connections that could not be established",
    "connections that broke while a response was outstanding",
    "requests that could not be sent",
    "requests without a response within the timeout",
    "responses with a status other than 2xx and 3xx",
    "responses whose length differs from the first",
    "connections that received no valid response",
    "connections that the server closed with responses outstanding",
    "streams that the server reset",
    "error replies",
];

#[cfg(test)]
mod tests;
