//! The client against redis-server, where it is installed.

use std::collections::HashMap;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use tidegate_engine::{Backend, EventLoop, task};
use tidegate_redis::{Client, ClientBuilder, ClientError, OwnedValue, Script, Subscriber, SubscriberEvent};

use crate::scripted::words;

/// A redis-server at a Unix path, with a password if it has one. It ends when it is dropped.
struct RedisServer {
    child: Child,
    directory: PathBuf,
}

impl RedisServer {
    fn start(name: &str, password: Option<&str>) -> Option<Self> {
        let directory = std::env::temp_dir().join(format!("tidegate-redis-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&directory).expect("a directory");
        let mut command = Command::new("redis-server");
        command.args(["--port", "0", "--save", "", "--appendonly", "no", "--unixsocket"]);
        command.arg(directory.join("socket")).arg("--dir").arg(&directory);
        if let Some(password) = password {
            command.args(["--requirepass", password]);
        }
        match command.stdout(Stdio::null()).spawn() {
            Ok(child) => Some(Self { child, directory }),
            Err(error) => {
                println!("skipped: there is no redis-server: {error}");
                None
            }
        }
    }

    fn client(&self) -> ClientBuilder {
        let target = format!("unix:{}", self.directory.join("socket").display());
        let builder = Client::to(&target).expect("an address");
        builder.timeout(Duration::from_secs(60)).backoff(Duration::from_millis(1), Duration::from_millis(20))
    }
}

impl Drop for RedisServer {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
        drop(std::fs::remove_dir_all(&self.directory));
    }
}

fn run(test: impl Future<Output = Result<(), ClientError>> + 'static) {
    let mut event_loop = EventLoop::on(Backend::Auto).expect("a loop");
    let result = event_loop.block_on(async move { task::timeout(Duration::from_secs(120), test).await });
    result.expect("the loop runs").expect("the test does not hang").expect("the commands succeed");
}

#[test]
fn values_of_all_types_come_back() {
    let Some(server) = RedisServer::start("values", Some("secret")) else { return };
    let builder = server.client().password(*b"secret").name("tide").database(2);
    run(async move {
        for builder in [builder.clone(), builder.resp2()] {
            let client = builder.start();
            client.cmd("FLUSHDB").await?;
            client.cmd("SET").arg("a\r\n\0").arg("\r\n").await?;
            assert_eq!(client.cmd("GET").arg("a\r\n\0").fetch::<String>().await?, "\r\n");
            client.cmd("HSET").arg("h").args(["one", "1", "two", "2"]).await?;
            let map: HashMap<String, u32> = client.cmd("HGETALL").arg("h").fetch().await?;
            assert_eq!((map.len(), map["two"]), (2, 2));
            client.cmd("ZADD").arg("z").args(["1.5", "one"]).await?;
            assert_eq!(client.cmd("ZSCORE").arg("z").arg("one").fetch::<Option<f64>>().await?, Some(1.5));
            assert_eq!(client.cmd("ZSCORE").arg("z").arg("two").fetch::<Option<f64>>().await?, None);
            assert!(client.cmd("EXISTS").arg("h").fetch::<bool>().await?);
            let error = client.cmd("INCR").arg("h").await;
            assert!(matches!(error, Err(ClientError::Reply(error)) if error.code() == b"WRONGTYPE"));
            assert_eq!(client.cmd("CLIENT").arg("GETNAME").fetch::<String>().await?, "tide");
            let long = "x".repeat(3 << 20);
            client.cmd("SET").arg("long").shared_arg(long.clone().into()).await?;
            assert_eq!(client.cmd("GET").arg("long").fetch::<String>().await?, long);
        }
        Ok(())
    });
}

#[test]
fn a_hundred_thousand_pipelined_commands_have_their_own_replies() {
    let Some(server) = RedisServer::start("pipeline", None) else { return };
    let client = server.client().spawn().expect("a thread");
    run(async move {
        let mut replies = std::collections::VecDeque::new();
        for number in 0..100_000_u64 {
            client.ready().await;
            replies.push_back((number, client.cmd("ECHO").arg(number.to_string()).send()));
            if replies.len() == 1000 {
                let (number, reply) = replies.pop_front().expect("a thousand");
                assert_eq!(reply.await?, OwnedValue::Bulk(number.to_string().into()));
            }
        }
        for (number, reply) in replies {
            assert_eq!(reply.await?, OwnedValue::Bulk(number.to_string().into()));
        }
        Ok(())
    });
}

#[test]
fn a_subscriber_comes_back_when_its_connection_is_killed() {
    let Some(server) = RedisServer::start("subscriber", None) else { return };
    let builder = server.client();
    run(async move {
        for builder in [builder.clone(), builder.resp2()] {
            let client = builder.clone().start();
            let mut subscriber: Subscriber = builder.subscriber();
            // More than two batches.
            (0..1200).for_each(|number| subscriber.subscribe(format!("c{number}")));
            subscriber.psubscribe("p.*");
            assert_eq!(subscriber.recv().await, Some(SubscriberEvent::Up));
            for round in 0..2 {
                assert_eq!(client.cmd("PUBLISH").args(["c1199", "one"]).fetch::<u32>().await?, 1, "{round}");
                assert_eq!(client.cmd("PUBLISH").args(["p.x", "two"]).fetch::<u32>().await?, 1, "{round}");
                let Some(SubscriberEvent::Message(one)) = subscriber.recv().await else { panic!("a message") };
                assert_eq!((&*one.channel, &*one.payload, one.pattern), (&b"c1199"[..], &b"one"[..], None));
                let Some(SubscriberEvent::Message(two)) = subscriber.recv().await else { panic!("a message") };
                assert_eq!((&*two.channel, two.pattern.as_deref()), (&b"p.x"[..], Some(&b"p.*"[..])));
                if round == 0 {
                    client.cmd("CLIENT").args(["KILL", "TYPE", "pubsub"]).await?;
                    assert_eq!(subscriber.recv().await, Some(SubscriberEvent::Down));
                    assert_eq!(subscriber.recv().await, Some(SubscriberEvent::Gap));
                    assert_eq!(subscriber.recv().await, Some(SubscriberEvent::Up));
                }
            }
            subscriber.unsubscribe("c1199");
            while client.cmd("PUBLISH").args(["c1199", "three"]).fetch::<u32>().await? > 0 {}
        }
        Ok(())
    });
}

#[test]
fn transactions_watch_keys_and_blocking_commands_have_a_connection_of_their_own() {
    let Some(server) = RedisServer::start("dedicated", None) else { return };
    let client = server.client();
    run(async move {
        let client = client.start();
        let results =
            client.transaction([words("SET a 1"), words("INCR a"), words("LPUSH a x")]).await?.expect("no watch");
        assert_eq!(results[..2], [OwnedValue::Simple("OK".into()), OwnedValue::Integer(2)]);
        assert!(matches!(&results[2], OwnedValue::Error(text) if text.starts_with(b"WRONGTYPE")));
        let Err(ClientError::Reply(error)) = client.transaction([words("GET")]).await else { panic!("an error") };
        assert_eq!(error.code(), b"EXECABORT");

        let watching = client.dedicated();
        watching.cmd("WATCH").arg("a").await?;
        client.cmd("INCR").arg("a").await?;
        assert_eq!(watching.transaction([words("SET a 9")]).await?, None);
        let id: i64 = watching.cmd("CLIENT").arg("ID").fetch().await?;
        watching.release();

        // The shared connection goes on while the other waits.
        let popping = client.dedicated();
        assert_eq!(popping.cmd("CLIENT").arg("ID").fetch::<i64>().await?, id, "it came from the pool");
        let popped = popping.cmd("BLPOP").args(["jobs", "30"]).send();
        while !client.cmd("CLIENT").arg("LIST").fetch::<String>().await?.contains("cmd=blpop") {}
        client.cmd("LPUSH").args(["jobs", "job"]).await?;
        let popped = popped.await?;
        assert_eq!(<(String, String) as tidegate_redis::FromReply>::from_reply(popped)?.1, "job");
        let other = client.dedicated();
        assert_ne!(other.cmd("CLIENT").arg("ID").fetch::<i64>().await?, id);
        client.cmd("CLIENT").args(["KILL", "ID", &id.to_string()]).await?;
        while popping.is_connected() {
            task::sleep(Duration::from_millis(1)).await;
        }
        assert!(matches!(popping.cmd("PING").await, Err(ClientError::NotSent(_))), "it does not come back");
        Ok(())
    });
}

#[test]
fn scripts_are_called_by_hash_and_iterations_end() {
    let Some(server) = RedisServer::start("scripts", None) else { return };
    let client = server.client();
    run(async move {
        let client = client.start();
        let add = Script::new("return redis.call('INCRBY', KEYS[1], ARGV[1])");
        assert_eq!(add.run(&client, ["a"], ["400"]).await?, OwnedValue::Integer(400));
        client.cmd("SCRIPT").arg("FLUSH").await?;
        assert_eq!(add.run(&client, ["a"], ["12"]).await?, OwnedValue::Integer(412));
        assert_eq!(add.run(&client, ["a"], ["0"]).await?, OwnedValue::Integer(412));

        for number in 0..1000 {
            client.cmd("SET").args([format!("key:{number}"), String::new()]).post();
        }
        let (mut keys, mut scan) = (std::collections::BTreeSet::new(), client.scan().matching("key:*").count(100));
        while let Some(batch) = scan.next_batch::<Vec<String>>().await? {
            keys.extend(batch);
        }
        assert_eq!(keys.len(), 1000);
        client.cmd("HSET").args(["h", "one", "1"]).await?;
        let fields = client.hscan("h").next_batch::<HashMap<String, u32>>().await?;
        assert_eq!(fields.map(|fields| fields["one"]), Some(1));
        Ok(())
    });
}

#[test]
fn methods_have_the_types_of_their_replies() {
    let Some(server) = RedisServer::start("typed", None) else { return };
    let builder = server.client();
    run(async move {
        for builder in [builder.clone(), builder.resp2()] {
            let client = builder.start();
            client.flushdb().await?;
            client.set("a", 412).await?;
            let height: u32 = client.get("a").await?;
            let none: Option<String> = client.get("none").await?;
            assert_eq!((height, none), (412, None));
            client.mset([("b", "1"), ("c", "2")]).await?;
            assert_eq!(client.mget::<Option<u32>>(["a", "b", "none"]).await?, [Some(412), Some(1), None]);
            assert_eq!((client.incrbyfloat("b", 0.5).await?, client.exists(["a", "b"]).await?), (1.5, 2));
            assert!(client.expire("a", 100).await? && client.ttl("a").await? > 90);
            assert_eq!(client.hset("h", [("one", 1), ("two", 2)]).await?, 2);
            let fields: HashMap<String, u32> = client.hgetall("h").await?;
            assert_eq!(fields["two"], 2);
            assert_eq!(client.rpush("l", ["x", "y"]).await?, 2);
            assert_eq!(client.lrange::<String>("l", 0, -1).await?, ["x", "y"]);
            assert_eq!(client.sadd("s", ["m"]).await?, 1);
            assert!(client.sismember("s", "m").await? && client.smembers("s").await?.contains("m"));
            client.zadd("z", [(1.5, "one"), (2.0, "two")]).await?;
            assert_eq!((client.zscore("z", "one").await?, client.zrank("z", "none").await?), (Some(1.5), None));
            let id = client.xadd("x", "*", [("field", "value")]).await?;
            let entries: Vec<(String, HashMap<String, String>)> = client.xrange("x", "-", "+").await?;
            assert_eq!((&entries[0].0, &*entries[0].1["field"]), (&id, "value"));
            assert_eq!(client.pubsub_numsub(["none"]).await?["none"], 0);
            assert!(client.time().await?.0 > 0);
        }
        Ok(())
    });
}

#[test]
fn a_cached_value_lasts_until_it_changes_or_the_connection_is_lost() {
    let Some(server) = RedisServer::start("cache", None) else { return };
    let builder = server.client();
    run(async move {
        let other = builder.clone().start();
        let client = builder.clone().cache(1 << 20).start();
        other.set("a", "one").await?;
        let reads = async || {
            let info: String = other.cmd("INFO").arg("commandstats").fetch().await?;
            let calls = info.split("cmdstat_get:calls=").nth(1).and_then(|rest| rest.split(',').next());
            Ok::<u32, ClientError>(calls.map_or(0, |calls| calls.parse().unwrap_or_default()))
        };
        for _ in 0..100 {
            assert_eq!(client.get_cached::<String>("a").await?, "one");
        }
        assert_eq!(reads().await?, 1);
        for value in ["two", "three"] {
            other.set("a", value).await?;
            while client.get_cached::<String>("a").await? != value {
                task::sleep(Duration::from_millis(1)).await;
            }
        }
        let id: i64 = client.cmd("CLIENT").arg("ID").fetch().await?;
        other.cmd("CLIENT").args(["KILL", "ID", &id.to_string()]).await?;
        other.set("a", "four").await?;
        while client.get_cached::<String>("a").await? != "four" {
            task::sleep(Duration::from_millis(1)).await;
        }
        other.flushdb().await?;
        while client.get_cached::<Option<String>>("a").await?.is_some() {
            task::sleep(Duration::from_millis(1)).await;
        }
        let before = reads().await?;
        let small = builder.cache(1000).start();
        for number in (0..50).chain(0..50) {
            assert_eq!(small.get_cached::<Option<String>>(format!("k{number}")).await?, None);
        }
        assert!(reads().await? > before + 50, "the oldest values make room");
        Ok(())
    });
}
