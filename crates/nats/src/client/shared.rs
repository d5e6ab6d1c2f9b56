//! `Shared`: the state that all handles of a client and its loop share: operations that wait to be sent, subscriptions, requests.
//!
//! A handle on any thread appends an operation, and wakes the loop if it has not been woken yet. The connection takes
//! operations in that order, all that came since its last turn at once.
//!
//! Invariant: while a connection is linked, each change of `subscriptions` has an operation behind those that wait. A connection
//! begins with all subscriptions, and the operations that changed them before are removed.

use std::collections::{BTreeMap, VecDeque};
use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use bytes::Bytes;
use tidegate_engine::Remote;

use crate::client::config::ClientLimits;
use crate::client::counts::ClientCounts;
use crate::client::error::{ClientError, Failure};
use crate::client::events::{ClientEvent, EventQueue};
use crate::client::message::Message;
use crate::client::results::{Results, SharedSlot, finish, lock};
use crate::client::server_error::{ServerError, ServerErrorKind};
use crate::client::subscriber_queue::{SubscriberEvent, SubscriberQueue};
use crate::client::subscription::{Subscription, SubscriptionTarget};
use crate::info::ServerInfo;
use crate::limits::ProtocolLimits;
use crate::outgoing::OutgoingMessage;

/// Wakes a connection: operations are waiting, or the last handle is gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct WakeUp;

/// An operation that waits to be sent.
#[derive(Debug)]
pub(crate) enum QueuedOperation {
    /// A message, and the request that waits for its reply.
    Publish(OutgoingMessage, Option<u64>),
    Subscribe(Arc<Subscription>),
    /// Messages that the server has sent before are still delivered, until the next PONG, if it `drains`.
    Unsubscribe {
        sid: u64,
        drains: bool,
    },
    UnsubscribeAfter {
        sid: u64,
        max: u64,
    },
    /// PING, whose PONG is the result of a flush.
    Flush(u64),
    /// PING, whose PONG is the `Up` of a subscriber that came while the connection was there.
    SubscriberUp(Arc<SubscriberQueue>),
}

/// The state of a client.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) limits: ClientLimits,
    pub(crate) protocol_limits: ProtocolLimits,
    /// Messages that have come.
    received: AtomicU64,
    state: Mutex<ClientState>,
}

#[derive(Debug, Default)]
struct ClientState {
    waiting: VecDeque<QueuedOperation>,
    bytes: usize,
    /// Tasks that wait for room.
    room_wakers: Vec<Waker>,
    /// The connection, once it takes operations.
    link: Option<Remote<WakeUp>>,
    /// The loop was woken, and has not come yet.
    is_woken: bool,
    /// The connection could not be woken: its mailbox was full, or it is gone.
    is_unwoken: bool,
    supervisor: Option<Waker>,
    has_no_handle: bool,
    /// Why nothing is taken any more.
    ended: Option<Failure>,
    subscriptions: BTreeMap<u64, Arc<Subscription>>,
    /// The IDs of the subscriptions of subscribers, by the address of the queue and the filter.
    sids: BTreeMap<(usize, Bytes), u64>,
    subscribers: Vec<Weak<SubscriberQueue>>,
    last_sid: u64,
    inbox: Option<Arc<Subscription>>,
    results: Results,
    /// Messages that were sent, requests not counted; and how many of them a PONG has confirmed.
    published: u64,
    confirmed: u64,
    /// How many of them were sent before the last flush.
    flushed: u64,
    /// Messages were sent over a connection that is lost, and no flush has failed for it.
    has_lost: bool,
    events: EventQueue,
    info: Option<Arc<ServerInfo>>,
    last_failure: Option<String>,
    counts: ClientCounts,
}

impl ClientState {
    fn has_room(&self, limits: &ClientLimits, charge: usize) -> bool {
        self.waiting.is_empty()
            || (self.waiting.len() < limits.operations_max && self.bytes.saturating_add(charge) <= limits.bytes_max)
    }

    /// Appends an operation, and wakes the loop, unless it was woken already.
    fn push(&mut self, operation: QueuedOperation) {
        self.bytes += charge_of(&operation);
        self.waiting.push_back(operation);
        self.wake_loop();
    }

