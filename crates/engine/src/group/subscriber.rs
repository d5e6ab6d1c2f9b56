//! `RoomSubscriber`: a member of a room that is no connection with the room's codec, such as a stream of server-sent events, or a
//! task. It gets the messages that are [published](Room::publish), as the application gave them.
//!
//! Each subscriber has a queue with a bound. One that is full takes no further message: a subscriber of a room that sheds ends, and
//! one of another room continues from the room's history, or learns of a gap.
//!
//! Locks: the room's state is locked before a queue, never the other way round.

use std::collections::VecDeque;
use std::fmt;
use std::future::poll_fn;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use tidegate_codec::Broadcast;

use super::backplane::{Position, RoomEvent};
use super::room::{Room, RoomError, RoomLimits, SharedRoom, Visit};
use super::room_state::RoomState;
use super::{GroupShared, Slow};

/// An event of a room for a [`RoomSubscriber`].
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum RoomNotice {
    /// A message that was [published](Room::publish).
    Message {
        /// Its bytes.
        bytes: Bytes,
        /// Its position, if it is part of the history.
        position: Option<Position>,
    },
    /// Messages before this point are lost, or cannot be recovered: the client reads its state again.
    Gap {
        /// The position after which messages follow.
        position: Option<Position>,
    },
    /// The connection to the broker is lost. Messages are late or lost.
    Down,
    /// The room receives messages again.
    Up,
    /// The members are [kicked](Room::kick). Nothing follows.
    Kicked {
        /// The code.
        code: u16,
        /// The reason.
        reason: Box<str>,
    },
}

impl RoomNotice {
    fn of(event: RoomEvent<'_>) -> Self {
        match event {
            RoomEvent::Message { bytes, position } => Self::Message { bytes: bytes.clone(), position },
            RoomEvent::Gap { position } => Self::Gap { position },
            RoomEvent::Down => Self::Down,
            RoomEvent::Up => Self::Up,
            RoomEvent::Kicked(kick) => Self::Kicked { code: kick.code, reason: kick.reason.into() },
        }
    }

    fn position(&self) -> Option<Position> {
        match self {
            Self::Message { position, .. } | Self::Gap { position } => *position,
            Self::Down | Self::Up | Self::Kicked { .. } => None,
        }
    }

    fn len(&self) -> usize {
        if let Self::Message { bytes, .. } = self { bytes.len() } else { 0 }
    }
}

/// A member of a room that receives its events one after the other; it is present until it is dropped.
///
/// ```
/// use tidegate::framing::Lines;
/// use tidegate::{Backend, Bytes, EventLoop, RoomLimits, RoomNotice, Rooms, Slow};
///
/// let rooms = Rooms::<Lines>::new(Slow::Skip, RoomLimits::default()).encoding(|_| None);
/// let room = rooms.room("tides").ok_or("too many rooms")?;
/// let mut subscriber = room.subscribe(None, ())?;
/// room.publish(&Bytes::from_static(b"high water"))?;
/// let notice = EventLoop::on(Backend::Auto)?.block_on(async move { subscriber.recv().await })?;
/// assert_eq!(notice, Some(RoomNotice::Message { bytes: Bytes::from_static(b"high water"), position: None }));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "the subscriber is no longer present when it is dropped"]
pub struct RoomSubscriber<C, P = ()> {
    visit: Visit<C, P>,
    queue: Arc<SubscriberQueue>,
}

/// A subscriber in the state of its room.
pub(super) struct SubscriberEntry {
    pub(super) queue: Arc<SubscriberQueue>,
    /// It gets the history behind this position once the room is open.
    waiting: Option<Option<Position>>,
}

/// The events that wait for a subscriber.
#[derive(Default)]
pub(super) struct SubscriberQueue {
    state: Mutex<QueueState>,
}

#[derive(Default)]
struct QueueState {
    notices: VecDeque<RoomNotice>,
    bytes: usize,
    /// The position of the last message that was put in.
    last: Option<Position>,
    /// Events were left out since the queue was full.
    has_missed: bool,
    /// The last of these that said whether the broker is connected.
    missed_link: Option<RoomNotice>,
    is_over: bool,
    waker: Option<Waker>,
}

impl SubscriberQueue {
    fn lock(&self) -> MutexGuard<'_, QueueState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts in an event, if there is room for it.
    fn push(&self, notice: RoomNotice, limits: &RoomLimits, slow: Slow) {
        let mut state = self.lock();
        if state.is_over {
            return;
        }
        let is_last = matches!(notice, RoomNotice::Kicked { .. });
        let is_full = state.notices.len() >= limits.waiting_messages_max
            || state.bytes.saturating_add(notice.len()) > limits.waiting_bytes_max;
        if is_last {
            state.is_over = true;
            state.put(notice);
        } else if !is_full && !state.has_missed {
            state.put(notice);
        } else if slow == Slow::Shed {
            (state.is_over, state.notices, state.bytes) = (true, VecDeque::new(), 0);
        } else {
            state.has_missed = true;
            if matches!(notice, RoomNotice::Down | RoomNotice::Up) {
                state.missed_link = Some(notice);
            }
        }
        let waker = state.waker.take();
        drop(state);
        waker.into_iter().for_each(Waker::wake);
    }

