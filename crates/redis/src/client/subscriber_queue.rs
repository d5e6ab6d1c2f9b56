//! `SubscriberQueue`: the names that an application wants, and the events that it has not taken, between a subscriber and its
//! connections.
//!
//! Invariant: `Up` is reported after the server has acknowledged all names that were wanted when the connection began, and
//! `Gap` before it, unless it is the first.

use std::collections::{BTreeSet, VecDeque};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use tidegate_engine::Remote;

use crate::client::counts::SubscriberCounts;
use crate::client::queue::WakeUp;
use crate::client::slot::lock;
use crate::client::slots::slot_of;

/// An event of a [`Subscriber`](crate::Subscriber).
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
    /// The server has acknowledged the subscription of this channel: later messages arrive. It comes once for each connection,
    /// and only after [`Subscriptions::report_subscribed`](crate::Subscriptions::report_subscribed).
    Subscribed(Bytes),
    /// The server refuses a channel or a pattern, since the user may not have it. The other names are not concerned. The
    /// subscriber asks for it again after the pauses of [`ClientBuilder::backoff`](crate::ClientBuilder::backoff), and once the
    /// server takes it, a [`Gap`](Self::Gap) says so, or [`Subscribed`](Self::Subscribed) where that is reported. This event
    /// comes once for each connection.
    Refused {
        /// The channel or the pattern.
        name: Bytes,
        /// The error reply: `NOPERM No permissions to access a channel`.
        reason: Bytes,
    },
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

/// A channel or a pattern.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct SubscriptionName {
    pub(crate) kind: SubscriptionKind,
    pub(crate) name: Bytes,
}

/// The commands of a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum SubscriptionKind {
    Channel,
    Pattern,
    /// A channel that belongs to a slot of a cluster.
    Sharded,
}

impl SubscriptionKind {
    pub(crate) const fn command(self, is_wanted: bool) -> &'static str {
        match (self, is_wanted) {
            (Self::Channel, true) => "SUBSCRIBE",
            (Self::Channel, false) => "UNSUBSCRIBE",
            (Self::Pattern, true) => "PSUBSCRIBE",
            (Self::Pattern, false) => "PUNSUBSCRIBE",
            (Self::Sharded, true) => "SSUBSCRIBE",
            (Self::Sharded, false) => "SUNSUBSCRIBE",
        }
    }
}

/// The queues between a subscriber and its connection.
#[derive(Debug, Default)]
pub(crate) struct SubscriberQueue {
    state: Mutex<SubscriberState>,
    /// The queue that gets the events of this one, which has the names of one server of a cluster.
    parent: Option<Arc<SubscriberQueue>>,
    /// Sharded channels are left to the queues of the servers.
    leaves_sharded: bool,
}

/// The names that an application wants. Those of channels and patterns are boxed: a name that is [`Bytes`] takes twice the
/// memory, and there may be one for each room of a process.
#[derive(Debug, Default)]
struct WantedNames {
    channels: BTreeSet<Box<[u8]>>,
    patterns: BTreeSet<Box<[u8]>>,
    sharded: BTreeSet<Bytes>,
}

impl WantedNames {
    /// Adds a name. Returns whether it was not there.
    fn insert(&mut self, name: &SubscriptionName) -> bool {
        match name.kind {
            SubscriptionKind::Channel => self.channels.insert(name.name[..].into()),
            SubscriptionKind::Pattern => self.patterns.insert(name.name[..].into()),
            SubscriptionKind::Sharded => self.sharded.insert(name.name.clone()),
        }
    }

    /// Removes a name. Returns whether it was there.
    fn remove(&mut self, name: &SubscriptionName) -> bool {
        match name.kind {
            SubscriptionKind::Channel => self.channels.remove(&name.name[..]),
            SubscriptionKind::Pattern => self.patterns.remove(&name.name[..]),
            SubscriptionKind::Sharded => self.sharded.remove(&name.name),
        }
    }

