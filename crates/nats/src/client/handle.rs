//! `Client`: the handle for any thread, and the future of a reply.

use std::fmt;
use std::future::{Future, poll_fn};
use std::hash::{BuildHasher, RandomState};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;

use crate::client::counts::ClientCounts;
use crate::client::error::{ClientError, Failure};
use crate::client::events::ClientEvents;
use crate::client::message::Message;
use crate::client::results::{RequestResult, SharedSlot, lock};
use crate::client::shared::Shared;
use crate::client::subscriber::Subscriber;
use crate::error::NatsError;
use crate::info::ServerInfo;
use crate::outgoing::OutgoingMessage;
use crate::subject::is_subject;

/// A client of a NATS server, or of a cluster of them. Its clones share one connection, and may be used on any thread.
///
/// The connection ends with the last clone. Subscribers, and futures of requests, keep the client alive.
///
/// Publishing is at most once: a message that was sent over a connection that breaks may be lost.
/// [`flush`](Self::flush) waits until the server has all messages before it.
///
/// ```
/// use tidegate::nats::{Broker, Client, Handler, ServerCodec, SubscriberEvent};
/// use tidegate::{Backend, EventLoop, Server};
///
/// let broker = Broker::default();
/// let server = Server::bind("127.0.0.1:0")?.loops(1).start(move || (ServerCodec::default(), Handler::new(&broker)))?;
/// let target = server.address().to_string();
/// let payload = EventLoop::on(Backend::Auto)?.block_on(async move {
///     let client = Client::to(&target)?.start();
///     let mut tides = client.subscribe("tides.*")?;
///     client.publish("tides.brest", "ebb")?;
///     loop {
///         if let Some(SubscriberEvent::Message(message)) = tides.recv().await {
///             return Ok::<_, Box<dyn std::error::Error>>(message.payload);
///         }
///     }
/// })??;
/// assert_eq!(payload, "ebb");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Client {
    pub(crate) handle: Arc<ClientHandle>,
}

/// The handle that all clones share.
pub(crate) struct ClientHandle {
    pub(crate) shared: Arc<Shared>,
    pub(crate) timeout: Duration,
}

impl Drop for ClientHandle {
    fn drop(&mut self) {
        self.shared.end_handles();
    }
}

