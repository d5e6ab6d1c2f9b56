//! Loops, brokers and waits that several modules need.

use std::future::Future;
use std::time::Duration;

use tidegate_engine::{Backend, EventLoop, Server, ServerHandle, task};
use tidegate_nats::{Broker, Client, Handler, Message, ServerCodec, Subscriber, SubscriberEvent};

/// Runs a test on a loop, with a bound against hanging.
pub(crate) fn run<T: 'static>(test: impl Future<Output = T> + 'static) -> T {
    let mut event_loop = EventLoop::on(Backend::Auto).expect("a loop");
    let result = event_loop.block_on(async move { task::timeout(Duration::from_secs(120), test).await });
    result.expect("the loop runs").expect("the test does not hang")
}

/// A broker on two loops.
pub(crate) fn serve(broker: &Broker) -> ServerHandle {
    let broker = broker.clone();
    let server = Server::bind("127.0.0.1:0").expect("a port").loops(2);
    server.start(move || (ServerCodec::default(), Handler::new(&broker))).expect("it starts")
}

/// A client with short pauses.
pub(crate) fn client(servers: &str) -> Client {
    let builder = Client::to(servers).expect("an address").timeout(Duration::from_secs(60));
    builder.backoff(Duration::from_millis(1), Duration::from_millis(20)).start()
}

/// The next message, with other events left out.
pub(crate) async fn next_message(subscriber: &mut Subscriber) -> Message {
    loop {
        if let SubscriberEvent::Message(message) = subscriber.recv().await.expect("the subscriber goes on") {
            return message;
        }
    }
}

/// Waits for an event.
pub(crate) async fn wait_for(subscriber: &mut Subscriber, expected: &SubscriberEvent) {
    while subscriber.recv().await.expect("the subscriber goes on") != *expected {}
}
