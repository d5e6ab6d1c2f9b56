//! Every scenario in simulated networks, with many seeds; the test of each scenario uses a few.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
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

/// `TIDEGATE_SEEDS` is the number of seeds, and `TIDEGATE_SEED_FIRST` the first of them.
#[test]
fn every_scenario_keeps_the_contract_under_every_seed() {
    let number =
        |name| std::env::var(name).ok().map(|value| value.parse().unwrap_or_else(|_| panic!("{name}={value}")));
    let (first, count): (u64, u64) =
        (number("TIDEGATE_SEED_FIRST").unwrap_or(0), number("TIDEGATE_SEEDS").unwrap_or(20));
    let jobs: Vec<_> = SCENARIOS.iter().flat_map(|scenario| scenario.plays.map(|play| (scenario.name, play))).collect();
    let (next, fault_counts, failed) = (AtomicUsize::new(0), Mutex::new(FaultCounts::default()), AtomicUsize::new(0));
    let work = || {
        while let Some((name, play)) = jobs.get(next.fetch_add(1, Ordering::Relaxed)) {
            // A thread with the name of the test that replays a seed which fails.
            // The handshakes of TLS take the most time by far.
            let count = if play.pipeline == Tls::NAME { count.div_ceil(4) } else { count };
            let named = thread::Builder::new().name(format!("simulator::{name}::{}", play.pipeline));
            let occurred = thread::scope(|scope| {
                named.spawn_scoped(scope, || play_all(*play, first, count)).expect("a thread can be started").join()
            });
            match occurred {
                Ok(occurred) => *fault_counts.lock().expect("no thread panics here") += occurred,
                // The failure was printed with its seed; other threads may have failures to print as well.
                Err(_) => drop(failed.fetch_add(1, Ordering::Relaxed)),
            }
        }
    };
    thread::scope(|scope| {
        let workers = available_parallelism().map_or(1, usize::from);
        (0..workers).for_each(|_| drop(scope.spawn(work)));
    });
    assert_eq!(failed.into_inner(), 0, "plays that failed, each with the command that replays it above");
    let fault_counts = fault_counts.into_inner().expect("no thread panicked");
    println!(
        "{} plays with {count} seeds each, a quarter of them over TLS; how often each fault struck:\n{fault_counts}",
        jobs.len()
    );
    // No play has two loops that send each other messages.
    let met = NetworkFault::BENIGN.into_iter().filter(|fault| *fault != NetworkFault::LateWakeUp);
    fault_counts.assert_all(&met.collect::<Vec<_>>());
}

fn play_all(scenario: Play, first: u64, count: u64) -> FaultCounts {
    let fault_counts = Rc::default();
    (first..first + count).for_each(|seed| play(scenario, seed, &fault_counts));
    fault_counts.get()
}
