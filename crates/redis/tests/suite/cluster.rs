//! The client against a cluster of redis-server, where it is installed.

use std::collections::BTreeMap;
use std::time::Duration;

use tidegate_engine::{Backend, EventLoop, task};
use tidegate_redis::{Client, ClientBuilder, ClientError, Failure, OwnedValue, Script, SubscriberEvent, slot_of};

use crate::processes::{RedisProcess, free_port};
use crate::scripted::words;

/// Servers with a port each; each of the first three is a master.
struct Cluster {
    servers: Vec<RedisProcess>,
}

const MASTERS: usize = 3;

impl Cluster {
    /// Starts the servers, without slots.
    fn start(name: &str, count: usize) -> Option<Self> {
        let servers = (0..count).map(|number| {
            let arguments =
                ["--cluster-enabled", "yes", "--cluster-node-timeout", "2000", "--repl-ping-replica-period", "1"];
            RedisProcess::start(&format!("{name}-{number}"), free_port(), &arguments)
        });
        servers.collect::<Option<Vec<_>>>().map(|servers| Self { servers })
    }

    fn seed(&self, number: usize) -> String {
        self.servers[number].address()
    }

    fn builder(&self) -> ClientBuilder {
        let builder = Client::cluster([self.seed(0), self.seed(1)]).expect("addresses");
        builder.timeout(Duration::from_secs(60)).backoff(Duration::from_millis(5), Duration::from_millis(50))
    }

    /// A client of each server alone.
    fn nodes(&self) -> Vec<Client> {
        self.servers.iter().map(|server| server.builder().start()).collect()
    }

    /// Makes the servers a cluster, and waits until all of them know it.
    async fn join(nodes: &[Client], ports: &[u16]) -> Result<(), ClientError> {
        for (number, node) in nodes.iter().enumerate() {
            node.call(words(&format!("CLUSTER SET-CONFIG-EPOCH {}", number + 1))).await?;
        }
        for node in nodes {
            for port in ports {
                node.call(words(&format!("CLUSTER MEET 127.0.0.1 {port}"))).await?;
            }
        }
        for (number, (first, last)) in [(0, 5460), (5461, 10_922), (10_923, 16_383)].into_iter().enumerate() {
            nodes[number].call(words(&format!("CLUSTER ADDSLOTSRANGE {first} {last}"))).await?;
        }
        for (number, node) in nodes.iter().enumerate().skip(MASTERS) {
            let master = id(&nodes[number % MASTERS]).await?;
            while node.call(words(&format!("CLUSTER REPLICATE {master}"))).await.is_err() {
                task::sleep(Duration::from_millis(20)).await;
            }
        }
        for node in nodes {
            loop {
                let info: String = node.call(words("CLUSTER INFO")).fetch().await?;
                let slots: Vec<Vec<OwnedValue>> = node.call(words("CLUSTER SLOTS")).fetch().await?;
                let is_whole =
                    slots.len() == MASTERS && slots.iter().all(|range| range.len() == 2 + nodes.len() / MASTERS);
                if is_whole && info.contains("cluster_state:ok") {
                    break;
                }
                task::sleep(Duration::from_millis(20)).await;
            }
        }
        Ok(())
    }

    fn ports(&self) -> Vec<u16> {
        self.servers.iter().map(RedisProcess::port).collect()
    }
}

async fn id(node: &Client) -> Result<String, ClientError> {
    node.call(words("CLUSTER MYID")).fetch().await
}

fn run(test: impl Future<Output = Result<(), ClientError>> + 'static) {
    let mut event_loop = EventLoop::on(Backend::Auto).expect("a loop");
    let result = event_loop.block_on(async move { task::timeout(Duration::from_secs(120), test).await });
    result.expect("the loop runs").expect("the test does not hang").expect("the commands succeed");
}

