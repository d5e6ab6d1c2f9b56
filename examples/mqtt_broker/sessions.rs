//! The state that all connections share: sessions, topic filters, retained messages.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tidegate::Remote;

use crate::packet::Message;
use crate::topics::{FilterNode, matches};

/// A post to a connection.
#[derive(Debug)]
pub(crate) enum Post {
    /// A message of QoS 0.
    Deliver(Message),
    /// The backlog has messages.
    Wake,
    /// Another connection has the client identifier now.
    Superseded,
}

/// The sessions of all clients. Clones are the same sessions.
#[derive(Clone, Default)]
pub(crate) struct Sessions(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    by_client: HashMap<Arc<str>, Session>,
    root: FilterNode,
    retained: HashMap<Arc<str>, Message>,
    retained_bytes: usize,
    /// The number of the last connection.
    connections: u64,
}

/// The session of a client, which outlives its connection unless it is clean.
struct Session {
    /// While the client is connected.
    remote: Option<Remote<Post>>,
    is_clean: bool,
    filters: Vec<Box<str>>,
    backlog: SharedBacklog,
}

/// Messages of QoS 1 that the client has not acknowledged.
#[derive(Default)]
pub(crate) struct Backlog {
    /// The number of the connection that sends them. An earlier one of the client finds another number, and stops.
    pub(crate) owner: u64,
    /// Sent with these packet identifiers.
    pub(crate) in_flight: VecDeque<(u16, Message)>,
    pub(crate) waiting: VecDeque<Message>,
    waiting_bytes: usize,
    last_id: u16,
    is_woken: bool,
}

pub(crate) type SharedBacklog = Arc<Mutex<Backlog>>;

/// The result of a CONNECT.
pub(crate) struct Connected {
    /// The number of the connection.
    pub(crate) number: u64,
    /// There was a session.
    pub(crate) is_present: bool,
    pub(crate) backlog: SharedBacklog,
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Backlog {
    /// Appends a message, unless the backlog is full. Returns whether the connection has to be woken.
    fn push(&mut self, message: Message) -> bool {
        let bytes = message.memory();
        if self.waiting_bytes + bytes > BACKLOG_BYTES_MAX {
            return false;
        }
        self.waiting_bytes += bytes;
        self.waiting.push_back(message);
        !std::mem::replace(&mut self.is_woken, true)
    }

    /// The next message to send, with a packet identifier.
    pub(crate) fn next(&mut self) -> Option<(u16, Message)> {
        if self.in_flight.len() >= IN_FLIGHT_MAX {
            return None;
        }
        let message = self.waiting.pop_front()?;
        self.waiting_bytes -= message.memory();
        // An identifier that is in flight belongs to another message.
        loop {
            self.last_id = self.last_id.checked_add(1).unwrap_or(1);
            if self.in_flight.iter().all(|(id, _)| *id != self.last_id) {
                break;
            }
        }
        self.in_flight.push_back((self.last_id, message.clone()));
        Some((self.last_id, message))
    }

    /// The connection has sent all that it may.
    pub(crate) fn settle(&mut self) {
        self.is_woken = false;
    }

    pub(crate) fn acknowledge(&mut self, id: u16) {
        self.in_flight.retain(|(sent, _)| *sent != id);
    }
}

impl Sessions {
    /// Connects a client, and closes its earlier connection. `None` if there are too many sessions.
    pub(crate) fn connect(&self, client: &str, is_clean: bool, remote: Remote<Post>) -> Option<Connected> {
        let mut state = lock(&self.0);
        if state.by_client.len() >= SESSIONS_MAX && !state.by_client.contains_key(client) {
            return None;
        }
        if let Some(earlier) = state.by_client.get_mut(client).and_then(|session| session.remote.take()) {
            // An error means that it is closed already.
            let _ = earlier.post(Post::Superseded);
        }
        if is_clean || state.by_client.get(client).is_some_and(|session| session.is_clean) {
            state.forget(client);
        }
        state.connections += 1;
        let number = state.connections;
        let is_present = state.by_client.contains_key(client);
        let session = state.by_client.entry(client.into()).or_insert_with(|| Session {
            remote: None,
            is_clean,
            filters: Vec::new(),
            backlog: SharedBacklog::default(),
        });
        session.remote = Some(remote);
        lock(&session.backlog).owner = number;
        Some(Connected { number, is_present, backlog: session.backlog.clone() })
    }

