//! Rate limits that processes share through Redis: the script on redis-server where it is installed, and the store with a
//! server of ours.

use std::collections::HashMap;
use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tidegate::http::{RateGrant, RateStore, RedisRateStore};
use tidegate::redis::{
    Answer, CallContext, Client, Command as RedisCommand, Handler, OutgoingReply, ServerCodec, Service,
};
use tidegate::{Backend, ConnectionRate, EventLoop, Server, task};

type Any = Box<dyn std::error::Error + Send + Sync>;

fn run(test: impl Future<Output = Result<(), Any>> + 'static) {
    let mut event_loop = EventLoop::on(Backend::Auto).expect("a loop");
    let result = event_loop.block_on(async move { task::timeout(Duration::from_secs(120), test).await });
    result.expect("the loop runs").expect("the test does not hang").expect("the commands succeed");
}

/// A redis-server, ended when it is dropped.
struct RedisProcess(Child);

impl Drop for RedisProcess {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

#[test]
fn the_script_counts_for_all_processes() {
    let port = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).expect("a port").port();
    let options = ["--bind", "127.0.0.1", "--save", "", "--appendonly", "no"];
    let mut command = Command::new("redis-server");
    let child = command.args(["--port", &port.to_string()]).args(options).stdout(Stdio::null()).spawn();
    let _process = match child {
        Ok(child) => RedisProcess(child),
        Err(error) => return println!("skipped: there is no redis-server: {error}"),
    };
    run(async move {
        let started =
            || Client::url(&format!("redis://127.0.0.1:{port}/1")).map(|builder| builder.timeout(MINUTE).start());
        let (one, other) = (RedisRateStore::new(started()?), RedisRateStore::new(started()?));
        // An hour for a token: no time that passes here matters.
        let rate = ConnectionRate { interval: Duration::from_secs(3600), burst: 5 };
        let grant = |tokens| RateGrant { tokens, wait: Duration::ZERO };
        assert_eq!(one.take("a", rate, 2).await?, grant(2));
        assert_eq!(other.take("a", rate, 2).await?, grant(2));
        assert_eq!(one.take("a", rate, 2).await?, grant(1), "what is left");
        let refused = other.take("a", rate, 2).await?;
        assert!(refused.tokens == 0 && refused.wait > Duration::from_secs(3500), "{refused:?}");
        assert!(refused.wait <= Duration::from_secs(3600), "{refused:?}");
        assert_eq!(other.take("b", rate, 9).await?, grant(5), "another client has a burst of its own");
        let client = started()?;
        let ttl: i64 = client.cmd("PTTL").arg("tidegate:rate:a").fetch().await?;
        assert!(ttl > 4 * 3_600_000 && ttl <= 5 * 3_600_000, "the key lasts as long as it matters: {ttl}");
        // A clock that was set back, and a key of another program, refuse nothing for longer than a burst.
        client.cmd("SET").arg("tidegate:rate:c").arg("9000000000000000").await?;
        let refused = one.take("c", rate, 1).await?;
        assert!(refused.tokens == 0 && refused.wait <= Duration::from_secs(3600), "{refused:?}");
        client.cmd("SET").arg("tidegate:rate:c").arg("ebb").await?;
        assert_eq!(one.take("c", rate, 1).await?, grant(1));
        client.cmd("DEL").arg("tidegate:rate:c").await?;
        client.cmd("LPUSH").arg("tidegate:rate:c").arg("ebb").await?;
        assert!(one.take("c", rate, 1).await.is_err());
        // A million requests each second have less than a microsecond each.
        let fast = ConnectionRate { interval: Duration::from_nanos(500), burst: 1_000_000 };
        assert_eq!(one.take("d", fast, 64).await?, grant(64));
        client.cmd("SCRIPT").arg("FLUSH").await?;
        assert_eq!(one.take("d", fast, 64).await?, grant(64), "a server that has lost the script gets it again");
        Ok(())
    });
}

/// Executes the script as it is meant, without time.
#[derive(Clone, Default)]
struct Counts(Arc<Mutex<HashMap<Vec<u8>, i64>>>);

impl Service for Counts {
    fn call(&mut self, command: &RedisCommand, _: &CallContext) -> Answer {
        let number =
            |at| String::from_utf8_lossy(command.argument(at).unwrap_or_default()).parse::<f64>().unwrap_or(0.0);
        match command.name() {
            b"SCRIPT" => OutgoingReply::bulk("0123456789012345678901234567890123456789").into(),
            b"EVALSHA" if command.argument(3) == Some(b"tidegate:rate:wrong") => OutgoingReply::Integer(1).into(),
            b"EVALSHA" => {
                let mut taken = self.0.lock().expect("no panic");
                let taken = taken.entry(command.argument(3).unwrap_or_default().to_vec()).or_default();
                let tokens = (number(6) as i64).min(number(5) as i64 - *taken);
                *taken += tokens;
                let wait = if tokens == 0 { number(4) as i64 } else { 0 };
                OutgoingReply::array([tokens, wait].map(OutgoingReply::Integer)).into()
            }
            _ => Answer::Unknown,
        }
    }
}

#[test]
fn the_store_speaks_to_a_server_of_ours_and_its_loss_is_an_error() {
    let counts = Counts::default();
    let start = move || (ServerCodec::default(), Handler::new(counts.clone()));
    let server = Server::bind("127.0.0.1:0").expect("a port").loops(1).start(start).expect("it starts");
    let address = server.address().to_string();
    run(async move {
        let client = Client::url(&format!("redis://{address}"))?.timeout(MINUTE).start();
        let store = RedisRateStore::new(client);
        let rate = ConnectionRate { interval: Duration::from_micros(1_500), burst: 3 };
        assert_eq!(store.take("a", rate, 2).await?, RateGrant { tokens: 2, wait: Duration::ZERO });
        assert_eq!(store.take("a", rate, 2).await?, RateGrant { tokens: 1, wait: Duration::ZERO });
        assert_eq!(store.take("a", rate, 2).await?, RateGrant { tokens: 0, wait: Duration::from_micros(1_500) });
        assert!(store.take("wrong", rate, 2).await.is_err());
        server.drain(Duration::ZERO);
        let lost =
            RedisRateStore::new(Client::url(&format!("redis://{address}"))?.timeout(Duration::from_millis(1)).start());
        assert!(lost.take("a", rate, 2).await.is_err());
        Ok(())
    });
}

const MINUTE: Duration = Duration::from_secs(60);
