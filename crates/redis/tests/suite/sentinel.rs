//! The client against redis-server with replicas and sentinels, where it is installed.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use tidegate_engine::{Backend, EventLoop, task};
use tidegate_redis::{Client, ClientBuilder, ClientError, OwnedValue, SubscriberEvent};

use crate::processes::{RedisProcess, free_port};

/// A master, two replicas, and three sentinels with a password.
struct Guarded {
    servers: Vec<RedisProcess>,
    sentinels: Vec<RedisProcess>,
    files: Vec<std::path::PathBuf>,
}

impl Guarded {
    async fn start(name: &str) -> Option<Self> {
        let mut servers: Vec<RedisProcess> = Vec::new();
        for number in 0..3 {
            let master = servers.first().map(|master| master.port().to_string());
            let mut arguments =
                vec!["--repl-diskless-sync-delay", "0", "--requirepass", "secret", "--masterauth", "secret"];
            if let Some(port) = &master {
                arguments.extend(["--replicaof", "127.0.0.1", port]);
            }
            servers.push(RedisProcess::start(&format!("{name}-{number}"), free_port(), &arguments)?);
        }
        // A sentinel looks at a replica each ten seconds: the first look finds it in order.
        let master = servers[0].builder().password(*b"secret").start();
        let online = async || master.cmd("INFO").arg("replication").fetch::<String>().await.expect("a master");
        while online().await.matches("state=online").count() < 2 {
            task::sleep(Duration::from_millis(20)).await;
        }
        let (mut sentinels, mut files) = (Vec::new(), Vec::new());
        for number in 0..3 {
            let file = std::env::temp_dir().join(format!("tidegate-{}-{name}-{number}.conf", std::process::id()));
            let text = format!(
                "requirepass watch\nsentinel sentinel-pass watch\nsentinel monitor tides 127.0.0.1 {} 2\n\
                 sentinel auth-pass tides secret\nsentinel down-after-milliseconds tides 1000\n\
                 sentinel failover-timeout tides 6000\n",
                servers[0].port()
            );
            std::fs::write(&file, text).expect("a file");
            let path = file.display().to_string();
            sentinels.push(RedisProcess::start(&format!("{name}-s{number}"), free_port(), &[&path, "--sentinel"])?);
            files.push(file);
        }
        Some(Self { servers, sentinels, files })
    }

    fn builder(&self) -> ClientBuilder {
        let addresses = self.sentinels.iter().map(RedisProcess::address);
        let builder = Client::sentinel(addresses, "tides").expect("addresses").password(*b"secret");
        let builder = builder.sentinel_password(*b"watch").timeout(Duration::from_secs(60));
        builder.backoff(Duration::from_millis(5), Duration::from_millis(50))
    }

    /// Waits until the sentinels know each other and the replicas.
    async fn known(&self) -> Result<(), ClientError> {
        for sentinel in &self.sentinels {
            let client = sentinel.builder().password(*b"watch").start();
            loop {
                let info: String = client.cmd("INFO").arg("sentinel").fetch().await?;
                if info.contains("slaves=2,sentinels=3") {
                    break;
                }
                task::sleep(Duration::from_millis(20)).await;
            }
        }
        Ok(())
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        self.files.iter().for_each(|file| drop(std::fs::remove_file(file)));
    }
}

/// `None` if the connection was lost before the reply.
fn unless_lost<T>(result: Result<T, ClientError>) -> Result<Option<T>, ClientError> {
    match result {
        Err(ClientError::MaybeExecuted(_)) => Ok(None),
        result => result.map(Some),
    }
}

async fn write_until_it_is_a_replica(client: &Client, server: &Client) -> Result<(), ClientError> {
    loop {
        unless_lost(client.incr("a").await)?;
        let role: Vec<OwnedValue> = server.cmd("ROLE").idempotent().fetch().await?;
        if role[0] == OwnedValue::Bulk("slave".into()) {
            return Ok(());
        }
    }
}

#[test]
fn the_client_follows_the_master_and_reads_from_replicas_by_choice() {
    let mut event_loop = EventLoop::on(Backend::Auto).expect("a loop");
    let step = Rc::new(Cell::new("the start"));
    let begun = step.clone();
    let test = async move {
        let Some(mut guarded) = Guarded::start("guarded").await else { return Ok(()) };
        guarded.known().await?;
        let client = guarded.builder().start();
        client.set("a", 1).await?;
        let role: Vec<OwnedValue> = client.cmd("ROLE").fetch().await?;
        assert_eq!(role[0], OwnedValue::Bulk("master".into()));
        let watching = client.dedicated();
        watching.cmd("WATCH").arg("a").await?;
        assert!(watching.transaction([crate::scripted::words("SET a 2")]).await?.is_some());

        begun.set("reading from replicas");
        let reader = guarded.builder().read_replicas().start();
        while reader.get::<Option<u32>>("a").await? != Some(2) {
            task::sleep(Duration::from_millis(5)).await;
        }
        let before: String = client.cmd("INFO").arg("commandstats").fetch().await?;
        assert!(!before.contains("cmdstat_get:"), "the master has read nothing");
        assert_eq!(reader.incr("a").await?, 3, "the master writes");

        let mut subscriber = guarded.builder().subscriber();
        subscriber.subscribe("news");
        assert_eq!(subscriber.recv().await, Some(SubscriberEvent::Up));

        begun.set("a failover on purpose");
        // A master that a sentinel has replaced on purpose still answers, as a replica.
        let first = guarded.sentinels[0].builder().password(*b"watch").start();
        while first.cmd("SENTINEL").args(["FAILOVER", "tides"]).await.is_err() {
            task::sleep(Duration::from_millis(50)).await;
        }
        let old = guarded.servers[0].builder().password(*b"secret").start();
        write_until_it_is_a_replica(&client, &old).await?;
        begun.set("the new master");
        // It closes the connections of its clients then.
        while unless_lost(client.set("b", 5).await)?.is_none() {}
        assert_eq!(client.get::<u32>("b").await?, 5);

        begun.set("a master that dies");
        // The next master dies.
        let address: (String, u16) = first.cmd("SENTINEL").args(["GET-MASTER-ADDR-BY-NAME", "tides"]).fetch().await?;
        let master =
            guarded.servers.iter_mut().find(|server| server.port() == address.1).expect("a master of the test");
        master.kill();
        while unless_lost(client.incr("c").await)?.is_none() {}
        while unless_lost(client.publish("news", "back").await)?.unwrap_or_default() == 0 {
            task::sleep(Duration::from_millis(20)).await;
        }
        assert_eq!(client.pending(), (0, 0));
        Ok::<(), ClientError>(())
    };
    // A sentinel that got no processor time for two seconds does nothing for thirty.
    let result = event_loop.block_on(async move { task::timeout(Duration::from_secs(600), test).await });
    let result = result.expect("the loop runs").unwrap_or_else(|_| panic!("it hangs in {}", step.get()));
    result.expect("the commands succeed");
}
