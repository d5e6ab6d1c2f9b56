//! Looks for tests that fail by chance: runs all tests several times, each time once with four threads and once with one,
//! in an order that is shuffled anew, beside a load on both cores. With one thread four programs run side by side. Each
//! program is listed with its time when it ends, each failure with the seed of its order, and the slowest tests with their
//! seconds beside that load.
//!
//! The test programs are started here and not by cargo, since the shuffling is an unstable option of theirs.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::process::{ExitStatus, Output, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use clap::Args;

use crate::command::Failure;
use crate::sample::fresh_seed;
use crate::side_by_side;
use crate::slowest::{REPORT_TIME, Slowest};
use crate::test_programs::{self, TestProgram};

#[derive(Debug, Args)]
pub(crate) struct Options {
    /// How often all tests run with four threads, and as often with one
    count: u64,
    /// Only the test programs of this package; may be given several times
    #[arg(short, long, value_name = "NAME")]
    package: Vec<String>,
    /// Only test programs whose description contains this text, for example `tidegate-http --test suite`
    #[arg(long, value_name = "TEXT")]
    only: Option<String>,
    /// Threads that compute all the time beside the tests
    #[arg(long, default_value_t = 2)]
    load: usize,
}

pub(crate) fn run(options: &Options) -> Result<(), Failure> {
    let mut programs = match &options.package[..] {
        [] => test_programs::build()?,
        packages => test_programs::build_alone(packages)?,
    };
    programs.retain(|program| options.only.as_ref().is_none_or(|text| program.describe().contains(text)));
    if programs.is_empty() {
        return Err(Failure("no test program has such a description".into()));
    }
    let number = programs.len();
    let (failures, slowest) = beside_load(options.load, || run_all(options.count, programs));
    print!("the slowest tests:\n{slowest}");
    if failures.is_empty() {
        println!("{number} test programs ran {} times with each number of threads, and none failed", options.count);
        return Ok(());
    }
    let runs = THREADS.len() as u64 * options.count;
    let lines =
        failures.iter().map(|(test, places)| format!("{} of {runs}: {test} ({})", places.len(), places.join("; ")));
    Err(Failure(format!("failed by chance, or always:\n{}", lines.collect::<Vec<_>>().join("\n"))))
}

/// Runs all programs; the tests that failed, each with its runs, and the times of all.
fn run_all(count: u64, mut programs: Vec<TestProgram>) -> (BTreeMap<String, Vec<String>>, Slowest) {
    let (mut failures, mut slowest) = (BTreeMap::<String, Vec<String>>::new(), Slowest::default());
    for (round, threads) in (1..=count).flat_map(|round| THREADS.map(|threads| (round, threads))) {
        let (seed, begun) = (fresh_seed(), Instant::now());
        println!("== round {round} of {count}: {threads} threads, --shuffle-seed {seed}");
        let place = format!("{threads} threads, seed {seed}");
        let mut runs = run_round(&programs, threads, seed);
        println!("== its time: {} s", begun.elapsed().as_secs());
        // The longest first, so that at the end of a round no program runs alone for long.
        runs.sort_by_key(|run| Reverse(run.time));
        programs = runs.iter().map(|run| run.program.clone()).collect();
        for run in runs {
            for test in run.failures {
                failures.entry(format!("{}: {test}", run.program.describe())).or_default().push(place.clone());
            }
            slowest.extend(run.slowest);
        }
    }
    (failures, slowest)
}

/// One thread finds dependence on the order of tests, four find dependence on neighbours.
const THREADS: [usize; 2] = [4, 1];

/// So many tests run at a time. Most of them wait, so programs with one thread run side by side: one that runs alone leaves
/// both cores to the load.
const TESTS_AT_A_TIME: usize = 4;

/// Runs each program once.
fn run_round(programs: &[TestProgram], threads: usize, seed: u64) -> Vec<Run> {
    let runs = Mutex::new(Vec::new());
    side_by_side::for_each(programs, TESTS_AT_A_TIME / threads, |program| {
        let run = Run::of(program, threads, seed);
        let mut runs = runs.lock().unwrap_or_else(PoisonError::into_inner);
        // With the lock, so that lines of two programs do not mix.
        print!("{}", run.output);
        println!("{:6} s  {}", run.time.as_secs(), program.describe());
        for test in &run.failures {
            println!("{}: {test} failed ({threads} threads, seed {seed})", program.describe());
        }
        runs.push(run);
    });
    runs.into_inner().unwrap_or_else(PoisonError::into_inner)
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

/// One run of a test program.
struct Run {
    program: TestProgram,
    time: Duration,
    /// The tests that failed, or the program's end if it names none.
    failures: Vec<String>,
    /// The output of the tests that failed.
    output: String,
    slowest: Slowest,
}

impl Run {
    fn of(program: &TestProgram, threads: usize, seed: u64) -> Self {
        let begun = Instant::now();
        let mut run = Self {
            program: program.clone(),
            time: Duration::ZERO,
            failures: Vec::new(),
            output: String::new(),
            slowest: Slowest::default(),
        };
        let (seed, threads) = (seed.to_string(), threads.to_string());
        let arguments = ["--shuffle-seed", &seed, "--test-threads", &threads];
        let arguments = [&REPORT_TIME, &arguments[..]].concat();
        // The programs take the unstable options only with RUSTC_BOOTSTRAP.
        let mut command = program.step(&arguments).env("RUSTC_BOOTSTRAP", "1").into_command();
        match command.stdout(Stdio::piped()).stderr(Stdio::null()).output() {
            Ok(Output { status, stdout, .. }) => run.read(&String::from_utf8_lossy(&stdout), status),
            Err(error) => run.failures.push(error.to_string()),
        }
        run.time = begun.elapsed();
        run
    }

    fn read(&mut self, output: &str, status: ExitStatus) {
        output.lines().for_each(|line| self.slowest.read(&self.program.describe(), line));
        if status.success() {
            return;
        }
        self.output = output.split_once("\nfailures:\n").map_or(output, |(_, rest)| rest).to_owned();
        self.failures = failed_tests(output);
        if self.failures.is_empty() {
            self.failures.push(format!("the program ended with {status}"));
        }
    }
}

/// The names behind the first words `failures:` that no output of a test follows. With one thread a test's own output may
/// stand within its line `test NAME ... FAILED`, so that line is not read.
fn failed_tests(output: &str) -> Vec<String> {
    let names = output.rsplit_once("\nfailures:\n").map(|(_, rest)| rest).unwrap_or_default();
    names.lines().map_while(|line| line.strip_prefix("    ")).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failed_tests_are_those_of_the_list_at_the_end() {
        let output = "test a::one ... output of its own\nFAILED\ntest two ... ok\n\nfailures:\n\n---- a::one stdout ----\n\
            thread panicked\n\n\nfailures:\n    a::one\n    b::three\n\ntest result: FAILED. 1 passed; 2 failed\n";
        assert_eq!(failed_tests(output), ["a::one", "b::three"]);
        assert!(failed_tests("running 3 tests\ntest a ... ok\n").is_empty());
    }
}
