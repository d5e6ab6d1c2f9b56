//! `ConnectionHandler`: one connection to a server. Replies belong to commands by their order alone.
//!
//! Invariant: `in_flight` has an entry for each command that was sent, in that order, and each reply takes the first.
//! Nothing is ever skipped: if a reply is missing or one too many, every later one would belong to another command, so the
//! connection is dropped. A reply that comes while nothing is in flight, a deadline that passes, and a value that the
//! codec refuses are the signs of it.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Waker;
use std::time::{Duration, Instant};

use bytes::Bytes;
use tidegate_codec::{Pipeline, WritePosition};
use tidegate_engine::{CloseReason, Context, Event, Handler, Outcome, SendError};

use crate::client::config::ClientConfig;
use crate::client::error::{ClientError, ErrorReply, Failure};
use crate::client::long_reply::LongReply;
use crate::client::node::NodeContext;
use crate::client::pending::PendingCommand;
use crate::client::queue::{CommandQueue, WakeUp, earlier};
use crate::client::reply_sink::ResultSlot;
use crate::client::slot::CommandResult;
use crate::client::startup::{StartupRefused, StartupStep, first_step, next_step};
use crate::client_codec::IncomingReply;
use crate::outgoing_command::{CommandBuffer, OutgoingCommand};
use crate::owned::OwnedValue;
use crate::token::AggregateKind;
use crate::value::{Value, value_of};

/// The end of a connection, for the supervisor.
#[derive(Debug, Default)]
pub(crate) struct ConnectionEnd {
    pub(crate) is_over: bool,
    /// The connection has taken commands.
    pub(crate) was_ready: bool,
    pub(crate) refused: Option<StartupRefused>,
    pub(crate) waker: Option<Waker>,
}

/// A command that was sent.
#[derive(Debug)]
pub(super) struct InFlight {
    pub(super) deadline: Option<Instant>,
    pub(super) kind: InFlightKind,
}

#[derive(Debug)]
pub(super) enum InFlightKind {
    Command(PendingCommand),
    Startup(StartupStep),
    Ping,
    /// ASKING, before a command that was redirected for once.
    Asking,
}

/// The handler of a connection.
pub(crate) struct ConnectionHandler {
    pub(super) config: Arc<ClientConfig>,
    pub(super) queue: Arc<CommandQueue>,
    /// The server is one of several.
    node: Option<NodeContext>,
    pub(super) in_flight: VecDeque<InFlight>,
    pub(super) long: LongReply,
    is_ready: bool,
    /// The server reports changes of keys that this connection has read.
    is_tracking: bool,
    /// Where the last command ends in the queue of the connection.
    position: Option<WritePosition>,
    /// When a reply came last.
    pub(super) heard_at: Option<Instant>,
    /// The deadline of the connection.
    armed: Option<Instant>,
    /// When the connection was dropped because of a deadline.
    timed_out_at: Option<Instant>,
    /// Why this side has dropped the connection.
    dropped_for: Option<&'static str>,
    end: Rc<RefCell<ConnectionEnd>>,
}

impl ConnectionHandler {
    pub(crate) fn new(
        config: Arc<ClientConfig>,
        node: Option<NodeContext>,
        queue: Arc<CommandQueue>,
        end: Rc<RefCell<ConnectionEnd>>,
    ) -> Self {
        Self {
            config,
            queue,
            node,
            in_flight: VecDeque::new(),
            long: LongReply::None,
            is_ready: false,
            is_tracking: false,
            position: None,
            heard_at: None,
            armed: None,
            timed_out_at: None,
            dropped_for: None,
            end,
        }
    }

    /// Sends a command of the client's own.
    fn send_own<P: ReplyPipeline>(&mut self, command: CommandBuffer, kind: InFlightKind, cx: &mut Cx<'_, P>) -> bool {
        let deadline = cx.now().checked_add(self.config.timeout);
        self.in_flight.push_back(InFlight { deadline, kind });
        self.arm(deadline, cx);
        self.send(command, cx).is_ok()
    }

    fn send<P: ReplyPipeline>(
        &mut self,
        command: CommandBuffer,
        cx: &mut Cx<'_, P>,
    ) -> Result<(), SendError<OutgoingCommand, P::Error>> {
        self.position = Some(cx.send(OutgoingCommand::Whole(command))?);
        Ok(())
    }

