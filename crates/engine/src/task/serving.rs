//! `ServingGuard`: counts the tasks that serve a connection, for which a drain waits.

use super::Tasks;
use crate::local::Local;

/// Counts a task that serves a connection. It finds its loop by itself, so that it takes no memory in the task: a loop
/// drops its tasks within a turn, or at its own end, and is the current one then.
pub(crate) struct ServingGuard;

impl ServingGuard {
    pub(crate) fn of(tasks: &Tasks) -> Self {
        tasks.count_serving(1);
        Self
    }
}

impl Drop for ServingGuard {
    fn drop(&mut self) {
        if let Some(local) = Local::current() {
            local.tasks.count_serving(-1);
        }
    }
}
