//! The memory of subscriptions on a server: all of it, that of the loop included.

use std::fmt::Write;
use std::sync::Arc;
use std::time::Duration;

use tidegate_codec::framing::Raw;
use tidegate_engine::{Channel, Client, Limits};
use tidegate_redis::{
    Answer, CallContext, ChannelPost, Channels, Command, Handler, HandlerConfig, ServerCodec, Service,
};
use tidegate_testkit::Embedded;
use tidegate_testkit::allocations::Region;
use tidegate_testkit::network::Network;

struct Nothing;

impl Service for Nothing {
    fn call(&mut self, _: &Command, _: &CallContext) -> Answer {
        Answer::Unknown
    }
}

/// Bytes for each of so many subscriptions of `connections` connections, the names included.
fn bytes_each(connections: usize, channels: usize, name: impl Fn(usize, usize) -> String) -> usize {
    let (config, all) = (Arc::new(HandlerConfig::default()), Channels::new());
    let make =
        || Embedded::<ChannelPost>::new(ServerCodec::default(), Handler::with(Nothing, config.clone(), all.clone()));
    let mut pipes: Vec<_> = (0..connections).map(|_| make()).collect();
    let subscribe = |pipe: &mut Embedded<ChannelPost>, connection: usize| {
        for first in (0..channels).step_by(100) {
            let mut command = String::from("SUBSCRIBE");
            (first..channels.min(first + 100))
                .for_each(|channel| write!(command, " {}", name(connection, channel)).unwrap());
            command.push_str("\r\n");
            pipe.receive(command.as_bytes());
            drop(pipe.take_written());
        }
    };
    let region = Region::new();
    pipes.iter_mut().enumerate().for_each(|(number, pipe)| subscribe(pipe, number));
    let bytes = usize::try_from(region.change().bytes_in_use()).expect("it grows");
    assert_eq!(all.publish(name(0, 0).as_bytes(), b"in"), 1);
    bytes / (connections * channels)
}

/// On one loop, on the simulated network, whose connections have some memory themselves.
#[test]
fn a_subscription_to_a_channel_of_many_takes_at_most_100_bytes() {
    let (connections, channels) = (50, 2_000);
    let network = Network::new(7);
    let (server, node) = (network.host("10.0.0.1").node(), network.host("10.0.0.2").node());
    let (config, all) = (Arc::new(HandlerConfig::default()), Channels::new());
    let of_server = all.clone();
    let make = move |_: &_| (ServerCodec::default(), Handler::with(Nothing, config.clone(), of_server.clone()));
    let address = server.listen(6379, Limits::default(), make).expect("the port is free");
    let names: Vec<_> = (0..channels).map(|channel| format!("a-channel-with-a-name-{channel}")).collect();
    let command = format!("SUBSCRIBE {}\r\nPING\r\n", names.join(" "));
    let subscribe = || {
        let (address, command) = (address.clone(), command.clone());
        let subscribing = node.spawn(async move {
            let mut channel = Client::at(address).connect(Raw).await.expect("a server");
            channel.send(command.into_bytes().into()).expect("there is room");
            let mut last = Vec::new();
            while !last.ends_with(b"$4\r\npong\r\n$0\r\n\r\n") {
                let bytes = channel.recv().await.expect("no error").expect("no end");
                last.extend_from_slice(&bytes);
                last.drain(..last.len().saturating_sub(40));
            }
            channel
        });
        network.run_task(Duration::from_secs(60), subscribing)
    };
    // The channels are there, and have groups.
    let first = [subscribe(), subscribe()];
    let others: Vec<_> = (0..connections).map(|_| subscribe()).collect();
    assert_eq!(all.publish(names[0].as_bytes(), b"in"), first.len() + others.len());
    // Their end frees their memory; the queues of the connections stay.
    let region = Region::new();
    let leave = |mut channel: Channel<Raw>| {
        let leaving = node.spawn(async move {
            channel.send(b"UNSUBSCRIBE\r\n".to_vec().into()).expect("there is room");
            let mut last = Vec::new();
            while !last.ends_with(b"\r\n:0\r\n") {
                let bytes = channel.recv().await.expect("no error").expect("no end");
                last.extend_from_slice(&bytes);
                last.drain(..last.len().saturating_sub(40));
            }
            channel
        });
        network.run_task(Duration::from_secs(60), leaving)
    };
    let others: Vec<_> = others.into_iter().map(leave).collect();
    assert_eq!(all.publish(names[0].as_bytes(), b"in"), first.len());
    let bytes = usize::try_from(-region.change().bytes_in_use()).expect("it shrinks");
    let each = bytes / (others.len() * channels);
    println!("of many: {each} bytes");
    assert!((8..=100).contains(&each), "{each} bytes");
}

