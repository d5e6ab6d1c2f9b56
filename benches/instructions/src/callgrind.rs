//! Counts a job by running this very program under callgrind, twice, with different numbers of rounds.
//!
//! Both runs are alike but for that: they have no environment, and arguments of the same length, so that even the stack
//! lies where it lay before. What both have in common, the first rounds among it, is in the difference no more.

use std::io;
use std::process::{Command, Stdio};

use crate::counted;
use crate::jobs::Job;

/// The first argument of a run that is to be counted.
pub(crate) const RUN: &str = "run";

/// What counting a job came to.
pub(crate) struct Counted {
    /// Instructions of one operation.
    pub(crate) instructions: f64,
    /// The instructions that the scanner could use: valgrind knows fewer than some processors have.
    pub(crate) level: String,
}

/// Whether valgrind is installed.
pub(crate) fn is_there() -> bool {
    let mut valgrind = Command::new("valgrind");
    valgrind.arg("--version").stdout(Stdio::null()).stderr(Stdio::null());
    valgrind.status().is_ok_and(|status| status.success())
}

/// # Errors
/// The system's, and what a run says if it fails.
pub(crate) fn count(job: &Job) -> io::Result<Counted> {
    let [short, long] = job.rounds();
    let (fewer, _) = collected(job, short)?;
    let (more, level) = collected(job, long)?;
    Ok(Counted { instructions: (more - fewer) as f64 / job.operations() as f64, level })
}

fn collected(job: &Job, rounds: usize) -> io::Result<(u64, String)> {
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null", "--collect-atstart=no"])
        .arg(format!("--toggle-collect={}", counted::PATTERN))
        .arg(std::env::current_exe()?)
        .args([RUN, job.name, &format!("{rounds:08}")])
        .env_clear()
        .envs(std::env::var_os("PATH").map(|path| ("PATH", path)))
        .output()?;
    let report = String::from_utf8_lossy(&output.stderr);
    let failed = || io::Error::other(format!("{}: {}", job.name, report.trim()));
    if !output.status.success() {
        return Err(failed());
    }
    let (_, count) = report.lines().find_map(|line| line.split_once("Collected :")).ok_or_else(failed)?;
    let count = count.trim().parse().map_err(|_| failed())?;
    Ok((count, String::from_utf8_lossy(&output.stdout).trim().to_owned()))
}
