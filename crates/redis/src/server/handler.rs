//! `Handler`: the application on one connection of a server.
//!
//! Replies leave in the order of their commands. While a reply is not ready, those behind it wait in a queue with a bound;
//! a command that changes the connection is held, with decoding paused, until the queue is empty. A blocking command pauses
//! decoding as well, and is the last of the queue.

use std::fmt;
use std::sync::Arc;

use tidegate_codec::Broadcast;
use tidegate_engine::{CloseReason, Context, Event, Outcome, SendError};

use crate::command::Command;
use crate::outgoing_reply::{OutgoingReply, Version};
use crate::server::channels::{ChannelPost, Channels};
use crate::server::config::HandlerConfig;
use crate::server::connection_commands::{self, ConnectionCommand};
use crate::server::queue::QueuedReply;
use crate::server::service::{Answer, Service, error_for_unknown};
use crate::server::session::Session;
use crate::server::subscriptions::{SubscriptionCommand, sent};
use crate::server::transaction::{Transaction, TransactionQueue};
use crate::server_codec::{IncomingCommand, ServerCodec};

/// The application on one connection: [`Service`] documents an example.
///
/// It answers these commands by itself: HELLO, AUTH, PING, ECHO, SELECT 0, QUIT, RESET, CLIENT, COMMAND, CONFIG GET, INFO,
/// PUBLISH, SUBSCRIBE, UNSUBSCRIBE, PSUBSCRIBE, PUNSUBSCRIBE, PUBSUB, MULTI, EXEC and DISCARD. A service may replace those
/// that do not change the connection.
pub struct Handler<S, C = ServerCodec> {
    service: S,
    session: Session<C>,
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
        Self { service, session: Session::new(config, channels) }
    }

    /// Sets the number of the client, which CLIENT ID and HELLO report, for tests that repeat. It is that of the next connection
    /// of this process unless set. Two connections with the same channels have different numbers.
    #[must_use]
    pub fn client_id(mut self, id: u64) -> Self {
        self.session.client_id = id;
        self
    }

    /// A command of a connection with nothing special about it, or one that the checks before have let through.
    fn execute(
        &mut self,
        what: Option<ConnectionCommand>,
        command: &Command,
        cx: &mut Context<'_, C, ChannelPost>,
    ) -> Outcome<C> {
        if let Some(what) = what.filter(|what| what.changes_connection()) {
            return self.change(what, command, cx);
        }
        match self.service.call(command, &self.session.context(cx)) {
            Answer::Reply(reply) => self.answer(reply, cx),
            Answer::Later(reply) => {
                let task = cx.spawn(reply);
                self.enqueue(QueuedReply::Task(task), cx);
                Outcome::Continue
            }
            Answer::Blocking(reply) => {
                let task = cx.spawn(reply);
                self.enqueue(QueuedReply::Task(task), cx);
                self.session.is_blocked = true;
                cx.pause();
                // Its end would wait behind the commands that are not decoded.
                cx.watch_end();
                Outcome::Continue
            }
            Answer::Unknown => {
                let reply = match what {
                    Some(what) => self.session.execute(what, command, cx),
                    None => error_for_unknown(command),
                };
                self.answer(reply, cx)
            }
        }
    }

    /// Sends a reply, or puts it behind those that are not ready.
    #[inline]
    fn answer(&mut self, reply: OutgoingReply, cx: &mut Context<'_, C, ChannelPost>) -> Outcome<C> {
        if self.session.is_plain || !self.session.has_queue() {
            return sent(cx, reply);
        }
        self.enqueue(QueuedReply::Ready(reply), cx);
        Outcome::Continue
    }

    fn enqueue(&mut self, reply: QueuedReply, cx: &mut Context<'_, C, ChannelPost>) {
        self.session.more().queue.push(reply);
        if self.session.has_full_queue() {
            cx.pause();
        }
        self.session.is_plain = false;
    }

    /// Sends the replies that are ready, as long as the client reads; with the last one, executes the command that waited.
    fn send_queued(&mut self, cx: &mut Context<'_, C, ChannelPost>) -> Outcome<C> {
        while cx.is_writable() {
            let Some(reply) = self.session.more().queue.pop() else { break };
            if let outcome @ Outcome::Fail(_) = sent(cx, reply) {
                return outcome;
            }
        }
        if self.session.has_queue() {
            self.session.more().queue.count_finished();
            if self.session.has_full_queue() {
                cx.pause();
            } else if self.session.more().held.is_none() && !self.session.is_blocked {
                cx.resume();
            }
            return Outcome::Continue;
        }
        self.session.is_blocked = false;
        let held = self.session.more().held.take();
        self.session.settle();
        cx.resume();
        if let Some(command) = held {
            let outcome = self.command(&command, cx);
            if !matches!(outcome, Outcome::Continue) || self.session.has_queue() {
                return outcome;
            }
        }
        if self.session.is_closing { Outcome::Close } else { Outcome::Continue }
    }

    /// The client of a blocking command has left, or the server drains: replies before it are sent, and the connection
    /// closes.
    fn end_blocked(&mut self) -> Outcome<C> {
        self.session.is_closing = true;
        self.session.more().queue.cancel_last();
        if self.session.has_queue() { Outcome::Continue } else { Outcome::Close }
    }

    fn command(&mut self, command: &Command, cx: &mut Context<'_, C, ChannelPost>) -> Outcome<C> {
        let name = command.name();
        let what = ConnectionCommand::of(name);
        if !self.session.is_authenticated && !what.is_some_and(ConnectionCommand::is_before_authentication) {
            return sent(cx, OutgoingReply::error("NOAUTH Authentication required."));
        }
        if self.session.more.as_deref().is_some_and(|more| more.transaction.is_some())
            && !what.is_some_and(ConnectionCommand::is_within_transaction)
        {
            return self.queue_command(what, command, cx);
        }
        let is_subscriber = self.session.more.as_deref().is_some_and(|more| !more.subscriptions.is_empty());
        if is_subscriber
            && self.session.version == Version::Resp2
            && !what.is_some_and(ConnectionCommand::is_for_subscribers)
        {
            return sent(cx, connection_commands::error_for_subscriber(name));
        }
        if is_subscriber && self.session.version == Version::Resp2 && what == Some(ConnectionCommand::Ping) {
            return sent(cx, connection_commands::pong_of_subscriber(command));
        }
        self.execute(what, command, cx)
    }

    /// A command between MULTI and EXEC.
    fn queue_command(
        &mut self,
        what: Option<ConnectionCommand>,
        command: &Command,
        cx: &mut Context<'_, C, ChannelPost>,
    ) -> Outcome<C> {
        let not_allowed = || OutgoingReply::error("ERR Command not allowed inside a transaction");
        let checked = match what {
            // The array of EXEC has one reply for each command, and SUBSCRIBE has one for each channel.
            Some(what @ ConnectionCommand::Subscription(_)) => what.check(command).and_then(|()| Err(not_allowed())),
            Some(what) => what.check(command),
            None => match self.service.check(command) {
                Ok(_) if command.name().eq_ignore_ascii_case(b"WATCH") => {
                    return sent(cx, OutgoingReply::error("ERR WATCH inside MULTI is not allowed"));
                }
                Ok(false) => Err(error_for_unknown(command)),
                Ok(true) => Ok(()),
                Err(error) => Err(error),
            },
        };
        let bytes_max = self.session.config.transaction_bytes_max;
        let Some(queue) = self.session.more().transaction.as_mut() else { return Outcome::Continue };
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

    /// A command that the service does not get. It waits for the replies before it.
    fn change(
        &mut self,
        what: ConnectionCommand,
        command: &Command,
        cx: &mut Context<'_, C, ChannelPost>,
    ) -> Outcome<C> {
        if self.session.has_queue() {
            self.session.more().held = Some(command.clone().detach());
            cx.pause();
            return Outcome::Continue;
        }
        let outcome = match what.check(command) {
            Ok(()) => self.change_within(what, command, cx),
            Err(error) => self.refuse(what, error, cx),
        };
        self.session.settle();
        outcome
    }

    fn change_within(
        &mut self,
        what: ConnectionCommand,
        command: &Command,
        cx: &mut Context<'_, C, ChannelPost>,
    ) -> Outcome<C> {
        match what {
            ConnectionCommand::Subscription(what) => self.subscribe(what, command, cx),
            ConnectionCommand::Multi => {
                let is_open = self.session.more().transaction.is_some();
                let reply = if is_open {
                    OutgoingReply::error("ERR MULTI calls can not be nested")
                } else {
                    self.session.more().transaction = Some(TransactionQueue::default());
                    OutgoingReply::ok()
                };
                sent(cx, reply)
            }
            ConnectionCommand::Discard => {
                let was_open = self.session.more().transaction.take().is_some();
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
            ConnectionCommand::CrossProtocol => Outcome::Close,
            ConnectionCommand::Reset => self.reset(cx),
            what => {
                let reply = self.session.execute(what, command, cx);
                sent(cx, reply)
            }
        }
    }

    /// Refuses a command of this handler. EXEC ends its transaction all the same.
    fn refuse(
        &mut self,
        what: ConnectionCommand,
        error: OutgoingReply,
        cx: &mut Context<'_, C, ChannelPost>,
    ) -> Outcome<C> {
        if what != ConnectionCommand::Exec {
            self.session.break_transaction();
            return sent(cx, error);
        }
        // As in Redis, it also ends watching before MULTI.
        self.session.more().transaction = None;
        self.service.discard();
        let reason = "EXECABORT Transaction discarded because of: wrong number of arguments for 'exec' command";
        sent(cx, OutgoingReply::error(reason))
    }

    fn exec(&mut self, cx: &mut Context<'_, C, ChannelPost>) -> OutgoingReply {
        let Some(queue) = self.session.more().transaction.take() else {
            return OutgoingReply::error("ERR EXEC without MULTI");
        };
        if queue.is_broken {
            self.service.discard();
            return OutgoingReply::error("EXECABORT Transaction discarded because of previous errors.");
        }
        let (context, session) = (self.session.context(cx), &mut self.session);
        let mut otherwise = |command: &Command| match ConnectionCommand::of(command.name()) {
            Some(what) => session.execute(what, command, cx),
            None => error_for_unknown(command),
        };
        let transaction = Transaction { commands: &queue.commands, context, otherwise: &mut otherwise };
        let reply = self.service.exec(transaction);
        self.service.discard();
        reply
    }

    fn subscribe(
        &mut self,
        what: SubscriptionCommand,
        command: &Command,
        cx: &mut Context<'_, C, ChannelPost>,
    ) -> Outcome<C> {
        let (subscriber, config) = (self.session.subscriber(), &self.session.config);
        let more = self.session.more.get_or_insert_default();
        let all = more.subscriptions.execute(what, command, subscriber, config, &self.session.channels, cx);
        sent(cx, OutgoingReply::All(all))
    }

    /// Sends a message of a channel that the connection still has. As for a group, one that does not read is disconnected.
    fn deliver(&mut self, post: ChannelPost, cx: &mut Context<'_, C, ChannelPost>) -> Outcome<C> {
        let subscriptions = self.session.more.as_deref().map(|more| &more.subscriptions);
        if !subscriptions.is_some_and(|subscriptions| subscriptions.contains(post.kind, &post.name)) {
            return Outcome::Continue;
        }
        match cx.send(post.into_push()) {
            Ok(_) => Outcome::Continue,
            // A close in good order would wait for the peer to read.
            Err(SendError::Full(_)) => Outcome::Abort,
            Err(error) => Outcome::fail(error),
        }
    }

    fn reset(&mut self, cx: &mut Context<'_, C, ChannelPost>) -> Outcome<C> {
        if let Some(mut more) = self.session.more.take() {
            more.subscriptions.leave_all(self.session.subscriber().client_id, &self.session.channels, cx);
        }
        self.service.discard();
        self.session.version = Version::Resp2;
        self.session.is_authenticated = self.session.config.password.is_none();
        let (version, reset) = (OutgoingReply::Version(Version::Resp2), OutgoingReply::Simple("RESET".into()));
        let restricted = OutgoingReply::Restricted(!self.session.is_authenticated);
        sent(cx, OutgoingReply::All(vec![version, restricted, reset]))
    }
}

impl<S, C> tidegate_engine::Handler<C> for Handler<S, C>
where
    S: Service,
    C: Broadcast<In = IncomingCommand, Out = OutgoingReply>,
{
    type Post = ChannelPost;

    fn open(&mut self, cx: &mut Context<'_, C, ChannelPost>) -> Outcome<C> {
        if self.session.is_authenticated { Outcome::Continue } else { sent(cx, OutgoingReply::Restricted(true)) }
    }

    fn message(&mut self, message: IncomingCommand, cx: &mut Context<'_, C, ChannelPost>) -> Outcome<C> {
        match message {
            IncomingCommand::Whole(command) if self.session.is_plain => {
                self.execute(ConnectionCommand::of(command.name()), &command, cx)
            }
            IncomingCommand::Whole(command) => self.command(&command, cx),
            // The parts are dropped as they come.
            IncomingCommand::End => {
                self.session.break_transaction();
                self.answer(OutgoingReply::error("ERR the command is longer than this server accepts"), cx)
            }
            _ => Outcome::Continue,
        }
    }

    fn event(&mut self, event: Event<ChannelPost>, cx: &mut Context<'_, C, ChannelPost>) -> Outcome<C> {
        match event {
            Event::Posted(post) => self.deliver(post, cx),
            Event::TaskFinished => self.send_queued(cx),
            Event::Writable if self.session.has_queue() => self.send_queued(cx),
            Event::HungUp | Event::ReadClosed | Event::Drain if self.session.is_blocked => self.end_blocked(),
            Event::ReadClosed | Event::Drain if self.session.has_queue() => {
                self.session.is_closing = true;
                Outcome::Continue
            }
            event => event.by_default(cx),
        }
    }

    fn closed(&mut self, _: &CloseReason) {
        let client_id = self.session.subscriber().client_id;
        if let Some(more) = &mut self.session.more {
            more.subscriptions.forget(client_id, &self.session.channels);
        }
    }
}

impl<S, C> fmt::Debug for Handler<S, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Handler").field("session", &self.session).finish_non_exhaustive()
    }
}

const _: () = assert!(size_of::<Handler<()>>() <= 40);
