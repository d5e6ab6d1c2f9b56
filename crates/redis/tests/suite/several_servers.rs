//! Clusters and sentinels that answer wrongly, late or in circles, on the simulated network.

use std::collections::HashMap;
use std::future::Future;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tidegate_engine::{Channel, Limits, task};
use tidegate_redis::{
    AggregateKind, Answer, CallContext, Client, ClientBuilder, ClientError, ClientLimits, Command, ErrorKind, Failure,
    Handler, IncomingCommand, OutgoingReply, ServerCodec, Service, SubscriberEvent, slot_of,
};
use tidegate_testkit::network::Network;

use crate::scripted::words;

type Reply = fn(server: usize, command: &str, calls: usize) -> OutgoingReply;

/// A server whose replies a function decides, from the command and from how often it came.
struct Fake {
    server: usize,
    reply: Reply,
    log: Log,
}

fn words_of(command: &Command) -> String {
    let words = std::iter::once(command.name()).chain(command.arguments());
    words.map(String::from_utf8_lossy).collect::<Vec<_>>().join(" ")
}

/// Each command of each server, in order.
type Log = Arc<Mutex<Vec<(usize, String)>>>;

impl Service for Fake {
    fn call(&mut self, command: &Command, _: &CallContext) -> Answer {
        let words = words_of(command);
        let mut log = self.log.lock().expect("no panic");
        let calls = log.iter().filter(|(server, before)| (*server, before) == (self.server, &words)).count();
        log.push((self.server, words.clone()));
        Answer::Reply((self.reply)(self.server, &words, calls))
    }

    /// A command that is refused is refused when it is queued.
    fn check(&self, command: &Command) -> Result<bool, OutgoingReply> {
        match (self.reply)(self.server, &words_of(command), 0) {
            error @ OutgoingReply::Error(_) => Err(error),
            _ => Ok(true),
        }
    }
}

/// Runs a test with servers at 10.0.0.1 and so on. Returns the commands that they got, without those of the search.
fn run<T: Future<Output = ()> + 'static>(
    servers: usize,
    reply: Reply,
    test: impl FnOnce() -> T,
) -> Vec<(usize, String)> {
    let (network, log) = (Network::new(7), Log::default());
    for server in 0..servers {
        let log = log.clone();
        let make = move |_: &_| (ServerCodec::default(), Handler::new(Fake { server, reply, log: log.clone() }));
        let node = network.host(&format!("10.0.0.{}", server + 1)).node();
        node.listen(6379, Limits::default(), make).expect("the port is free");
    }
    let testing = network.host("10.0.0.100").node().spawn(test());
    network.run_task(Duration::from_secs(600), testing);
    assert!(network.run_until(Duration::from_secs(60), || network.open_endpoints() <= servers), "a connection is left");
    let log = log.lock().expect("no panic");
    let is_command = |words: &str| !words.starts_with("CLUSTER") && !words.starts_with("SENTINEL") && words != "ROLE";
    log.iter().filter(|(_, words)| is_command(words)).cloned().collect()
}

fn cluster() -> ClientBuilder {
    Client::cluster(["10.0.0.1:6379", "10.0.0.2:6379"]).expect("addresses").backoff(Duration::from_millis(1), SHORT)
}

fn sentinel() -> ClientBuilder {
    let sentinels = ["10.0.0.1:6379", "10.0.0.2:6379"];
    Client::sentinel(sentinels, "tides").expect("addresses").backoff(Duration::from_millis(1), SHORT)
}

const SHORT: Duration = Duration::from_millis(20);

fn bulk(text: impl Into<String>) -> OutgoingReply {
    OutgoingReply::bulk(text.into().into_bytes())
}

fn error(text: impl Into<String>) -> OutgoingReply {
    OutgoingReply::error(text.into().into_bytes())
}

