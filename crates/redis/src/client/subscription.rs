//! `SubscriptionHandler`: one connection of a subscriber.
//!
//! One command of names is under way at a time, with as many acknowledgements as names. RESP3 sends messages and
//! acknowledgements as pushes, RESP2 as arrays; both have the same elements.
//!
//! The server refuses a command of names if the user may not have one of them. Halves of the batch find which one it is. The
//! handler asks for refused names again after a pause.

use std::cell::RefCell;
use std::collections::{BTreeSet, VecDeque};
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use tidegate_engine::{CloseReason, Context, Event, Handler, Outcome};

use crate::client::config::ClientConfig;
use crate::client::connection::{ConnectionEnd, ReplyPipeline};
use crate::client::queue::{WakeUp, earlier};
use crate::client::slots::slot_of;
use crate::client::startup::{StartupStep, first_step, next_step};
use crate::client::subscriber_queue::{
    BATCH_NAMES, ChannelMessage, SubscriberQueue, SubscriptionKind, SubscriptionName,
};
use crate::client::subscription_refusals::RefusedNames;
use crate::client_codec::IncomingReply;
use crate::outgoing_command::{CommandBuffer, OutgoingCommand};
use crate::value::Value;

/// The handler of a subscriber's connection.
pub(crate) struct SubscriptionHandler {
    config: Arc<ClientConfig>,
    queue: Arc<SubscriberQueue>,
    step: Option<StartupStep>,
    is_ready: bool,
    is_up: bool,
    /// Names of this connection's beginning that were not asked for yet.
    left: VecDeque<SubscriptionName>,
    /// Sizes of the next batches of these, the next one last. Later batches are whole.
    batches: Vec<usize>,
    /// The names of the command that is under way, if it subscribes.
    asked: Vec<SubscriptionName>,
    refused: RefusedNames,
    acknowledgements_due: usize,
    /// The sharded channels among their names that are not wanted any more. The server may end others by itself meanwhile.
    ending: BTreeSet<Bytes>,
    /// When the startup, the acknowledgements or the probe are late.
    due: Option<Instant>,
    is_probing: bool,
    heard_at: Option<Instant>,
    failure: Option<String>,
    end: Rc<RefCell<ConnectionEnd>>,
}

type Cx<'a, P> = Context<'a, P, WakeUp>;

impl SubscriptionHandler {
    pub(crate) fn new(config: Arc<ClientConfig>, queue: Arc<SubscriberQueue>, end: Rc<RefCell<ConnectionEnd>>) -> Self {
        Self {
            config,
            queue,
            step: None,
            is_ready: false,
            is_up: false,
            left: VecDeque::new(),
            batches: Vec::new(),
            asked: Vec::new(),
            refused: RefusedNames::default(),
            acknowledgements_due: 0,
            ending: BTreeSet::new(),
            due: None,
            is_probing: false,
            heard_at: None,
            failure: None,
            end,
        }
    }

    /// Reports the end.
    fn finish(&mut self) {
        if let Some(failure) = self.failure.take() {
            self.queue.set_last_failure(failure);
        }
        if std::mem::take(&mut self.is_ready) {
            self.queue.down(std::mem::take(&mut self.is_up));
        }
        let mut end = self.end.borrow_mut();
        end.is_over = true;
        if let Some(waker) = end.waker.take() {
            waker.wake();
        }
    }

    fn send<P: ReplyPipeline>(&mut self, command: CommandBuffer, cx: &mut Cx<'_, P>) -> Outcome<P> {
        self.due = cx.now().checked_add(self.config.timeout);
        self.arm(cx);
        if cx.send(OutgoingCommand::Whole(command)).is_ok() { Outcome::Continue } else { Outcome::Abort }
    }

    /// Requests a call when something is late, or the connection was silent for long.
    fn arm<P: ReplyPipeline>(&self, cx: &mut Cx<'_, P>) {
        let is_idle = self.is_ready && self.due.is_none();
        let probe_at = self.heard_at.filter(|_| is_idle).and_then(|at| at.checked_add(self.probe_after()));
        let retry_at = self.refused.retry_at().filter(|_| is_idle);
        cx.deadline(earlier(self.due, earlier(probe_at, retry_at)));
    }

    fn probe_after(&self) -> Duration {
        self.config.ping_after.unwrap_or(PROBE_AFTER)
    }

    fn fail<P>(&mut self, failure: impl Into<String>) -> Outcome<P> {
        self.failure = Some(failure.into());
        Outcome::Abort
    }

