//! Looks for tests that fail by chance: runs all tests several times, each time once with four threads and once with one,
//! in an order that is shuffled anew, beside a load on both cores. Each failure is listed with the seed of its order, and
//! the slowest tests with their seconds beside that load.
//!
//! The test programs are started here and not by cargo, since the shuffling is an unstable option of theirs.

use std::collections::BTreeMap;
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use clap::Args;

use crate::command::Failure;
use crate::sample::fresh_seed;
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
    let (failures, slowest) = beside_load(options.load, || run_all(options.count, &programs));
    print!("the slowest tests:\n{slowest}");
    if failures.is_empty() {
        println!(
            "{} test programs ran {} times with each number of threads, and none failed",
            programs.len(),
            options.count
        );
        return Ok(());
    }
    let runs = THREADS.len() as u64 * options.count;
    let lines =
        failures.iter().map(|(test, places)| format!("{} of {runs}: {test} ({})", places.len(), places.join("; ")));
    Err(Failure(format!("failed by chance, or always:\n{}", lines.collect::<Vec<_>>().join("\n"))))
}

/// Runs all programs; the tests that failed, each with its runs, and the times of all.
fn run_all(count: u64, programs: &[TestProgram]) -> (BTreeMap<String, Vec<String>>, Slowest) {
    let (mut failures, mut slowest) = (BTreeMap::<String, Vec<String>>::new(), Slowest::default());
    for (round, threads) in (1..=count).flat_map(|round| THREADS.map(|threads| (round, threads))) {
        let seed = fresh_seed();
        println!("== round {round} of {count}: {threads} threads, --shuffle-seed {seed}");
        for program in programs {
            let name = program.describe();
            for test in self::failures(program, threads, seed, &mut slowest) {
                let place = format!("{threads} threads, seed {seed}");
                println!("{name}: {test} failed ({place})");
                failures.entry(format!("{name}: {test}")).or_default().push(place);
            }
        }
    }
    (failures, slowest)
}

/// One thread finds dependence on the order of tests, four find dependence on neighbours.
const THREADS: [usize; 2] = [4, 1];

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

/// The tests of a program that fail, or the program's end if it names none. Prints their output.
fn failures(program: &TestProgram, threads: usize, seed: u64, slowest: &mut Slowest) -> Vec<String> {
    let (seed, threads) = (seed.to_string(), threads.to_string());
    let arguments = ["--shuffle-seed", &seed, "--test-threads", &threads];
    let arguments = [&REPORT_TIME, &arguments[..]].concat();
    // The programs take the unstable options only with RUSTC_BOOTSTRAP.
    let mut command = program.step(&arguments).env("RUSTC_BOOTSTRAP", "1").into_command();
    let output = match command.stdout(Stdio::piped()).stderr(Stdio::null()).output() {
        Ok(output) => output,
        Err(error) => return vec![error.to_string()],
    };
    let text = String::from_utf8_lossy(&output.stdout);
    text.lines().for_each(|line| slowest.read(&program.describe(), line));
    if output.status.success() {
        return Vec::new();
    }
    println!("{}", text.split_once("\nfailures:\n").map_or(&*text, |(_, rest)| rest));
    let failed = failed_tests(&text);
    if failed.is_empty() { vec![format!("the program ended with {}", output.status)] } else { failed }
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
