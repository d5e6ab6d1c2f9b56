//! `ConnectionHandler`: one connection to a server.
//!
//! It awaits INFO, sends CONNECT and PING, and is ready with the PONG. Then it sends the subscriptions, a PING whose PONG is the
//! `Up` of all subscribers, and the operations that wait.
//!
//! Invariant: `pongs` has an entry for each PING that was sent, in that order, and each PONG takes the first.

use std::cell::RefCell;
use std::collections::{HashMap, VecDeque};
use std::rc::Rc;
use std::sync::Arc;
use std::task::Waker;
use std::time::Instant;

use tidegate_codec::{Pipeline, WritePosition};
use tidegate_engine::{CloseReason, Context, Event, Handler, Outcome, SendError};

use crate::client::config::ClientConfig;
use crate::client::events::ClientEvent;
use crate::client::server_error::{ServerError, ServerErrorKind};
use crate::client::servers::{ServerAddress, ServerPool};
use crate::client::shared::{QueuedOperation, Shared, WakeUp};
use crate::client::subscriber_queue::{SubscriberEvent, SubscriberQueue};
use crate::client::subscription::{Subscription, SubscriptionTarget};
use crate::client_codec::IncomingServerOperation;
use crate::info::{ConnectInfo, ServerInfo};
use crate::message_view::MessageView;
use crate::outgoing::ClientOperation;

/// The end of a connection, for the supervisor.
#[derive(Debug, Default)]
pub(crate) struct ConnectionEnd {
    pub(crate) is_over: bool,
    /// The connection has taken operations.
    pub(crate) was_ready: bool,
    /// The server has refused the client.
    pub(crate) is_refused: bool,
    /// The server shuts down, and the client has left it for another one.
    pub(crate) moves: bool,
    pub(crate) waker: Option<Waker>,
}

/// A PONG that the server owes.
#[derive(Debug)]
struct DuePong {
    purpose: PongPurpose,
    /// So many messages were sent before its PING: the PONG confirms them.
    published: u64,
    /// The last subscription that was sent before.
    subscribed: u64,
}

/// The purpose of a PING.
#[derive(Debug)]
enum PongPurpose {
    /// The server has accepted CONNECT.
    Connected,
    /// The server has these subscribers' subscriptions.
    Up(Vec<Arc<SubscriberQueue>>),
    /// The result of a flush, and the end of the subscriptions whose UNSUB was sent before.
    Flush(u64, Vec<u64>),
    Probe,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    AwaitsInfo,
    AwaitsPong,
    Ready,
}

/// The handler of a connection.
pub(crate) struct ConnectionHandler {
    config: Arc<ClientConfig>,
    pool: Rc<RefCell<ServerPool>>,
    shared: Arc<Shared>,
    server: ServerAddress,
    phase: Phase,
    pongs: VecDeque<DuePong>,
    /// When the first PONG is late, or the startup.
    due: Option<Instant>,
    heard_at: Option<Instant>,
    /// Subscriptions of the beginning that were not sent yet.
    left: VecDeque<Arc<Subscription>>,
    /// The subscribers of the beginning, until their PING is sent.
    starting: Option<Vec<Arc<SubscriberQueue>>>,
    /// The subscriptions that the server has.
    subscriptions: HashMap<u64, Arc<Subscription>>,
    /// Those that end with the PONG of the next flush. Messages that the server has sent before still come.
    draining: Vec<u64>,
    /// The ID of the last subscription that was sent, of the last one that a PONG has confirmed, and of the last one that an error
    /// without a name was about. IDs grow.
    subscribed: u64,
    confirmed: u64,
    doubted: u64,
    is_up: bool,
    /// When the client leaves a server that shuts down.
    moves_at: Option<Instant>,
    /// It sends nothing more, and leaves with the last result.
    is_moving: bool,
    /// Why this side has dropped the connection.
    dropped_for: Option<String>,
    end: Rc<RefCell<ConnectionEnd>>,
}

type ClientContext<'a, P> = Context<'a, P, WakeUp>;

