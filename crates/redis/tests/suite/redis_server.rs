//! The client against redis-server, where it is installed.

use std::collections::HashMap;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use tidegate_engine::{Backend, EventLoop, task};
use tidegate_redis::{Client, ClientBuilder, ClientError, OwnedValue, Subscriber, SubscriberEvent};

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
