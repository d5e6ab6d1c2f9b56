//! `Node`: the rooms of a process on a backplane, without I/O.
//!
//! Calls of rooms, events of the broker and the time go in; [`Output`]s come out, in order. The caller executes them: requests
//! go to the broker, the rest to rooms.
//!
//! | file | holds |
//! |---|---|
//! | `mod.rs` | subscriptions, messages, history reads |
//! | `publishing.rs` | the queue of messages to the broker |
//! | `presence.rs` | the members of a room on all nodes |
//! | `kicks.rs` | members that are closed on all nodes |
//! | `timers.rs` | deadlines in order |

mod kicks;
mod presence;
mod publishing;
mod timers;

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use tidegate_engine::{NodeId, NodePresence, Position, RoomDelivery};

use self::kicks::RoomKicks;
use self::presence::{PresenceRequests, RoomPresence};
use self::publishing::{PublishQueue, SentMessages};
use self::timers::{Timer, Timers};
use crate::broker::{BrokerEvent, BrokerRequest, History, HistoryBounds, RoomName};
use crate::counts::BackplaneCounts;
use crate::envelope::{Content, Envelope, NoEnvelope};
use crate::feed::{Feed, FeedContext, FeedEvent};
use crate::limits::NodeLimits;

/// The rooms of a process on a backplane.
///
/// ```
/// use std::time::Instant;
/// use tidegate::backplane::node::{Node, Output};
/// use tidegate::backplane::{NodeLimits, BrokerRequest};
/// use tidegate::engine::NodeId;
///
/// let mut node = Node::new(NodeId([7; 16]), NodeLimits::default());
/// node.attach(&"tides".into(), None, Instant::now());
/// assert!(matches!(node.poll_output(), Some(Output::BrokerRequest(BrokerRequest::Subscribe(room))) if &*room == "tides"));
/// ```
#[derive(Debug)]
pub struct Node {
    id: NodeId,
    limits: NodeLimits,
    /// In boxes: a table has up to twice as many places as entries.
    rooms: HashMap<RoomName, Box<NodeRoom>>,
    outputs: VecDeque<Output>,
    counts: BackplaneCounts,
    timers: Timers,
    tickets: HashMap<u64, Ticket>,
    last_ticket: u64,
    reads: usize,
    /// Rooms whose history is to be read when fewer reads are under way.
    waiting_reads: VecDeque<RoomName>,
    last_number: u64,
    queued_bytes: usize,
    sent: SentMessages,
    /// Rooms whose members have changed since the last presence window.
    changed: Vec<RoomName>,
    requests: PresenceRequests,
    has_window: bool,
    has_renewal: bool,
    /// When leases of other nodes are looked at.
    expiry: Option<Instant>,
    events: Vec<FeedEvent>,
    /// Why the broker refuses messages, if it does.
    refusal: Option<Arc<str>>,
}

#[derive(Debug, Default)]
struct NodeRoom {
    /// It has members on this node.
    is_attached: bool,
    /// The broker refuses its subscription.
    is_refused: bool,
    /// When it is unsubscribed, unless it has members then; it has one timer, at this time or before.
    closes_at: Option<Instant>,
    /// The bounds of the history that the feed reads.
    history: Option<HistoryBounds>,
    feed: Option<Feed>,
    /// Present while messages wait.
    queue: Option<Box<PublishQueue>>,
    presence: RoomPresence,
    kicks: RoomKicks,
}

#[derive(Debug)]
enum Ticket {
    Publish(RoomName, u64),
    Read(RoomName),
    Presence(Vec<RoomName>, Instant),
}

/// A result of a [`Node`].
#[derive(Debug)]
#[non_exhaustive]
pub enum Output {
    /// A request to the broker.
    BrokerRequest(BrokerRequest),
    /// The room is subscribed, with this history.
    Opened(RoomName, Option<Position>, Vec<RoomDelivery>),
    /// A message of a room.
    Deliver(RoomName, RoomDelivery),
    /// Messages of the room are lost.
    Gap(RoomName, Option<Position>),
    /// The room receives messages again, or does not any more.
    Connected(RoomName, bool),
    /// The members of another node.
    NodePresence(RoomName, NodeId, Option<NodePresence>),
    /// The room has had no members for a while: the caller calls [`close`](Node::close), unless a member has entered.
    Closing(RoomName),
    /// The caller calls [`presence`](Node::presence) with the members of these rooms, 100 at most.
    Describe(Vec<RoomName>),
}

impl Node {
    /// A node without rooms. `id` is random, and another one in each process and at each start.
    #[must_use]
    pub fn new(id: NodeId, limits: NodeLimits) -> Self {
        Self {
            id,
            limits: limits.effective(),
            rooms: HashMap::new(),
            outputs: VecDeque::new(),
            counts: BackplaneCounts::default(),
            timers: Timers::default(),
            tickets: HashMap::new(),
            last_ticket: 0,
            reads: 0,
            waiting_reads: VecDeque::new(),
            last_number: 0,
            queued_bytes: 0,
            sent: SentMessages::default(),
            changed: Vec::new(),
            requests: PresenceRequests::default(),
            has_window: false,
            has_renewal: false,
            expiry: None,
            events: Vec::new(),
            refusal: None,
        }
    }

