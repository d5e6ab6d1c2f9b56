//! Runs tests, and runs each test that failed again. A test that fails once and then passes three times has failed by
//! chance: the run goes on, and the list of steps ends with its name. A test that fails twice fails the run, and so does a
//! test program that ends without naming a test. A test that waits for ever counts as one that failed: `run-test-program`
//! kills its program after a time, and the test harness names tests that take long.
//!
//! `Report` reads the output of test programs, with the seconds of each test. Read next: `flaky.rs`, which looks for such tests.

use std::ffi::OsString;
use std::fs;
use std::io::{BufRead, BufReader, pipe};
use std::mem;
use std::path::Path;
use std::sync::{LazyLock, Mutex, PoisonError};

use crate::command::{Failure, Step, cargo};
use crate::side_by_side;
use crate::slowest::{REPORT_TIME, RUNNER, Slowest};
use crate::test_programs::{self, TestProgram};

/// Runs `cargo test` with these arguments.
pub(crate) fn cargo_test(step: Step) -> Result<(), Failure> {
    // Without the flag cargo stops at the first test program that fails, and the tests behind it do not run.
    let environment = step.environment();
    let mut report = run(with_times(with_no_fail_fast(step))?)?;
    keep_times(&mut report);
    if report.passed {
        return Ok(());
    }
    // A program that does not compile would fail to compile once more.
    let programs = if report.can_run_again() { test_programs::build()? } else { Vec::new() };
    run_again(report, &programs, &environment)
}

/// Runs the tests of a package's test programs that these arguments select, in the build of the whole workspace. At least
/// one test has to be among them.
pub(crate) fn package_tests(package: &str, arguments: &[&str], variables: &[(&str, &str)]) -> Result<(), Failure> {
    let programs = test_programs::build_of(package)?;
    let environment: Vec<(OsString, OsString)> =
        variables.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect();
    let mut tests_run = 0;
    for program in &programs {
        tests_run += run_program(program, arguments, &programs, &environment)?;
    }
    if tests_run > 0 { Ok(()) } else { Err(Failure(format!("{package} has no test for {arguments:?}"))) }
}

/// Runs `cargo test` once, and fails as well if no test ran.
pub(crate) fn tests_that_exist(step: Step) -> Result<(), Failure> {
    let report = run(step)?;
    if report.passed && report.tests_passed > 0 { Ok(()) } else { Err(Failure("a test failed, or none ran".into())) }
}

/// Runs a test program of the workspace's build; the number of tests that ran.
pub(crate) fn run_program(
    program: &TestProgram,
    arguments: &[&str],
    all: &[TestProgram],
    environment: &[(OsString, OsString)],
) -> Result<usize, Failure> {
    println!("   Running {} {}", program.describe(), arguments.join(" "));
    let arguments = [arguments, &REPORT_TIME].concat();
    let mut report = Report { target: program.describe(), ..Report::default() };
    report.follow(program.step(&arguments).env("RUSTC_BOOTSTRAP", "1").envs(environment), print_line)?;
    keep_times(&mut report);
    report.end_of_program(&program.describe());
    let tests_run = report.tests_passed + report.failed.len();
    if !report.passed {
        run_again(report, all, environment)?;
    }
    Ok(tests_run)
}

/// Runs these test programs, two at a time, since most tests wait; then the failed tests again, alone. The output of each
/// program is printed whole when it has ended.
pub(crate) fn run_programs(programs: &[TestProgram], all: &[TestProgram]) -> Result<(), Failure> {
    let runner = fs::canonicalize(RUNNER).map_err(|error| Failure(format!("{RUNNER}: {error}")))?;
    run_programs_by(&runner, programs, all)
}

