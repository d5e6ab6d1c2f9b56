//! The samples of `ci.rs`, complete; steps with builds of their own; the other programs; and the measurements beside
//! peers, in a short form that shows that they run. `cargo xtask bench` has the measurements themselves.
//!
//! A step that has passed is skipped until its inputs change (`record.rs`), so that the list can run in pieces.

use std::time::Duration;

use clap::Args;

use crate::chance;
use crate::command::{Failure, cargo, python};
use crate::fuzz;
use crate::injected;
use crate::interop;
use crate::measure::{self, BACKENDS, dist_server, server};
use crate::new_protocol;
use crate::record::Record;
use crate::release;
use crate::site;
use crate::steps::{NamedStep, Selection, run_recorded, step, step_apart};
use crate::tools;

#[derive(Debug, Args)]
pub(crate) struct Options {
    #[command(flatten)]
    selection: Selection,
    /// Run steps as well that have passed on the same inputs
    #[arg(long)]
    again: bool,
    /// Begin no further step after so many minutes
    #[arg(long)]
    minutes: Option<u64>,
}

pub(crate) fn run(options: &Options) -> Result<(), Failure> {
    let time_max = options.minutes.map(|minutes| Duration::from_secs(60 * minutes));
    run_recorded(steps(), &options.selection, &Record::open(options.again), time_max)
}

pub(crate) fn steps() -> Vec<NamedStep> {
    let mut steps = vec![step("tools", || tools::install(tools::OF_CI).and_then(|()| tools::install(tools::OF_LONG)))];
    steps.extend(exhaustive());
    steps.extend(builds());
    steps.extend(interop::others());
    steps.extend(costs());
    steps.extend(comparisons());
    steps
}

fn exhaustive() -> Vec<NamedStep> {
    vec![
        step("the contract with 5,000 seeds", || measure::contract_seeds(5_000, Some(0))).of(CRATES),
        step("system calls that fail at three occasions", || {
            chance::package_tests("tidegate-engine", &["injected_errors"], &[("TIDEGATE_OCCASIONS", "3")])
        })
        .of(CRATES),
        step_apart("the contract with all injected bugs", "target/injected", || {
            injected::run(&injected::Options::all())
        })
        .of(CRATES),
        step_apart("fuzzing, 45 seconds each", "target/fuzz/none", || fuzz::run(&fuzz::Options::all(45)))
            .of(&["crates", "fuzz"]),
        step_apart("lines that the fuzz corpora reach", "target/fuzz/coverage", || python("fuzz/coverage.py").run())
            .of(&["crates", "fuzz"]),
        step_apart("address sanitizer", "target/asan", || measure::address_sanitizer(&[])).of(CRATES),
        step("a million simulated connections", || measure::simulated_crowd(1_000_000)).of(CRATES),
        step("rooms over several nodes with 1,000 seeds", || {
            release_tests("tidegate-backplane", "deliver_one_order", ("TIDEGATE_SEEDS", "1..=1000"))
        })
        .of(CRATES),
        step("a million streams on 64 sessions", || {
            release_tests("tidegate-engine", "crowd_of_streams", ("TIDEGATE_STREAMS", "1000000"))
        })
        .of(CRATES),
        step("a hundred million heads beside httparse", || {
            release_tests("tidegate-scan", "mutated", ("TIDEGATE_HEADS", "100000000"))
        })
        .of(CRATES),
        step_apart("a new protocol in a copy of the tree", "target/new-protocol-build", new_protocol::check_in_a_copy)
            .of(&["crates", "fuzz", "xtask", "examples", "README.md", "ARCHITECTURE.md", "CHANGELOG.md"]),
        step("a hundred thousand handshakes that are dropped", || {
            release_tests("tidegate-tls", "crowd::", ("TIDEGATE_HANDSHAKES", "100000"))
        })
        .of(CRATES),
        step("a GiB in frames of 32 bytes to a slow reader", || {
            release_tests("tidegate-quic", "small_frames_in_order", ("TIDEGATE_STREAM_BYTES", "1073741824"))
        })
        .of(CRATES),
        step("a hundred restarts", || release_tests("tidegate-cli", "restarts_of", ("TIDEGATE_RESTARTS", "100")))
            .of(CRATES),
    ]
}

/// Steps with builds of their own.
fn builds() -> Vec<NamedStep> {
    let mut steps = vec![
        step_apart("packages that compile", "target/release-packages", release::packages_that_compile)
            .of(&["crates", "README.md"]),
        step_apart("the documentation of users", "target/doc-of-users", measure::documentation_of_users).of(CRATES),
        step("instruction counts of the published program", || measure::instructions("--check", "dist"))
            .of(&["crates", "benches/instructions"]),
        step("licences, sources and advisories", release::licences).of(&["deny.toml"]),
        step("the site", || site::build(&site::Options::default())).of(&[
            "docs",
            "README.md",
            "ARCHITECTURE.md",
            "CHANGELOG.md",
            "CONTRIBUTING.md",
            "GOVERNANCE.md",
            "SECURITY.md",
        ]),
        step("the oldest supported compiler", release::oldest_compiler).of(&["benches", "crates", "examples", "fuzz"]),
        step("interfaces beside the baseline", || tools::SEMVER_CHECKS.install().and_then(|()| release::interfaces()))
            .of(CRATES),
    ];
    for (queue, folder) in [("array", "target/experiment/buffer/array"), ("linked", "target/experiment/buffer/linked")]
    {
        let name = format!("tests and lints of the {queue} queue");
        steps.push(step_apart(name, folder, move || test_queue(queue, folder)).of(&["benches/experiment", "crates"]));
    }
    steps
}

