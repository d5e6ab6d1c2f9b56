//! `SubscriberQueue`: the events that an application has not taken, between the loop and a subscriber.
//!
//! Invariant: `Up` is reported after the server has acknowledged all subscriptions that were wanted when the connection began,
//! and `Gap` before it, unless it is the first.

use std::collections::VecDeque;
use std::sync::Mutex;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;

use crate::client::config::ClientLimits;
use crate::client::counts::SubscriberCounts;
use crate::client::message::Message;
use crate::client::results::lock;

/// An event of a [`Subscriber`](crate::Subscriber).
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum SubscriberEvent {
    /// A message.
    Message(Message),
    /// Messages may have been lost before this point: there was no connection, or the application did not take the messages
    /// in time.
    Gap,
    /// The server has acknowledged all subscriptions.
    Up,
    /// The connection is lost; the client connects again.
    Down,
    /// The server refuses the subscription of this filter: the user may not have it, or has too many. The next connection tries
    /// it again, and so does [`subscribe`](crate::Subscriptions::subscribe). Where the server does not name the subscription
    /// that is one too many, this comes for each that the server has not confirmed.
    Refused(Bytes),
    /// The subscription of this filter has ended: it has had all messages that
    /// [`unsubscribe_after`](crate::Subscriptions::unsubscribe_after) allows.
    Ended(Bytes),
}

/// The events of a subscriber.
#[derive(Debug)]
pub(crate) struct SubscriberQueue {
    limits: ClientLimits,
    state: Mutex<QueueState>,
}

#[derive(Debug, Default)]
struct QueueState {
    events: VecDeque<SubscriberEvent>,
    bytes: usize,
    reader: Option<Waker>,
    has_no_reader: bool,
    /// No event follows those that wait.
    has_ended: bool,
    is_up: bool,
    was_up: bool,
    counts: SubscriberCounts,
}

impl SubscriberQueue {
    pub(crate) fn new(limits: ClientLimits) -> Self {
        Self { limits, state: Mutex::default() }
    }

    pub(crate) fn poll_event(&self, cx: &Context<'_>) -> Poll<Option<SubscriberEvent>> {
        let mut state = lock(&self.state);
        if let Some(event) = state.events.pop_front() {
            state.bytes -= bytes_of(&event);
            return Poll::Ready(Some(event));
        }
        if state.has_ended {
            return Poll::Ready(None);
        }
        state.reader = Some(cx.waker().clone());
        Poll::Pending
    }

    /// The next event, if one waits.
    pub(crate) fn try_event(&self) -> Option<SubscriberEvent> {
        let mut state = lock(&self.state);
        let event = state.events.pop_front()?;
        state.bytes -= bytes_of(&event);
        Some(event)
    }

    pub(crate) fn end_reader(&self) {
        let mut state = lock(&self.state);
        state.has_no_reader = true;
        state.events.clear();
        state.bytes = 0;
    }

    pub(crate) fn end(&self) {
        let mut state = lock(&self.state);
        state.has_ended = true;
        let reader = state.reader.take();
        drop(state);
        reader.into_iter().for_each(Waker::wake);
    }

    pub(crate) fn counts(&self) -> SubscriberCounts {
        let state = lock(&self.state);
        let (events, bytes) = (state.events.len() as u64, state.bytes as u64);
        SubscriberCounts { pending_events: events, pending_bytes: bytes, ..state.counts }
    }

    pub(crate) fn up(&self) {
        let mut state = lock(&self.state);
        if std::mem::replace(&mut state.is_up, true) {
            return;
        }
        let mut reader = None;
        if std::mem::replace(&mut state.was_up, true) {
            reader = state.push(SubscriberEvent::Gap, &self.limits);
        }
        state.counts.connections += 1;
        let other = state.push(SubscriberEvent::Up, &self.limits);
        drop(state);
        reader.or(other).into_iter().for_each(Waker::wake);
    }

    pub(crate) fn down(&self) {
        let mut state = lock(&self.state);
        let reader =
            if std::mem::take(&mut state.is_up) { state.push(SubscriberEvent::Down, &self.limits) } else { None };
        drop(state);
        reader.into_iter().for_each(Waker::wake);
    }

    pub(crate) fn push(&self, event: SubscriberEvent) {
        let mut state = lock(&self.state);
        let reader = state.push(event, &self.limits);
        drop(state);
        reader.into_iter().for_each(Waker::wake);
    }
}

impl QueueState {
    /// Appends an event. A message for which there is no room becomes a gap; other events are few, and merge. Returns the task
    /// to wake.
    fn push(&mut self, event: SubscriberEvent, limits: &ClientLimits) -> Option<Waker> {
        let is_message = matches!(event, SubscriberEvent::Message(_));
        self.counts.messages += u64::from(is_message);
        if self.has_no_reader || self.has_ended {
            return None;
        }
        let is_full = self.events.len() >= limits.subscriber_messages_max
            || self.bytes.saturating_add(bytes_of(&event)) > limits.subscriber_bytes_max;
        let is_lost = is_message && is_full && !self.events.is_empty();
        self.counts.lost += u64::from(is_lost);
        let event = if is_lost { SubscriberEvent::Gap } else { event };
        // The gap of a connection stays beside that of lost messages: an application may have to tell them apart.
        if is_lost && self.events.back() == Some(&event) {
            return None;
        }
        self.counts.gaps += u64::from(event == SubscriberEvent::Gap);
        if self.events.len() >= limits.subscriber_messages_max.saturating_add(STATES_MAX) {
            // The connection comes and goes while the application takes nothing: the last states say all of it.
            let removed = self.events.drain(limits.subscriber_messages_max.max(1)..);
            let removed: usize = removed.map(|event| bytes_of(&event)).sum();
            self.bytes -= removed;
            self.events.push_back(SubscriberEvent::Gap);
        }
        self.bytes += bytes_of(&event);
        self.events.push_back(event);
        self.reader.take()
    }
}

fn bytes_of(event: &SubscriberEvent) -> usize {
    match event {
        SubscriberEvent::Message(message) => message.bytes(),
        SubscriberEvent::Refused(filter) | SubscriberEvent::Ended(filter) => filter.len(),
        _ => 0,
    }
}

/// States of the connection that wait behind the messages.
const STATES_MAX: usize = 64;
