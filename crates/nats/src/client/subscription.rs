//! `Subscription`: one SUB of a client, as the handles and the connection share it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use bytes::Bytes;

use crate::client::subscriber_queue::SubscriberQueue;
use crate::outgoing::ClientOperation;

/// A subscription. Its ID is the same on each connection.
#[derive(Debug)]
pub(crate) struct Subscription {
    pub(crate) sid: u64,
    pub(crate) filter: Bytes,
    pub(crate) queue_group: Option<Bytes>,
    pub(crate) target: SubscriptionTarget,
    /// Messages that have come.
    delivered: AtomicU64,
    /// After so many messages it ends; 0 if it does not end.
    max: AtomicU64,
    /// The server of the present connection has refused it.
    is_refused: AtomicBool,
}

/// Where the messages go.
#[derive(Debug)]
pub(crate) enum SubscriptionTarget {
    /// To the requests, by the last token of the subject.
    Inbox,
    Subscriber(Arc<SubscriberQueue>),
}

impl Subscription {
    pub(crate) const fn new(sid: u64, filter: Bytes, queue_group: Option<Bytes>, target: SubscriptionTarget) -> Self {
        Self {
            sid,
            filter,
            queue_group,
            target,
            delivered: AtomicU64::new(0),
            max: AtomicU64::new(0),
            is_refused: AtomicBool::new(false),
        }
    }

    /// A connection begins, whose server has not refused it.
    pub(crate) fn begin(&self) {
        self.is_refused.store(false, Ordering::Relaxed);
    }

    /// The server refuses it. Returns `false` if the server has done so before.
    pub(crate) fn refuse(&self) -> bool {
        !self.is_refused.swap(true, Ordering::Relaxed)
    }

    pub(crate) fn is_refused(&self) -> bool {
        self.is_refused.load(Ordering::Relaxed)
    }

    /// SUB.
    pub(crate) fn operation(&self) -> ClientOperation {
        ClientOperation::Subscribe { filter: self.filter.clone(), queue_group: self.queue_group.clone(), sid: self.sid }
    }

    /// UNSUB with the messages that are left, for a connection on which none has come yet.
    pub(crate) fn limit(&self) -> Option<ClientOperation> {
        let left = self.max.load(Ordering::Relaxed).checked_sub(self.delivered.load(Ordering::Relaxed))?;
        (left > 0).then_some(ClientOperation::Unsubscribe { sid: self.sid, max_messages: Some(left) })
    }

    pub(crate) fn set_max(&self, max: u64) {
        self.max.store(max, Ordering::Relaxed);
    }

    /// Counts a message. Returns whether it is the last one.
    pub(crate) fn count(&self) -> bool {
        let delivered = self.delivered.fetch_add(1, Ordering::Relaxed) + 1;
        let max = self.max.load(Ordering::Relaxed);
        max > 0 && delivered >= max
    }

    /// Whether the messages that were allowed have all come.
    pub(crate) fn is_over(&self) -> bool {
        let max = self.max.load(Ordering::Relaxed);
        max > 0 && self.delivered.load(Ordering::Relaxed) >= max
    }
}