fn run_programs_by(runner: &Path, programs: &[TestProgram], all: &[TestProgram]) -> Result<(), Failure> {
    let mut in_order: Vec<_> = programs.iter().collect();
    // The others keep the order of cargo.
    in_order.sort_by_key(|program| LONGEST.iter().position(|one| *one == program.describe()).unwrap_or(LONGEST.len()));
    let reports = Mutex::new(Vec::new());
    side_by_side::for_each(&in_order, PROGRAMS_AT_A_TIME, |program| {
        let (mut report, mut output) = (Report::default(), String::new());
        let outcome = report.follow(program.step_by(runner), |line| {
            output.push_str(line);
            output.push('\n');
        });
        report.end_of_program(&program.describe());
        let mut reports = reports.lock().unwrap_or_else(PoisonError::into_inner);
        print!("   Ran {}\n{output}", program.describe());
        reports.push(outcome.map(|()| report));
    });
    let mut whole = Report { passed: true, ..Report::default() };
    for report in reports.into_inner().unwrap_or_else(PoisonError::into_inner) {
        whole.add(report?);
    }
    keep_times(&mut whole);
    if whole.passed { Ok(()) } else { run_again(whole, all, &[]) }
}

/// The programs that begin first, so that none of them runs alone at the end.
const LONGEST: [&str; 2] = ["-p tidegate-engine --test contract", "-p tidegate-cli --test program"];

const PROGRAMS_AT_A_TIME: usize = 2;

/// Runs the failed tests of a report again.
fn run_again(report: Report, programs: &[TestProgram], environment: &[(OsString, OsString)]) -> Result<(), Failure> {
    if !report.can_run_again() {
        return Err(Failure(format!("no test can run again: {}", report.crashed.join("; "))));
    }
    for test in report.failed {
        test.passes_again(programs, environment)?;
        println!("chance failure: {}", test.describe());
        CHANCE_FAILURES.lock().unwrap_or_else(PoisonError::into_inner).push(test.describe());
    }
    Ok(())
}

/// The tests that have failed by chance since the last call.
pub(crate) fn take_chance_failures() -> Vec<String> {
    mem::take(&mut CHANCE_FAILURES.lock().unwrap_or_else(PoisonError::into_inner))
}

/// The slowest tests since the last call.
pub(crate) fn take_slowest() -> Slowest {
    mem::take(&mut SLOWEST.lock().unwrap_or_else(PoisonError::into_inner))
}

fn keep_times(report: &mut Report) {
    SLOWEST.lock().unwrap_or_else(PoisonError::into_inner).extend(mem::take(&mut report.slowest));
}

static SLOWEST: LazyLock<Mutex<Slowest>> = LazyLock::new(Mutex::default);

static CHANCE_FAILURES: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// A failed test runs again so many times.
const REPEATS: usize = 3;

/// Puts `--no-fail-fast` before the arguments of the test programs.
fn with_no_fail_fast(step: Step) -> Step {
    step.insert_before("--", "--no-fail-fast")
}

/// Has cargo start the test programs by the script that has them print times.
fn with_times(step: Step) -> Result<Step, Failure> {
    let script = fs::canonicalize(RUNNER).map_err(|error| Failure(format!("{RUNNER}: {error}")))?;
    let setting = format!("target.'cfg(all())'.runner=['{}']", script.display());
    Ok(step.insert_before("--", "--config").insert_before("--", &setting))
}

/// Runs a command, passes its output on, and reads it.
fn run(step: Step) -> Result<Report, Failure> {
    let mut report = Report::default();
    report.follow(step, print_line)?;
    Ok(report)
}

fn print_line(line: &str) {
    println!("{line}");
}

/// A failed test, and the arguments by which cargo runs the program that it is in.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct FailedTest {
    target: String,
    name: String,
}

impl FailedTest {
    fn describe(&self) -> String {
        format!("{} ({})", self.name, self.target)
    }

    /// Runs it again, alone.
    fn passes_again(&self, programs: &[TestProgram], environment: &[(OsString, OsString)]) -> Result<(), Failure> {
        let program = programs.iter().find(|program| program.describe() == self.target);
        for _ in 0..REPEATS {
            let again = match program {
                Some(program) => program.step(&["--exact", &self.name]),
                // A documentation test has no program.
                None => cargo(["test"]).args(self.target.split(' ')).args(["--", "--exact", &self.name]),
            };
            let report = run(again.envs(environment))?;
            if !report.passed || report.tests_passed == 0 {
                return Err(Failure(format!("the test {} failed again", self.describe())));
            }
        }
        Ok(())
    }
}

