//! The task that connects a node, its broker and the rooms of this process.
//!
//! Rooms put their calls into an [`Inbox`] on any thread. The task takes all of them at once, gives them to the node, and
//! executes the node's outputs. It never waits for members: a room puts a message into mailboxes.

use std::collections::HashMap;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use tidegate_engine::{BackplaneRoom, NodePresence, RoomMessage, task};

use crate::broker::{Broker, BrokerEvent, HistoryBounds, RoomName};
use crate::counts::BackplaneCounts;
use crate::fault::BackplaneFault;
use crate::limits::NodeLimits;
use crate::node::{Node, Output};

/// A call of a room.
pub(crate) enum RoomCall {
    /// With the time at which the first member entered.
    Attach(RoomName, Option<HistoryBounds>, Arc<dyn BackplaneRoom>, Instant),
    Detach(RoomName),
    PresenceChanged(RoomName),
    Publish(RoomName, Option<HistoryBounds>, RoomMessage),
}

/// The rooms with members in this process.
type AttachedRooms = HashMap<RoomName, Arc<dyn BackplaneRoom>>;

/// The state that the handles and the task share.
#[derive(Default)]
pub(crate) struct Inbox {
    state: Mutex<InboxState>,
}

#[derive(Default)]
struct InboxState {
    calls: Vec<RoomCall>,
    /// Messages among the calls and those that the node has taken since it last reported its queue, and their bytes.
    messages: usize,
    bytes: usize,
    waker: Option<Waker>,
    counts: BackplaneCounts,
    /// The fault of the last report.
    fault: Option<BackplaneFault>,
    /// Bytes of the messages that wait in the node.
    queued_bytes: usize,
    refused: u64,
    is_closed: bool,
    has_ended: bool,
    end_waker: Option<Waker>,
}

impl Inbox {
    fn lock(&self) -> MutexGuard<'_, InboxState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a call. Returns whether there was room for it: only messages are refused.
    pub(crate) fn push(&self, call: RoomCall, limits: &NodeLimits) -> bool {
        let mut state = self.lock();
        if let RoomCall::Publish(name, _, message) = &call {
            let queued = state.messages.saturating_add(state.counts.queued_messages as usize);
            let queued_bytes = state.bytes.saturating_add(state.queued_bytes);
            let is_full = queued >= limits.queued_messages_max
                || queued_bytes.saturating_add(message.bytes.len()) > limits.queued_bytes_max;
            if is_full || name.len() > limits.room_name_bytes_max || state.is_closed {
                state.refused += 1;
                return false;
            }
            state.messages += 1;
            state.bytes += message.bytes.len();
        }
        if state.is_closed {
            return true;
        }
        state.calls.push(call);
        let waker = state.waker.take();
        drop(state);
        waker.into_iter().for_each(Waker::wake);
        true
    }

    /// The numbers of the node, which has queued or refused the `taken` messages, and their bytes.
    fn report(
        &self,
        counts: BackplaneCounts,
        fault: Option<BackplaneFault>,
        queued_bytes: usize,
        taken: (usize, usize),
    ) {
        let mut state = self.lock();
        (state.counts, state.fault, state.queued_bytes) = (counts, fault, queued_bytes);
        (state.messages, state.bytes) = (state.messages - taken.0, state.bytes - taken.1);
    }

    pub(crate) fn counts(&self) -> BackplaneCounts {
        let state = self.lock();
        BackplaneCounts { refused: state.refused + state.counts.refused, ..state.counts }
    }

    /// Why the node cannot do its work at present.
    pub(crate) fn fault(&self) -> Option<BackplaneFault> {
        let state = self.lock();
        state.fault.clone().or_else(|| (!state.counts.is_up).then_some(BackplaneFault::NotConnected(None)))
    }

    /// Waits until the task has ended.
    pub(crate) async fn closed(&self) {
        poll_fn(|cx| {
            let mut state = self.lock();
            if state.has_ended {
                return Poll::Ready(());
            }
            state.end_waker = Some(cx.waker().clone());
            Poll::Pending
        })
        .await;
    }