    fn channels_and_patterns(&self) -> impl Iterator<Item = SubscriptionName> + '_ {
        let of_kind = |kind, name: &[u8]| SubscriptionName { kind, name: Bytes::copy_from_slice(name) };
        let channels = self.channels.iter().map(move |name| of_kind(SubscriptionKind::Channel, name));
        channels.chain(self.patterns.iter().map(move |name| of_kind(SubscriptionKind::Pattern, name)))
    }

    fn sharded(&self) -> impl Iterator<Item = SubscriptionName> + '_ {
        self.sharded.iter().map(|name| SubscriptionName { kind: SubscriptionKind::Sharded, name: name.clone() })
    }
}

#[derive(Debug, Default)]
struct SubscriberState {
    wanted: WantedNames,
    /// Names to subscribe (`true`) or to unsubscribe that the connection has not asked for yet.
    changes: VecDeque<(bool, SubscriptionName)>,
    events: VecDeque<SubscriberEvent>,
    event_bytes: usize,
    reader: Option<Waker>,
    link: Option<Remote<WakeUp>>,
    supervisor: Option<Waker>,
    /// The task that divides sharded channels among servers.
    changed: Option<Waker>,
    has_no_reader: bool,
    has_no_loop: bool,
    was_up: bool,
    last_failure: Option<String>,
    counts: SubscriberCounts,
    reports_subscribed: bool,
    /// Acknowledgements among the events: at most one for each channel.
    acknowledgements: usize,
    /// Channels whose subscriptions the server has ended by itself.
    ended: Vec<Bytes>,
}

impl SubscriberQueue {
    /// The queue of a cluster's client.
    pub(crate) fn for_cluster() -> Self {
        Self { leaves_sharded: true, ..Self::default() }
    }

    /// The queue of one server, whose events go to another queue.
    pub(crate) fn child_of(parent: Arc<Self>) -> Self {
        Self { parent: Some(parent), ..Self::default() }
    }

    /// The next event; `None` once the loop has ended.
    pub(crate) fn poll_event(&self, cx: &Context<'_>) -> Poll<Option<SubscriberEvent>> {
        let mut state = lock(&self.state);
        if let Some(event) = state.events.pop_front() {
            state.event_bytes -= bytes_of(&event);
            state.acknowledgements -= usize::from(matches!(event, SubscriberEvent::Subscribed(_)));
            return Poll::Ready(Some(event));
        }
        if state.has_no_loop {
            return Poll::Ready(None);
        }
        state.reader = Some(cx.waker().clone());
        Poll::Pending
    }

    /// The subscriber is gone: the connection and the supervisor end.
    pub(crate) fn end_reader(&self) {
        let mut state = lock(&self.state);
        state.has_no_reader = true;
        state.events.clear();
        state.acknowledgements = 0;
        if let Some(link) = &state.link {
            link.post(WakeUp).ok();
        }
        if let Some(supervisor) = state.supervisor.take() {
            supervisor.wake();
        }
        state.changed.take().into_iter().for_each(Waker::wake);
    }

    /// The sharded channels that are wanted. Wakes the task when they change, and returns nothing once the subscriber is gone.
    pub(crate) fn poll_sharded(&self, cx: &Context<'_>) -> Option<BTreeSet<Bytes>> {
        let mut state = lock(&self.state);
        state.changed = Some(cx.waker().clone());
        (!state.has_no_reader && !state.has_no_loop).then(|| state.wanted.sharded.clone())
    }

    /// The channels whose subscriptions the server has ended by itself since the last call.
    pub(crate) fn take_ended(&self) -> Vec<Bytes> {
        std::mem::take(&mut lock(&self.state).ended)
    }

    /// The server has ended the subscription of a channel by itself: its slot has moved. Returns whether the channel is looked
    /// for elsewhere, or not wanted.
    pub(crate) fn ended_by_server(&self, channel: &[u8]) -> bool {
        let mut state = lock(&self.state);
        let Some(parent) = &self.parent else { return !state.wanted.sharded.contains(channel) };
        if state.wanted.sharded.remove(channel) {
            state.ended.push(Bytes::copy_from_slice(channel));
        }
        drop(state);
        let changed = lock(&parent.state).changed.take();
        changed.into_iter().for_each(Waker::wake);
        true
    }

    /// Messages may be missing.
    pub(crate) fn gap(&self) {
        self.push(SubscriberEvent::Gap);
    }

