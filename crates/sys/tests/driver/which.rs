//! Which driver a test is about.

use std::fmt::{self, Display};
use std::io;
use std::process::Command;

use tidegate_buffer::Pool;
use tidegate_sys::Driver;
use tidegate_sys::readiness::Readiness;
use tidegate_sys::uring::Uring;

/// A driver that is to keep what is promised.
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

    /// Plays a test. Where the system has no such driver it is skipped, unless `TIDEGATE_TOOLS_REQUIRED=1` is in the
    /// environment.
    pub(crate) fn play(self, test: fn(Self)) {
        if self == Self::Uring
            && let Err(error) = Uring::probe()
        {
            let required = std::env::var_os("TIDEGATE_TOOLS_REQUIRED").is_some_and(|value| value == "1");
            assert!(!required, "io_uring is required: {error}");
            return println!("skipped: there is no io_uring here: {error}");
        }
        test(self);
    }

    /// Whether the kernel goes on with what it was asked for while nobody looks: then a little still comes after it was
    /// told to stop.
    pub(crate) fn runs_ahead(self) -> bool {
        self == Self::Uring
    }

    /// Bytes that may still be told when receiving is held: what a kernel that runs ahead has buffers for.
    pub(crate) fn held_bytes_max(self) -> usize {
        if self.runs_ahead() { 32 * 4096 } else { 0 }
    }

    /// Connections that may be accepted in one turn.
    pub(crate) fn accepted_a_turn_max(self) -> usize {
        if self.runs_ahead() { 2048 } else { 64 }
    }

    /// Runs `body` in a process of its own, for what concerns the whole process: limits, signals. `name` is the test's.
    pub(crate) fn alone(self, name: &str, body: impl FnOnce()) {
        const CHILD: &str = "TIDEGATE_TEST_ALONE";
        if std::env::var_os(CHILD).is_some() {
            return body();
        }
        let (program, name) = (std::env::current_exe().unwrap(), format!("{self}::{name}"));
        let output =
            Command::new(program).args(["--exact", &name, "--test-threads=1"]).env(CHILD, "1").output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && text.contains("1 passed"), "{}\n{text}", output.status);
    }
}

/// As the module of its tests is called.
impl Display for Which {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Epoll => "epoll",
            Self::Uring => "uring",
        })
    }
}
