//! The figures as one self-contained HTML file, without scripts and other files. The template is `page.html`; the
//! charts come from `pictures.rs`.

use std::fmt::{self, Display, Write};

use super::chart::Escaped;
use super::pictures::{self, Picture};
use super::variation::Variation;
use super::{PERCENTILES, bottleneck, errors_by_kind, per_second, share, silence, words};
use crate::load::figures::Figures;

/// The output of `--html`.
pub(crate) fn page(figures: &Figures) -> String {
    fill(TEMPLATE, |name| match name {
        "url" => Escaped(&figures.asked.url).to_string(),
        "asked" => asked_line(figures),
        "tiles" => tiles(figures),
        "notes" => notes(figures),
        "charts" => pictures::all(figures).iter().map(figure).collect(),
        "errors" => errors(figures),
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
        let (name, after) = after.split_once("}}").expect("the template closes what it opens");
        page.push_str(before);
        page.push_str(&value(name));
        rest = after;
    }
    page.push_str(rest);
    page
}

/// The parameters of the load, in a line.
fn asked_line(figures: &Figures) -> String {
    let asked = &figures.asked;
    let mut line = format!(
        "{} over {}, {}",
        Escaped(&asked.method),
        some(asked.connections, "connection"),
        words::time(asked.duration.as_secs_f64() * 1e9)
    );
    if asked.pipeline > 1 {
        line.push_str(&format!(", {} requests deep", asked.pipeline));
    }
    if let Some(rate) = asked.rate {
        line.push_str(&format!(", {} a second", words::short(rate)));
    }
    line
}

/// The main figures.
fn tiles(figures: &Figures) -> String {
    let at = |quantile| words::time(figures.latency.value_at_quantile(quantile) as f64);
    let failed: u64 = errors_by_kind(&figures.errors).iter().map(|(_, count)| count).sum();
    [
        ("", "requests a second", words::short(per_second(figures.requests, figures.elapsed.as_secs_f64()))),
        ("", "median", at(0.5)),
        ("", "99%", at(0.99)),
        ("", "maximum", words::time(figures.latency.max() as f64)),
        (if failed > 0 { "bad" } else { "" }, "errors", words::count(failed)),
    ]
    .map(|(class, name, value)| format!("<div class=\"tile {class}\"><dt>{name}</dt><dd>{value}</dd></div>\n"))
    .concat()
}

/// Warnings that qualify the figures.
fn notes(figures: &Figures) -> String {
    let mut notes = String::new();
    let mut note = |text: fmt::Arguments<'_>| {
        writeln!(notes, "<p class=\"note\">{text}</p>").expect("a string takes everything");
    };
    if let Some(said) = silence(figures) {
        note(format_args!("{said}."));
    }
    if let Some((used, cores)) = bottleneck(figures) {
        let cores = some(cores, "core");
        note(format_args!("The load was the bottleneck: it used {used:.2} of {cores}. The server may be faster."));
    }
    if let Some(rate) = figures.asked.rate {
        let reached = per_second(figures.requests, figures.elapsed.as_secs_f64());
        let (percent, reached, rate) =
            (words::percent(share(reached, rate)), words::short(reached), words::short(rate));
        note(format_args!(
            "{reached} of {rate} requests a second were reached, {percent}. Latency counts from when a request was due, \
             so that a server that halts is not asked less (corrected for coordinated omission); what was not answered at \
             the end counts with what it had waited."
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
fn errors(figures: &Figures) -> String {
    let rows: Vec<_> = errors_by_kind(&figures.errors)
        .into_iter()
        .zip(ERRORS)
        .filter(|((_, count), _)| *count > 0)
        .map(|((_, count), what)| (what, words::count(count)))
        .collect();
    if rows.is_empty() { String::new() } else { table("Errors", "bad", &rows) }
}

fn latency(figures: &Figures) -> Vec<(String, String)> {
    let latency = &figures.latency;
    let spread = Variation::of_histogram(latency);
    let at =
        |(name, quantile): (&str, f64)| (format!("{name}%"), words::time(latency.value_at_quantile(quantile) as f64));
    let mut rows = vec![("minimum".to_owned(), words::time(latency.min() as f64))];
    rows.extend(PERCENTILES.map(at));
    rows.extend([
        ("maximum".to_owned(), words::time(spread.max)),
        ("mean".to_owned(), words::time(spread.mean)),
        ("standard deviation".to_owned(), words::time(spread.stdev)),
        ("within one of the mean".to_owned(), words::percent(spread.within_stdev)),
    ]);
    rows
}

fn load(figures: &Figures) -> Vec<(&'static str, String)> {
    let asked = &figures.asked;
    let seconds = figures.elapsed.as_secs_f64();
    let (user, system) = (figures.cpu.user.as_secs_f64(), figures.cpu.system.as_secs_f64());
    let mut rows = vec![
        ("answers", words::count(figures.requests)),
        ("time", format!("{seconds:.2} s")),
        ("received", words::bytes(figures.bytes_read as f64)),
        ("received a second", words::bytes(per_second(figures.bytes_read, seconds))),
        ("connections", words::count(asked.connections as u64)),
        ("pipelined", words::count(asked.pipeline as u64)),
        ("threads", words::count(asked.threads as u64)),
        ("backend", asked.backend.to_owned()),
        ("CPU of the load, user", format!("{user:.2} s")),
        ("CPU of the load, system", format!("{system:.2} s")),
    ];
    if asked.idle > 0 {
        rows.push(("idle connections asked for", words::count(asked.idle as u64)));
        rows.push(("idle connections held", words::count(figures.idle.held)));
        rows.push(("idle connections lost", words::count(figures.idle.lost)));
    }
    if asked.never_read {
        rows.push(("never read and held", words::count(figures.stuck.held)));
        rows.push(("never read and lost", words::count(figures.stuck.lost)));
    }
    rows
}

fn table<T: Display>(title: &str, class: &str, rows: &[(T, String)]) -> String {
    let rows: String =
        rows.iter().map(|(name, value)| format!("<tr><th scope=\"row\">{name}</th><td>{value}</td></tr>\n")).collect();
    format!("<section class=\"{class}\">\n<h2>{title}</h2>\n<table>\n{rows}</table>\n</section>\n")
}

fn some(count: usize, thing: &str) -> String {
    let number = words::count(count as u64);
    if count == 1 { format!("{number} {thing}") } else { format!("{number} {thing}s") }
}

const TEMPLATE: &str = include_str!("page.html");

/// Descriptions of the errors, in the order of [`errors_by_kind`].
const ERRORS: [&str; 8] = [
    "connections that could not be made",
    "connections that broke while an answer was awaited",
    "requests that could not be sent",
    "requests that were not answered in time",
    "answers with a status other than 2xx and 3xx",
    "answers of another length than the first",
    "connections on which no HTTP/1.1 came",
    "connections that were closed although answers were owed",
];

#[cfg(test)]
mod tests;
