//! `Handler`: the application on one connection of a server.
//!
//! Replies leave in the order of their commands. While a reply is not ready, those behind it wait in a queue with a bound;
//! a command that changes the connection is held, with decoding paused, until the queue is empty.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use tidegate_codec::Broadcast;
use tidegate_engine::{CloseReason, Context, Event, Outcome};

use crate::command::Command;
use crate::outgoing_reply::{OutgoingReply, Version};
use crate::server::channels::Channels;
use crate::server::connection_commands::{self, ConnectionCommand, Identity};
use crate::server::queue::{QueuedReply, ReplyQueue};
use crate::server::service::{Answer, CallContext, Service, error_for_count, error_for_unknown};
use crate::server::subscriptions::{SubscriptionCommand, Subscriptions, sent};
use crate::server::transaction::{Transaction, TransactionQueue};
use crate::server_codec::{IncomingCommand, ServerCodec};

/// Configuration that the connections of a server share. Each bound is for one connection.
#[derive(Debug, Clone)]
pub struct HandlerConfig {
    /// The password of AUTH; none unless set. Without it a client may do nothing but authenticate.
    pub password: Option<Box<[u8]>>,
    /// The version that HELLO and INFO report; 7.0.15 unless set. Clients choose commands by it.
    pub server_version: &'static str,
    /// Replies that wait behind one that is not ready; 128 unless set. Then no command is decoded. It stops a client from
    /// filling memory with replies.
    pub queued_replies_max: usize,
    /// Bytes of the commands between MULTI and EXEC; 64 MiB unless set. It stops a transaction without an end.
    pub transaction_bytes_max: usize,
    /// Channels and patterns of one connection; 65,536 unless set. It stops a client from filling memory with names.
    pub subscriptions_max: usize,
}

impl Default for HandlerConfig {
    fn default() -> Self {
        Self {
            password: None,
            server_version: "7.0.15",
            queued_replies_max: 128,
            transaction_bytes_max: 64 << 20,
            subscriptions_max: 65_536,
        }
    }
}

/// The application on one connection: [`Service`] documents an example.
///
/// It answers these commands by itself: HELLO, AUTH, PING, ECHO, SELECT 0, QUIT, RESET, CLIENT, COMMAND, CONFIG GET, INFO,
/// PUBLISH, SUBSCRIBE, UNSUBSCRIBE, PSUBSCRIBE, PUNSUBSCRIBE, PUBSUB, MULTI, EXEC and DISCARD. A service may replace those
/// that do not change the connection.
pub struct Handler<S, C = ServerCodec> {
    service: S,
    config: Arc<HandlerConfig>,
    channels: Channels<C>,
    client_id: u64,
    version: Version,
    is_authenticated: bool,
    /// No bound, transaction, queue or subscription changes the effect of a command.
    is_plain: bool,
    /// The connection closes once the queue is empty.
    is_closing: bool,
    /// State that few connections have.
    more: Option<Box<More>>,
}

/// Optional state, boxed to keep idle connections small.
#[derive(Debug, Default)]
struct More {
    name: Bytes,
    subscriptions: Subscriptions,
    transaction: Option<TransactionQueue>,
    queue: ReplyQueue,
    /// The command that waits until the queue is empty.
    held: Option<Command>,
}

impl<S: Service> Handler<S> {
    /// A handler with the default configuration and channels of its own.
    #[must_use]
    pub fn new(service: S) -> Self {
        Self::with(service, Arc::default(), Channels::new())
    }
}

impl<S: Service, C: Broadcast<In = IncomingCommand, Out = OutgoingReply>> Handler<S, C> {
    /// A handler of a server with this configuration and these channels.
    #[must_use]
    pub fn with(service: S, config: Arc<HandlerConfig>, channels: Channels<C>) -> Self {
        let is_authenticated = config.password.is_none();
        Self {
            service,
            config,
            channels,
            client_id: CLIENTS.fetch_add(1, Ordering::Relaxed),
            version: Version::Resp2,
            is_authenticated,
            is_plain: is_authenticated,
            is_closing: false,
            more: None,
        }
    }

    fn context(&self, cx: &Context<'_, C>) -> CallContext {
        CallContext { now: cx.now(), version: self.version, client_id: self.client_id }
    }

