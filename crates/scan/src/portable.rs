//! The portable scanner: names and hosts byte by byte in a table, values eight bytes at a time.
//!
//! It shares only classes and errors with the sweep, which makes it an independent reference in tests.

use crate::classes::{escaped_run_end, is_control, is_escape, is_host, is_path, is_path_escape, is_target, is_token};
use crate::field::{Field, Stop, no_line_end, no_name};
use crate::scanner::{Scanner, Task, sealed::Sealed};

/// No special instructions.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Portable;

impl Portable {
    /// Outlined, as for the other scanners: callers use it as the last resort, and it must not enlarge them.
    #[inline(never)]
    pub(crate) fn run<T: Task>(self, task: T) -> T::Output {
        task.run(self)
    }
}

impl Sealed for Portable {}

impl Scanner for Portable {
    #[inline(always)]
    fn fields<'b, E>(
        self,
        bytes: &'b [u8],
        at: usize,
        mut visit: impl FnMut(Field<'b>) -> Result<(), E>,
    ) -> Result<usize, Stop<E>> {
        let mut start = at;
        loop {
            let name_end = self.token_end(bytes, start);
            if name_end == start || bytes.get(name_end) != Some(&b':') {
                return if is_line_end(bytes, start) { Ok(start + 2) } else { Err(no_name(bytes, start, name_end)) };
            }
            let value_end = self.value_end(bytes, name_end + 1);
            if !is_line_end(bytes, value_end) {
                return Err(no_line_end(bytes, value_end));
            }
            // SAFETY: a colon is at `name_end`, not before `start`, and a line end at `value_end`, behind that.
            visit(unsafe { Field::new(bytes, start, name_end, value_end) }).map_err(Stop::Refused)?;
            start = value_end + 2;
        }
    }

    #[inline(always)]
    fn token_end(self, bytes: &[u8], at: usize) -> usize {
        run_end(bytes, at, is_token)
    }

    #[inline(always)]
    fn value_end(self, bytes: &[u8], mut at: usize) -> usize {
        while let Some(word) = bytes.get(at..).and_then(<[u8]>::first_chunk) {
            let found = controls(u64::from_le_bytes(*word));
            if found == 0 {
                at += 8;
                continue;
            }
            at += found.trailing_zeros() as usize / 8;
            if bytes[at] != b'\t' {
                return at;
            }
            at += 1;
        }
        run_end(bytes, at, |byte| !is_control(byte))
    }

    #[inline(always)]
    fn target_end(self, bytes: &[u8], at: usize) -> usize {
        escaped_run_end(bytes, at, is_escape, |at| self.plain_target_end(bytes, at))
    }

    #[inline(always)]
    fn path_end(self, bytes: &[u8], at: usize) -> usize {
        escaped_run_end(bytes, at, is_path_escape, |at| self.plain_path_end(bytes, at))
    }

    #[inline(always)]
    fn plain_path_end(self, bytes: &[u8], at: usize) -> usize {
        run_end(bytes, at, is_path)
    }

    #[inline(always)]
    fn plain_target_end(self, bytes: &[u8], at: usize) -> usize {
        run_end(bytes, at, is_target)
    }

    #[inline(always)]
    fn host_end(self, bytes: &[u8], at: usize) -> usize {
        run_end(bytes, at, is_host)
    }
}

/// Sets the top bit of each byte that is a control character, the tabulator included. Bytes above the lowest such byte
/// may have the bit set wrongly.
#[inline(always)]
const fn controls(word: u64) -> u64 {
    const fn each(byte: u8) -> u64 {
        u64::from_le_bytes([byte; 8])
    }
    let below_space = word.wrapping_sub(each(b' '));
    let delete = (word ^ each(0x7f)).wrapping_sub(each(1));
    // A byte that is not ASCII has its own top bit set.
    (below_space | delete) & !word & each(0x80)
}

#[inline(always)]
fn is_line_end(bytes: &[u8], at: usize) -> bool {
    bytes.get(at..).is_some_and(|rest| rest.starts_with(b"\r\n"))
}

#[inline(always)]
fn run_end(bytes: &[u8], at: usize, belongs: impl Fn(u8) -> bool) -> usize {
    let rest = bytes.get(at..).unwrap_or_default();
    at + rest.iter().position(|&byte| !belongs(byte)).unwrap_or(rest.len())
}
