//! Every scenario in simulated networks, with many seeds: the long form of what each test does with a few.

use std::cell::Cell;
use std::panic::resume_unwind;
use std::rc::Rc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{self, available_parallelism};

use tidegate_testkit::network::{Fault, Fired};

use crate::grounds::Simulator;
use crate::stage::Stage;
use crate::{Play, SCENARIOS};

/// Plays a scenario once, in the network of a seed.
pub(crate) fn play(play: Play, seed: u64, fired: &Rc<Cell<Fired>>) {
    let stage = Stage::new(Simulator::new(seed, fired));
    play(&stage);
    stage.finish();
}

/// `TIDEGATE_SEEDS` says how many.
#[test]
fn every_scenario_keeps_the_contract_under_every_seed() {
    let count = std::env::var("TIDEGATE_SEEDS").map_or(20, |count| count.parse().expect("TIDEGATE_SEEDS is a number"));
    let pipelines = ["plain", "filtered"];
    let jobs: Vec<_> = SCENARIOS
        .iter()
        .flat_map(|scenario| {
            pipelines.iter().zip(scenario.plays).map(|(pipeline, play)| (scenario.name, *pipeline, play))
        })
        .collect();
    let (next, fired) = (AtomicUsize::new(0), Mutex::new(Fired::default()));
    let work = || {
        while let Some((name, pipeline, play)) = jobs.get(next.fetch_add(1, Ordering::Relaxed)) {
            // A thread with the name of the test that replays a seed which fails.
            let named = thread::Builder::new().name(format!("simulator::{name}::{pipeline}"));
            let struck = thread::scope(|scope| {
                let all = named.spawn_scoped(scope, || play_all(*play, count)).expect("a thread can be started");
                all.join().unwrap_or_else(|panic| resume_unwind(panic))
            });
            *fired.lock().expect("nobody panics here") += struck;
        }
    };
    thread::scope(|scope| {
        let workers = available_parallelism().map_or(1, usize::from);
        (0..workers).for_each(|_| drop(scope.spawn(work)));
    });
    let fired = fired.into_inner().expect("nobody panicked");
    println!("{} scenarios with {count} seeds: {fired:?}", jobs.len());
    for fault in Fault::BENIGN {
        assert!(fired.count(fault) > 0, "{fault:?} has never struck");
    }
}

fn play_all(scenario: Play, count: u64) -> Fired {
    let fired = Rc::default();
    (0..count).for_each(|seed| play(scenario, seed, &fired));
    fired.get()
}
