//! Instruction counts, by running this program under callgrind.

use std::process::Command;

/// The first argument of a run under callgrind.
pub(crate) const COUNT: &str = "count";

/// User-space instructions per response, from its bytes to the simulated kernel, over a thousand connections: the
/// difference of two runs that differ only in length. The shorter run uses every connection twice, so that in both runs
/// all buffers have reached their size. `None` without valgrind.
pub(crate) fn instructions_per_response(depth: usize) -> Option<u64> {
    let short = collected(2 * CONNECTIONS, depth)?;
    let long = collected(3 * CONNECTIONS, depth)?;
    Some((long - short) / (CONNECTIONS * depth) as u64)
}

fn collected(bursts: usize, depth: usize) -> Option<u64> {
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .arg(std::env::current_exe().ok()?)
        .args([COUNT, &bursts.to_string(), &depth.to_string()])
        .output()
        .ok()?;
    let report = String::from_utf8_lossy(&output.stderr);
    let (_, count) = report.lines().find_map(|line| line.split_once("Collected :"))?;
    count.trim().parse().ok()
}

/// The number of connections in such a run.
pub(crate) const CONNECTIONS: usize = 1_000;
