//! Lines on standard error, outside of the log.

use std::fmt;
use std::io::{self, Write as _};

/// Prints a line to standard error. One that is closed, or a file on a full disk, changes nothing: `eprintln!` would
/// panic.
pub(crate) fn complain(line: fmt::Arguments<'_>) {
    let _ = io::stderr().write_all(format!("tidegate: {line}\n").as_bytes());
}