    fn wake_loop(&mut self) {
        if self.is_woken {
            return;
        }
        self.is_woken = match (&self.link, self.supervisor.take()) {
            // The connection is gone, or the mailbox is full: the supervisor tries again in the next turn of the loop.
            (Some(link), supervisor) => {
                let is_posted = link.post(WakeUp).is_ok();
                self.is_unwoken = !is_posted;
                match supervisor {
                    Some(supervisor) if !is_posted => supervisor.wake(),
                    supervisor => self.supervisor = supervisor,
                }
                is_posted
            }
            (None, Some(supervisor)) => {
                supervisor.wake();
                true
            }
            (None, None) => false,
        };
    }

    /// A subscription changes. Without a connection there is nothing to send: it begins with all of them.
    fn push_change(&mut self, operation: QueuedOperation) {
        if self.link.is_some() {
            self.push(operation);
        }
    }

    fn woken_by_room(&mut self, limits: &ClientLimits) -> Vec<Waker> {
        let has_room = self.waiting.len() <= limits.operations_max / 2 && self.bytes <= limits.bytes_max / 2;
        if has_room { std::mem::take(&mut self.room_wakers) } else { Vec::new() }
    }

    fn payload_max(&self, limits: &ProtocolLimits) -> u64 {
        let accepted = self.info.as_ref().map_or(0, |info| info.max_payload);
        let own = limits.payload_bytes_max as u64;
        if accepted == 0 { own } else { accepted.min(own) }
    }

    /// The connection is lost: the flushes that wait behind messages without a confirmation fail with those that were sent.
    fn fail_flushes(&mut self) {
        if std::mem::replace(&mut self.confirmed, self.published) == self.published {
            return;
        }
        self.has_lost = self.flushed < self.published;
        for operation in &self.waiting {
            let QueuedOperation::Flush(token) = operation else { continue };
            self.has_lost &= !self.results.contains(*token);
            self.results.set_sent(*token, true);
        }
    }

    fn of_filter(&self, queue: &Arc<SubscriberQueue>, filter: &[u8]) -> Option<&Arc<Subscription>> {
        let sid = self.sids.get(&(address_of(queue), Bytes::copy_from_slice(filter)))?;
        self.subscriptions.get(sid)
    }

    /// The subscriptions that an error is about: those of the filter that it names, or, where there are too many, those that the
    /// server has not confirmed.
    fn refused_by(&self, error: &ServerError, unconfirmed: RangeInclusive<u64>) -> Vec<Arc<Subscription>> {
        let refused: Vec<_> = if let Some(filter) = error.refused_filter() {
            let of_subscribers = self.subscribers.iter().filter_map(Weak::upgrade);
            let of_subscribers = of_subscribers.filter_map(|queue| self.of_filter(&queue, filter).cloned());
            of_subscribers.chain(self.inbox.clone().filter(|inbox| inbox.filter == filter)).collect()
        } else if error.kind() == ServerErrorKind::TooManySubscriptions && !unconfirmed.is_empty() {
            self.subscriptions.range(unconfirmed).map(|(_, subscription)| subscription.clone()).collect()
        } else {
            Vec::new()
        };
        refused.into_iter().filter(|subscription| subscription.refuse()).collect()
    }

    fn remove(&mut self, sid: u64) -> Option<Arc<Subscription>> {
        let subscription = self.subscriptions.remove(&sid)?;
        if let SubscriptionTarget::Subscriber(queue) = &subscription.target {
            self.sids.remove(&(address_of(queue), subscription.filter.clone()));
        }
        Some(subscription)
    }
}

impl Shared {
    pub(crate) fn new(limits: ClientLimits, protocol_limits: ProtocolLimits) -> Self {
        Self {
            limits,
            protocol_limits: protocol_limits.effective(),
            received: AtomicU64::new(0),
            state: Mutex::default(),
        }
    }

    /// Appends a message.
    pub(crate) fn publish(&self, message: OutgoingMessage) -> Result<(), ClientError> {
        let mut state = lock(&self.state);
        self.check(&state, &message)?;
        state.push(QueuedOperation::Publish(message, None));
        Ok(())
    }

