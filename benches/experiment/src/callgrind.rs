//! Instructions, counted by callgrind around a run of this very program.

use std::process::{Command, Stdio};

/// The first argument of a run that is to be counted.
pub(crate) const COUNT: &str = "count";

/// Whether valgrind is installed.
pub(crate) fn is_there() -> bool {
    let mut valgrind = Command::new("valgrind");
    valgrind.arg("--version").stdout(Stdio::null()).stderr(Stdio::null());
    valgrind.status().is_ok_and(|status| status.success())
}

/// Instructions of a burst: the difference of two runs that differ in their length only. The shorter one visits every
/// connection twice, so that growing is over in both.
pub(crate) fn instructions_per_burst(name: &str, connections: usize) -> Option<u64> {
    let short = 2 * connections;
    let counts = [short, short + BURSTS].map(|bursts| collected(name, connections, bursts));
    let [Some(short), Some(long)] = counts else { return None };
    Some((long - short) / BURSTS as u64)
}

fn collected(name: &str, connections: usize, bursts: usize) -> Option<u64> {
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .arg(std::env::current_exe().ok()?)
        .args([COUNT, name, &connections.to_string(), &bursts.to_string()])
        .output()
        .ok()?;
    let report = String::from_utf8_lossy(&output.stderr);
    let (_, count) = report.lines().find_map(|line| line.split_once("Collected :"))?;
    count.trim().parse().ok()
}

const BURSTS: usize = 1_000;