    /// The next output.
    pub fn poll_output(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    /// When [`handle_timeout`](Self::handle_timeout) is due.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.timers.next()
    }

    /// Why the broker refuses messages, if it does.
    #[must_use]
    pub fn refusal(&self) -> Option<&Arc<str>> {
        self.refusal.as_ref()
    }

    /// Numbers for metrics.
    #[must_use]
    pub fn counts(&self) -> BackplaneCounts {
        self.counts
    }

    /// The first member of this node has entered a room. `history` are its bounds, if it is ordered.
    pub fn attach(&mut self, name: &RoomName, history: Option<HistoryBounds>, now: Instant) {
        if name.len() > self.limits.room_name_bytes_max {
            // No message can be published to it either.
            return;
        }
        let room = self.rooms.entry(name.clone()).or_default();
        room.is_attached = true;
        room.kicks.entered(now);
        if room.feed.is_none() {
            room.history = history;
            room.feed = Some(Feed::new(history.is_some()));
            self.counts.rooms += 1;
            room.presence.wants_read = true;
            self.outputs.push_back(Output::BrokerRequest(BrokerRequest::Subscribe(name.clone())));
        }
        self.start_renewal(now);
    }

    /// The last member of this node has left the room.
    pub fn detach(&mut self, name: &RoomName, now: Instant) {
        if let Some(room) = self.rooms.get_mut(name).filter(|room| room.is_attached) {
            room.is_attached = false;
            let closes_at = now + self.limits.linger;
            if room.closes_at.replace(closes_at).is_none() {
                self.timers.add(closes_at, Timer::Close(name.clone()));
            }
        }
    }

    /// The time of a room without members may have come. Members may have entered and left since the timer was set.
    fn close_if_unused(&mut self, name: RoomName, now: Instant) {
        let Some(room) = self.rooms.get_mut(&name) else { return };
        let Some(closes_at) = room.closes_at.take().filter(|_| !room.is_attached) else { return };
        if now < closes_at {
            room.closes_at = Some(closes_at);
            self.timers.add(closes_at, Timer::Close(name));
        } else if room.feed.is_some() {
            self.outputs.push_back(Output::Closing(name));
        }
    }

    /// The subscription of a room that is [closing](Output::Closing) ends.
    pub fn close(&mut self, name: &RoomName) {
        let Some(room) = self.rooms.get_mut(name).filter(|room| !room.is_attached) else { return };
        if room.feed.take().is_some() {
            self.counts.rooms -= 1;
            self.counts.refused_rooms -= u64::from(std::mem::take(&mut room.is_refused));
            room.presence.end();
            self.outputs.push_back(Output::BrokerRequest(BrokerRequest::Unsubscribe(name.clone())));
        }
        self.remove_if_unused(name);
    }

    fn remove_if_unused(&mut self, name: &RoomName) {
        let is_unused = |room: &NodeRoom| room.feed.is_none() && room.queue.is_none() && !room.presence.is_dirty;
        if self.rooms.get(name).is_some_and(|room| is_unused(room)) {
            self.rooms.remove(name);
        }
    }

    /// The time has come.
    pub fn handle_timeout(&mut self, now: Instant) {
        while let Some(timer) = self.timers.pop(now) {
            match timer {
                Timer::Close(name) => self.close_if_unused(name, now),
                Timer::Retry(name) => self.want_read(name),
                Timer::PresenceWindow => self.end_window(),
                Timer::Renewal => self.renew(now),
                Timer::Expiry => self.expire(now),
            }
        }
    }

    /// An event of the broker.
    pub fn handle_event(&mut self, event: BrokerEvent, now: Instant) {
        match event {
            BrokerEvent::Up => {
                self.counts.is_up = true;
                self.presence_after_reconnect(now);
            }
            BrokerEvent::Down => {
                self.counts.downs += u64::from(std::mem::take(&mut self.counts.is_up));
                // No room wants a read until it is subscribed again.
                self.waiting_reads.clear();
                self.rooms.values_mut().for_each(|room| room.is_refused = false);
                self.counts.refused_rooms = 0;
                self.each_feed(Feed::down);
            }
            BrokerEvent::Overflow => self.each_feed(Feed::overflowed),
            BrokerEvent::Subscribed(name) => {
                self.set_refused(&name, false);
                self.with_feed(&name, Feed::subscribed);
            }
            BrokerEvent::Refused { room, .. } => {
                self.counts.refused_subscriptions += 1;
                self.set_refused(&room, true);
                self.with_feed(&room, Feed::refused);
            }
            BrokerEvent::RefusesMessages(reason) => {
                self.counts.is_refusing = reason.is_some();
                self.refusal = reason;
            }
            BrokerEvent::Message { room, position, previous, bytes } => {
                self.received(&room, (position, previous), &bytes, now);
            }
            BrokerEvent::Published { ticket, is_confirmed } => {
                if let Some(Ticket::Publish(name, count)) = self.tickets.remove(&ticket) {
                    self.published(&name, count, is_confirmed);
                }
            }
            BrokerEvent::History { ticket, history } => {
                if let Some(Ticket::Read(name)) = self.tickets.remove(&ticket) {
                    self.history_read(&name, ticket, history, now);
                }
            }
            BrokerEvent::Kick { ticket, room, age, read_at, bytes } => {
                self.remembered_kick(ticket, &room, (age, read_at), &bytes, now);
            }
            BrokerEvent::ForeignKey(_) => self.counts.foreign_keys += 1,
            BrokerEvent::Presence { ticket, leases } => {
                if let Some(Ticket::Presence(names, sent_at)) = self.tickets.remove(&ticket) {
                    self.presence_read(names, sent_at, leases, now);
                }
            }
        }
    }

