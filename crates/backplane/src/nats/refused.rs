//! `RefusedRooms`: rooms whose subscriptions the server refuses, since the user may not have them, or has too many. A task
//! subscribes them again, one after the other: so it is known which of them is refused once more.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::{Rc, Weak};
use std::time::Duration;

use bytes::Bytes;
use tidegate_engine::{Backoff, task};
use tidegate_nats::{Client, Subscriptions};

use crate::broker::{BrokerEvent, RoomName};
use crate::broker_events::RequestEvents;

pub(super) struct RefusedRooms {
    client: Client,
    subscriptions: Subscriptions,
    events: Rc<RequestEvents>,
    /// By their subjects.
    rooms: RefCell<BTreeMap<Bytes, RoomName>>,
    /// The subject of the last attempt.
    last: RefCell<Bytes>,
    is_retrying: Cell<bool>,
    backoff: Backoff,
}

impl RefusedRooms {
    pub(super) fn new(client: Client, subscriptions: Subscriptions, events: Rc<RequestEvents>) -> Rc<Self> {
        Rc::new(Self {
            client,
            subscriptions,
            events,
            rooms: RefCell::default(),
            last: RefCell::default(),
            is_retrying: Cell::new(false),
            backoff: Backoff::new(PAUSE_MIN, PAUSE_MAX),
        })
    }

    /// The server refuses the subscription of a room. Returns whether it did not do so before.
    pub(super) fn add(self: &Rc<Self>, subject: Bytes, room: RoomName) -> bool {
        let is_new = self.rooms.borrow_mut().insert(subject, room).is_none();
        if !self.is_retrying.replace(true) {
            drop(task::spawn(retry(Rc::downgrade(self))));
        }
        is_new
    }

    /// The room is not wanted any more, or is subscribed.
    pub(super) fn remove(&self, subject: &Bytes) {
        self.rooms.borrow_mut().remove(subject);
    }

    /// The connection is lost: the next one begins with all subscriptions.
    pub(super) fn clear(&self) {
        self.rooms.borrow_mut().clear();
    }

    /// The room behind that of the last attempt.
    fn next(&self) -> Option<Bytes> {
        let (rooms, mut last) = (self.rooms.borrow(), self.last.borrow_mut());
        let behind = (std::ops::Bound::Excluded(&*last), std::ops::Bound::Unbounded);
        let next = rooms.range::<Bytes, _>(behind).next().or_else(|| rooms.first_key_value())?.0.clone();
        *last = next.clone();
        Some(next)
    }

    /// Subscribes a room again. Returns whether the server takes it.
    async fn subscribe_again(&self, subject: &Bytes) -> bool {
        if self.subscriptions.subscribe(subject.clone()).is_err()
            || self.client.flush().await.is_err()
            || self.subscriptions.is_refused(subject)
        {
            return false;
        }
        // It may have been left meanwhile, and the connection may be another one.
        if let Some(room) = self.rooms.borrow_mut().remove(subject) {
            self.events.extend([BrokerEvent::Subscribed(room)]);
        }
        true
    }
}

/// Subscribes rooms again until the server refuses none, or the node has ended.
async fn retry(refused: Weak<RefusedRooms>) {
    let (mut failures, mut attempt) = (0, 0);
    loop {
        let Some(pause) = refused.upgrade().map(|refused| {
            let delay = refused.backoff.delay(failures);
            delay / 2 + refused.backoff.random_part(delay / 2, attempt)
        }) else {
            return;
        };
        task::sleep(pause).await;
        attempt += 1;
        let mut has_progress = false;
        let mut left = match refused.upgrade() {
            Some(refused) => refused.rooms.borrow().len().min(ROOMS_PER_ROUND),
            None => return,
        };
        while left > 0 {
            left -= 1;
            let Some(refused) = refused.upgrade() else { return };
            let Some(subject) = refused.next() else { break };
            has_progress |= refused.subscribe_again(&subject).await;
        }
        let Some(refused) = refused.upgrade() else { return };
        if refused.rooms.borrow().is_empty() {
            refused.is_retrying.set(false);
            return;
        }
        failures = if has_progress { 0 } else { failures.saturating_add(1).min(FAILURES_MAX) };
    }
}

/// The pause before rooms are subscribed again. It doubles with each round without success.
const PAUSE_MIN: Duration = Duration::from_secs(1);
const PAUSE_MAX: Duration = Duration::from_secs(30);
const FAILURES_MAX: u32 = 16;
/// Rooms of a round: each takes a round trip to the server.
const ROOMS_PER_ROUND: usize = 256;