/// An array, of arrays too.
fn array(values: impl IntoIterator<Item = OutgoingReply>) -> OutgoingReply {
    let (mut all, mut count) = (vec![OutgoingReply::Null], 0);
    for value in values {
        count += 1;
        match value {
            OutgoingReply::All(messages) => all.extend(messages),
            scalar => all.push(scalar),
        }
    }
    all[0] = OutgoingReply::Aggregate(AggregateKind::Array, count);
    OutgoingReply::All(all)
}

/// A map of ranges with their masters.
fn map(ranges: &[(i64, i64, usize)]) -> OutgoingReply {
    array(ranges.iter().map(|(first, last, server)| {
        let master = [bulk(format!("10.0.0.{}", server + 1)), OutgoingReply::Integer(6379), bulk("id")];
        let range = [OutgoingReply::Integer(*first), OutgoingReply::Integer(*last), array(master)];
        array(range)
    }))
}

fn of<'a>(log: &'a [(usize, String)], command: &str) -> Vec<&'a usize> {
    log.iter().filter(|(_, words)| words == command).map(|(server, _)| server).collect()
}

#[test]
fn moved_in_circles_ends_with_an_error() {
    let log = run(
        2,
        |server, command, _| match command {
            "CLUSTER SLOTS" => map(&[(0, 16_383, 0)]),
            _ => error(format!("MOVED {} 10.0.0.{}:6379", slot_of(b"a"), 2 - server)),
        },
        || async {
            let client = cluster().start();
            let result = client.incr("a").await;
            assert_eq!(result, Err(ClientError::NotSent(Failure::TooManyRedirects)));
            assert_eq!((client.counts().redirects, client.pending()), (9, (0, 0)));
        },
    );
    assert_eq!(log.len(), 9);
}

#[test]
fn moved_changes_the_map_and_ask_does_not() {
    let log = run(
        2,
        |server, command, calls| match (server, command) {
            (0, "CLUSTER SLOTS") if calls == 0 => map(&[(0, 16_383, 0)]),
            (_, "CLUSTER SLOTS") => map(&[(0, 16_383, 1)]),
            (0, "GET ask") if calls < 2 => error(format!("ASK {} :6379", slot_of(b"ask")).replace(':', "10.0.0.2:")),
            (0, "GET moved") => error(format!("MOVED {} 10.0.0.2:6379", slot_of(b"moved"))),
            _ => bulk(format!("{server}")),
        },
        || async {
            let client = cluster().start();
            assert_eq!(client.get::<u32>("ask").await, Ok(1));
            assert_eq!(client.get::<u32>("ask").await, Ok(1));
            assert_eq!(client.get::<u32>("ask").await, Ok(0));
            assert_eq!(client.get::<u32>("moved").await, Ok(1));
            assert_eq!(client.get::<u32>("moved").await, Ok(1));
            assert_eq!(client.counts().redirects, 3);
        },
    );
    assert_eq!(of(&log, "GET ask"), [&0, &1, &0, &1, &0]);
    assert_eq!(of(&log, "ASKING"), [&1, &1], "before the command, and only then");
    assert_eq!(of(&log, "GET moved"), [&0, &1, &1]);
}

#[test]
fn holes_and_overlaps_are_reported_and_a_key_without_a_server_is_an_error() {
    let log = run(
        2,
        |server, command, _| match command {
            "CLUSTER SLOTS" => map(&[(0, 99, 0), (90, 12_000, 1), (13_000, 16_383, 0)]),
            _ => bulk(format!("{server}")),
        },
        || async {
            let client = cluster().timeout(Duration::from_secs(60)).start();
            assert_eq!(slot_of(b"foo"), 12_182);
            assert_eq!(client.get::<u32>("foo").await, Err(ClientError::NotSent(Failure::NoMaster)));
            assert_eq!(client.slot_faults(), Some((999, 10)));
            assert_eq!(client.get::<u32>("a").await, Ok(0));
        },
    );
    assert_eq!(log.len(), 1);
}

