//! A file has one idea, and at most 800 lines.

use std::collections::BTreeMap;

use super::sources::{differences, rust_files};

const LINES_MAX: usize = 800;

/// Files that a program has written.
const GENERATED: &[&str] = &["benches/arena/src/benchmark.rs", "examples/grpc/tides.v1.rs"];

#[test]
fn a_file_has_at_most_800_lines() {
    let sources = rust_files(&["benches", "crates", "examples", "fuzz", "xtask"]);
    let found = long(sources.into_iter().filter(|(path, _)| !GENERATED.contains(&&**path)));
    let differences = differences(&found, &[]);
    assert!(differences.is_empty(), "lines of files:\n{}", differences.join("\n"));
}

/// The files that are too long, with their lines.
fn long(sources: impl Iterator<Item = (String, String)>) -> BTreeMap<String, usize> {
    let lengths = sources.map(|(path, source)| (path, source.lines().count()));
    lengths.filter(|(_, lines)| *lines > LINES_MAX).collect()
}

#[test]
fn a_long_file_is_found() {
    let file = |name: &str, lines: usize| (name.to_owned(), "//\n".repeat(lines));
    let found = long([file("short.rs", LINES_MAX), file("long.rs", LINES_MAX + 1)].into_iter());
    assert_eq!(found, BTreeMap::from([("long.rs".to_owned(), LINES_MAX + 1)]));
}
