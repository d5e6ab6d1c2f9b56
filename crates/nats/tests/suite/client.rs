//! The client against the broker of this crate: messages, requests, reconnects, drains.

use std::time::Duration;

use bytes::Bytes;
use tidegate_nats::{
    Broker, BrokerConfig, Client, ClientError, ClientEvent, ClientLimits, Credentials, Failure, Headers, NatsError,
    OutgoingMessage, ProtocolLimits, ServerErrorKind, SubscriberEvent,
};

use crate::support::{client, next_message, run, serve, wait_for};

#[test]
fn messages_reach_the_subscriptions_that_match_with_all_their_parts() {
    let broker = Broker::default();
    let server = serve(&broker);
    let target = server.address().to_string();
    run(async move {
        let (sender, receiver) = (client(&target), client(&target));
        let mut all = receiver.subscribe("tides.>").expect("a filter");
        let mut some = receiver.subscribe("tides.*.high").expect("a filter");
        receiver.flush().await.expect("the server answers");
        let headers = Headers::new().with("A", "b").expect("a header");
        sender.publish("tides.brest", "ebb").expect("it is taken");
        sender
            .send(OutgoingMessage::new("tides.brest.high", "flow").reply("inbox.7").headers(headers.clone()))
            .expect("it is taken");
        let first = next_message(&mut all).await;
        assert_eq!((&*first.subject, &*first.payload), (&b"tides.brest"[..], &b"ebb"[..]));
        assert_eq!((first.reply, first.headers), (None, None));
        for subscriber in [&mut all, &mut some] {
            let message = next_message(subscriber).await;
            assert_eq!((&*message.subject, &*message.payload), (&b"tides.brest.high"[..], &b"flow"[..]));
            assert_eq!((message.reply, message.headers), (Some(Bytes::from("inbox.7")), Some(headers.clone())));
        }
        all.unsubscribe("tides.>");
        receiver.flush().await.expect("the server answers");
        sender.publish("tides.brest", "ebb").expect("it is taken");
        sender.flush().await.expect("the server answers");
        receiver.flush().await.expect("the server answers");
        assert_eq!(all.try_recv(), None);
        assert_eq!((receiver.counts().subscriptions, receiver.counts().received), (1, 3));
        assert_eq!(broker.counts().subscriptions, 1);
    });
    server.drain(Duration::ZERO);
}

#[test]
fn requests_have_their_own_replies_and_nothing_that_answers_is_noticed_at_once() {
    let broker = Broker::default();
    let server = serve(&broker);
    let target = server.address().to_string();
    run(async move {
        let service = client(&target);
        let mut requests = service.subscribe_in_group("shout", "shouters").expect("a filter");
        service.flush().await.expect("the server answers");
        let answering = tidegate_engine::task::spawn(async move {
            // The replies come in another order than the requests.
            let mut held = Vec::new();
            for _ in 0..100 {
                held.push(next_message(&mut requests).await);
            }
            for request in held.into_iter().rev() {
                let reply = request.reply.expect("a request has it");
                service.publish(reply, request.payload.to_ascii_uppercase()).expect("it is taken");
            }
            service.flush().await.expect("the server answers");
        });
        let caller = client(&target);
        let replies: Vec<_> = (0..100).map(|number| caller.request("shout", format!("ebb {number}"))).collect();
        for (number, reply) in replies.into_iter().enumerate() {
            assert_eq!(reply.await.expect("a reply").payload, format!("EBB {number}"));
        }
        answering.await.expect("it does not panic");
        assert_eq!(caller.request("nothing", "").await, Err(ClientError::NoResponders));
        let mut silent = caller.subscribe("silent").expect("a filter");
        let message = OutgoingMessage::new("silent", "ebb");
        let late = caller.request_with(message, Duration::from_millis(1)).await;
        assert_eq!(late, Err(ClientError::MaybeProcessed(Failure::Deadline)));
        assert_eq!(next_message(&mut silent).await.payload, "ebb");
        let counts = caller.counts();
        assert_eq!((counts.requests, counts.no_responders, counts.failed_requests), (102, 1, 1));
        assert_eq!(counts.pending_requests, 0);
    });
    server.drain(Duration::ZERO);
}