    fn more(&mut self) -> &mut More {
        self.more.get_or_insert_default()
    }

    /// Finds out again whether the connection is in its usual state.
    fn settle(&mut self) {
        let is_resp3 = self.version == Version::Resp3;
        let is_usual = self.more.as_deref().is_none_or(|more| {
            more.transaction.is_none()
                && more.queue.is_empty()
                && more.held.is_none()
                && (is_resp3 || more.subscriptions.is_empty())
        });
        self.is_plain = self.is_authenticated && !self.is_closing && is_usual;
    }

    /// A command of a connection with nothing special about it, or one that the checks before have let through.
    fn execute(&mut self, command: &Command, cx: &mut Context<'_, C>) -> Outcome<C> {
        match self.service.call(command, &self.context(cx)) {
            Answer::Reply(reply) => self.answer(reply, cx),
            Answer::Later(reply) => {
                let task = cx.spawn(reply);
                self.enqueue(QueuedReply::Task(task), cx);
                Outcome::Continue
            }
            Answer::Unknown => match ConnectionCommand::of(command.name()) {
                Some(what) if self.has_queue() => {
                    if what.changes_connection() {
                        self.more().held = Some(command.clone().detach());
                        cx.pause();
                        return Outcome::Continue;
                    }
                    self.change(what, command, cx)
                }
                Some(what) => self.change(what, command, cx),
                None => {
                    let reply = error_for_unknown(command);
                    self.answer(reply, cx)
                }
            },
        }
    }

    fn has_queue(&self) -> bool {
        self.more.as_deref().is_some_and(|more| !more.queue.is_empty())
    }

    /// Sends a reply, or puts it behind those that are not ready.
    #[inline]
    fn answer(&mut self, reply: OutgoingReply, cx: &mut Context<'_, C>) -> Outcome<C> {
        if self.is_plain || !self.has_queue() {
            return sent(cx, reply);
        }
        self.enqueue(QueuedReply::Ready(reply), cx);
        Outcome::Continue
    }

    fn enqueue(&mut self, reply: QueuedReply, cx: &mut Context<'_, C>) {
        let max = self.config.queued_replies_max;
        let queue = &mut self.more().queue;
        queue.push(reply);
        if queue.len() >= max {
            cx.pause();
        }
        self.is_plain = false;
    }

    /// Sends the replies that are ready; with the last one, executes the command that waited.
    fn send_queued(&mut self, cx: &mut Context<'_, C>) -> Outcome<C> {
        while let Some(QueuedReply::Ready(reply)) = self.more().queue.pop() {
            if let outcome @ Outcome::Fail(_) = sent(cx, reply) {
                return outcome;
            }
        }
        if self.has_queue() {
            if self.more().held.is_none() && self.more().queue.len() < self.config.queued_replies_max {
                cx.resume();
            }
            return Outcome::Continue;
        }
        let held = self.more().held.take();
        self.settle();
        cx.resume();
        if let Some(command) = held {
            let outcome = self.command(&command, cx);
            if !matches!(outcome, Outcome::Continue) || self.has_queue() {
                return outcome;
            }
        }
        if self.is_closing { Outcome::Close } else { Outcome::Continue }
    }

    fn command(&mut self, command: &Command, cx: &mut Context<'_, C>) -> Outcome<C> {
        let name = command.name();
        let what = ConnectionCommand::of(name);
        if !self.is_authenticated && !what.is_some_and(ConnectionCommand::is_before_authentication) {
            return sent(cx, OutgoingReply::error("NOAUTH Authentication required."));
        }
        if self.more.as_deref().is_some_and(|more| more.transaction.is_some())
            && !what.is_some_and(ConnectionCommand::is_within_transaction)
        {
            return self.queue_command(what, command, cx);
        }
        let is_subscriber = self.more.as_deref().is_some_and(|more| !more.subscriptions.is_empty());
        if is_subscriber && self.version == Version::Resp2 && !what.is_some_and(ConnectionCommand::is_for_subscribers) {
            return sent(cx, connection_commands::error_for_subscriber(name));
        }
        if is_subscriber && self.version == Version::Resp2 && what == Some(ConnectionCommand::Ping) {
            return sent(cx, connection_commands::pong_of_subscriber(command));
        }
        self.execute(command, cx)
    }