/// The outcome of `cargo test`, from its output.
#[derive(Debug, Default)]
struct Report {
    failed: Vec<FailedTest>,
    /// Programs that failed without a list of failed tests, or that did not compile.
    crashed: Vec<String>,
    tests_passed: usize,
    passed: bool,
    names: Vec<String>,
    is_in_list: bool,
    /// The program whose output follows, as the script or the caller names it.
    target: String,
    slowest: Slowest,
    /// The tests of the program whose output follows.
    tests: Tests,
}

/// The tests of a program that runs.
#[derive(Debug, Default)]
struct Tests {
    /// How many there are.
    count: usize,
    /// How many have ended.
    ended: usize,
    failed: Vec<String>,
    /// Those that run for longer than the test harness expects.
    slow: Vec<String>,
}

impl Tests {
    fn read(&mut self, line: &str) {
        if let Some(count) = line.strip_prefix("running ").and_then(|rest| rest.strip_suffix(" tests")) {
            *self = Self { count: count.parse().unwrap_or(0), ..Self::default() };
        }
        let Some(rest) = line.strip_prefix("test ") else { return };
        if let Some((name, _)) = rest.split_once(" has been running for over ") {
            self.slow.push(name.to_owned());
        } else if let Some((name, outcome)) = rest.rsplit_once(" ... ") {
            self.ended += 1;
            self.slow.retain(|slow| slow != name);
            if outcome.starts_with("FAILED") {
                self.failed.push(name.to_owned());
            }
        }
    }

    /// Those that failed and those that did not end, of a program that was killed, if all others have ended.
    fn of_killed_program(&mut self) -> Vec<String> {
        let Self { count, ended, failed, slow } = mem::take(self);
        if slow.is_empty() || ended + slow.len() < count { Vec::new() } else { [failed, slow].concat() }
    }
}

impl Report {
    /// Runs a command, passes each line of its output on, and reads it.
    fn follow(&mut self, step: Step, mut pass_on: impl FnMut(&str)) -> Result<(), Failure> {
        let io = |error: std::io::Error| Failure(format!("cargo test: {error}"));
        let (reader, writer) = pipe().map_err(io)?;
        let mut command = step.into_command();
        command.stdout(writer.try_clone().map_err(io)?).stderr(writer);
        let mut child = command.spawn().map_err(io)?;
        // The pipe ends when no process has its other end.
        drop(command);
        for line in BufReader::new(reader).split(b'\n') {
            let line = line.map_err(io)?;
            let line = String::from_utf8_lossy(&line);
            pass_on(&line);
            self.read(&line);
        }
        self.passed = child.wait().map_err(io)?.success();
        Ok(())
    }

    /// Adds the outcome of a program that has ended.
    fn add(&mut self, other: Self) {
        self.passed &= other.passed;
        self.tests_passed += other.tests_passed;
        self.failed.extend(other.failed);
        self.crashed.extend(other.crashed);
        self.slowest.extend(other.slowest);
    }

    /// Whether a run of the failed tests can show that they failed by chance.
    fn can_run_again(&self) -> bool {
        !self.failed.is_empty() && self.crashed.is_empty()
    }

    fn read(&mut self, line: &str) {
        if let Some(program) = line.strip_prefix("   Times of ") {
            program.clone_into(&mut self.target);
        }
        self.slowest.read(&self.target, line);
        self.tests.read(line);
        let indented = line.strip_prefix("    ").filter(|name| !name.is_empty() && !name.starts_with(' '));
        match (line, indented) {
            // A program prints two such lists; the first has the output of the tests between its names.
            ("failures:", _) => {
                self.is_in_list = true;
                self.names.clear();
            }
            (_, Some(name)) if self.is_in_list => self.names.push(name.to_owned()),
            _ if line.starts_with("test result:") => {
                self.is_in_list = false;
                self.tests_passed += number_before(line, " passed");
            }
            _ => self.read_target(line),
        }
    }