    /// Appends a request, whose reply goes into the slot. `prefix` makes the subjects of replies, once.
    pub(crate) fn request(
        &self,
        mut message: OutgoingMessage,
        slot: &SharedSlot,
        timeout: std::time::Duration,
        prefix: impl FnOnce() -> String,
    ) -> Result<u64, ClientError> {
        let mut state = lock(&self.state);
        self.check(&state, &message)?;
        if state.results.len() >= self.limits.requests_max {
            return Err(ClientError::NotSent(Failure::QueueFull));
        }
        let inbox = match &state.inbox {
            Some(inbox) => inbox.clone(),
            None => {
                let filter = Bytes::from(format!("{}.*", prefix()));
                state.last_sid += 1;
                let inbox = Arc::new(Subscription::new(state.last_sid, filter, None, SubscriptionTarget::Inbox));
                state.inbox = Some(inbox.clone());
                state.subscriptions.insert(inbox.sid, inbox.clone());
                state.push_change(QueuedOperation::Subscribe(inbox.clone()));
                inbox
            }
        };
        let token = state.results.add(slot.clone(), timeout);
        let mut reply = inbox.filter[..inbox.filter.len() - 1].to_vec();
        reply.extend_from_slice(itoa::Buffer::new().format(token).as_bytes());
        message.reply = Some(reply.into());
        state.counts.requests += 1;
        state.push(QueuedOperation::Publish(message, Some(token)));
        Ok(token)
    }

    /// Appends a flush, whose result goes into the slot.
    pub(crate) fn flush(&self, slot: &SharedSlot, timeout: std::time::Duration) -> Result<u64, ClientError> {
        let mut state = lock(&self.state);
        if let Some(failure) = state.ended {
            return Err(ClientError::NotSent(failure));
        }
        if std::mem::take(&mut state.has_lost) {
            return Err(ClientError::MaybeProcessed(Failure::ConnectionLost));
        }
        if state.results.len() >= self.limits.requests_max {
            return Err(ClientError::NotSent(Failure::QueueFull));
        }
        let token = state.results.add(slot.clone(), timeout);
        state.push(QueuedOperation::Flush(token));
        Ok(token)
    }

    /// A result that comes from the clock of the loop only.
    pub(crate) fn timer(&self, slot: &SharedSlot, timeout: std::time::Duration) -> u64 {
        let mut state = lock(&self.state);
        let token = state.results.add(slot.clone(), timeout);
        state.wake_loop();
        token
    }

    /// Nothing waits for this result any more. A request that was not sent yet is not sent.
    pub(crate) fn abandon(&self, token: u64) {
        lock(&self.state).results.take(token);
    }

    fn check(&self, state: &ClientState, message: &OutgoingMessage) -> Result<(), ClientError> {
        if let Some(failure) = state.ended {
            return Err(ClientError::NotSent(failure));
        }
        let (bytes, bytes_max) = (message.message_bytes(), state.payload_max(&self.protocol_limits));
        if bytes as u64 > bytes_max {
            return Err(ClientError::TooLong { bytes, bytes_max });
        }
        message.check(&self.protocol_limits).map_err(ClientError::Invalid)?;
        if !state.has_room(&self.limits, bytes + OPERATION_BYTES) {
            return Err(ClientError::NotSent(Failure::QueueFull));
        }
        Ok(())
    }

    /// Ready once half of the queue is free, or nothing is taken any more.
    pub(crate) fn poll_room(&self, cx: &Context<'_>) -> Poll<()> {
        let mut state = lock(&self.state);
        if state.ended.is_some() || state.has_room(&self.limits, OPERATION_BYTES) {
            return Poll::Ready(());
        }
        state.room_wakers.retain(|waker| !waker.will_wake(cx.waker()));
        state.room_wakers.push(cx.waker().clone());
        Poll::Pending
    }

    /// A queue for a new subscriber.
    pub(crate) fn subscriber(&self) -> Arc<SubscriberQueue> {
        let queue = Arc::new(SubscriberQueue::new(self.limits));
        let mut state = lock(&self.state);
        if state.ended.is_some() {
            queue.end();
            return queue;
        }
        state.subscribers.push(Arc::downgrade(&queue));
        state.push_change(QueuedOperation::SubscriberUp(queue.clone()));
        queue
    }

    pub(crate) fn forget_subscriber(&self, queue: &Arc<SubscriberQueue>) {
        lock(&self.state).subscribers.retain(|other| other.as_ptr() != Arc::as_ptr(queue));
    }