    fn push(&self, event: SubscriberEvent) {
        match &self.parent {
            Some(parent) => parent.push(event),
            None => lock(&self.state).push(event),
        }
    }

    pub(crate) fn counts(&self) -> SubscriberCounts {
        let state = lock(&self.state);
        let (events, bytes) = (state.events.len() as u64, state.event_bytes as u64);
        SubscriberCounts { pending_events: events, pending_bytes: bytes, ..state.counts }
    }

    pub(crate) fn last_failure(&self) -> Option<String> {
        lock(&self.state).last_failure.clone()
    }

    pub(crate) fn change(&self, is_wanted: bool, name: SubscriptionName) {
        let mut state = lock(&self.state);
        let has_changed = if is_wanted { state.wanted.insert(&name) } else { state.wanted.remove(&name) };
        if !has_changed {
            return;
        }
        if name.kind == SubscriptionKind::Sharded {
            state.changed.take().into_iter().for_each(Waker::wake);
            if self.leaves_sharded {
                return;
            }
        }
        // Without a connection there is nothing to change: it begins with all names.
        if let Some(link) = &state.link {
            link.post(WakeUp).ok();
            state.changes.push_back((is_wanted, name));
        }
    }

    /// A connection begins: returns all names, and notes later changes from now on.
    pub(crate) fn begin(&self, link: Remote<WakeUp>) -> Vec<SubscriptionName> {
        let mut state = lock(&self.state);
        state.link = Some(link);
        state.changes.clear();
        let sharded = state.wanted.sharded().filter(|_| !self.leaves_sharded);
        state.wanted.channels_and_patterns().chain(sharded).collect()
    }

    /// The next names of one kind, as many as one command has.
    pub(crate) fn take_changes(&self) -> Option<(bool, SubscriptionKind, Vec<Bytes>)> {
        let mut state = lock(&self.state);
        let (is_wanted, first) = state.changes.pop_front()?;
        let mut names = vec![first.name];
        while names.len() < BATCH_NAMES
            && let Some((also, name)) = state.changes.front()
            && (*also, name.kind) == (is_wanted, first.kind)
            && (first.kind != SubscriptionKind::Sharded || slot_of(&name.name) == slot_of(&names[0]))
        {
            names.extend(state.changes.pop_front().map(|(_, name)| name.name));
        }
        Some((is_wanted, first.kind, names))
    }

    pub(crate) fn up(&self) {
        let was_up = std::mem::replace(&mut lock(&self.state).was_up, true);
        if was_up {
            self.push(SubscriberEvent::Gap);
        }
        self.push(SubscriberEvent::Up);
    }

    /// The connection has ended.
    pub(crate) fn down(&self, was_up: bool) {
        let mut state = lock(&self.state);
        state.link = None;
        state.changes.clear();
        // Those of the next connection follow.
        if std::mem::take(&mut state.acknowledgements) > 0 {
            state.events.retain(|event| !matches!(event, SubscriberEvent::Subscribed(_)));
        }
        drop(state);
        if was_up {
            self.push(SubscriberEvent::Down);
        }
    }

    /// Reports acknowledgements of channels from now on.
    pub(crate) fn report_subscribed(&self) {
        lock(&self.state).reports_subscribed = true;
    }

    /// The server has acknowledged a channel.
    pub(crate) fn subscribed(&self, channel: &[u8]) {
        let mut state = lock(&self.state);
        if state.reports_subscribed {
            state.push(SubscriberEvent::Subscribed(Bytes::copy_from_slice(channel)));
        }
    }

    /// The server refuses a name.
    pub(crate) fn refused(&self, name: Bytes, reason: &[u8]) {
        self.push(SubscriberEvent::Refused { name, reason: Bytes::copy_from_slice(reason) });
    }

    /// The server takes a name that it has refused: messages were lost until now.
    pub(crate) fn taken_at_last(&self, kind: SubscriptionKind) {
        let is_reported = kind == SubscriptionKind::Channel && lock(&self.state).reports_subscribed;
        if !is_reported {
            self.gap();
        }
    }

