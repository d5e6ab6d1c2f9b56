//! `Subscriber`: messages of channels, over a connection that comes back by itself.
//!
//! The subscriber keeps the names that the application wants (`subscriber_queue.rs`), and `subscription.rs` brings each
//! connection to that state. Any thread may change them.

use std::future::poll_fn;
use std::ops::Deref;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;

use crate::client::counts::SubscriberCounts;
use crate::client::handle::Client;
use crate::client::subscriber_queue::{SubscriberEvent, SubscriberQueue, SubscriptionKind, SubscriptionName};

/// Subscriptions of channels and patterns over a connection of their own, which comes back by itself.
///
/// It may be used on any thread, and has the methods of [`Subscriptions`], whose clones change the names from other tasks.
/// Dropping the subscriber ends the connection.
///
/// In a cluster, channels and patterns have one connection, to any master; sharded channels have one to each master that has
/// some of them. Each connection reports its own states.
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
    subscriptions: Subscriptions,
    /// It finds the servers, if there are several.
    _client: Option<Client>,
}

/// The names of a [`Subscriber`], for any task and thread. Changes have no effect once the subscriber is gone.
///
/// ```no_run
/// # async fn example(mut tides: tidegate::redis::Subscriber) {
/// let subscriptions = tides.subscriptions();
/// tidegate::task::spawn(async move { subscriptions.subscribe("storms") });
/// while let Some(event) = tides.recv().await {
///     println!("{event:?}");
/// }
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct Subscriptions {
    queue: Arc<SubscriberQueue>,
}

impl Subscriptions {
    /// Subscribes to a channel, now and after each loss of the connection.
    pub fn subscribe(&self, channel: impl Into<Bytes>) {
        self.change(true, SubscriptionKind::Channel, channel.into());
    }

    /// Subscribes to all channels that match a pattern.
    pub fn psubscribe(&self, pattern: impl Into<Bytes>) {
        self.change(true, SubscriptionKind::Pattern, pattern.into());
    }

    /// Subscribes to a sharded channel, whose messages SPUBLISH sends: since Redis 7. In a cluster the subscription moves with
    /// the slot of the channel; a [`Gap`](SubscriberEvent::Gap) says so.
    pub fn ssubscribe(&self, channel: impl Into<Bytes>) {
        self.change(true, SubscriptionKind::Sharded, channel.into());
    }

    /// Ends a subscription of a channel. Messages that the server has sent before still arrive.
    pub fn unsubscribe(&self, channel: impl Into<Bytes>) {
        self.change(false, SubscriptionKind::Channel, channel.into());
    }

    /// Ends a subscription of a pattern.
    pub fn punsubscribe(&self, pattern: impl Into<Bytes>) {
        self.change(false, SubscriptionKind::Pattern, pattern.into());
    }

    /// Ends a subscription of a sharded channel.
    pub fn sunsubscribe(&self, channel: impl Into<Bytes>) {
        self.change(false, SubscriptionKind::Sharded, channel.into());
    }

    /// Reports each channel that the server has acknowledged as [`SubscriberEvent::Subscribed`], from now on: not patterns,
    /// and in a cluster not sharded channels.
    pub fn report_subscribed(&self) {
        self.queue.report_subscribed();
    }

    /// Why the last connection ended, or could not be made.
    #[must_use]
    pub fn last_failure(&self) -> Option<String> {
        self.queue.last_failure()
    }

    /// Numbers for metrics.
    #[must_use]
    pub fn counts(&self) -> SubscriberCounts {
        self.queue.counts()
    }

    fn change(&self, is_wanted: bool, kind: SubscriptionKind, name: Bytes) {
        self.queue.change(is_wanted, SubscriptionName { kind, name });
    }
}

impl Subscriber {
    pub(crate) fn new(queue: Arc<SubscriberQueue>, client: Option<Client>) -> Self {
        Self { subscriptions: Subscriptions { queue }, _client: client }
    }

    /// A handle to change the names from another task.
    #[must_use]
    pub fn subscriptions(&self) -> Subscriptions {
        self.subscriptions.clone()
    }

    /// The next event; `None` once the loop has ended.
    pub async fn recv(&mut self) -> Option<SubscriberEvent> {
        poll_fn(|cx| self.poll_recv(cx)).await
    }

    /// The next event, or a promise to wake the task once there is one; `None` once the loop has ended.
    pub fn poll_recv(&mut self, cx: &Context<'_>) -> Poll<Option<SubscriberEvent>> {
        self.subscriptions.queue.poll_event(cx)
    }
}

impl Deref for Subscriber {
    type Target = Subscriptions;

    fn deref(&self) -> &Subscriptions {
        &self.subscriptions
    }
}

impl Drop for Subscriber {
    fn drop(&mut self) {
        self.subscriptions.queue.end_reader();
    }
}
