//! Commands and replies that fill the sockets in both directions.

use std::time::Duration;

use tidegate_engine::{Backend, Channel, EventLoop, Server, task};
use tidegate_redis::{Client, IncomingCommand, OutgoingReply, OwnedValue, ServerCodec};

#[test]
fn long_commands_and_long_replies_that_cross_do_not_wait_for_each_other() {
    let serving = async |mut channel: Channel<ServerCodec>| {
        while let Some(message) = channel.recv().await? {
            let IncomingCommand::Whole(command) = message else { panic!("a whole command") };
            let argument = command.arguments().next().unwrap_or_default().to_vec();
            channel.send(OutgoingReply::bulk(argument))?;
        }
        Ok::<_, Box<dyn std::error::Error>>(())
    };
    let server = Server::bind("127.0.0.1:0").expect("a port").loops(1);
    let server = server.serve(ServerCodec::default, serving).expect("it starts");
    let target = server.address().to_string();
    let mut event_loop = EventLoop::on(Backend::Auto).expect("a loop");
    let test = async move {
        let client = Client::to(&target).expect("an address").resp2().timeout(Duration::from_secs(60)).start();
        let long = "x".repeat(100_000);
        let replies: Vec<_> = (0..50).map(|number| client.cmd("ECHO").arg(format!("{number}{long}")).send()).collect();
        for (number, reply) in replies.into_iter().enumerate() {
            let is_own = reply.await == Ok(OwnedValue::Bulk(format!("{number}{long}").into()));
            assert!(is_own, "{number}: {:?}", client.last_failure());
        }
    };
    let result = event_loop.block_on(async move { task::timeout(Duration::from_secs(120), test).await });
    result.expect("the loop runs").expect("the test does not hang");
    server.drain(Duration::ZERO);
}
