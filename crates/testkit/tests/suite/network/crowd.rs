//! Many connections, some of which misbehave: each of them ends, and is accounted for.
//!
//! `TIDEGATE_CONNECTIONS=1000000 cargo test --release -p tidegate-testkit --test suite network::crowd` is the long run.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::error::Error;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tidegate_buffer::WaterMarks;
use tidegate_codec::framing::Raw;
use tidegate_engine::{Channel, Client, ConnectError, Counts, EventLoop, Limits, task};
use tidegate_sys::Address;
use tidegate_testkit::network::{FaultCounts, FaultRates, Network, NetworkFault, SimNode};
use tidegate_testkit::{Random, seeds};

use crate::network::pair::{Echo, SECOND, Served, echo, exchange, weather, without_messages};

/// A client's behaviour on its connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Behaviour {
    /// Sends a few bytes to an echo.
    Small,
    /// Sends many bytes to an echo.
    Large,
    /// Connects to a server that ends its side first.
    Heard,
    /// Closes at once while bytes are in flight.
    Aborts,
    /// Sends, and never reads.
    NeverReads,
    /// Sends nothing for a while.
    Idles,
}

/// The outcome of a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Outcome {
    /// All bytes were sent and received.
    Whole,
    /// The connect failed.
    Unconnected,
    /// The connection ended in good order, but early.
    Short,
    /// The connection broke.
    Broken,
}

type Tally = BTreeMap<(Behaviour, Outcome), u64>;

/// Where the servers of a round listen.
#[derive(Clone)]
struct Servers {
    echoes: Vec<Address>,
    heralds: Vec<Address>,
}

async fn behave(behaviour: Behaviour, servers: Servers, seed: u64) -> Outcome {
    let mut random = Random::new(seed);
    task::sleep(Duration::from_micros(random.below(2_000_000) as u64)).await;
    let echoes = random.pick(&servers.echoes).clone();
    let result = match behaviour {
        Behaviour::Small => sends_and_hears(echoes, 1 + random.below(100), &mut random).await,
        Behaviour::Large => sends_and_hears(echoes, 20_000 + random.below(60_000), &mut random).await,
        Behaviour::Heard => is_heard(random.pick(&servers.heralds).clone()).await,
        Behaviour::Aborts => aborts(echoes, &mut random).await,
        Behaviour::NeverReads => never_reads(echoes).await,
        Behaviour::Idles => idles(echoes, &mut random).await,
    };
    result.unwrap_or_else(|error| {
        let is_unconnected = error.is::<ConnectError>();
        if is_unconnected { Outcome::Unconnected } else { Outcome::Broken }
    })
}

type Behaved = Result<Outcome, Box<dyn Error>>;

async fn sends_and_hears(to: Address, length: usize, random: &mut Random) -> Behaved {
    let bytes = random.bytes(length);
    let piece = 1 + random.below(length.min(9000));
    let come = exchange(to, bytes.clone(), piece.max(length / 50)).await?;
    assert!(bytes.starts_with(&come), "other bytes came back, or in another order");
    Ok(if come == bytes { Outcome::Whole } else { Outcome::Short })
}

async fn is_heard(to: Address) -> Behaved {
    let mut channel = Client::at(to).connect(Raw).await?;
    let mut come = Vec::new();
    while let Some(bytes) = channel.recv().await? {
        come.extend_from_slice(&bytes);
    }
    channel.send("and goodbye".into())?;
    channel.close().await?;
    Ok(if come == HERALD { Outcome::Whole } else { Outcome::Short })
}

async fn aborts(to: Address, random: &mut Random) -> Behaved {
    let mut channel = Client::at(to).connect(Raw).await?;
    let length = 1 + random.below(50_000);
    channel.send(random.bytes(length).into())?;
    task::sleep(Duration::from_micros(random.below(20_000) as u64)).await;
    Ok(Outcome::Whole)
}

async fn never_reads(to: Address) -> Behaved {
    let patient = Limits { write_timeout: SECOND * 600, ..Limits::default() };
    let (reader, mut writer) = Client::at(to).limits(patient).connect(Raw).await?.split();
    while writer.ready().await.is_ok() && writer.send(vec![0; 30_000].into()).is_ok() {}
    drop(reader);
    Ok(Outcome::Whole)
}

async fn idles(to: Address, random: &mut Random) -> Behaved {
    let mut channel = Client::at(to).connect(Raw).await?;
    let silence = Duration::from_millis(random.below(30_000) as u64);
    let ended = match task::timeout(silence, channel.recv()).await {
        Err(_) => false,
        Ok(received) => {
            assert!(received?.is_none(), "no bytes were sent");
            true
        }
    };
    channel.close().await?;
    Ok(if ended { Outcome::Short } else { Outcome::Whole })
}

const HERALD: &[u8] = b"hear ye";

