//! Marks the counted code: callgrind counts within [`switch_on`] only, and not within [`switch_off`].
//!
//! Callgrind toggles counting on entry to these functions, and again on exit. So the setup of a job is not counted, and
//! neither is, within a job, the work that a kernel would do. There are two, since callgrind does not toggle on entry to a
//! function that is entered already.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// The pattern of the functions at which callgrind toggles counting, for every mangling.
pub(crate) const PATTERN: &str = "*tidegate_instructions*counted*switch*";

/// Runs `work`, counted.
pub(crate) fn count_this<T>(work: impl FnOnce() -> T) -> T {
    IS_COUNTING.store(true, Relaxed);
    let done = switch_on(work);
    IS_COUNTING.store(false, Relaxed);
    done
}

/// Runs `work`, not counted, also within counted work.
pub(crate) fn leave_out<T>(work: impl FnOnce() -> T) -> T {
    if IS_COUNTING.load(Relaxed) { switch_off(work) } else { work() }
}

#[inline(never)]
fn switch_on<T>(work: impl FnOnce() -> T) -> T {
    work()
}

#[inline(never)]
fn switch_off<T>(work: impl FnOnce() -> T) -> T {
    work()
}

/// The program has one thread.
static IS_COUNTING: AtomicBool = AtomicBool::new(false);
