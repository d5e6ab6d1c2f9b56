//! The model of Redis beside redis-server: the same random calls of the scripts, the same replies and the same keys.

use std::time::Duration;

use tidegate_engine::{Backend, EventLoop, task};
use tidegate_redis::{Client, ClientError, OwnedValue, SubscriberEvent};
use tidegate_testkit::{Random, replay, seeds};

use crate::processes::{BrokerProcess, Kind};
use crate::redis_model::{RedisModel, script_source};

#[test]
fn the_model_replies_as_redis_does() {
    let Some(process) = BrokerProcess::start(Kind::Redis, &[]) else { return };
    let model = RedisModel::default().serve();
    let addresses = [model.address().to_string(), format!("127.0.0.1:{}", process.port)];
    let test = async move {
        for seed in seeds(8) {
            compare(seed, &addresses).await;
        }
    };
    let mut event_loop = EventLoop::on(Backend::Auto).expect("a loop");
    let result = event_loop.block_on(async move { task::timeout(Duration::from_secs(300), test).await });
    result.expect("the loop runs").expect("the test does not hang");
}

async fn compare(seed: u64, addresses: &[String; 2]) {
    let builders = addresses.each_ref().map(|address| Client::to(address).expect("an address").resp2());
    let clients = builders.each_ref().map(|builder| builder.clone().start());
    let channel = |room| format!("{seed}{{.{room}}}");
    let mut random = Random::new(seed);
    // More nodes than the script reads at a time.
    let mut commands: Vec<_> = (0..20).map(|node| record(node, &channel(0))).collect();
    for number in 0..CALLS {
        commands.push(random_command(&mut random, number, &channel));
        commands.extend((0..2).flat_map(|room| state_of(&channel(room))));
    }
    let mut subscribers = builders.map(|builder| builder.subscriber());
    for subscriber in &mut subscribers {
        subscriber.report_subscribed();
        (0..2).for_each(|room| subscriber.subscribe(channel(room)));
        for _ in 0..2 {
            while !matches!(subscriber.recv().await, Some(SubscriberEvent::Subscribed(_))) {}
        }
    }
    for command in &commands {
        let [of_model, of_redis] = clients.each_ref().map(|client| client.cmd(&command[0]).args(&command[1..]).send());
        let (of_model, of_redis) = (without_times(of_model.await), without_times(of_redis.await));
        assert_eq!(of_model, of_redis, "{command:?}\n{}", replay(seed));
    }
    let mut received = [Vec::new(), Vec::new()];
    for ((client, subscriber), received) in clients.iter().zip(&mut subscribers).zip(&mut received) {
        client.cmd("PUBLISH").arg(channel(0)).arg("end").await.expect("it is published");
        loop {
            let Some(SubscriberEvent::Message(message)) = subscriber.recv().await else { continue };
            if message.payload == "end" {
                break;
            }
            received.push((message.channel, message.payload));
        }
    }
    assert_eq!(received[0], received[1], "{}", replay(seed));
}

/// Records the members of a node.
fn record(node: usize, channel: &str) -> Vec<String> {
    let (source, key) = (script_source("PRESENCE"), format!("{channel}:p"));
    let node = format!("{node:032x}");
    let words =
        ["EVAL", source, "1", &key, &node, "1000000", "0", "1", "1", "", channel, "1", "list of members", "0", ""];
    words.map(ToOwned::to_owned).into()
}

