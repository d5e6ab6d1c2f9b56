//! `Subscriber`: messages of channels, over a connection that comes back by itself.
//!
//! The subscriber keeps the names that the application wants. `subscription.rs` brings each connection to that state, and
//! this file has the queues between both, which any thread may use.
//!
//! Invariant: `Up` is reported after the server has acknowledged all names that were wanted when the connection began, and
//! `Gap` before it, unless it is the first.

use std::collections::{BTreeSet, VecDeque};
use std::future::poll_fn;
use std::sync::{Arc, Mutex};
use std::task::{Poll, Waker};

use bytes::Bytes;
use tidegate_engine::Remote;

use crate::client::queue::WakeUp;
use crate::client::slot::lock;

/// An event of a [`Subscriber`].
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum SubscriberEvent {
    /// A message.
    Message(ChannelMessage),
    /// Messages may have been lost before this point: there was no connection, or the application did not take the messages
    /// in time.
    Gap,
    /// The server has acknowledged all names.
    Up,
    /// The connection is lost; the subscriber connects again.
    Down,
}

/// A message of a channel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChannelMessage {
    /// The channel.
    pub channel: Bytes,
    /// The pattern through which it came.
    pub pattern: Option<Bytes>,
    /// The bytes that were published.
    pub payload: Bytes,
}

/// Subscriptions of channels and patterns over a connection of their own, which comes back by itself.
///
/// It may be used on any thread. Dropping it ends the connection.
///
/// ```no_run
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// use tidegate::redis::{Client, SubscriberEvent};
///
/// let mut tides = Client::to("127.0.0.1:6379")?.subscriber();
/// tides.subscribe("tides");
/// while let Some(event) = tides.recv().await {
///     match event {
///         SubscriberEvent::Message(message) => println!("{:?}", message.payload),
///         SubscriberEvent::Gap => println!("messages may be missing: read the state again"),
///         _ => {}
///     }
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Subscriber {
    queue: Arc<SubscriberQueue>,
}

/// A channel or a pattern.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct SubscriptionName {
    pub(crate) is_pattern: bool,
    pub(crate) name: Bytes,
}

/// The queues between a subscriber and its connection.
#[derive(Debug, Default)]
pub(crate) struct SubscriberQueue(Mutex<SubscriberState>);

#[derive(Debug, Default)]
struct SubscriberState {
    wanted: BTreeSet<SubscriptionName>,
    /// Names to subscribe (`true`) or to unsubscribe that the connection has not asked for yet.
    changes: VecDeque<(bool, SubscriptionName)>,
    events: VecDeque<SubscriberEvent>,
    event_bytes: usize,
    reader: Option<Waker>,
    link: Option<Remote<WakeUp>>,
    supervisor: Option<Waker>,
    has_no_reader: bool,
    has_no_loop: bool,
    was_up: bool,
    last_failure: Option<String>,
}

impl Subscriber {
    pub(crate) fn new(queue: Arc<SubscriberQueue>) -> Self {
        Self { queue }
    }

    /// Subscribes to a channel, now and after each loss of the connection.
    pub fn subscribe(&self, channel: impl Into<Bytes>) {
        self.queue.change(true, SubscriptionName { is_pattern: false, name: channel.into() });
    }

    /// Subscribes to all channels that match a pattern.
    pub fn psubscribe(&self, pattern: impl Into<Bytes>) {
        self.queue.change(true, SubscriptionName { is_pattern: true, name: pattern.into() });
    }

    /// Ends a subscription of a channel. Messages that the server has sent before still arrive.
    pub fn unsubscribe(&self, channel: impl Into<Bytes>) {
        self.queue.change(false, SubscriptionName { is_pattern: false, name: channel.into() });
    }

    /// Ends a subscription of a pattern.
    pub fn punsubscribe(&self, pattern: impl Into<Bytes>) {
        self.queue.change(false, SubscriptionName { is_pattern: true, name: pattern.into() });
    }

    /// The next event; `None` once the loop has ended.
    pub async fn recv(&mut self) -> Option<SubscriberEvent> {
        poll_fn(|cx| {
            let mut state = lock(&self.queue.0);
            if let Some(event) = state.events.pop_front() {
                state.event_bytes -= bytes_of(&event);
                return Poll::Ready(Some(event));
            }
            if state.has_no_loop {
                return Poll::Ready(None);
            }
            state.reader = Some(cx.waker().clone());
            Poll::Pending
        })
        .await
    }

    /// Why the last connection ended, or could not be made.
    #[must_use]
    pub fn last_failure(&self) -> Option<String> {
        lock(&self.queue.0).last_failure.clone()
    }
}

