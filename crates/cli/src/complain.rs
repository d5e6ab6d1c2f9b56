//! Lines on standard error, outside of the log.

use std::fmt;

use crate::log;

/// Prints a line to standard error.
pub(crate) fn complain(line: fmt::Arguments<'_>) {
    log::write_to_stderr(&format!("tidegate: {line}"));
}
