//! Every scenario in simulated networks, with many seeds; the test of each scenario uses a few.

use std::cell::Cell;
use std::ops::Range;
use std::rc::Rc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::thread::{self, available_parallelism};

use tidegate_testkit::network::{FaultCounts, NetworkFault};

use crate::backends::Simulator;
use crate::stack::{Stack, Tls};
use crate::stage::Stage;
use crate::{Play, SCENARIOS};

/// Plays a scenario once, in the network of a seed.
pub(crate) fn play(play: Play, seed: u64, fault_counts: &Rc<Cell<FaultCounts>>) {
    let stage = Stage::new(Simulator::new(seed, fault_counts), play.transport);
    (play.scenario)(&stage);
    stage.finish();
}

/// `TIDEGATE_SEEDS` is the number of seeds, and `TIDEGATE_SEED_FIRST` the first of them: `cargo xtask ci` plays forty each
/// time, and `cargo xtask long` five thousand. `cargo test` plays a few.
/// `TIDEGATE_SCENARIO` is a part of the names of the scenarios that are played; without it all are.
#[test]
fn every_scenario_keeps_the_contract_under_every_seed() {
    let number =
        |name| std::env::var(name).ok().map(|value| value.parse().unwrap_or_else(|_| panic!("{name}={value}")));
    let (first, count): (u64, u64) =
        (number("TIDEGATE_SEED_FIRST").unwrap_or(0), number("TIDEGATE_SEEDS").unwrap_or(SEEDS));
    let part = std::env::var("TIDEGATE_SCENARIO").unwrap_or_default();
    let chosen = SCENARIOS.iter().filter(|scenario| scenario.name.contains(&part));
    let jobs: Vec<_> = chosen.flat_map(|scenario| scenario.plays.iter().map(|play| (scenario.name, play))).collect();
    let (next, fault_counts, failures) = (AtomicUsize::new(0), Mutex::new(FaultCounts::default()), Mutex::new(vec![]));
    let work = || {
        while let Some((name, play)) = jobs.get(next.fetch_add(1, Ordering::Relaxed)) {
            // A thread with the name of the test that replays a seed which fails.
            let count = count_over(play, count);
            let test = format!("simulator::{name}::{}", play.pipeline);
            let seed = AtomicU64::new(first);
            let named = thread::Builder::new().name(test.clone());
            let occurred = thread::scope(|scope| {
                let all = || play_all(**play, first..first + count, &seed);
                named.spawn_scoped(scope, all).expect("a thread can be started").join()
            });
            match occurred {
                Ok(occurred) => *fault_counts.lock().expect("no thread panics here") += occurred,
                // The failure was printed; other threads may have failures to print as well.
                Err(_) => {
                    let seed = seed.into_inner();
                    failures.lock().expect("no thread panics here").push(format!("TIDEGATE_SEED={seed:#x} … {test}"));
                }
            }
        }
    };
    thread::scope(|scope| {
        let workers = available_parallelism().map_or(1, usize::from);
        (0..workers).for_each(|_| drop(scope.spawn(work)));
    });
    let failures = failures.into_inner().expect("no thread panicked");
    assert!(failures.is_empty(), "plays that failed, each with the command that replays it above: {failures:#?}");
    let fault_counts = fault_counts.into_inner().expect("no thread panicked");
    println!(
        "{} plays with {count} seeds each, a quarter of them over TLS; how often each fault struck:\n{fault_counts}",
        jobs.len()
    );
    if part.is_empty() {
        // No play has two loops that send each other messages.
        let met = NetworkFault::BENIGN.into_iter().filter(|fault| *fault != NetworkFault::LateWakeUp);
        fault_counts.assert_all(&met.collect::<Vec<_>>());
    }
}

/// How many of so many seeds a play has: TLS handshakes take the most time by far.
pub(crate) fn count_over(play: &Play, count: u64) -> u64 {
    if play.pipeline == Tls::NAME { count.div_ceil(4) } else { count }
}

/// `at` is the seed that is played.
fn play_all(scenario: Play, seeds: Range<u64>, at: &AtomicU64) -> FaultCounts {
    let fault_counts = Rc::default();
    for seed in seeds {
        at.store(seed, Ordering::Relaxed);
        play(scenario, seed, &fault_counts);
    }
    fault_counts.get()
}

/// Each fault that breaks nothing strikes even then.
const SEEDS: u64 = 4;