    /// Ends the task.
    pub(crate) fn close(&self) {
        let mut state = self.lock();
        state.is_closed = true;
        let waker = state.waker.take();
        drop(state);
        waker.into_iter().for_each(Waker::wake);
    }
}

/// Runs a node until its inbox is closed, or the broker's loop has ended.
pub(crate) async fn drive<B: Broker>(mut node: Node, mut broker: B, inbox: Arc<Inbox>, names_max: usize) {
    let mut rooms: AttachedRooms = HashMap::new();
    let mut undelivered = 0;
    loop {
        let mut taken = (0, 0);
        // Attempts to connect are no events.
        let look_at = (!node.counts().is_up).then(|| task::now() + LOOK_AFTER);
        let mut sleep = [node.poll_timeout(), look_at].into_iter().flatten().min().map(task::sleep_until);
        let goes_on = poll_fn(|cx| {
            if let Some(sleep) = &mut sleep
                && pin!(sleep).poll(cx).is_ready()
            {
                node.handle_timeout(task::now());
                return Poll::Ready(true);
            }
            match take_calls(&inbox, &mut node, (&mut rooms, &mut taken), cx) {
                Some(true) => return Poll::Ready(true),
                Some(false) => {}
                None => return Poll::Ready(false),
            }
            match broker.poll_event(cx) {
                Poll::Ready(Some(event)) => {
                    log(&event, &node);
                    node.handle_event(event, task::now());
                    Poll::Ready(true)
                }
                Poll::Ready(None) => Poll::Ready(false),
                Poll::Pending => Poll::Pending,
            }
        })
        .await;
        while let Some(output) = node.poll_output() {
            undelivered += u64::from(!execute(output, &mut node, &mut broker, &mut rooms, names_max));
        }
        let counts = BackplaneCounts { undelivered, ..node.counts() };
        inbox.report(counts, fault_of(&node, &broker), node.queued_bytes(), taken);
        if !goes_on {
            break;
        }
    }
    let mut state = inbox.lock();
    state.is_closed = true;
    (state.counts.is_up, state.fault) = (false, None);
    state.has_ended = true;
    let (calls, waker) = (std::mem::take(&mut state.calls), state.end_waker.take());
    drop(state);
    waker.into_iter().for_each(Waker::wake);
    // They may be the last handles of rooms.
    drop(calls);
}

/// Logs refusals: the first one, since each room may have one.
fn log(event: &BrokerEvent, node: &Node) {
    match event {
        BrokerEvent::Refused { room, reason } if node.counts().refused_rooms == 0 => {
            let room: String = room.chars().take(LOGGED_NAME_MAX).collect();
            tracing::warn!(subsystem = "backplane", ?room, %reason, "the broker refuses the subscription of a room");
        }
        BrokerEvent::RefusesMessages(Some(reason)) => {
            tracing::warn!(subsystem = "backplane", %reason, "the broker refuses messages");
        }
        BrokerEvent::RefusesMessages(None) => {
            tracing::info!(subsystem = "backplane", "the broker takes messages again");
        }
        _ => {}
    }
}

fn fault_of(node: &Node, broker: &impl Broker) -> Option<BackplaneFault> {
    if !node.counts().is_up {
        return Some(BackplaneFault::NotConnected(broker.last_failure().map(Into::into)));
    }
    node.refusal().cloned().map(BackplaneFault::RefusesMessages)
}

