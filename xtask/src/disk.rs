//! How much a run leaves below `target`.

use crate::command::{Failure, Step};

/// The bytes below `target`; none if it is missing.
pub(crate) fn bytes_of_target() -> u64 {
    let table = Step::line("du --summarize --block-size=1 target").output().unwrap_or_default();
    table.split_whitespace().next().and_then(|bytes| bytes.parse().ok()).unwrap_or(0)
}

/// Fails if a run left more new files than it may.
pub(crate) fn check_growth(before: u64) -> Result<(), Failure> {
    check(before, bytes_of_target())
}

fn check(before: u64, after: u64) -> Result<(), Failure> {
    let growth = after.saturating_sub(before);
    println!("{} MB below target, {} MB of them by this run", after / MB, growth / MB);
    if growth <= GROWTH_MAX {
        return Ok(());
    }
    Err(Failure(format!("the run leaves {} MB below target, and may leave {} MB", growth / MB, GROWTH_MAX / MB)))
}

const MB: u64 = 1_000_000;

const GROWTH_MAX: u64 = 8_000 * MB;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_from_before_do_not_count() {
        assert!(check(0, GROWTH_MAX).is_ok());
        assert!(check(0, GROWTH_MAX + 1).is_err());
        assert!(check(5 * GROWTH_MAX, 6 * GROWTH_MAX).is_ok());
        assert!(check(9, 3).is_ok());
    }
}
