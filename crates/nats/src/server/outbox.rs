//! `Outbox`: the messages for one connection, from handlers on all loops.
//!
//! Invariant: a connection has been woken if its outbox is not empty, unless the mailbox of its loop was full; then the next
//! message, or the next PING, finds the rest.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use tidegate_engine::Remote;

/// Wakes a connection of a [`Broker`](crate::Broker): its outbox has messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WakeUp;

/// A line and the bytes behind it.
pub(super) type Encoded = (Bytes, Bytes);

/// The messages for a connection.
#[derive(Debug)]
pub(super) struct Outbox {
    bytes_max: usize,
    state: Mutex<OutboxState>,
}

#[derive(Debug, Default)]
struct OutboxState {
    waiting: VecDeque<Encoded>,
    bytes: usize,
    remote: Option<Remote<WakeUp>>,
    is_woken: bool,
    /// The client reads too slowly.
    is_cut: bool,
    is_closed: bool,
    /// A subscription has had all its messages.
    has_ended: bool,
}

impl Outbox {
    pub(super) fn new(bytes_max: usize) -> Self {
        Self { bytes_max, state: Mutex::default() }
    }

    pub(super) fn open(&self, remote: Remote<WakeUp>) {
        self.state().remote = Some(remote);
    }

    /// Appends a message. Returns false if that makes the client a slow consumer, for the first time.
    pub(super) fn push(&self, message: Encoded) -> bool {
        let mut state = self.state();
        if state.is_closed || state.is_cut {
            return true;
        }
        let bytes = cost(&message);
        state.is_cut = !state.waiting.is_empty() && state.bytes.saturating_add(bytes) > self.bytes_max;
        if state.is_cut {
            state.waiting.clear();
            state.bytes = 0;
        } else {
            state.bytes += bytes;
            state.waiting.push_back(message);
        }
        if !state.is_woken || state.is_cut {
            state.is_woken = state.remote.as_ref().is_some_and(|remote| remote.post(WakeUp).is_ok());
        }
        !state.is_cut
    }

    pub(super) fn pop(&self) -> Option<Encoded> {
        let mut state = self.state();
        state.is_woken = false;
        let message = state.waiting.pop_front()?;
        state.bytes -= cost(&message);
        Some(message)
    }

    /// Whether a message would reach the client.
    pub(super) fn is_open(&self) -> bool {
        let state = self.state();
        !state.is_closed && !state.is_cut
    }

    /// The message that follows is the last one of its subscription.
    pub(super) fn subscription_ended(&self) {
        self.state().has_ended = true;
    }

    /// Whether a subscription has ended since the last call.
    pub(super) fn take_ended(&self) -> bool {
        std::mem::take(&mut self.state().has_ended)
    }

    pub(super) fn is_cut(&self) -> bool {
        self.state().is_cut
    }

    pub(super) fn close(&self) {
        let mut state = self.state();
        state.is_closed = true;
        state.waiting = VecDeque::new();
        state.bytes = 0;
    }

    fn state(&self) -> MutexGuard<'_, OutboxState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The bytes, and the memory beside them.
fn cost((line, body): &Encoded) -> usize {
    line.len() + body.len() + size_of::<Encoded>()
}