#[test]
fn a_cluster_that_is_down_for_a_while_executes_the_command_once() {
    let log = run(
        1,
        |_, command, calls| match command {
            "CLUSTER SLOTS" => map(&[(0, 16_383, 0)]),
            _ if calls < 3 => error("CLUSTERDOWN The cluster is down"),
            _ if calls == 3 => error("TRYAGAIN Multiple keys request during rehashing of slot"),
            _ => OutgoingReply::Integer(1),
        },
        || async {
            let client = cluster().start();
            assert_eq!(client.incr("a").await, Ok(1));
            assert_eq!(client.counts().errors(ErrorKind::ClusterDown), 0, "no caller has seen one");
        },
    );
    assert_eq!(log.len(), 5);
}

#[test]
fn a_cluster_without_a_master_or_with_a_map_that_lies_costs_the_deadline() {
    for reply in [
        (|_, _, _| error("ERR no cluster")) as Reply,
        |_, _, _| OutgoingReply::Integer(1),
        |_, _, _| array([]),
        |_, _, _| map(&[(0, 20_000, 0)]),
        |_, command, _| {
            if command == "CLUSTER SLOTS" { map(&[(0, 16_383, 0)]) } else { error("CLUSTERDOWN Hash slot not served") }
        },
    ] {
        run(2, reply, || async {
            let client = cluster().timeout(Duration::from_secs(2)).start();
            assert_eq!(client.incr("a").await, Err(ClientError::NotSent(Failure::Deadline)));
            assert_eq!(client.pending(), (0, 0));
            let dedicated = client.dedicated();
            assert!(
                dedicated.incr("a").timeout(Duration::from_secs(1)).await.is_err(),
                "and it does not wait for ever"
            );
        });
    }
}

#[test]
fn a_server_without_cluster_slots_is_asked_for_its_shards() {
    run(
        1,
        |_, command, _| match command {
            "CLUSTER SLOTS" => error("ERR Unknown subcommand"),
            "CLUSTER SHARDS" => {
                let server = [
                    bulk("port"),
                    OutgoingReply::Integer(6379),
                    bulk("ip"),
                    bulk("10.0.0.1"),
                    bulk("role"),
                    bulk("master"),
                ];
                let slots = [0, 16_383].map(OutgoingReply::Integer);
                let servers = array([array(server)]);
                array([array([bulk("slots"), array(slots), bulk("nodes"), servers])])
            }
            _ => OutgoingReply::Integer(7),
        },
        || async { assert_eq!(cluster().start().incr("a").await, Ok(7)) },
    );
}

#[test]
fn a_transaction_that_was_redirected_is_executed_once() {
    let log = run(
        2,
        |server, command, calls| match (server, command) {
            (0, "CLUSTER SLOTS") if calls == 0 => map(&[(0, 16_383, 0)]),
            (_, "CLUSTER SLOTS") => map(&[(0, 16_383, 1)]),
            (0, _) => error(format!("MOVED {} 10.0.0.2:6379", slot_of(b"a"))),
            _ => OutgoingReply::Integer(calls as i64),
        },
        || async {
            let client = cluster().start();
            let replies = client.transaction([words("INCR a"), words("SET a 2")]).await;
            assert!(matches!(replies, Ok(Some(replies)) if replies.len() == 2));
        },
    );
    assert_eq!(of(&log, "INCR a"), [&1], "once, by the other server");
}