/// The buffer's tests with another queue in its place: docs/queue-experiment.md.
fn test_queue(queue: &str, folder: &str) -> Result<(), Failure> {
    let cargo = |command: &str| {
        let step = cargo([command, "--manifest-path", "benches/experiment/buffer/Cargo.toml", "--locked"]);
        step.args(["--target-dir", folder]).env("RUSTFLAGS", format!("--cfg tidegate_queue=\"{queue}\""))
    };
    cargo("test").arg("--tests").run()?;
    cargo("clippy").args(["--all-targets", "--", "-D", "warnings"]).run()
}

/// The tests of a package whose names contain this text, in a release build. At least one has to be there.
fn release_tests(package: &str, filter: &str, (name, value): (&str, &str)) -> Result<(), Failure> {
    let test = cargo(["test", "--release", "--package", package, "--tests", "--", "--nocapture", filter]);
    chance::tests_that_exist(test.env(name, value))
}

fn costs() -> Vec<NamedStep> {
    let mut steps = Vec::new();
    for backend in BACKENDS {
        steps.push(measured(format!("memory of 15,000 connections on {backend}"), move || {
            let server = server(&format!("--quiet --max-connections 20000 --backend {backend}"));
            let bars = ["idle", "--connections", "15000", "--max", "320", "--server", &server];
            python("benches/memory.py").args(bars).run()
        }));
        steps.push(step(format!("crowds on {backend}"), move || measure::crowds(Some(backend))).of(COSTS));
    }
    steps.push(measured("ten thousand short connections a second", || {
        measure::churn(60, &["--rate-min", "10000", "--probe-max", "1"])
    }));
    steps.push(measured("turns beside scrapes and lists of connections", || {
        for backend in BACKENDS {
            let server = server(&format!("--quiet --backend {backend} --admin 127.0.0.1:0"));
            python("benches/scrape.py").args(["--max", "1024", "--server", &server]).run()?;
        }
        Ok(())
    }));
    steps.push(measured("system calls at each depth", || {
        python("benches/calls.py").env("TIDEGATE_PROFILE", "release").run()
    }));
    steps
}

/// A step that runs after the build whose memory and system calls are measured.
fn measured(name: impl Into<String>, run: impl FnOnce() -> Result<(), Failure> + 'static) -> NamedStep {
    step(name, move || measure::builds_for_memory().and_then(|()| run())).of(COSTS)
}

fn comparisons() -> Vec<NamedStep> {
    vec![
        beside_peers("the peers answer alike", || python("benches/peers/check.py").run()),
        beside_peers("comparison", || python("benches/compare.py").args("--rounds 1 --seconds 1".split(' ')).run()),
        timed("epoll beside io_uring", || {
            let backends =
                BACKENDS.map(|backend| format!("{backend}={}", dist_server(&format!("--quiet --backend {backend}"))));
            compare(&["--rounds", "3", "--seconds", "1"], &backends)
        }),
        timed("a channel beside a handler", || {
            let plaintext = "target/dist/examples/plaintext 127.0.0.1:0";
            let kinds = ["handler", "channel"].map(|kind| format!("{kind}={plaintext} {kind}"));
            compare(&["--rounds", "3", "--seconds", "1", "--depths", "16"], &kinds)
        }),
        timed("a forwarder beside HAProxy", || {
            python("benches/forward.py").args("--rounds 1 --gib 1".split(' ')).run()
        }),
        timed("a proxy beside nginx and HAProxy, one request at a time", || {
            python("benches/proxy.py").args(["target/dist/tidegate", "--depths", "1", "--bars"]).run()
        }),
        beside_peers("TLS beside hyper and nginx", || {
            python("benches/tls.py").args("--rounds 1 --seconds 1 --idle-max 4300".split(' ')).run()
        }),
        timed("gRPC beside tonic on hyper", || {
            cargo("build --release --manifest-path benches/peers/tonic014/Cargo.toml".split(' ')).run()?;
            python("benches/grpc.py").args("--rounds 1 --seconds 1".split(' ')).run()
        }),
        timed("equivalent requests", || {
            python("benches/compare.py").args("--server tidegate --variants --rounds 1 --seconds 1".split(' ')).run()
        }),
        step("queue experiment", || cargo("run --profile dist -- experiment --rounds 1".split(' ')).run()).of(COSTS),
        beside_peers("side by side", || {
            python("benches/peers/run.py").args("--quick --out target/benchmarks".split(' ')).run()
        }),
    ]
}

/// A step that runs after the build whose times are measured.
fn timed(name: &str, run: impl FnOnce() -> Result<(), Failure> + 'static) -> NamedStep {
    step(name, move || measure::dist_builds().and_then(|()| run())).of(COSTS)
}

/// A timed step that needs the servers of the comparison as well.
fn beside_peers(name: &str, run: impl FnOnce() -> Result<(), Failure> + 'static) -> NamedStep {
    timed(name, move || {
        tools::install(tools::OF_PEERS)?;
        cargo("build --release --manifest-path benches/peers/Cargo.toml".split(' ')).run()?;
        run()
    })
}

fn compare(flags: &[&str], servers: &[String]) -> Result<(), Failure> {
    let servers = servers.iter().flat_map(|server| ["--server", server.as_str()]);
    python("benches/compare.py").args(flags.iter().copied()).args(servers).run()
}

const CRATES: &[&str] = &["crates"];

const COSTS: &[&str] = &["benches", "crates", "examples"];
