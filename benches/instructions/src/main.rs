//! How many instructions the data path takes, counted by callgrind, beside how many it took.
//!
//! ```text
//! cargo run --release -p tidegate-instructions              # a table
//! cargo run --release -p tidegate-instructions -- --check   # exit code 1 if something has changed by more than 5 %
//! cargo run --release -p tidegate-instructions -- --store   # these are the figures from now on
//! ```
//!
//! Times vary from run to run, and mean nothing on a machine that others use; these figures are the same each time. They
//! say nothing about what a cache or a kernel does.
//!
//! `jobs.rs` lists what is counted, `counted.rs` says where counting begins and ends, `callgrind.rs` does it.

#![forbid(unsafe_code)]

mod callgrind;
mod codecs;
mod counted;
mod jobs;
mod queue;
mod stored;
mod timers;
mod turns;
mod wire;

use std::io;
use std::process::ExitCode;

use crate::jobs::{JOBS, Job};
use crate::stored::{Figures, STORE};

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let done = match arguments[..] {
        [] => compare(false),
        ["--check"] => compare(true),
        ["--store"] => store(),
        // What runs below callgrind.
        [callgrind::RUN, name, rounds] => match (Job::find(name), rounds.parse()) {
            (Some(job), Ok(rounds)) => run(job, rounds),
            _ => return usage(),
        },
        _ => return usage(),
    };
    done.unwrap_or_else(|error| {
        eprintln!("{error}");
        ExitCode::FAILURE
    })
}

fn usage() -> ExitCode {
    eprintln!("usage: tidegate-instructions [--check | --store]");
    ExitCode::from(2)
}

fn run(job: &Job, rounds: usize) -> io::Result<ExitCode> {
    job.run(rounds);
    println!("{}", tidegate_scan::Level::all()[0].name());
    Ok(ExitCode::SUCCESS)
}

fn store() -> io::Result<ExitCode> {
    let Some(figures) = count()? else { return Ok(ExitCode::FAILURE) };
    figures.store()?;
    print!("{figures}");
    Ok(ExitCode::SUCCESS)
}

/// Prints all figures beside those that are stored. If they are to be checked, too large a change is an error.
fn compare(check: bool) -> io::Result<ExitCode> {
    let stored = Figures::load();
    let Some(now) = count()? else {
        let is_required = std::env::var_os("TIDEGATE_TOOLS_REQUIRED").is_some();
        return Ok(if check && is_required { ExitCode::FAILURE } else { ExitCode::SUCCESS });
    };
    println!("Instructions of one operation, {}, {}:\n", now.rustc, now.level);
    println!("| job | what one operation is | now | stored | change |");
    println!("|---|---|--:|--:|--:|");
    let mut changed = 0;
    for (job, (name, instructions)) in JOBS.iter().zip(&now.jobs) {
        let stored = stored.as_ref().and_then(|stored| stored.of(name));
        let change = stored.map_or(f64::INFINITY, |stored| (instructions / stored - 1.0) * 100.0);
        let mark = if change.abs() > CHANGE_PERCENT_MAX { " **!**" } else { "" };
        changed += u32::from(!mark.is_empty());
        let (before, change) = match stored {
            Some(stored) => (format!("{stored:.1}"), format!("{change:+.1} %")),
            None => ("–".into(), "new".into()),
        };
        println!("| {name} | {} | {instructions:.1} | {before} | {change}{mark} |", job.operation);
    }
    println!();
    if let Some(stored) = stored.filter(|stored| !stored.is_comparable(&now)) {
        println!(
            "The stored figures are those of {}, {}: nothing follows from a difference.",
            stored.rustc, stored.level
        );
        return Ok(ExitCode::SUCCESS);
    }
    if changed == 0 {
        println!("Nothing has changed by more than {CHANGE_PERCENT_MAX} %.");
        return Ok(ExitCode::SUCCESS);
    }
    println!(
        "{changed} are new, or have changed by more than {CHANGE_PERCENT_MAX} %. Explain the change in the commit that"
    );
    println!("makes it, and store the new figures with `{STORE}`.");
    Ok(if check { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// Counts every job; nothing, and a line that says so, if that cannot be done here.
fn count() -> io::Result<Option<Figures>> {
    if cfg!(debug_assertions) {
        return Err(io::Error::other(
            "figures are those of a release build: cargo run --release -p tidegate-instructions",
        ));
    }
    if !callgrind::is_there() {
        eprintln!("skipped: instructions are not counted, since valgrind is not installed");
        return Ok(None);
    }
    let mut figures = Figures { rustc: env!("RUSTC_VERSION").into(), level: String::new(), jobs: Vec::new() };
    for job in JOBS {
        let counted = callgrind::count(job)?;
        figures.level = counted.level;
        // As precise as it is stored.
        figures.jobs.push((job.name.into(), (counted.instructions * 10.0).round() / 10.0));
    }
    Ok(Some(figures))
}

/// A larger change, either way, is one that its commit explains.
const CHANGE_PERCENT_MAX: f64 = 5.0;