    fn startup<P: ReplyPipeline>(&mut self, step: StartupStep, value: Value<'_>, cx: &mut Cx<'_, P>) -> Outcome<P> {
        match next_step(step, value, &self.config) {
            Ok(Some((step, command))) => {
                self.step = Some(step);
                self.send(command, cx)
            }
            Ok(None) => self.ready(cx),
            Err(refused) => self.fail(format!("the server refuses the subscriber: {}", refused.0.escape_ascii())),
        }
    }

    fn ready<P: ReplyPipeline>(&mut self, cx: &mut Cx<'_, P>) -> Outcome<P> {
        (self.step, self.is_ready, self.due) = (None, true, None);
        self.heard_at = Some(cx.now());
        self.end.borrow_mut().was_ready = true;
        self.left = self.queue.begin(cx.remote()).into();
        self.ask(cx)
    }

    /// Sends the next batch of names, once the last one is acknowledged.
    fn ask<P: ReplyPipeline>(&mut self, cx: &mut Cx<'_, P>) -> Outcome<P> {
        if self.queue.has_no_reader() {
            return Outcome::Close;
        }
        if !self.is_ready || self.acknowledgements_due > 0 {
            return Outcome::Continue;
        }
        if let Some(first) = self.left.front() {
            // In a cluster the sharded channels of one command belong to one slot.
            let (kind, slot) = (first.kind, slot_of(&first.name));
            let is_same = |name: &&SubscriptionName| {
                name.kind == kind && (kind != SubscriptionKind::Sharded || slot_of(&name.name) == slot)
            };
            let count = self.batches.pop().unwrap_or(BATCH_NAMES);
            let same = self.left.iter().take(count).take_while(is_same).count();
            let names = self.left.drain(..same).map(|name| name.name).collect();
            return self.ask_for(true, kind, names, cx);
        }
        self.batches.clear();
        if !std::mem::replace(&mut self.is_up, true) {
            self.queue.up();
        }
        while let Some((is_wanted, kind, mut names)) = self.queue.take_changes() {
            if !is_wanted {
                // The server does not have those that it has refused.
                names.retain(|name| !self.refused.remove(kind, name));
            }
            if !names.is_empty() {
                return self.ask_for(is_wanted, kind, names, cx);
            }
        }
        self.arm(cx);
        Outcome::Continue
    }

    fn ask_for<P: ReplyPipeline>(
        &mut self,
        is_wanted: bool,
        kind: SubscriptionKind,
        names: Vec<Bytes>,
        cx: &mut Cx<'_, P>,
    ) -> Outcome<P> {
        self.acknowledgements_due = names.len();
        let is_end_of_sharded = !is_wanted && kind == SubscriptionKind::Sharded;
        self.ending = names.iter().filter(|_| is_end_of_sharded).cloned().collect();
        self.asked =
            names.iter().filter(|_| is_wanted).map(|name| SubscriptionName { kind, name: name.clone() }).collect();
        let name = kind.command(is_wanted);
        let command = names.into_iter().fold(CommandBuffer::new(name), CommandBuffer::arg);
        self.send(command, cx)
    }

    /// A value after the startup.
    fn value<P: ReplyPipeline>(&mut self, value: Value<'_>, cx: &mut Cx<'_, P>) -> Outcome<P> {
        if let Some(text) = value.error() {
            return self.refused(text, cx);
        }
        let Some(mut elements) = value.elements() else { return self.probed(cx) };
        let mut next = || elements.next().and_then(|value| value.bytes());
        match (next(), next(), next(), next()) {
            (Some(b"message" | b"smessage"), Some(channel), Some(payload), _) => self.deliver(None, channel, payload),
            (Some(b"pmessage"), Some(pattern), Some(channel), Some(payload)) => {
                self.deliver(Some(pattern), channel, payload);
            }
            // The slot of the channel moves to another server.
            (Some(b"sunsubscribe"), Some(channel), ..) if !self.ending.remove(channel) => {
                let is_found_again = self.queue.ended_by_server(channel);
                return if is_found_again { Outcome::Continue } else { self.fail("the slot of a channel has moved") };
            }
            (
                Some(
                    kind @ (b"subscribe" | b"psubscribe" | b"ssubscribe" | b"unsubscribe" | b"punsubscribe"
                    | b"sunsubscribe"),
                ),
                channel,
                ..,
            ) => {
                let Some(left) = self.acknowledgements_due.checked_sub(1) else {
                    return self.fail("the server acknowledged what was not asked for");
                };
                self.acknowledgements_due = left;
                if let (b"subscribe", Some(channel)) = (kind, channel) {
                    self.queue.subscribed(channel);
                }
                if left == 0 {
                    self.due = None;
                    for name in self.asked.drain(..) {
                        if self.refused.remove(name.kind, &name.name) {
                            self.refused.reset_pause();
                            self.queue.taken_at_last(name.kind);
                        }
                    }
                    return self.ask(cx);
                }
            }
            (Some(b"pong"), ..) => return self.probed(cx),
            // A push of another kind.
            _ => {}
        }
        Outcome::Continue
    }

