//! The CPU time of a process, as the system counts it.

use std::fs;
use std::time::Duration;

use super::results::CpuTime;

/// CPU time of this process so far.
pub(crate) fn cpu_time() -> CpuTime {
    // Where there is /proc, a process can always read its own.
    cpu_time_of("self").unwrap_or_default()
}

/// CPU time so far of the process with this number. `None`, and not zero, if the process has exited.
pub fn cpu_time_of(process: &str) -> Option<CpuTime> {
    let text = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // The second field is a name in parentheses, which may contain any character.
    let mut fields = text.rsplit(')').next()?.split_ascii_whitespace().skip(11);
    let mut seconds = || {
        let ticks: u64 = fields.next()?.parse().ok()?;
        Some(Duration::from_secs_f64(ticks as f64 / rustix::param::clock_ticks_per_second() as f64))
    };
    Some(CpuTime { user: seconds()?, system: seconds()? })
}
