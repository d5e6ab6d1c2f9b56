//! The figures that are stored in the repository, in a text format with readable diffs.

use std::fmt;
use std::path::{Path, PathBuf};

/// A profile that has figures of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Profile {
    /// That of the other figures of the repository.
    Dist,
    /// That of users, by cargo's defaults.
    Defaults,
}

impl Profile {
    pub(crate) const ALL: [Self; 2] = [Self::Dist, Self::Defaults];

    /// The profile of this build; `None` if it has no figures.
    pub(crate) fn of_this_build() -> Option<Self> {
        Self::ALL.into_iter().find(|profile| profile.name() == env!("BUILD_PROFILE"))
    }

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Dist => "dist",
            Self::Defaults => "defaults",
        }
    }

    /// The command that stores its figures.
    pub(crate) fn store_command(self) -> String {
        format!("cargo run --profile {} -p tidegate-instructions -- --store", self.name())
    }

    fn path(self) -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("stored-{}.txt", self.name()))
    }
}

/// Figures, with compiler and instruction set: figures with another compiler or instruction set are not comparable.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Figures {
    pub(crate) profile: Profile,
    pub(crate) rustc: String,
    pub(crate) level: String,
    /// Job names, and the instructions of one operation.
    pub(crate) jobs: Vec<(String, f64)>,
}

impl Figures {
    /// Loads the stored figures of a profile; `None` if there are none.
    pub(crate) fn load(profile: Profile) -> Option<Self> {
        Self::parse(profile, &std::fs::read_to_string(profile.path()).ok()?)
    }

    pub(crate) fn store(&self) -> std::io::Result<()> {
        std::fs::write(self.profile.path(), self.to_string())
    }

    pub(crate) fn of(&self, job: &str) -> Option<f64> {
        self.jobs.iter().find(|(name, _)| name == job).map(|(_, instructions)| *instructions)
    }

    pub(crate) fn is_comparable(&self, other: &Self) -> bool {
        self.rustc == other.rustc && self.level == other.level
    }

    fn parse(profile: Profile, text: &str) -> Option<Self> {
        let mut lines = text.lines().filter(|line| !line.starts_with('#'));
        let (rustc, level) =
            (lines.next()?.strip_prefix("with ")?.to_owned(), lines.next()?.strip_prefix("on ")?.to_owned());
        let job = |line: &str| {
            let (name, instructions) = line.split_once(' ')?;
            Some((name.to_owned(), instructions.trim().parse().ok()?))
        };
        Some(Self { profile, rustc, level, jobs: lines.map(job).collect::<Option<_>>()? })
    }
}

impl fmt::Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "# Instructions of one operation, counted by callgrind. A change of more than 5 % is")?;
        writeln!(f, "# explained in the commit that makes it, which stores the new figures:")?;
        writeln!(f, "# {}", self.profile.store_command())?;
        writeln!(f, "with {}", self.rustc)?;
        writeln!(f, "on {}", self.level)?;
        self.jobs.iter().try_for_each(|(name, instructions)| writeln!(f, "{name:<17} {instructions:>8.1}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stored_figures_are_read_back() {
        let jobs = vec![("decode".to_owned(), 443.1), ("a-name-that-is-longer-than-others".to_owned(), 12_345.0)];
        let (profile, level) = (Profile::Defaults, "avx2".into());
        let figures = Figures { profile, rustc: "rustc 1.95.0 (0 2026)".into(), level, jobs };
        assert_eq!(Figures::parse(profile, &figures.to_string()), Some(figures));
    }

    #[test]
    fn malformed_figures_are_not_read() {
        for text in ["", "with rustc", "with rustc\non avx2\ndecode", "with rustc\non avx2\ndecode many"] {
            assert_eq!(Figures::parse(Profile::Dist, text), None, "{text:?}");
        }
    }

    #[test]
    fn the_figures_of_this_repository_are_those_of_its_jobs() {
        let jobs: Vec<_> = crate::jobs::JOBS.iter().map(|job| job.name).collect();
        for profile in Profile::ALL {
            let stored = Figures::load(profile).expect("figures are stored");
            let names: Vec<_> = stored.jobs.iter().map(|(name, _)| name.as_str()).collect();
            assert_eq!(names, jobs, "{profile:?}");
        }
    }
}
