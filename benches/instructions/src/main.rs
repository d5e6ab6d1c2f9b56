//! Counts the instructions of the data path with callgrind, and compares them with stored figures.
//!
//! ```text
//! cargo run --profile dist -p tidegate-instructions              # a table
//! cargo run --profile dist -p tidegate-instructions -- --check   # exit code 1 if a figure has changed by more than 5 %
//! cargo run --profile dist -p tidegate-instructions -- --store   # stores the current figures
//! ```
//!
//! With `--profile defaults` in its place it counts a user's build, by cargo's defaults. `--check` then also fails if a
//! job takes more than [`USERS_RATIO_MAX`] of the stored figure of `dist`: a small function of one crate that another
//! one calls for each message needs `#[inline]`.
//!
//! Times vary from run to run, and mean nothing on a shared machine; instruction counts are reproducible. They include
//! neither cache effects nor the kernel.
//!
//! Some jobs run twice, with few and with many idle connections. `--check` also fails if their figures differ by more
//! than 2 %: their work must not grow with the number of connections. With few and many routes they differ by 10 % at most.
//!
//! `jobs.rs` lists the jobs, `counted.rs` marks the counted code, `callgrind.rs` runs callgrind.
//!
//! # Files
//!
//! | file | holds |
//! |---|---|
//! | `jobs.rs` | the counted operations, by name |
//! | `codecs.rs` | decoding and encoding |
//! | `queue.rs` | writing, flushing, gathering, sending |
//! | `timers.rs` | deadlines, and tasks that sleep |
//! | `turns.rs` | whole turns of a loop |
//! | `streams.rs` | messages on streams, and on one connection |
//! | `crowds.rs` | one connection beside many idle ones: closing, pausing receives, shedding |
//! | `http.rs` | requests through the HTTP layer |
//! | `routes.rs` | few and many routes |
//! | `websocket.rs` | messages of WebSockets |
//! | `http3.rs` | requests over HTTP/3 |
//! | `drivers.rs` | the same for a driver's sockets, on epoll and io_uring |
//! | `wire.rs` | the driver beneath those, without a system |
//! | `datagram_wire.rs` | the same for datagrams between two loops |
//! | `counted.rs` | where counting begins and ends |
//! | `callgrind.rs` | one counted run |
//! | `stored.rs` | the figures in the repository, of the profile `dist` in `benches/instructions/stored-dist.txt` and of cargo's defaults in `stored-defaults.txt` |

#![forbid(unsafe_code)]

mod callgrind;
mod codecs;
mod counted;
mod crowds;
mod datagram_wire;
mod drivers;
mod http;
mod http3;
mod jobs;
mod queue;
mod routes;
mod stored;
mod streams;
mod timers;
mod turns;
mod websocket;
mod wire;

use std::io;
use std::process::ExitCode;

use crate::jobs::{JOBS, Job};
use crate::stored::{Figures, Profile};

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let done = match arguments[..] {
        [] => compare(false),
        ["--check"] => compare(true),
        ["--store"] => store(),
        // The process under callgrind.
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
    if figures.jobs.len() < JOBS.len() {
        return Err(io::Error::other("nothing is stored, since not all jobs can run here"));
    }
    figures.store()?;
    print!("{figures}");
    Ok(ExitCode::SUCCESS)
}

