//! The client and the broker on a simulated network with faults: order is kept, nothing comes twice, each hole is reported.

use std::time::Duration;

use tidegate_engine::{Limits, task};
use tidegate_nats::{Broker, Client, ClientError, Handler, ServerCodec, SubscriberEvent};
use tidegate_testkit::network::{FaultRates, Network, NetworkFault};
use tidegate_testkit::{Random, replay, seeds};

const MESSAGES: u64 = 200;

/// Messages and requests of one client to another. Returns how often their connections were lost.
fn run(seed: u64, faults: FaultRates) -> u64 {
    let network = Network::new(seed);
    network.set_faults(faults);
    let broker = Broker::default();
    let server = network.host("10.0.0.1").node();
    let make = move |_: &_| (ServerCodec::default(), Handler::new(&broker));
    server.listen(4222, Limits::default(), make).expect("the port is free");
    let (sending, receiving) = (network.host("10.0.0.2").node(), network.host("10.0.0.3").node());
    let mut random = Random::new(seed);
    let pauses: Vec<_> = (0..MESSAGES).map(|_| random.below(20) as u64).collect();

    let receiver = receiving.spawn(receive());
    let sender = sending.spawn(send(pauses));
    let (gaps, holes, lost_by_receiver) = network.run_task(Duration::from_secs(600), receiver);
    let lost_by_sender = network.run_task(Duration::from_secs(600), sender);
    let losses = lost_by_sender + lost_by_receiver;
    assert!(gaps >= lost_by_receiver.min(1), "a lost connection is no gap: {}", replay(seed));
    assert!(holes == 0 || losses > 0, "{holes} holes without a reason: {}", replay(seed));
    assert!(network.run_until(Duration::from_secs(600), || network.open_endpoints() <= 1), "a connection is left");
    losses
}

/// Receives the numbers, and squares others. Returns the gaps, the holes, and how often the connection was lost.
async fn receive() -> (u64, u64, u64) {
    let client = Client::to("10.0.0.1").expect("an address").start();
    let mut numbers = client.subscribe("numbers").expect("a filter");
    let mut squares = client.subscribe_in_group("square", "squares").expect("a filter");
    let service = client.clone();
    let answering = task::spawn(async move {
        while let Some(event) = squares.recv().await {
            let SubscriberEvent::Message(request) = event else { continue };
            let number = number_of(&request.payload);
            service.publish(request.reply.expect("a request"), (number * number).to_string()).expect("it is taken");
        }
    });
    let (mut seen, mut gaps, mut holes) = (Vec::new(), 0_u64, 0);
    // The last number is published until it comes.
    while seen.last() != Some(&MESSAGES) {
        match numbers.recv().await.expect("the client goes on") {
            SubscriberEvent::Message(message) => {
                let number = number_of(&message.payload);
                let last = seen.last().copied().unwrap_or(0);
                assert!(number > last || number == MESSAGES, "{number} behind {last}");
                holes += u64::from(number > last + 1);
                seen.push(number);
            }
            SubscriberEvent::Gap => gaps += 1,
            _ => {}
        }
    }
    answering.cancel();
    (gaps, holes, client.counts().reconnects)
}

/// Publishes the numbers, and has some squared. Returns how often the connection was lost.
async fn send(pauses: Vec<u64>) -> u64 {
    let client = Client::to("10.0.0.1").expect("an address").start();
    // The receiver's subscriptions have to be there.
    while client.request("square", "1").await.is_err() {
        task::sleep(Duration::from_millis(100)).await;
    }
    for (number, pause) in (1..MESSAGES).zip(pauses) {
        client.publish("numbers", number.to_string()).expect("it is taken");
        if number % 5 == 0 {
            match client.request("square", number.to_string()).await {
                Ok(reply) => assert_eq!(number_of(&reply.payload), number * number, "the reply of another request"),
                Err(ClientError::NotSent(_) | ClientError::MaybeProcessed(_) | ClientError::NoResponders) => {}
                Err(error) => panic!("{error}"),
            }
        }
        task::sleep(Duration::from_millis(pause)).await;
    }
    let mut losses = client.counts().reconnects;
    for _ in 0..100 {
        drop(client.publish("numbers", MESSAGES.to_string()));
        task::sleep(Duration::from_secs(1)).await;
    }
    losses += u64::from(client.flush().await.is_err());
    losses
}

fn number_of(text: &[u8]) -> u64 {
    std::str::from_utf8(text).expect("text").parse().expect("a number")
}

#[test]
fn order_is_kept_and_each_hole_has_a_reason_under_faults() {
    for seed in seeds(5) {
        let losses = run(seed, FaultRates::benign());
        assert_eq!(losses, 0, "{}", replay(seed));
    }
    let losses: u64 = seeds(5).map(|seed| run(seed, FaultRates::benign().with(NetworkFault::Reset, 30))).sum();
    assert!(losses > 0, "no connection was lost");
}