/// A pipeline with a [`ClientCodec`](crate::ClientCodec) at its upper end.
pub trait OperationPipeline: Pipeline<In = IncomingServerOperation, Out = ClientOperation> {}

impl<P: Pipeline<In = IncomingServerOperation, Out = ClientOperation>> OperationPipeline for P {}

impl ConnectionHandler {
    pub(crate) fn new(
        config: Arc<ClientConfig>,
        pool: Rc<RefCell<ServerPool>>,
        shared: Arc<Shared>,
        server: ServerAddress,
        end: Rc<RefCell<ConnectionEnd>>,
    ) -> Self {
        Self {
            config,
            pool,
            shared,
            server,
            phase: Phase::AwaitsInfo,
            pongs: VecDeque::new(),
            due: None,
            heard_at: None,
            left: VecDeque::new(),
            starting: None,
            subscriptions: HashMap::new(),
            draining: Vec::new(),
            subscribed: 0,
            confirmed: 0,
            doubted: 0,
            is_up: false,
            moves_at: None,
            is_moving: false,
            dropped_for: None,
            end,
        }
    }

    fn fail<P>(&mut self, reason: impl Into<String>) -> Outcome<P> {
        self.dropped_for.get_or_insert_with(|| reason.into());
        Outcome::Abort
    }

    fn ping<P: OperationPipeline>(&mut self, purpose: PongPurpose, cx: &mut ClientContext<'_, P>) -> Sent {
        self.pongs.push_back(DuePong { purpose, published: self.shared.published(), subscribed: self.subscribed });
        if self.due.is_none() {
            self.due = cx.now().checked_add(self.config.timeout);
        }
        send(ClientOperation::Ping, cx)
    }

    fn info<P: OperationPipeline>(&mut self, json: &[u8], cx: &mut ClientContext<'_, P>) -> Outcome<P> {
        let info = match ServerInfo::from_json(json) {
            Ok(info) => Arc::new(info),
            Err(error) => return self.fail(format!("the server sends a malformed INFO: {error}")),
        };
        if self.config.uses_discovered {
            self.pool.borrow_mut().discover(&info.connect_urls, &self.server);
        }
        self.shared.set_info(info.clone());
        if self.phase != Phase::AwaitsInfo {
            return self.lame_duck(&info, cx);
        }
        let has_tls = has_tls(cx.codec());
        if info.tls_required && !has_tls {
            return self.fail("the server demands TLS: start the client with StartTls over its codec");
        }
        let mut connect = ConnectInfo {
            verbose: false,
            tls_required: has_tls && (info.tls_required || info.tls_available),
            name: self.config.name.clone(),
            lang: "rust".to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            protocol: 1,
            echo: self.config.echoes,
            headers: true,
            no_responders: true,
            ..ConnectInfo::default()
        };
        if let Some(credentials) = &self.config.credentials {
            credentials.add_to(&mut connect, &info.nonce);
        }
        self.phase = Phase::AwaitsPong;
        let is_sent = cx.send(ClientOperation::Connect(connect.to_json().into())).is_ok();
        if !is_sent || self.ping(PongPurpose::Connected, cx).is_err() {
            return self.fail("CONNECT cannot be sent");
        }
        self.arm(cx);
        Outcome::Continue
    }

    /// The server may shut down: plans to move to another one if there is one. All clients of a server learn of it at once, so
    /// each waits for a random part of the delay.
    fn lame_duck<P: OperationPipeline>(&mut self, info: &ServerInfo, cx: &mut ClientContext<'_, P>) -> Outcome<P> {
        if !info.ldm {
            return Outcome::Continue;
        }
        self.shared.event(ClientEvent::LameDuck);
        if self.moves_at.is_none() && self.pool.borrow().len() > 1 {
            let delay = self.config.backoff.random_part(self.config.lame_duck_delay, info.client_id);
            self.moves_at = cx.now().checked_add(delay);
            self.arm(cx);
        }
        Outcome::Continue
    }