    pub(crate) fn subscribe(
        &self,
        filter: Bytes,
        queue_group: Option<Bytes>,
        target: SubscriptionTarget,
    ) -> Result<(), ClientError> {
        let SubscriptionTarget::Subscriber(queue) = &target else { return Ok(()) };
        let key = (address_of(queue), filter.clone());
        let mut state = lock(&self.state);
        if let Some(failure) = state.ended {
            return Err(ClientError::NotSent(failure));
        }
        if let Some(sid) = state.sids.get(&key).copied() {
            if !state.subscriptions.get(&sid).is_some_and(|subscription| subscription.is_refused()) {
                return Ok(());
            }
            // The server may have it nevertheless, if the refusal was another one's.
            state.remove(sid);
            state.push_change(QueuedOperation::Unsubscribe { sid, drains: false });
        }
        let line = filter.len() + queue_group.as_ref().map_or(0, Bytes::len) + OPERATION_BYTES;
        if state.sids.len() >= self.limits.subscriptions_max {
            return Err(ClientError::NotSent(Failure::QueueFull));
        }
        if line > self.protocol_limits.control_line_bytes_max {
            return Err(ClientError::Invalid(crate::NatsError::Unsendable));
        }
        state.last_sid += 1;
        let subscription = Arc::new(Subscription::new(state.last_sid, filter, queue_group, target));
        state.sids.insert(key, subscription.sid);
        state.subscriptions.insert(subscription.sid, subscription.clone());
        state.push_change(QueuedOperation::Subscribe(subscription));
        Ok(())
    }

    /// Whether the server has refused the subscription of this filter.
    pub(crate) fn is_refused(&self, queue: &Arc<SubscriberQueue>, filter: &[u8]) -> bool {
        let state = lock(&self.state);
        state.of_filter(queue, filter).is_some_and(|subscription| subscription.is_refused())
    }

    /// Ends the subscription of this filter, or all of a subscriber.
    pub(crate) fn unsubscribe(&self, queue: &Arc<SubscriberQueue>, filter: Option<&[u8]>, drains: bool) {
        let mut state = lock(&self.state);
        let address = address_of(queue);
        let sids: Vec<u64> = match filter {
            Some(filter) => state.sids.get(&(address, Bytes::copy_from_slice(filter))).copied().into_iter().collect(),
            None => {
                let all = (address, Bytes::new())..(address.saturating_add(1), Bytes::new());
                state.sids.range(all).map(|(_, sid)| *sid).collect()
            }
        };
        for sid in sids {
            state.remove(sid);
            state.push_change(QueuedOperation::Unsubscribe { sid, drains });
        }
    }

    pub(crate) fn unsubscribe_after(&self, queue: &Arc<SubscriberQueue>, filter: &[u8], max: u64) {
        if max == 0 {
            return self.unsubscribe(queue, Some(filter), false);
        }
        let mut state = lock(&self.state);
        let Some(subscription) = state.of_filter(queue, filter).cloned() else { return };
        subscription.set_max(max);
        state.push_change(QueuedOperation::UnsubscribeAfter { sid: subscription.sid, max });
    }

    /// A subscription has had its last message.
    pub(crate) fn subscription_over(&self, subscription: &Subscription) {
        lock(&self.state).remove(subscription.sid);
        if let SubscriptionTarget::Subscriber(queue) = &subscription.target {
            queue.push(SubscriberEvent::Ended(subscription.filter.clone()));
        }
    }

    // The loop's half.

    /// A connection begins: returns all subscriptions, and takes operations from now on.
    pub(crate) fn begin(&self, link: Remote<WakeUp>) -> (Vec<Arc<Subscription>>, Vec<Arc<SubscriberQueue>>) {
        let mut state = lock(&self.state);
        state.counts.reconnects += u64::from(state.counts.connections > 0);
        state.counts.connections += 1;
        state.link = Some(link);
        state.is_woken = false;
        let is_kept =
            |operation: &QueuedOperation| matches!(operation, QueuedOperation::Publish(..) | QueuedOperation::Flush(_));
        state.waiting.retain(is_kept);
        state.bytes = state.waiting.iter().map(charge_of).sum();
        let over: Vec<u64> = state.subscriptions.values().filter(|one| one.is_over()).map(|one| one.sid).collect();
        over.into_iter().for_each(|sid| drop(state.remove(sid)));
        state.subscriptions.values().for_each(|subscription| subscription.begin());
        let subscribers = state.subscribers.iter().filter_map(Weak::upgrade).collect();
        (state.subscriptions.values().cloned().collect(), subscribers)
    }