    /// A command between MULTI and EXEC.
    fn queue_command(
        &mut self,
        what: Option<ConnectionCommand>,
        command: &Command,
        cx: &mut Context<'_, C>,
    ) -> Outcome<C> {
        if command.name().eq_ignore_ascii_case(b"WATCH") {
            return sent(cx, OutgoingReply::error("ERR WATCH inside MULTI is not allowed"));
        }
        let checked = match what {
            Some(what) if what.changes_connection() => {
                Err(OutgoingReply::error("ERR Command not allowed inside a transaction"))
            }
            Some(what) => {
                let (min, max) = what.counts();
                if (min..=max).contains(&command.count()) { Ok(()) } else { Err(error_for_count(command)) }
            }
            None => self
                .service
                .check(command)
                .and_then(|is_known| if is_known { Ok(()) } else { Err(error_for_unknown(command)) }),
        };
        let bytes_max = self.config.transaction_bytes_max;
        let Some(queue) = self.more().transaction.as_mut() else { return Outcome::Continue };
        let bytes = queue.bytes + command.wire().len() + size_of::<Command>();
        let checked = checked.and_then(|()| {
            if bytes > bytes_max { Err(OutgoingReply::error("ERR the transaction is too long")) } else { Ok(()) }
        });
        let reply = match checked {
            Ok(()) => {
                queue.bytes = bytes;
                queue.commands.push(command.clone().detach());
                OutgoingReply::Simple("QUEUED".into())
            }
            Err(error) => {
                queue.is_broken = true;
                error
            }
        };
        sent(cx, reply)
    }

    fn change(&mut self, what: ConnectionCommand, command: &Command, cx: &mut Context<'_, C>) -> Outcome<C> {
        let outcome = self.change_within(what, command, cx);
        self.settle();
        outcome
    }

    fn change_within(&mut self, what: ConnectionCommand, command: &Command, cx: &mut Context<'_, C>) -> Outcome<C> {
        match what {
            ConnectionCommand::Hello => self.hello(command, cx),
            ConnectionCommand::Auth => {
                let reply = match connection_commands::authenticate(command, self.config.password.as_deref()) {
                    Ok(()) => {
                        self.is_authenticated = true;
                        OutgoingReply::ok()
                    }
                    Err(error) => error,
                };
                sent(cx, reply)
            }
            ConnectionCommand::Subscription(what) => self.subscribe(what, command, cx),
            ConnectionCommand::Multi => {
                let is_open = self.more().transaction.is_some();
                let reply = if is_open {
                    OutgoingReply::error("ERR MULTI calls can not be nested")
                } else {
                    self.more().transaction = Some(TransactionQueue::default());
                    OutgoingReply::ok()
                };
                sent(cx, reply)
            }
            ConnectionCommand::Discard => {
                let was_open = self.more().transaction.take().is_some();
                if !was_open {
                    return sent(cx, OutgoingReply::error("ERR DISCARD without MULTI"));
                }
                self.service.discard();
                sent(cx, OutgoingReply::ok())
            }
            ConnectionCommand::Exec => {
                let reply = self.exec(cx);
                sent(cx, reply)
            }
            ConnectionCommand::Quit => match sent(cx, OutgoingReply::ok()) {
                Outcome::Continue => Outcome::Close,
                outcome => outcome,
            },
            ConnectionCommand::Reset => self.reset(cx),
            _ => {
                let reply = self.stateless(what, command, &self.context(cx));
                self.answer(reply, cx)
            }
        }
    }

    /// A command that changes nothing but the name of the connection.
    fn stateless(&mut self, what: ConnectionCommand, command: &Command, context: &CallContext) -> OutgoingReply {
        if what == ConnectionCommand::Client {
            let is_naming = self.more.is_some() || connection_commands::names_client(command);
            let mut unnamed = Bytes::new();
            let name = if is_naming { &mut self.more().name } else { &mut unnamed };
            return connection_commands::client(command, name, context);
        }
        connection_commands::reply(what, command, &self.identity(context), &self.channels)
    }

    fn identity(&self, context: &CallContext) -> Identity {
        Identity { server_version: self.config.server_version, client_id: context.client_id, version: context.version }
    }

