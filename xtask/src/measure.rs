//! Steps that more than one list or command has: builds, documentation, and measurements with their bars.

use std::fs;
use std::path::Path;

use crate::chance;
use crate::command::{Failure, cargo, python};
use crate::sample::fresh_seed;

/// The program and all examples with the profile `dist`: times are measured with these.
pub(crate) fn dist_builds() -> Result<(), Failure> {
    cargo("build --profile dist --package tidegate-cli --package tidegate-examples --bins --examples".split(' ')).run()
}

/// The program and the examples that [`memory`] measures. An example takes as many bytes a connection without optimisation,
/// so those are from the build of the tests: a release build of the examples compiles 135 crates once more.
pub(crate) fn builds_for_memory() -> Result<(), Failure> {
    cargo("build --release --bin tidegate".split(' ')).run()?;
    let examples = cargo("build --workspace".split(' '));
    examples.args(["echo", "echo_channel", "chat"].into_iter().flat_map(|name| ["--example", name])).run()
}

/// A server on one loop and a free port, for figures that no profile changes: memory, system calls, limits. `more` are
/// further flags.
pub(crate) fn server(more: &str) -> String {
    format!("target/release/tidegate serve --listen 127.0.0.1:0 --loops 1 {more}")
}

/// The same server as it is measured in time.
pub(crate) fn dist_server(more: &str) -> String {
    server(more).replace("/release/", "/dist/")
}

/// The contract of drivers, in simulated networks with so many seeds.
pub(crate) fn contract_seeds(count: u64, first: Option<u64>) -> Result<(), Failure> {
    let first = first.unwrap_or_else(fresh_seed);
    println!("repeat with: cargo xtask seeds {count} --first {first}");
    let (count, first) = (count.to_string(), first.to_string());
    let variables = [("TIDEGATE_SEEDS", count.as_str()), ("TIDEGATE_SEED_FIRST", first.as_str())];
    chance::package_tests("tidegate-engine", &["--nocapture", "seeds::"], &variables)
}

/// Many simulated connections under all faults.
pub(crate) fn simulated_crowd(connections: u64) -> Result<(), Failure> {
    let test = cargo("test --release --package tidegate-testkit --tests -- --nocapture crowd::".split(' '));
    chance::tests_that_exist(test.env("TIDEGATE_CONNECTIONS", connections.to_string()))
}

/// The tests of the crates in which unsafe code is allowed, under AddressSanitizer: a use after free or an out-of-bounds
/// access fails the run even where the test would not notice. Doc tests are left out: the tests cover the same paths.
pub(crate) fn address_sanitizer(arguments: &[String]) -> Result<(), Failure> {
    let test = cargo("test --tests --target x86_64-unknown-linux-gnu --target-dir target/asan".split(' '));
    let test = test.args(["-p", "tidegate-buffer", "-p", "tidegate-sys", "-p", "tidegate-scan"]).args(arguments);
    // The stable compiler accepts the one unstable flag that this needs. Leaks are errors as well: queues and drivers
    // must free their memory.
    let test = test.env("RUSTC_BOOTSTRAP", "1").env("RUSTFLAGS", "-Zsanitizer=address");
    test.env("ASAN_OPTIONS", "detect_leaks=1").run()
}

/// The documentation without an unresolved link, of the workspace and as a user builds it.
pub(crate) fn documentation() -> Result<(), Failure> {
    documentation_of_workspace().and_then(|()| documentation_of_users())
}

/// The documentation of all crates. A link to an item that does not exist is a warning.
pub(crate) fn documentation_of_workspace() -> Result<(), Failure> {
    cargo("doc --workspace --no-deps".split(' ')).env("RUSTDOCFLAGS", "-D warnings").run()
}

/// The documentation as a user builds it, with its dependencies: a link to an item without a page stays as text in
/// brackets.
pub(crate) fn documentation_of_users() -> Result<(), Failure> {
    // Dependencies get pages too, as in a user's build, so that links to them resolve.
    let folder = "target/doc-of-users";
    let user = cargo(["doc", "--package", "tidegate", "--package", "tidegate-testkit", "--target-dir", folder]);
    user.env("RUSTDOCFLAGS", "--cap-lints warn").run()?;
    let pages = ["tidegate", "tidegate_testkit"].map(|name| Path::new(folder).join("doc").join(name));
    let unresolved: Vec<_> = pages.iter().flat_map(|page| unresolved_links(page)).collect();
    if unresolved.is_empty() { Ok(()) } else { Err(Failure(unresolved.join("\n"))) }
}

