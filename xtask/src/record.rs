//! Which steps of the long list have passed, and on which inputs: a file for each step in `target/long-passed`, so that the
//! list can run in pieces.
//!
//! The inputs of a step are the contents of its paths, committed or not; the manifests; xtask itself, which has the step's
//! parameters; the compiler; and the variables that configure tests and builds. Without git no step counts as passed.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::command::{Failure, Step};
use crate::steps::NamedStep;

/// The record of a list.
#[derive(Debug)]
pub(crate) struct Record {
    root: PathBuf,
    folder: PathBuf,
    /// Whether steps run that have passed.
    again: bool,
    /// The compiler and the variables.
    environment: String,
}

/// The place of one step in the record.
#[derive(Debug)]
pub(crate) struct Entry(PathBuf);

impl Record {
    /// The record below `target`. With `again` no step counts as passed.
    pub(crate) fn open(again: bool) -> Self {
        let compiler = Step::line("rustc -vV").output().unwrap_or_default();
        let is_setting = |name: &str| SETTINGS.iter().any(|prefix| name.starts_with(prefix));
        let mut variables: Vec<_> = std::env::vars().filter(|(name, _)| is_setting(name)).collect();
        variables.sort();
        let environment = format!("{compiler}{variables:?}");
        Self { root: ".".into(), folder: "target/long-passed".into(), again, environment }
    }

    /// The hash of a step's inputs; `None` if the step has none, or if git cannot list them.
    pub(crate) fn inputs_of(&self, step: &NamedStep) -> Option<String> {
        if step.inputs().is_empty() {
            return None;
        }
        let mut list = Command::new("git");
        list.args(["-c", "core.quotePath=false", "ls-files", "--cached", "--others", "--exclude-standard", "--"]);
        let files = self.git(list.args(step.inputs()).args(OF_ALL), "")?;
        // A deleted file is listed until the deletion is committed, and a merge lists a file several times.
        let mut files: Vec<_> = files.lines().filter(|file| self.root.join(file).is_file()).collect();
        files.sort_unstable();
        files.dedup();
        let list: String = files.iter().map(|file| format!("{file}\n")).collect();
        let hashes = self.git(Command::new("git").args(["hash-object", "--stdin-paths"]), &list)?;
        let all = format!("{}\n{}\n{list}{hashes}", step.name(), self.environment);
        Some(self.git(Command::new("git").args(["hash-object", "--stdin"]), &all)?.trim().to_owned())
    }

    /// Runs git with this input.
    fn git(&self, command: &mut Command, input: &str) -> Option<String> {
        let command = command.current_dir(&self.root).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().ok()?;
        let mut stdin = child.stdin.take()?;
        // Git writes while it reads: both at once, or neither goes on.
        let output = std::thread::scope(|scope| {
            scope.spawn(move || stdin.write_all(input.as_bytes()));
            child.wait_with_output()
        });
        let output = output.ok()?;
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// How long the step took when it passed on these inputs.
    pub(crate) fn seconds_of(&self, step: &NamedStep, inputs: &str) -> Option<u64> {
        let text = fs::read_to_string(self.entry(step).0).ok()?;
        let (stored, seconds) = text.trim().split_once(' ')?;
        if self.again || stored != inputs { None } else { seconds.parse().ok() }
    }

    pub(crate) fn entry(&self, step: &NamedStep) -> Entry {
        let letters = step.name().chars().map(|letter| if letter.is_alphanumeric() { letter } else { '-' });
        Entry(self.folder.join(letters.collect::<String>()))
    }
}

impl Entry {
    /// Stores that the step has passed on these inputs.
    pub(crate) fn store(&self, inputs: &str, time: Duration) -> Result<(), Failure> {
        let Self(path) = self;
        let io = |error: std::io::Error| Failure(format!("{}: {error}", path.display()));
        fs::create_dir_all(path.parent().unwrap_or(Path::new("."))).map_err(io)?;
        fs::write(path, format!("{inputs} {}\n", time.as_secs())).map_err(io)
    }
}

/// Paths that each step depends on.
const OF_ALL: [&str; 4] = ["Cargo.toml", "Cargo.lock", ".cargo", "xtask"];

/// The first letters of the variables that configure tests and builds.
const SETTINGS: [&str; 6] = ["TIDEGATE_", "RUSTFLAGS", "RUSTDOCFLAGS", "RUST_TEST_", "CARGO_PROFILE_", "CARGO_BUILD_"];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::steps::step;