    fn ready<P: OperationPipeline>(&mut self, cx: &mut ClientContext<'_, P>) -> Outcome<P> {
        self.phase = Phase::Ready;
        self.end.borrow_mut().was_ready = true;
        let (subscriptions, subscribers) = self.shared.begin(cx.remote());
        self.left = subscriptions.into();
        self.starting = Some(subscribers);
        self.send_waiting(cx)
    }

    /// Sends the subscriptions of the beginning, then the operations that wait, as long as the connection takes them.
    fn send_waiting<P: OperationPipeline>(&mut self, cx: &mut ClientContext<'_, P>) -> Outcome<P> {
        if self.phase != Phase::Ready {
            return Outcome::Continue;
        }
        let mut position = None;
        while cx.is_writable() && !self.is_moving {
            if cx.pending_bytes() >= QUEUED_BYTES {
                position.into_iter().for_each(|position| cx.watch(position));
                break;
            }
            let sent = if let Some(subscription) = self.left.pop_front() {
                self.send_subscription(subscription, cx)
            } else if let Some(subscribers) = self.starting.take() {
                self.ping(PongPurpose::Up(subscribers), cx)
            } else if let Some(operation) = self.shared.pop() {
                self.send_operation(operation, cx)
            } else {
                break;
            };
            match sent {
                Ok(sent) => position = Some(sent),
                Err(error) => return self.fail(format!("an operation cannot be sent: {error}")),
            }
        }
        self.arm(cx);
        self.outcome(cx)
    }

    fn send_subscription<P: OperationPipeline>(
        &mut self,
        subscription: Arc<Subscription>,
        cx: &mut ClientContext<'_, P>,
    ) -> Sent {
        let limit = subscription.limit();
        let mut sent = send(subscription.operation(), cx);
        if let (Ok(_), Some(limit)) = (&sent, limit) {
            sent = send(limit, cx);
        }
        self.subscribed = subscription.sid;
        self.subscriptions.insert(subscription.sid, subscription);
        sent
    }

    fn send_operation<P: OperationPipeline>(
        &mut self,
        operation: QueuedOperation,
        cx: &mut ClientContext<'_, P>,
    ) -> Sent {
        match operation {
            QueuedOperation::Publish(message, token) => match cx.send(ClientOperation::Publish(message)) {
                Err(
                    SendError::Full(ClientOperation::Publish(message))
                    | SendError::Closed(ClientOperation::Publish(message)),
                ) => {
                    // The next connection sends it.
                    self.shared.put_back(QueuedOperation::Publish(message, token));
                    Err("the connection takes no more".to_owned())
                }
                sent => sent.map_err(|error| error.to_string()),
            },
            QueuedOperation::Subscribe(subscription) => self.send_subscription(subscription, cx),
            QueuedOperation::Unsubscribe { sid, drains } => {
                if drains {
                    self.draining.push(sid);
                } else {
                    self.subscriptions.remove(&sid);
                }
                send(ClientOperation::Unsubscribe { sid, max_messages: None }, cx)
            }
            QueuedOperation::UnsubscribeAfter { sid, max } => {
                let is_over = self.subscriptions.get(&sid).is_some_and(|subscription| subscription.is_over());
                if is_over && let Some(subscription) = self.subscriptions.remove(&sid) {
                    self.shared.subscription_over(&subscription);
                }
                send(ClientOperation::Unsubscribe { sid, max_messages: (!is_over).then_some(max) }, cx)
            }
            QueuedOperation::Flush(token) => {
                let ended = std::mem::take(&mut self.draining);
                self.ping(PongPurpose::Flush(token, ended), cx)
            }
            QueuedOperation::SubscriberUp(queue) => self.ping(PongPurpose::Up(vec![queue]), cx),
        }
    }

