//! The driver that a test runs on.

use std::fmt::{self, Display};
use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tidegate_buffer::Pool;
use tidegate_sys::Driver;
use tidegate_sys::readiness::Readiness;
use tidegate_sys::uring::Uring;

/// A driver to test.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Which {
    Epoll,
    Uring,
}

impl Which {
    pub(crate) fn make(self, pool: &Pool) -> io::Result<Box<dyn Driver>> {
        Ok(match self {
            Self::Epoll => Box::new(Readiness::new(pool)?),
            Self::Uring => Box::new(Uring::new(pool)?),
        })
    }

    /// Runs a test. If the system has no such driver the test is skipped, unless `TIDEGATE_TOOLS_REQUIRED=1` is in the
    /// environment.
    pub(crate) fn run(self, test: fn(Self)) {
        if self == Self::Uring
            && let Err(error) = Uring::probe()
        {
            let required = std::env::var_os("TIDEGATE_TOOLS_REQUIRED").is_some_and(|value| value == "1");
            assert!(!required, "io_uring is required: {error}");
            return println!("skipped: there is no io_uring here: {error}");
        }
        test(self);
    }

    /// Whether the kernel completes operations between two waits. Then a few completions may follow after an operation
    /// was stopped.
    pub(crate) fn runs_ahead(self) -> bool {
        self == Self::Uring
    }

    /// The most bytes that may still be reported after receives were paused: as many as the kernel has buffers for.
    pub(crate) fn paused_bytes_max(self) -> usize {
        if self.runs_ahead() { 48 * 4096 } else { 0 }
    }

    /// The most connections that may be accepted in one turn.
    pub(crate) fn accepted_a_turn_max(self) -> usize {
        if self.runs_ahead() { 2048 } else { 64 }
    }

    /// Runs `body` in a process of its own, since it changes the whole process: limits, signals. `name` is the test's.
    pub(crate) fn alone(self, name: &str, body: impl FnOnce()) {
        self.run_alone(name, false, body);
    }

    /// Runs `body` in a process of its own, and as the user `nobody` if this process runs as root.
    pub(crate) fn alone_unprivileged(self, name: &str, body: impl FnOnce()) {
        self.run_alone(name, rustix::process::geteuid().is_root(), body);
    }

    fn run_alone(self, name: &str, as_nobody: bool, body: impl FnOnce()) {
        const CHILD: &str = "TIDEGATE_TEST_ALONE";
        if std::env::var_os(CHILD).is_some() {
            return body();
        }
        // A user who cannot read the program's directory can execute it by this path.
        let mut command = Command::new("/proc/self/exe");
        command
            .args(["--exact", &format!("driver::{self}::{name}"), "--test-threads=1", "--nocapture"])
            .env(CHILD, "1");
        if as_nobody {
            command.uid(NOBODY).gid(NOBODY);
        }
        let output = command.output().unwrap();
        let text = [output.stdout, output.stderr].concat();
        let text = String::from_utf8_lossy(&text);
        assert!(output.status.success() && text.contains("1 passed"), "{}\n{text}", output.status);
    }
}

/// The number of open descriptors of this process.
pub(crate) fn open_descriptors() -> usize {
    // One of the entries is the descriptor of the directory itself.
    std::fs::read_dir("/proc/self/fd").unwrap().count() - 1
}

/// Raises the limit of descriptors to the maximum that this process may set.
pub(crate) fn raise_descriptor_limit() {
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum }).unwrap();
}

/// The name of the module of the driver's tests.
impl Display for Which {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Epoll => "epoll",
            Self::Uring => "uring",
        })
    }
}

/// The number of the user and the group `nobody`.
const NOBODY: u32 = 65534;
