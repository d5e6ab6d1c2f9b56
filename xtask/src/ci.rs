//! All checks of a change, in half an hour on two cores. The steps share builds: a debug build of the whole workspace,
//! which `cargo test --workspace` makes, a release build as in the README, and one with cargo's defaults. A step
//! that needs a build of its own stands in `long.rs`, and so do the complete versions of the samples here.
//!
//! The step of the tests ends with its ten slowest. These are expected there; the seconds were counted beside other builds:
//!
//! | test | seconds | why it stays |
//! |---|--:|---|
//! | `tidegate-cli`, `process::a_never_reading_peer_cannot_prevent_exit` | 25 | the deadline of a drain; it waits |
//! | `tidegate-cli`, `faults::…` and `faults_on_uring::…` | up to 19 | strace makes calls of a server fail, and each server has to become idle; they mostly wait |
//! | `injected_errors::no_call_that_fails_in_a_simulation_…` | 5 | every system call with every error, at twelve occasions: each is a server and a client of its own |
//! | `simulator::echo::comes_back_to_each_of_many::tls` | 10 | handshakes of many connections; virtual time |
//! | `epoll::resets::…` and `uring::resets::…` | 6 to 10 | a kernel resets in real time, and scenarios on it run one after the other, so that sockets can be counted |
//! | `tidegate-compress`, `allocations::bombs_take_no_memory_beyond_a_context` | 5 | compresses 32 MiB of zeros, and decompresses them, with each algorithm |

use std::collections::BTreeSet;
use std::fs;
use std::time::Duration;

use clap::Args;

use crate::chance::{self, cargo_test};
use crate::command::{Failure, Step, cargo, python};
use crate::disk;
use crate::interop;
use crate::measure;
use crate::passed;
use crate::release;
use crate::side_by_side::run_each;
use crate::smoke::smoke;
use crate::steps::{NamedStep, Selection, run_all, step, step_apart};
use crate::templates;
use crate::test_programs;
use crate::tools;
use crate::touched;

#[derive(Debug, Args)]
pub(crate) struct Options {
    #[command(flatten)]
    selection: Selection,
    /// Run only the steps that a change can have broken: `xtask/src/touched.rs` has the table of paths and steps. The
    /// change is the difference between the working tree and its merge base with BASE [default: the last commit on
    /// which all of ci passed]
    #[arg(long, value_name = "BASE", num_args = 0..=1)]
    touched: Option<Option<String>>,
}

pub(crate) fn run(options: &Options) -> Result<(), Failure> {
    if let Some(base) = &options.touched {
        return touched::run(base.as_deref(), &options.selection);
    }
    if !options.selection.is_complete() {
        return run_all(steps(Tests::All), &options.selection, None);
    }
    let (begun_on, bytes_before) = (passed::clean_commit(), disk::bytes_of_target());
    run_all(steps(Tests::All), &options.selection, Some(TIME_MAX))?;
    disk::check_growth(bytes_before)?;
    passed::store(begun_on)
}

/// A run that takes longer ends with the name of the step that it is in.
const TIME_MAX: Duration = Duration::from_secs(85 * 60);

/// Which tests the list has.
pub(crate) enum Tests {
    /// All, by the command in the README.
    All,
    /// Those of these packages.
    Of(BTreeSet<String>),
}

pub(crate) fn steps(tests: Tests) -> Vec<NamedStep> {
    let mut steps = checks(tests);
    steps.extend(measurements());
    steps.extend(interop::representatives());
    // It compiles, in the folder of its profile, while the steps in front of it wait for other programs. Counts of
    // instructions are the same beside other work. They are those of a user's build; `long.rs` counts the published program.
    steps.push(
        step("instruction counts", || measure::instructions("--check", "defaults")).begins_with(interop::FIRST_OF_CI),
    );
    steps
}

/// The step that `touched.rs` replaces by the tests of some packages.
pub(crate) const TESTS: &str = "tests, by the command in the README";

