//! The map of a folder, a table `| file | holds |` in the documentation of its root, has each file of the folder. The root
//! is `lib.rs`, `main.rs` or `mod.rs`.

use std::collections::{BTreeMap, BTreeSet};

use super::sources::{root, rust_files};

/// The names of roots.
const ROOTS: &[&str] = &["lib.rs", "main.rs", "mod.rs"];

/// A source folder of a package with more files and folders than this has a map.
const FILES_WITHOUT_MAP_MAX: usize = 4;

/// Folders without a map, each with its reason.
const WITHOUT_MAP: &[&str] = &[
    "benches/arena/src", // a program with one file for each workload
];

#[test]
fn every_source_file_is_on_the_map() {
    let maps = maps();
    assert!(maps.len() >= 7, "each larger crate has a map");
    for (folder, listed) in &maps {
        assert_eq!(listed, &files_of(folder), "the map of {folder}, and its files");
    }
}

#[test]
fn every_larger_package_has_a_map() {
    let maps = maps();
    let folders: BTreeSet<_> =
        sources().into_keys().filter_map(|path| Some(path.rsplit_once('/')?.0.to_owned())).collect();
    for folder in folders.iter().filter(|folder| folder.ends_with("/src")) {
        let is_small = files_of(folder).len() <= FILES_WITHOUT_MAP_MAX;
        assert!(
            is_small || maps.contains_key(folder) || WITHOUT_MAP.contains(&&**folder),
            "{folder} has no map of its files"
        );
    }
}

fn sources() -> BTreeMap<String, String> {
    rust_files(&["benches", "crates", "fuzz", "xtask"])
}

/// The files in the map of each folder that has one.
fn maps() -> BTreeMap<String, BTreeSet<String>> {
    let mut maps = BTreeMap::new();
    for (path, source) in sources() {
        let Some((folder, name)) = path.rsplit_once('/') else { continue };
        let files = map_of(&source);
        if ROOTS.contains(&name) && !files.is_empty() {
            let before = maps.insert(folder.to_owned(), files);
            assert!(before.is_none(), "{folder} has two maps");
        }
    }
    maps
}

/// The files in the map of a root's documentation.
fn map_of(source: &str) -> BTreeSet<String> {
    let lines = source.lines().map_while(|line| line.strip_prefix("//!").map(str::trim));
    files_of_rows(lines.skip_while(|line| *line != "| file | holds |"))
}

/// The names in the first cell of each row, up to the end of the table.
fn files_of_rows<'a>(lines: impl Iterator<Item = &'a str>) -> BTreeSet<String> {
    let rows = lines.skip_while(|line| !line.starts_with('|')).take_while(|line| line.starts_with('|'));
    let cells = rows.filter(|row| row.starts_with("| `")).filter_map(|row| row.split('|').nth(1));
    let names = cells.flat_map(|cell| cell.split('`').skip(1).step_by(2));
    names.filter(|name| !ROOTS.contains(name)).map(str::to_owned).collect()
}

/// Files and folders in a source folder, except the roots, and a folder that belongs to the file of the same name.
fn files_of(folder: &str) -> BTreeSet<String> {
    let entries = std::fs::read_dir(root().join(folder)).expect("a folder of sources");
    let names = entries.map(|entry| entry.expect("a readable entry").file_name().into_string().expect("UTF-8"));
    let (files, folders): (BTreeSet<_>, BTreeSet<_>) = names.partition(|name| name.contains('.'));
    let apart = folders.into_iter().filter(|name| !files.contains(&format!("{name}.rs"))).map(|name| name + "/");
    let sources = files.iter().filter(|name| name.ends_with(".rs") && !ROOTS.contains(&name.as_str()));
    sources.cloned().chain(apart).collect()
}

#[test]
fn a_map_is_the_table_of_files_in_the_documentation_of_a_root() {
    let source = "//! | a | b |\n//! |---|---|\n//! | `no` | |\n//!\n//! # Files\n//!\n//! | file | holds |\n//! |---|---|\n\
                  //! | `one.rs`, `two/` | x `y` |\n//! | `lib.rs` | z |\n\n//! | file | holds |\n//! | `three.rs` | |\n";
    assert_eq!(map_of(source), BTreeSet::from(["one.rs".to_owned(), "two/".to_owned()]));
    assert!(map_of("//! | `no.rs` | |\nuse a;\n").is_empty());
}
