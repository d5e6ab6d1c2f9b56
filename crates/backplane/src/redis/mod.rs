//! The broker on Redis: publishing and history by scripts, messages by a subscriber.
//!
//! A room is a channel, `PREFIX{.ROOM}`, and the keys in `scripts.rs`. Commands have one connection and subscriptions another,
//! so a reply may come before messages that were published earlier; the feed of a room puts them in order.

mod pages;
mod presence;
mod refusals;
pub(crate) mod scripts;

use std::cell::RefCell;
use std::collections::hash_map::RandomState;
use std::collections::{BTreeMap, HashSet};
use std::hash::BuildHasher;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use bytes::Bytes;
use tidegate_engine::{Position, task};
use tidegate_redis::{
    Client, ClientBuilder, ClientError, OwnedValue, ReplyFuture, Subscriber, SubscriberEvent, slot_of,
};

use self::pages::{PageBounds, ReadHistory, text_of};
use self::presence::{Clocks, PresenceBatch, PresenceRequest};
use self::refusals::{ServerProber, verdict_of};
use self::scripts::PUBLISH;
use crate::broker::{
    Broker, BrokerEvent, BrokerRequest, History, HistoryBounds, OutgoingMessage, PresenceUpdate, RoomName,
};
use crate::broker_events::{BrokerEvents, SubscriberStep};
use crate::refusals::Refusals;

/// A node's connections to Redis.
pub(crate) struct RedisBroker {
    client: Client,
    subscriber: Subscriber,
    prefix: Rc<str>,
    /// The keys of two rooms belong to two slots, whose servers may differ.
    is_cluster: bool,
    /// Rooms whose keys were made to last a short while ago.
    lasting: Rc<RefCell<LastingRooms>>,
    events: BrokerEvents,
    refusals: Rc<Refusals<ServerProber>>,
    pages: PageBounds,
    /// The clocks of the servers: in a cluster one for each slot, elsewhere that of slot 0.
    clocks: Rc<RefCell<Clocks>>,
}

impl RedisBroker {
    /// Starts both connections on the loop of this thread.
    pub(crate) fn start(builder: ClientBuilder, prefix: &str) -> Self {
        let is_cluster = builder.is_cluster();
        let subscriber = builder.clone().subscriber();
        subscriber.report_subscribed();
        let pages = PageBounds::of(builder.reply_bytes_max());
        let (client, events) = (builder.start(), BrokerEvents::default());
        Self {
            refusals: Refusals::new(ServerProber(client.clone()), events.requests().clone()),
            pages,
            client,
            subscriber,
            prefix: prefix.into(),
            is_cluster,
            lasting: Rc::default(),
            events,
            clocks: Rc::default(),
        }
    }

    fn channel(&self, room: &str) -> String {
        format!("{}{{.{room}}}", self.prefix)
    }

    /// The slot of a channel, as far as slots have servers of their own.
    fn slot(&self, channel: &str) -> u16 {
        if self.is_cluster { slot_of(channel.as_bytes()) } else { 0 }
    }

    fn publish(
        &self,
        ticket: u64,
        room: &str,
        (history, epoch): (Option<HistoryBounds>, u64),
        messages: Vec<OutgoingMessage>,
    ) {
        let channel = self.channel(room);
        let client = self.client.clone();
        let remembered = self.remember_kicks(&channel, &messages);
        let (slot, refusals) = (self.slot(&channel), self.refusals.clone());
        let Some(bounds) = history else {
            // In a cluster any server publishes: the one that remembers a kick does it after that.
            let publish = |message: OutgoingMessage| {
                client.cmd("PUBLISH").arg(&channel).shared_arg(message.bytes).key(&channel).send()
            };
            let replies: Vec<_> = messages.into_iter().map(publish).collect();
            return self.events.spawn(async move {
                let (is_remembered, is_published) = (confirmed(remembered).await, confirmed(replies).await);
                let result = is_remembered.and(is_published);
                // A replica takes PUBLISH: success shows nothing of other rooms.
                if let Err(error) = &result {
                    refusals.note(slot, &channel, 0, verdict_of(Some(error)));
                }
                [BrokerEvent::Published { ticket, is_confirmed: result.is_ok() }]
            });
        };
        let room: RoomName = room.into();
        let lasting = self.lasting.clone();
        self.events.spawn(async move {
            let keys = [format!("{channel}:m"), format!("{channel}:h")];
            let is_lasting = lasting.borrow_mut().has(&room, task::now());
            let text = |number: usize| Bytes::from(number.to_string());
            let mut arguments = vec![
                Bytes::from(channel.clone()),
                Bytes::from(format!("{epoch:016x}")),
                text(bounds.messages_max),
                text(bounds.bytes_max),
                text(UNUSED_SECONDS),
                text(is_lasting.into()),
            ];
            for message in messages {
                arguments.push(Bytes::from_static(if message.is_kept { b"1" } else { b"0" }));
                arguments.push(message.bytes);
            }
            let reply = PUBLISH.run(&client, keys, arguments).await;
            if reply.is_ok() {
                lasting.borrow_mut().add(&room);
            }
            refusals.note(slot, &channel, 0, verdict_of(reply.as_ref().err()));
            let is_confirmed = confirmed(remembered).await.is_ok() && reply.is_ok();
            let foreign = foreign_keys(&room, reply.ok().as_ref());
            foreign.chain([BrokerEvent::Published { ticket, is_confirmed }])
        });
    }

