//! `Slowest`: the tests that take the most time, from the output of test programs.
//!
//! libtest prints times only with an unstable option, which a test program of the stable compiler accepts with
//! `RUSTC_BOOTSTRAP` in its environment. Cargo and the compiler must not see that variable, or every build script that
//! asks the compiler for unstable features runs again; so the script [`RUNNER`] sets it for test programs alone.

use std::collections::BTreeMap;
use std::fmt;

/// Starts a test program for cargo, with the option.
pub(crate) const RUNNER: &str = "xtask/run-test-program";

/// The options of a test program that print how long each test takes.
pub(crate) const REPORT_TIME: [&str; 2] = ["-Zunstable-options", "--report-time"];

/// The longest time of each test.
#[derive(Debug, Default)]
pub(crate) struct Slowest {
    seconds: BTreeMap<String, f64>,
}

impl Slowest {
    /// Reads a line of a program's output, `test NAME ... ok <1.234s>`. A test's own output may stand within it.
    pub(crate) fn read(&mut self, program: &str, line: &str) {
        if let Some((test, seconds)) = time_of(line) {
            let longest = self.seconds.entry(format!("{test} ({program})")).or_default();
            *longest = longest.max(seconds);
        }
    }

    /// Takes the times of another list.
    pub(crate) fn extend(&mut self, other: Self) {
        for (test, seconds) in other.seconds {
            let longest = self.seconds.entry(test).or_default();
            *longest = longest.max(seconds);
        }
    }
}

impl fmt::Display for Slowest {
    /// A line for each of the slowest tests.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut all: Vec<_> = self.seconds.iter().collect();
        all.sort_by(|(_, one), (_, other)| other.total_cmp(one));
        all.iter().take(COUNT).try_for_each(|(test, seconds)| writeln!(f, "{seconds:7.1} s  {test}"))
    }
}

fn time_of(line: &str) -> Option<(&str, f64)> {
    let (test, rest) = line.strip_prefix("test ")?.split_once(" ... ")?;
    let (_, time) = rest.strip_suffix("s>")?.rsplit_once('<')?;
    Some((test, time.parse().ok()?))
}

const COUNT: usize = 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_slowest_tests_come_first_with_their_longest_time() {
        let mut slowest = Slowest::default();
        for number in 1..=11 {
            slowest.read("-p a --lib", &format!("test of_{number} ... ok <0.{number:02}0s>"));
        }
        slowest.read("-p a --lib", "test of_3 ... FAILED <2.000s>");
        slowest.read("-p b --lib", "test of_3 ... its own words <ok> ok <1.500s>");
        for other in ["test without ... ok", "test ignored ... ignored", "running 3 tests", "test odd ... ok <xs>"] {
            slowest.read("-p a --lib", other);
        }
        let lines = slowest.to_string();
        let lines: Vec<_> = lines.lines().collect();
        assert_eq!(lines.len(), 10);
        assert_eq!(lines[..2], ["    2.0 s  of_3 (-p a --lib)", "    1.5 s  of_3 (-p b --lib)"]);
        assert!(lines[2].ends_with("of_11 (-p a --lib)") && lines[9].ends_with("of_4 (-p a --lib)"), "{lines:?}");
    }
}
