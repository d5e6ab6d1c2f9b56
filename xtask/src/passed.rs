//! The commit on which all of CI passed, in `target/ci-passed`. Only whole runs count, on a tree without other changes.

use std::fs;

use crate::command::{Failure, Step};

/// The commit of the working tree, if the tree has no change beside it.
pub(crate) fn clean_commit() -> Option<String> {
    let changes = Step::line("git status --porcelain").output().ok()?;
    let commit = Step::line("git rev-parse HEAD").output().ok()?;
    changes.trim().is_empty().then(|| commit.trim().to_owned())
}

/// Stores the commit that passed, if the tree is the one with which the run began.
pub(crate) fn store(begun_on: Option<String>) -> Result<(), Failure> {
    match begun_on {
        Some(commit) if clean_commit().as_ref() == Some(&commit) => {
            println!("all of CI passed on {commit}");
            fs::write(PATH, commit + "\n").map_err(|error| Failure(format!("{PATH}: {error}")))
        }
        _ => {
            println!("the tree has changes that are not committed: {PATH} stays as it is");
            Ok(())
        }
    }
}

/// The stored commit.
pub(crate) fn commit() -> Option<String> {
    Some(fs::read_to_string(PATH).ok()?.trim().to_owned())
}

const PATH: &str = "target/ci-passed";
