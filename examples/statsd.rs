//! A StatsD aggregator: counters, gauges, timings and sets come as datagrams, and their sums are printed at intervals.
//!
//! ```text
//! cargo run --example statsd                              # sends itself datagrams, prints a report and exits
//! cargo run --release --example statsd -- 127.0.0.1:8125  # prints a report each ten seconds until it is killed
//! echo -n "tides:1|c" | nc -u -w0 127.0.0.1 8125
//! ```
//!
//! Each loop has a socket and sums of its own, so no datagram takes a lock. A loop sends its sums to one thread at the end of
//! each interval: the timer of its endpoint.

#![forbid(unsafe_code)]

use std::collections::{BTreeMap, HashMap, HashSet};
use std::error::Error;
use std::mem;
use std::net::UdpSocket;
use std::sync::mpsc::{self, Sender};
use std::time::{Duration, Instant};

use tidegate::codec::{Datagram, Transmits};
use tidegate::{Endpoint, EndpointListener, Server, ServerHandle};

type Any = Box<dyn Error>;

/// A line of a datagram: `NAME:VALUE|KIND`, and for a counter or a timing the share that was sampled, `|@0.1`.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Sample<'a> {
    Count(f64),
    Gauge(f64),
    /// A gauge that changes by so much: its value has a sign.
    GaugeBy(f64),
    Timing(f64, f64),
    Set(&'a str),
}

impl<'a> Sample<'a> {
    /// The name of a line, and its sample. `None` if the line is none.
    fn read(line: &'a str) -> Option<(&'a str, Self)> {
        let (name, rest) = line.split_once(':')?;
        let is_name = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
        if name.is_empty() || name.len() > NAME_BYTES_MAX || !name.bytes().all(is_name) {
            return None;
        }
        let mut parts = rest.split('|');
        let (value, kind) = (parts.next()?, parts.next()?);
        let number = || value.parse().ok().filter(|number: &f64| number.is_finite());
        let rate = match parts.next() {
            // Tags of newer dialects are left out.
            None => 1.0,
            Some(part) if part.starts_with('#') => 1.0,
            Some(part) => part.strip_prefix('@')?.parse().ok().filter(|rate| *rate > 0.0 && *rate <= 1.0)?,
        };
        let sample = match kind {
            "c" => Self::Count(number()? / rate),
            "g" if value.starts_with(['+', '-']) => Self::GaugeBy(number()?),
            "g" => Self::Gauge(number()?),
            "ms" | "h" => Self::Timing(number()?, 1.0 / rate),
            "s" if value.len() <= NAME_BYTES_MAX => Self::Set(value),
            _ => return None,
        };
        Some((name, sample))
    }
}

/// The sums of an interval.
#[derive(Debug, Default)]
struct Sums {
    counts: HashMap<String, f64>,
    /// The last value, and changes since.
    gauges: HashMap<String, (Option<f64>, f64)>,
    /// Number, sum and maximum.
    timings: HashMap<String, (f64, f64, f64)>,
    sets: HashMap<String, HashSet<String>>,
    /// Lines that are none, and those for which there was no room.
    refused: u64,
    entries: usize,
}

impl Sums {
    fn add_datagram(&mut self, bytes: &[u8]) {
        for line in bytes.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
            match std::str::from_utf8(line).ok().and_then(Sample::read) {
                Some((name, sample)) if self.has_room(name, &sample) => self.add(name, sample),
                _ => self.refused += 1,
            }
        }
    }

    /// Whether the sample belongs to an entry that is there, or may have a new one: a sender chooses the names, and each one
    /// takes memory.
    fn has_room(&mut self, name: &str, sample: &Sample<'_>) -> bool {
        let is_known = match sample {
            Sample::Count(_) => self.counts.contains_key(name),
            Sample::Gauge(_) | Sample::GaugeBy(_) => self.gauges.contains_key(name),
            Sample::Timing(..) => self.timings.contains_key(name),
            Sample::Set(value) => self.sets.get(name).is_some_and(|set| set.contains(*value)),
        };
        let has_room = is_known || self.entries < ENTRIES_MAX;
        self.entries += usize::from(has_room && !is_known);
        has_room
    }

    fn add(&mut self, name: &str, sample: Sample<'_>) {
        match sample {
            Sample::Count(count) => *self.counts.entry(name.to_owned()).or_default() += count,
            Sample::Gauge(value) => *self.gauges.entry(name.to_owned()).or_default() = (Some(value), 0.0),
            Sample::GaugeBy(change) => self.gauges.entry(name.to_owned()).or_default().1 += change,
            Sample::Timing(value, weight) => {
                let (count, sum, max) = self.timings.entry(name.to_owned()).or_insert((0.0, 0.0, f64::MIN));
                (*count, *sum, *max) = (*count + weight, *sum + value * weight, max.max(value));
            }
            Sample::Set(value) => {
                self.sets.entry(name.to_owned()).or_default().insert(value.to_owned());
            }
        }
    }

    /// Adds the sums of another loop.
    fn merge(&mut self, other: Self) {
        for (name, count) in other.counts {
            *self.counts.entry(name).or_default() += count;
        }
        for (name, (value, change)) in other.gauges {
            let gauge = self.gauges.entry(name).or_default();
            *gauge = if value.is_some() { (value, change) } else { (gauge.0, gauge.1 + change) };
        }
        for (name, (count, sum, max)) in other.timings {
            let timing = self.timings.entry(name).or_insert((0.0, 0.0, f64::MIN));
            *timing = (timing.0 + count, timing.1 + sum, timing.2.max(max));
        }
        for (name, values) in other.sets {
            self.sets.entry(name).or_default().extend(values);
        }
        self.refused += other.refused;
    }

    /// A line for each name, sorted.
    fn report(&self) -> Vec<String> {
        let mut lines = BTreeMap::new();
        for (name, count) in &self.counts {
            lines.insert((name, 0), format!("{name} count {count}"));
        }
        for (name, (value, change)) in &self.gauges {
            lines.insert((name, 1), format!("{name} gauge {}", value.unwrap_or_default() + change));
        }
        for (name, (count, sum, max)) in &self.timings {
            lines.insert((name, 2), format!("{name} timing {count} mean {} max {max}", sum / count));
        }
        for (name, values) in &self.sets {
            lines.insert((name, 3), format!("{name} set {}", values.len()));
        }
        let refused = (self.refused > 0).then(|| format!("refused {}", self.refused));
        lines.into_values().chain(refused).collect()
    }
}