    /// Cargo's line behind the output of a program that failed.
    fn read_target(&mut self, line: &str) {
        let target = line.split_once("to rerun pass `").and_then(|(_, rest)| rest.strip_suffix('`'));
        match target {
            Some(target) => self.program_failed(target),
            None if line.starts_with("error: could not compile") => self.crashed.push(line.to_owned()),
            None => {}
        }
    }

    /// The program that wrote the output has ended, and cargo did not run it.
    fn end_of_program(&mut self, target: &str) {
        if !self.passed {
            self.program_failed(target);
        }
    }

    fn program_failed(&mut self, target: &str) {
        let mut names = mem::take(&mut self.names);
        if names.is_empty() {
            names = self.tests.of_killed_program();
        }
        if names.is_empty() {
            self.crashed.push(target.to_owned());
        }
        self.failed.extend(names.into_iter().map(|name| FailedTest { target: target.to_owned(), name }));
    }
}

/// The number before a word: 3 in `ok. 3 passed; 0 failed`.
fn number_before(line: &str, word: &str) -> usize {
    let before = line.split_once(word).map(|(before, _)| before).unwrap_or_default();
    before.rsplit(' ').next().and_then(|number| number.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    const TWO_PROGRAMS: &str = "\
     Running tests/proxy.rs (target/debug/deps/proxy-0)

running 3 tests
test a::one ... ok
test a::two ... FAILED
test three ... FAILED

failures:

---- a::two stdout ----
    an indented line of the test's own output
thread 'a::two' panicked

failures:
    a::two
    three

test result: FAILED. 1 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.02s

error: test failed, to rerun pass `-p tidegate-http --test proxy`
     Running tests/other.rs (target/debug/deps/other-0)

running 1 test
test fine ... ok

test result: ok. 1 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s

   Doc-tests tidegate

running 1 test
test crates/x/src/lib.rs - Thing (line 12) ... FAILED

failures:

failures:
    crates/x/src/lib.rs - Thing (line 12)

test result: FAILED. 0 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s

error: doctest failed, to rerun pass `-p tidegate --doc`
error: 2 targets failed:
    `-p tidegate-http --test proxy`
    `-p tidegate --doc`";

    fn report_of(output: &str) -> Report {
        let mut report = Report::default();
        output.lines().for_each(|line| report.read(line));
        report
    }

    #[test]
    fn a_report_has_the_seconds_of_each_test_with_its_program() {
        let report =
            report_of("   Times of -p tidegate-http suite\ntest a::one ... ok <1.250s>\ntest b ... FAILED <0.100s>");
        let lines = "    1.2 s  a::one (-p tidegate-http suite)\n    0.1 s  b (-p tidegate-http suite)\n";
        assert_eq!(report.slowest.to_string(), lines);
    }

    #[test]
    fn a_report_names_each_failed_test_with_its_program() {
        let report = report_of(TWO_PROGRAMS);
        let test = |target: &str, name: &str| FailedTest { target: target.into(), name: name.into() };
        let proxy = "-p tidegate-http --test proxy";
        let expected = [
            test(proxy, "a::two"),
            test(proxy, "three"),
            test("-p tidegate --doc", "crates/x/src/lib.rs - Thing (line 12)"),
        ];
        assert_eq!(report.failed, expected);
        assert!(report.crashed.is_empty());
        assert_eq!(report.tests_passed, 2);
    }

    #[test]
    fn a_program_that_ends_by_a_signal_has_no_test_that_could_run_again() {
        let report = report_of("running 2 tests\nerror: test failed, to rerun pass `-p a --lib`\n\nCaused by:");
        assert_eq!(report.crashed, ["-p a --lib"]);
        assert!(report.failed.is_empty());
    }

    #[test]
    fn a_test_that_waits_for_ever_runs_again_if_all_others_have_ended() {
        let output = "running 3 tests\ntest a ... ok <0.1s>\ntest b has been running for over 60 seconds\n\
                      test c has been running for over 60 seconds\ntest c ... FAILED <70.0s>\n";
        let killed = "error: test failed, to rerun pass `-p a --test suite`\n";
        let report = report_of(&format!("{output}{killed}"));
        let names: Vec<_> = report.failed.iter().map(|test| &*test.name).collect();
        assert_eq!((names, report.crashed.len()), (vec!["c", "b"], 0));
        // The fourth has not run, or its end was not seen.
        let report = report_of(&format!("{output}{killed}").replace("running 3", "running 4"));
        assert_eq!((report.failed.len(), report.crashed), (0, vec!["-p a --test suite".to_owned()]));
    }

    #[test]
    fn a_program_that_was_not_run_by_cargo_is_named_at_its_end() {
        let mut report = report_of("failures:\n    a::one\n\ntest result: FAILED. 4 passed; 1 failed; 0 ignored;");
        report.end_of_program("-p a --test suite");
        assert_eq!(report.failed, [FailedTest { target: "-p a --test suite".into(), name: "a::one".into() }]);
        let mut report = report_of("running 2 tests");
        report.end_of_program("-p a --test suite");
        assert_eq!(report.crashed, ["-p a --test suite"]);
    }

    #[test]
    fn a_program_that_does_not_compile_fails_the_run() {
        let report = report_of("error: could not compile `a` (lib test) due to 1 previous error");
        assert_eq!(report.crashed.len(), 1);
    }

    #[test]
    fn the_flag_stands_before_the_arguments_of_test_programs() {
        // The command may be behind another that ends it with us.
        let arguments = |step: Step| {
            let command = step.into_command();
            let all = command.get_args().map(|one| one.to_string_lossy().into_owned());
            all.skip_while(|one| one != "test").collect::<Vec<_>>()
        };
        let step = with_no_fail_fast(Step::line("cargo test --workspace -- --nocapture"));
        assert_eq!(arguments(step), ["test", "--workspace", "--no-fail-fast", "--", "--nocapture"]);
        assert_eq!(arguments(with_no_fail_fast(Step::line("cargo test"))), ["test", "--no-fail-fast"]);
    }

    /// A test program that is a script, in an empty folder of a test's own.
    fn script(folder: &Path, name: &str, text: &str) -> TestProgram {
        let program = folder.join(name);
        fs::write(&program, text).expect("the folder can be written to");
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        fs::set_permissions(&program, mode).expect("the file is ours");
        TestProgram::of_script(name, &program, folder)
    }

    fn folder(name: &str) -> PathBuf {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/chance-tests").join(name);
        drop(fs::remove_dir_all(&folder));
        fs::create_dir_all(&folder).expect("a folder");
        folder
    }

    /// The second run creates no file, and passes.
    const FAILS_ONCE: &str = "#!/bin/sh
        if [ -e ran ]; then echo 'test result: ok. 1 passed;'; exit 0; fi
        touch ran; printf 'running 1 tests\\ntest odd ... FAILED\\n\\nfailures:\\n    odd\\n\\ntest result: FAILED. 0 passed;\\n'
        exit 101\n";

    const ENDS_WITHOUT_A_NAME: &str = "#!/bin/sh\nexit 101\n";

    #[test]
    fn a_program_beside_others_fails_by_chance_or_again() {
        let runner = Path::new(env!("CARGO_MANIFEST_DIR")).join("run-test-program");
        let folder = folder("programs");
        let chance = script(&folder, "chance", FAILS_ONCE);
        let other = script(&folder, "other", "#!/bin/sh\necho 'test result: ok. 3 passed;'\n");
        let programs = [chance, other];
        run_programs_by(&runner, &programs, &programs).expect("the failed test passes again");
        assert!(folder.join("ran").exists());
        let programs = [script(&folder, "crash", ENDS_WITHOUT_A_NAME), programs[1].clone()];
        let failure =
            run_programs_by(&runner, &programs, &programs).expect_err("nothing shows that it failed by chance");
        assert!(failure.0.contains("-p crash --test suite"), "{failure}");
    }
}
