//! What is counted, and what is not: callgrind counts within functions of this file only.
//!
//! It switches on its way into such a function, and back on its way out. So what is prepared for a job costs nothing,
//! and neither does, within it, what a kernel would do.

/// What callgrind is told to switch at: the functions of this file, however their names are written.
pub(crate) const PATTERN: &str = "*tidegate_instructions*counted*count_this*";

/// Does `work`, and has it counted. Within that, does it and has it not.
#[inline(never)]
pub(crate) fn count_this<T>(work: impl FnOnce() -> T) -> T {
    work()
}
