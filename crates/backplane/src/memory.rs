//! `MemoryBroker`: a broker for several nodes in one process.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use bytes::Bytes;
use tidegate_engine::{NodeId, Position, task};

use crate::broker::{Broker, BrokerEvent, BrokerRequest, History, HistoryEntry, Lease, PresenceUpdate, RoomName};

/// A broker in the memory of this process, for tests of applications with several nodes. Clones are the same broker.
#[derive(Clone, Default)]
pub struct MemoryBroker {
    state: Arc<Mutex<MemoryState>>,
}

#[derive(Default)]
struct MemoryState {
    rooms: HashMap<RoomName, MemoryRoom>,
    clients: BTreeMap<u64, MemoryQueue>,
    last_client: u64,
}

#[derive(Default)]
struct MemoryRoom {
    epoch: u64,
    offset: u64,
    entries: VecDeque<HistoryEntry>,
    bytes: usize,
    leases: BTreeMap<NodeId, (Instant, Bytes)>,
    /// The last kick: when it was published, how long it lasts, and its bytes.
    kick: Option<(Instant, Duration, Bytes)>,
}

/// The events of one client.
#[derive(Default)]
struct MemoryQueue {
    rooms: HashSet<RoomName>,
    events: VecDeque<BrokerEvent>,
    waker: Option<Waker>,
}

impl MemoryBroker {
    /// A broker without rooms.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// A connection of a node.
    pub(crate) fn client(&self) -> MemoryClient {
        let mut state = self.lock();
        state.last_client += 1;
        let number = state.last_client;
        let events = VecDeque::from([BrokerEvent::Up]);
        state.clients.insert(number, MemoryQueue { events, ..MemoryQueue::default() });
        drop(state);
        MemoryClient { broker: self.clone(), number }
    }

    fn lock(&self) -> MutexGuard<'_, MemoryState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for MemoryBroker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryBroker").field("rooms", &self.lock().rooms.len()).finish_non_exhaustive()
    }
}

/// A node's connection to a [`MemoryBroker`].
pub(crate) struct MemoryClient {
    broker: MemoryBroker,
    number: u64,
}

impl Broker for MemoryClient {
    fn request(&mut self, request: BrokerRequest) {
        let mut state = self.broker.lock();
        let event = match request {
            BrokerRequest::Subscribe(room) => {
                if let Some(client) = state.clients.get_mut(&self.number) {
                    client.rooms.insert(room.clone());
                }
                BrokerEvent::Subscribed(room)
            }
            BrokerRequest::Unsubscribe(room) => {
                if let Some(client) = state.clients.get_mut(&self.number) {
                    client.rooms.remove(&room);
                }
                return;
            }
            BrokerRequest::Publish { ticket, room, history, epoch, messages } => {
                for message in messages {
                    let bytes = message.bytes;
                    let mut position = None;
                    if let Some(lease) = message.remembered_for {
                        let kick = Some((task::now(), lease, bytes.clone()));
                        state.rooms.entry(room.clone()).or_default().kick = kick;
                    }
                    if let (Some(bounds), true) = (history, message.is_kept) {
                        let entry = state.rooms.entry(room.clone()).or_default();
                        position = Some(entry.append(epoch, bytes.clone(), bounds.messages_max, bounds.bytes_max));
                    }
                    state.send(&room, |room| BrokerEvent::Message {
                        room,
                        position,
                        previous: None,
                        bytes: bytes.clone(),
                    });
                }
                BrokerEvent::Published { ticket, is_confirmed: true }
            }
            BrokerRequest::ReadHistory { ticket, room, from, .. } => {
                let history = state.rooms.get(&room).map(|room| room.history(from)).unwrap_or_default();
                BrokerEvent::History { ticket, history: Some(history) }
            }
            BrokerRequest::Presence { ticket, node, lease, rooms, reads } => {
                let names: Vec<_> = rooms.iter().filter(|_| reads).map(|update| update.room.clone()).collect();
                let leases = rooms.into_iter().map(|update| state.presence(node, lease, update)).collect();
                let read_at = task::now();
                for room in names {
                    if let Some((age, bytes)) = state.rooms.get(&room).and_then(MemoryRoom::last_kick) {
                        state.push(self.number, BrokerEvent::Kick { ticket, room, age, read_at, bytes });
                    }
                }
                BrokerEvent::Presence { ticket, leases: reads.then_some(leases) }
            }
        };
        state.push(self.number, event);
    }

