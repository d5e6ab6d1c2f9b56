//! The notes of a release: the section of its version in CHANGELOG.md, or `Unreleased` before the version has one, and
//! the digests of the files.

use std::fs;

use super::FILES;
use crate::command::{Failure, Step};

pub(super) fn write(version: &str, checksums: &str) -> Result<(), Failure> {
    let changelog = fs::read_to_string("CHANGELOG.md").map_err(|error| Failure(format!("CHANGELOG.md: {error}")))?;
    let (text, is_released) = section(&changelog, version)
        .ok_or_else(|| Failure(format!("CHANGELOG.md has no section {version}, and none that is unreleased")))?;
    if !is_released {
        println!("CHANGELOG.md has no section {version}: the notes are those of `Unreleased`");
    }
    let path = format!("{FILES}/RELEASE-NOTES.md");
    let compiler = Step::line("rustc --version").output()?;
    let compiler = compiler.trim();
    let notes = format!(
        "# Tidegate {version}\n\n{text}\n\n## Checksums\n\nBuilt by {compiler}. SHA-256:\n\n```text\n{checksums}```\n"
    );
    fs::write(&path, notes).map_err(|error| Failure(format!("{path}: {error}")))
}

/// The text below the heading of this version, and whether it is its own one.
fn section<'a>(changelog: &'a str, version: &str) -> Option<(&'a str, bool)> {
    let find = |name: &str| {
        let mut sections = changelog.split("\n## ").skip(1);
        sections.find(|text| {
            let heading = text.lines().next().unwrap_or_default();
            heading.trim_start_matches('[').split([' ', ']']).next() == Some(name)
        })
    };
    let own = find(version).map(|text| (text, true)).or_else(|| find("Unreleased").map(|text| (text, false)))?;
    let (text, is_own) = own;
    Some((text.split_once('\n').map_or("", |(_, text)| text).trim(), is_own))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_has_its_own_section_before_the_unreleased_one() {
        let text = "# Changelog\n\n## Unreleased\n\n- new\n\n## [0.2.0] - 2026-01-01\n\n- second\n\n\
            ## 0.1.0\n\n### Added\n- first\n";
        assert_eq!(section(text, "0.2.0"), Some(("- second", true)));
        assert_eq!(section(text, "0.1.0"), Some(("### Added\n- first", true)));
        assert_eq!(section(text, "0.3.0"), Some(("- new", false)));
        assert_eq!(section("# Changelog\n", "0.1.0"), None);
    }
}