/// A key whose slot this master has at first.
fn key_of(master: usize) -> String {
    let is_there = |key: &String| usize::from(slot_of(key.as_bytes())) / 5462 == master;
    (0..).map(|number| format!("key{number}")).find(is_there).expect("there are such keys")
}

#[test]
fn commands_go_to_the_masters_of_their_keys() {
    let Some(cluster) = Cluster::start("route", 3) else { return };
    run(async move {
        Cluster::join(&cluster.nodes(), &cluster.ports()).await?;
        let client = cluster.builder().start();
        assert_eq!(client.slot_faults(), None, "nothing is known before the first command");
        let mut replies = Vec::new();
        for number in 0..1000 {
            replies.push((number, client.set(format!("k{number}"), number).send()));
        }
        for (_, reply) in replies {
            reply.await?;
        }
        for number in 0..1000 {
            assert_eq!(client.get::<u32>(format!("k{number}")).await?, number);
        }
        assert_eq!(client.slot_faults(), Some((0, 0)));
        let mut keys = 0;
        for master in client.masters() {
            let count = master.dbsize().await?;
            assert!(count > 200, "{count}");
            keys += count;
        }
        assert_eq!(keys, 1000);

        let refused = |failure| Err(ClientError::NotSent(failure));
        assert_eq!(client.mget::<String>([key_of(0), key_of(1)]).await, refused(Failure::CrossSlot));
        assert_eq!(client.mset([("{a}1", 1), ("{a}2", 2)]).await, Ok(()));
        assert_eq!(client.mget::<u32>(["{a}1", "{a}2"]).await?, [1, 2]);
        for command in ["DBSIZE", "KEYS *", "FLUSHALL", "WHAT a"] {
            let result = client.call(words(command)).await;
            assert_eq!(result, Err(ClientError::NotSent(Failure::NoKey)), "{command}");
        }
        assert!(matches!(client.cmd("WHAT").arg("a").key("a").await, Err(ClientError::Reply(_))));

        let (one, two) = (words("SET {t}a 1"), words("INCR {t}a"));
        assert_eq!(client.transaction([one, two]).await?.map(|replies| replies.len()), Some(2));
        let crossing =
            client.transaction([words(&format!("SET {} 1", key_of(0))), words(&format!("SET {} 1", key_of(2)))]);
        assert_eq!(crossing.await, Err(ClientError::NotSent(Failure::CrossSlot)));

        let add = Script::new("return redis.call('INCRBY', KEYS[1], ARGV[1])");
        for number in 0..MASTERS {
            assert_eq!(add.run(&client, [format!("sum{}", key_of(number))], ["4"]).await?, OwnedValue::Integer(4));
        }
        let dedicated = client.node_of("jobs").expect("a master").dedicated();
        let popped = dedicated.cmd("BLPOP").args(["jobs", "30"]).send();
        client.rpush("jobs", ["job"]).await?;
        assert!(popped.await.is_ok());
        assert_eq!(client.counts().redirects, 0);
        assert_eq!(client.pending(), (0, 0));
        Ok(())
    });
}