    /// Whether the connection goes on.
    fn outcome<P: OperationPipeline>(&mut self, cx: &ClientContext<'_, P>) -> Outcome<P> {
        if self.is_moving && !self.shared.awaits_results() {
            self.end.borrow_mut().moves = true;
            self.dropped_for = Some("the server shuts down; the client moves to another one".to_owned());
            return Outcome::Close;
        }
        let is_over = self.shared.is_over() && !self.shared.has_waiting();
        if is_over || cx.is_draining() && self.shared.is_idle() { Outcome::Close } else { Outcome::Continue }
    }

    fn pong<P: OperationPipeline>(&mut self, cx: &mut ClientContext<'_, P>) -> Outcome<P> {
        let Some(DuePong { purpose, published, subscribed }) = self.pongs.pop_front() else {
            return self.fail("the server sent PONG without PING");
        };
        self.shared.confirm(published);
        self.confirmed = subscribed;
        self.due = if self.pongs.is_empty() { None } else { cx.now().checked_add(self.config.timeout) };
        match purpose {
            PongPurpose::Connected => return self.ready(cx),
            PongPurpose::Up(subscribers) => {
                subscribers.iter().for_each(|queue| queue.up());
                if !std::mem::replace(&mut self.is_up, true) {
                    self.shared.event(ClientEvent::Up(self.server.to_string()));
                }
            }
            PongPurpose::Flush(token, ended) => {
                for sid in ended {
                    self.subscriptions.remove(&sid);
                }
                self.shared.result(token, Ok(None));
            }
            PongPurpose::Probe => {}
        }
        self.arm(cx);
        self.outcome(cx)
    }

    /// Gives a message to its subscription. Returns the ID of one that has had its last message.
    fn deliver(&mut self, view: &MessageView) -> Option<u64> {
        self.shared.count_received();
        let sid = std::str::from_utf8(view.sid()).ok().and_then(|sid| sid.parse::<u64>().ok());
        // A message that was under way when its subscription ended.
        let subscription = self.subscriptions.get(&sid?)?;
        let SubscriptionTarget::Subscriber(queue) = &subscription.target else {
            self.shared.reply(view.into());
            return None;
        };
        queue.push(SubscriberEvent::Message(view.into()));
        if !subscription.count() {
            return None;
        }
        let subscription = self.subscriptions.remove(&sid?)?;
        self.shared.subscription_over(&subscription);
        sid
    }

    fn server_error<P>(&mut self, text: &[u8]) -> Outcome<P> {
        let error = ServerError::new(text);
        let kind = error.kind();
        let closes = !matches!(
            kind,
            ServerErrorKind::Permissions | ServerErrorKind::InvalidSubject | ServerErrorKind::TooManySubscriptions
        );
        if kind == ServerErrorKind::Authorization {
            self.end.borrow_mut().is_refused = true;
        }
        if closes {
            self.dropped_for.get_or_insert_with(|| format!("the server reports: {error}"));
        }
        let unconfirmed = self.confirmed.max(self.doubted) + 1..=self.subscribed;
        if kind == ServerErrorKind::TooManySubscriptions {
            self.doubted = self.subscribed;
        }
        // The server closes the connection, if it does.
        self.shared.server_error(error, unconfirmed);
        Outcome::Continue
    }

    /// Requests a call when something is late, a request expires, or the connection was silent for long.
    fn arm<P: OperationPipeline>(&mut self, cx: &mut ClientContext<'_, P>) {
        if self.due.is_none() && !self.pongs.is_empty() {
            self.due = cx.now().checked_add(self.config.timeout);
        }
        let expires = if self.phase == Phase::Ready { self.shared.expire(cx.now()) } else { None };
        let probe_at = self.heard_at.filter(|_| self.phase == Phase::Ready && self.pongs.is_empty());
        let probe_at = probe_at.and_then(|at| at.checked_add(self.config.ping_after));
        let moves_at = self.moves_at.filter(|_| !self.is_moving);
        cx.deadline([self.due, expires, probe_at, moves_at].into_iter().flatten().min());
    }

