//! Ten processes with rooms, users and presence over the real client of a broker and the model of its server, in a simulated
//! network: all that happens follows from the seed.
//!
//! `TIDEGATE_SEEDS=1..=300` runs a range of seeds, and `TIDEGATE_TRACE=1` prints the actions and the faults of each.

mod broker;
mod checks;
mod faults;
mod world;

use std::sync::Once;
use std::time::Duration;

use self::broker::BrokerKind;
use self::world::{Place, World};
use crate::simulation;

/// Members enter, publish, leave, return and are kicked, and then all becomes quiet.
fn run(kind: BrokerKind, seed: u64, steps: usize, has_faults: bool) -> World {
    load_scripts();
    let mut world = World::new(kind, seed);
    if has_faults {
        world.set_network_faults();
    }
    for _ in 0..steps {
        world.act();
        if has_faults {
            world.fail();
        }
        let pause = if world.random.once_in(60) { 20_000 } else { 400 };
        let pause = Duration::from_millis(world.random.below(pause) as u64);
        world.pass(pause);
    }
    world.recover();
    world.pass(Duration::from_secs(60));
    let last: Vec<_> = Place::all().map(|place| (place, world.publish(0, place))).collect();
    world.pass(Duration::from_secs(15));
    for (place, text) in last {
        assert!(checks::all_have(&world, place, &text), "a member of {place:?} lacks {text}");
    }
    checks::one_order(&world);
    checks::all_are_listed(&world);
    checks::kicks(&world);
    world
}

/// The scripts know their hashes after the first run of a process: each seed begins with that.
fn load_scripts() {
    static LOADED: Once = Once::new();
    LOADED.call_once(|| {
        let mut world = World::new(BrokerKind::Redis, 0);
        let place = Place::Ordered(0);
        world.enter(0, place, None);
        world.pass(Duration::from_secs(1));
        let text = world.publish(0, place);
        world.pass(Duration::from_secs(1));
        assert!(checks::all_have(&world, place, &text));
    });
}

fn run_seeds(kind: BrokerKind, sample: u64) {
    for seed in simulation::seeds(sample) {
        let ran = std::panic::catch_unwind(|| drop(run(kind, seed, STEPS, true)));
        ran.unwrap_or_else(|panic| {
            println!("TIDEGATE_SEEDS={seed}..={seed} repeats it");
            std::panic::resume_unwind(panic)
        });
    }
}

#[test]
fn processes_over_redis_keep_order_presence_and_kicks_whatever_fails() {
    run_seeds(BrokerKind::Redis, 3);
}

#[test]
fn processes_over_nats_keep_order_presence_and_kicks_whatever_fails() {
    run_seeds(BrokerKind::Nats, 3);
}

#[test]
fn a_seed_repeats_all_that_processes_do() {
    let trace = |seed| run(BrokerKind::Redis, seed, STEPS / 4, true).network.trace();
    for seed in 1..=2 {
        assert_eq!(trace(seed), trace(seed), "seed {seed}");
    }
}

#[test]
fn without_faults_no_message_of_a_process_is_missing() {
    for (kind, seed) in [(BrokerKind::Redis, 1), (BrokerKind::Redis, 2), (BrokerKind::Nats, 1), (BrokerKind::Nats, 2)] {
        let world = run(kind, seed, STEPS, false);
        for process in &world.processes {
            let counts = process.backplane.counts();
            assert_eq!((counts.gaps, counts.lost, counts.unconfirmed, counts.downs), (0, 0, 0, 0), "{kind:?} {seed}");
        }
    }
}

#[test]
fn a_clock_that_is_set_back_keeps_no_member_of_a_process_that_has_died() {
    for kind in [BrokerKind::Redis, BrokerKind::Nats] {
        for seconds in [20, 3600] {
            let mut world = World::new(kind, 1);
            let place = Place::Ephemeral(0);
            (0..2).for_each(|process| world.enter(process, place, None));
            world.pass(Duration::from_secs(15));
            checks::all_are_listed(&world);
            world.set_clock(-seconds);
            world.restart(1);
            // A lease that was set back by less than its time ends by itself.
            world.pass(Duration::from_secs(65));
            checks::all_are_listed(&world);
        }
    }
}

/// Actions of a run.
const STEPS: usize = 300;
