//! The results of the experiment: a table of medians, and the same in wrk's form with the figures published in 2014.

use std::fmt::{self, Write};
use std::time::Duration;

use serde_json::{Value, json};

use super::load::{Load, SampleStats};
use super::probe::Probe;
use super::programs::Origin;
use tidegate_load::units;

/// The results and the parameters of the experiment.
pub(crate) struct Report {
    pub(crate) duration: Duration,
    pub(crate) depth: u32,
    pub(crate) connections: u32,
    pub(crate) designs: Vec<Design>,
}

/// One of the queues.
pub(crate) struct Design {
    pub(crate) name: &'static str,
    pub(crate) origin: Origin,
    pub(crate) probe: Option<Probe>,
    pub(crate) rounds: Vec<Round>,
}

/// One run of its server.
pub(crate) struct Round {
    /// The backend that the server reports.
    pub(crate) backend: String,
    /// CPU seconds of the server in user space and in the kernel, if the kernel provides them.
    pub(crate) user: Option<f64>,
    pub(crate) system: Option<f64>,
    pub(crate) load: Load,
}

impl Round {
    fn per_million(&self, seconds: Option<f64>) -> Option<f64> {
        seconds.filter(|_| self.load.requests > 0.0).map(|seconds| seconds / self.load.requests * 1e6)
    }
}

impl Design {
    /// The run with the median rate; the slower of the middle two if their number is even.
    fn median_round(&self) -> Option<&Round> {
        let mut rounds: Vec<_> = self.rounds.iter().collect();
        rounds.sort_by(|one, two| one.load.requests_per_second.total_cmp(&two.load.requests_per_second));
        rounds.get(rounds.len().saturating_sub(1) / 2).copied()
    }
}