    fn deadline_came<P: OperationPipeline>(&mut self, cx: &mut ClientContext<'_, P>) -> Outcome<P> {
        let now = cx.now();
        if self.due.is_some_and(|due| due <= now) {
            return self.fail("the server did not answer in time");
        }
        self.is_moving |= self.moves_at.is_some_and(|at| at <= now);
        let silent_since = self.heard_at.and_then(|at| at.checked_add(self.config.ping_after));
        let is_silent = self.phase == Phase::Ready && silent_since.is_some_and(|at| at <= now);
        if is_silent && self.pongs.is_empty() && self.ping(PongPurpose::Probe, cx).is_err() {
            return self.fail("PING cannot be sent");
        }
        self.send_waiting(cx)
    }

    /// Reports the end.
    fn finish(&mut self, reason: &str) {
        let mut end = self.end.borrow_mut();
        if std::mem::replace(&mut end.is_over, true) {
            return;
        }
        let reason = self.dropped_for.take().unwrap_or_else(|| reason.to_owned());
        self.shared.set_last_failure(format!("{}: {reason}", self.server));
        if self.phase == Phase::Ready {
            self.shared.unlink(self.is_up, &reason);
        }
        end.waker.take().into_iter().for_each(Waker::wake);
    }
}

/// Where an operation ends in the queue, or why it is not there.
type Sent = Result<WritePosition, String>;

fn send<P: OperationPipeline>(operation: ClientOperation, cx: &mut ClientContext<'_, P>) -> Sent {
    cx.send(operation).map_err(|error| error.to_string())
}

/// The loop drops a handler that has panicked without a call.
impl Drop for ConnectionHandler {
    fn drop(&mut self) {
        self.finish("the connection was dropped");
    }
}

impl<P: OperationPipeline> Handler<P> for ConnectionHandler {
    type Post = WakeUp;

    fn open(&mut self, cx: &mut ClientContext<'_, P>) -> Outcome<P> {
        self.due = cx.now().checked_add(self.config.timeout);
        self.arm(cx);
        Outcome::Continue
    }

    fn message(&mut self, message: IncomingServerOperation, cx: &mut ClientContext<'_, P>) -> Outcome<P> {
        self.heard_at = Some(cx.now());
        match message {
            IncomingServerOperation::Message(view) => {
                // The server may count from another message on: it began with this connection.
                let is_sent = self
                    .deliver(&view)
                    .is_none_or(|sid| cx.send(ClientOperation::Unsubscribe { sid, max_messages: None }).is_ok());
                if !is_sent {
                    return self.fail("UNSUB cannot be sent");
                }
                // It may have been the last reply that was awaited.
                if cx.is_draining() || self.is_moving { self.outcome(cx) } else { Outcome::Continue }
            }
            IncomingServerOperation::Info(json) => self.info(&json, cx),
            IncomingServerOperation::Ping => {
                if cx.send(ClientOperation::Pong).is_ok() {
                    Outcome::Continue
                } else {
                    self.fail("PONG cannot be sent")
                }
            }
            IncomingServerOperation::Pong => self.pong(cx),
            IncomingServerOperation::Ok => Outcome::Continue,
            IncomingServerOperation::Err(text) => self.server_error(&text),
        }
    }

    fn event(&mut self, event: Event<WakeUp>, cx: &mut ClientContext<'_, P>) -> Outcome<P> {
        match event {
            Event::Posted(WakeUp) | Event::Writable | Event::Flushed => self.send_waiting(cx),
            Event::Deadline => self.deadline_came(cx),
            Event::ReadClosed => self.fail("the server closed the connection"),
            Event::Drain => self.outcome(cx),
            _ => Outcome::Continue,
        }
    }

    fn closed(&mut self, reason: &CloseReason) {
        self.finish(&reason.to_string());
    }
}

/// Whether the codec stands over TLS.
fn has_tls(pipeline: &impl Pipeline) -> bool {
    let mut has_tls = false;
    pipeline.protocols(&mut |name| has_tls |= name == "TLS");
    has_tls
}

/// Bytes that wait for the kernel; further operations stay in the queue of the client.
const QUEUED_BYTES: u64 = 256 << 10;