    fn exec(&mut self, cx: &mut Context<'_, C>) -> OutgoingReply {
        let Some(queue) = self.more().transaction.take() else {
            return OutgoingReply::error("ERR EXEC without MULTI");
        };
        if queue.is_broken {
            self.service.discard();
            return OutgoingReply::error("EXECABORT Transaction discarded because of previous errors.");
        }
        let context = self.context(cx);
        let identity = self.identity(&context);
        let name = &mut self.more.get_or_insert_default().name;
        let channels = &self.channels;
        let mut otherwise = |command: &Command| match ConnectionCommand::of(command.name()) {
            Some(ConnectionCommand::Client) => connection_commands::client(command, name, &context),
            Some(what) => connection_commands::reply(what, command, &identity, channels),
            None => error_for_unknown(command),
        };
        let transaction = Transaction { commands: &queue.commands, context, otherwise: &mut otherwise };
        let reply = self.service.exec(transaction);
        self.service.discard();
        reply
    }

    fn hello(&mut self, command: &Command, cx: &mut Context<'_, C>) -> Outcome<C> {
        let hello = connection_commands::hello(command, self.config.password.as_deref(), self.is_authenticated);
        let hello = match hello {
            Ok(hello) => hello,
            Err(error) => return sent(cx, error),
        };
        self.is_authenticated = true;
        if let Some(name) = hello.name {
            self.more().name = name;
        }
        if let Some(version) = hello.version.filter(|version| *version != self.version) {
            self.version = version;
            if let Some(more) = &mut self.more {
                more.subscriptions.change_version(version, &self.channels, cx);
            }
            if let outcome @ Outcome::Fail(_) = sent(cx, OutgoingReply::Version(version)) {
                return outcome;
            }
        }
        let identity = self.identity(&self.context(cx));
        sent(cx, identity.hello())
    }

    fn subscribe(&mut self, what: SubscriptionCommand, command: &Command, cx: &mut Context<'_, C>) -> Outcome<C> {
        let (version, max) = (self.version, self.config.subscriptions_max);
        let more = self.more.get_or_insert_default();
        let all = more.subscriptions.execute(what, command, version, max, &self.channels, cx);
        sent(cx, OutgoingReply::All(all))
    }

    fn reset(&mut self, cx: &mut Context<'_, C>) -> Outcome<C> {
        if let Some(mut more) = self.more.take() {
            more.subscriptions.leave_all(&self.channels, cx);
        }
        self.service.discard();
        self.version = Version::Resp2;
        self.is_authenticated = self.config.password.is_none();
        sent(
            cx,
            OutgoingReply::All(vec![OutgoingReply::Version(Version::Resp2), OutgoingReply::Simple("RESET".into())]),
        )
    }
}

impl<S, C> tidegate_engine::Handler<C> for Handler<S, C>
where
    S: Service,
    C: Broadcast<In = IncomingCommand, Out = OutgoingReply>,
{
    type Post = ();

    fn message(&mut self, message: IncomingCommand, cx: &mut Context<'_, C>) -> Outcome<C> {
        match message {
            IncomingCommand::Whole(command) if self.is_plain => self.execute(&command, cx),
            IncomingCommand::Whole(command) => self.command(&command, cx),
            // The parts are dropped as they come.
            IncomingCommand::End => {
                self.answer(OutgoingReply::error("ERR the command is longer than this server accepts"), cx)
            }
            _ => Outcome::Continue,
        }
    }

    fn event(&mut self, event: Event<()>, cx: &mut Context<'_, C>) -> Outcome<C> {
        match event {
            Event::TaskFinished => self.send_queued(cx),
            Event::ReadClosed | Event::Drain if self.has_queue() => {
                self.is_closing = true;
                Outcome::Continue
            }
            event => event.by_default(cx),
        }
    }

    fn closed(&mut self, _: &CloseReason) {
        if let Some(more) = &mut self.more {
            more.subscriptions.forget(&self.channels);
        }
    }
}

impl<S, C> fmt::Debug for Handler<S, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Handler").field("version", &self.version).field("more", &self.more).finish_non_exhaustive()
    }
}

/// The number of the next connection, of all servers of this process.
static CLIENTS: AtomicU64 = AtomicU64::new(1);

const _: () = assert!(size_of::<Handler<()>>() <= 40);