#[test]
fn the_first_subscriber_and_later_ones_get_the_same_messages_until_they_leave() {
    let (config, all) = (Arc::new(HandlerConfig::default()), Channels::new());
    let make =
        || Embedded::<ChannelPost>::new(ServerCodec::default(), Handler::with(Nothing, config.clone(), all.clone()));
    let mut pipes = [make(), make(), make()];
    let text = |pipe: &mut Embedded<ChannelPost>, wire: &str| {
        pipe.receive(wire.as_bytes());
        pipe.run();
        String::from_utf8_lossy(&pipe.take_written()).replace("\r\n", " ")
    };
    let message = "*3 $7 message $1 a $2 in ";
    for (number, pipe) in pipes.iter_mut().enumerate() {
        text(pipe, if number == 1 { "HELLO 3\r\nSUBSCRIBE a\r\n" } else { "SUBSCRIBE a\r\nPSUBSCRIBE ?\r\n" });
    }
    assert_eq!(all.publish(b"a", b"in"), 5);
    let both = format!("{message}*4 $8 pmessage $1 ? $1 a $2 in ");
    let seen = pipes.each_mut().map(|pipe| text(pipe, ""));
    assert_eq!(seen, [both.clone(), message.replace('*', ">"), both]);
    // A message that is under way when the connection leaves does not arrive behind the acknowledgement.
    assert_eq!(all.publish(b"a", b"in"), 5);
    assert_eq!(text(&mut pipes[0], "UNSUBSCRIBE a\r\nPUNSUBSCRIBE\r\n").matches("message").count() % 2, 0);
    assert_eq!(text(&mut pipes[0], "PING\r\n"), "+PONG ");
    pipes[1..].iter_mut().for_each(|pipe| drop(text(pipe, "")));
    assert_eq!(all.publish(b"a", b"in"), 3);
    assert_eq!(text(&mut pipes[0], ""), "");
    assert_eq!(text(&mut pipes[1], ""), message.replace('*', ">"));
    // The channel gets another first one, after the last has left.
    assert_eq!(text(&mut pipes[1], "HELLO 2\r\n").matches('%').count(), 0);
    drop(text(&mut pipes[1], "UNSUBSCRIBE\r\n"));
    drop(text(&mut pipes[2], "RESET\r\n"));
    assert_eq!(all.publish(b"a", b"in"), 0);
    assert!(text(&mut pipes[1], "HELLO 3\r\nSUBSCRIBE a\r\n").ends_with("$1 a :1 "));
    assert_eq!(all.publish(b"a", b"in"), 1);
    assert!(text(&mut pipes[1], "HELLO 2\r\n").ends_with(message), "in the version of the connection");
}

/// The table of channels has as many places for each as that of a million.
#[test]
fn a_subscription_to_a_channel_of_its_own_takes_at_most_100_bytes() {
    let each = bytes_each(2, 62_500, |connection, channel| format!("user:{connection}:{channel}"));
    println!("of its own: {each} bytes");
    assert!(each <= 100, "{each} bytes");
}