/// A call of a script, or a write of another program.
fn random_command(random: &mut Random, number: usize, channel: &dyn Fn(usize) -> String) -> Vec<String> {
    let room = channel(random.below(2));
    let flag = |is_set: bool| String::from(if is_set { "1" } else { "0" });
    let (meta, history) = (format!("{room}:m"), format!("{room}:h"));
    let eval = |name: &str, keys: usize| vec!["EVAL".to_owned(), script_source(name).to_owned(), keys.to_string()];
    let mut command;
    match random.below(12) {
        0..=4 => {
            command = eval("PUBLISH", 2);
            command.extend([meta, history, room, format!("{number:016x}"), "5".into(), "60".into(), "1000".into()]);
            command.push(flag(random.once_in(2)));
            for at in 0..=random.below(3) {
                let text = "x".repeat(random.below(30));
                command.extend([flag(!random.once_in(4)), format!("{number}.{at}{text}")]);
            }
        }
        5..=6 => {
            command = eval("READ", 2);
            let epoch = format!("{:016x}", random.below(number + 1));
            command.extend([meta, history, epoch, random.below(40).to_string()]);
            // Pages of some entries, and entries that are too long.
            command.extend([*random.pick(&[1, 150, 4000]), *random.pick(&[20, 4000])].map(|max| max.to_string()));
        }
        7..=9 => {
            command = eval("PRESENCE", 2);
            command.extend((0..2).map(|room| format!("{}:p", channel(room))));
            let mode = random.below(3);
            // More nodes than are read at a time, pages of some of them, and lists and kicks that are too long.
            command.extend([format!("{:032x}", random.below(40)), "1000000".into(), mode.to_string()]);
            let bounds = [*random.pick(&[1, 400, 100_000]), *random.pick(&[20, 4000])];
            command.extend(bounds.map(|max| max.to_string()));
            let after = (mode == 2).then(|| format!("{:032x}", random.below(40)));
            command.push(after.filter(|_| random.once_in(2)).unwrap_or_default());
            for room in (0..2).filter(|_| mode < 2) {
                command.extend([channel(room), flag(random.once_in(2)), format!("list of members {number}")]);
                command.extend([flag(random.once_in(2)), format!("members {number}")]);
            }
        }
        10 => {
            let kick = [format!("{room}:k"), format!("1000000:{number}"), "PX".into(), "1000000".into()];
            command = vec!["SET".into()];
            command.extend(kick);
        }
        _ => command = foreign_write(random, &room),
    }
    command
}

fn foreign_write(random: &mut Random, room: &str) -> Vec<String> {
    let key = |suffix: &str| format!("{room}:{suffix}");
    let words: Vec<String> = match random.below(7) {
        0 => vec!["SET".into(), key("m"), "junk".into()],
        1 => vec!["SET".into(), key("h"), "junk".into()],
        2 => vec!["SET".into(), key("p"), "junk".into()],
        3 => vec!["HSET".into(), key("m"), (*random.pick(&["e", "o", "b"])).into(), "junk".into()],
        4 => vec!["HSET".into(), key("p"), "other".into(), (*random.pick(&["junk", "1:old", ":"])).into()],
        5 => vec!["DEL".into(), key(["m", "h", "p", "k"][random.below(4)])],
        _ => vec!["SCRIPT".into(), "FLUSH".into()],
    };
    words
}

fn state_of(channel: &str) -> Vec<Vec<String>> {
    let key = |suffix: &str| format!("{channel}:{suffix}");
    vec![
        vec!["HGETALL".into(), key("m")],
        vec!["LRANGE".into(), key("h"), "0".into(), "-1".into()],
        vec!["PTTL".into(), key("m")],
        vec!["PTTL".into(), key("h")],
        vec!["PTTL".into(), key("p")],
    ]
}

/// The reply, with `time` in the place of each number that only a clock makes so large or that a lease has left.
fn without_times(reply: Result<OwnedValue, ClientError>) -> String {
    match reply {
        Ok(value) => values(value),
        Err(error) => error.to_string(),
    }
}

fn values(value: OwnedValue) -> String {
    match value {
        OwnedValue::Aggregate(_, parts) => {
            let kick = parts.iter().position(|part| *part == OwnedValue::Bulk("kick".into()));
            let part =
                |(at, part)| if kick.is_some_and(|kick| at == kick + 1) { "age".to_owned() } else { values(part) };
            format!("{:?}", parts.into_iter().enumerate().map(part).collect::<Vec<_>>())
        }
        OwnedValue::Bulk(bytes) => match std::str::from_utf8(&bytes).ok().and_then(|text| text.parse::<i64>().ok()) {
            Some(number) if number > 900_000 && bytes.len() < 16 => "time".to_owned(),
            _ => format!("{bytes:?}"),
        },
        OwnedValue::Integer(number) if number > 900_000 => "time".to_owned(),
        other => format!("{other:?}"),
    }
}

/// Calls of a seed.
const CALLS: usize = 60;