    /// Puts in the history, whose limits bound it, and events that were left out before it.
    fn fill(&self, notices: Vec<RoomNotice>, last: Option<Position>) {
        let mut state = self.lock();
        notices.into_iter().for_each(|notice| state.put(notice));
        state.last = last.or(state.last);
        state.has_missed = false;
        if let Some(link) = state.missed_link.take() {
            state.put(link);
        }
        let waker = state.waker.take();
        drop(state);
        waker.into_iter().for_each(Waker::wake);
    }
}

impl QueueState {
    fn put(&mut self, notice: RoomNotice) {
        self.bytes += notice.len();
        self.last = notice.position().or(self.last);
        self.notices.push_back(notice);
    }

    fn take(&mut self) -> Option<RoomNotice> {
        let notice = self.notices.pop_front()?;
        self.bytes -= notice.len();
        Some(notice)
    }
}

impl<C: Broadcast, P> Room<C, P> {
    /// Enters the room without a connection of its codec: for server-sent events, and tasks. The subscriber gets the history
    /// first, and then each message that is [published](Self::publish); not those that are [sent](Self::send) in the room's
    /// protocol.
    ///
    /// A client that returns names the last position that it has seen: then the history begins behind it. If some of these
    /// messages are gone, or the epoch is another one, the first event is a [`RoomNotice::Gap`], and the whole history
    /// follows. Position 0 of epoch 0 stands for an identifier that is none.
    ///
    /// # Errors
    /// [`RoomError::MembersMax`]: the room is full.
    pub fn subscribe(&self, after: Option<Position>, newcomer: P) -> Result<RoomSubscriber<C, P>, RoomError> {
        let shared = &self.shared;
        let mut state = shared.lock();
        let number = shared.admit(&mut state, newcomer)?;
        let queue = Arc::<SubscriberQueue>::default();
        let is_open = state.is_open;
        if is_open {
            queue.fill(shared.first_notices(&state, after), state.position());
        }
        let waiting = (!is_open).then_some(after);
        state.subscribers.insert(number, SubscriberEntry { queue: queue.clone(), waiting });
        if let Some(link) = &shared.link {
            (link.entered)(shared, state.present.len());
        }
        Ok(RoomSubscriber { visit: Visit { room: self.clone(), number }, queue })
    }
}

impl<C: Broadcast, P> RoomSubscriber<C, P> {
    /// The next event. `None` once the subscriber has been kicked, or is shed since it has not taken its messages in time.
    pub async fn recv(&mut self) -> Option<RoomNotice> {
        poll_fn(|cx| self.poll_recv(cx)).await
    }

    /// As [`recv`](Self::recv), for a task that waits for several things.
    pub fn poll_recv(&mut self, cx: &mut Context<'_>) -> Poll<Option<RoomNotice>> {
        let mut queue = self.queue.lock();
        if let Some(notice) = queue.take() {
            return Poll::Ready(Some(notice));
        }
        if queue.is_over {
            return Poll::Ready(None);
        }
        if queue.has_missed {
            let last = queue.last;
            drop(queue);
            self.recover(last);
            queue = self.queue.lock();
            if let Some(notice) = queue.take() {
                return Poll::Ready(Some(notice));
            }
        }
        queue.waker = Some(cx.waker().clone());
        Poll::Pending
    }

    /// Continues behind the last message that the queue had room for.
    fn recover(&self, last: Option<Position>) {
        let shared = &self.visit.room.shared;
        let state = shared.lock();
        let last = last.or_else(|| state.position().map(|position| Position { offset: 0, ..position }));
        let notices = match last {
            Some(last) => shared.first_notices(&state, Some(last)),
            None => vec![RoomNotice::Gap { position: None }],
        };
        self.queue.fill(notices, state.position());
    }
}

impl<C, P> RoomSubscriber<C, P> {
    /// The room.
    #[must_use]
    pub fn room(&self) -> &Room<C, P> {
        self.visit.room()
    }
}

impl<C: Broadcast, P> SharedRoom<C, P> {
    /// The events that a subscriber gets first.
    fn first_notices(&self, state: &RoomState<C, P>, after: Option<Position>) -> Vec<RoomNotice> {
        let Some(after) = after else { return state.notices_after(0).collect() };
        if state.has_all_after(after) {
            return state.notices_after(after.offset).collect();
        }
        let gap = RoomNotice::Gap { position: state.position_before_history() };
        std::iter::once(gap).chain(state.notices_after(0)).collect()
    }

    /// The history is read: subscribers that have waited for it get it.
    pub(super) fn open_subscribers(&self, state: &mut RoomState<C, P>) {
        let mut subscribers = std::mem::take(&mut state.subscribers);
        for subscriber in subscribers.values_mut() {
            if let Some(after) = subscriber.waiting.take() {
                subscriber.queue.fill(self.first_notices(state, after), state.position());
            }
        }
        state.subscribers = subscribers;
    }
}

impl<C, P> SharedRoom<C, P> {
    /// Gives an event to the subscribers. Those that wait for the history have no use for any but a kick.
    pub(super) fn notify_subscribers(&self, state: &RoomState<C, P>, event: RoomEvent<'_>) {
        if state.subscribers.is_empty() {
            return;
        }
        let shared: &GroupShared = self.group.shared();
        let is_kick = matches!(event, RoomEvent::Kicked(_));
        let notice = RoomNotice::of(event);
        for subscriber in state.subscribers.values().filter(|subscriber| is_kick || subscriber.waiting.is_none()) {
            subscriber.queue.push(notice.clone(), &self.limits, shared.slow);
        }
    }
}

impl<C, P> fmt::Debug for RoomSubscriber<C, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RoomSubscriber").field("visit", &self.visit).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
