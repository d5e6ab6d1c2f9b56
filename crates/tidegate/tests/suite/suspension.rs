//! A loop that is suspended for longer than a deadline: input that peers sent in time is in time, silence is not.

use std::sync::Arc;
use std::time::Duration;

use tidegate::framing::{Lines, Raw};
use tidegate::http1::{Incoming, Response};
use tidegate::{Address, Channel, Client, Context, Handler, Limits, Outcome, http1, task};
use tidegate_testkit::network::{FaultRates, Link, Network, NetworkFault, SimNode};
use tidegate_testkit::seeds;

/// Answers when a request is complete.
struct Site;

impl Handler<http1::Server> for Site {
    type Post = ();

    fn message(&mut self, message: Incoming, cx: &mut Context<'_, http1::Server>) -> Outcome<http1::Server> {
        match message {
            Incoming::Head(head) if head.has_body() => Outcome::Continue,
            Incoming::Head(_) | Incoming::End => cx.send(Response::text("whole").into()).into(),
            _ => Outcome::Continue,
        }
    }
}

fn serve(network: &Network) -> Address {
    let limits = http1::Limits {
        head_timeout: TIMEOUT,
        body_timeout: TIMEOUT,
        idle_timeout: TIMEOUT,
        ..http1::Limits::default()
    };
    let config = Arc::new(http1::Config::new(limits));
    let node = network.host("10.0.0.1").node();
    let make = move |_: &Address| (http1::Server::new(config.clone()), Site);
    node.listen(80, Limits::default(), make).expect("the port is free")
}

/// Sends the first part, and 100 ms before the server's deadline the second one, unless that is empty. Returns the
/// server's bytes once it closes.
async fn ask(to: Address, first: &'static str, second: &'static str) -> String {
    let mut channel = Client::at(to).connect(Raw).await.expect("a server");
    channel.send(first.into()).expect("room");
    task::sleep(TIMEOUT - Duration::from_millis(100)).await;
    if !second.is_empty() {
        channel.send(second.into()).expect("room");
    }
    let mut answer = Vec::new();
    while let Ok(Some(bytes)) = channel.recv().await {
        answer.extend_from_slice(&bytes);
    }
    String::from_utf8(answer).expect("answers are text")
}

/// The output to many such peers from a loop that is suspended for `pause` while the second parts are in flight.
fn suspended(seed: u64, faults: FaultRates, first: &'static str, second: &'static str, pause: Duration) -> Vec<String> {
    let network = Network::new(seed);
    network.set_faults(faults);
    network.set_link(LINK);
    let address = serve(&network);
    let clients: SimNode = network.host("10.0.0.2").node();
    let tasks: Vec<_> = (0..PEERS).map(|_| clients.spawn(ask(address.clone(), first, second))).collect();
    network.run_for(UNTIL_IN_FLIGHT);
    network.suspend(pause);
    tasks.into_iter().map(|task| network.run_task(TIMEOUT * 20, task)).collect()
}

const HEAD: (&str, &str) = ("GET / HTTP/1.1\r\nHost: a", "\r\n\r\n");
const BODY: (&str, &str) = ("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\nab", "cd");
const IDLE: (&str, &str) = ("GET / HTTP/1.1\r\nHost: a\r\n\r\n", "GET / HTTP/1.1\r\nHost: a\r\n\r\n");

#[test]
fn requests_completed_in_time_are_answered_after_a_suspension() {
    for seed in seeds(5) {
        for (first, second) in [HEAD, BODY, IDLE] {
            for faults in [FaultRates::none(), FaultRates::none().with(NetworkFault::Reordered, 2)] {
                let wanted = if (first, second) == IDLE { 2 } else { 1 };
                for answer in suspended(seed, faults, first, second, TIMEOUT * 4) {
                    let whole = answer.matches("HTTP/1.1 200 OK").count();
                    assert_eq!(whole, wanted, "seed {seed}: {first:?} got {answer:?}");
                }
            }
        }
    }
}

#[test]
fn silent_peers_time_out_after_a_suspension() {
    for (first, begins) in [(HEAD.0, "HTTP/1.1 408"), (BODY.0, "HTTP/1.1 408"), (IDLE.0, "HTTP/1.1 200")] {
        for answer in suspended(1, FaultRates::none(), first, "", TIMEOUT * 4) {
            assert!(answer.starts_with(begins) && answer.matches("HTTP/1.1").count() == 1, "{first:?} got {answer:?}");
        }
    }
}

/// A peer cannot postpone its deadline by sending a byte now and then.
#[test]
fn a_trickling_head_times_out_despite_repeated_suspensions() {
    let network = Network::new(1);
    let address = serve(&network);
    let client = network.host("10.0.0.2").node();
    let peer = client.spawn(async move {
        let (mut reader, mut writer) = Client::at(address).connect(Raw).await.expect("a server").split();
        let trickle = task::spawn(async move {
            writer.send("GET / HTTP/1.1\r\nHost: a\r\nX: ".into()).expect("room");
            while writer.send("x".into()).is_ok() {
                task::sleep(Duration::from_millis(2)).await;
            }
        });
        let begun = task::now();
        let answer = reader.recv().await.expect("an answer").expect("an answer");
        trickle.cancel();
        assert!(answer.starts_with(b"HTTP/1.1 408"), "{answer:?}");
        task::now() - begun
    });
    let mut peer = peer;
    for _ in 0..100 {
        network.run_for(Duration::from_millis(60));
        network.suspend(Duration::from_millis(60));
        if peer.is_finished() {
            break;
        }
    }
    let took = network.run_task(TIMEOUT, std::mem::replace(&mut peer, client.spawn(async { Duration::ZERO })));
    assert!(took < TIMEOUT + Duration::from_millis(1500), "it took {took:?}");
}

#[test]
fn a_channel_receives_input_sent_before_its_deadline_after_a_suspension() {
    async fn greet(mut channel: Channel<Lines>) -> Result<(), Box<dyn std::error::Error>> {
        channel.set_deadline_after(TIMEOUT);
        let line = channel.recv().await?.ok_or("no line")?;
        channel.set_deadline(None);
        channel.send(line.into())?;
        Ok(())
    }
    let network = Network::new(1);
    network.set_link(LINK);
    let server = network.host("10.0.0.1").node();
    let address = server.serve(7, Limits::default(), Lines::new, greet).expect("the port is free");
    let clients = network.host("10.0.0.2").node();
    let peers: Vec<_> = (0..PEERS).map(|_| clients.spawn(ask(address.clone(), "eb", "b\n"))).collect();
    network.run_for(UNTIL_IN_FLIGHT);
    network.suspend(TIMEOUT * 4);
    for peer in peers {
        assert_eq!(network.run_task(TIMEOUT * 20, peer), "ebb\n");
    }
}

const TIMEOUT: Duration = Duration::from_secs(1);

/// Connecting takes 40 ms, so the first part arrives after 60 ms, and the peer sends the second after 940 ms.
const LINK: Link = Link { latency: Duration::from_millis(20), bytes_per_second: 100_000_000 };

/// The second part is in flight, and the server's deadline is 110 ms away.
const UNTIL_IN_FLIGHT: Duration = Duration::from_millis(950);

const PEERS: usize = 100;
