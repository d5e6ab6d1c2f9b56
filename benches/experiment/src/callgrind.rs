//! Instructions, counted by callgrind around runs of this very program.

use std::process::Command;

/// The first argument of a run that is to be counted.
pub(crate) const COUNT: &str = "count";

/// Instructions of a response in user space, from its bytes to a kernel that has taken them, over a thousand connections:
/// the difference of two runs that differ in their length only. The shorter one visits every connection twice, so that
/// growing is over in both. Nothing if valgrind is not installed.
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

/// Connections of such a run.
pub(crate) const CONNECTIONS: usize = 1_000;
