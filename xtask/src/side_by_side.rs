//! Commands of one step, several at a time: most of them wait for a peer or a deadline. The output of each is printed whole
//! when it has ended. After a short command that fails no other begins, and the failure has its name.

use std::io::Write;
use std::process::{Output, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread::{self, available_parallelism};

use crate::command::{Failure, Step};

/// Runs the command that `command` makes of each name, two for each core at a time.
pub(crate) fn run_each(names: &[&str], command: impl Fn(&str) -> Step + Sync) -> Result<(), Failure> {
    let failures = Mutex::new(Vec::new());
    let has_failed = || !failures.lock().unwrap_or_else(PoisonError::into_inner).is_empty();
    for_each(names, 2 * available_parallelism().map_or(1, usize::from), |name| {
        if has_failed() {
            return;
        }
        if let Err(failure) = run(name, command(name)) {
            failures.lock().unwrap_or_else(PoisonError::into_inner).push(format!("{name}: {failure}"));
        }
    });
    let failures = failures.into_inner().unwrap_or_else(PoisonError::into_inner);
    if failures.is_empty() { Ok(()) } else { Err(Failure(failures.join("; "))) }
}

/// Calls `work` with each item, in order, and so many at a time.
pub(crate) fn for_each<T: Sync>(items: &[T], workers: usize, work: impl Fn(&T) + Sync) {
    let next = AtomicUsize::new(0);
    let work_all = || {
        while let Some(item) = items.get(next.fetch_add(1, Ordering::Relaxed)) {
            work(item);
        }
    };
    thread::scope(|scope| (0..workers).for_each(|_| drop(scope.spawn(work_all))));
}

fn run(name: &str, command: Step) -> Result<(), Failure> {
    let mut command = command.into_command();
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let Output { status, stdout, stderr } = command.output().map_err(|error| Failure(error.to_string()))?;
    let mut to = std::io::stdout().lock();
    let text = [format!("   Ran {name}\n").into_bytes(), stdout, stderr].concat();
    to.write_all(&text).map_err(|error| Failure(error.to_string()))?;
    if status.success() { Ok(()) } else { Err(Failure(status.to_string())) }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::*;

    /// An empty folder of a test's own.
    fn folder(name: &str) -> String {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/side-by-side-tests").join(name);
        drop(fs::remove_dir_all(&folder));
        fs::create_dir_all(&folder).expect("a folder");
        folder.to_string_lossy().into_owned()
    }

    #[test]
    fn two_commands_that_wait_for_each_other_end() {
        let folder = folder("pair");
        let other = |name: &str| if name == "ebb" { "flow" } else { "ebb" };
        let script = |name: &str| format!("touch {name}; until [ -e {} ]; do sleep 0.01; done", other(name));
        let result = run_each(&["ebb", "flow"], |name| Step::new("sh").arg("-c").arg(script(name)).folder(&folder));
        assert!(result.is_ok());
    }

    #[test]
    fn a_command_that_fails_is_named_and_later_ones_do_not_begin() {
        let folder = folder("failure");
        let names: Vec<_> = (0..100).map(|number| number.to_string()).collect();
        let names: Vec<_> = names.iter().map(String::as_str).collect();
        let script = |name: &str| format!("touch {name}; exit 3");
        let result = run_each(&names, |name| Step::new("sh").arg("-c").arg(script(name)).folder(&folder));
        let failure = result.expect_err("each of them fails").0;
        assert!(failure.contains("0: exit status: 3"), "{failure}");
        // One of each worker has begun.
        let begun = fs::read_dir(&folder).expect("a folder").count();
        assert!(begun <= 2 * available_parallelism().map_or(1, usize::from), "{begun} have begun");
    }
}
