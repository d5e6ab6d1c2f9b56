//! One client: its commands go to the upstream, and the replies come back in their order.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use tidegate::redis::{
    Client, ClientError, Command, CommandBuffer, CommandClass, Dedicated, Failure, IncomingCommand, OutgoingReply,
    ReplyBudget, ServerCodec, Version, WireReply,
};
use tidegate::{Channel, ChannelError};

use crate::Any;
use crate::relay::relay;
use crate::upstream::{ConnectionKey, Upstream, error_for, error_for_failure};

/// Serves a client until it leaves.
pub(crate) async fn serve(mut channel: Channel<ServerCodec>, upstream: Rc<Upstream>) -> Result<(), Any> {
    let mut session = Session::new(upstream, channel.id());
    channel.send(OutgoingReply::Restricted(!session.is_authenticated))?;
    loop {
        let turn = poll_fn(|cx| session.poll_turn(&mut channel, cx)).await?;
        let command = match turn {
            Turn::Reply(reply) => {
                channel.send(reply)?;
                continue;
            }
            Turn::Command(IncomingCommand::Whole(command)) => command,
            Turn::Command(IncomingCommand::End) => {
                session.reply(OutgoingReply::error("ERR the command is longer than this proxy accepts"));
                continue;
            }
            Turn::Command(_) => continue,
            Turn::End => return Ok(()),
        };
        match session.step(&command) {
            Step::Done => {}
            Step::Wait => session.held = Some(command.detach()),
            Step::Change => {
                let reply = session.change_connection(&command).await;
                session.reply(reply);
            }
            Step::Relay => {
                session.own = None;
                return relay(channel, &session.upstream, session.key, &command).await;
            }
            Step::Close => {
                channel.send(OutgoingReply::ok())?;
                return Ok(());
            }
            Step::Abort => return Ok(()),
        }
    }
}

/// The state of a client.
pub(crate) struct Session {
    pub(crate) upstream: Rc<Upstream>,
    pub(crate) key: ConnectionKey,
    pub(crate) id: u64,
    pub(crate) name: Vec<u8>,
    pub(crate) is_authenticated: bool,
    budget: ReplyBudget,
    replies: VecDeque<PendingReply>,
    /// A command that waits until `replies` is empty.
    held: Option<Command>,
    own: Option<OwnConnection>,
    /// A blocking command is under way.
    is_blocked: bool,
    /// The client sends nothing more.
    is_over: bool,
}

/// The connection of a transaction or a blocking command, until its replies have come.
struct OwnConnection {
    connection: Dedicated,
    is_transaction: bool,
    watches: bool,
    /// It has another version or database than it began with, so that no other client may have it.
    is_changed: bool,
}

enum PendingReply {
    Ready(OutgoingReply),
    Upstream {
        reply: WireReply,
        /// A part of it was sent.
        is_begun: bool,
    },
}

/// The next event of a session.
enum Turn {
    Reply(OutgoingReply),
    Command(IncomingCommand),
    End,
}

/// The consequence of a command.
enum Step {
    Done,
    /// It waits for the replies before it.
    Wait,
    /// It concerns the connection to the client, which has no reply under way.
    Change,
    Relay,
    Close,
    /// Nothing is answered any more.
    Abort,
}

impl Session {
    fn new(upstream: Rc<Upstream>, id: u64) -> Self {
        Self {
            key: ConnectionKey { version: Version::Resp2, database: 0 },
            id,
            name: Vec::new(),
            is_authenticated: upstream.password.is_none(),
            budget: upstream.budget.part(upstream.client_bytes_max),
            replies: VecDeque::new(),
            held: None,
            own: None,
            is_blocked: false,
            is_over: false,
            upstream,
        }
    }

    pub(crate) fn reply(&mut self, reply: OutgoingReply) {
        self.replies.push_back(PendingReply::Ready(reply));
    }