#[test]
fn a_slot_that_moves_takes_its_commands_and_channels_along() {
    let Some(cluster) = Cluster::start("move", 3) else { return };
    run(async move {
        let nodes = cluster.nodes();
        Cluster::join(&nodes, &cluster.ports()).await?;
        let client = cluster.builder().start();
        let key = key_of(0);
        let (slot, other) = (slot_of(key.as_bytes()), format!("{{{key}}}other"));
        client.set(&key, 1).await?;
        let mut subscriber = cluster.builder().subscriber();
        subscriber.ssubscribe(key.clone());
        while client.cmd("SPUBLISH").args([&key, "one"]).fetch::<u32>().await? == 0 {
            task::sleep(Duration::from_millis(5)).await;
        }
        let message = async |subscriber: &mut tidegate_redis::Subscriber| loop {
            match subscriber.recv().await {
                Some(SubscriberEvent::Message(message)) => return message.payload,
                Some(_) => {}
                None => panic!("the loop has ended"),
            }
        };
        assert_eq!(message(&mut subscriber).await, "one");

        // Half of the slot's keys are at the other server.
        let (from, to) = (id(&nodes[0]).await?, id(&nodes[1]).await?);
        nodes[1].call(words(&format!("CLUSTER SETSLOT {slot} IMPORTING {from}"))).await?;
        nodes[0].call(words(&format!("CLUSTER SETSLOT {slot} MIGRATING {to}"))).await?;
        client.set(&other, 2).await?;
        assert_eq!(client.get::<u32>(&other).await?, 2, "by ASK, twice");
        assert_eq!(client.get::<u32>(&key).await?, 1);
        assert!(client.counts().redirects >= 2);
        let torn = client.mget::<u32>([&key, &other]).timeout(Duration::from_secs(60)).send();
        nodes[0].call(words(&format!("MIGRATE 127.0.0.1 {} {key} 0 5000", cluster.ports()[1]))).await?;
        for node in [1, 0, 2] {
            nodes[node].call(words(&format!("CLUSTER SETSLOT {slot} NODE {to}"))).await?;
        }
        assert_eq!(torn.await?, [1, 2], "TRYAGAIN was waited out");
        for number in 0..100 {
            client.set(&key, number).await?;
            assert_eq!(client.get::<u32>(&key).await?, number);
        }
        let results = client.transaction([words(&format!("INCR {key}")), words(&format!("INCR {other}"))]).await?;
        assert_eq!(results, Some(vec![OwnedValue::Integer(100), OwnedValue::Integer(3)]));

        // The channel has followed.
        while client.cmd("SPUBLISH").args([&key, "two"]).fetch::<u32>().await? == 0 {
            task::sleep(Duration::from_millis(5)).await;
        }
        assert_eq!(message(&mut subscriber).await, "two");
        assert!(subscriber.counts().gaps > 0);
        Ok(())
    });
}

#[test]
fn a_cluster_of_six_survives_the_loss_of_a_master() {
    let Some(mut cluster) = Cluster::start("six", 6) else { return };
    run(async move {
        let nodes = cluster.nodes();
        Cluster::join(&nodes, &cluster.ports()).await?;
        let client = cluster.builder().start();
        let keys: BTreeMap<usize, String> = (0..MASTERS).map(|master| (master, key_of(master))).collect();
        for key in keys.values() {
            client.set(key, 7).await?;
        }
        let reader = cluster.builder().read_replicas().start();
        for (master, key) in &keys {
            while reader.get::<Option<u32>>(key).await? != Some(7) {
                task::sleep(Duration::from_millis(5)).await;
            }
            let info: String = nodes[master + MASTERS].cmd("INFO").arg("commandstats").fetch().await?;
            assert!(info.contains("cmdstat_get:"), "the replica has answered");
            reader.incr(key).await?;
        }
        let mut subscriber = cluster.builder().subscriber();
        subscriber.subscribe("news");
        assert_eq!(subscriber.recv().await, Some(SubscriberEvent::Up));

        cluster.servers[0].kill();
        let mut lost = 0;
        // The replica becomes the master.
        for _ in 0..4 {
            match client.incr(&keys[&0]).await {
                Ok(_) => {}
                Err(ClientError::MaybeExecuted(_)) => lost += 1,
                Err(error) => return Err(error),
            }
        }
        assert!(lost <= 1, "only what was sent is lost: {lost}");
        assert!(client.get::<u32>(&keys[&0]).await? >= 8);
        for key in keys.values() {
            assert!(reader.get::<u32>(key).await? >= 7);
        }
        while client.publish("news", "back").await? == 0 {
            task::sleep(Duration::from_millis(5)).await;
        }
        assert_eq!(client.pending(), (0, 0));
        Ok(())
    });
}
