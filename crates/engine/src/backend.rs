//! `Backend`: which driver a loop runs on. It is decided when the loop starts, on its own thread.
//!
//! The only test for io_uring is creating a ring: whatever is missing (the system call, a feature, a permission,
//! memory, a descriptor) fails here, and nowhere later. There is no probe beforehand, since each loop may still fail
//! alone: then that loop alone runs on epoll, and the others stay as they are.

use std::fmt;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};

use tidegate_buffer::Pool;
use tidegate_sys::Driver;
use tidegate_sys::readiness::Readiness;
use tidegate_sys::uring::Uring;

use crate::start_error::{StartError, uring_advice};
use crate::unwind::catch_and_log;

/// Which driver loops run on.
///
/// Precedence: the program, the environment variable `TIDEGATE_BACKEND` (`auto`, `epoll` or `uring`), io_uring where it
/// is available, epoll. A fallback to epoll is logged once per process.
///
/// io_uring needs Linux 6.0 or later and a sandbox that permits it; those of most containers do not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Backend {
    /// The backend that the environment names, or the best available one.
    #[default]
    Auto,
    /// Readiness, through epoll.
    Epoll,
    /// Completion, through io_uring. Where it is not available, the server does not start.
    Uring,
}

/// Which driver a loop is to have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BackendPlan {
    Epoll,
    Uring,
    /// io_uring if it is available, otherwise epoll.
    UringOrEpoll,
}

/// The plan for `auto`. On io_uring the same work takes 0.90 to 1.04 times the processor time that it takes on epoll,
/// and for small requests a twentieth of the system calls: docs/io-uring.md.
const AUTO: BackendPlan = BackendPlan::UringOrEpoll;

impl Backend {
    /// The plan that the caller and the environment request.
    ///
    /// # Errors
    /// If the environment names an unknown backend.
    pub(crate) fn plan(self) -> Result<BackendPlan, StartError> {
        let wanted = match self {
            Self::Auto => from_environment()?,
            named => named,
        };
        Ok(match wanted {
            Self::Auto => AUTO,
            Self::Epoll => BackendPlan::Epoll,
            Self::Uring => BackendPlan::Uring,
        })
    }
}

impl BackendPlan {
    /// A driver for a loop of this thread.
    ///
    /// # Errors
    /// If the named driver is not available, or the system has no resources left for either.
    pub(crate) fn open(self, pool: &Pool) -> Result<Box<dyn Driver>, StartError> {
        let epoll = || Readiness::new(pool).map(boxed).map_err(StartError::System);
        let uring = || Uring::new(pool).map(boxed);
        match self {
            Self::Epoll => epoll(),
            Self::Uring => uring().map_err(StartError::Uring),
            Self::UringOrEpoll => uring().or_else(|error| epoll().inspect(|_| log_fallback(&error))),
        }
    }
}

fn boxed<D: Driver + 'static>(driver: D) -> Box<dyn Driver> {
    Box::new(driver)
}

/// Logs once per process why loops run on epoll: the reason of one loop is usually that of all.
fn log_fallback(error: &io::Error) {
    static LOGGED: AtomicBool = AtomicBool::new(false);
    if !LOGGED.swap(true, Ordering::Relaxed) {
        catch_and_log(|| {
            let reason = format!("{error}{}", uring_advice(error));
            tracing::info!(subsystem = "backend", reason, "io_uring not available; using epoll");
        });
    }
}

fn from_environment() -> Result<Backend, StartError> {
    match std::env::var_os(VARIABLE) {
        // Empty counts as unset: a shell clears a variable for one command that way.
        Some(name) if !name.is_empty() => {
            let name = name.to_string_lossy();
            name.parse().map_err(|_| StartError::Backend(name.into()))
        }
        _ => Ok(Backend::Auto),
    }
}

impl std::str::FromStr for Backend {
    type Err = UnknownBackend;

    fn from_str(text: &str) -> Result<Self, UnknownBackend> {
        match text {
            "auto" => Ok(Self::Auto),
            "epoll" => Ok(Self::Epoll),
            "uring" => Ok(Self::Uring),
            _ => Err(UnknownBackend),
        }
    }
}

/// The text names no backend.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UnknownBackend;

impl fmt::Display for UnknownBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("no such backend: there are auto, epoll and uring")
    }
}

impl std::error::Error for UnknownBackend {}

const VARIABLE: &str = "TIDEGATE_BACKEND";