    /// The next reply to send, as long as the client reads; otherwise the next command.
    fn poll_turn(&mut self, channel: &mut Channel<ServerCodec>, cx: &mut Context<'_>) -> Poll<Result<Turn, Any>> {
        if channel.is_writable() {
            if let Poll::Ready(reply) = self.poll_reply(cx) {
                return Poll::Ready(reply.map(Turn::Reply).map_err(Into::into));
            }
        } else if let Poll::Ready(ready) = Pin::new(&mut channel.ready()).poll(cx) {
            ready?;
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        if self.replies.is_empty() {
            self.is_blocked = false;
            self.release_own();
            if let Some(held) = self.held.take() {
                return Poll::Ready(Ok(Turn::Command(IncomingCommand::Whole(held))));
            }
        }
        // A client that has left must get no result of BLPOP and the like: it would be lost.
        if self.is_over && (self.replies.is_empty() || self.is_blocked) {
            return Poll::Ready(Ok(Turn::End));
        }
        if self.held.is_some() || self.is_over || self.replies.len() >= COMMANDS_MAX {
            return self.poll_leaving(channel, cx);
        }
        match channel.poll_recv(cx) {
            Poll::Ready(Ok(Some(command))) => Poll::Ready(Ok(Turn::Command(command))),
            Poll::Ready(Ok(None)) => {
                self.is_over = true;
                cx.waker().wake_by_ref();
                Poll::Pending
            }
            Poll::Ready(Err(error)) => Poll::Ready(Err(error.into())),
            Poll::Pending => Poll::Pending,
        }
    }

    /// A client that leaves while no command is read ends its session.
    fn poll_leaving(&self, channel: &mut Channel<ServerCodec>, cx: &mut Context<'_>) -> Poll<Result<Turn, Any>> {
        if self.is_blocked {
            return channel.poll_hung_up(cx).map(|()| Ok(Turn::End));
        }
        channel.poll_closed(cx).map(|error: ChannelError| Err(error.into()))
    }

    /// The next reply in order, or a part of it.
    fn poll_reply(&mut self, cx: &mut Context<'_>) -> Poll<Result<OutgoingReply, ClientError>> {
        loop {
            let Some(PendingReply::Upstream { reply, is_begun }) = self.replies.front_mut() else {
                return match self.replies.pop_front() {
                    Some(PendingReply::Ready(reply)) => Poll::Ready(Ok(reply)),
                    _ => Poll::Pending,
                };
            };
            match reply.poll_next(cx) {
                Poll::Ready(Some(Ok(bytes))) => {
                    *is_begun = true;
                    return Poll::Ready(Ok(OutgoingReply::Wire(bytes.into())));
                }
                // Nothing can follow a part of a reply, and a client that does not read gets no more either.
                Poll::Ready(Some(Err(error))) if *is_begun || is_too_slow(&error) => return Poll::Ready(Err(error)),
                Poll::Ready(Some(Err(error))) => {
                    self.replies.pop_front();
                    return Poll::Ready(Ok(error_for_failure(&error)));
                }
                Poll::Ready(None) => drop(self.replies.pop_front()),
                Poll::Pending => return Poll::Pending,
            }
        }
    }

    /// Decides where a command goes, and sends it there.
    fn step(&mut self, command: &Command) -> Step {
        let class = CommandClass::of(command);
        let is = |name: &[u8]| command.name().eq_ignore_ascii_case(name);
        // As Redis does: a page can make a browser send HTTP requests to this port.
        if is(b"POST") || is(b"Host:") {
            return Step::Abort;
        }
        if !self.is_authenticated && ![&b"AUTH"[..], b"HELLO", b"RESET", b"QUIT"].into_iter().any(is) {
            self.reply(OutgoingReply::error("NOAUTH Authentication required."));
            return Step::Done;
        }
        let is_within = self.own.as_ref().is_some_and(|own| own.is_transaction);
        match class {
            CommandClass::Connection | CommandClass::Subscription if is_within && !is(b"RESET") && !is(b"QUIT") => {
                // The upstream does not know it by this name, so the transaction fails as it must.
                self.forward(
                    CommandBuffer::new([command.name(), b"-within-a-transaction-of-redis_proxy"].concat()),
                    false,
                )
            }
            CommandClass::Connection | CommandClass::Subscription if !self.replies.is_empty() => Step::Wait,
            CommandClass::Connection if is(b"QUIT") => Step::Close,
            CommandClass::Connection | CommandClass::Subscription
                if class == CommandClass::Subscription || Self::needs_relay(command) =>
            {
                self.begin_relay()
            }
            CommandClass::Connection => Step::Change,
            CommandClass::Blocking | CommandClass::Transaction if self.own.is_none() => self.take_own(command, class),
            class => {
                self.follow_transaction(command);
                self.forward(command.into(), class == CommandClass::Blocking)
            }
        }
    }

    /// Commands whose effect belongs to a connection, in ways that this proxy does not follow.
    fn needs_relay(command: &Command) -> bool {
        let is = |at, name: &[u8]| command.argument(at).is_some_and(|word| word.eq_ignore_ascii_case(name));
        let of_client = [&b"TRACKING"[..], b"TRACKINGINFO", b"GETREDIR", b"CACHING", b"REPLY"];
        let others = [&b"READONLY"[..], b"READWRITE", b"ASKING", b"SYNC", b"PSYNC", b"REPLCONF"];
        others.into_iter().any(|name| is(0, name))
            || (is(0, b"SCRIPT") && is(1, b"DEBUG"))
            || (is(0, b"CLIENT") && of_client.into_iter().any(|name| is(1, name)))
    }

    /// The client gets another connection, where nothing would be watched any more.
    fn begin_relay(&mut self) -> Step {
        if self.own.as_ref().is_some_and(|own| own.watches) {
            let error = "ERR proxy: the command needs another connection than WATCH: send UNWATCH or EXEC before it";
            self.reply(OutgoingReply::error(error));
            return Step::Done;
        }
        Step::Relay
    }

    /// The connection of its own, if keys are watched there. SELECT and HELLO belong on it then.
    pub(crate) fn watching(&self) -> Option<Client> {
        self.own.as_ref().filter(|own| own.watches).map(|own| (*own.connection).clone())
    }

    /// The connection of its own has another database or version from now on.
    pub(crate) fn set_changed(&mut self) {
        if let Some(own) = &mut self.own {
            own.is_changed = true;
        }
    }

    /// A connection of its own, once nothing is under way on the shared one.
    fn take_own(&mut self, command: &Command, class: CommandClass) -> Step {
        let begins = [&b"MULTI"[..], b"WATCH"].iter().any(|name| command.name().eq_ignore_ascii_case(name));
        if class == CommandClass::Transaction && !begins {
            return self.forward(command.into(), false);
        }
        if !self.replies.is_empty() {
            return Step::Wait;
        }
        match self.upstream.shared(self.key) {
            Ok(shared) => {
                let connection = shared.dedicated();
                self.own = Some(OwnConnection { connection, is_transaction: false, watches: false, is_changed: false });
                self.follow_transaction(command);
                self.forward(command.into(), class == CommandClass::Blocking)
            }
            Err(error) => {
                self.reply(error_for(&error));
                Step::Done
            }
        }
    }

    /// The effect of a command on the state of the connection of its own.
    fn follow_transaction(&mut self, command: &Command) {
        let Some(own) = &mut self.own else { return };
        let is = |name: &[u8]| command.name().eq_ignore_ascii_case(name);
        if is(b"MULTI") {
            own.is_transaction = true;
        } else if is(b"WATCH") {
            own.watches = true;
        } else if (is(b"EXEC") || is(b"DISCARD")) && command.count() == 1 {
            // With an argument the server refuses it, and the transaction stays open.
            (own.is_transaction, own.watches) = (false, false);
        } else if is(b"UNWATCH") && !own.is_transaction {
            own.watches = false;
        }
    }

    fn forward(&mut self, command: CommandBuffer, is_blocking: bool) -> Step {
        let client = match &self.own {
            Some(own) => Ok((*own.connection).clone()),
            None => self.upstream.shared(self.key),
        };
        self.is_blocked |= is_blocking;
        let reply = match client {
            Ok(client) => {
                let call = client.call(command);
                let call = if is_blocking { call.timeout(Duration::MAX) } else { call };
                PendingReply::Upstream { reply: call.wire(&self.budget), is_begun: false }
            }
            Err(error) => PendingReply::Ready(error_for(&error)),
        };
        self.replies.push_back(reply);
        Step::Done
    }

    /// The connection goes back once nothing depends on it.
    fn release_own(&mut self) {
        if let Some(own) = self.own.take_if(|own| !own.is_transaction && !own.watches)
            && !own.is_changed
        {
            own.connection.release();
        }
    }

    /// Returns to the state of a new connection: RESET.
    pub(crate) fn reset(&mut self) -> OutgoingReply {
        self.own = None;
        self.key = ConnectionKey { version: Version::Resp2, database: 0 };
        self.name.clear();
        self.is_authenticated = self.upstream.password.is_none();
        let (version, reset) = (OutgoingReply::Version(Version::Resp2), OutgoingReply::Simple("RESET".into()));
        OutgoingReply::All(vec![version, OutgoingReply::Restricted(!self.is_authenticated), reset])
    }
}

fn is_too_slow(error: &ClientError) -> bool {
    matches!(error, ClientError::MaybeExecuted(Failure::ReplyTooLong))
}

/// Commands of one client whose replies it has not got. Then no command is read.
const COMMANDS_MAX: usize = 1024;
