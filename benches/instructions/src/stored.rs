//! The figures that are stored in the repository, in a text format with readable diffs.

use std::fmt;
use std::path::Path;

/// Figures, with compiler and instruction set: figures with another compiler or instruction set are not comparable.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Figures {
    pub(crate) rustc: String,
    pub(crate) level: String,
    /// Job names, and the instructions of one operation.
    pub(crate) jobs: Vec<(String, f64)>,
}

impl Figures {
    /// Loads the stored figures; `None` if there are none.
    pub(crate) fn load() -> Option<Self> {
        Self::parse(&std::fs::read_to_string(path()).ok()?)
    }

    pub(crate) fn store(&self) -> std::io::Result<()> {
        std::fs::write(path(), self.to_string())
    }

    pub(crate) fn of(&self, job: &str) -> Option<f64> {
        self.jobs.iter().find(|(name, _)| name == job).map(|(_, instructions)| *instructions)
    }

    pub(crate) fn is_comparable(&self, other: &Self) -> bool {
        self.rustc == other.rustc && self.level == other.level
    }

    fn parse(text: &str) -> Option<Self> {
        let mut lines = text.lines().filter(|line| !line.starts_with('#'));
        let (rustc, level) =
            (lines.next()?.strip_prefix("with ")?.to_owned(), lines.next()?.strip_prefix("on ")?.to_owned());
        let job = |line: &str| {
            let (name, instructions) = line.split_once(' ')?;
            Some((name.to_owned(), instructions.trim().parse().ok()?))
        };
        Some(Self { rustc, level, jobs: lines.map(job).collect::<Option<_>>()? })
    }
}

impl fmt::Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "# Instructions of one operation, counted by callgrind. A change of more than 5 % is")?;
        writeln!(f, "# explained in the commit that makes it, which stores the new figures:")?;
        writeln!(f, "# {STORE}")?;
        writeln!(f, "with {}", self.rustc)?;
        writeln!(f, "on {}", self.level)?;
        self.jobs.iter().try_for_each(|(name, instructions)| writeln!(f, "{name:<17} {instructions:>8.1}"))
    }
}

fn path() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/stored.txt"))
}

/// The command that stores the figures.
pub(crate) const STORE: &str = "cargo run --profile dist -p tidegate-instructions -- --store";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stored_figures_are_read_back() {
        let jobs = vec![("decode".to_owned(), 443.1), ("a-name-that-is-longer-than-others".to_owned(), 12_345.0)];
        let figures = Figures { rustc: "rustc 1.95.0 (0 2026)".into(), level: "avx2".into(), jobs };
        assert_eq!(Figures::parse(&figures.to_string()), Some(figures));
    }

    #[test]
    fn malformed_figures_are_not_read() {
        for text in ["", "with rustc", "with rustc\non avx2\ndecode", "with rustc\non avx2\ndecode many"] {
            assert_eq!(Figures::parse(text), None, "{text:?}");
        }
    }

    #[test]
    fn the_figures_of_this_repository_are_those_of_its_jobs() {
        let stored = Figures::load().expect("figures are stored");
        let names: Vec<_> = stored.jobs.iter().map(|(name, _)| name.as_str()).collect();
        let jobs: Vec<_> = crate::jobs::JOBS.iter().map(|job| job.name).collect();
        assert_eq!(names, jobs);
    }
}
