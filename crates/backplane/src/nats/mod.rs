//! The broker on NATS: messages by core subscriptions, history and presence by JetStream.
//!
//! | subject | messages |
//! |---|---|
//! | `PREFIX.room.ROOM` | all messages of a room; nodes with members subscribe to it |
//! | `PREFIX.store.N.EPOCH.ROOM` | messages that are kept; a stream stores them, gives them a sequence, and publishes them to the one above |
//! | `PREFIX.lease.ROOM.NODE` | the members of a node; a stream stores the last one for the time of a lease |
//! | `PREFIX.kick.ROOM` | the last kick of a room; a stream stores it for a while |
//! | `PREFIX.kick.==NODE` | an empty message of a node, whose time compares the clocks; the same stream |
//! | `PREFIX.store.N.EPOCH.==probe`, `PREFIX.lease.==probe.==probe`, `PREFIX.kick.==probe` | an empty message to a stream that has refused one |
//!
//! A room without history and without members in other nodes needs no JetStream.
//!
//! **Positions.** The sequence of the stream is the offset, so the offsets of a room grow, and not by one. The server adds the
//! room's sequence before each message (`Nats-Last-Sequence`): so a node sees a hole. The epoch is a random
//! number that the subjects of a stream have since it was created. So no message with the position of an earlier stream is stored:
//! no stream has its subject any more.
//!
//! Read next: `streams.rs`, messages and histories; `presence.rs`, members and kicks; `names.rs`, rooms as subjects; `refusals.rs`.

mod names;
mod presence;
mod refusals;
mod refused;
mod streams;

use std::cell::Cell;
use std::collections::HashMap;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use tidegate_engine::task;
use tidegate_nats::{Client, ClientBuilder, Message, Subscriber, SubscriberEvent};

use self::names::{Names, token_of};
use self::presence::RememberedKick;
use self::refused::RefusedRooms;
use self::streams::Streams;
use crate::broker::{Broker, BrokerEvent, BrokerRequest, RoomName};
use crate::broker_events::{BrokerEvents, RequestEvents, SubscriberStep};

/// A node's connection to NATS.
pub(crate) struct NatsBroker {
    client: Client,
    names: Rc<Names>,
    streams: Rc<Streams>,
    subscriptions: RoomSubscriptions,
    events: BrokerEvents,
}

/// The subscriptions of rooms.
struct RoomSubscriptions {
    subscriber: Subscriber,
    /// The rooms that are subscribed, by their subjects.
    rooms: HashMap<Bytes, RoomName>,
    refused: Rc<RefusedRooms>,
    /// Lost connections so far: a confirmation of an earlier connection counts no more.
    downs: Rc<Cell<u64>>,
}

impl NatsBroker {
    /// Starts the connection on the loop of this thread.
    pub(crate) fn start(builder: ClientBuilder, prefix: &str) -> Self {
        let client = builder.start();
        let names = Rc::new(Names::new(prefix));
        let (subscriber, events) = (client.subscriber(), BrokerEvents::default());
        let streams = Streams::new(client.clone(), names.clone(), events.requests().clone());
        let refused = RefusedRooms::new(client.clone(), subscriber.subscriptions(), events.requests().clone());
        Self {
            subscriptions: RoomSubscriptions { subscriber, rooms: HashMap::new(), refused, downs: Rc::default() },
            client,
            names,
            streams,
            events,
        }
    }

    fn subscribe(&mut self, room: RoomName) {
        let subject = Bytes::from(self.names.room(&token_of(&room)));
        let RoomSubscriptions { subscriber, rooms, refused, downs } = &mut self.subscriptions;
        rooms.insert(subject.clone(), room.clone());
        if let Err(error) = subscriber.subscribe(subject.clone()) {
            // Beyond the bound of subscriptions.
            refused.add(subject, room.clone());
            self.events.requests().extend([BrokerEvent::Refused { room, reason: error.to_string().into() }]);
            return;
        }
        let (client, subscriptions) = (self.client.clone(), subscriber.subscriptions());
        let events = Rc::downgrade(self.events.requests());
        let (downs, before) = (downs.clone(), downs.get());
        drop(task::spawn(async move {
            while client.flush().await.is_err() {
                task::sleep(FLUSH_AGAIN_AFTER).await;
                // After a lost connection `Up` confirms all subscriptions.
                if downs.get() != before || events.strong_count() == 0 {
                    return;
                }
            }
            // Its refusal is an event of the subscriber.
            let is_subscribed = downs.get() == before && !subscriptions.is_refused(&subject);
            if let Some(events) = events.upgrade().filter(|_| is_subscribed) {
                events.extend([BrokerEvent::Subscribed(room)]);
            }
        }));
    }

