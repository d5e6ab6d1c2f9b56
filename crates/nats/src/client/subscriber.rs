//! `Subscriber`: messages of subscriptions, which come back with each connection.

use std::future::poll_fn;
use std::ops::Deref;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;

use crate::client::counts::SubscriberCounts;
use crate::client::error::ClientError;
use crate::client::handle::Client;
use crate::client::subscriber_queue::{SubscriberEvent, SubscriberQueue};
use crate::client::subscription::SubscriptionTarget;
use crate::error::NatsError;
use crate::subject::{is_filter, is_token};

/// Subscriptions of a client, and their messages in one order.
///
/// It may be used on any thread, and has the methods of [`Subscriptions`], whose clones change the filters from other tasks.
/// Dropping the subscriber ends its subscriptions. It keeps its client alive.
///
/// A subject that two filters of it match comes twice.
///
/// ```no_run
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// use tidegate::nats::{Client, SubscriberEvent};
///
/// let client = Client::to("127.0.0.1:4222")?.start();
/// let mut tides = client.subscribe("tides.*")?;
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
}

/// The filters of a [`Subscriber`], for any task and thread. Changes have no effect once the subscriber is gone.
#[derive(Debug, Clone)]
pub struct Subscriptions {
    client: Client,
    queue: Arc<SubscriberQueue>,
}

impl Subscriptions {
    /// Subscribes to the subjects that a filter matches, now and after each loss of the connection. A filter that is there
    /// already is not subscribed twice, unless the server has [refused](SubscriberEvent::Refused) it.
    ///
    /// [`Client::flush`] waits until the server has the subscription.
    ///
    /// # Errors
    /// [`ClientError::Invalid`] for a filter that is none, [`ClientError::NotSent`] beyond
    /// [`subscriptions_max`](crate::ClientLimits::subscriptions_max) or after the end of the client.
    pub fn subscribe(&self, filter: impl Into<Bytes>) -> Result<(), ClientError> {
        self.add(filter.into(), None)
    }

    /// As [`subscribe`](Self::subscribe), in a queue group: one of its subscriptions gets each message.
    ///
    /// # Errors
    /// As [`subscribe`](Self::subscribe).
    pub fn subscribe_in_group(&self, filter: impl Into<Bytes>, group: impl Into<Bytes>) -> Result<(), ClientError> {
        self.add(filter.into(), Some(group.into()))
    }

    fn add(&self, filter: Bytes, group: Option<Bytes>) -> Result<(), ClientError> {
        if !is_filter(&filter) || group.as_ref().is_some_and(|group| !is_token(group)) {
            return Err(ClientError::Invalid(NatsError::Token));
        }
        self.client.shared().subscribe(filter, group, SubscriptionTarget::Subscriber(self.queue.clone()))
    }

    /// Whether the server of the present connection has refused the subscription of a filter. After a
    /// [`flush`](Client::flush) that follows [`subscribe`](Self::subscribe) the answer is final, unless the user's permissions
    /// change.
    #[must_use]
    pub fn is_refused(&self, filter: impl AsRef<[u8]>) -> bool {
        self.client.shared().is_refused(&self.queue, filter.as_ref())
    }

    /// Ends the subscription of a filter. Messages that the server has sent before are dropped.
    pub fn unsubscribe(&self, filter: impl AsRef<[u8]>) {
        self.client.shared().unsubscribe(&self.queue, Some(filter.as_ref()), false);
    }

    /// Ends the subscription of a filter after so many messages, counted from its beginning;
    /// [`Ended`](SubscriberEvent::Ended) follows the last one. 0 ends it at once.
    pub fn unsubscribe_after(&self, filter: impl AsRef<[u8]>, messages: u64) {
        self.client.shared().unsubscribe_after(&self.queue, filter.as_ref(), messages);
    }

    /// Ends all subscriptions, and waits until the messages that the server has sent before have come. Then
    /// [`Subscriber::recv`] yields those that wait, and `None`.
    ///
    /// # Errors
    /// As [`Client::flush`].
    pub async fn drain(&self) -> Result<(), ClientError> {
        self.client.shared().unsubscribe(&self.queue, None, true);
        let result = self.client.flush().await;
        self.queue.end();
        result
    }

    /// Numbers for metrics.
    #[must_use]
    pub fn counts(&self) -> SubscriberCounts {
        self.queue.counts()
    }
}

impl Subscriber {
    pub(crate) fn new(client: Client) -> Self {
        let queue = client.shared().subscriber();
        Self { subscriptions: Subscriptions { client, queue } }
    }

    /// A handle to change the filters from another task.
    #[must_use]
    pub fn subscriptions(&self) -> Subscriptions {
        self.subscriptions.clone()
    }

    /// The next event; `None` once the loop has ended, or the subscriber was drained.
    pub async fn recv(&mut self) -> Option<SubscriberEvent> {
        poll_fn(|cx| self.subscriptions.queue.poll_event(cx)).await
    }

    /// As [`recv`](Self::recv), for a future of the caller.
    pub fn poll_recv(&mut self, cx: &mut Context<'_>) -> Poll<Option<SubscriberEvent>> {
        self.subscriptions.queue.poll_event(cx)
    }

    /// The next event, if one waits.
    pub fn try_recv(&mut self) -> Option<SubscriberEvent> {
        self.subscriptions.queue.try_event()
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
        let shared = self.subscriptions.client.shared();
        shared.unsubscribe(&self.subscriptions.queue, None, false);
        shared.forget_subscriber(&self.subscriptions.queue);
    }
}