#[test]
fn a_master_that_has_become_a_replica_leads_to_another_question() {
    let log = run(
        4,
        |server, command, calls| match (server, command) {
            // The first sentinel does not know yet.
            (0, "SENTINEL GET-MASTER-ADDR-BY-NAME tides") => array([bulk("10.0.0.3"), bulk("6379")]),
            (1, "SENTINEL GET-MASTER-ADDR-BY-NAME tides") => array([bulk("10.0.0.4"), bulk("6379")]),
            (2, "ROLE") if calls == 0 => array([bulk("master"), OutgoingReply::Integer(0)]),
            (2, "ROLE") => array([bulk("slave"), bulk("10.0.0.4")]),
            (3, "ROLE") => array([bulk("master"), OutgoingReply::Integer(0)]),
            (2, _) if calls == 0 => OutgoingReply::Integer(1),
            (2, _) => error("READONLY You can't write against a read only replica."),
            _ => OutgoingReply::Integer(2),
        },
        || async {
            let client = sentinel().start();
            assert_eq!(client.incr("a").await, Ok(1));
            assert_eq!(client.incr("a").await, Ok(2), "by the other master");
            assert_eq!(client.incr("a").await, Ok(2));
            assert_eq!((client.counts().redirects, client.counts().reconnects), (1, 0));
        },
    );
    let increments = of(&log, "INCR a");
    assert_eq!(increments[..2], [&2, &2]);
    assert!(increments[2..].iter().all(|server| **server == 3), "{increments:?}");
}

/// Each search subscribes at the sentinel that has answered. The first report of a subscription begins another search.
#[test]
fn an_idle_client_of_two_sentinels_stays_at_one_of_them() {
    static QUESTIONS: AtomicUsize = AtomicUsize::new(0);
    run(
        3,
        |server, command, _| match (server, command) {
            (_, "SENTINEL GET-MASTER-ADDR-BY-NAME tides") => {
                QUESTIONS.fetch_add(1, Ordering::Relaxed);
                array([bulk("10.0.0.3"), bulk("6379")])
            }
            (2, "ROLE") => array([bulk("master"), OutgoingReply::Integer(0)]),
            _ => OutgoingReply::Integer(1),
        },
        || async {
            let client = sentinel().start();
            assert_eq!(client.incr("a").await, Ok(1));
            task::sleep(Duration::from_secs(60)).await;
            assert_eq!(client.incr("a").await, Ok(1));
            assert_eq!((client.counts().connections, client.counts().reconnects), (1, 0));
        },
    );
    let questions = QUESTIONS.load(Ordering::Relaxed);
    assert!(questions <= 3, "{questions}");
}

#[test]
fn a_failover_in_the_middle_of_multi_executes_the_transaction_once() {
    let log = run(
        4,
        |server, command, calls| match (server, command) {
            (_, "SENTINEL GET-MASTER-ADDR-BY-NAME tides") if calls < 2 => array([bulk("10.0.0.3"), bulk("6379")]),
            (_, "SENTINEL GET-MASTER-ADDR-BY-NAME tides") => array([bulk("10.0.0.4"), bulk("6379")]),
            (2, "ROLE") if calls > 0 => array([bulk("slave"), bulk("10.0.0.4")]),
            (2 | 3, "ROLE") => array([bulk("master"), OutgoingReply::Integer(0)]),
            // MULTI is accepted, and the server becomes a replica before the next command.
            (2, _) => error("READONLY You can't write against a read only replica."),
            (_, command) => bulk(command),
        },
        || async {
            let client = sentinel().timeout(Duration::from_secs(60)).start();
            let replies = client.transaction([words("INCR a"), words("SET a 2")]).await;
            assert!(matches!(&replies, Ok(Some(replies)) if replies.len() == 2), "{replies:?}");
            assert_eq!(client.pending(), (0, 0));
        },
    );
    assert_eq!(of(&log, "INCR a"), [&3], "{log:?}");
    assert_eq!(of(&log, "SET a 2"), [&3], "{log:?}");
}

