//! `Handler`: one connection of a broker.
//!
//! All that the client gets after INFO goes through the outbox, so that a PONG comes behind the messages that were there before
//! its PING.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use tidegate_codec::Pipeline;
use tidegate_engine::{CloseReason, Context, Event, Outcome};

use crate::info::ConnectInfo;
use crate::message_view::MessageView;
use crate::outgoing::ServerOperation;
use crate::server::broker::{Broker, BrokerShared, BrokerSubscription, Publisher, RoutedMessage};
use crate::server::outbox::{Outbox, WakeUp};
use crate::server_codec::IncomingClientOperation;
use crate::subject::{is_filter, is_subject, tokens};

/// One connection of a [`Broker`], which documents an example.
#[derive(Debug)]
pub struct Handler {
    broker: Arc<BrokerShared>,
    id: u64,
    outbox: Arc<Outbox>,
    /// The options that the client has sent by CONNECT.
    options: ClientOptions,
    is_connected: bool,
    subscriptions: HashMap<Bytes, OwnSubscription>,
    pings: u32,
}

#[derive(Debug, Clone, Copy)]
struct ClientOptions {
    verbose: bool,
    echo: bool,
    headers: bool,
    no_responders: bool,
}

/// A subscription of this connection.
#[derive(Debug)]
struct OwnSubscription {
    filter: Bytes,
    delivered: Arc<AtomicU64>,
    max: Arc<AtomicU64>,
}

type BrokerContext<'a, P> = Context<'a, P, WakeUp>;

impl Handler {
    /// A handler of a connection to this broker.
    #[must_use]
    pub fn new(broker: &Broker) -> Self {
        let broker = broker.shared.clone();
        let id = broker.connections.fetch_add(1, Ordering::Relaxed) + 1;
        let outbox = Arc::new(Outbox::new(broker.config.pending_bytes_max));
        let options = ClientOptions { verbose: false, echo: true, headers: false, no_responders: false };
        Self { broker, id, outbox, options, is_connected: false, subscriptions: HashMap::new(), pings: 0 }
    }

    fn push(&self, bytes: impl Into<Bytes>) {
        self.outbox.push((bytes.into(), Bytes::new()));
    }

    fn error(&self, text: &str) {
        self.push(format!("-ERR '{text}'\r\n"));
    }

    fn acknowledge(&self) {
        if self.options.verbose {
            self.push(&b"+OK\r\n"[..]);
        }
    }

    /// Sends an error, and closes the connection.
    fn refuse<P: Pipeline<Out = ServerOperation>>(
        &mut self,
        text: &'static str,
        cx: &mut BrokerContext<'_, P>,
    ) -> Outcome<P> {
        let drained = self.send_waiting(cx);
        let sent = cx.send(ServerOperation::Err(Bytes::from_static(text.as_bytes())));
        if matches!(drained, Outcome::Continue) && sent.is_ok() { Outcome::Close } else { Outcome::Abort }
    }

    fn connect<P: Pipeline<Out = ServerOperation>>(
        &mut self,
        json: &[u8],
        cx: &mut BrokerContext<'_, P>,
    ) -> Outcome<P> {
        let Ok(connect) = ConnectInfo::from_json(json) else { return self.refuse("Parser Error", cx) };
        if !self.broker.accepts(&connect) {
            self.broker.refused.fetch_add(1, Ordering::Relaxed);
            return self.refuse("Authorization Violation", cx);
        }
        self.is_connected = true;
        self.options = ClientOptions {
            verbose: connect.verbose,
            echo: connect.echo,
            headers: connect.headers,
            no_responders: connect.headers && connect.no_responders,
        };
        self.arm(cx);
        self.acknowledge();
        Outcome::Continue
    }

    fn publish(&mut self, message: &MessageView) {
        self.broker.received.fetch_add(1, Ordering::Relaxed);
        if !is_subject(message.subject()) || message.reply().is_some_and(|reply| !is_filter(reply)) {
            return self.error("Invalid Publish Subject");
        }
        self.acknowledge();
        let headers = message.header_block().len();
        let routed =
            RoutedMessage { subject: message.subject(), reply: message.reply(), headers, body: message.body() };
        let publisher = Publisher { connection: self.id, echoes: self.options.echo };
        let receivers = self.broker.route(&routed, publisher);
        if receivers == 0
            && self.options.no_responders
            && let Some(reply) = message.reply()
        {
            self.broker.no_responders(reply, self.id);
        }
    }

    fn subscribe(&mut self, filter: &[u8], queue_group: Option<Bytes>, sid: Bytes) {
        let config = &self.broker.config;
        if !is_filter(filter) || tokens(filter).count() > config.filter_tokens_max {
            return self.error("Invalid Subject");
        }
        // As in nats-server, the first subscription with an ID stays.
        if self.subscriptions.contains_key(&sid) {
            return self.acknowledge();
        }
        if self.subscriptions.len() >= config.subscriptions_max {
            return self.error("Maximum Subscriptions Exceeded");
        }
        let (delivered, max) = (Arc::<AtomicU64>::default(), Arc::<AtomicU64>::default());
        let subscription = BrokerSubscription {
            outbox: self.outbox.clone(),
            queue_group,
            knows_headers: self.options.headers,
            delivered: delivered.clone(),
            max: max.clone(),
        };
        self.broker.subscribe(filter, (self.id, sid.clone()), subscription);
        let filter = Bytes::copy_from_slice(filter);
        self.subscriptions.insert(sid, OwnSubscription { filter, delivered, max });
        self.acknowledge();
    }

