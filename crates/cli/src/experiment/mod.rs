//! `tidegate experiment`: reproduces Netty's change #2693 over the network, and compares our queue with it.
//!
//! The same server runs with three outbound queues: the array design from before the change, the linked design as
//! published, and ours. `programs.rs` builds all three from one source tree, `server.rs` runs one of them pinned to a
//! core, `load.rs` runs `tidegate load` on another core, `probe.rs` measures the memory of a queue, and `report.rs`
//! prints the results. `child.rs` starts every process, so that a signal ends them all. `docs/queue-experiment.md`
//! describes the designs.

mod child;
mod load;
mod probe;
mod programs;
mod report;
mod server;

use std::error::Error;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use rustix::thread::{CpuSet, sched_getaffinity};

use self::child::StopFlag;
use self::load::Load;
use self::programs::Programs;
use self::report::{Design, Report, Round};
use self::server::RunningServer;
use tidegate_load::CpuTime;

/// The flags of `experiment`.
#[derive(Debug, Args)]
pub(crate) struct ExperimentOptions {
    /// Duration of the load on each server in each round: 10, 30s, 2m
    #[arg(short, long, value_name = "TIME", default_value = "10s", value_parser = tidegate_load::duration)]
    duration: Duration,
    /// Requests that a connection sends at once (pipelining), and responses per burst in the memory probe
    #[arg(long, value_name = "N", default_value = "256", value_parser = clap::value_parser!(u32).range(1..=65_536))]
    depth: u32,
    /// Connections of the load
    #[arg(short, long, value_name = "N", default_value = "256", value_parser = clap::value_parser!(u32).range(1..=60_000))]
    connections: u32,
    /// Number of rounds; each round runs all three servers, one after the other
    #[arg(long, value_name = "N", default_value = "5", value_parser = clap::value_parser!(u32).range(1..=1_000))]
    rounds: u32,
    /// I/O backend of the servers: epoll, uring or auto; the report names the backend that each server reports
    #[arg(long, value_name = "NAME", default_value = "auto", value_parser = ["auto", "epoll", "uring"])]
    backend: String,
    /// This program, built with the array queue [default: built from the source tree around the current directory]
    #[arg(long, value_name = "PROGRAM")]
    array: Option<PathBuf>,
    /// This program, built with the linked queue
    #[arg(long, value_name = "PROGRAM")]
    linked: Option<PathBuf>,
    /// This program, built with our queue [default: built from that tree too; without a tree, the running program]
    #[arg(long, value_name = "PROGRAM")]
    ours: Option<PathBuf>,
    /// Write the results to a file as JSON; - prints them instead of the tables
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// Runs the experiment and prints the results. Returns `false` if a signal ended it early; the processes that it has
/// started end with it.
///
/// # Errors
/// Those that the user can correct.
pub(crate) fn run(options: &ExperimentOptions) -> Result<bool, Box<dyn Error>> {
    let given = [&options.array, &options.linked, &options.ours].map(Option::as_deref);
    if cfg!(debug_assertions) {
        if given.contains(&None) {
            return Err("this is a debug build, and is compared with others: use --profile dist".into());
        }
        eprintln!("tidegate: this is a debug build: its load generator is slow");
    }
    let stop = StopFlag::at_signals()?;
    match compare(options, given, &stop) {
        Ok(()) => Ok(true),
        Err(why) if stop.is_set() => {
            eprintln!("tidegate: {why}");
            Ok(false)
        }
        Err(why) => Err(why.into()),
    }
}

fn compare(options: &ExperimentOptions, given: [Option<&Path>; 3], stop: &StopFlag) -> Result<(), String> {
    let programs = Programs::find(given, stop)?;
    let cores = two_cores();
    if cores.is_none() {
        eprintln!("tidegate: there is one core only: server and load share it and disturb each other");
    }
    let mut designs = Vec::new();
    for program in &programs.0 {
        eprintln!("memory and instructions of the queue: {}", program.name);
        let probe = program.probe.as_deref().map(|path| probe::run(path, options.depth, stop)).transpose()?;
        designs.push(Design { name: program.name, origin: program.origin, probe, rounds: Vec::new() });
    }
    for round in 0..options.rounds {
        // Rotate the order, so that no design always runs first or after the same neighbour.
        for place in 0..designs.len() {
            let index = (place + round as usize) % designs.len();
            let measured = measure(&programs.0[index].server, options, cores, stop)?;
            let rate = measured.load.requests_per_second;
            let name = designs[index].name;
            eprintln!("round {} of {}: {name}: {rate:.0} requests/s", round + 1, options.rounds);
            designs[index].rounds.push(measured);
        }
    }
    let report = Report { duration: options.duration, depth: options.depth, connections: options.connections, designs };
    show(&report, options.json.as_deref())
}

/// Starts one server, runs the load on it, and ends the server.
fn measure(
    program: &Path,
    options: &ExperimentOptions,
    cores: Option<[usize; 2]>,
    stop: &StopFlag,
) -> Result<Round, String> {
    let [server_core, load_core] = cores.map_or([None; 2], |cores| cores.map(Some));
    let server = RunningServer::start(program, &options.backend, server_core, stop)?;
    let before = server.cpu_time();
    let load = Load::run(server.url(), options.connections, options.depth, options.duration, load_core, stop)?;
    let after = server.cpu_time();
    // If either reading is missing, the difference is unknown, and not zero.
    let between = |of: fn(&CpuTime) -> Duration| {
        of(after.as_ref()?).checked_sub(of(before.as_ref()?)).map(|time| time.as_secs_f64())
    };
    Ok(Round {
        backend: server.backend().unwrap_or(NOT_SAID).to_owned(),
        user: between(|time| time.user),
        system: between(|time| time.system),
        load,
    })
}

fn show(report: &Report, json: Option<&Path>) -> Result<(), String> {
    let text = match json {
        Some(path) if path == Path::new("-") => format!("{:#}\n", report.json()),
        _ => report.text(),
    };
    // A closed standard output does not prevent writing the file.
    let _ = io::stdout().write_all(text.as_bytes());
    match json.filter(|path| *path != Path::new("-")) {
        Some(path) => fs::write(path, format!("{:#}\n", report.json()))
            .map_err(|error| format!("cannot write '{}': {error}", path.display())),
        None => Ok(()),
    }
}

/// The first two cores that this process may run on: one for the server, one for the load.
fn two_cores() -> Option<[usize; 2]> {
    let allowed = sched_getaffinity(None).ok()?;
    let mut cores = (0..CpuSet::MAX_CPU).filter(|&core| allowed.is_set(core));
    Some([cores.next()?, cores.next()?])
}

/// The backend of a server that does not name it.
const NOT_SAID: &str = "unknown";
