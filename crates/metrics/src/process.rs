//! The kernel's figures of the process: its memory, by the names that Prometheus has for it.

use std::fs;

use crate::text::{Kind, MetricsText};

/// Writes the memory of the process, where the kernel reports it.
pub fn write_process(text: &mut MetricsText) {
    if let Some(bytes) = resident_bytes() {
        text.family("process_resident_memory_bytes", Kind::Gauge, "Resident memory of the process.");
        text.sample(&[], bytes);
    }
}

fn resident_bytes() -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kilobytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kilobytes * 1024)
}
