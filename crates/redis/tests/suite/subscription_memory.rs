//! The memory of subscriptions on a server: all of it, that of the loop included.

use std::fmt::Write;
use std::sync::Arc;

use tidegate_redis::{Answer, CallContext, Channels, Command, Handler, HandlerConfig, ServerCodec, Service};
use tidegate_testkit::Embedded;
use tidegate_testkit::allocations::Region;

struct Nothing;

impl Service for Nothing {
    fn call(&mut self, _: &Command, _: &CallContext) -> Answer {
        Answer::Unknown
    }
}

/// Bytes for each of so many subscriptions of `connections` connections, the names included.
fn bytes_each(connections: usize, channels: usize, name: impl Fn(usize, usize) -> String) -> usize {
    let (config, all) = (Arc::new(HandlerConfig::default()), Channels::new());
    let make = || Embedded::<()>::new(ServerCodec::default(), Handler::with(Nothing, config.clone(), all.clone()));
    let mut pipes: Vec<_> = (0..connections).map(|_| make()).collect();
    let subscribe = |pipe: &mut Embedded<()>, connection: usize| {
        for first in (0..channels).step_by(100) {
            let mut command = String::from("SUBSCRIBE");
            (first..channels.min(first + 100)).for_each(|channel| write!(command, " {}", name(connection, channel)).unwrap());
            command.push_str("\r\n");
            pipe.receive(command.as_bytes());
            drop(pipe.take_written());
        }
    };
    let mut warm = make();
    subscribe(&mut warm, connections);
    let region = Region::new();
    pipes.iter_mut().enumerate().for_each(|(number, pipe)| subscribe(pipe, number));
    let bytes = usize::try_from(region.change().bytes_in_use()).expect("it grows");
    assert_eq!(all.publish(name(0, 0).as_bytes(), b"in"), if name(0, 0) == name(1, 0) { connections + 1 } else { 1 });
    bytes / (connections * channels)
}

#[test]
fn a_subscription_to_a_channel_of_many_takes_at_most_100_bytes() {
    let each = bytes_each(100, 1_000, |_, channel| format!("a-channel-with-a-name-{channel}"));
    println!("{each} bytes");
    assert!(each <= 100, "{each} bytes");
}

#[test]
fn a_subscription_to_a_channel_of_its_own_takes_at_most_100_bytes() {
    let each = bytes_each(2, 50_000, |connection, channel| format!("user:{connection}:{channel}"));
    println!("{each} bytes");
    assert!(each <= 100, "{each} bytes");
}
