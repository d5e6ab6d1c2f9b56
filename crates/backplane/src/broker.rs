//! `Broker`: the seam between a node and an engine. The node makes requests, and the engine reports events.
//!
//! An engine keeps its subscriptions across connections: it subscribes all rooms again by itself, and reports each with
//! [`BrokerEvent::Subscribed`] once more.

use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use bytes::Bytes;
use tidegate_engine::{NodeId, Position};

/// The name of a room.
pub type RoomName = Arc<str>;

/// A broker's engine. One task calls it.
pub trait Broker: 'static {
    /// Starts a request. Requests of one room are executed in the order of the calls.
    fn request(&mut self, request: BrokerRequest);

    /// The next event; `None` once the loop has ended.
    fn poll_event(&mut self, cx: &mut Context<'_>) -> Poll<Option<BrokerEvent>>;

    /// Why there is no connection, if the engine knows a reason: the last failure of an attempt to connect, for example.
    fn last_failure(&self) -> Option<String> {
        None
    }
}

/// A request of a node. One with a ticket has an event with the same ticket, exactly once.
#[derive(Debug)]
#[non_exhaustive]
pub enum BrokerRequest {
    /// Messages of this room are wanted, until the room is unsubscribed.
    Subscribe(RoomName),
    /// Messages of this room are not wanted any more.
    Unsubscribe(RoomName),
    /// Publishes messages in this order, and reports [`BrokerEvent::Published`].
    Publish {
        /// Its number.
        ticket: u64,
        /// The room.
        room: RoomName,
        /// The bounds of the history; none for an ephemeral room.
        history: Option<HistoryBounds>,
        /// The epoch if the broker has none for the room.
        epoch: u64,
        /// The messages.
        messages: Vec<OutgoingMessage>,
    },
    /// Reads the history, and reports [`BrokerEvent::History`].
    ReadHistory {
        /// Its number.
        ticket: u64,
        /// The room.
        room: RoomName,
        /// The bounds of the history.
        history: HistoryBounds,
        /// The first message, if it is of the current epoch; otherwise all of them are wanted.
        from: Option<Position>,
    },
    /// Records the members of this node, and reports [`BrokerEvent::Presence`].
    Presence {
        /// Its number.
        ticket: u64,
        /// This node.
        node: NodeId,
        /// How long the record lasts.
        lease: Duration,
        /// The rooms, 100 at most.
        rooms: Vec<PresenceUpdate>,
        /// Whether the lists of other nodes are wanted.
        reads: bool,
    },
}

/// A message that is published.
#[derive(Debug, Clone)]
pub struct OutgoingMessage {
    /// Its bytes.
    pub bytes: Bytes,
    /// It gets a position, and is appended to the history.
    pub is_kept: bool,
    /// The broker remembers the last such message of the room for so long, and reports it with [`BrokerEvent::Kick`].
    pub remembered_for: Option<Duration>,
}

/// The members of this node in one room.
#[derive(Debug, Clone)]
pub struct PresenceUpdate {
    /// The room.
    pub room: RoomName,
    /// The list; none if there are no members any more.
    pub list: Option<Bytes>,
    /// The message that tells other nodes, if the list has changed.
    pub message: Option<Bytes>,
}

/// The bounds of a history.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HistoryBounds {
    /// Messages.
    pub messages_max: usize,
    /// Bytes.
    pub bytes_max: usize,
}

/// An event of a broker.
#[derive(Debug)]
#[non_exhaustive]
pub enum BrokerEvent {
    /// The connection is made; subscriptions follow.
    Up,
    /// The connection is lost. Each room is subscribed again later.
    Down,
    /// Messages of any room may be lost, since this node did not take them in time.
    Overflow,
    /// Messages of the room that are published from now on arrive.
    Subscribed(RoomName),
    /// The broker refuses the subscription of this room: the user may not have it, or has too many. The engine tries again, and
    /// reports [`Subscribed`](Self::Subscribed) then.
    Refused {
        /// The room.
        room: RoomName,
        /// The reason.
        reason: Arc<str>,
    },
    /// The broker refuses messages for this reason, whatever room they are for. `None`: it takes them again.
    RefusesMessages(Option<Arc<str>>),
    /// A message.
    Message {
        /// The room.
        room: RoomName,
        /// The position, if it is part of the history.
        position: Option<Position>,
        /// The offset of the room's message before it, 0 if there is none. `None`: offsets grow by one.
        previous: Option<u64>,
        /// Its bytes.
        bytes: Bytes,
    },
    /// Messages are published, or may not be.
    Published {
        /// The number of the request.
        ticket: u64,
        /// Whether the broker has confirmed it.
        is_confirmed: bool,
    },
    /// A history, or none if it could not be read.
    History {
        /// The number of the request.
        ticket: u64,
        /// The history.
        history: Option<History>,
    },
    /// The last kick that the broker remembers, of a room in a presence request that reads. It comes before the request's
    /// [`Presence`](Self::Presence).
    Kick {
        /// The number of the request.
        ticket: u64,
        /// The room.
        room: RoomName,
        /// How long ago it was published, at `read_at`.
        age: Duration,
        /// This node's time when the broker measured the age.
        read_at: Instant,
        /// Its bytes.
        bytes: Bytes,
    },
    /// A key of the room had a value that no node has written, and that no script can read. It counts as no value.
    ForeignKey(RoomName),
    /// Members are recorded, or may not be.
    Presence {
        /// The number of the request.
        ticket: u64,
        /// For each room of the request the lists of all nodes, if they were wanted and could be read.
        leases: Option<Vec<Vec<Lease>>>,
    },
}

/// The history of a room.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct History {
    /// The position of the last message that was published, kept or not; none if there was none in this epoch.
    pub position: Option<Position>,
    /// The messages, with offsets that grow.
    pub entries: Vec<HistoryEntry>,
    /// All messages of the epoch after this offset are among the entries. `None`: offsets grow by one, so the entries say it.
    pub after: Option<u64>,
}

/// A message of a history.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HistoryEntry {
    /// Its offset in the epoch of the history.
    pub offset: u64,
    /// Its bytes.
    pub bytes: Bytes,
}

/// The list of a node, and how long it lasts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lease {
    /// The node.
    pub node: NodeId,
    /// How long the list lasts from now on.
    pub left: Duration,
    /// The list.
    pub list: Bytes,
}
