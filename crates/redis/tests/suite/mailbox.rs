//! Wake-ups of a connection that find the mailbox of its loop full.

use std::future::Future;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tidegate_engine::{Backend, Client as Target, EventLoop, Server, task};
use tidegate_redis::{
    Answer, CallContext, Client, Command, Handler, OutgoingReply, ServerCodec, Service, SubscriberEvent,
};
use tidegate_testkit::MailboxFiller;

/// GET has a long string.
struct Long;

impl Service for Long {
    fn call(&mut self, command: &Command, _: &CallContext) -> Answer {
        match command.name() {
            b"GET" => OutgoingReply::bulk(vec![b'l'; LONG_BYTES]).into(),
            _ => Answer::Unknown,
        }
    }
}

const LONG_BYTES: usize = 5_000_000;

/// Runs a test with a server, and with a way to fill the mailbox of the test's loop.
fn run<F: Future<Output = ()> + 'static>(test: impl FnOnce(Target, MailboxFiller) -> F + 'static) {
    let start = || (ServerCodec::default(), Handler::new(Long));
    let server = Server::bind("127.0.0.1:0").expect("an address").loops(1).start(start).expect("a server");
    let target = Target::at(server.address().clone());
    let mut event_loop = EventLoop::on(Backend::Auto).expect("a loop");
    let testing = async move {
        let mailbox = MailboxFiller::connect(&target).await;
        task::timeout(Duration::from_secs(120), test(target, mailbox)).await
    };
    event_loop.block_on(testing).expect("the loop runs").expect("the test does not hang");
    server.drain(Duration::ZERO);
}

#[test]
fn a_reader_that_finds_the_mailbox_full_still_gets_the_rest() {
    run(|target, mailbox| async move {
        let client = Client::over(target).start();
        let mut stream = client.cmd("GET").arg("a").stream();
        let mut all = stream.next().await.expect("a piece").expect("no error").len();
        // The connection has filled the stream, and waits.
        task::sleep(Duration::from_millis(50)).await;
        mailbox.fill();
        let mut cx = Context::from_waker(Waker::noop());
        while let Poll::Ready(Some(piece)) = stream.poll_next(&mut cx) {
            all += piece.expect("no error").len();
        }
        assert!(all < LONG_BYTES, "the connection does not wait");
        while let Some(piece) = stream.next().await {
            all += piece.expect("no error").len();
        }
        assert_eq!(all, LONG_BYTES);
    });
}

#[test]
fn a_command_that_finds_the_mailbox_full_is_sent_in_a_later_turn() {
    run(|target, mailbox| async move {
        // No deadline and no probe comes to its help.
        let long = Duration::from_secs(7200);
        let client = Client::over(target).timeout(long).ping_after(long).start();
        client.cmd("ECHO").arg("a").await.expect("a reply");
        mailbox.fill();
        client.cmd("ECHO").arg("b").await.expect("a reply");
    });
}

#[test]
fn a_channel_that_is_subscribed_while_the_mailbox_is_full_is_asked_for_later() {
    run(|target, mailbox| async move {
        let mut subscriber = Client::over(target).ping_after(Duration::from_millis(50)).subscriber();
        subscriber.report_subscribed();
        assert_eq!(subscriber.recv().await, Some(SubscriberEvent::Up));
        mailbox.fill();
        subscriber.subscribe("a");
        assert_eq!(subscriber.recv().await, Some(SubscriberEvent::Subscribed("a".into())));
    });
}
