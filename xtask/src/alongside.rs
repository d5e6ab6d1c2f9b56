//! A step that begins before its turn, beside the steps in front of it. A step that waits, or computes on one core, leaves a
//! core to a step that compiles. The early step is a process of its own, `cargo xtask ci --only STEP`; the list prints its
//! whole output in its turn, and fails then if the step has failed. An early step neither builds into the folder that the steps
//! beside it use, nor runs beside a measurement.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Child;

use crate::command::{Failure, Step};

/// A step that runs beside others. Dropping it ends its process, and with that the commands of the step.
pub(crate) struct StepProcess {
    name: String,
    process: Child,
    output: PathBuf,
}

/// The outcome of such a step.
pub(crate) struct StepOutcome {
    pub(crate) result: Result<(), Failure>,
    /// The tests that failed by chance.
    pub(crate) chance_failures: Vec<String>,
}

impl StepProcess {
    /// Begins the step of ci with this name.
    pub(crate) fn step_of_ci(name: &str) -> Result<Self, Failure> {
        // A lower priority: it takes what the steps in front of it leave.
        let step = Step::new("nice").args(["-n", "10", "cargo", "xtask", "ci", "--only", name]);
        Self::start(name, step, Path::new(FOLDER))
    }

    fn start(name: &str, step: Step, folder: &Path) -> Result<Self, Failure> {
        let words: Vec<_> = name.split(|c: char| !c.is_ascii_alphanumeric()).collect();
        let output = folder.join(words.join("-")).with_extension("log");
        let io = |error: std::io::Error| Failure(format!("{}: {error}", output.display()));
        fs::create_dir_all(folder).map_err(io)?;
        let file = File::create(&output).map_err(io)?;
        let mut command = step.into_command();
        command.stdout(file.try_clone().map_err(io)?).stderr(file);
        let process = command.spawn().map_err(io)?;
        Ok(Self { name: name.to_owned(), process, output })
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Waits for its end, and prints its output.
    pub(crate) fn end(mut self) -> StepOutcome {
        let status = self.process.wait();
        let text = fs::read(&self.output).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        print!("{text}");
        let result = match status {
            Ok(status) if status.success() => Ok(()),
            Ok(status) => Err(Failure(format!("{status}: its output is in {}", self.output.display()))),
            Err(error) => Err(Failure(error.to_string())),
        };
        StepOutcome { result, chance_failures: chance_failures(&text) }
    }
}

impl Drop for StepProcess {
    fn drop(&mut self) {
        // Both fail only if it has ended.
        drop(self.process.kill());
        drop(self.process.wait());
    }
}

/// The tests that an output names: once when they failed, and again at its end.
fn chance_failures(output: &str) -> Vec<String> {
    let mut tests: Vec<_> =
        output.lines().filter_map(|line| line.strip_prefix("chance failure: ")).map(str::to_owned).collect();
    tests.sort();
    tests.dedup();
    tests
}

const FOLDER: &str = "target/alongside";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ci::{Tests, steps};

    #[test]
    fn a_step_begins_with_an_earlier_one_and_its_name_selects_it_alone() {
        let steps = steps(Tests::All);
        let begin_early: Vec<_> = steps.iter().enumerate().filter(|(_, step)| step.earlier().is_some()).collect();
        assert!(!begin_early.is_empty());
        for (place, step) in begin_early {
            assert!(steps[..place].iter().any(|one| Some(one.name()) == step.earlier()), "{}", step.name());
            assert_eq!(steps.iter().filter(|one| one.name().contains(step.name())).count(), 1, "{}", step.name());
        }
    }

    /// A command whose output is in a folder of this test's own.
    fn begun(name: &str, step: Step) -> StepProcess {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/alongside-tests");
        StepProcess::start(name, step, &folder.join(name)).expect("the command starts")
    }

    #[test]
    fn a_step_beside_others_fails_as_one_in_its_turn_does() {
        for (script, passes) in [("exit 0", true), ("exit 1", false), ("kill -9 $$", false)] {
            let ended = begun("outcome", Step::new("sh").arg("-c").arg(script)).end();
            assert_eq!(ended.result.is_ok(), passes, "{script}");
        }
    }

    #[test]
    fn its_chance_failures_are_counted_once() {
        let script = "for i in 1 2; do echo chance failure: b; echo chance failure: a; done; echo b failed";
        let ended = begun("chance", Step::new("sh").arg("-c").arg(script)).end();
        assert_eq!(ended.chance_failures, ["a", "b"]);
    }

    #[test]
    fn a_list_that_ends_early_ends_it() {
        let begun = begun("early end", Step::new("sleep").arg("1000"));
        let process = PathBuf::from(format!("/proc/{}", begun.process.id()));
        assert!(process.exists());
        drop(begun);
        assert!(!process.exists());
    }
}