    /// A repository of its own with a file in each of two folders.
    struct Repository(PathBuf);

    impl Repository {
        fn new(name: &str) -> Self {
            let root = std::env::temp_dir().join(format!("tidegate-record-{name}-{}", std::process::id()));
            drop(fs::remove_dir_all(&root));
            let repository = Self(root);
            repository.write("crates/a.rs", "a");
            repository.write("docs/b.md", "b");
            repository.write("xtask/c.rs", "c");
            repository.git("init --quiet");
            repository.commit();
            repository
        }

        fn write(&self, path: &str, text: &str) {
            let path = self.0.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }

        fn git(&self, line: &str) {
            let status = Command::new("git").args(line.split(' ')).current_dir(&self.0).status().unwrap();
            assert!(status.success(), "git {line}");
        }

        fn commit(&self) {
            self.git("add .");
            self.git("-c user.name=a -c user.email=a commit --quiet --message=a");
        }

        fn record(&self, again: bool) -> Record {
            let folder = self.0.join("target/long-passed");
            Record { root: self.0.clone(), folder, again, environment: "rustc 1".into() }
        }

        fn inputs(&self) -> String {
            self.record(false).inputs_of(&long()).unwrap()
        }
    }

    impl Drop for Repository {
        fn drop(&mut self) {
            drop(fs::remove_dir_all(&self.0));
        }
    }

    fn long() -> NamedStep {
        step("fuzzing, a minute each", || Ok(())).of(&["crates"])
    }

    #[test]
    fn a_step_that_passed_counts_while_its_inputs_are_the_same() {
        let repository = Repository::new("passed");
        let (record, inputs) = (repository.record(false), repository.inputs());
        assert_eq!(record.seconds_of(&long(), &inputs), None);
        record.entry(&long()).store(&inputs, Duration::from_secs(7)).unwrap();
        assert_eq!(record.seconds_of(&long(), &inputs), Some(7));
        assert_eq!(record.seconds_of(&long(), "other inputs"), None);
        assert_eq!(repository.record(true).seconds_of(&long(), &inputs), None, "--again");
    }

    #[test]
    fn inputs_change_with_each_file_below_the_paths_committed_or_not() {
        let repository = Repository::new("inputs");
        let first = repository.inputs();
        repository.write("docs/b.md", "other");
        assert_eq!(repository.inputs(), first, "another path");
        repository.write("crates/a.rs", "other");
        let changed = repository.inputs();
        assert_ne!(changed, first);
        repository.commit();
        assert_eq!(repository.inputs(), changed, "a commit changes no content");
        repository.write("crates/new.rs", "");
        let added = repository.inputs();
        assert_ne!(added, changed, "a file that is not added yet");
        fs::remove_file(repository.0.join("crates/a.rs")).unwrap();
        assert_ne!(repository.inputs(), added, "a deleted file");
        fs::remove_file(repository.0.join("crates/new.rs")).unwrap();
        repository.write("crates/a.rs", "a");
        assert_eq!(repository.inputs(), first);
    }

    #[test]
    fn inputs_include_the_lists_of_steps_the_compiler_and_the_name() {
        let repository = Repository::new("parameters");
        let first = repository.inputs();
        let mut record = repository.record(false);
        record.environment.push('0');
        assert_ne!(record.inputs_of(&long()).unwrap(), first);
        let other = step("fuzzing", || Ok(())).of(&["crates"]);
        assert_ne!(repository.record(false).inputs_of(&other).unwrap(), first);
        repository.write("xtask/c.rs", "other parameters");
        assert_ne!(repository.inputs(), first);
    }

    #[test]
    fn a_step_without_inputs_never_counts_as_passed() {
        let repository = Repository::new("none");
        assert_eq!(repository.record(false).inputs_of(&step("tools", || Ok(()))), None);
    }
}