    fn unsubscribe(&mut self, room: &str) {
        let subject = Bytes::from(self.names.room(&token_of(room)));
        self.subscriptions.subscriber.unsubscribe(&subject);
        self.subscriptions.rooms.remove(&subject);
        self.subscriptions.refused.remove(&subject);
    }
}

impl RoomSubscriptions {
    fn message(&self, message: Message) -> Option<BrokerEvent> {
        let room = self.rooms.get(&message.subject)?.clone();
        let place = message.headers.as_ref().and_then(streams::place_of);
        let (position, previous) = place.map_or((None, None), |(position, previous)| (Some(position), Some(previous)));
        Some(BrokerEvent::Message { room, position, previous, bytes: message.payload })
    }

    /// The server refuses the subscription of a room.
    fn refused(&self, subject: Bytes, streams: &Streams) -> Option<BrokerEvent> {
        let room = self.rooms.get(&subject)?.clone();
        // The room may have been subscribed again since.
        let is_new = self.subscriber.is_refused(&subject) && self.refused.add(subject, room.clone());
        let reason = || streams.client.last_failure().unwrap_or_default().into();
        is_new.then(|| BrokerEvent::Refused { room, reason: reason() })
    }

    fn step(&self, event: SubscriberEvent, streams: &Streams, requests: &RequestEvents) -> SubscriberStep {
        match event {
            SubscriberEvent::Message(message) => self.message(message).into(),
            SubscriberEvent::Up => {
                streams.forget();
                let is_taken = |(subject, _): &(&Bytes, _)| !self.subscriber.is_refused(subject);
                let mut rooms: Vec<_> = self.rooms.iter().filter(is_taken).map(|(_, room)| room.clone()).collect();
                rooms.sort_unstable();
                requests.extend(rooms.into_iter().map(BrokerEvent::Subscribed));
                SubscriberStep::Event(BrokerEvent::Up)
            }
            SubscriberEvent::Down => {
                self.downs.set(self.downs.get() + 1);
                self.refused.clear();
                SubscriberStep::Event(BrokerEvent::Down)
            }
            SubscriberEvent::Refused(subject) => self.refused(subject, streams).into(),
            SubscriberEvent::Gap => SubscriberStep::Gap,
            _ => SubscriberStep::None,
        }
    }
}

impl Broker for NatsBroker {
    fn request(&mut self, request: BrokerRequest) {
        let streams = self.streams.clone();
        match request {
            BrokerRequest::Subscribe(room) => self.subscribe(room),
            BrokerRequest::Unsubscribe(room) => self.unsubscribe(&room),
            BrokerRequest::Publish { ticket, room, history, messages, .. } => self.events.spawn(async move {
                let is_confirmed = streams.publish(&room, history, messages).await.is_some();
                [BrokerEvent::Published { ticket, is_confirmed }]
            }),
            BrokerRequest::ReadHistory { ticket, room, history, from } => self.events.spawn(async move {
                let history = streams.history(&room, history, from).await;
                [BrokerEvent::History { ticket, history }]
            }),
            BrokerRequest::Presence { ticket, node, lease, rooms, reads } => self.events.spawn(async move {
                let names: Vec<_> = rooms.iter().map(|update| update.room.clone()).collect();
                let (leases, kicks) = streams.presence(node, lease, rooms, reads).await;
                let kick = move |kick: RememberedKick| {
                    let RememberedKick { place, age, read_at, bytes } = kick;
                    let room = names.get(place)?.clone();
                    Some(BrokerEvent::Kick { ticket, room, age, read_at, bytes })
                };
                kicks.into_iter().filter_map(kick).chain([BrokerEvent::Presence { ticket, leases }])
            }),
        }
    }

    fn poll_event(&mut self, cx: &mut Context<'_>) -> Poll<Option<BrokerEvent>> {
        let (subscriptions, streams, requests) =
            (&mut self.subscriptions, &*self.streams, self.events.requests().clone());
        self.events.poll(cx, |cx| {
            let event = subscriptions.subscriber.poll_recv(cx);
            event.map(|event| event.map(|event| subscriptions.step(event, streams, &requests)))
        })
    }

    fn last_failure(&self) -> Option<String> {
        self.client.last_failure()
    }
}

/// The pause before a subscription that was not confirmed is confirmed again.
const FLUSH_AGAIN_AFTER: Duration = Duration::from_millis(200);
