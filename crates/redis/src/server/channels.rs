//! `Channels`: the subscribers of channels and patterns, on all loops.
//!
//! Each channel and each pattern has a [`Group`] for each version that its subscribers have. The lock is held while a
//! message is put into the mailboxes of loops, so that all subscribers see messages in the same order.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tidegate_codec::{Broadcast, Encoded};
use tidegate_engine::{Group, Slow};

use crate::outgoing_reply::{OutgoingReply, Version};
use crate::server::glob::matches;
use crate::server_codec::ServerCodec;
use crate::token::AggregateKind;

/// The channels of a server. Clones are the same channels, and may be sent to any thread.
///
/// A subscriber that reads too slowly is disconnected, as by Redis: it must not miss a message without noticing.
pub struct Channels<C = ServerCodec> {
    tables: Arc<Mutex<Tables<C>>>,
}

struct Tables<C> {
    channels: HashMap<TopicName, Subscribers<C>>,
    patterns: HashMap<TopicName, Subscribers<C>>,
}

/// The name of a channel or a pattern. The subscribers share its bytes with the table, to save memory.
pub(super) type TopicName = Arc<[u8]>;

/// The subscribers of a channel or a pattern.
struct Subscribers<C> {
    count: usize,
    resp2: Option<Group<C>>,
    resp3: Option<Group<C>>,
}

/// Names of channels, or patterns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TopicKind {
    Channel,
    Pattern,
}

impl<C: Broadcast> Channels<C> {
    /// No channel has a subscriber.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Sends a message to the subscribers of a channel and of all patterns that match it, from any thread. Returns how
    /// many there are. A loop that does not keep up gets no message.
    pub fn publish(&self, channel: &[u8], message: &[u8]) -> usize {
        let tables = self.tables();
        let mut receivers = 0;
        if let Some(subscribers) = tables.channels.get(channel) {
            receivers += subscribers.send(&[b"message", channel, message]);
        }
        for (pattern, subscribers) in &tables.patterns {
            if matches(pattern, channel) {
                receivers += subscribers.send(&[b"pmessage", pattern, channel, message]);
            }
        }
        receivers
    }

    /// The name and the group of a channel's or pattern's subscribers, with one subscriber more.
    pub(super) fn subscribe(&self, kind: TopicKind, name: &[u8], version: Version) -> (TopicName, Group<C>) {
        let mut tables = self.tables();
        let table = tables.of(kind);
        let name = table.get_key_value(name).map_or_else(|| TopicName::from(name), |(name, _)| name.clone());
        let subscribers = table.entry(name.clone()).or_insert_with(Subscribers::none);
        subscribers.count += 1;
        let group = match version {
            Version::Resp2 => &mut subscribers.resp2,
            Version::Resp3 => &mut subscribers.resp3,
        };
        (name, group.get_or_insert_with(|| Group::new(Slow::Shed)).clone())
    }

    /// The groups with one subscriber less, of which the connection leaves both.
    pub(super) fn unsubscribe(&self, kind: TopicKind, name: &[u8]) -> [Option<Group<C>>; 2] {
        let mut tables = self.tables();
        let table = tables.of(kind);
        let Some(subscribers) = table.get_mut(name) else { return [None, None] };
        subscribers.count -= 1;
        let groups = [subscribers.resp2.clone(), subscribers.resp3.clone()];
        if subscribers.count == 0 {
            table.remove(name);
        }
        groups
    }

    /// The channels with subscribers that match a pattern.
    pub(super) fn active(&self, pattern: &[u8]) -> Vec<TopicName> {
        self.tables().channels.keys().filter(|name| matches(pattern, name)).cloned().collect()
    }

    pub(super) fn subscriber_count(&self, channel: &[u8]) -> usize {
        self.tables().channels.get(channel).map_or(0, |subscribers| subscribers.count)
    }

    pub(super) fn pattern_count(&self) -> usize {
        self.tables().patterns.len()
    }

    fn tables(&self) -> MutexGuard<'_, Tables<C>> {
        self.tables.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<C> Tables<C> {
    fn of(&mut self, kind: TopicKind) -> &mut HashMap<TopicName, Subscribers<C>> {
        match kind {
            TopicKind::Channel => &mut self.channels,
            TopicKind::Pattern => &mut self.patterns,
        }
    }
}

impl<C: Broadcast> Subscribers<C> {
    fn none() -> Self {
        Self { count: 0, resp2: None, resp3: None }
    }

    /// Sends a push of these bulk strings, encoded once for each version.
    fn send(&self, parts: &[&[u8]]) -> usize {
        for (group, version) in [(&self.resp2, Version::Resp2), (&self.resp3, Version::Resp3)] {
            let Some(group) = group else { continue };
            let parts = parts.iter().map(|part| OutgoingReply::bulk(part.to_vec()));
            let push = OutgoingReply::aggregate(AggregateKind::Push, parts);
            // Bulk strings have no bytes that a codec refuses.
            if let Ok(push) = Encoded::new(&mut ServerCodec::default().with_version(version), push) {
                let _ = group.send(&Encoded::of(push.bytes().clone()));
            }
        }
        self.count
    }
}

impl<C> Clone for Channels<C> {
    fn clone(&self) -> Self {
        Self { tables: self.tables.clone() }
    }
}

impl<C> Default for Channels<C> {
    fn default() -> Self {
        Self { tables: Arc::new(Mutex::new(Tables { channels: HashMap::new(), patterns: HashMap::new() })) }
    }
}

impl<C> fmt::Debug for Channels<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Channels").finish_non_exhaustive()
    }
}
