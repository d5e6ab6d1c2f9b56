//! `Step`: a command with its environment, and `Failure`: why a task has failed.

use std::env;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};

/// Why a task has failed, for people.
#[derive(Debug)]
pub(crate) struct Failure(pub(crate) String);

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// From now on commands run in the environment of CI.
pub(crate) fn use_environment_of_ci() {
    IS_CI.store(true, Ordering::Relaxed);
}

static IS_CI: AtomicBool = AtomicBool::new(false);

const ENVIRONMENT_OF_CI: [(&str, &str); 3] = [
    // A test whose tool is missing fails here instead of being skipped.
    ("TIDEGATE_TOOLS_REQUIRED", "1"),
    // Everything is built once.
    ("CARGO_INCREMENTAL", "0"),
    // Many tests mostly wait: for a deadline, or for a process under strace.
    ("RUST_TEST_THREADS", "5"),
];

/// A command that has to succeed.
#[derive(Debug)]
pub(crate) struct Step {
    command: Command,
}

/// A command whose process the kernel kills when the thread ends that starts it: a run that is killed leaves no process
/// behind. Where the program or `setpriv`, of util-linux, is missing it is the plain command, which reports that.
pub(crate) fn ending_with_us(program: &str) -> Command {
    let path = env::var_os("PATH").unwrap_or_default();
    let is_there = |name: &str| env::split_paths(&path).any(|folder| folder.join(name).is_file());
    if !is_there("setpriv") || !(program.contains('/') || is_there(program)) {
        return without_our_package(program);
    }
    let mut command = without_our_package("setpriv");
    command.args(["--pdeathsig", "KILL", program]);
    command
}

/// A command without the variables in which `cargo run` describes the package xtask. Build scripts read them, that of ring
/// for example, and each of those with its dependants would be built again after every change between `cargo test` and
/// `cargo xtask`.
fn without_our_package(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(program);
    for (name, _) in env::vars_os() {
        let is_ours = |name: &str| PACKAGE_VARIABLES.iter().any(|prefix| name.starts_with(prefix));
        if name.to_str().is_some_and(is_ours) {
            command.env_remove(name);
        }
    }
    command
}

const PACKAGE_VARIABLES: [&str; 4] = ["CARGO_PKG_", "CARGO_MANIFEST_", "CARGO_CRATE_NAME", "CARGO_BIN_NAME"];

/// Cargo with these arguments.
pub(crate) fn cargo(arguments: impl IntoIterator<Item = impl Into<OsString>>) -> Step {
    Step::new("cargo").args(arguments)
}

/// A Python program of the repository.
pub(crate) fn python(path: &str) -> Step {
    Step::new("python3").arg(path)
}

impl Step {
    pub(crate) fn new(program: &str) -> Self {
        let mut command = ending_with_us(program);
        // No step reads standard input.
        command.stdin(Stdio::null());
        if IS_CI.load(Ordering::Relaxed) {
            command.envs(ENVIRONMENT_OF_CI);
        }
        Self { command }
    }

    /// A line of words without quotes.
    pub(crate) fn line(line: &str) -> Self {
        let mut words = line.split_whitespace();
        Self::new(words.next().unwrap_or_default()).args(words)
    }

    pub(crate) fn arg(mut self, argument: impl Into<OsString>) -> Self {
        self.command.arg(argument.into());
        self
    }

    pub(crate) fn args(mut self, arguments: impl IntoIterator<Item = impl Into<OsString>>) -> Self {
        self.command.args(arguments.into_iter().map(Into::into));
        self
    }

    /// Inserts an argument before the first one that equals `marker`, or appends it.
    pub(crate) fn insert_before(self, marker: &str, argument: &str) -> Self {
        let mut arguments: Vec<_> = self.command.get_args().map(OsString::from).collect();
        let place = arguments.iter().position(|one| one == marker).unwrap_or(arguments.len());
        arguments.insert(place, argument.into());
        let mut command = without_our_package(self.command.get_program());
        command.args(arguments).stdin(Stdio::null());
        command.envs(self.environment());
        if let Some(folder) = self.command.get_current_dir() {
            command.current_dir(folder);
        }
        Self { command }
    }

    /// The variables that it sets.
    pub(crate) fn environment(&self) -> Vec<(OsString, OsString)> {
        let variables = self.command.get_envs().filter_map(|(name, value)| Some((name.to_owned(), value?.to_owned())));
        variables.collect()
    }

    pub(crate) fn envs(mut self, variables: &[(OsString, OsString)]) -> Self {
        self.command.envs(variables.iter().map(|(name, value)| (name, value)));
        self
    }

    pub(crate) fn env(mut self, name: &str, value: impl Into<OsString>) -> Self {
        self.command.env(name, value.into());
        self
    }

    pub(crate) fn folder(mut self, folder: &str) -> Self {
        self.command.current_dir(folder);
        self
    }

    /// Runs it, with its output in ours.
    pub(crate) fn run(mut self) -> Result<(), Failure> {
        let status = self.command.status().map_err(|error| Failure(format!("{:?}: {error}", self.command)))?;
        if status.success() { Ok(()) } else { Err(Failure(format!("{status}: {:?}", self.command))) }
    }

    /// Runs it and returns its output.
    pub(crate) fn output(mut self) -> Result<String, Failure> {
        self.command.stdout(Stdio::piped());
        let spawned = self.command.spawn().and_then(std::process::Child::wait_with_output);
        let output = spawned.map_err(|error| Failure(format!("{:?}: {error}", self.command)))?;
        if !output.status.success() {
            return Err(Failure(format!("{}: {:?}", output.status, self.command)));
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// The command itself, for a step that watches its process.
    pub(crate) fn into_command(self) -> Command {
        self.command
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_do_not_see_the_package_that_cargo_runs() {
        // Cargo sets the variable for this test as well.
        assert!(env::var_os("CARGO_PKG_NAME").is_some());
        let names = Step::new("env").insert_before("-0", "-0").output().expect("coreutils are there");
        let is_ours = |name: &&str| PACKAGE_VARIABLES.iter().any(|prefix| name.starts_with(prefix));
        assert_eq!(names.split('\0').find(is_ours), None);
        assert!(names.contains("PATH="));
    }
}
