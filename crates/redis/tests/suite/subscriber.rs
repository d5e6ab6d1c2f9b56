//! The subscriber: acknowledgements, messages, gaps, probes.

use std::time::Duration;

use tidegate_redis::{Subscriber, SubscriberEvent};

use crate::scripted::{Step, expect, greeted, on_each_network, send};

async fn next_message(subscriber: &mut Subscriber) -> String {
    match subscriber.recv().await {
        Some(SubscriberEvent::Message(message)) => String::from_utf8_lossy(&message.payload).into_owned(),
        event => panic!("a message, not {event:?}"),
    }
}

fn acknowledged(kind: &str, name: &str) -> String {
    format!(">3\r\n${}\r\n{kind}\r\n${}\r\n{name}\r\n:1\r\n", kind.len(), name.len())
}

fn message(channel: &str, payload: &str) -> String {
    format!(">3\r\n$7\r\nmessage\r\n${}\r\n{channel}\r\n${}\r\n{payload}\r\n", channel.len(), payload.len())
}

#[test]
fn a_lost_connection_is_reported_and_the_names_are_asked_for_again() {
    let late = format!("{}{}", message("a", "one"), acknowledged("subscribe", "b"));
    let first = greeted([
        expect("SUBSCRIBE a b"),
        send(acknowledged("subscribe", "a")),
        send(late),
        expect("UNSUBSCRIBE b"),
        send(acknowledged("unsubscribe", "b")),
        send(message("a", "two")),
    ]);
    let second =
        greeted([expect("SUBSCRIBE a"), send(acknowledged("subscribe", "a")), send(message("a", "three")), Step::Hang]);
    on_each_network(&[first, second], |builder| {
        Box::pin(async move {
            let mut subscriber = builder.backoff(Duration::from_millis(1), Duration::from_millis(5)).subscriber();
            ["a", "b", "a"].into_iter().for_each(|name| subscriber.subscribe(name));
            assert_eq!(next_message(&mut subscriber).await, "one");
            assert_eq!(subscriber.recv().await, Some(SubscriberEvent::Up));
            subscriber.unsubscribe("b");
            assert_eq!(next_message(&mut subscriber).await, "two");
            for event in [SubscriberEvent::Down, SubscriberEvent::Gap, SubscriberEvent::Up] {
                assert_eq!(subscriber.recv().await, Some(event));
            }
            assert_eq!(next_message(&mut subscriber).await, "three");
        })
    });
}

#[test]
fn a_silent_connection_is_probed_and_lost_if_no_answer_comes() {
    let first = greeted([
        expect("SUBSCRIBE a"),
        send(acknowledged("subscribe", "a")),
        expect("PING"),
        send("+PONG\r\n"),
        expect("PING"),
        Step::Hang,
    ]);
    let second = greeted([expect("SUBSCRIBE a"), send(acknowledged("subscribe", "a")), Step::Hang]);
    on_each_network(&[first, second], |builder| {
        Box::pin(async move {
            let builder = builder
                .timeout(Duration::from_secs(1))
                .ping_after(Duration::from_millis(100))
                .backoff(Duration::from_millis(1), Duration::from_millis(5));
            let mut subscriber = builder.subscriber();
            subscriber.subscribe("a");
            for event in [SubscriberEvent::Up, SubscriberEvent::Down, SubscriberEvent::Gap, SubscriberEvent::Up] {
                assert_eq!(subscriber.recv().await, Some(event));
            }
            assert_eq!(subscriber.last_failure().as_deref(), Some("the server did not answer in time"));
        })
    });
}

#[test]
fn an_acknowledgement_of_nothing_and_a_late_one_end_the_connection() {
    let extra = greeted([expect("SUBSCRIBE a"), send(acknowledged("subscribe", "a").repeat(2)), Step::Hang]);
    let late = greeted([expect("SUBSCRIBE a"), Step::Hang]);
    let fine = greeted([expect("SUBSCRIBE a"), send(acknowledged("subscribe", "a")), Step::Hang]);
    on_each_network(&[extra, late, fine], |builder| {
        Box::pin(async move {
            let builder = builder.timeout(Duration::from_secs(1));
            let mut subscriber = builder.backoff(Duration::from_millis(1), Duration::from_millis(5)).subscriber();
            subscriber.subscribe("a");
            for event in [SubscriberEvent::Up, SubscriberEvent::Down, SubscriberEvent::Gap, SubscriberEvent::Up] {
                assert_eq!(subscriber.recv().await, Some(event));
            }
        })
    });
}

const NOPERM: &str = "NOPERM No permissions to access a channel";

fn refusal(name: &str) -> SubscriberEvent {
    SubscriberEvent::Refused { name: name.to_owned().into(), reason: NOPERM.into() }
}

/// Halves of the batch find the name, the others stay subscribed, and the connection lives.
#[test]
fn a_name_that_the_user_may_not_have_is_refused_alone_and_asked_for_again() {
    let refused = || send(format!("-{NOPERM}\r\n"));
    let taken = |names: &str| send(names.split(' ').map(|name| acknowledged("subscribe", name)).collect::<String>());
    let steps = greeted([
        expect("SUBSCRIBE a b c d"),
        refused(),
        expect("SUBSCRIBE a b"),
        taken("a b"),
        expect("SUBSCRIBE c d"),
        refused(),
        expect("SUBSCRIBE c"),
        taken("c"),
        expect("SUBSCRIBE d"),
        refused(),
        send(message("a", "one")),
        // After a pause.
        expect("SUBSCRIBE d"),
        refused(),
        // After a longer one.
        expect("SUBSCRIBE d"),
        taken("d"),
        send(message("d", "two")),
        // A name that is refused now and then not wanted is none for the server.
        expect("SUBSCRIBE e"),
        refused(),
        expect("UNSUBSCRIBE a"),
        send(acknowledged("unsubscribe", "a")),
        send(message("b", "three")),
        Step::Hang,
    ]);
    on_each_network(&[steps], |builder| {
        Box::pin(async move {
            let mut subscriber = builder.backoff(Duration::from_millis(1), Duration::from_millis(5)).subscriber();
            ["a", "b", "c", "d"].into_iter().for_each(|name| subscriber.subscribe(name));
            assert_eq!(subscriber.recv().await, Some(refusal("d")));
            assert_eq!(subscriber.recv().await, Some(SubscriberEvent::Up));
            assert_eq!(next_message(&mut subscriber).await, "one");
            assert_eq!(subscriber.recv().await, Some(SubscriberEvent::Gap));
            assert_eq!(next_message(&mut subscriber).await, "two");
            subscriber.subscribe("e");
            assert_eq!(subscriber.recv().await, Some(refusal("e")));
            subscriber.unsubscribe("e");
            subscriber.unsubscribe("a");
            assert_eq!(next_message(&mut subscriber).await, "three");
        })
    });
}