/// The aggregator of a loop.
struct Aggregator {
    sums: Sums,
    interval: Duration,
    due: Option<Instant>,
    reports: Sender<Sums>,
}

impl Endpoint for Aggregator {
    fn handle_datagram(&mut self, datagram: Datagram, now: Instant) {
        self.sums.add_datagram(&datagram.payload);
        self.due.get_or_insert(now + self.interval);
    }

    fn poll_transmit(&mut self, _now: Instant, _transmits: &mut Transmits) {}

    fn poll_timeout(&self) -> Option<Instant> {
        self.due
    }

    fn handle_timeout(&mut self, now: Instant) {
        if self.due.is_some_and(|due| due <= now) {
            self.due = None;
            // The receiver has ended when the program does.
            let _ = self.reports.send(mem::take(&mut self.sums));
        }
    }

    /// The sums of the interval that a drain cuts short are not lost.
    fn drain(&mut self, now: Instant) {
        self.due = self.due.map(|_| now);
        self.handle_timeout(now);
    }
}

fn start(address: &str, interval: Duration, reports: Sender<Sums>) -> Result<ServerHandle, Any> {
    let make = move |_loop| Aggregator { sums: Sums::default(), interval, due: None, reports: reports.clone() };
    Ok(Server::new().endpoint(EndpointListener::bind(address)?.serve(make)).run()?)
}

fn main() -> Result<(), Any> {
    run(std::env::args().nth(1))
}

fn run(address: Option<String>) -> Result<(), Any> {
    let (sender, reports) = mpsc::channel();
    if let Some(address) = address {
        let server = start(&address, INTERVAL, sender)?;
        println!("listening on {}", server.address());
        while let Ok(mut sums) = reports.recv() {
            // Those of the other loops follow at about the same time.
            while let Ok(more) = reports.recv_timeout(INTERVAL / 10) {
                sums.merge(more);
            }
            sums.report().iter().for_each(|line| println!("{line}"));
        }
        return Ok(());
    }
    let server = start("127.0.0.1:0", Duration::from_secs(3_600), sender)?;
    let address = server.address().ip().ok_or("an IP address")?;
    // Two ports, which may be those of two loops.
    for _ in 0..2 {
        let socket = UdpSocket::bind("127.0.0.1:0")?;
        socket.send_to(
            b"tides:1|c\ntides:2|c|@0.5\nlevel:3|g\nlevel:+0.5|g\nwait:10|ms\nwait:20|ms\nwho:ebb|s\nwhat",
            address,
        )?;
    }
    // The loops have them once they were counted.
    while server.counts().iter().map(|counts| counts.datagrams_received).sum::<u64>() < 2 {
        std::thread::sleep(Duration::from_millis(1));
    }
    server.drain(Duration::from_secs(5));
    let mut sums = Sums::default();
    reports.try_iter().for_each(|more| sums.merge(more));
    let report = sums.report();
    report.iter().for_each(|line| println!("{line}"));
    let expected = ["level gauge 3.5", "tides count 10", "wait timing 4 mean 15 max 20", "who set 1", "refused 2"]
        .map(str::to_owned);
    assert_eq!(report, expected);
    Ok(())
}

/// The time between two reports.
const INTERVAL: Duration = Duration::from_secs(10);

/// Entries of a loop within an interval. It bounds the memory that senders take.
const ENTRIES_MAX: usize = 100_000;

/// The longest name, and the longest value of a set.
const NAME_BYTES_MAX: usize = 200;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_checks_itself() -> Result<(), Any> {
        run(None)
    }

    #[test]
    fn lines_of_each_kind_are_read() {
        for (line, expected) in [
            ("a.b:1|c", Sample::Count(1.0)),
            ("a:1|c|@0.25", Sample::Count(4.0)),
            ("a:-3|g", Sample::GaugeBy(-3.0)),
            ("a:3|g|#tag:x", Sample::Gauge(3.0)),
            ("a:7|ms|@0.5", Sample::Timing(7.0, 2.0)),
            ("a:x y|s", Sample::Set("x y")),
        ] {
            assert_eq!(Sample::read(line).map(|(_, sample)| sample), Some(expected), "{line}");
        }
        for line in
            ["a", "a:1", ":1|c", "a b:1|c", "a:x|c", "a:inf|c", "a:nan|g", "a:1|q", "a:1|c|@0", "a:1|c|@2", "a:1|c|x"]
        {
            assert_eq!(Sample::read(line), None, "{line}");
        }
    }

    #[test]
    fn new_names_beyond_the_limit_are_refused_and_known_ones_are_not() {
        let mut sums = Sums { entries: ENTRIES_MAX - 1, ..Sums::default() };
        sums.add_datagram(b"a:1|c\nb:1|c\na:1|c");
        assert_eq!(sums.report(), ["a count 2", "refused 1"]);
    }
}