impl Drop for Subscriber {
    fn drop(&mut self) {
        let mut state = lock(&self.queue.0);
        state.has_no_reader = true;
        state.events.clear();
        if let Some(link) = &state.link {
            link.post(WakeUp).ok();
        }
        if let Some(supervisor) = state.supervisor.take() {
            supervisor.wake();
        }
    }
}

impl SubscriberQueue {
    fn change(&self, is_wanted: bool, name: SubscriptionName) {
        let mut state = lock(&self.0);
        let has_changed = if is_wanted { state.wanted.insert(name.clone()) } else { state.wanted.remove(&name) };
        if !has_changed {
            return;
        }
        // Without a connection there is nothing to change: it begins with all names.
        if let Some(link) = &state.link {
            link.post(WakeUp).ok();
            state.changes.push_back((is_wanted, name));
        }
    }

    /// A connection begins: returns all names, and notes later changes from now on.
    pub(crate) fn begin(&self, link: Remote<WakeUp>) -> Vec<SubscriptionName> {
        let mut state = lock(&self.0);
        state.link = Some(link);
        state.changes.clear();
        state.wanted.iter().cloned().collect()
    }

    /// The next names of one kind, as many as one command has.
    pub(crate) fn take_changes(&self) -> Option<(bool, bool, Vec<Bytes>)> {
        let mut state = lock(&self.0);
        let (is_wanted, first) = state.changes.pop_front()?;
        let mut names = vec![first.name];
        while names.len() < BATCH_NAMES
            && let Some((also, name)) = state.changes.front()
            && (*also, name.is_pattern) == (is_wanted, first.is_pattern)
        {
            names.extend(state.changes.pop_front().map(|(_, name)| name.name));
        }
        Some((is_wanted, first.is_pattern, names))
    }

    pub(crate) fn up(&self) {
        let mut state = lock(&self.0);
        if std::mem::replace(&mut state.was_up, true) {
            state.push(SubscriberEvent::Gap);
        }
        state.push(SubscriberEvent::Up);
    }

    /// The connection has ended.
    pub(crate) fn down(&self, was_up: bool) {
        let mut state = lock(&self.0);
        state.link = None;
        state.changes.clear();
        if was_up {
            state.push(SubscriberEvent::Down);
        }
    }

    pub(crate) fn message(&self, message: ChannelMessage) {
        lock(&self.0).push(SubscriberEvent::Message(message));
    }

    pub(crate) fn set_last_failure(&self, failure: String) {
        lock(&self.0).last_failure = Some(failure);
    }

    /// Whether the subscriber is gone; the supervisor is woken when it is.
    pub(crate) fn poll_no_reader(&self, waker: &Waker) -> bool {
        let mut state = lock(&self.0);
        state.supervisor = Some(waker.clone());
        state.has_no_reader
    }

    pub(crate) fn has_no_reader(&self) -> bool {
        lock(&self.0).has_no_reader
    }

    pub(crate) fn end_loop(&self) {
        let mut state = lock(&self.0);
        state.has_no_loop = true;
        if let Some(reader) = state.reader.take() {
            reader.wake();
        }
    }
}

impl SubscriberState {
    /// Appends an event. A message for which there is no room becomes a gap; other events are few, and merge.
    fn push(&mut self, event: SubscriberEvent) {
        let is_message = matches!(event, SubscriberEvent::Message(_));
        let bytes = bytes_of(&event);
        let is_full = self.events.len() >= EVENTS_MAX || self.event_bytes.saturating_add(bytes) > EVENT_BYTES_MAX;
        let event = if is_message && is_full && !self.events.is_empty() { SubscriberEvent::Gap } else { event };
        if self.has_no_reader {
            return;
        }
        if event == SubscriberEvent::Gap && self.events.back() == Some(&event) {
            return;
        }
        if self.events.len() >= EVENTS_MAX + STATES_MAX {
            // The connection comes and goes while the application takes nothing: the last states say all of it.
            self.events.truncate(EVENTS_MAX);
            self.event_bytes = self.events.iter().map(bytes_of).sum();
            self.events.push_back(SubscriberEvent::Gap);
        }
        self.event_bytes += bytes_of(&event);
        self.events.push_back(event);
        if let Some(reader) = self.reader.take() {
            reader.wake();
        }
    }
}

fn bytes_of(event: &SubscriberEvent) -> usize {
    match event {
        SubscriberEvent::Message(message) => {
            message.payload.len() + message.channel.len() + message.pattern.as_ref().map_or(0, Bytes::len)
        }
        _ => 0,
    }
}

/// Names in one command. The server's acknowledgements of a batch are awaited before the next.
pub(crate) const BATCH_NAMES: usize = 512;
/// Events that wait for the application; later messages are lost, and a gap says so.
const EVENTS_MAX: usize = 65_536;
/// Bytes of their messages.
const EVENT_BYTES_MAX: usize = 64 << 20;
/// States of the connection that wait behind them.
const STATES_MAX: usize = 64;