    /// Stores kicks before their messages arrive anywhere: a node that misses the message finds it.
    fn remember_kicks(&self, channel: &str, messages: &[OutgoingMessage]) -> Vec<ReplyFuture> {
        let remember = |message: &OutgoingMessage| {
            let milliseconds = message.remembered_for?.as_millis().to_string();
            let value = [milliseconds.as_bytes(), b":", &message.bytes].concat();
            let set = self.client.cmd("SET").arg(format!("{channel}:k")).arg(value).arg("PX").arg(&milliseconds);
            // A reply that is not awaited takes its command back. The connection keeps the order: no wait is needed.
            Some(set.idempotent().send())
        };
        messages.iter().filter_map(remember).collect()
    }

    fn read(&self, ticket: u64, room: RoomName, bounds: HistoryBounds, from: Option<Position>) {
        let (channel, client, bounds) = (self.channel(&room), self.client.clone(), (bounds, self.pages));
        self.events.spawn(async move {
            let (foreign, history) = match pages::read(&client, &channel, from, bounds).await {
                Some(ReadHistory::Foreign) => (Some(BrokerEvent::ForeignKey(room)), Some(History::default())),
                Some(ReadHistory::History(history)) => (None, Some(history)),
                None => (None, None),
            };
            foreign.into_iter().chain([BrokerEvent::History { ticket, history }])
        });
    }

    fn presence(&self, rooms: Vec<PresenceUpdate>, request: PresenceRequest) {
        let count = rooms.len();
        let batches = self.presence_batches(rooms);
        let run = |(slot, batch): (u16, PresenceBatch)| {
            let (client, clocks, refusals) = (self.client.clone(), self.clocks.clone(), self.refusals.clone());
            task::spawn(async move { batch.run(&client, &clocks, &refusals, slot, request).await })
        };
        let runs: Vec<_> = batches.into_iter().map(run).collect();
        self.events.spawn(async move {
            let (mut events, mut leases) = (Vec::new(), request.reads.then(|| vec![Vec::new(); count]));
            for run in runs {
                let Ok((more, read)) = run.await else {
                    leases = None;
                    continue;
                };
                events.extend(more);
                match (read, &mut leases) {
                    (Some(read), Some(leases)) => read.into_iter().for_each(|(place, of_room)| leases[place] = of_room),
                    // Without all of them the request has failed.
                    _ => leases = None,
                }
            }
            events.push(BrokerEvent::Presence { ticket: request.ticket, leases });
            events
        });
    }

    /// The rooms of a presence request, one batch for each call of the script.
    fn presence_batches(&self, rooms: Vec<PresenceUpdate>) -> BTreeMap<u16, PresenceBatch> {
        let mut batches = BTreeMap::new();
        for (place, update) in rooms.into_iter().enumerate() {
            let channel = self.channel(&update.room);
            let slot = self.slot(&channel);
            batches.entry(slot).or_insert_with(PresenceBatch::default).push(place, channel, update);
        }
        batches
    }
}

/// The rooms whose keys this node has made to last within the last hour, by hashes of their names.
#[derive(Default)]
struct LastingRooms {
    hashes: HashSet<u64>,
    hasher: RandomState,
    since: Option<Instant>,
}

impl LastingRooms {
    fn has(&mut self, room: &str, now: Instant) -> bool {
        let since = *self.since.get_or_insert(now);
        if now.saturating_duration_since(since) > LASTING_TIME || self.hashes.len() >= LASTING_ROOMS_MAX {
            self.hashes.clear();
            self.since = Some(now);
        }
        self.hashes.contains(&self.hasher.hash_one(room))
    }

    fn add(&mut self, room: &str) {
        self.hashes.insert(self.hasher.hash_one(room));
    }
}

impl Broker for RedisBroker {
    fn request(&mut self, request: BrokerRequest) {
        match request {
            BrokerRequest::Subscribe(room) => self.subscriber.subscribe(self.channel(&room)),
            BrokerRequest::Unsubscribe(room) => self.subscriber.unsubscribe(self.channel(&room)),
            BrokerRequest::Publish { ticket, room, history, epoch, messages } => {
                self.publish(ticket, &room, (history, epoch), messages);
            }
            BrokerRequest::ReadHistory { ticket, room, history, from } => self.read(ticket, room, history, from),
            BrokerRequest::Presence { ticket, node, lease, rooms, reads } => {
                self.presence(rooms, PresenceRequest { ticket, node, lease, reads, page: self.pages });
            }
        }
    }

