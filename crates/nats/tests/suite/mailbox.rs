//! Wake-ups of a connection that find the mailbox of its loop full.

use std::time::Duration;

use tidegate_engine::Client as Target;
use tidegate_nats::{Broker, BrokerConfig, Client};
use tidegate_testkit::MailboxFiller;

use crate::support::{next_message, run, serve};

#[test]
fn operations_that_find_the_mailbox_full_are_sent_in_a_later_turn() {
    let server = serve(&Broker::new(BrokerConfig::default()));
    let address = server.address().clone();
    let target = Target::at(address.clone());
    run(async move {
        let mailbox = MailboxFiller::connect(&target).await;
        // No deadline and no probe comes to its help.
        let long = Duration::from_secs(7200);
        let builder = Client::to(&address.to_string()).expect("an address").timeout(long).ping_after(long);
        let client = builder.start();
        let mut subscriber = client.subscriber();
        client.flush().await.expect("a connection");
        mailbox.fill();
        subscriber.subscribe("a").expect("a subscription");
        client.flush().await.expect("a PONG");
        mailbox.fill();
        client.publish("a", "tide").expect("room");
        let message = next_message(&mut subscriber).await;
        assert_eq!(message.payload, "tide");
    });
    server.drain(Duration::ZERO);
}
