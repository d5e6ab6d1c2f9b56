//! A run is a function of its seed, a failed run prints the command that repeats it, and a suite reports its faults.

use std::env;
use std::panic::catch_unwind;
use std::process::Command;

use tidegate_testkit::network::{FaultCounts, FaultRates, Network, NetworkFault};
use tidegate_testkit::seeds;

use crate::network::exchange_all;
use crate::network::pair::{Pair, SECOND, exchange};

#[test]
fn the_same_seed_gives_the_same_events_and_another_seed_others() {
    let faults = FaultRates::benign().with(NetworkFault::Reset, 100);
    let traces: Vec<_> = (0..20).map(|seed| exchange_all(seed, faults.clone()).0).collect();
    let again: Vec<_> = (0..20).map(|seed| exchange_all(seed, faults.clone()).0).collect();
    assert_eq!(traces, again);
    let mut different = traces;
    different.sort_unstable();
    different.dedup();
    assert_eq!(different.len(), 20);
}

#[test]
fn other_bytes_change_the_trace() {
    let trace = |byte: u8| {
        let pair = Pair::new(1, FaultRates::none());
        let to = pair.serve_with_handlers(tidegate_engine::Limits::default());
        let whole = pair.start(exchange(to, vec![byte; 1000], 100));
        assert!(pair.network.run_until(SECOND, || whole.is_there()));
        pair.ends_clean().0
    };
    assert_eq!(trace(1), trace(1));
    assert_ne!(trace(1), trace(2));
}

/// Fails only on request: see below.
#[test]
fn fails_on_purpose() {
    if env::var_os(FAILS).is_some() {
        for seed in seeds(50) {
            let network = Network::new(seed);
            // Not the last handle: a loop may keep that for ever.
            std::mem::forget(network.clone());
            assert!(seed < 42, "on purpose");
        }
    }
}

#[test]
fn a_test_that_fails_prints_the_command_that_runs_it_again() {
    let run = |seed: Option<&str>| {
        let mut command = Command::new(env::current_exe().expect("it runs"));
        command.args(["--exact", "network::seeds::fails_on_purpose", "--nocapture", "--test-threads=2"]);
        command.env(FAILS, "1").env_remove("TIDEGATE_SEED");
        command.env("CARGO_PKG_NAME", env!("CARGO_PKG_NAME")).env("CARGO_MANIFEST_DIR", env!("CARGO_MANIFEST_DIR"));
        command.envs(seed.map(|seed| ("TIDEGATE_SEED", seed)));
        let output = command.output().expect("it runs again");
        assert!(!output.status.success());
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    let said = run(None);
    let lines: Vec<_> = said.lines().filter_map(|line| line.strip_prefix("replay: ")).collect();
    let [line] = lines[..] else { panic!("one line is enough:\n{said}") };
    let words: Vec<_> = line.split(' ').filter(|word| *word != "--release").collect();
    assert_eq!(
        words.join(" "),
        "TIDEGATE_SEED=0x2a cargo test -p tidegate-testkit --test suite -- --exact network::seeds::fails_on_purpose"
    );
    assert!(run(Some("0x2a")).contains(line));
}

#[test]
fn a_suite_fails_if_one_of_its_faults_never_struck() {
    let mut fault_counts = FaultCounts::default();
    for seed in seeds(20) {
        fault_counts += exchange_all(seed, FaultRates::benign()).1;
    }
    let table = fault_counts.to_string();
    let lines: Vec<_> = table.lines().collect();
    assert_eq!(lines.len(), NetworkFault::ALL.len());
    assert!(lines.iter().all(|line| line.len() == lines[0].len()), "{table}");
    assert!(lines.contains(&format!("{:<14}{:>width$}", "Reset", 0, width = lines[0].len() - 14).as_str()), "{table}");
    let missing =
        catch_unwind(|| fault_counts.assert_all(&[NetworkFault::Jitter, NetworkFault::Reset, NetworkFault::Refused]));
    if seeds(2).count() == 2 {
        let message = missing.expect_err("two of them never occurred");
        let message = message.downcast_ref::<String>().expect("it is a text");
        assert!(message.starts_with("[Reset, Refused] never occurred"), "{message}");
    }
}

/// Makes one test fail.
const FAILS: &str = "TIDEGATE_TEST_FAILS";
