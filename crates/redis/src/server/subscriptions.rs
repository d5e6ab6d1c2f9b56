//! `Subscriptions`: the channels and patterns of one connection, and SUBSCRIBE and the like.

use std::collections::BTreeSet;

use tidegate_codec::Broadcast;
use tidegate_engine::{ConnectionCharge, Context, Outcome};

use crate::command::Command;
use crate::outgoing_reply::OutgoingReply;
use crate::server::channels::{ChannelPost, Channels, SubscriberInfo, TopicKind, TopicName};
use crate::server::config::HandlerConfig;
use crate::server::glob::Glob;
use crate::server_codec::IncomingCommand;
use crate::token::AggregateKind;

/// The channels and patterns of a connection.
#[derive(Debug, Default)]
pub(super) struct Subscriptions {
    channels: BTreeSet<TopicName>,
    patterns: BTreeSet<TopicName>,
    /// Bytes of their names.
    name_bytes: usize,
    /// The memory of all of them, unless it is little.
    charge: Option<Box<ConnectionCharge>>,
}

/// SUBSCRIBE, UNSUBSCRIBE, PSUBSCRIBE or PUNSUBSCRIBE.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SubscriptionCommand {
    kind: TopicKind,
    subscribes: bool,
}

impl SubscriptionCommand {
    pub(super) fn of(name: &[u8]) -> Option<Self> {
        let is = |other: &[u8]| name.eq_ignore_ascii_case(other);
        let (kind, subscribes) = match name.len() {
            9 if is(b"SUBSCRIBE") => (TopicKind::Channel, true),
            11 if is(b"UNSUBSCRIBE") => (TopicKind::Channel, false),
            10 if is(b"PSUBSCRIBE") => (TopicKind::Pattern, true),
            12 if is(b"PUNSUBSCRIBE") => (TopicKind::Pattern, false),
            _ => return None,
        };
        Some(Self { kind, subscribes })
    }

    /// How few arguments it has, its name included.
    pub(super) const fn count_min(self) -> usize {
        if self.subscribes { 2 } else { 1 }
    }

    const fn word(self) -> &'static str {
        match (self.kind, self.subscribes) {
            (TopicKind::Channel, true) => "subscribe",
            (TopicKind::Channel, false) => "unsubscribe",
            (TopicKind::Pattern, true) => "psubscribe",
            (TopicKind::Pattern, false) => "punsubscribe",
        }
    }
}