    fn poll_event(&mut self, cx: &mut Context<'_>) -> Poll<Option<BrokerEvent>> {
        let Self { client, events, subscriber, prefix, is_cluster, clocks, .. } = self;
        events.poll(cx, |cx| {
            let event = ready!(subscriber.poll_recv(cx));
            if matches!(event, Some(SubscriberEvent::Up)) && !*is_cluster {
                read_time(client, clocks);
            }
            Poll::Ready(event.map(|event| step(prefix, event)))
        })
    }

    fn last_failure(&self) -> Option<String> {
        self.subscriber.last_failure().or_else(|| self.client.last_failure())
    }
}

/// Samples the server's clock before the first member enters: a kick of an unknown time was before that.
fn read_time(client: &Client, clocks: &Rc<RefCell<Clocks>>) {
    let (client, clocks) = (client.clone(), clocks.clone());
    let sent_at = task::now();
    drop(task::spawn(async move {
        if let Ok(OwnedValue::Aggregate(_, parts)) = client.cmd("TIME").send().await
            && let [seconds, microseconds] = &parts[..]
            && let (Some(Ok(seconds)), Some(Ok(microseconds))) =
                (text_of(seconds).map(|text| text.parse()), text_of(microseconds).map(|text| text.parse()))
        {
            let time = Duration::from_secs(seconds).saturating_add(Duration::from_micros(microseconds));
            clocks.borrow_mut().entry(0).or_default().sample(time, sent_at, task::now());
        }
    }));
}

/// An event of the subscriber, for a broker with this prefix.
fn step(prefix: &str, event: SubscriberEvent) -> SubscriberStep {
    match event {
        SubscriberEvent::Message(message) => {
            let Some(room) = room(prefix, &message.channel) else { return SubscriberStep::None };
            let (position, bytes) = split_position(message.payload);
            SubscriberStep::Event(BrokerEvent::Message { room, position, previous: None, bytes })
        }
        SubscriberEvent::Subscribed(channel) => room(prefix, &channel).map(BrokerEvent::Subscribed).into(),
        SubscriberEvent::Refused { name, reason } => {
            let reason = String::from_utf8_lossy(&reason).into();
            room(prefix, &name).map(|room| BrokerEvent::Refused { room, reason }).into()
        }
        SubscriberEvent::Up => SubscriberStep::Event(BrokerEvent::Up),
        SubscriberEvent::Down => SubscriberStep::Event(BrokerEvent::Down),
        SubscriberEvent::Gap => SubscriberStep::Gap,
        _ => SubscriberStep::None,
    }
}

/// The room of a channel.
fn room(prefix: &str, channel: &[u8]) -> Option<RoomName> {
    let name = channel.strip_prefix(prefix.as_bytes())?.strip_prefix(b"{.")?.strip_suffix(b"}")?;
    std::str::from_utf8(name).ok().map(Into::into)
}

/// Waits for all replies. Returns the first error.
async fn confirmed(replies: Vec<ReplyFuture>) -> Result<(), ClientError> {
    let mut result = Ok(());
    for reply in replies {
        result = result.and(reply.await.map(drop));
    }
    result
}

/// The position before a message, and the message. Other bytes stay as they are.
fn split_position(payload: Bytes) -> (Option<Position>, Bytes) {
    let head = payload.strip_prefix(b"@").map(|rest| &rest[..rest.len().min(POSITION_BYTES_MAX)]);
    let Some(end) = head.and_then(|head| head.iter().position(|byte| *byte == b'\n')) else { return (None, payload) };
    let position = std::str::from_utf8(&payload[1..=end]).ok().and_then(|text| text.parse().ok());
    if position.is_none() {
        return (None, payload);
    }
    (position, payload.slice(end + 2..))
}

/// Events of the keys that were foreign, by the number at the end of a reply.
fn foreign_keys(room: &RoomName, count: Option<&OwnedValue>) -> impl Iterator<Item = BrokerEvent> + use<> {
    let count = if let Some(OwnedValue::Integer(count)) = count { *count } else { 0 };
    let room = room.clone();
    (0..count).map(move |_| BrokerEvent::ForeignKey(room.clone()))
}

/// The line of a position: 16 digits, a hyphen, 20 digits at most, and a line feed.
const POSITION_BYTES_MAX: usize = 38;
/// The keys of a room in use are made to last again after this time: far less than [`UNUSED_SECONDS`].
const LASTING_TIME: Duration = Duration::from_secs(3600);
/// The rooms that are known to last: those of others are made to last with each message.
const LASTING_ROOMS_MAX: usize = 4096;
/// A room lasts so long in Redis after its last message: a week.
const UNUSED_SECONDS: usize = 7 * 24 * 3600;