#[test]
fn each_message_reaches_one_member_of_a_queue_group() {
    let broker = Broker::default();
    let server = serve(&broker);
    let target = server.address().to_string();
    run(async move {
        let members: Vec<_> = (0..3).map(|_| client(&target)).collect();
        let mut subscribers = Vec::new();
        for member in &members {
            subscribers.push(member.subscribe_in_group("work", "workers").expect("a filter"));
            member.flush().await.expect("the server answers");
        }
        for number in 0..99 {
            members[0].publish("work", number.to_string()).expect("it is taken");
        }
        members[0].flush().await.expect("the server answers");
        let mut seen = Vec::new();
        for (member, subscriber) in members.iter().zip(&mut subscribers) {
            member.flush().await.expect("the server answers");
            let before = seen.len();
            while let Some(event) = subscriber.try_recv() {
                if let SubscriberEvent::Message(message) = event {
                    seen.push(String::from_utf8(message.payload.to_vec()).expect("digits"));
                }
            }
            assert!(seen.len() > before, "each member has some");
        }
        seen.sort_by_key(|number| number.parse::<u32>().expect("digits"));
        assert_eq!(seen, (0..99).map(|number| number.to_string()).collect::<Vec<_>>());
    });
    server.drain(Duration::ZERO);
}

#[test]
fn a_lost_connection_is_reported_and_the_next_one_has_all_subscriptions() {
    let broker = Broker::default();
    let server = serve(&broker);
    let address = server.address().to_string();
    let other = serve(&broker);
    let both = format!("{address},{}", other.address());
    run(async move {
        let client = client(&both);
        let events = client.events();
        let mut tides = client.subscribe("tides.*").expect("a filter");
        wait_for(&mut tides, &SubscriberEvent::Up).await;
        assert_eq!(events.recv().await, Some(ClientEvent::Up(address)));
        server.drain(Duration::ZERO);
        wait_for(&mut tides, &SubscriberEvent::Down).await;
        // A message that is published meanwhile is sent over the next connection.
        client.publish("tides.brest", "ebb").expect("it is taken");
        assert_eq!(tides.recv().await, Some(SubscriberEvent::Gap));
        assert_eq!(tides.recv().await, Some(SubscriberEvent::Up));
        assert_eq!(next_message(&mut tides).await.payload, "ebb");
        let mut seen = Vec::new();
        while seen.last() != Some(&ClientEvent::Up(other.address().to_string())) {
            seen.extend(events.recv().await);
        }
        assert!(seen.iter().any(|event| matches!(event, ClientEvent::Down(_))), "{seen:?}");
        assert!(seen.contains(&ClientEvent::LameDuck), "{seen:?}");
        assert_eq!(client.counts().reconnects, 1);
        other.drain(Duration::ZERO);
    });
}

#[test]
fn a_drain_delivers_what_was_sent_before_and_ends_the_client() {
    let broker = Broker::default();
    let server = serve(&broker);
    let target = server.address().to_string();
    run(async move {
        let (sender, receiver) = (client(&target), client(&target));
        let mut tides = receiver.subscribe("tides").expect("a filter");
        receiver.flush().await.expect("the server answers");
        for number in 0..1000 {
            sender.publish("tides", number.to_string()).expect("it is taken");
        }
        sender.flush().await.expect("the server answers");
        receiver.drain().await.expect("the server answers");
        let mut count = 0;
        while let Some(event) = tides.recv().await {
            count += usize::from(matches!(event, SubscriberEvent::Message(_)));
        }
        assert_eq!(count, 1000);
        assert_eq!(receiver.publish("a", "b"), Err(ClientError::NotSent(Failure::Drained)));
        assert_eq!(receiver.request("a", "b").await, Err(ClientError::NotSent(Failure::Drained)));
        assert_eq!(receiver.events().recv().await.map(|event| matches!(event, ClientEvent::Up(_))), Some(true));
    });
    server.drain(Duration::ZERO);
}

#[test]
fn a_subscription_ends_after_the_messages_that_it_may_have() {
    let broker = Broker::default();
    let server = serve(&broker);
    let target = server.address().to_string();
    run(async move {
        let client = client(&target);
        let mut tides = client.subscribe("tides").expect("a filter");
        tides.unsubscribe_after("tides", 2);
        for number in 0..5 {
            client.publish("tides", number.to_string()).expect("it is taken");
        }
        assert_eq!(next_message(&mut tides).await.payload, "0");
        assert_eq!(next_message(&mut tides).await.payload, "1");
        assert_eq!(tides.recv().await, Some(SubscriberEvent::Ended("tides".into())));
        client.flush().await.expect("the server answers");
        assert_eq!((tides.try_recv(), client.counts().subscriptions), (None, 0));
        // It may begin again.
        tides.subscribe("tides").expect("a filter");
        client.publish("tides", "5").expect("it is taken");
        assert_eq!(next_message(&mut tides).await.payload, "5");
    });
    server.drain(Duration::ZERO);
}

