//! `MetricsText`: metrics as text, in the format of Prometheus (0.0.4) or of OpenMetrics (1.0).

use std::fmt::{self, Display, Write as _};
use std::time::Duration;

use crate::exemplars::Exemplar;

/// A format of metrics as text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Format {
    /// The text format of Prometheus, version 0.0.4.
    #[default]
    Prometheus,
    /// OpenMetrics, version 1.0.
    OpenMetrics,
}

impl Format {
    /// The format for a request with this `Accept` field (RFC 9110 §12.5.1): OpenMetrics only if it is named, and
    /// wanted at least as much as plain text.
    ///
    /// ```
    /// use tidegate::metrics::Format;
    ///
    /// assert_eq!(Format::negotiate("*/*"), Format::Prometheus);
    /// assert_eq!(Format::negotiate("application/openmetrics-text;q=0.6, text/plain;q=0.3"), Format::OpenMetrics);
    /// ```
    #[must_use]
    pub fn negotiate(accept: &str) -> Self {
        let (mut open, mut plain) = (0.0_f32, 0.0_f32);
        for range in accept.split(',') {
            let mut parts = range.split(';').map(str::trim);
            let name = parts.next().unwrap_or_default().to_ascii_lowercase();
            let weight = parts.find_map(|part| part.strip_prefix("q=").or_else(|| part.strip_prefix("Q=")));
            let weight = weight.map_or(1.0, |weight| weight.parse::<f32>().unwrap_or(0.0)).clamp(0.0, 1.0);
            match name.as_str() {
                "application/openmetrics-text" => open = open.max(weight),
                "text/plain" | "text/*" => plain = plain.max(weight),
                _ => {}
            }
        }
        if open > 0.0 && open >= plain { Self::OpenMetrics } else { Self::Prometheus }
    }

    /// The media type of the text.
    #[must_use]
    pub const fn content_type(self) -> &'static str {
        match self {
            Self::Prometheus => "text/plain; version=0.0.4; charset=utf-8",
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }
}

/// The kind of a metric.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A number that only grows. Its samples are named with `_total`.
    Counter,
    /// A number that goes up and down.
    Gauge,
    /// Numbers of events by how long they took.
    Histogram,
}

/// Metrics as text, family by family.
///
/// ```
/// use tidegate::metrics::{Format, Kind, MetricsText};
///
/// let mut text = MetricsText::new(Format::Prometheus);
/// text.family("tides", Kind::Counter, "Tides that came in.");
/// text.sample(&[("harbour", "Brest \"old\"")], 7);
/// assert_eq!(text.finish(), "# HELP tides_total Tides that came in.\n# TYPE tides_total counter\n\
///     tides_total{harbour=\"Brest \\\"old\\\"\"} 7\n");
/// ```
#[derive(Debug)]
pub struct MetricsText {
    format: Format,
    text: String,
    name: String,
    kind: Kind,
}

impl MetricsText {
    /// An empty text.
    #[must_use]
    pub fn new(format: Format) -> Self {
        Self { format, text: String::new(), name: String::new(), kind: Kind::Gauge }
    }

    /// Begins a family: all its samples follow. `name` is without `_total`, and has only characters that Prometheus
    /// allows.
    pub fn family(&mut self, name: &str, kind: Kind, help: &str) {
        self.name.clear();
        self.name.push_str(name);
        self.kind = kind;
        let (suffix, kind) = match kind {
            // OpenMetrics names the family without the suffix of its samples.
            Kind::Counter if self.format == Format::Prometheus => ("_total", "counter"),
            Kind::Counter => ("", "counter"),
            Kind::Gauge => ("", "gauge"),
            Kind::Histogram => ("", "histogram"),
        };
        let help = help.replace('\\', "\\\\").replace('\n', "\\n");
        let _ = writeln!(self.text, "# HELP {name}{suffix} {help}\n# TYPE {name}{suffix} {kind}");
    }

    /// A sample of a counter or a gauge.
    pub fn sample(&mut self, labels: &[(&str, &str)], value: impl Display) {
        let suffix = if self.kind == Kind::Counter { "_total" } else { "" };
        self.line(suffix, labels, None, value);
    }

    /// A sample of a gauge that may be infinite, or no number.
    pub fn number(&mut self, labels: &[(&str, &str)], value: f64) {
        self.sample(labels, Number(value));
    }

    /// A histogram of any numbers: the inclusive upper bounds of its buckets, of which the last is `None`, each with its
    /// number of events.
    pub fn numbers(&mut self, labels: &[(&str, &str)], buckets: impl Iterator<Item = (Option<f64>, u64)>, sum: f64) {
        let mut count = 0_u64;
        for (bound, events) in buckets {
            count = count.wrapping_add(events);
            let bound = bound.map_or_else(|| "+Inf".to_owned(), |bound| bound.to_string());
            self.line("_bucket", labels, Some(&bound), count);
        }
        self.line("_sum", labels, None, Number(sum));
        self.line("_count", labels, None, count);
    }

    /// A histogram of times: the bounds of its buckets, each with its number of events; `shows` says which bounds are written.
    /// The number of a bound that is not is part of the next.
    pub fn histogram(
        &mut self,
        labels: &[(&str, &str)],
        buckets: impl Iterator<Item = (Option<Duration>, u64)>,
        sum: Duration,
        shows: impl Fn(usize) -> bool,
    ) {
        self.histogram_with(labels, buckets, sum, shows, |_| None);
    }