    /// The connection has ended: requests that were sent have no result.
    pub(crate) fn unlink(&self, was_up: bool, reason: &str) {
        let mut state = lock(&self.state);
        state.link = None;
        state.is_woken = false;
        state.info = None;
        state.fail_flushes();
        let failed = state.results.fail(Failure::ConnectionLost, true);
        state.counts.failed_requests += failed.len() as u64;
        let mut wakers = Vec::new();
        if was_up {
            wakers = state.events.push(ClientEvent::Down(reason.to_owned()));
        }
        let subscribers: Vec<_> = state.subscribers.iter().filter_map(Weak::upgrade).collect();
        state.wake_loop();
        drop(state);
        subscribers.iter().for_each(|queue| queue.down());
        failed.into_iter().for_each(|(slot, error)| finish(&slot, Err(error)));
        wakers.into_iter().for_each(Waker::wake);
    }

    /// The next operation to send, which counts as sent. Requests that nothing waits for any more are skipped, and messages that
    /// this server does not accept are dropped.
    pub(crate) fn pop(&self) -> Option<QueuedOperation> {
        let mut dropped = Vec::new();
        let mut state = lock(&self.state);
        state.is_woken = false;
        let bytes_max = state.payload_max(&self.protocol_limits);
        let operation = loop {
            let Some(operation) = state.waiting.pop_front() else { break None };
            state.bytes -= charge_of(&operation);
            match &operation {
                QueuedOperation::Publish(_, Some(token)) | QueuedOperation::Flush(token)
                    if !state.results.contains(*token) =>
                {
                    continue;
                }
                QueuedOperation::Publish(message, token) if message.message_bytes() as u64 > bytes_max => {
                    dropped.push((message.subject.clone(), message.message_bytes(), *token));
                    continue;
                }
                QueuedOperation::Publish(_, token) => {
                    state.counts.published += 1;
                    state.published += u64::from(token.is_none());
                    token.iter().for_each(|token| state.results.set_sent(*token, true));
                }
                QueuedOperation::Flush(token) => {
                    state.flushed = state.published;
                    state.results.set_sent(*token, true);
                }
                _ => {}
            }
            break Some(operation);
        };
        let wakers = state.woken_by_room(&self.limits);
        drop(state);
        wakers.into_iter().for_each(Waker::wake);
        for (subject, bytes, token) in dropped {
            self.dropped(subject, token, ClientError::TooLong { bytes, bytes_max });
        }
        operation
    }

    /// Returns an operation that the connection did not take.
    pub(crate) fn put_back(&self, operation: QueuedOperation) {
        let mut state = lock(&self.state);
        if state.ended.is_some() {
            return;
        }
        if let QueuedOperation::Publish(_, Some(token)) | QueuedOperation::Flush(token) = &operation {
            state.results.set_sent(*token, false);
        }
        if let QueuedOperation::Publish(_, token) = &operation {
            state.counts.published -= 1;
            state.published -= u64::from(token.is_none());
        }
        state.bytes += charge_of(&operation);
        state.waiting.push_front(operation);
    }

    /// How many messages were sent.
    pub(crate) fn published(&self) -> u64 {
        lock(&self.state).published
    }

    /// The server has processed so many of them.
    pub(crate) fn confirm(&self, published: u64) {
        lock(&self.state).confirmed = published;
    }

    /// A message was taken and cannot be sent.
    pub(crate) fn dropped(&self, subject: Bytes, token: Option<u64>, error: ClientError) {
        if let Some(token) = token {
            return self.result(token, Err(error));
        }
        lock(&self.state).counts.dropped += 1;
        self.event(ClientEvent::Dropped(subject));
    }

    pub(crate) fn count_received(&self) {
        self.received.fetch_add(1, Ordering::Relaxed);
    }

