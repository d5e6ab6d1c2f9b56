//! The files of the repository, and the counts that checks allow beyond their bound.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// Documents that keep the names of their time.
const HISTORY: &[&str] = &["CHANGELOG.md"];

/// The root of the repository.
pub(super) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The Rust files below these folders of the repository, by their paths in it.
pub(super) fn rust_files(folders: &[&str]) -> BTreeMap<String, String> {
    files(folders, "rs")
}

/// The files with this extension below these folders of the repository, by their paths in it.
pub(super) fn files(folders: &[&str], extension: &str) -> BTreeMap<String, String> {
    let root = root();
    let mut paths = Vec::new();
    folders.iter().for_each(|folder| collect(&root.join(folder), extension, &mut paths));
    assert!(!paths.is_empty(), "no file of the kind {extension} in {folders:?}");
    let read = |path: PathBuf| {
        let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        (path.strip_prefix(&root).expect("below the root").to_string_lossy().into_owned(), text)
    };
    paths.into_iter().map(read).collect()
}

/// The Markdown files of the repository, by their paths in it, except a history.
pub(super) fn markdown() -> BTreeMap<String, String> {
    let mut documents = files(&["benches", "crates", "docs", "examples", "fuzz", "interop"], "md");
    // The README of a package is a link to that of the repository.
    documents.retain(|path, _| !root().join(path).is_symlink());
    for entry in fs::read_dir(root()).expect("the root of the repository") {
        let path = entry.expect("a readable entry").path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if name.ends_with(".md") && !HISTORY.contains(&&*name) {
            documents.insert(name, fs::read_to_string(path).expect("a document"));
        }
    }
    assert!(documents.contains_key("ARCHITECTURE.md") && documents.contains_key("docs/guide/README.md"));
    documents
}

fn collect(folder: &Path, extension: &str, paths: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display())) {
        let path = entry.expect("a readable entry").path();
        if path.is_dir() {
            // A template has variables in place of names: `cargo xtask ci` makes programs of them, and checks those.
            let is_left_out = path.file_name().is_some_and(|name| name == "target" || name == "templates");
            if !is_left_out {
                collect(&path, extension, paths);
            }
        } else if path.extension().is_some_and(|found| found == extension) {
            paths.push(path);
        }
    }
}

/// Compares the counts above a bound with the list of those that are allowed. The list may only shrink: a count that is
/// larger fails, and so does one that is smaller than listed, so that it cannot grow back.
pub(super) fn differences(found: &BTreeMap<String, usize>, allowed: &[(&str, usize)]) -> Vec<String> {
    let allowed: BTreeMap<_, _> = allowed.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect();
    let beyond = found.iter().filter(|(name, _)| !allowed.contains_key(*name));
    let beyond = beyond.map(|(name, count)| format!("{name}: {count}, which is beyond the bound"));
    let changed = allowed.iter().filter_map(|(name, listed)| match found.get(name) {
        None => Some(format!("{name}: within the bound now; remove it from the list")),
        Some(count) if count > listed => Some(format!("{name}: {count}, and the list allows {listed}")),
        Some(count) if count < listed => Some(format!("{name}: {count} now; lower the {listed} of the list")),
        Some(_) => None,
    });
    beyond.chain(changed).collect()
}

#[test]
fn a_list_of_allowed_counts_may_only_shrink() {
    let found = BTreeMap::from([("new".to_owned(), 3), ("more".to_owned(), 5), ("fewer".to_owned(), 4)]);
    let allowed = [("more", 4), ("fewer", 5), ("gone", 3)];
    assert_eq!(
        differences(&found, &allowed),
        [
            "new: 3, which is beyond the bound",
            "fewer: 4 now; lower the 5 of the list",
            "gone: within the bound now; remove it from the list",
            "more: 5, and the list allows 4",
        ]
    );
}