    /// Sends the commands that wait, as long as the connection takes them.
    fn send_waiting<P: ReplyPipeline>(&mut self, cx: &mut Cx<'_, P>) -> Outcome<P> {
        if !self.is_ready {
            return Outcome::Continue;
        }
        let now = cx.now();
        while cx.is_writable() {
            if cx.pending_bytes() >= QUEUED_BYTES {
                // More follows once all of them have left.
                self.position.into_iter().for_each(|position| cx.watch(position));
                break;
            }
            let Some(command) = self.queue.pop(now) else { return self.outcome(cx) };
            match self.send_command(command, cx) {
                Ok(true) => {}
                Ok(false) => break,
                Err(reason) => return self.drop_connection(reason),
            }
        }
        // Those that stay have deadlines, and the next one wakes this connection again.
        let expires = self.queue.expire(now);
        self.arm(expires, cx);
        self.outcome(cx)
    }

    /// Sends a command, and those of its group. Returns whether the connection has taken it; otherwise the command waits again.
    ///
    /// # Errors
    /// Why the connection cannot go on: a part of the command may have left.
    fn send_command<P: ReplyPipeline>(
        &mut self,
        mut command: PendingCommand,
        cx: &mut Cx<'_, P>,
    ) -> Result<bool, &'static str> {
        let is_asking = command.route.is_some_and(|route| route.is_asking);
        if is_asking && !self.send_own(CommandBuffer::new("ASKING"), InFlightKind::Asking, cx) {
            self.queue.put_back([command].into_iter());
            return Err("ASKING cannot be sent");
        }
        let Some(wire) = command.take_wire() else { return Ok(true) };
        let mut sent = match self.send(wire, cx) {
            Err(SendError::Full(OutgoingCommand::Whole(wire)) | SendError::Closed(OutgoingCommand::Whole(wire))) => {
                command.wire = Some(wire);
                self.queue.put_back([command].into_iter());
                return Ok(false);
            }
            sent => sent.map_err(|_| "a command cannot be encoded"),
        };
        command.is_sent |= sent.is_ok();
        for wire in command.take_rest() {
            sent =
                sent.and_then(|()| self.send(wire, cx).map_err(|_| "a group of commands does not fit into the queue"));
        }
        // In flight, it has its result from the end of the connection.
        let deadline = command.deadline;
        self.in_flight.push_back(InFlight { deadline, kind: InFlightKind::Command(command) });
        self.arm(deadline, cx);
        sent.map(|()| true)
    }

    /// Whether the connection goes on.
    pub(super) fn outcome<P: ReplyPipeline>(&self, cx: &Cx<'_, P>) -> Outcome<P> {
        let has_no_handle = self.queue.has_no_handle();
        let is_wanted =
            |sent: &InFlight| !matches!(&sent.kind, InFlightKind::Command(command) if command.is_abandoned());
        if !self.is_ready {
            Outcome::Continue
        } else if self.in_flight.is_empty() {
            if has_no_handle || cx.is_draining() { Outcome::Close } else { Outcome::Continue }
        } else if has_no_handle && !self.in_flight.iter().any(is_wanted) {
            // The server must not go on with a command such as BLPOP: its result would be lost.
            Outcome::Abort
        } else {
            Outcome::Continue
        }
    }

    pub(super) fn drop_connection<P>(&mut self, reason: &'static str) -> Outcome<P> {
        self.dropped_for = Some(reason);
        self.unlink();
        Outcome::Abort
    }

    fn ping_after(&self) -> Duration {
        self.config.ping_after.unwrap_or(PING_AFTER)
    }

    /// Takes no further command.
    fn unlink(&mut self) {
        if std::mem::take(&mut self.is_tracking)
            && let Some(cache) = &self.config.cache
        {
            cache.clear();
        }
        if std::mem::take(&mut self.is_ready) {
            self.queue.set_link(None);
        }
    }

    /// Gives each command in flight its result, or returns it to the queue, and reports the end.
    fn finish(&mut self) {
        let mut again = VecDeque::new();
        for sent in self.in_flight.drain(..) {
            let InFlightKind::Command(command) = sent.kind else { continue };
            let has_expired = matches!((sent.deadline, self.timed_out_at), (Some(at), Some(now)) if at <= now);
            let is_repeated = command.is_idempotent && command.wire.is_some() && !has_expired;
            if let Some(node) = self.node.as_ref().filter(|_| is_repeated && self.queue.has_no_handle()) {
                // The server has left.
                self.queue.release(command.charge);
                node.router.send(command);
                continue;
            }
            if is_repeated {
                again.push_back(command);
                continue;
            }
            self.queue.release_counted(command.charge, |counts| counts.add_failure(true));
            command.fail(if has_expired { Failure::Deadline } else { Failure::ConnectionLost });
        }
        self.queue.put_back(again.into_iter());
        self.unlink();
        let mut end = self.end.borrow_mut();
        end.is_over = true;
        if let Some(waker) = end.waker.take() {
            waker.wake();
        }
    }

    /// Requests a call at this time, unless one comes earlier.
    pub(super) fn arm<P: ReplyPipeline>(&mut self, at: Option<Instant>, cx: &mut Cx<'_, P>) {
        if self.armed.is_none() || at.is_some_and(|at| self.armed.is_some_and(|armed| at < armed)) {
            self.armed = at;
            cx.deadline(at);
        }
    }

    /// Takes the first command in flight, and gives it its reply.
    pub(super) fn reply<P: ReplyPipeline>(&mut self, wire: &[u8], cx: &mut Cx<'_, P>) -> Outcome<P> {
        self.heard_at = Some(cx.now());
        // A reply to nothing: the replies no longer match their commands.
        let Some(answered) = self.in_flight.pop_front() else {
            return self.drop_connection("the server sent a reply to no command");
        };
        match answered.kind {
            InFlightKind::Command(mut command) => {
                let value = value_of(wire);
                // An error may be one that redirects the command.
                if let (Some(stream), None) = (command.slot.as_mut().and_then(ResultSlot::as_stream), value.error()) {
                    stream.whole(wire);
                    self.finish_command(command, Ok(OwnedValue::Null));
                    return if self.in_flight.is_empty() { self.outcome(cx) } else { Outcome::Continue };
                }
                let mut result = result_of(value);
                if let Some(group) = &mut command.group {
                    group.replies.push(value.into());
                    if group.replies.len() < group.commands {
                        let kind = InFlightKind::Command(command);
                        self.in_flight.push_front(InFlight { deadline: answered.deadline, kind });
                        return Outcome::Continue;
                    }
                    result = Ok(OwnedValue::Aggregate(AggregateKind::Array, std::mem::take(&mut group.replies)));
                }
                self.finish_command(command, result);
            }
            InFlightKind::Asking => {}
            InFlightKind::Ping => {}
            InFlightKind::Startup(step) => {
                self.is_tracking |= step == StartupStep::Tracking && value_of(wire).error().is_none();
                return self.startup(step, value_of(wire), cx);
            }
        }
        if self.in_flight.is_empty() { self.outcome(cx) } else { Outcome::Continue }
    }

    pub(super) fn push<P: ReplyPipeline>(&self, push: Value<'_>) -> Outcome<P> {
        if let Some(cache) = &self.config.cache {
            cache.invalidate(push);
        }
        Outcome::Continue
    }

    /// Gives a command its result, unless another server has it.
    fn finish_command(&self, command: PendingCommand, result: CommandResult) {
        if let (true, Some(key), Some(cache), Ok(value)) =
            (self.is_tracking, &command.cache_key, &self.config.cache, &result)
        {
            cache.store(key, value);
        }
        let charge = command.charge;
        let redirect = self.node.as_ref().and_then(|node| Some((node, node.redirect(&command, &result)?)));
        if let Some((node, (redirect, error))) = redirect {
            self.queue.release_counted(charge, |counts| counts.redirects += 1);
            return node.router.redirect(command, redirect, error);
        }
        match &result {
            Err(ClientError::Reply(error)) => {
                self.queue.release_counted(charge, |counts| counts.add_error(error.kind()));
            }
            _ => self.queue.release(charge),
        }
        command.finish(result);
    }

    /// A reply of the startup.
    fn startup<P: ReplyPipeline>(&mut self, step: StartupStep, reply: Value<'_>, cx: &mut Cx<'_, P>) -> Outcome<P> {
        match next_step(step, reply, &self.config) {
            Ok(Some((step, command))) => {
                let is_sent = self.send_own(command, InFlightKind::Startup(step), cx);
                if is_sent { Outcome::Continue } else { Outcome::Abort }
            }
            Ok(None) => self.ready(cx),
            Err(refused) => {
                self.end.borrow_mut().refused = Some(refused);
                Outcome::Abort
            }
        }
    }

    /// The startup is over: commands of the application are sent from now on.
    fn ready<P: ReplyPipeline>(&mut self, cx: &mut Cx<'_, P>) -> Outcome<P> {
        self.is_ready = true;
        self.end.borrow_mut().was_ready = true;
        self.queue.set_link(Some(cx.remote()));
        self.arm(cx.now().checked_add(self.ping_after()), cx);
        self.send_waiting(cx)
    }

    fn deadline_came<P: ReplyPipeline>(&mut self, cx: &mut Cx<'_, P>) -> Outcome<P> {
        let now = cx.now();
        self.armed = None;
        if self.in_flight.iter().any(|sent| sent.deadline.is_some_and(|deadline| deadline <= now)) {
            self.timed_out_at = Some(now);
            return self.drop_connection("a command had no reply in time");
        }
        if !self.is_ready {
            let next = self.in_flight.iter().filter_map(|sent| sent.deadline).min();
            self.arm(next, cx);
            return Outcome::Continue;
        }
        // A reader may have found the mailbox of the loop full.
        self.resume(cx);
        let expires = self.queue.expire(now);
        let idle_since = self.heard_at.unwrap_or(now);
        let mut ping_at = idle_since.checked_add(self.ping_after());
        if self.in_flight.is_empty() && ping_at.is_some_and(|at| at <= now) {
            if !self.send_own(CommandBuffer::new("PING"), InFlightKind::Ping, cx) {
                return Outcome::Abort;
            }
            ping_at = None;
        } else if !self.in_flight.is_empty() {
            ping_at = now.checked_add(self.ping_after());
        }
        let sent = self.in_flight.iter().filter_map(|sent| sent.deadline).min();
        let resume_at = if self.long.is_paused() { now.checked_add(RESUME_AFTER) } else { None };
        self.arm(earlier(earlier(sent, expires), earlier(ping_at, resume_at)), cx);
        self.send_waiting(cx)
    }
}

