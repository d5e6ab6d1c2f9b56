//! Marks the counted code: callgrind counts within [`switch`] only.
//!
//! Callgrind toggles counting on entry to that function, and again on exit. So the setup of a job is not counted, and
//! neither is, within a job, the work that a kernel would do.

use std::hint::black_box;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// The pattern of the function at which callgrind toggles counting, for every mangling.
pub(crate) const PATTERN: &str = "*tidegate_instructions*counted*switch*";

/// Runs `work`, counted.
pub(crate) fn count_this<T>(work: impl FnOnce() -> T) -> T {
    IS_COUNTING.store(true, Relaxed);
    let done = switch(work);
    IS_COUNTING.store(false, Relaxed);
    done
}

/// Runs `work`, not counted, also within counted work.
pub(crate) fn leave_out<T>(work: impl FnOnce() -> T) -> T {
    if IS_COUNTING.load(Relaxed) { switch(work) } else { work() }
}

#[inline(never)]
fn switch<T>(work: impl FnOnce() -> T) -> T {
    let done = work();
    // After a tail call, the function would not be on the stack any more: callgrind would take the end of the work for no
    // exit of it.
    black_box(&done);
    done
}

/// The program has one thread.
static IS_COUNTING: AtomicBool = AtomicBool::new(false);