    pub(crate) fn message(&self, message: ChannelMessage) {
        self.push(SubscriberEvent::Message(message));
    }

    pub(crate) fn set_last_failure(&self, failure: String) {
        lock(&self.state).last_failure = Some(failure);
    }

    /// Whether the subscriber is gone; the supervisor is woken when it is.
    pub(crate) fn poll_no_reader(&self, waker: &Waker) -> bool {
        let mut state = lock(&self.state);
        state.supervisor = Some(waker.clone());
        state.has_no_reader
    }

    pub(crate) fn has_no_reader(&self) -> bool {
        lock(&self.state).has_no_reader
    }

    pub(crate) fn end_loop(&self) {
        let mut state = lock(&self.state);
        state.has_no_loop = true;
        state.changed.take().into_iter().for_each(Waker::wake);
        if let Some(reader) = state.reader.take() {
            reader.wake();
        }
    }
}

impl SubscriberState {
    /// Appends an event. A message for which there is no room becomes a gap; other events are few, and merge.
    fn push(&mut self, event: SubscriberEvent) {
        self.counts.messages += u64::from(matches!(event, SubscriberEvent::Message(_)));
        self.counts.connections += u64::from(event == SubscriberEvent::Up);
        let is_message = matches!(event, SubscriberEvent::Message(_));
        let bytes = bytes_of(&event);
        let is_acknowledgement = matches!(event, SubscriberEvent::Subscribed(_));
        let others = self.events.len() - self.acknowledgements;
        let is_full = others >= EVENTS_MAX || self.event_bytes.saturating_add(bytes) > EVENT_BYTES_MAX;
        let is_lost = is_message && is_full && !self.events.is_empty();
        let event = if is_lost { SubscriberEvent::Gap } else { event };
        if self.has_no_reader {
            return;
        }
        // The gap of a connection stays beside that of lost messages: an application may have to tell them apart.
        if is_lost && self.events.back() == Some(&event) {
            return;
        }
        self.counts.gaps += u64::from(event == SubscriberEvent::Gap);
        self.acknowledgements += usize::from(is_acknowledgement);
        if !is_acknowledgement && others >= EVENTS_MAX + STATES_MAX {
            // The connection comes and goes while the application takes nothing: the last states say all of it.
            let mut places = 0..;
            self.events.retain(|event| {
                matches!(event, SubscriberEvent::Subscribed(_)) || places.next().is_some_and(|place| place < EVENTS_MAX)
            });
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

#[cfg(test)]
mod tests {
    use tidegate_testkit::allocations::Region;

    use super::*;

    #[test]
    fn a_channel_takes_less_than_50_bytes_beside_its_name() {
        const CHANNELS: usize = 5_000;
        let queue = SubscriberQueue::default();
        let name = |number: usize| Bytes::from(format!("tidegate:{{.room-{number}}}"));
        let region = Region::new();
        for number in 0..CHANNELS {
            queue.change(true, SubscriptionName { kind: SubscriptionKind::Channel, name: name(number) });
        }
        let names: usize = (0..CHANNELS).map(|number| name(number).len()).sum();
        let each = (region.change().bytes_in_use() as usize - names) / CHANNELS;
        println!("a channel takes {each} bytes beside its name");
        assert!(each < 50, "{each}");
    }

    #[test]
    fn messages_that_are_lost_before_a_new_connection_is_up_have_a_gap_of_their_own() {
        let queue = SubscriberQueue::default();
        let message = || ChannelMessage { channel: "a".into(), pattern: None, payload: Bytes::new() };
        queue.up();
        (0..EVENTS_MAX).for_each(|_| queue.message(message()));
        queue.down(true);
        (0..2).for_each(|_| queue.message(message()));
        queue.up();
        let events = &lock(&queue.state).events;
        let states: Vec<_> =
            events.iter().filter(|event| !matches!(event, SubscriberEvent::Message(_))).cloned().collect();
        // The last message of the first connection had no room either.
        let (gap, up, down) = (SubscriberEvent::Gap, SubscriberEvent::Up, SubscriberEvent::Down);
        assert_eq!(states, [up.clone(), gap.clone(), down, gap.clone(), gap, up]);
    }
}