/// Sends bytes, ends its side, and receives up to the other end.
async fn herald(mut channel: Channel<Raw>) -> Served {
    channel.send(HERALD.into())?;
    channel.shutdown_write();
    while channel.recv().await?.is_some() {}
    Ok(())
}

/// A mishap of all connections after a second.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mishap {
    None,
    /// A server drains.
    Drain,
    /// Two hosts are cut off from each other for three seconds, which breaks only connections that are late already.
    Cut,
}

/// A round: a number of connections between two servers of two loops each and two hosts of clients.
struct Round {
    network: Network,
    servers: Vec<SimNode>,
    clients: Vec<SimNode>,
    made: Rc<Cell<usize>>,
    gone: Rc<Cell<usize>>,
}

impl Round {
    fn new(seed: u64, faults: FaultRates) -> Self {
        let network = Network::new(seed);
        network.set_faults(faults);
        let nodes = |ips: &[&str]| ips.iter().map(|ip| network.host(ip).node()).collect::<Vec<_>>();
        let servers = nodes(&["10.0.0.1", "10.0.0.1", "10.0.0.2", "10.0.0.2"]);
        let clients = nodes(&["10.0.1.1", "10.0.1.2"]);
        Self { network, servers, clients, made: Rc::default(), gone: Rc::default() }
    }

    fn listen(&self) -> Servers {
        let limits =
            || Limits { write_timeout: SECOND * 5, water: WaterMarks::new(20_000, 10_000), ..Limits::default() };
        let mut servers = Servers { echoes: Vec::new(), heralds: Vec::new() };
        for (port, node) in (7000..).zip(&self.servers) {
            let (made, gone) = (self.made.clone(), self.gone.clone());
            let make = move |_: &Address| {
                made.set(made.get() + 1);
                (Raw, Echo(gone.clone()))
            };
            servers.echoes.push(node.listen(port, limits(), make).expect("the port is free"));
            servers.echoes.push(node.serve(port + 100, limits(), || Raw, echo).expect("the port is free"));
            servers.heralds.push(node.serve(port + 200, limits(), || Raw, herald).expect("the port is free"));
        }
        let path = Address::Unix("/run/echo.sock".into());
        let listener = self.network.host("10.0.0.2").listener_at(&path).expect("the path is free");
        let served = |it: &mut EventLoop| it.serve(listener, limits(), Arc::default(), || Raw, echo);
        self.servers[3].with(served).expect("it is a listener");
        servers.echoes.push(path);
        servers
    }

    fn run(self, seed: u64, connections: u64, mishap: Mishap) -> (Tally, FaultCounts, Counts) {
        let servers = self.listen();
        let tally = Rc::new(RefCell::new(Tally::new()));
        let mut random = Random::new(seed);
        for number in 0..connections {
            let behaviour = match random.below(100) {
                0..70 => Behaviour::Small,
                70..75 => Behaviour::Large,
                75..85 => Behaviour::Heard,
                85..92 => Behaviour::Aborts,
                92..93 => Behaviour::NeverReads,
                _ => Behaviour::Idles,
            };
            let (servers, tally, seed) = (servers.clone(), tally.clone(), random.bits());
            let behaves = async move {
                let outcome = behave(behaviour, servers, seed).await;
                *tally.borrow_mut().entry((behaviour, outcome)).or_default() += 1;
            };
            drop(self.clients[number as usize % self.clients.len()].spawn(behaves));
        }
        self.network.run_for(SECOND);
        match mishap {
            Mishap::None => {}
            Mishap::Drain => self.servers[0].drain(SECOND * 2),
            Mishap::Cut => {
                let [one, other] = ["10.0.0.1", "10.0.1.1"].map(|ip| self.network.host(ip));
                self.network.partition(&one, &other);
                self.network.run_for(SECOND * 3);
                self.network.heal(&one, &other);
            }
        }
        let ended = || tally.borrow().values().sum::<u64>();
        let over = self.network.run_until(SECOND * 3600, || ended() == connections);
        assert!(over, "{} of {connections} have ended", ended());
        let tally = tally.take();
        (tally, self.network.fault_counts(), self.ends_clean())
    }

    /// Asserts that no connection, socket, slot or memory is left.
    fn ends_clean(self) -> Counts {
        let Self { network, servers, clients, made, gone } = self;
        let nodes = || servers.iter().chain(&clients);
        let left = || network.open_endpoints() as u64 + nodes().map(|node| node.counts().connections).sum::<u64>();
        assert!(network.run_until(SECOND * 300, || left() == 0), "{} ends or connections are left", left());
        assert_eq!(made.get(), gone.get(), "handlers that were made, and those that were notified of their end");
        nodes().for_each(|node| node.drain(SECOND));
        assert!(network.run_until(SECOND * 2, || nodes().all(SimNode::is_drained)), "a slot is left");
        let counts = servers.iter().map(SimNode::counts).reduce(add).expect("there are servers");
        let pools: Vec<_> = nodes().map(|node| node.pool().clone()).collect();
        drop((network, servers, clients));
        assert!(pools.iter().all(|pool| pool.ledger().used() == 0), "memory is left");
        counts
    }
}