/// Gives the calls of rooms to the node. Returns whether there were some, or nothing if the inbox is closed. `taken` are the
/// messages among them, and their bytes: they count as waiting until the node reports its queue.
fn take_calls(
    inbox: &Inbox,
    node: &mut Node,
    (rooms, taken): (&mut AttachedRooms, &mut (usize, usize)),
    cx: &Context<'_>,
) -> Option<bool> {
    let mut state = inbox.lock();
    if state.is_closed {
        return None;
    }
    let calls = std::mem::take(&mut state.calls);
    *taken = (state.messages, state.bytes);
    state.waker = Some(cx.waker().clone());
    drop(state);
    let (now, has_calls) = (task::now(), !calls.is_empty());
    for call in calls {
        match call {
            RoomCall::Attach(name, history, room, entered_at) => {
                node.attach(&name, history, entered_at);
                // Another room of the same name, such as one of other `Rooms`, takes its place.
                rooms.insert(name, room);
            }
            RoomCall::Detach(name) => node.detach(&name, now),
            RoomCall::PresenceChanged(name) => node.presence_changed(&name, now),
            // The node counts the messages that it refuses.
            RoomCall::Publish(name, history, message) => drop(node.publish(&name, history, message, now)),
        }
    }
    Some(has_calls)
}

/// Executes an output. Returns `false` if a loop did not take a message.
fn execute<B: Broker>(
    output: Output,
    node: &mut Node,
    broker: &mut B,
    rooms: &mut AttachedRooms,
    names_max: usize,
) -> bool {
    match output {
        Output::BrokerRequest(request) => broker.request(request),
        Output::Opened(name, position, messages) => with(rooms, &name, |room| room.opened(position, messages)),
        Output::Deliver(name, delivery) => return rooms.get(&name).is_none_or(|room| room.deliver(delivery)),
        Output::Gap(name, position) => with(rooms, &name, |room| room.gap(position)),
        Output::Connected(name, is_connected) => with(rooms, &name, |room| room.connected(is_connected)),
        Output::NodePresence(name, id, members) => with(rooms, &name, |room| room.node_presence(id, members)),
        Output::Closing(name) => {
            if rooms.get(&name).is_none_or(|room| room.try_close()) {
                node.close(&name);
                rooms.remove(&name);
            }
        }
        Output::Describe(names) => {
            let describe = |name: RoomName| {
                let members = rooms.get(&name).map_or_else(NodePresence::default, |room| room.presence(names_max));
                (name, members)
            };
            let described = names.into_iter().map(describe).collect();
            node.presence(described, task::now());
        }
    }
    true
}

fn with(rooms: &AttachedRooms, name: &RoomName, call: impl FnOnce(&dyn BackplaneRoom)) {
    if let Some(room) = rooms.get(name) {
        call(&**room);
    }
}

/// While the broker is not connected, the node looks so often for the reason.
const LOOK_AFTER: Duration = Duration::from_secs(1);
/// Characters of a room name in the log.
const LOGGED_NAME_MAX: usize = 100;

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use tidegate_engine::{Backend, EventLoop, MessageForm, NodeId};

    use super::*;

    #[test]
    fn messages_that_the_node_takes_count_until_it_reports_its_queue() {
        let mut limits = NodeLimits::default();
        (limits.queued_messages_max, limits.queued_bytes_max) = (10, 1000);
        let mut event_loop = EventLoop::on(Backend::Auto).expect("a loop");
        for (length, fitting) in [(1, 10), (300, 3)] {
            let (inbox, mut node) = (Inbox::default(), Node::new(NodeId([1; 16]), limits.clone()));
            let push = || {
                let bytes = Bytes::from(vec![b'x'; length]);
                let message = RoomMessage { bytes, form: MessageForm::Plain, is_announcement: false };
                inbox.push(RoomCall::Publish("tides".into(), None, message), &limits)
            };
            assert_eq!((0..20).filter(|_| push()).count(), fitting);
            let (mut taken, mut rooms) = ((0, 0), HashMap::new());
            let cx = Context::from_waker(Waker::noop());
            let take = async { take_calls(&inbox, &mut node, (&mut rooms, &mut taken), &cx) };
            assert_eq!(event_loop.block_on(take).expect("the loop runs"), Some(true));
            assert!(!push(), "the node has not reported its queue yet");
            inbox.report(node.counts(), None, node.queued_bytes(), taken);
            // The first message is on its way to the broker: its bytes wait no more.
            assert_eq!(push(), length == 300);
            assert!(!push());
        }
    }
}
