//! Nodes with the client of Redis, and the model of the server, in a simulated network: all faults follow from the seed.

use std::net::SocketAddr;
use std::time::Duration;

use tidegate_backplane::Backplane;
use tidegate_engine::{Client as Target, Limits, NodeId};
use tidegate_redis::Client;
use tidegate_testkit::network::{FaultRates, Host, Network, NetworkFault, SimNode};
use tidegate_testkit::{Random, seeds};

use crate::members::{Member, Seen, check};
use crate::redis_model::RedisModel;
use crate::simulation;

struct World {
    network: Network,
    broker: Host,
    server: SimNode,
    model: RedisModel,
    hosts: Vec<Host>,
    /// One of each node. The loops of nodes last as long.
    members: Vec<(Member, SimNode)>,
    random: Random,
}

impl World {
    fn new(seed: u64) -> Self {
        let network = Network::new(seed);
        let (broker, model) = (network.host("10.0.0.1"), RedisModel::default());
        let server = serve(&broker, &model);
        let hosts: Vec<_> = (1..=NODES).map(|number| network.host(&format!("10.0.1.{number}"))).collect();
        let members = hosts.iter().enumerate().map(|(number, host)| enter(&network, host, number)).collect();
        Self { network, broker, server, model, hosts, members, random: Random::new(seed) }
    }

    /// The broker ends all connections, and starts again, perhaps without its data.
    fn crash(&mut self) {
        self.server.drain(Duration::ZERO);
        let is_down = self.network.run_until(Duration::from_secs(60), || self.server.is_drained());
        assert!(is_down, "the broker does not end");
        if self.random.once_in(2) {
            self.model.lose_data();
        }
        self.network.run_for(Duration::from_millis(self.random.below(2000) as u64));
        self.server = serve(&self.broker, &self.model);
    }

    fn cut_off_a_node(&mut self) {
        let host = &self.hosts[self.random.below(NODES)];
        self.network.partition(&self.broker, host);
        self.network.run_for(Duration::from_millis(self.random.below(20_000) as u64));
        self.network.heal(&self.broker, host);
    }

    fn publish(&mut self, number: usize, has_faults: bool) {
        let place = self.random.below(NODES);
        let is_taken = self.members[place].0.publish(&number.to_string());
        assert!(is_taken || has_faults, "{number} is refused");
        self.network.run_for(Duration::from_millis(self.random.below(100) as u64));
    }

    /// Waits until all members have the same last message.
    fn settle(&mut self) {
        self.network.set_faults(FaultRates::none());
        for number in 0..40 {
            let text = format!("end {number}");
            let _ = self.members[0].0.publish(&text);
            let members = &self.members;
            let has_all = || members.iter().all(|(member, _)| member.log.has(&text));
            if self.network.run_until(Duration::from_secs(10), has_all) {
                return;
            }
        }
        panic!("the members do not come together");
    }

    fn logs(&self) -> Vec<Vec<Seen>> {
        self.members.iter().map(|(member, _)| member.log.seen()).collect()
    }
}

fn serve(host: &Host, model: &RedisModel) -> SimNode {
    let (node, model) = (host.node(), model.clone());
    node.listen(PORT, Limits::default(), move |_| model.connection()).expect("the port is free");
    node
}

fn enter(network: &Network, host: &Host, number: usize) -> (Member, SimNode) {
    let node = host.node();
    let task = node.spawn(async move {
        let client = Client::over(Target::at(SocketAddr::from(([10, 0, 0, 1], PORT)))).timeout(Duration::from_secs(5));
        let id = NodeId([number as u8; 16]);
        let backplane = Backplane::redis_client(client).id(id).start();
        Member::enter_at_once(&backplane, "tides", 1000)
    });
    let member = network.run_task(Duration::from_secs(10), task);
    let is_open = network.run_until(Duration::from_secs(60), || member.log.seen().contains(&Seen::Opened));
    assert!(is_open, "the room does not open");
    (member, node)
}

#[test]
fn without_faults_each_node_has_all_messages_in_one_order() {
    for seed in seeds(3) {
        let mut world = World::new(seed);
        (0..MESSAGES).for_each(|number| world.publish(number, false));
        world.settle();
        check(&world.logs(), false);
        let texts = world.members[0].0.log.texts();
        assert_eq!(texts.len(), MESSAGES + 1);
        assert!(world.members.iter().all(|(member, _)| member.log.texts() == texts));
    }
}

#[test]
fn nodes_over_redis_deliver_one_order_whatever_the_network_does() {
    let has_range = std::env::var_os("TIDEGATE_SEEDS").is_some();
    let all: Vec<u64> = if has_range { simulation::seeds(1).collect() } else { seeds(6).collect() };
    for seed in all {
        let mut world = World::new(seed);
        world.network.set_faults(FaultRates::benign().with(NetworkFault::Reset, 200));
        for number in 0..MESSAGES {
            world.publish(number, true);
            match world.random.below(25) {
                0 => world.crash(),
                1 => world.cut_off_a_node(),
                _ => {}
            }
        }
        world.settle();
        check(&world.logs(), false);
    }
}

const NODES: usize = 4;
/// Messages of a run.
const MESSAGES: usize = 100;
const PORT: u16 = 6379;