    /// A connection has ended.
    pub(crate) fn disconnect(&self, client: &str, number: u64) {
        let mut state = lock(&self.0);
        let Some(session) = state.by_client.get_mut(client) else { return };
        if lock(&session.backlog).owner != number {
            return;
        }
        session.remote = None;
        if session.is_clean {
            state.forget(client);
        }
    }

    /// Subscribes a client, and returns the retained messages that match. `None` if it has too many topic filters.
    pub(crate) fn subscribe(&self, client: &str, filter: &str, qos: u8) -> Option<Vec<Message>> {
        let mut state = lock(&self.0);
        let State { by_client, root, retained, .. } = &mut *state;
        let client = by_client.get_key_value(client)?.0.clone();
        let session = by_client.get_mut(&client)?;
        if !session.filters.iter().any(|known| **known == *filter) {
            if session.filters.len() >= FILTERS_MAX {
                return None;
            }
            session.filters.push(filter.into());
        }
        root.insert(filter, client, qos);
        let matching = retained.iter().filter(|(topic, _)| matches(filter, topic));
        Some(matching.map(|(_, message)| Message { qos: message.qos.min(qos), ..message.clone() }).collect())
    }

    pub(crate) fn unsubscribe(&self, client: &str, filter: &str) {
        let mut state = lock(&self.0);
        if let Some(session) = state.by_client.get_mut(client) {
            session.filters.retain(|known| **known != *filter);
        }
        state.root.remove(filter, client);
    }

    /// Delivers a message to the clients whose topic filters match: once, with the highest QoS of those filters.
    pub(crate) fn publish(&self, message: &Message) {
        let mut state = lock(&self.0);
        if message.retain {
            state.retain(message);
        }
        let State { by_client, root, .. } = &*state;
        for (client, qos) in root.find(&message.topic) {
            let Some(session) = by_client.get(client) else { continue };
            let message = Message { qos: message.qos.min(qos), retain: false, ..message.clone() };
            session.deliver(message);
        }
    }

    /// Puts a message into the backlog of one client.
    pub(crate) fn deliver_to(&self, client: &str, message: Message) {
        if let Some(session) = lock(&self.0).by_client.get(client) {
            session.deliver(message);
        }
    }

    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        lock(&self.0).by_client.len()
    }
}

impl Session {
    fn deliver(&self, message: Message) {
        let post = if message.qos == 0 {
            Post::Deliver(message)
        } else if lock(&self.backlog).push(message) {
            Post::Wake
        } else {
            return;
        };
        if let Some(remote) = &self.remote {
            let is_wake = matches!(post, Post::Wake);
            // The connection is closing, or its loop does not keep up. QoS 0 permits the loss; the next message wakes again.
            if remote.post(post).is_err() && is_wake {
                lock(&self.backlog).settle();
            }
        }
    }
}

impl State {
    fn forget(&mut self, client: &str) {
        let Some(session) = self.by_client.remove(client) else { return };
        for filter in session.filters {
            self.root.remove(&filter, client);
        }
    }

    /// Keeps the message for later subscribers. An empty one removes that of its topic.
    fn retain(&mut self, message: &Message) {
        if let Some(old) = self.retained.remove(&message.topic) {
            self.retained_bytes -= old.memory();
        }
        let bytes = message.memory();
        let has_room = self.retained.len() < RETAINED_MAX && self.retained_bytes + bytes <= RETAINED_BYTES_MAX;
        if !message.payload.is_empty() && has_room {
            self.retained_bytes += bytes;
            self.retained.insert(message.topic.clone(), message.clone());
        }
    }
}

/// Sessions, those of clients that are not connected included.
const SESSIONS_MAX: usize = 200_000;
/// Topic filters of one client.
const FILTERS_MAX: usize = 1_000;
/// Retained messages: each subscription compares its filter with all of them.
const RETAINED_MAX: usize = 10_000;
const RETAINED_BYTES_MAX: usize = 64 * 1024 * 1024;
/// Messages of QoS 1 that wait for one client; later ones are dropped.
const BACKLOG_BYTES_MAX: usize = 256 * 1024 + 1024;
/// Messages of QoS 1 that one client has not acknowledged.
const IN_FLIGHT_MAX: usize = 32;