    /// A reply has come, with this token at the end of its subject.
    pub(crate) fn reply(&self, message: Message) {
        let token = message.subject.rsplit(|byte| *byte == b'.').next();
        let token = token.and_then(|token| std::str::from_utf8(token).ok()?.parse().ok());
        let Some(token) = token else { return };
        if is_without_responders(&message) {
            lock(&self.state).counts.no_responders += 1;
            return self.result(token, Err(ClientError::NoResponders));
        }
        self.result(token, Ok(Some(message)));
    }

    pub(crate) fn result(&self, token: u64, result: Result<Option<Message>, ClientError>) {
        let slot = lock(&self.state).results.take(token);
        if let Some(slot) = slot {
            finish(&slot, result);
        }
    }

    /// Fails the requests whose time has come, and returns the time of the next one.
    pub(crate) fn expire(&self, now: Instant) -> Option<Instant> {
        let mut state = lock(&self.state);
        // A request that comes later has its deadline from the next call.
        state.is_woken = false;
        let (expired, next) = state.results.expire(now);
        state.counts.failed_requests += expired.len() as u64;
        drop(state);
        expired.into_iter().for_each(|(slot, error)| finish(&slot, Err(error)));
        next
    }

    /// Fails all requests: no server takes the client.
    pub(crate) fn fail_all(&self, failure: Failure) {
        let mut state = lock(&self.state);
        let failed = state.results.fail(failure, false);
        state.counts.failed_requests += failed.len() as u64;
        drop(state);
        failed.into_iter().for_each(|(slot, error)| finish(&slot, Err(error)));
    }

    /// The server has sent an error. `unconfirmed` are the subscriptions that it may be about.
    pub(crate) fn server_error(&self, error: ServerError, unconfirmed: RangeInclusive<u64>) {
        let mut state = lock(&self.state);
        state.counts.add_error(error.kind());
        state.last_failure = Some(format!("the server reports: {error}"));
        let refused = state.refused_by(&error, unconfirmed);
        let wakers = state.events.push(ClientEvent::ServerError(error));
        drop(state);
        for subscription in refused {
            match &subscription.target {
                SubscriptionTarget::Subscriber(queue) => {
                    queue.push(SubscriberEvent::Refused(subscription.filter.clone()));
                }
                SubscriptionTarget::Inbox => self.inbox_refused(subscription.sid),
            }
        }
        wakers.into_iter().for_each(Waker::wake);
    }

    /// No reply can come: the requests fail, and the next one subscribes an inbox again.
    fn inbox_refused(&self, sid: u64) {
        let mut state = lock(&self.state);
        if state.inbox.take_if(|inbox| inbox.sid == sid).is_none() {
            return;
        }
        state.remove(sid);
        state.push_change(QueuedOperation::Unsubscribe { sid, drains: false });
        drop(state);
        self.fail_all(Failure::Refused);
    }

    pub(crate) fn set_info(&self, info: Arc<ServerInfo>) {
        let mut state = lock(&self.state);
        state.counts.lame_ducks += u64::from(info.ldm);
        state.info = Some(info);
    }

    pub(crate) fn event(&self, event: ClientEvent) {
        let wakers = lock(&self.state).events.push(event);
        wakers.into_iter().for_each(Waker::wake);
    }

    pub(crate) fn poll_event(&self, cx: &Context<'_>) -> Poll<Option<ClientEvent>> {
        lock(&self.state).events.poll(cx)
    }

    /// Wakes the connection for operations that it has not seen, if that has failed.
    pub(crate) fn wake_again(&self) {
        let mut state = lock(&self.state);
        if std::mem::take(&mut state.is_unwoken) && state.link.is_some() {
            state.wake_loop();
        }
    }

    pub(crate) fn set_supervisor(&self, waker: &Waker) {
        lock(&self.state).supervisor = Some(waker.clone());
    }

    pub(crate) fn has_waiting(&self) -> bool {
        !lock(&self.state).waiting.is_empty()
    }

    /// Whether a request or a flush was sent and has no result.
    pub(crate) fn awaits_results(&self) -> bool {
        lock(&self.state).results.has_sent()
    }

    pub(crate) fn is_idle(&self) -> bool {
        let state = lock(&self.state);
        state.waiting.is_empty() && state.results.len() == 0
    }