    fn unsubscribe(&mut self, sid: &Bytes, max: Option<u64>) {
        if let (Some(max), Some(subscription)) = (max, self.subscriptions.get(sid))
            && subscription.delivered.load(Ordering::Relaxed) < max
        {
            subscription.max.store(max, Ordering::Relaxed);
        } else if let Some(subscription) = self.subscriptions.remove(sid) {
            self.broker.unsubscribe(&subscription.filter, &(self.id, sid.clone()));
        }
        self.acknowledge();
    }

    /// Removes the subscriptions that have had all messages that they may have.
    fn remove_ended(&mut self) {
        let (broker, id) = (&self.broker, self.id);
        self.subscriptions.retain(|sid, subscription| {
            let max = subscription.max.load(Ordering::Relaxed);
            let is_over = max > 0 && subscription.delivered.load(Ordering::Relaxed) >= max;
            if is_over {
                broker.unsubscribe(&subscription.filter, &(id, sid.clone()));
            }
            !is_over
        });
    }

    /// Sends the messages that wait, as long as the client reads.
    fn send_waiting<P: Pipeline<Out = ServerOperation>>(&mut self, cx: &mut BrokerContext<'_, P>) -> Outcome<P> {
        if self.outbox.is_cut() {
            // The reason leaves only if the client reads again before the connection is reset.
            return match cx.send(ServerOperation::Err(Bytes::from_static(b"Slow Consumer"))) {
                Ok(_) => Outcome::Close,
                Err(_) => Outcome::Abort,
            };
        }
        while cx.is_writable() {
            let Some((line, body)) = self.outbox.pop() else { break };
            if cx.send(ServerOperation::Encoded(line, body)).is_err() {
                return Outcome::Abort;
            }
        }
        if self.outbox.take_ended() {
            self.remove_ended();
        }
        Outcome::Continue
    }

    fn arm<P: Pipeline<Out = ServerOperation>>(&self, cx: &mut BrokerContext<'_, P>) {
        let config = &self.broker.config;
        let is_late = !self.is_connected && self.broker.demands_authentication();
        cx.deadline_after(if is_late { config.authentication_timeout } else { config.ping_after });
    }

    fn deadline_came<P: Pipeline<Out = ServerOperation>>(&mut self, cx: &mut BrokerContext<'_, P>) -> Outcome<P> {
        if !self.is_connected && self.broker.demands_authentication() {
            self.broker.refused.fetch_add(1, Ordering::Relaxed);
            return self.refuse("Authentication Timeout", cx);
        }
        self.pings += 1;
        if self.pings > self.broker.config.pings_max {
            return self.refuse("Stale Connection", cx);
        }
        self.remove_ended();
        self.push(&b"PING\r\n"[..]);
        self.arm(cx);
        self.send_waiting(cx)
    }
}

impl<P> tidegate_engine::Handler<P> for Handler
where
    P: Pipeline<In = IncomingClientOperation, Out = ServerOperation>,
{
    type Post = WakeUp;

    fn open(&mut self, cx: &mut BrokerContext<'_, P>) -> Outcome<P> {
        self.outbox.open(cx.remote());
        self.arm(cx);
        let info = self.broker.info(self.id, false);
        cx.send(ServerOperation::Info(info.to_json().into())).map_or(Outcome::Abort, |_| Outcome::Continue)
    }

    fn message(&mut self, message: IncomingClientOperation, cx: &mut BrokerContext<'_, P>) -> Outcome<P> {
        let is_connect = matches!(message, IncomingClientOperation::Connect(_));
        if !self.is_connected && !is_connect && self.broker.demands_authentication() {
            self.broker.refused.fetch_add(1, Ordering::Relaxed);
            return self.refuse("Authorization Violation", cx);
        }
        self.pings = 0;
        match message {
            IncomingClientOperation::Connect(json) => return self.connect(&json, cx),
            IncomingClientOperation::Publish(message) => self.publish(&message),
            IncomingClientOperation::Subscribe { filter, queue_group, sid } => {
                self.subscribe(&filter, queue_group.map(|group| group.to_bytes()), sid.to_bytes());
            }
            IncomingClientOperation::Unsubscribe { sid, max_messages } => {
                self.unsubscribe(&sid.to_bytes(), max_messages);
            }
            IncomingClientOperation::Ping => self.push(&b"PONG\r\n"[..]),
            IncomingClientOperation::Pong => {}
        }
        Outcome::Continue
    }

    fn event(&mut self, event: Event<WakeUp>, cx: &mut BrokerContext<'_, P>) -> Outcome<P> {
        match event {
            Event::Posted(WakeUp) | Event::Writable => self.send_waiting(cx),
            Event::Deadline => self.deadline_came(cx),
            // The client may move to another server; the rest is cut off at the deadline of the drain.
            Event::Drain => {
                let info = self.broker.info(self.id, true).to_json();
                self.push([b"INFO ", &*info, b"\r\n"].concat());
                self.send_waiting(cx)
            }
            event => event.by_default(cx),
        }
    }

    fn closed(&mut self, _: &CloseReason) {
        self.outbox.close();
        for (sid, subscription) in self.subscriptions.drain() {
            self.broker.unsubscribe(&subscription.filter, &(self.id, sid));
        }
    }
}

/// The loop drops a handler that has panicked without a call.
impl Drop for Handler {
    fn drop(&mut self) {
        self.outbox.close();
        for (sid, subscription) in self.subscriptions.drain() {
            self.broker.unsubscribe(&subscription.filter, &(self.id, sid));
        }
    }
}