/// A pipeline with a client's codec at its upper end.
pub trait ReplyPipeline: Pipeline<In = IncomingReply, Out = OutgoingCommand> {}

impl<P: Pipeline<In = IncomingReply, Out = OutgoingCommand>> ReplyPipeline for P {}

/// Makes the pipeline of each connection. Not a type parameter: all that connects would be compiled for each closure.
pub(crate) type PipelineMaker<P> = Rc<dyn Fn() -> P>;

pub(super) type Cx<'a, P> = Context<'a, P, WakeUp>;

/// The loop drops a handler that has panicked without a call.
impl Drop for ConnectionHandler {
    fn drop(&mut self) {
        self.finish();
    }
}

impl<P: ReplyPipeline> Handler<P> for ConnectionHandler {
    type Post = WakeUp;

    fn open(&mut self, cx: &mut Cx<'_, P>) -> Outcome<P> {
        let Some((step, command)) = first_step(&self.config) else { return self.ready(cx) };
        let is_sent = self.send_own(command, InFlightKind::Startup(step), cx);
        if is_sent { Outcome::Continue } else { Outcome::Abort }
    }

    fn message(&mut self, message: IncomingReply, cx: &mut Cx<'_, P>) -> Outcome<P> {
        match message {
            IncomingReply::Reply(reply) => self.reply(reply.wire(), cx),
            IncomingReply::Push(push) => self.push(push.value()),
            IncomingReply::Piece(piece) => self.piece(&piece, cx),
        }
    }

