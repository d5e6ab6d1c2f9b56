//! Wake-ups of a connection that find the mailbox of its loop full.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use tidegate_buffer::Slice;
use tidegate_codec::framing::Raw;
use tidegate_engine::{Client as Target, Context, Handler, Outcome, Remote};
use tidegate_nats::{Broker, BrokerConfig, Client, Message};

use crate::support::{run, serve};

/// Keeps the way to its connection.
struct Recorder(Rc<RefCell<Option<Remote<()>>>>);

impl Handler<Raw> for Recorder {
    type Post = ();

    fn open(&mut self, cx: &mut Context<'_, Raw, ()>) -> Outcome<Raw> {
        *self.0.borrow_mut() = Some(cx.remote());
        Outcome::Continue
    }

    fn message(&mut self, _: Slice, _: &mut Context<'_, Raw, ()>) -> Outcome<Raw> {
        Outcome::Continue
    }
}

#[test]
fn operations_that_find_the_mailbox_full_are_sent_in_a_later_turn() {
    let server = serve(&Broker::new(BrokerConfig::default()));
    let address = server.address().clone();
    let target = Target::at(address.clone());
    run(async move {
        let recorded = Rc::default();
        target.connect_with(Raw, Recorder(Rc::clone(&recorded))).await.expect("a connection");
        let remote: Remote<()> = recorded.take().expect("the connection is open");
        let fill = || while remote.post(()).is_ok() {};
        // No deadline and no probe comes to its help.
        let long = Duration::from_secs(7200);
        let builder = Client::to(&address.to_string()).expect("an address").timeout(long).ping_after(long);
        let client = builder.start();
        let mut subscriber = client.subscriber();
        client.flush().await.expect("a connection");
        fill();
        subscriber.subscribe("a").expect("a subscription");
        client.flush().await.expect("a PONG");
        fill();
        client.publish("a", "tide").expect("room");
        let message: Message = crate::support::next_message(&mut subscriber).await;
        assert_eq!(message.payload, "tide");
    });
    server.drain(Duration::ZERO);
}