#[test]
fn a_subscriber_that_takes_nothing_loses_messages_and_learns_of_it() {
    let broker = Broker::default();
    let server = serve(&broker);
    let target = server.address().to_string();
    run(async move {
        let limits = ClientLimits { subscriber_messages_max: 10, ..ClientLimits::default() };
        let client = Client::to(&target).expect("an address").limits(limits).start();
        let mut tides = client.subscribe("tides").expect("a filter");
        wait_for(&mut tides, &SubscriberEvent::Up).await;
        for number in 0..100 {
            client.publish("tides", number.to_string()).expect("it is taken");
        }
        client.flush().await.expect("the server answers");
        for number in 0..10 {
            assert_eq!(next_message(&mut tides).await.payload, number.to_string());
        }
        assert_eq!(tides.recv().await, Some(SubscriberEvent::Gap));
        assert_eq!(tides.try_recv(), None);
        let counts = tides.counts();
        assert_eq!((counts.messages, counts.lost, counts.gaps), (100, 90, 1));
    });
    server.drain(Duration::ZERO);
}

#[test]
fn wrong_credentials_are_reported_and_right_ones_are_taken() {
    let password = Some(("ebb".to_owned(), "flow".to_owned()));
    let broker = Broker::new(BrokerConfig { password, token: Some("tide".to_owned()), ..BrokerConfig::default() });
    let server = serve(&broker);
    let target = server.address().to_string();
    run(async move {
        let builder = || Client::to(&target).expect("an address").timeout(Duration::from_secs(60));
        for credentials in [None, Some(Credentials::password("ebb", "low")), Some(Credentials::token("tid"))] {
            let builder = credentials.into_iter().fold(builder(), |builder, one| builder.credentials(one));
            let client = builder.start();
            let events = client.events();
            assert_eq!(client.flush().await, Err(ClientError::NotSent(Failure::Refused)));
            let Some(ClientEvent::ServerError(error)) = events.recv().await else { panic!("an error comes first") };
            assert_eq!(error.kind(), ServerErrorKind::Authorization);
            assert!(client.last_failure().is_some_and(|text| text.contains("Authorization Violation")));
            assert!(client.counts().errors(ServerErrorKind::Authorization) > 0);
        }
        for credentials in [Credentials::password("ebb", "flow"), Credentials::token("tide")] {
            builder().credentials(credentials).start().flush().await.expect("it is taken");
        }
        let by_url = Client::to(&format!("nats://ebb:flow@{target}")).expect("an address").start();
        by_url.flush().await.expect("it is taken");
    });
    server.drain(Duration::ZERO);
}

#[test]
fn messages_that_cannot_be_sent_fail_before_they_are() {
    let limits = ProtocolLimits { payload_bytes_max: 1000, ..ProtocolLimits::default() };
    let broker = Broker::new(BrokerConfig { limits, ..BrokerConfig::default() });
    let server = serve(&broker);
    let target = server.address().to_string();
    run(async move {
        let limits =
            ClientLimits { operations_max: 2, requests_max: 2, subscriptions_max: 2, ..ClientLimits::default() };
        let client = Client::to(&target).expect("an address").limits(limits).start();
        let events = client.events();
        // Before INFO the client does not know that this is too long.
        client.publish("tides", vec![0; 1001]).expect("it is taken");
        assert_eq!(
            client.request("tides", vec![0; 1001]).await,
            Err(ClientError::TooLong { bytes: 1001, bytes_max: 1000 })
        );
        loop {
            match events.recv().await {
                Some(ClientEvent::Dropped(subject)) => break assert_eq!(subject, "tides"),
                Some(_) => {}
                None => panic!("the client goes on"),
            }
        }
        let too_long = client.publish("tides", vec![0; 1001]);
        assert_eq!(too_long, Err(ClientError::TooLong { bytes: 1001, bytes_max: 1000 }));
        for subject in ["", "a b", "a.*", "a..b", ">"] {
            assert_eq!(client.publish(subject, ""), Err(ClientError::Invalid(NatsError::Token)), "{subject}");
        }
        for filter in ["", "a b", "a.>.b", "a..b"] {
            assert!(client.subscribe(filter).is_err(), "{filter}");
        }
        let one = client.subscriber();
        one.subscribe("a").expect("a filter");
        one.subscribe("a").expect("it is there already");
        one.subscribe("b").expect("a filter");
        assert_eq!(one.subscribe("c"), Err(ClientError::NotSent(Failure::QueueFull)));
        for _ in 0..10 {
            client.ready().await;
            client.publish("tides", "ebb").expect("it is taken");
        }
        assert_eq!(client.counts().dropped, 1);
    });
    server.drain(Duration::ZERO);
}