/// Prints all figures next to the stored ones. With `check`, a change above the limit is an error.
fn compare(check: bool) -> io::Result<ExitCode> {
    let Some(now) = count()? else {
        let is_required = std::env::var_os("TIDEGATE_TOOLS_REQUIRED").is_some();
        return Ok(if check && is_required { ExitCode::FAILURE } else { ExitCode::SUCCESS });
    };
    let stored = Figures::load(now.profile);
    println!("Instructions of one operation, profile {}, {}, {}:\n", now.profile.name(), now.rustc, now.level);
    println!("| job | one operation | now | stored | change |");
    println!("|---|---|--:|--:|--:|");
    let mut changed = 0;
    for (name, instructions) in &now.jobs {
        let operation = Job::find(name).map_or("", |job| job.operation);
        let stored = stored.as_ref().and_then(|stored| stored.of(name));
        let change = stored.map_or(f64::INFINITY, |stored| (instructions / stored - 1.0) * 100.0);
        let mark = if change.abs() > CHANGE_PERCENT_MAX { " **!**" } else { "" };
        changed += u32::from(!mark.is_empty());
        let (before, change) = match stored {
            Some(stored) => (format!("{stored:.1}"), format!("{change:+.1} %")),
            None => ("–".into(), "new".into()),
        };
        println!("| {name} | {operation} | {instructions:.1} | {before} | {change}{mark} |");
    }
    println!();
    let growing = growing(&now);
    if !growing.is_empty() {
        println!("These figures depend on the number of connections or routes:");
        growing.iter().for_each(|line| println!("- {line}"));
        println!();
    }
    let costly = Figures::load(Profile::Dist).filter(|dist| dist.is_comparable(&now));
    let costly = costly.map_or_else(Vec::new, |dist| costly_to_users(&now, &dist));
    if !costly.is_empty() {
        println!("These figures are more than {USERS_RATIO_MAX} of those of the profile dist:");
        costly.iter().for_each(|line| println!("- {line}"));
        println!();
    }
    let fails = check && !(growing.is_empty() && costly.is_empty());
    let bars = if fails { ExitCode::FAILURE } else { ExitCode::SUCCESS };
    if let Some(stored) = stored.filter(|stored| !stored.is_comparable(&now)) {
        println!("The stored figures are those of {}, {}: they are not comparable.", stored.rustc, stored.level);
        return Ok(bars);
    }
    if changed == 0 {
        println!("Nothing has changed by more than {CHANGE_PERCENT_MAX} %.");
        return Ok(bars);
    }
    println!(
        "{changed} are new, or have changed by more than {CHANGE_PERCENT_MAX} %. Explain the change in the commit that"
    );
    println!("makes it, and store the new figures with `{}`.", now.profile.store_command());
    Ok(if check { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// Counts every job that can run here. `None`, and a printed line, without valgrind.
fn count() -> io::Result<Option<Figures>> {
    let Some(profile) = Profile::of_this_build() else {
        return Err(io::Error::other(format!("this build has no figures: {}", Profile::Dist.store_command())));
    };
    if !callgrind::is_there() {
        eprintln!("skipped: instructions are not counted, since valgrind is not installed");
        return Ok(None);
    }
    let mut figures = Figures { profile, rustc: env!("RUSTC_VERSION").into(), level: String::new(), jobs: Vec::new() };
    for job in JOBS {
        if let Some(lack) = job.lack() {
            eprintln!("skipped: {}: {lack}", job.name);
            continue;
        }
        let counted = callgrind::count(job)?;
        figures.level = counted.level;
        // Rounded to the precision of the stored figures.
        figures.jobs.push((job.name.into(), (counted.instructions * 10.0).round() / 10.0));
    }
    Ok(Some(figures))
}

/// The jobs whose figures differ between many and few connections, as lines.
fn growing(figures: &Figures) -> Vec<String> {
    let pairs = JOBS.iter().filter_map(|job| Some((job.name, job.same_with_few()?)));
    let pairs = pairs
        .filter_map(|(many, (few, most))| Some(((many, figures.of(many)?), (few.name, figures.of(few.name)?), most)));
    let growing = pairs.filter(|((_, with_many), (_, with_few), percent_max)| {
        (with_many / with_few - 1.0).abs() * 100.0 > *percent_max
    });
    growing
        .map(|((many, with_many), (few, with_few), _)| format!("{many}: {with_many:.1}, but {few}: {with_few:.1}"))
        .collect()
}

/// The jobs that cost a user more than they should beside `dist`, as lines.
fn costly_to_users(users: &Figures, dist: &Figures) -> Vec<String> {
    let both = users.jobs.iter().filter_map(|(name, users)| Some((name, users, dist.of(name)?)));
    let costly = both.filter(|(_, users, dist)| *users / dist > USERS_RATIO_MAX);
    costly.map(|(name, users, dist)| format!("{name}: {users:.1}, but {dist:.1}: {:.3}", users / dist)).collect()
}

/// The commit explains any larger change, in either direction.
const CHANGE_PERCENT_MAX: f64 = 5.0;

/// The maximum figure of a build by cargo's defaults, as a part of that of `dist`. A turn without messages has the largest,
/// 1.21, most of it the arithmetic of `Instant`, which only LTO inlines; HTTP requests have 1.06 to 1.13. The goal is 1.05.
const USERS_RATIO_MAX: f64 = 1.25;

#[cfg(test)]
mod tests {
    use super::*;

    fn with(figure: f64) -> Figures {
        let jobs = JOBS.iter().filter_map(|job| Some([(job.name, figure), (job.same_with_few()?.0.name, 1_000.0)]));
        let jobs = jobs.flatten().map(|(name, figure)| (name.to_owned(), figure)).collect();
        Figures { profile: Profile::Dist, rustc: String::new(), level: String::new(), jobs }
    }

    #[test]
    fn a_job_that_costs_more_with_many_connections_is_reported() {
        assert_eq!(growing(&with(1_019.0)), [""; 0]);
        let lines = growing(&with(1_021.0));
        assert_eq!(lines.len(), 8, "{lines:?}");
        assert_eq!(lines[1], "close-15000: 1021.0, but close-100: 1000.0");
        assert_eq!(growing(&with(979.0)).len(), 8);
        let lines = growing(&with(1_101.0));
        assert_eq!(lines.len(), 11, "{lines:?}");
        assert_eq!(lines[0], "hosts-10000: 1101.0, but hosts-10: 1000.0");
    }

    #[test]
    fn the_stored_figures_do_not_depend_on_the_number_of_connections() {
        for profile in Profile::ALL {
            assert_eq!(growing(&Figures::load(profile).expect("figures are stored")), [""; 0]);
        }
    }

    #[test]
    fn a_job_that_costs_a_user_more_is_reported() {
        let bar = 1_000.0 * USERS_RATIO_MAX;
        assert_eq!(costly_to_users(&with(bar - 1.0), &with(1_000.0)), [""; 0]);
        let lines = costly_to_users(&with(bar + 1.0), &with(1_000.0));
        assert_eq!(lines[1], format!("paths-10000: {:.1}, but 1000.0: {:.3}", bar + 1.0, USERS_RATIO_MAX + 0.001));
    }

    #[test]
    fn the_stored_figures_of_users_are_near_those_of_dist() {
        let [dist, users] = Profile::ALL.map(|profile| Figures::load(profile).expect("figures are stored"));
        assert!(users.is_comparable(&dist), "they are stored with one compiler");
        assert_eq!(costly_to_users(&users, &dist), [""; 0]);
    }
}
