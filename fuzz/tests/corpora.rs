//! Every input of the corpora passes its target.
//!
//! A program of its own: `fuzz/coverage.py` builds it, without optimisation, to count the lines that it reaches.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use tidegate_fuzz::TARGETS;

#[test]
fn every_input_passes_its_target() {
    // `cargo xtask check` names the targets of a crate.
    let chosen = std::env::var("TIDEGATE_FUZZ_TARGETS").ok();
    let chosen: Option<BTreeSet<_>> = chosen.as_deref().map(|names| names.split(',').collect());
    let is_chosen = |name: &str| chosen.as_ref().is_none_or(|names| names.contains(name));
    let unknown = chosen.iter().flatten().find(|chosen| !TARGETS.iter().any(|(name, _)| name == *chosen));
    assert_eq!(unknown, None, "TIDEGATE_FUZZ_TARGETS names no target");
    for (name, target) in TARGETS.into_iter().filter(|(name, _)| is_chosen(name)) {
        let inputs = inputs(name);
        assert!(!inputs.is_empty(), "{name} has no corpus");
        for input in inputs {
            let guard = PrintOnPanic(&input);
            target(&fs::read(&input).expect("a readable input"));
            std::mem::forget(guard);
        }
    }
}

#[test]
fn targets_programs_and_corpora_correspond() {
    let targets: BTreeSet<_> = TARGETS.iter().map(|(name, _)| (*name).to_owned()).collect();
    assert_eq!(names("targets"), targets);
    assert_eq!(names("corpus"), targets);
}

/// The corpora are replayed by every test run, and are in every clone.
#[test]
fn a_corpus_is_small() {
    let mut sum = 0;
    for (name, _) in TARGETS {
        let inputs = inputs(name);
        assert!(inputs.len() <= INPUTS_MAX, "{name} has {} inputs", inputs.len());
        sum += inputs.iter().map(|input| fs::metadata(input).expect("it is there").len()).sum::<u64>();
    }
    assert!(sum <= CORPORA_BYTES_MAX, "the corpora have {sum} bytes");
}

/// The inputs in a stable order.
fn inputs(target: &str) -> BTreeSet<PathBuf> {
    let folder = folder("corpus").join(target);
    let entries = fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    entries.map(|entry| entry.expect("a readable entry").path()).collect()
}

/// The names of the files in a folder, without extensions.
fn names(of: &str) -> BTreeSet<String> {
    let entries = fs::read_dir(folder(of)).expect("a folder").map(|entry| entry.expect("a readable entry").path());
    entries.filter_map(|path| Some(path.file_stem()?.to_str()?.to_owned())).collect()
}

fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(name)
}

/// Prints the failing input.
struct PrintOnPanic<'p>(&'p Path);

impl Drop for PrintOnPanic<'_> {
    fn drop(&mut self) {
        eprintln!("input: {}", self.0.display());
    }
}

const INPUTS_MAX: usize = 150;
const CORPORA_BYTES_MAX: u64 = 500_000;