    /// The last handle is gone, or the client was drained.
    pub(crate) fn is_over(&self) -> bool {
        let state = lock(&self.state);
        state.has_no_handle || state.ended.is_some()
    }

    pub(crate) fn end_handles(&self) {
        let mut state = lock(&self.state);
        state.has_no_handle = true;
        state.is_woken = false;
        state.wake_loop();
    }

    /// Nothing is taken any more, for this reason. The first reason counts.
    pub(crate) fn end(&self, failure: Failure) {
        let mut state = lock(&self.state);
        let failure = *state.ended.get_or_insert(failure);
        state.waiting.clear();
        state.bytes = 0;
        let mut wakers = std::mem::take(&mut state.room_wakers);
        wakers.extend(state.events.end());
        let subscribers: Vec<_> = state.subscribers.iter().filter_map(Weak::upgrade).collect();
        state.is_woken = false;
        state.wake_loop();
        drop(state);
        subscribers.iter().for_each(|queue| queue.end());
        wakers.into_iter().for_each(Waker::wake);
        self.fail_all(failure);
    }

    /// The subscribers' subscriptions end, and their messages that were sent before still come.
    pub(crate) fn drain_subscriptions(&self) {
        let subscribers: Vec<_> = lock(&self.state).subscribers.iter().filter_map(Weak::upgrade).collect();
        subscribers.iter().for_each(|queue| self.unsubscribe(queue, None, true));
    }

    pub(crate) fn is_connected(&self) -> bool {
        lock(&self.state).link.is_some()
    }

    pub(crate) fn info(&self) -> Option<Arc<ServerInfo>> {
        lock(&self.state).info.clone()
    }

    pub(crate) fn counts(&self) -> ClientCounts {
        let state = lock(&self.state);
        let mut counts = state.counts;
        counts.received = self.received.load(Ordering::Relaxed);
        counts.pending_operations = state.waiting.len() as u64;
        counts.pending_bytes = state.bytes as u64;
        counts.pending_requests = state.results.len() as u64;
        counts.subscriptions = state.subscriptions.len() as u64;
        counts
    }

    pub(crate) fn set_last_failure(&self, text: impl Into<String>) {
        lock(&self.state).last_failure = Some(text.into());
    }

    pub(crate) fn last_failure(&self) -> Option<String> {
        lock(&self.state).last_failure.clone()
    }
}

fn address_of(queue: &Arc<SubscriberQueue>) -> usize {
    Arc::as_ptr(queue).addr()
}

fn charge_of(operation: &QueuedOperation) -> usize {
    match operation {
        QueuedOperation::Publish(message, _) => message.message_bytes() + message.subject.len() + OPERATION_BYTES,
        _ => OPERATION_BYTES,
    }
}

/// The memory of an operation beside its bytes.
const OPERATION_BYTES: usize = 128;

/// Whether the server says that nothing answers. A message of a stream may have the same status: its publisher has chosen it.
fn is_without_responders(message: &Message) -> bool {
    let is_stored = message.headers.as_ref().is_some_and(|headers| headers.value("Nats-Sequence").is_some());
    message.status() == Some(NO_RESPONDERS) && message.payload.is_empty() && !is_stored
}

/// The status of a reply that no service has sent.
const NO_RESPONDERS: u16 = 503;

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// The result of a flush that is called behind a message; the connection ends before it is sent, or before the call.
    fn flushed(is_sent: bool) -> Option<Result<Option<Message>, ClientError>> {
        let shared = Shared::new(ClientLimits::default(), ProtocolLimits::default());
        let flush = || {
            let slot = SharedSlot::default();
            shared.flush(&slot, Duration::from_secs(5)).map(|_| slot)
        };
        shared.publish(OutgoingMessage::new("a", "ebb")).expect("there is room");
        if is_sent {
            assert!(matches!(shared.pop(), Some(QueuedOperation::Publish(..))));
        }
        let slot = flush().expect("there is room");
        shared.unlink(true, "the server closed the connection");
        // One failure is enough.
        assert!(flush().is_ok());
        lock(&slot).result.take()
    }

    #[test]
    fn a_flush_behind_a_message_that_was_sent_fails_with_the_connection() {
        assert_eq!(flushed(true), Some(Err(ClientError::MaybeProcessed(Failure::ConnectionLost))));
        assert_eq!(flushed(false), None);
    }
}
