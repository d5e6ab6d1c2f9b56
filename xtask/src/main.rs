//! `cargo xtask`: the commands of a contributor. `ci` and `long` are lists of steps (`ci.rs`, `long.rs`); the other
//! commands are single steps of them. Read next: `steps.rs`.
//!
//! # Files
//!
//! | file | holds |
//! |---|---|
//! | `ci.rs` | all checks of a change: the list of steps, which share builds |
//! | `long.rs` | the complete checks that ci samples, and builds of their own |
//! | `interop.rs` | steps with other programs, of both lists |
//! | `touched.rs` | the steps of ci that a change can have broken, by a table of paths |
//! | `steps.rs` | named steps: selection, order, durations |
//! | `alongside.rs` | a step of ci that runs beside those in front of it |
//! | `side_by_side.rs` | short commands of one step, several at a time |
//! | `record.rs` | which steps of long have passed, and on which inputs |
//! | `passed.rs` | the commit on which all of ci passed |
//! | `chance.rs` | a test that fails runs again |
//! | `check.rs` | format, lints and tests of one crate, between changes |
//! | `flaky.rs` | tests that fail by chance: all tests, shuffled and beside a load |
//! | `slowest.rs` | the tests that took longest |
//! | `test_programs.rs` | the programs of the workspace's tests, from one build |
//! | `measure.rs` | builds, documentation, measurements with their bars |
//! | `smoke.rs` | the program as in the README |
//! | `new_protocol.rs` | a protocol crate from templates, and each place in the tree that names it |
//! | `templates.rs` | the programs of `tidegate new`, built and tested |
//! | `fuzz.rs` | fuzzing |
//! | `injected.rs` | the contract of drivers with injected bugs |
//! | `release/` | the files of a release, and the requirements on them |
//! | `site/` | the documents as pages with search |
//! | `sample.rs` | samples by a seed |
//! | `tools.rs` | tools and their versions |
//! | `disk.rs` | the size of `target` after a run |
//! | `command.rs` | commands and their environment |

#![forbid(unsafe_code)]

mod alongside;
mod chance;
mod check;
mod ci;
mod command;
mod disk;
mod flaky;
mod fuzz;
mod injected;
mod interop;
mod long;
mod measure;
mod new_protocol;
mod passed;
mod record;
mod release;
mod sample;
mod side_by_side;
mod site;
mod slowest;
mod smoke;
mod steps;
mod templates;
mod test_programs;
mod tools;
mod touched;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::command::{Failure, python, use_environment_of_ci};

/// Checks, fuzzes and measures Tidegate
#[derive(Debug, Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Arguments {
    #[command(subcommand)]
    task: Task,
}

#[derive(Debug, Subcommand)]
enum Task {
    /// Check one crate after a change: format, lints, tests, and the corpora of its fuzz targets
    Check {
        /// The name of its folder in crates/, or of its package
        name: String,
    },
    /// Create the crate of a protocol, with its tests, fuzz target and example, and name it where CI and documents list it
    NewProtocol {
        /// Lower-case letters and digits
        name: String,
    },
    /// All checks of a change, in half an hour; installs missing tools on Debian
    Ci(ci::Options),
    /// The samples of ci, complete, builds of their own, all interop and the measurements: two hours, on an otherwise
    /// idle machine; skips steps that have passed on the same inputs
    Long(long::Options),
    /// Run all tests several times, each time with four threads and with one, shuffled and beside a load, and list those
    /// that failed
    Flaky(flaky::Options),
    /// Fuzz all targets, or the named ones, for a number of seconds each
    Fuzz(fuzz::Options),
    /// Lines of the decoders that the fuzz corpora reach; fails below 90 % of a file
    Coverage {
        /// Name the lines that were not reached
        #[arg(long)]
        missed: bool,
    },
    /// Inject bugs into the drivers and the engine; the contract of drivers has to detect each
    Injected(injected::Options),
    /// The contract of drivers in simulated networks with many seeds
    Seeds {
        /// Number of seeds
        #[arg(default_value_t = 1000)]
        count: u64,
        /// The first seed [default: a random one, printed]
        #[arg(long)]
        first: Option<u64>,
    },
    /// The tests of the crates that allow unsafe code, under AddressSanitizer
    Asan {
        /// Further arguments of cargo test
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
    /// Build the documentation, and fail on a warning or an unresolved link
    Doc,
    /// Make all files of a release in target/release-files, and check them: packages that compile, programs, the Debian
    /// package, SBOM, notes
    Release(release::Options),
    /// Make the documents into pages with search: target/site/index.html
    Site(site::Options),
    /// Count the instructions of the data path and compare them with the stored figures
    Instructions {
        /// Store the counted figures instead
        #[arg(long)]
        store: bool,
    },
    /// Memory of connections, with the bars that it must keep
    Memory,
    /// Run a measurement in benches/, for example `cargo xtask bench compare --rounds 5`
    Bench {
        /// Name of the program in benches/, without .py
        name: String,
        /// Its arguments
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
}

fn main() -> ExitCode {
    let task = Arguments::parse().task;
    match enter_root().and_then(|()| perform(task)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("cargo xtask: {failure}");
            ExitCode::FAILURE
        }
    }
}

/// All paths are relative to the root of the repository.
fn enter_root() -> Result<(), Failure> {
    let package = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    std::env::set_current_dir(package.join("..")).map_err(|error| Failure(format!("{}: {error}", package.display())))
}

fn perform(task: Task) -> Result<(), Failure> {
    match task {
        Task::Ci(options) => {
            use_environment_of_ci();
            ci::run(&options)
        }
        Task::Check { name } => check::run(&name),
        Task::NewProtocol { name } => new_protocol::create(std::path::Path::new("."), &name),
        Task::Long(options) => {
            use_environment_of_ci();
            long::run(&options)
        }
        Task::Flaky(options) => flaky::run(&options),
        Task::Fuzz(options) => fuzz::run(&options),
        Task::Coverage { missed } => {
            let python = python("fuzz/coverage.py");
            if missed { python.arg("--missed") } else { python }.run()
        }
        Task::Injected(options) => injected::run(&options),
        Task::Seeds { count, first } => measure::contract_seeds(count, first),
        Task::Asan { arguments } => measure::address_sanitizer(&arguments),
        Task::Doc => measure::documentation(),
        Task::Release(options) => release::run(&options),
        Task::Site(options) => site::build(&options),
        Task::Instructions { store } => {
            let mode = if store { "--store" } else { "--check" };
            measure::PROFILES.into_iter().try_for_each(|profile| measure::instructions(mode, profile))
        }
        Task::Memory => measure::builds_for_memory().and_then(|()| measure::memory()),
        Task::Bench { name, arguments } => {
            measure::dist_builds()?;
            python(&format!("benches/{name}.py")).args(&arguments).run()
        }
    }
}
