//! The office on a simulated network: confirmed levels persist under all injected faults, and a drain leaves nothing.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::error::Error;
use std::rc::Rc;
use std::time::Duration;

use tidegate::Address;
use tidegate_testkit::network::{FaultCounts, FaultRates, Host, Link, Network, NetworkFault, SimNode};
use tidegate_testkit::seeds;

use crate::clerk::Clerk;
use crate::client::Gauge;
use crate::office::Office;
use crate::protocol::{Answer, Request, Tides};
use crate::session::session;
use crate::{limits, office};

/// The levels of a station that a gauge has sent: the last one that the office has confirmed, and the last one that it
/// has requested.
struct Logbook {
    station: String,
    confirmed: Cell<i32>,
    asked: Cell<i32>,
}

/// Reports rising levels until the network or the office ends that. A confirmed report is stored at once.
async fn report(address: Address, book: Rc<Logbook>) -> Result<(), Box<dyn Error>> {
    let mut gauge = Gauge::connect(&address.to_string()).await?;
    for level in 1..=20 {
        book.asked.set(level);
        assert_eq!(gauge.set(&book.station, level).await?, Answer::Ok);
        book.confirmed.set(level);
        assert_eq!(gauge.get(&book.station).await?, Answer::At { station: book.station.as_str().into(), level });
    }
    Ok(())
}

/// Hears of levels. Some may be left out if it is slow, but none comes after a later one.
async fn watch(address: Address) -> Result<(), Box<dyn Error>> {
    let mut gauge = Gauge::connect(&address.to_string()).await?;
    assert_eq!(gauge.ask(Request::Watch).await?, Answer::Ok);
    let mut levels = BTreeMap::new();
    loop {
        let Answer::At { station, level } = gauge.next().await? else { panic!("that is no level") };
        let before = levels.insert(station, level);
        assert!(before < Some(level), "the water rose from {before:?} to {level}");
    }
}

/// A server of two loops, one with handlers and one with channels, which share an office.
fn serve(host: &Host, office: &Office) -> [(SimNode, Address); 2] {
    let (handlers, channels) = (host.node(), host.node());
    let shared = office.clone();
    let one = handlers.listen(7003, limits(), move |_| (Tides::new(), Clerk::new(shared.clone()))).unwrap();
    let shared = office.clone();
    let other = channels.serve(7004, limits(), Tides::new, move |it| session(it, shared.clone())).unwrap();
    [(handlers, one), (channels, other)]
}

/// A day at the office. Whatever happens in it is a function of the seed.
fn day(seed: u64, faults: FaultRates) -> (u64, FaultCounts) {
    let network = Network::new(seed);
    network.set_faults(faults);
    let (harbour, shore) = (network.host("10.0.0.1"), network.host("10.0.0.2"));
    network.set_link_between(&shore, &harbour, Link { latency: Duration::from_millis(30), ..Link::default() });
    let office = office();
    let servers = serve(&harbour, &office);
    let client = shore.node();
    let mut reports = Vec::new();
    for number in 0..10 {
        let (_, address) = &servers[number % 2];
        drop(client.spawn(watch(address.clone())));
        let station = format!("station-{number}");
        let book = Rc::new(Logbook { station, confirmed: Cell::new(0), asked: Cell::new(0) });
        reports.push((client.spawn(report(address.clone(), book.clone())), book));
    }
    // Half of the day; some are still at it.
    network.run_for(Duration::from_secs(2));
    servers.iter().for_each(|(node, _)| node.drain(Duration::from_secs(5)));
    assert!(network.run_until(Duration::from_secs(6), || servers.iter().all(|(node, _)| node.is_drained())));

    for (report, book) in reports {
        // An error is the network's doing. A panic would be ours, and fails the test here.
        let _ = network.run_task(Duration::from_secs(60), report);
        let level = match office.get(book.station.as_str().into()) {
            Answer::At { level, .. } => level,
            _ => 0,
        };
        assert!(level == book.confirmed.get() || level == book.asked.get(), "{level} at {}", book.station);
    }
    assert!(network.run_until(Duration::from_secs(60), || network.open_endpoints() == 0), "a connection is left");
    assert_eq!(client.counts().tasks_panicked, 0);
    (network.trace(), network.fault_counts())
}

#[test]
fn a_confirmed_level_survives_every_fault_of_the_network() {
    let mut fault_counts = FaultCounts::default();
    for seed in seeds(100) {
        let faults = FaultRates::benign()
            .with(NetworkFault::Reset, 100)
            .with(NetworkFault::Refused, 20)
            .with(NetworkFault::TimedOut, 20);
        fault_counts += day(seed, faults).1;
    }
    println!("{fault_counts}");
    // No client sends so much ahead that a loop pauses receives in the middle of it.
    let met = NetworkFault::ALL.into_iter().filter(|fault| *fault != NetworkFault::LateCancel);
    fault_counts.assert_all(&met.collect::<Vec<_>>());
}

#[test]
fn a_day_is_a_function_of_its_seed() {
    let trace = |seed| day(seed, FaultRates::benign()).0;
    assert_eq!(trace(7), trace(7));
    assert_ne!(trace(7), trace(8));
}
