//! What is counted, and what is not: callgrind counts within [`switch`] only.
//!
//! It switches on its way into that function, and back on its way out. So what is prepared for a job costs nothing,
//! and neither does, within it, what a kernel would do.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// The function at which callgrind switches counting, however its names are written.
pub(crate) const PATTERN: &str = "*tidegate_instructions*counted*switch*";

/// Does `work`, and has it counted.
pub(crate) fn count_this<T>(work: impl FnOnce() -> T) -> T {
    IS_COUNTING.store(true, Relaxed);
    let done = switch(work);
    IS_COUNTING.store(false, Relaxed);
    done
}

/// Does `work`, and has it not counted, also within work that is.
pub(crate) fn leave_out<T>(work: impl FnOnce() -> T) -> T {
    if IS_COUNTING.load(Relaxed) { switch(work) } else { work() }
}

#[inline(never)]
fn switch<T>(work: impl FnOnce() -> T) -> T {
    work()
}

/// The program has one thread.
static IS_COUNTING: AtomicBool = AtomicBool::new(false);