/// The pages with a link that was not resolved: text such as `[<code>Name</code>]`.
fn unresolved_links(folder: &Path) -> Vec<String> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).into_iter().flatten().filter_map(Result::ok) {
        let path = entry.path();
        if path.is_dir() {
            found.extend(unresolved_links(&path));
        } else if path.extension().is_some_and(|extension| extension == "html") {
            let text = fs::read_to_string(&path).unwrap_or_default();
            let links = text.split("[<code>").skip(1).filter_map(|rest| rest.split_once("</code>]"));
            let names = links.map(|(name, _)| name).filter(|name| !name.contains(['<', '\n']));
            found.extend(names.map(|name| format!("{}: [{name}]", path.display())));
        }
    }
    found
}

/// Counts instructions in a build with this profile, with `--check` or `--store`.
pub(crate) fn instructions(mode: &str, profile: &str) -> Result<(), Failure> {
    cargo(["run", "--profile", profile, "--package", "tidegate-instructions", "--", mode]).run()
}

/// The profile of the published program, and cargo's own, as users build.
pub(crate) const PROFILES: [&str; 2] = ["dist", "defaults"];

/// The memory limits, in bytes: per idle connection, per stuck connection, in total after two waves of connections, per
/// echo connection with a handler and with a channel, in total during a broadcast, and under a memory budget.
pub(crate) fn memory() -> Result<(), Failure> {
    for backend in BACKENDS {
        let server = server(&format!("--quiet --backend {backend}"));
        for (what, max) in [("idle", 320), ("stuck", 12 * 1024), ("waves", 2 * 1024 * 1024)] {
            memory_of(what, &server, max)?;
        }
    }
    memory_of("echo", "taskset -c 0 target/debug/examples/echo 127.0.0.1:0", 200)?;
    memory_of("echo", "taskset -c 0 target/debug/examples/echo_channel 127.0.0.1:0", 384)?;
    memory_of("broadcast", "target/debug/examples/chat 127.0.0.1:0", 4 * 1024 * 1024)?;
    memory_of("shed", &server("--quiet --memory-max 2097152"), 3 * 1024 * 1024)
}

fn memory_of(what: &str, server: &str, max: usize) -> Result<(), Failure> {
    python("benches/memory.py").args([what, "--server", server, "--max", &max.to_string()]).run()
}

/// As many connections as two processes with 20,000 descriptors each can have: idle, all active at once, all reset, all
/// stalled, and as many short ones in sequence. Prints their costs; they must leak nothing.
pub(crate) fn crowds(backend: Option<&str>) -> Result<(), Failure> {
    let mut variables = vec![("TIDEGATE_CROWD", "15000")];
    variables.extend(backend.map(|backend| ("TIDEGATE_BACKEND", backend)));
    chance::package_tests("tidegate-cli", &["--nocapture", "--test-threads", "1", "crowds"], &variables)
}

/// A server without descriptors: its loop turns seldom while it waits and when it accepts again, and it prints at most one
/// line besides the start-up lines: the address, the protocols, and the setting that differs from its default.
pub(crate) fn descriptors() -> Result<(), Failure> {
    for backend in BACKENDS {
        let server = server(&format!("--max-connections 1000 --backend {backend}"));
        let bars = ["--turns-max", DESCRIPTORS_TURNS_MAX, "--lines-max", "4", "--server", &server];
        python("benches/descriptors.py").args(bars).run()?;
    }
    Ok(())
}

/// In five seconds without an event, and for a hundred connections that wait for a descriptor. A loop that retries without a
/// pause turns many thousand times.
const DESCRIPTORS_TURNS_MAX: &str = "1000";

/// Short connections for so many seconds, on both backends.
pub(crate) fn churn(seconds: u32, more: &[&str]) -> Result<(), Failure> {
    for backend in BACKENDS {
        let server = server(&format!("--quiet --backend {backend}"));
        let churn = python("benches/churn.py").args(["--seconds", &seconds.to_string(), "--server", &server]);
        churn.args(more).run()?;
    }
    Ok(())
}

pub(crate) const BACKENDS: [&str; 2] = ["epoll", "uring"];