    fn set_refused(&mut self, name: &RoomName, is_refused: bool) {
        if let Some(room) = self.rooms.get_mut(name).filter(|room| room.feed.is_some()) {
            let was_refused = std::mem::replace(&mut room.is_refused, is_refused);
            self.counts.refused_rooms += u64::from(is_refused);
            self.counts.refused_rooms -= u64::from(was_refused);
        }
    }

    fn received(&mut self, name: &RoomName, place: (Option<Position>, Option<u64>), bytes: &Bytes, now: Instant) {
        if self.rooms.get(name).is_none_or(|room| room.feed.is_none()) {
            return;
        }
        match Envelope::parse(bytes) {
            Ok(Envelope { origin, content: Content::Presence(list), .. }) => {
                self.presence_received(name, origin, list, now);
            }
            Ok(envelope) => {
                if envelope.origin == self.id
                    && let Some(lag) = self.sent.returned(envelope.number, now)
                {
                    self.counts.lag_micros = lag.as_micros().try_into().unwrap_or(u64::MAX);
                }
                if envelope.is_kick() {
                    return self.kicked(name, place.0, envelope, now);
                }
                self.with_feed(name, |feed, cx| feed.message(place, envelope, cx));
            }
            Err(NoEnvelope::Foreign) => self.counts.foreign += 1,
            Err(NoEnvelope::OtherVersion) => self.counts.other_versions += 1,
        }
    }

    fn each_feed(&mut self, mut call: impl FnMut(&mut Feed, &mut FeedContext<'_>)) {
        let mut names: Vec<_> =
            self.rooms.iter().filter(|(_, room)| room.feed.is_some()).map(|(name, _)| name.clone()).collect();
        // The same order at each run.
        names.sort_unstable();
        for name in &names {
            self.with_feed(name, &mut call);
        }
    }

    fn with_feed(&mut self, name: &RoomName, call: impl FnOnce(&mut Feed, &mut FeedContext<'_>)) {
        let mut events = std::mem::take(&mut self.events);
        if let Some(feed) = self.rooms.get_mut(name).and_then(|room| room.feed.as_mut()) {
            call(feed, &mut FeedContext { limits: &self.limits, counts: &mut self.counts, events: &mut events });
        }
        for event in events.drain(..) {
            let name = name.clone();
            let output = match event {
                FeedEvent::Read => {
                    self.want_read(name);
                    continue;
                }
                FeedEvent::Opened(position, messages) => Output::Opened(name, position, messages),
                FeedEvent::Deliver(delivery) => Output::Deliver(name, delivery),
                FeedEvent::Gap(position) => Output::Gap(name, position),
                FeedEvent::Up => Output::Connected(name, true),
                FeedEvent::Down => Output::Connected(name, false),
            };
            self.outputs.push_back(output);
        }
        self.events = events;
    }

    /// Reads the history of a room, now or when fewer reads are under way.
    fn want_read(&mut self, name: RoomName) {
        if self.reads >= self.limits.reads_max {
            self.waiting_reads.push_back(name);
            return;
        }
        let ticket = self.last_ticket + 1;
        let Some(room) = self.rooms.get_mut(&name) else { return };
        let Some(feed) = room.feed.as_mut().filter(|feed| feed.wants_read()) else { return };
        let Some(history) = room.history else { return };
        let from = feed.read_sent(ticket);
        self.last_ticket = ticket;
        self.reads += 1;
        self.counts.history_reads += 1;
        self.tickets.insert(ticket, Ticket::Read(name.clone()));
        self.outputs.push_back(Output::BrokerRequest(BrokerRequest::ReadHistory { ticket, room: name, history, from }));
    }

    fn history_read(&mut self, name: &RoomName, ticket: u64, history: Option<History>, now: Instant) {
        self.reads -= 1;
        match history {
            Some(history) => self.with_feed(name, |feed, cx| feed.history(ticket, history, cx)),
            None => {
                self.counts.failed_reads += 1;
                let mut pause = None;
                self.with_feed(name, |feed, cx| pause = feed.read_failed(ticket, cx));
                if let Some(pause) = pause {
                    self.timers.add(now + pause, Timer::Retry(name.clone()));
                }
            }
        }
        while self.reads < self.limits.reads_max
            && let Some(name) = self.waiting_reads.pop_front()
        {
            self.want_read(name);
        }
    }
}