    /// The same with exemplars, which OpenMetrics alone has: `exemplar` is asked for the bucket of each bound that is
    /// written, and for the last one.
    pub fn histogram_with(
        &mut self,
        labels: &[(&str, &str)],
        buckets: impl Iterator<Item = (Option<Duration>, u64)>,
        sum: Duration,
        shows: impl Fn(usize) -> bool,
        exemplar: impl Fn(usize) -> Option<Exemplar>,
    ) {
        let has_exemplars = self.format == Format::OpenMetrics;
        let exemplar = |at| if has_exemplars { exemplar(at) } else { None };
        let mut last = 0;
        let mut count = 0_u64;
        for (at, (bound, events)) in buckets.enumerate() {
            count += events;
            last = at;
            if let Some(bound) = bound.filter(|_| shows(at)) {
                self.bucket(labels, &bound.as_secs_f64().to_string(), count, exemplar(at));
            }
        }
        self.bucket(labels, "+Inf", count, exemplar(last));
        self.line("_sum", labels, None, sum.as_secs_f64());
        self.line("_count", labels, None, count);
    }

    fn bucket(&mut self, labels: &[(&str, &str)], bound: &str, count: u64, exemplar: Option<Exemplar>) {
        self.line("_bucket", labels, Some(bound), count);
        if let Some(exemplar) = exemplar {
            // Behind the value, on the same line.
            self.text.pop();
            exemplar.write(&mut self.text);
            self.text.push('\n');
        }
    }

    fn line(&mut self, suffix: &str, labels: &[(&str, &str)], bound: Option<&str>, value: impl Display) {
        self.text.push_str(&self.name);
        self.text.push_str(suffix);
        let mut before = '{';
        for (name, value) in labels.iter().copied().chain(bound.map(|bound| ("le", bound))) {
            self.text.push(before);
            before = ',';
            self.text.push_str(name);
            self.text.push_str("=\"");
            escape(&mut self.text, value);
            self.text.push('"');
        }
        if before == ',' {
            self.text.push('}');
        }
        let _ = writeln!(self.text, " {value}");
    }

    /// The format.
    #[must_use]
    pub fn format(&self) -> Format {
        self.format
    }

    /// The whole text.
    #[must_use]
    pub fn finish(mut self) -> String {
        if self.format == Format::OpenMetrics {
            self.text.push_str("# EOF\n");
        }
        self.text
    }
}

/// A number as both formats have it.
struct Number(f64);

impl Display for Number {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            f64::INFINITY => f.write_str("+Inf"),
            f64::NEG_INFINITY => f.write_str("-Inf"),
            // Rust writes `NaN` as these formats do.
            number => number.fmt(f),
        }
    }
}

/// The value of a label, between its quotes.
fn escape(text: &mut String, value: &str) {
    for letter in value.chars() {
        match letter {
            '\\' => text.push_str("\\\\"),
            '"' => text.push_str("\\\""),
            '\n' => text.push_str("\\n"),
            _ => text.push(letter),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_label_cannot_end_its_quotes_or_its_line() {
        let mut text = MetricsText::new(Format::Prometheus);
        text.family("a", Kind::Gauge, "b\\\nc");
        text.sample(&[("d", "e\"} 1\nf\\")], 2);
        assert_eq!(text.finish(), "# HELP a b\\\\\\nc\n# TYPE a gauge\na{d=\"e\\\"} 1\\nf\\\\\"} 2\n");
    }

    #[test]
    fn the_buckets_of_a_histogram_are_sums() {
        let mut text = MetricsText::new(Format::OpenMetrics);
        text.family("h_seconds", Kind::Histogram, "h");
        let buckets = [(Some(Duration::from_millis(1)), 1), (Some(Duration::from_millis(2)), 2), (None, 3)];
        text.histogram(&[("r", "/")], buckets.into_iter(), Duration::from_secs(1), |at| at == 1);
        let lines = "h_seconds_bucket{r=\"/\",le=\"0.002\"} 3\nh_seconds_bucket{r=\"/\",le=\"+Inf\"} 6\n\
            h_seconds_sum{r=\"/\"} 1\nh_seconds_count{r=\"/\"} 6\n# EOF\n";
        assert!(text.finish().ends_with(lines));
    }

    #[test]
    fn the_format_is_the_one_that_the_scraper_wants_more() {
        let prometheus = "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,\
            application/openmetrics-text;version=0.0.1;q=0.5,text/plain;version=0.0.4;q=0.3,*/*;q=0.2";
        for (accept, format) in [
            (prometheus, Format::OpenMetrics),
            ("", Format::Prometheus),
            ("application/openmetrics-text", Format::OpenMetrics),
            ("application/openmetrics-text;q=0", Format::Prometheus),
            ("application/openmetrics-text;q=x", Format::Prometheus),
            ("text/plain, application/openmetrics-text;q=0.5", Format::Prometheus),
            ("text/html", Format::Prometheus),
            (";;,,q=,", Format::Prometheus),
        ] {
            assert_eq!(Format::negotiate(accept), format, "{accept}");
        }
    }
}