    fn event(&mut self, event: Event<WakeUp>, cx: &mut Cx<'_, P>) -> Outcome<P> {
        match event {
            Event::Posted(WakeUp) => {
                self.resume(cx);
                self.send_waiting(cx)
            }
            Event::Writable | Event::Flushed => self.send_waiting(cx),
            Event::Deadline => self.deadline_came(cx),
            // No reply will come, so nothing that was sent has a result.
            Event::ReadClosed => self.drop_connection("the server closed the connection"),
            Event::Drain => self.outcome(cx),
            _ => Outcome::Continue,
        }
    }

    fn faulted(&mut self, _: &CloseReason, _: &mut Cx<'_, P>) {
        self.unlink();
    }

    fn closed(&mut self, reason: &CloseReason) {
        self.queue.set_last_failure(self.dropped_for.map_or_else(|| reason.to_string(), str::to_owned));
        self.finish();
    }
}

/// The result of a command with this reply.
fn result_of(value: Value<'_>) -> Result<OwnedValue, ClientError> {
    match value.error() {
        Some(text) => Err(ClientError::Reply(ErrorReply::new(Bytes::copy_from_slice(text)))),
        None => Ok(value.into()),
    }
}

/// Bytes that wait for the kernel; further commands stay in the queue of the client.
const QUEUED_BYTES: u64 = 256 << 10;
/// How often a connection that waits for a slow reader looks by itself whether the reader has room.
pub(super) const RESUME_AFTER: Duration = Duration::from_millis(100);
/// How long a connection without commands is silent before it is probed.
const PING_AFTER: Duration = Duration::from_secs(15);