/// Redis sends such an error as the script returns it. The script may have written before.
#[test]
fn a_script_that_returns_the_error_of_a_redirect_is_executed_once() {
    for code in ["TRYAGAIN later", "CLUSTERDOWN x", "READONLY x", "MOVED 1 10.0.0.2:6379", "ASK 1 10.0.0.2:6379"] {
        let reply: Reply = match &code[..3] {
            "TRY" => |_, command, _| script_reply(command, "TRYAGAIN later"),
            "CLU" => |_, command, _| script_reply(command, "CLUSTERDOWN x"),
            "REA" => |_, command, _| script_reply(command, "READONLY x"),
            "MOV" => |_, command, _| script_reply(command, "MOVED 1 10.0.0.2:6379"),
            _ => |_, command, _| script_reply(command, "ASK 1 10.0.0.2:6379"),
        };
        let log = run(2, reply, || async {
            let client = cluster().start();
            for name in ["EVAL", "evalsha", "FCALL"] {
                let result = client.cmd(name).arg("s").arg("1").arg("a").await;
                assert!(matches!(result, Err(ClientError::Reply(_))), "{result:?}");
            }
            assert_eq!(client.counts().redirects, 0);
        });
        assert_eq!(log.len(), 3, "{code}");
    }
}

fn script_reply(command: &str, code: &str) -> OutgoingReply {
    if command == "CLUSTER SLOTS" { map(&[(0, 16_383, 0)]) } else { error(code) }
}

#[test]
fn errors_of_servers_have_kinds_that_say_what_to_do() {
    let codes: HashMap<&str, (ErrorKind, bool)> = HashMap::from([
        ("READONLY You can't write against a read only replica.", (ErrorKind::ReadOnly, true)),
        ("LOADING Redis is loading the dataset in memory", (ErrorKind::Loading, true)),
        ("MASTERDOWN Link with MASTER is down", (ErrorKind::MasterDown, true)),
        ("NOAUTH Authentication required.", (ErrorKind::NoAuth, false)),
        ("OOM command not allowed when used memory > 'maxmemory'.", (ErrorKind::OutOfMemory, true)),
        ("MOVED 1 10.0.0.2:6379", (ErrorKind::Moved, false)),
        ("ERR what", (ErrorKind::Other, false)),
    ]);
    run(
        1,
        |_, command, _| error(command.trim_start_matches("SAY ")),
        || async move {
            let client = Client::to("10.0.0.1:6379").expect("an address").start();
            for (text, (kind, may_repeat)) in &codes {
                let Err(ClientError::Reply(error)) = client.cmd("SAY").arg(text).await else { panic!("an error") };
                assert_eq!((error.kind(), error.kind().may_repeat()), (*kind, *may_repeat), "{text}");
                assert_eq!(client.counts().errors(*kind), 1);
            }
            let counts = client.counts();
            assert_eq!((counts.commands, counts.connections, counts.reconnects), (7, 1, 0));
            let all: u64 =
                counts.metrics().filter(|metric| metric.name == "redis_client_errors").map(|metric| metric.value).sum();
            assert_eq!(all, 7);
        },
    );
}

#[test]
fn names_change_from_another_task_and_a_sharded_channel_needs_no_cluster() {
    run(
        1,
        |_, command, _| {
            let mut words = command.split(' ');
            let kind = words.next().unwrap_or_default().to_lowercase();
            array([bulk(kind), bulk(words.next().unwrap_or_default()), OutgoingReply::Integer(1)])
        },
        || async {
            let mut subscriber = Client::to("10.0.0.1:6379").expect("an address").resp2().subscriber();
            let subscriptions = subscriber.subscriptions();
            let changing = task::spawn(async move { subscriptions.ssubscribe("a") });
            assert_eq!(subscriber.recv().await, Some(SubscriberEvent::Up));
            changing.await.expect("no panic");
            task::sleep(Duration::from_secs(1)).await;
            assert_eq!((subscriber.counts().connections, subscriber.last_failure()), (1, None));
        },
    );
}

/// A key of the first half of the slots, or of the second.
fn key_in(is_first: bool) -> String {
    let is_there = |key: &String| (slot_of(key.as_bytes()) < 8192) == is_first;
    (0..).map(|number| format!("key{number}")).find(is_there).expect("there are such keys")
}

