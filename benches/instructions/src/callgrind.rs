//! Counts a job: runs this program under callgrind twice, with different numbers of rounds.
//!
//! The runs differ in nothing else: they have no environment, and arguments of the same length, so that even the stack
//! addresses are equal. Work that both have in common, such as the warm-up, cancels out in the difference.

use std::io;
use std::process::{Command, Stdio};

use crate::counted;
use crate::jobs::Job;

/// The first argument of a run under callgrind.
pub(crate) const RUN: &str = "run";

/// The result of counting a job.
pub(crate) struct Counted {
    /// Instructions of one operation.
    pub(crate) instructions: f64,
    /// The instruction set that the scanner used: valgrind supports fewer than some processors.
    pub(crate) level: String,
}

/// Whether valgrind is installed.
pub(crate) fn is_there() -> bool {
    let mut valgrind = Command::new("valgrind");
    valgrind.arg("--version").stdout(Stdio::null()).stderr(Stdio::null());
    valgrind.status().is_ok_and(|status| status.success())
}

/// # Errors
/// A system error, or the error output of a failed run.
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
