//! The memory and the descriptors of the machine and the process; and giving memory back.

use std::path::{Component, Path, PathBuf};
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
    // Not by rustix, which follows the kernel's auxiliary vector: that is not the one of a program within valgrind.
    // SAFETY: the call takes no pointers and may be made at any time from any thread.
    let page_bytes = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    Some(pages * u64::try_from(page_bytes).ok()?)
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
    let groups = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    control_group_limit(Path::new("/sys/fs/cgroup"), &groups).map_or(machine, |limit| limit.min(machine))
}

/// The least memory limit of this process's control groups, of version 2 (`memory.max`) and of version 1
/// (`memory/memory.limit_in_bytes`), where `root` is mounted. `groups` is the text of `/proc/self/cgroup`: a line is
/// `0::PATH` for version 2, and `NUMBER:CONTROLLERS:PATH` for version 1. The groups above limit a group too.
///
/// In a container the root may be the group itself, and then the path is not there: the root counts in any case.
fn control_group_limit(root: &Path, groups: &str) -> Option<u64> {
    let mut limits = Vec::new();
    let mut add = |directory: PathBuf, file: &str, path: &str| {
        // A path begins with a slash; one above the root of its namespace begins with `/..`, and leads nowhere.
        let path = Path::new(path.trim_start_matches('/'));
        let is_below = path.components().all(|part| matches!(part, Component::Normal(_)));
        for path in path.ancestors().filter(|path| is_below || path.as_os_str().is_empty()) {
            let text = std::fs::read_to_string(directory.join(path).join(file)).ok();
            // Without a limit the file has the word `max`, or a number beyond any memory.
            limits.extend(text.and_then(|text| text.trim().parse::<u64>().ok()));
        }
    };
    add(root.to_owned(), "memory.max", "");
    add(root.join("memory"), "memory.limit_in_bytes", "");
    for line in groups.lines() {
        let mut parts = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (parts.next(), parts.next()) else { continue };
        if controllers.is_empty() {
            add(root.to_owned(), "memory.max", path);
            // Where both versions are mounted, version 2 has a folder of its own.
            add(root.join("unified"), "memory.max", path);
        } else if controllers.split(',').any(|controller| controller == "memory") {
            add(root.join("memory"), "memory.limit_in_bytes", path);
        }
    }
    limits.into_iter().min()
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
    use std::fs;

    #[test]
    fn the_machine_has_some_memory() {
        super::give_back();
        assert!(super::total_bytes() > 1 << 20);
        assert!(super::descriptors_max() > 2);
        #[cfg(target_os = "linux")]
        assert!(super::resident_bytes().is_some_and(|bytes| bytes > 1 << 16));
    }

    #[test]
    fn the_least_limit_of_a_control_group_and_those_above_counts() {
        let root = std::env::temp_dir().join(format!("tidegate-cgroup-{}", std::process::id()));
        let write = |file: &str, text: &str| {
            let path = root.join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        let limit = |groups: &str| super::control_group_limit(&root, groups);
        let (v1, v2) = ("5:cpu,memory:/docker/7\n1:name=systemd:/docker/7\n", "0::/system.slice/tide.service\n");
        assert_eq!(limit(v1), None, "no control groups are mounted");
        // Version 1: the number of a group without a limit is near 2^63.
        write("memory/memory.limit_in_bytes", "9223372036854771712\n");
        write("memory/docker/7/memory.limit_in_bytes", "50000000\n");
        assert_eq!(limit(v1), Some(50_000_000));
        write("memory/docker/memory.limit_in_bytes", "40000000\n");
        assert_eq!(limit(v1), Some(40_000_000), "the group above");
        assert_eq!(limit("5:memory:/../..\n"), Some(9_223_372_036_854_771_712), "a path that leads nowhere");
        // In a container the group is the root.
        write("memory/memory.limit_in_bytes", "30000000\n");
        assert_eq!(limit("5:memory:/docker/9\n"), Some(30_000_000));
        fs::remove_dir_all(root.join("memory")).unwrap();
        write("system.slice/tide.service/memory.max", "max\n");
        assert_eq!(limit(v2), None);
        write("system.slice/memory.max", "60000000\n");
        assert_eq!(limit(v2), Some(60_000_000));
        write("memory.max", "20000000\n");
        assert_eq!(limit(v2), Some(20_000_000));
        assert_eq!(limit(""), Some(20_000_000), "without /proc");
        fs::remove_dir_all(&root).unwrap();
    }

    #[test]
    fn only_emfile_and_enfile_mean_out_of_descriptors() {
        let is_out = |errno| super::is_out_of_descriptors(&std::io::Error::from_raw_os_error(errno));
        assert!(is_out(libc::EMFILE) && is_out(libc::ENFILE));
        assert!(!is_out(libc::ENOBUFS) && !is_out(0));
        assert!(!super::is_out_of_descriptors(&std::io::ErrorKind::Other.into()));
    }
}