impl Client {
    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.handle.shared
    }

    /// Publishes a message. It is sent in the next turn of the loop, or once there is a connection again.
    ///
    /// # Errors
    /// [`ClientError::Invalid`] for a subject that is none, [`ClientError::TooLong`], and [`ClientError::NotSent`] if too much
    /// waits already: [`ready`](Self::ready) waits for room.
    pub fn publish(&self, subject: impl Into<Bytes>, payload: impl Into<Bytes>) -> Result<(), ClientError> {
        self.send(OutgoingMessage::new(subject, payload))
    }

    /// Publishes a message that may have headers and a subject for replies.
    ///
    /// # Errors
    /// As [`publish`](Self::publish).
    pub fn send(&self, message: OutgoingMessage) -> Result<(), ClientError> {
        check_subject(&message)?;
        self.shared().publish(message)
    }

    /// Sends a request. The future yields the first reply; dropping it gives up.
    ///
    /// If nothing subscribes to the subject, the result is [`ClientError::NoResponders`] at once.
    pub fn request(&self, subject: impl Into<Bytes>, payload: impl Into<Bytes>) -> ReplyFuture {
        self.request_with(OutgoingMessage::new(subject, payload), self.handle.timeout)
    }

    /// As [`request`](Self::request), with headers, and a time for the reply. The subject for replies is the client's.
    pub fn request_with(&self, message: OutgoingMessage, timeout: Duration) -> ReplyFuture {
        self.future(|slot| {
            check_subject(&message)?;
            self.shared().request(message, slot, timeout, new_inbox)
        })
    }

    /// Waits until the server has processed all that was published, subscribed and unsubscribed before.
    ///
    /// # Errors
    /// [`ClientError::NotSent`] and [`ClientError::MaybeProcessed`]: some of it may be lost. Messages that were sent over a
    /// connection that broke before a later flush had its answer make one flush fail, the first one behind them: clones of a
    /// client share that.
    pub async fn flush(&self) -> Result<(), ClientError> {
        self.future(|slot| self.shared().flush(slot, self.handle.timeout)).result().await.map(drop)
    }

    fn future(&self, add: impl FnOnce(&SharedSlot) -> Result<u64, ClientError>) -> ReplyFuture {
        let slot = SharedSlot::default();
        let token = match add(&slot) {
            Ok(token) => Some(token),
            Err(error) => {
                lock(&slot).result = Some(Err(error));
                None
            }
        };
        ReplyFuture { client: self.clone(), slot, token }
    }

    /// Polls a future as long as the client's timeout is not over. Only the loop has a clock.
    pub(crate) async fn within<T>(&self, future: impl Future<Output = T>) -> Option<T> {
        let mut timer = self.future(|slot| Ok(self.shared().timer(slot, self.handle.timeout)));
        let mut future = pin!(future);
        poll_fn(|cx| match future.as_mut().poll(cx) {
            Poll::Ready(output) => Poll::Ready(Some(output)),
            Poll::Pending => timer.poll_result(cx).map(|_| None),
        })
        .await
    }

    /// A subscriber without a subscription.
    #[must_use]
    pub fn subscriber(&self) -> Subscriber {
        Subscriber::new(self.clone())
    }

    /// A subscriber of the subjects that a filter matches.
    ///
    /// # Errors
    /// As [`Subscriptions::subscribe`](crate::Subscriptions::subscribe).
    pub fn subscribe(&self, filter: impl Into<Bytes>) -> Result<Subscriber, ClientError> {
        let subscriber = self.subscriber();
        subscriber.subscribe(filter)?;
        Ok(subscriber)
    }

    /// As [`subscribe`](Self::subscribe), in a queue group.
    ///
    /// # Errors
    /// As [`Subscriptions::subscribe`](crate::Subscriptions::subscribe).
    pub fn subscribe_in_group(
        &self,
        filter: impl Into<Bytes>,
        group: impl Into<Bytes>,
    ) -> Result<Subscriber, ClientError> {
        let subscriber = self.subscriber();
        subscriber.subscribe_in_group(filter, group)?;
        Ok(subscriber)
    }

    /// A subject for replies that no other client has.
    #[must_use]
    pub fn inbox(&self) -> String {
        new_inbox()
    }

    /// Changes of the connection, and errors of servers.
    #[must_use]
    pub fn events(&self) -> ClientEvents {
        ClientEvents { shared: self.shared().clone() }
    }

    /// Waits until the queue takes another message. A caller that has an endless supply of them waits before each.
    pub async fn ready(&self) {
        poll_fn(|cx| self.shared().poll_room(cx)).await;
    }

    /// Ends the client in good order: its subscriptions end, the messages that the server has sent before come, the messages that
    /// wait are sent, and the connection closes. Subscribers yield the messages that wait, and `None`.
    ///
    /// # Errors
    /// As [`flush`](Self::flush).
    pub async fn drain(&self) -> Result<(), ClientError> {
        self.shared().drain_subscriptions();
        let result = self.flush().await;
        self.shared().end(Failure::Drained);
        result
    }

    /// Whether a connection takes messages at present.
    #[must_use]
    pub fn is_connected(&self) -> bool {
        self.shared().is_connected()
    }

    /// The last INFO of the server to which the client is connected.
    #[must_use]
    pub fn server_info(&self) -> Option<Arc<ServerInfo>> {
        self.shared().info()
    }

    /// Numbers for metrics.
    #[must_use]
    pub fn counts(&self) -> ClientCounts {
        self.shared().counts()
    }

    /// Why the last connection ended, or could not be made, or the last error of a server.
    #[must_use]
    pub fn last_failure(&self) -> Option<String> {
        self.shared().last_failure()
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("nats::Client").field("is_connected", &self.is_connected()).finish_non_exhaustive()
    }
}

/// The future of a reply. Dropping it gives up.
#[derive(Debug)]
#[must_use = "the reply is lost if nothing awaits it"]
pub struct ReplyFuture {
    client: Client,
    slot: SharedSlot,
    /// `None` once there is a result.
    token: Option<u64>,
}

impl ReplyFuture {
    fn poll_result(&mut self, cx: &Context<'_>) -> Poll<RequestResult> {
        let mut slot = lock(&self.slot);
        if let Some(result) = slot.result.take() {
            self.token = None;
            return Poll::Ready(result);
        }
        slot.waker = Some(cx.waker().clone());
        Poll::Pending
    }

    async fn result(mut self) -> RequestResult {
        poll_fn(|cx| self.poll_result(cx)).await
    }
}

impl Future for ReplyFuture {
    type Output = Result<Message, ClientError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        // Only a flush has no message.
        self.poll_result(cx).map(|result| result?.ok_or(ClientError::NoResponders))
    }
}

impl Drop for ReplyFuture {
    fn drop(&mut self) {
        if let Some(token) = self.token {
            self.client.shared().abandon(token);
        }
    }
}

fn check_subject(message: &OutgoingMessage) -> Result<(), ClientError> {
    if is_subject(&message.subject) { Ok(()) } else { Err(ClientError::Invalid(NatsError::Token)) }
}

/// 128 bits of keyed hashes, which no other client has.
fn new_inbox() -> String {
    let half = || RandomState::new().hash_one(0_u64);
    format!("_INBOX.{:016x}{:016x}", half(), half())
}
