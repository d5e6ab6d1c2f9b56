//! The programs of the workspace's tests, from the one build that `cargo test --workspace` makes.
//!
//! A step that runs some tests of a package again starts them here and not by `cargo test --package`: with the features
//! of one package alone, cargo would compile half of the workspace once more.

use std::env;
use std::path::{Path, PathBuf};
use std::thread::available_parallelism;

use serde_json::Value;

use crate::command::{Failure, Step, cargo};
use crate::release::metadata;

/// The number of threads of a test program. Many tests wait for a process or a deadline, so two for each core are fewer
/// than a processor has work for. [`RUNNER`](crate::slowest::RUNNER) sets it for cargo.
const THREADS: &str = "RUST_TEST_THREADS";

/// A test program and the folder in which cargo would start it.
#[derive(Clone, Debug)]
pub(crate) struct TestProgram {
    pub(crate) package: String,
    /// Cargo's arguments to run it alone, for example `--test suite`.
    target: String,
    executable: String,
    folder: PathBuf,
}

/// Builds all tests of the workspace, unless they are built already, and lists their programs.
pub(crate) fn build() -> Result<Vec<TestProgram>, Failure> {
    programs_of(cargo(["test", "--workspace"]))
}

/// Builds the tests of these packages with their own features, as `cargo test --package` does, and lists their programs.
pub(crate) fn build_alone(packages: &[String]) -> Result<Vec<TestProgram>, Failure> {
    programs_of(cargo(["test"]).args(packages.iter().flat_map(|name| ["--package", name])))
}

/// Builds the test programs in the folder `tests` of a package, with the features of the workspace, and lists them.
pub(crate) fn build_of(package: &str) -> Result<Vec<TestProgram>, Failure> {
    let metadata = metadata()?;
    let packages = metadata["packages"].as_array().into_iter().flatten();
    let targets = packages.filter(|one| one["name"] == package).filter_map(|one| one["targets"].as_array()).flatten();
    let names = targets.filter(|target| target["kind"][0] == "test").filter_map(|target| target["name"].as_str());
    let flags: Vec<_> = names.flat_map(|name| ["--test", name]).collect();
    if flags.is_empty() {
        return Err(Failure(format!("{package} has no folder of tests")));
    }
    // Other packages have targets of these names too.
    let mut programs = programs_of(cargo(["test", "--workspace"]).args(flags))?;
    programs.retain(|program| program.package == package);
    Ok(programs)
}

/// Builds the tests that this command of `cargo test` runs, and lists their programs.
fn programs_of(test: Step) -> Result<Vec<TestProgram>, Failure> {
    let output = test.args(["--no-run", "--message-format=json-render-diagnostics"]).output()?;
    let messages = output.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    Ok(messages.filter_map(|message| describe(&message)).collect())
}

fn describe(message: &Value) -> Option<TestProgram> {
    if !message["profile"]["test"].as_bool()? {
        return None;
    }
    let executable = message["executable"].as_str()?.to_owned();
    let folder = Path::new(message["manifest_path"].as_str()?).parent()?.to_owned();
    let package = package_name(message["package_id"].as_str()?)?;
    let target = match message["target"]["kind"][0].as_str()? {
        kind @ ("bin" | "test" | "example" | "bench") => format!("--{kind} {}", message["target"]["name"].as_str()?),
        _ => "--lib".to_owned(),
    };
    Some(TestProgram { package, target, executable, folder })
}

/// `name` of `path+file:///folder#name@1.0.0`, and of `path+file:///name#1.0.0`.
pub(crate) fn package_name(id: &str) -> Option<String> {
    let (path, fragment) = id.split_once('#')?;
    let name = fragment.split_once('@').map_or_else(|| path.rsplit('/').next().unwrap_or_default(), |(name, _)| name);
    Some(name.to_owned())
}

impl TestProgram {
    /// The program with these arguments.
    pub(crate) fn step(&self, arguments: &[&str]) -> Step {
        self.in_environment(Step::new(&self.executable).args(arguments.iter().copied()))
    }

    /// The program as cargo starts it by this [`RUNNER`](crate::slowest::RUNNER).
    pub(crate) fn step_by(&self, runner: &Path) -> Step {
        self.in_environment(Step::new(&runner.to_string_lossy()).arg(&self.executable))
    }

    #[cfg(test)]
    pub(crate) fn of_script(package: &str, executable: &Path, folder: &Path) -> Self {
        Self {
            package: package.to_owned(),
            target: "--test suite".to_owned(),
            executable: executable.to_string_lossy().into_owned(),
            folder: folder.to_owned(),
        }
    }

    fn in_environment(&self, step: Step) -> Step {
        let step = step.folder(&self.folder.to_string_lossy());
        let threads = || (2 * available_parallelism().map_or(1, usize::from)).to_string().into();
        let step = step.env(THREADS, env::var_os(THREADS).unwrap_or_else(threads));
        // Some tests read these variables, which cargo sets.
        step.env("CARGO_MANIFEST_DIR", &self.folder).env("CARGO_PKG_NAME", &self.package)
    }

    /// The package and the target, as cargo is called to run it alone.
    pub(crate) fn describe(&self) -> String {
        format!("-p {} {}", self.package, self.target)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_described_as_cargo_runs_it_alone() {
        let message = |kind: &str, name: &str, id: &str| {
            let text = format!(
                r#"{{"profile":{{"test":true}},"executable":"/x","manifest_path":"/a/crates/http/Cargo.toml",
                "package_id":"{id}","target":{{"kind":["{kind}"],"name":"{name}"}}}}"#
            );
            serde_json::from_str::<Value>(&text).ok().and_then(|message| describe(&message))
        };
        let described = |kind, name, id| message(kind, name, id).map(|program| program.describe());
        let id = "path+file:///a/crates/http#tidegate-http@0.1.0";
        assert_eq!(described("test", "suite", id).as_deref(), Some("-p tidegate-http --test suite"));
        assert_eq!(described("lib", "tidegate_http", id).as_deref(), Some("-p tidegate-http --lib"));
        assert_eq!(described("bin", "x", "path+file:///a/x#0.1.0").as_deref(), Some("-p x --bin x"));
    }

    #[test]
    fn a_program_that_is_no_test_is_left_out() {
        let message = r#"{"profile":{"test":false},"executable":"/x","manifest_path":"/a/Cargo.toml"}"#;
        assert!(serde_json::from_str::<Value>(message).ok().and_then(|message| describe(&message)).is_none());
    }
}