fn checks(tests: Tests) -> Vec<NamedStep> {
    let tests = match tests {
        Tests::All => step(TESTS, || cargo_test(test_command()?)),
        Tests::Of(packages) => step(TESTS, move || tests_of(&packages)),
    };
    vec![
        step("tools", || {
            tools::install(tools::OF_CI)
                .and_then(|()| tools::REDIS_PY.install())
                .and_then(|()| tools::NATS_PY.install())
        }),
        step("format", || cargo(["fmt", "--all", "--check"]).run()),
        step("lints", || cargo("clippy --workspace --all-targets -- -D warnings".split(' ')).run()),
        step("compilers that dependencies declare", release::declared_versions_of_dependencies),
        tests,
        // Servers in these tests run on io_uring, if it is available. The contract runs on both backends anyway; this
        // repeats the end-to-end tests of the program on epoll, except those that name their backend.
        step("the program on epoll", || {
            let arguments = ["--skip", "faults", "--skip", "backends"];
            chance::package_tests("tidegate-cli", &arguments, &[("TIDEGATE_BACKEND", "epoll")])
        }),
        step("the contract with a sample of seeds", || measure::contract_seeds(40, None)),
        step("examples on the default backend", || examples("auto")),
        step("examples on epoll", || examples("epoll")),
        step("documentation", measure::documentation_of_workspace),
        step("tests of the comparison", || python("-m").arg("unittest").folder("benches/peers").run()),
        // These two compile in folders of their own. The steps with which they begin wait, or compute on one core.
        step_apart("programs from all templates", templates::TARGET, templates::check_all)
            .begins_with("the contract with a sample of seeds"),
        step("the program as in the README", || interop::release_program().and_then(|()| smoke()))
            .begins_with("the program on epoll"),
    ]
}

/// The tests of these packages, in the build of the whole workspace. Their documentation tests run by the paths of their
/// folders.
fn tests_of(packages: &BTreeSet<String>) -> Result<(), Failure> {
    let programs = test_programs::build()?;
    let selected: Vec<_> = programs.iter().filter(|program| packages.contains(&program.package)).cloned().collect();
    chance::run_programs(&selected, &programs)?;
    let folders = touched::folders_of(packages)?;
    let documentation =
        cargo("test --workspace --doc --".split(' ')).args(folders.iter().map(|folder| format!("{folder}/")));
    if folders.is_empty() { Ok(()) } else { cargo_test(documentation) }
}

/// Each example that needs no other program runs by itself once, from the build of the tests. They listen on ports that the
/// kernel chooses.
fn examples(backend: &str) -> Result<(), Failure> {
    cargo(["build", "--workspace"]).args(EXAMPLES.iter().flat_map(|name| ["--example", *name])).run()?;
    let example = |name: &str| Step::new(&format!("target/debug/examples/{name}")).env("TIDEGATE_BACKEND", backend);
    run_each(&EXAMPLES, example)
}

const EXAMPLES: [&str; 45] = [
    "axum",
    "behind_proxy",
    "cache_server",
    "caching_gateway",
    "chat",
    "client_load",
    "crud",
    "echo",
    "echo_channel",
    "fetch",
    "forwarder",
    "game",
    "health",
    "heartbeat",
    "certificates",
    "http_service",
    "jwt",
    "long_poll",
    "moving",
    "operations",
    "own_service",
    "plaintext",
    "push",
    "redis_proxy",
    "redis_web",
    "sign_in",
    "socks_server",
    "mqtt_broker",
    "nats_server",
    "quic_echo",
    "statsd",
    "syslog",
    "udp_echo",
    "udp_proxy",
    "zone",
    "memcached_server",
    "moving_upstreams",
    "sse_push",
    "streams",
    "tally",
    "tides",
    "two_protocols",
    "websocket",
    "webtransport",
    "within_tokio",
];

/// The bars of the data path.
fn measurements() -> Vec<NamedStep> {
    vec![
        measured("memory", measure::memory),
        step("crowds", || measure::crowds(None)),
        measured("short connections", || measure::churn(5, &[])),
        measured("system calls", || {
            python("benches/calls.py")
                .args(["--seconds", "1", "--depths", "16"])
                .env("TIDEGATE_PROFILE", "release")
                .run()
        }),
        measured("memory of an upload", || {
            let max = (512 * 1024).to_string();
            python("benches/upload.py")
                .args(["--alone", "--rounds", "1", "--max", &max])
                .env("TIDEGATE_PROFILE", "release")
                .run()
        }),
        measured("no descriptors", measure::descriptors),
    ]
}

/// A step that runs after the build of the measured programs.
fn measured(name: &str, run: impl FnOnce() -> Result<(), Failure> + 'static) -> NamedStep {
    step(name, move || measure::builds_for_memory().and_then(|()| run()))
}

/// The test command in the README, exactly.
fn test_command() -> Result<Step, Failure> {
    let readme = fs::read_to_string("README.md").map_err(|error| Failure(format!("README.md: {error}")))?;
    let line = readme.lines().find(|line| line.starts_with("cargo test "));
    let line = line.ok_or_else(|| Failure("README.md has no line that begins with `cargo test`".into()))?;
    Ok(Step::line(line.split('#').next().unwrap_or_default()))
}
