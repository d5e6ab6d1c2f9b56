//! Looks for tests that fail by chance: runs all tests several times, in an order that is shuffled anew, with one thread and
//! with four, beside a load on both cores. Each failure is listed with the seed of its order.
//!
//! The test programs are started here and not by cargo, since the shuffling is an unstable option of theirs.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use clap::Args;
use serde_json::Value;

use crate::command::{Failure, Step, cargo};
use crate::sample::fresh_seed;

#[derive(Debug, Args)]
pub(crate) struct Options {
    /// How often all tests run
    count: u64,
    /// Only test programs whose description contains this text, for example `tidegate-http proxy`
    #[arg(long, value_name = "TEXT")]
    only: Option<String>,
    /// Threads that compute all the time beside the tests
    #[arg(long, default_value_t = 2)]
    load: usize,
}

/// A test program and the folder in which cargo would start it.
struct Program {
    description: String,
    executable: String,
    folder: PathBuf,
}

pub(crate) fn run(options: &Options) -> Result<(), Failure> {
    let mut programs = build()?;
    programs.retain(|program| options.only.as_ref().is_none_or(|text| program.description.contains(text)));
    if programs.is_empty() {
        return Err(Failure("no test program has such a description".into()));
    }
    let failures = beside_load(options.load, || {
        let mut failures = BTreeMap::<String, Vec<String>>::new();
        for round in 0..options.count {
            // One thread finds what depends on the order of tests, four what depends on their neighbours.
            let (threads, seed) = (if round % 2 == 0 { 4 } else { 1 }, fresh_seed());
            println!("== round {} of {}: {threads} threads, --shuffle-seed {seed}", round + 1, options.count);
            for program in &programs {
                for test in program.failures(threads, seed) {
                    let place = format!("{threads} threads, seed {seed}");
                    println!("{}: {test} failed ({place})", program.description);
                    failures.entry(format!("{}: {test}", program.description)).or_default().push(place);
                }
            }
        }
        failures
    });
    if failures.is_empty() {
        println!("{} test programs ran {} times, and none failed", programs.len(), options.count);
        return Ok(());
    }
    let lines = failures.iter().map(|(test, places)| format!("{} of {}: {test}", places.len(), options.count));
    Err(Failure(format!("failed by chance, or always:\n{}", lines.collect::<Vec<_>>().join("\n"))))
}

/// Runs `work` while this many threads keep the processor busy.
fn beside_load<T>(threads: usize, work: impl FnOnce() -> T) -> T {
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            });
        }
        let result = work();
        is_over.store(true, Ordering::Relaxed);
        result
    })
}

/// Builds all tests and lists their programs.
fn build() -> Result<Vec<Program>, Failure> {
    let build = cargo("test --workspace --no-run --message-format=json-render-diagnostics".split(' '));
    let output = build.output()?;
    let messages = output.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    Ok(messages.filter_map(|message| describe(&message)).collect())
}

fn describe(message: &Value) -> Option<Program> {
    let executable = message["executable"].as_str()?.to_owned();
    let is_test = message["profile"]["test"].as_bool()?;
    let folder = PathBuf::from(message["manifest_path"].as_str()?).parent()?.to_owned();
    let package = folder.file_name()?.to_string_lossy().into_owned();
    let description = format!("{package} {}", message["target"]["name"].as_str()?);
    is_test.then_some(Program { description, executable, folder })
}

impl Program {
    /// The tests that fail, or the program's end if it names none.
    fn failures(&self, threads: usize, seed: u64) -> Vec<String> {
        let step = Step::new(&self.executable).folder(&self.folder.to_string_lossy());
        let step = step.args(["-Zunstable-options", "--shuffle-seed", &seed.to_string()]);
        // The programs take the unstable option only with RUSTC_BOOTSTRAP. Some tests find their package by these variables.
        let step = step.args(["--test-threads", &threads.to_string()]).env("RUSTC_BOOTSTRAP", "1");
        let mut command = step.env("CARGO_MANIFEST_DIR", &self.folder).into_command();
        let output = match command.stdout(Stdio::piped()).stderr(Stdio::null()).output() {
            Ok(output) => output,
            Err(error) => return vec![error.to_string()],
        };
        if output.status.success() {
            return Vec::new();
        }
        let text = String::from_utf8_lossy(&output.stdout);
        let failed = text.lines().filter_map(|line| line.strip_prefix("test ")?.strip_suffix(" ... FAILED"));
        let failed: Vec<_> = failed.map(str::to_owned).collect();
        if failed.is_empty() { vec![format!("the program ended with {}", output.status)] } else { failed }
    }
}