    /// The server answers a command of names with an error. It has executed nothing of the command if the user may not have one
    /// of the names; with any other error the connection ends.
    fn refused<P: ReplyPipeline>(&mut self, text: &[u8], cx: &mut Cx<'_, P>) -> Outcome<P> {
        let is_refusal = text.starts_with(b"NOPERM ") && !self.asked.is_empty();
        if !is_refusal || self.acknowledgements_due != self.asked.len() {
            return self.fail(format!("the server answers a subscription: {}", text.escape_ascii()));
        }
        (self.acknowledgements_due, self.due) = (0, None);
        let mut names = std::mem::take(&mut self.asked);
        let count = names.len();
        if count > 1 {
            self.batches.extend([count - count / 2, count / 2]);
            names.into_iter().rev().for_each(|name| self.left.push_front(name));
        } else if let Some(name) = names.pop() {
            let channel = name.name.clone();
            if self.refused.add(name, cx.now(), &self.config.backoff) {
                self.queue.refused(channel, text);
            }
        }
        self.ask(cx)
    }

    fn deliver(&self, pattern: Option<&[u8]>, channel: &[u8], payload: &[u8]) {
        let copy = Bytes::copy_from_slice;
        self.queue.message(ChannelMessage {
            channel: copy(channel),
            pattern: pattern.map(copy),
            payload: copy(payload),
        });
    }

    fn probed<P: ReplyPipeline>(&mut self, cx: &mut Cx<'_, P>) -> Outcome<P> {
        if !std::mem::take(&mut self.is_probing) {
            return self.fail("the server sent a reply to no command");
        }
        if self.acknowledgements_due > 0 {
            self.arm(cx);
            return Outcome::Continue;
        }
        self.due = None;
        // A change may have found the mailbox of the loop full.
        self.ask(cx)
    }

    fn deadline_came<P: ReplyPipeline>(&mut self, cx: &mut Cx<'_, P>) -> Outcome<P> {
        let now = cx.now();
        if self.due.is_some_and(|due| due <= now) {
            return self.fail("the server did not answer in time");
        }
        let is_silent = self.heard_at.and_then(|at| at.checked_add(self.probe_after())).is_some_and(|at| at <= now);
        if self.is_ready && is_silent && !self.is_probing && self.acknowledgements_due == 0 {
            self.is_probing = true;
            return self.send(CommandBuffer::new("PING"), cx);
        }
        if self.is_ready && self.acknowledgements_due == 0 && !self.is_probing {
            self.left.extend(self.refused.take_due(now));
        }
        self.arm(cx);
        // A change may have found the mailbox of the loop full.
        self.ask(cx)
    }
}

impl<P: ReplyPipeline> Handler<P> for SubscriptionHandler {
    type Post = WakeUp;

    fn open(&mut self, cx: &mut Cx<'_, P>) -> Outcome<P> {
        let Some((step, command)) = first_step(&self.config) else { return self.ready(cx) };
        self.step = Some(step);
        self.send(command, cx)
    }

    fn message(&mut self, message: IncomingReply, cx: &mut Cx<'_, P>) -> Outcome<P> {
        self.heard_at = Some(cx.now());
        match (message, self.step) {
            (IncomingReply::Reply(reply), Some(step)) => self.startup(step, reply.value(), cx),
            (IncomingReply::Reply(reply) | IncomingReply::Push(reply), None) => self.value(reply.value(), cx),
            (IncomingReply::Push(_), Some(_)) => Outcome::Continue,
            (IncomingReply::Piece(_), _) => self.fail("a message is longer than the limit"),
        }
    }

    fn event(&mut self, event: Event<WakeUp>, cx: &mut Cx<'_, P>) -> Outcome<P> {
        match event {
            Event::Posted(WakeUp) => self.ask(cx),
            Event::Deadline => self.deadline_came(cx),
            Event::ReadClosed => self.fail("the server closed the connection"),
            Event::Drain => Outcome::Close,
            _ => Outcome::Continue,
        }
    }

    fn closed(&mut self, reason: &CloseReason) {
        self.failure.get_or_insert_with(|| reason.to_string());
        self.finish();
    }
}

/// The loop drops a handler that has panicked without a call.
impl Drop for SubscriptionHandler {
    fn drop(&mut self) {
        self.finish();
    }
}

/// How long a subscriber's connection is silent before it is probed.
const PROBE_AFTER: Duration = Duration::from_secs(5);
