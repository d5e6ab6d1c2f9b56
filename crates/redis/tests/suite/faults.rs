//! The client against our server on a simulated network with faults: no reply is that of another command.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use tidegate_engine::{Client as Target, Limits, task};
use tidegate_redis::{Answer, CallContext, Client, ClientError, Command, Handler, OwnedValue, ServerCodec, Service};
use tidegate_testkit::network::{FaultRates, Network, NetworkFault};
use tidegate_testkit::{Random, replay, seeds};

/// It has no commands of its own.
struct Nothing;

impl Service for Nothing {
    fn call(&mut self, _: &Command, _: &CallContext) -> Answer {
        Answer::Unknown
    }
}

const COMMANDS: usize = 200;

/// Sends commands at random times. Returns how many had no reply.
fn run(seed: u64, faults: FaultRates) -> usize {
    let network = Network::new(seed);
    network.set_faults(faults);
    let server = network.host("10.0.0.1").node();
    let make = |_: &_| (ServerCodec::default(), Handler::new(Nothing));
    let address = server.listen(6379, Limits::default(), make).expect("the port is free");
    let node = network.host("10.0.0.2").node();
    let mut random = Random::new(seed);
    let kinds: Vec<_> = (0..COMMANDS).map(|_| (random.below(4), random.below(20))).collect();
    let failed = Rc::new(Cell::new(0));
    let count = failed.clone();
    let asking = node.spawn(async move {
        let client = Client::over(Target::at(address)).start();
        let mut tasks = Vec::new();
        for (number, (kind, pause)) in kinds.into_iter().enumerate() {
            let text = format!("{number}{}", if kind == 0 { "x".repeat(10_000) } else { String::new() });
            let call = client.cmd("ECHO").arg(&text);
            let reply = if kind == 1 { call.idempotent() } else { call }.send();
            let count = count.clone();
            tasks.push(task::spawn(async move {
                match reply.await {
                    Ok(value) => assert_eq!(value, OwnedValue::Bulk(text.into()), "the reply of another command"),
                    Err(ClientError::NotSent(_) | ClientError::MaybeExecuted(_)) => count.set(count.get() + 1),
                    Err(error) => panic!("{error}"),
                }
            }));
            task::sleep(Duration::from_millis(pause as u64)).await;
        }
        for task in tasks {
            task.await.expect("no task panics");
        }
        assert_eq!(client.pending(), (0, 0));
    });
    network.run_task(Duration::from_secs(600), asking);
    assert!(network.run_until(Duration::from_secs(300), || network.open_endpoints() <= 1), "a connection is left");
    failed.get()
}

#[test]
fn each_reply_is_that_of_its_command_under_faults_that_a_stream_survives() {
    for seed in seeds(20) {
        assert_eq!(run(seed, FaultRates::benign()), 0, "{}", replay(seed));
    }
}

#[test]
fn no_reply_is_that_of_another_command_when_connections_break() {
    let faults = || FaultRates::benign().with(NetworkFault::Reset, 30);
    let failed: usize = seeds(20).map(|seed| run(seed, faults())).sum();
    assert!(failed > 0, "nothing breaks");
    assert!(failed < 20 * COMMANDS, "no command succeeds");
}
