//! The memory and the descriptors of the machine and the process; and giving memory back.

use std::sync::LazyLock;

/// Gives memory that the allocator keeps for later back to the system. It walks the allocator's free lists, so call it
/// when a burst is over, not regularly. Does nothing if the allocator has no such call.
pub fn give_back() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    // SAFETY: the call takes no pointers and may be made at any time from any thread.
    unsafe {
        libc::malloc_trim(0);
    }
}

/// The resident memory of this process, in bytes; `None` where the system does not report it.
#[must_use]
pub fn resident_bytes() -> Option<u64> {
    let statistics = std::fs::read_to_string("/proc/self/statm").ok()?;
    let pages: u64 = statistics.split_ascii_whitespace().nth(1)?.parse().ok()?;
    Some(pages * rustix::param::page_size() as u64)
}

/// The machine's memory in bytes, or the limit of this process's control group if that is less. The first call caches
/// it, since the default limits of every new client read it.
#[must_use]
pub fn total_bytes() -> u64 {
    static TOTAL: LazyLock<u64> = LazyLock::new(look_up_total);
    *TOTAL
}

fn look_up_total() -> u64 {
    let info = rustix::system::sysinfo();
    let machine = (info.totalram as u64).saturating_mul(u64::from(info.mem_unit.max(1)));
    let group = std::fs::read_to_string("/sys/fs/cgroup/memory.max").ok().and_then(|text| text.trim().parse().ok());
    group.map_or(machine, |limit: u64| limit.min(machine))
}

/// The number of descriptors that this process may have.
#[must_use]
pub fn descriptors_max() -> usize {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    limit.map_or(usize::MAX, |limit| usize::try_from(limit).unwrap_or(usize::MAX))
}

/// Whether the cause of an error is that the process or the machine has as many descriptors as it may have.
#[must_use]
pub fn is_out_of_descriptors(error: &std::io::Error) -> bool {
    let errno = error.raw_os_error();
    [rustix::io::Errno::MFILE, rustix::io::Errno::NFILE].iter().any(|out| errno == Some(out.raw_os_error()))
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_machine_has_some_memory() {
        super::give_back();
        assert!(super::total_bytes() > 1 << 20);
        assert!(super::descriptors_max() > 2);
        #[cfg(target_os = "linux")]
        assert!(super::resident_bytes().is_some_and(|bytes| bytes > 1 << 16));
    }

    #[test]
    fn only_emfile_and_enfile_mean_out_of_descriptors() {
        let is_out = |errno| super::is_out_of_descriptors(&std::io::Error::from_raw_os_error(errno));
        assert!(is_out(libc::EMFILE) && is_out(libc::ENFILE));
        assert!(!is_out(libc::ENOBUFS) && !is_out(0));
        assert!(!super::is_out_of_descriptors(&std::io::ErrorKind::Other.into()));
    }
}