impl Subscriptions {
    pub(super) fn len(&self) -> usize {
        self.channels.len() + self.patterns.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub(super) fn contains(&self, kind: TopicKind, name: &TopicName) -> bool {
        match kind {
            TopicKind::Channel => self.channels.contains(name),
            TopicKind::Pattern => self.patterns.contains(name),
        }
    }

    fn of(&mut self, kind: TopicKind) -> &mut BTreeSet<TopicName> {
        match kind {
            TopicKind::Channel => &mut self.channels,
            TopicKind::Pattern => &mut self.patterns,
        }
    }

    /// Executes a command, and returns one acknowledgement for each channel.
    pub(super) fn execute<C: Broadcast<In = IncomingCommand, Out = OutgoingReply>>(
        &mut self,
        what: SubscriptionCommand,
        command: &Command,
        subscriber: SubscriberInfo,
        config: &HandlerConfig,
        channels: &Channels<C>,
        cx: &mut Context<'_, C, ChannelPost>,
    ) -> Vec<OutgoingReply> {
        let own: Vec<_> = if command.count() == 1 { self.of(what.kind).iter().cloned().collect() } else { Vec::new() };
        let names: Vec<&[u8]> = own.iter().map(|name| &**name).chain(command.arguments()).collect();
        if names.is_empty() {
            return acknowledgement(what, OutgoingReply::Null, self.len());
        }
        let mut all = Vec::new();
        for name in names {
            if what.subscribes
                && let Err(error) = self.check(what.kind, name, config)
            {
                all.push(error);
                continue;
            }
            if what.subscribes {
                if !self.add(what.kind, name, subscriber, (channels, config.all_patterns_max), cx) {
                    all.push(OutgoingReply::error("ERR too many patterns of all clients"));
                    continue;
                }
            } else {
                self.remove(what.kind, name, subscriber.client_id, channels, cx);
            }
            all.extend(acknowledgement(what, OutgoingReply::bulk(name.to_vec()), self.len()));
        }
        self.charge(cx);
        all
    }

    /// The error for a name beyond a bound.
    fn check(&mut self, kind: TopicKind, name: &[u8], config: &HandlerConfig) -> Result<(), OutgoingReply> {
        config.check_name(kind, name)?;
        let is_beyond = self.len() >= config.subscriptions_max
            || self.name_bytes + name.len() > config.subscription_bytes_max
            || kind == TopicKind::Pattern && self.patterns.len() >= config.patterns_max;
        if is_beyond && !self.of(kind).contains(name) {
            return Err(OutgoingReply::error("ERR too many subscriptions"));
        }
        Ok(())
    }

    /// Counts the memory as that of the connection.
    fn charge<C: Broadcast>(&mut self, cx: &Context<'_, C, ChannelPost>) {
        let pattern_words: usize = self.patterns.iter().map(|name| Glob::words_of(name.len())).sum();
        let bytes = self.name_bytes + self.len() * SUBSCRIPTION_BYTES + pattern_words * PATTERN_WORD_BYTES;
        if bytes < CHARGED_BYTES_MIN {
            self.charge = None;
            return;
        }
        self.charge.get_or_insert_with(|| Box::new(cx.account().charge(0))).resize(bytes);
    }

    /// Returns whether the server has room for it.
    fn add<C: Broadcast>(
        &mut self,
        kind: TopicKind,
        name: &[u8],
        subscriber: SubscriberInfo,
        (channels, all_patterns_max): (&Channels<C>, usize),
        cx: &mut Context<'_, C, ChannelPost>,
    ) -> bool {
        if !self.of(kind).contains(name) {
            let added = channels.subscribe(kind, name, subscriber, all_patterns_max, || cx.remote());
            let Some((name, group)) = added else { return false };
            self.name_bytes += name.len();
            self.of(kind).insert(name);
            if let Some(group) = group {
                cx.join(&group);
            }
        }
        true
    }

    fn remove<C: Broadcast>(
        &mut self,
        kind: TopicKind,
        name: &[u8],
        client_id: u64,
        channels: &Channels<C>,
        cx: &mut Context<'_, C, ChannelPost>,
    ) {
        if self.of(kind).remove(name) {
            self.name_bytes -= name.len();
            channels.unsubscribe(kind, name, client_id).iter().flatten().for_each(|group| cx.leave(group));
        }
    }

    /// Subscribes to the same channels in another version.
    pub(super) fn change_version<C: Broadcast>(
        &mut self,
        subscriber: SubscriberInfo,
        channels: &Channels<C>,
        cx: &mut Context<'_, C, ChannelPost>,
    ) {
        self.name_bytes = 0;
        for kind in [TopicKind::Channel, TopicKind::Pattern] {
            for name in std::mem::take(self.of(kind)) {
                channels
                    .unsubscribe(kind, &name, subscriber.client_id)
                    .iter()
                    .flatten()
                    .for_each(|group| cx.leave(group));
                // It was there before.
                let _has_room = self.add(kind, &name, subscriber, (channels, usize::MAX), cx);
            }
        }
    }

    /// Leaves all channels.
    pub(super) fn leave_all<C: Broadcast>(
        &mut self,
        client_id: u64,
        channels: &Channels<C>,
        cx: &mut Context<'_, C, ChannelPost>,
    ) {
        self.name_bytes = 0;
        for kind in [TopicKind::Channel, TopicKind::Pattern] {
            for name in std::mem::take(self.of(kind)) {
                channels.unsubscribe(kind, &name, client_id).iter().flatten().for_each(|group| cx.leave(group));
            }
        }
    }

    /// The connection is closed: it is a member of no group any more.
    pub(super) fn forget<C: Broadcast>(&mut self, client_id: u64, channels: &Channels<C>) {
        for kind in [TopicKind::Channel, TopicKind::Pattern] {
            for name in std::mem::take(self.of(kind)) {
                channels.unsubscribe(kind, &name, client_id);
            }
        }
    }
}

fn acknowledgement(what: SubscriptionCommand, name: OutgoingReply, count: usize) -> Vec<OutgoingReply> {
    let count = OutgoingReply::Integer(count as i64);
    vec![OutgoingReply::Aggregate(AggregateKind::Push, 3), OutgoingReply::bulk(what.word()), name, count]
}

/// The memory of a subscription beside its name, in the connection, in the table and in the loop.
const SUBSCRIPTION_BYTES: usize = 100;
/// The memory of 64 elements of a compiled pattern.
const PATTERN_WORD_BYTES: usize = 257 * 8;
/// Less memory is not counted: the charge itself takes some.
const CHARGED_BYTES_MIN: usize = 4 << 10;

/// The outcome of sending.
pub(super) fn sent<C: Broadcast<Out = OutgoingReply>>(
    cx: &mut Context<'_, C, ChannelPost>,
    reply: OutgoingReply,
) -> Outcome<C> {
    cx.send(reply).into()
}