fn add(one: Counts, other: Counts) -> Counts {
    let mut sum = one;
    sum.accepted += other.accepted;
    sum.accepts_failed += other.accepts_failed;
    sum.received_bytes += other.received_bytes;
    sum.sent_bytes += other.sent_bytes;
    sum.turns += other.turns;
    sum.closed_done += other.closed_done;
    sum.closed_broken += other.closed_broken;
    sum.closed_failed += other.closed_failed;
    sum.closed_write_timeout += other.closed_write_timeout;
    sum.closed_drained += other.closed_drained;
    sum
}

#[test]
fn every_connection_of_a_crowd_ends_and_is_accounted_for() {
    let begun = Instant::now();
    let wanted: u64 = std::env::var("TIDEGATE_CONNECTIONS").map_or(2_000, |number| number.parse().expect("a number"));
    let (mut sum, mut fault_counts, mut counts) = (Tally::new(), FaultCounts::default(), Counts::default());
    for seed in seeds(wanted.div_ceil(ROUND)) {
        // In every second round nothing may break.
        let harsh = seed % 2 == 1;
        let faults = match harsh {
            false => weather(seed, &[0, 4, 8, 30]),
            true => weather(seed, &[0, 4, 8, 30])
                .with(NetworkFault::Reset, 150)
                .with(NetworkFault::Refused, 30)
                .with(NetworkFault::TimedOut, 30),
        };
        let mishap = [Mishap::None, Mishap::Drain, Mishap::Cut][(seed / 2 % 3) as usize];
        let (tally, occurred, counted) = Round::new(seed, faults).run(seed, ROUND, mishap);
        assert_eq!(tally.values().sum::<u64>(), ROUND);
        for ((behaviour, outcome), count) in tally {
            let may_break = harsh || mishap != Mishap::None || outcome == Outcome::Whole;
            assert!(may_break, "{count} of {behaviour:?} were {outcome:?} though nothing breaks, with seed {seed}");
            *sum.entry((behaviour, outcome)).or_default() += count;
        }
        fault_counts += occurred;
        counts = add(counts, counted);
    }
    for ((behaviour, outcome), count) in &sum {
        println!("{:<12}{:<12}{count:>9}", format!("{behaviour:?}"), format!("{outcome:?}"));
    }
    let total: u64 = sum.values().sum();
    let took = begun.elapsed();
    println!(
        "{fault_counts}\n{counts:?}\n{total} connections in {took:.1?}: {:.0} in a second",
        total as f64 / took.as_secs_f64()
    );
    fault_counts.assert_all(&without_messages(&NetworkFault::ALL));
}

/// Connections of a round.
const ROUND: u64 = 250;

/// Short connections one after the other, beside many silent ones: the cost of a simulated connection.
#[test]
fn short_connections_take_their_turns() {
    let wanted: usize = std::env::var("TIDEGATE_CONNECTIONS").map_or(2_000, |number| number.parse().expect("a number"));
    let network = Network::new(1);
    let nodes: Vec<_> = (1..5).map(|last| network.host(&format!("10.0.0.{last}")).node()).collect();
    let limits = || Limits { connections_max: usize::MAX, ..Limits::default() };
    let to = nodes[0].serve(7, limits(), || Raw, echo).expect("the port is free");
    let client = Client::at(to);
    let idle = Rc::new(Cell::new(0));
    for number in 0..wanted / 20 {
        let (client, idle) = (client.clone(), idle.clone());
        drop(nodes[1 + number % 3].spawn(async move {
            let mut channel = client.connect(Raw).await.expect("a server listens");
            idle.set(idle.get() + 1);
            drop(channel.recv().await);
        }));
        // No more at once than the size of the backlog.
        if number % 100 == 99 {
            network.run_for(Duration::from_millis(10));
        }
    }
    network.run_for(SECOND);
    assert_eq!(idle.get(), wanted / 20);
    let begun = Instant::now();
    let done = Rc::new(Cell::new(0));
    for number in 0..100 {
        let (client, done) = (client.clone(), done.clone());
        drop(nodes[1 + number % 3].spawn(async move {
            for _ in 0..wanted / 100 {
                let mut channel = client.connect(Raw).await.expect("a server listens");
                channel.send("ebb and flow".into()).expect("there is room");
                let come = channel.recv().await.expect("nothing breaks").expect("it is sent back");
                assert_eq!(&come[..], b"ebb and flow");
                drop(channel);
                done.set(done.get() + 1);
            }
        }));
    }
    assert!(network.run_until(SECOND * 3600, || done.get() == wanted / 100 * 100));
    let took = begun.elapsed();
    println!(
        "{} short connections in {took:.1?}: {:.0} in a second",
        done.get(),
        done.get() as f64 / took.as_secs_f64()
    );
}