    fn poll_event(&mut self, cx: &mut Context<'_>) -> Poll<Option<BrokerEvent>> {
        let mut state = self.broker.lock();
        let Some(client) = state.clients.get_mut(&self.number) else { return Poll::Ready(None) };
        if let Some(event) = client.events.pop_front() {
            return Poll::Ready(Some(event));
        }
        client.waker = Some(cx.waker().clone());
        Poll::Pending
    }
}

impl Drop for MemoryClient {
    fn drop(&mut self) {
        let client = self.broker.lock().clients.remove(&self.number);
        drop(client);
    }
}

impl MemoryState {
    fn push(&mut self, client: u64, event: BrokerEvent) {
        if let Some(client) = self.clients.get_mut(&client) {
            client.events.push_back(event);
            if let Some(waker) = client.waker.take() {
                waker.wake();
            }
        }
    }

    fn send(&mut self, room: &RoomName, event: impl Fn(RoomName) -> BrokerEvent) {
        for client in self.clients.values_mut().filter(|client| client.rooms.contains(room)) {
            client.events.push_back(event(room.clone()));
            if let Some(waker) = client.waker.take() {
                waker.wake();
            }
        }
    }

    fn presence(&mut self, node: NodeId, lease: Duration, update: PresenceUpdate) -> Vec<Lease> {
        let now = task::now();
        let leases = &mut self.rooms.entry(update.room.clone()).or_default().leases;
        match update.list {
            Some(list) => drop(leases.insert(node, (now + lease, list))),
            None => drop(leases.remove(&node)),
        }
        leases.retain(|_, (until, _)| *until > now);
        let lease = |(node, (until, list)): (&NodeId, &(Instant, Bytes))| Lease {
            node: *node,
            left: *until - now,
            list: list.clone(),
        };
        let leases = leases.iter().map(lease).collect();
        if let Some(bytes) = update.message {
            self.send(&update.room, |room| BrokerEvent::Message {
                room,
                position: None,
                previous: None,
                bytes: bytes.clone(),
            });
        }
        leases
    }
}

impl MemoryRoom {
    fn append(&mut self, epoch: u64, bytes: Bytes, messages_max: usize, bytes_max: usize) -> Position {
        if self.offset == 0 {
            self.epoch = epoch;
        }
        self.offset += 1;
        self.bytes += bytes.len();
        self.entries.push_back(HistoryEntry { offset: self.offset, bytes });
        while self.entries.len() > messages_max || self.bytes > bytes_max {
            let Some(oldest) = self.entries.pop_front() else { break };
            self.bytes -= oldest.bytes.len();
        }
        Position { epoch: self.epoch, offset: self.offset }
    }

    /// The last kick and its age, while the broker remembers it.
    fn last_kick(&self) -> Option<(Duration, Bytes)> {
        let (at, lease, bytes) = self.kick.as_ref()?;
        let age = task::now().saturating_duration_since(*at);
        (age < *lease).then(|| (age, bytes.clone()))
    }

    fn history(&self, from: Option<Position>) -> History {
        let first = from.filter(|from| from.epoch == self.epoch).map_or(0, |from| from.offset);
        let position = (self.offset > 0).then_some(Position { epoch: self.epoch, offset: self.offset });
        let entries = self.entries.iter().filter(|entry| entry.offset >= first).cloned().collect();
        History { position, entries, after: None }
    }
}