#[test]
fn a_master_that_is_away_does_not_stop_a_producer_for_the_others() {
    run(
        1,
        |_, command, _| match command {
            // Nothing is at the second address.
            "CLUSTER SLOTS" => map(&[(0, 8191, 0), (8192, 16_383, 8)]),
            _ => OutgoingReply::Integer(1),
        },
        || async {
            let limits = ClientLimits { commands_max: 4, ..ClientLimits::default() };
            let client = cluster().limits(limits).timeout(Duration::from_secs(3600)).start();
            let (live, away) = (key_in(true), key_in(false));
            assert_eq!(client.incr(&live).await, Ok(1));
            let waiting: Vec<_> = (0..4).map(|_| client.incr(&away).send()).collect();
            for _ in 0..20 {
                client.ready().await;
                assert_eq!(client.incr(&live).await, Ok(1));
            }
            assert_eq!(client.incr(&away).await, Err(ClientError::NotSent(Failure::QueueFull)));
            drop(waiting);
        },
    );
}

#[test]
fn a_producer_waits_while_the_only_master_is_away() {
    run(
        2,
        // Nothing is at this address.
        |_, command, _| match command {
            "ROLE" => array([bulk("sentinel")]),
            _ if command.starts_with("SENTINEL") => array([bulk("10.0.0.9"), bulk("6379")]),
            _ => error("ERR unknown command"),
        },
        || async {
            let limits = ClientLimits { commands_max: 2, ..ClientLimits::default() };
            let client = sentinel().limits(limits).timeout(Duration::from_secs(3600)).start();
            let waiting: Vec<_> = (0..2).map(|_| client.incr("a").send()).collect();
            task::sleep(Duration::from_secs(10)).await;
            assert!(task::timeout(Duration::from_secs(10), client.ready()).await.is_err());
            drop(waiting);
        },
    );
}

/// A server that ends the subscription of `{x}a` by itself, in front of the acknowledgements of SUNSUBSCRIBE.
async fn serve_shard(mut channel: Channel<ServerCodec>) -> Result<(), Box<dyn std::error::Error>> {
    while let Some(message) = channel.recv().await? {
        let IncomingCommand::Whole(command) = message else { continue };
        let push = |kind: &str, name: &str| array([bulk(kind), bulk(name), OutgoingReply::Integer(1)]);
        let words = words_of(&command);
        let (name, arguments) = words.split_once(' ').unwrap_or((&words, ""));
        match name {
            "CLUSTER" => drop(channel.send(map(&[(0, 16_383, 0)]))?),
            "SSUBSCRIBE" => {
                for name in arguments.split(' ') {
                    channel.send(push("ssubscribe", name))?;
                }
                channel.send(array(["smessage", "{x}a", "ebb"].map(bulk)))?;
            }
            "SUNSUBSCRIBE" => {
                for name in ["{x}a"].into_iter().chain(arguments.split(' ')) {
                    channel.send(push("sunsubscribe", name))?;
                }
            }
            _ => drop(channel.send(OutgoingReply::ok())?),
        }
    }
    Ok(())
}

#[test]
fn a_sharded_channel_that_moves_while_others_are_unsubscribed_has_a_gap_and_comes_back() {
    let network = Network::new(7);
    let serving = network.host("10.0.0.1").node();
    serving.serve(6379, Limits::default(), ServerCodec::default, serve_shard).expect("the port is free");
    let testing = network.host("10.0.0.100").node().spawn(async {
        let mut subscriber = cluster().resp2().subscriber();
        ["{x}a", "{x}b", "{x}c"].into_iter().for_each(|name| subscriber.ssubscribe(name));
        let is_message = |event: &SubscriberEvent| matches!(event, SubscriberEvent::Message(_));
        while !is_message(&subscriber.recv().await.expect("it goes on")) {}
        ["{x}b", "{x}c"].into_iter().for_each(|name| subscriber.sunsubscribe(name));
        while subscriber.recv().await.expect("it goes on") != SubscriberEvent::Gap {}
        while !is_message(&subscriber.recv().await.expect("it goes on")) {}
    });
    network.run_task(Duration::from_secs(600), testing);
}