/// The name of a figure, the figure of a run, and its format.
type Row = (&'static str, fn(&Round) -> Option<f64>, fn(f64) -> String);

/// The figures of each run in the table.
const ROWS: [Row; 7] = [
    ("requests per second", |round| Some(round.load.requests_per_second), |number| format!("{number:.0}")),
    (
        "CPU seconds per million",
        |round| round.per_million(round.user.zip(round.system).map(|(user, system)| user + system)),
        |number| format!("{number:.3}"),
    ),
    ("of these user", |round| round.per_million(round.user), |number| format!("{number:.3}")),
    ("of these system", |round| round.per_million(round.system), |number| format!("{number:.3}")),
    ("latency, average", |round| Some(round.load.latency.mean), time),
    ("latency, deviation", |round| Some(round.load.latency.stdev), time),
    ("latency, maximum", |round| Some(round.load.latency.max), time),
];

impl Report {
    /// The backends of the servers, without duplicates.
    fn backend(&self) -> String {
        let mut names: Vec<_> =
            self.designs.iter().flat_map(|design| &design.rounds).map(|round| &*round.backend).collect();
        names.sort_unstable();
        names.dedup();
        names.join(" and ")
    }

    /// For people.
    pub(crate) fn text(&self) -> String {
        let mut text = String::new();
        self.write(&mut text).expect("a string takes everything");
        text
    }

    fn write(&self, text: &mut String) -> fmt::Result {
        let Self { connections, depth, duration, designs } = self;
        let backend = self.backend();
        let rounds = designs.first().map_or(0, |design| design.rounds.len());
        writeln!(
            text,
            "GET /plaintext, {connections} connections, {depth} requests at a time, {} s, backend {backend}; rounds: {rounds}, \
             of which the medians, and in brackets the least and the most",
            duration.as_secs_f64()
        )?;
        let origins: Vec<_> = designs.iter().map(|design| format!("{}: {}", design.name, design.origin)).collect();
        writeln!(text, "{}\n", origins.join("; "))?;
        self.row(text, "", |design| design.name.to_owned())?;
        writeln!(text, "|---|{}", "--:|".repeat(designs.len()))?;
        for (name, of, show) in ROWS {
            self.row(text, name, |design| with_range(design.rounds.iter().filter_map(of).collect(), show))?;
        }
        for (place, what) in [(1, "idle"), (2, "in the burst")] {
            let counts = designs.iter().find_map(|design| design.probe.as_ref()).map_or(&[][..], |probe| &probe.bytes);
            for (index, [connections, ..]) in counts.iter().enumerate() {
                let name = format!("bytes of queue each, {what}, connections: {connections}");
                self.row(text, &name, |design| {
                    of_probe(design, |probe| probe.bytes.get(index).map(|bytes| bytes[place].to_string()))
                })?;
            }
        }
        self.row(text, "allocations per request", |design| {
            of_probe(design, |probe| Some(format!("{:.3}", probe.allocations_per_request)))
        })?;
        self.row(text, "instructions per response, of the queue alone", |design| {
            of_probe(design, |probe| probe.instructions_per_response.map(|count| count.to_string()))
        })?;
        writeln!(text, "\nAs wrk would print it, of the run with the median rate, or of the one below it:")?;
        for design in designs {
            if let Some(round) = design.median_round() {
                as_wrk(text, design.name, &round.load)?;
            }
        }
        text.push_str(PUBLISHED);
        Ok(())
    }

    fn row(&self, text: &mut String, name: &str, of: impl Fn(&Design) -> String) -> fmt::Result {
        write!(text, "| {name} |")?;
        for design in &self.designs {
            write!(text, " {} |", of(design))?;
        }
        writeln!(text)
    }

    /// For programs. Latencies are in microseconds, CPU times in seconds.
    pub(crate) fn json(&self) -> Value {
        let round = |round: &Round| {
            json!({
                "backend": round.backend,
                "user": round.user,
                "system": round.system,
                "load": round.load.all,
            })
        };
        let design = |design: &Design| {
            json!({
                "design": design.name,
                "program": design.origin.to_string(),
                "probe": design.probe.as_ref().map(|probe| &probe.all),
                "rounds": design.rounds.iter().map(round).collect::<Vec<_>>(),
            })
        };
        json!({
            "backend": self.backend(),
            "seconds": self.duration.as_secs_f64(),
            "depth": self.depth,
            "connections": self.connections,
            "designs": self.designs.iter().map(design).collect::<Vec<_>>(),
        })
    }
}

fn of_probe(design: &Design, of: impl Fn(&Probe) -> Option<String>) -> String {
    design.probe.as_ref().and_then(of).unwrap_or_else(|| "–".into())
}

/// The median, the least and the most.
fn with_range(mut numbers: Vec<f64>, show: fn(f64) -> String) -> String {
    numbers.sort_by(f64::total_cmp);
    match numbers[..] {
        [] => "–".into(),
        [only] => show(only),
        [least, .., most] => format!("{} ({}–{})", show(median(&numbers)), show(least), show(most)),
    }
}

/// The median of sorted numbers: the middle one, or the mean of the middle two.
fn median(sorted: &[f64]) -> f64 {
    let half = sorted.len() / 2;
    if sorted.len() % 2 == 1 { sorted[half] } else { f64::midpoint(sorted[half - 1], sorted[half]) }
}

/// Microseconds as wrk writes them.
fn time(us: f64) -> String {
    units::time(us * 1e3)
}

fn as_wrk(text: &mut String, name: &str, load: &Load) -> fmt::Result {
    let Load { requests, seconds, bytes_read, requests_per_second, latency, thread_rate, .. } = load;
    writeln!(text, "\n{name}")?;
    writeln!(text, "  Thread Stats   Avg      Stdev     Max   +/- Stdev")?;
    spread(text, "Latency", latency, time)?;
    spread(text, "Req/Sec", thread_rate, units::metric)?;
    writeln!(text, "  {requests} requests in {seconds:.2}s, {}B read", units::binary(*bytes_read))?;
    writeln!(text, "Requests/sec: {requests_per_second:9.2}")
}

fn spread(text: &mut String, name: &str, spread: &SampleStats, unit: fn(f64) -> String) -> fmt::Result {
    let SampleStats { mean, stdev, max, within_stdev } = spread;
    let [mean, stdev, max] = [mean, stdev, max].map(|&value| unit(value));
    writeln!(text, "    {name:<10}{mean:>8}{stdev:>10}{max:>9}{:8.2}%", 100.0 * within_stdev)
}

/// The figures that were published with the change.
const PUBLISHED: &str = "
Published with the change in 2014, on another machine, under 16 threads of load, and of another server:
wrk -d 120 -c 256 -t 16 --pipeline 256
  before: Requests/sec: 3040101, maximum latency 1.26s
  after:  Requests/sec: 3098461, maximum latency 301.77ms
";

#[cfg(test)]
mod tests {
    use super::*;

    fn round(rate: f64) -> Round {
        let spread = || SampleStats { mean: 1_500.0, stdev: 200.0, max: 301_770.0, within_stdev: 0.9 };
        let load = Load {
            requests: 2e6,
            seconds: 2.0,
            bytes_read: 2.66e8,
            requests_per_second: rate,
            latency: spread(),
            thread_rate: spread(),
            all: Value::Null,
        };
        Round { backend: "epoll".into(), user: Some(1.0), system: Some(0.5), load }
    }

    fn report() -> Report {
        let probe = Probe {
            bytes: vec![[1, 40, 40_024], [1_000, 40, 37_198]],
            allocations_per_request: 0.0,
            instructions_per_response: None,
            all: Value::Null,
        };
        let designs = vec![
            Design {
                name: "array",
                origin: Origin::Tree,
                probe: None,
                rounds: vec![round(3e6), round(1e6), round(2e6)],
            },
            Design { name: "ours", origin: Origin::Present, probe: Some(probe), rounds: vec![round(5e6)] },
        ];
        Report { duration: Duration::from_secs(2), depth: 256, connections: 64, designs }
    }

    #[test]
    fn a_row_has_the_median_and_the_range_of_each_design() {
        let text = report().text();
        assert!(text.contains("| requests per second | 2000000 (1000000–3000000) | 5000000 |"), "{text}");
        assert!(text.contains("| CPU seconds per million | 0.750 (0.750–0.750) | 0.750 |"), "{text}");
        assert!(text.contains("| of these user | 0.500 (0.500–0.500) | 0.500 |"), "{text}");
    }

    #[test]
    fn the_median_of_an_even_count_is_the_mean_of_the_middle_two() {
        let mut report = report();
        report.designs[0].rounds.push(round(6e6));
        let text = report.text();
        assert!(text.contains("| requests per second | 2500000 (1000000–6000000) |"), "{text}");
        assert!(text.contains("Requests/sec: 2000000.00"), "{text}");
        assert_eq!([median(&[1.0, 2.0]), median(&[1.0, 5.0, 6.0])], [1.5, 5.0]);
    }

    #[test]
    fn unknown_cpu_time_is_missing_and_not_zero() {
        let mut report = report();
        report.designs[0].rounds[0].user = None;
        report.designs[1].rounds[0].system = None;
        let text = report.text();
        // The median of the remaining rounds.
        assert!(text.contains("| of these user | 0.500 (0.500–0.500) | 0.500 |"), "{text}");
        assert!(text.contains("| CPU seconds per million | 0.750 (0.750–0.750) | – |"), "{text}");
        assert!(text.contains("| of these system | 0.250 (0.250–0.250) | – |"), "{text}");
        assert!(report.json()["designs"][1]["rounds"][0]["system"].is_null());
    }

    #[test]
    fn the_backend_is_the_one_that_the_servers_report() {
        let mut report = report();
        assert!(report.text().contains(", backend epoll;"), "{}", report.text());
        report.designs[1].rounds[0].backend = "uring".into();
        assert!(report.text().contains(", backend epoll and uring;"), "{}", report.text());
        assert_eq!(report.json()["designs"][1]["rounds"][0]["backend"], "uring");
    }

    #[test]
    fn the_report_names_the_origin_of_each_server() {
        let expected = "\narray: built from the source tree; ours: this very program, as there is no source tree\n";
        assert!(report().text().contains(expected), "{}", report().text());
    }

    #[test]
    fn a_missing_figure_is_a_dash() {
        let text = report().text();
        assert!(text.contains("| bytes of queue each, in the burst, connections: 1000 | – | 37198 |"), "{text}");
        assert!(text.contains("| instructions per response, of the queue alone | – | – |"), "{text}");
    }

    #[test]
    fn the_published_figures_follow_ours_and_are_marked() {
        let text = report().text();
        let (ours, published) = text.split_once("Published").expect("both are there");
        assert!(ours.contains("    Latency     1.50ms  200.00us 301.77ms   90.00%"), "{ours}");
        assert!(published.contains("another machine") && published.contains("1.26s") && published.contains("301.77ms"));
    }

    #[test]
    fn the_json_has_every_round() {
        let json = report().json();
        assert_eq!(json["designs"][0]["rounds"].as_array().map(Vec::len), Some(3));
        assert_eq!(json["designs"][1]["rounds"][0]["system"], 0.5);
    }
}
