//! `Channels`: the subscribers of channels and patterns, on all loops.
//!
//! Most channels have one subscriber, such as that of one user. It has no group, which would cost four times as much as its
//! subscription: a message is posted to its connection. Further subscribers join a [`Group`] for each version that they
//! have. The lock is held while a message is put into the mailboxes of loops, so that all subscribers see messages in the
//! same order.

use std::borrow::Borrow;
use std::cmp::Ordering;
use std::collections::HashMap;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::ops::Deref;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use tidegate_codec::{Broadcast, Encoded};
use tidegate_engine::{Group, Remote, Slow};

use crate::outgoing_reply::{OutgoingReply, Version};
use crate::server::glob::Glob;
use crate::server::subscriber_groups::{GroupTable, SubscriberGroups, Subscribers};
use crate::server_codec::ServerCodec;
use crate::token::AggregateKind;

/// The channels of a server. Clones are the same channels, and may be sent to any thread.
///
/// A subscriber that reads too slowly is disconnected, as by Redis: it must not miss a message without noticing.
pub struct Channels<C = ServerCodec> {
    tables: Arc<Mutex<Tables<C>>>,
}

struct Tables<C> {
    channels: HashMap<TopicName, Subscribers>,
    patterns: HashMap<TopicName, Subscribers>,
    globs: HashMap<TopicName, Glob>,
    /// The words of a state of all patterns together: a byte of a published channel takes as many steps.
    pattern_words: usize,
    groups: GroupTable<C>,
    /// The connections that have a channel or a pattern without a group, and how many.
    connections: HashMap<u64, (Remote<ChannelPost>, usize)>,
}

/// The name of a channel or a pattern. The subscribers share its bytes with the table, and the pointer is thin, to save
/// memory: a connection may have many of them.
#[derive(Debug, Clone)]
pub(super) struct TopicName(Arc<TopicBytes>);

#[derive(Debug)]
enum TopicBytes {
    /// Most names are this short, and need no second allocation.
    Short(u8, [u8; SHORT_BYTES_MAX]),
    Long(Box<[u8]>),
}

const SHORT_BYTES_MAX: usize = 22;
const _: () = assert!(size_of::<TopicBytes>() == 24);

/// Names of channels, or patterns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TopicKind {
    Channel,
    Pattern,
}

/// A connection that subscribes, or ends a subscription.
#[derive(Debug, Clone, Copy)]
pub(super) struct SubscriberInfo {
    pub(super) client_id: u64,
    pub(super) version: Version,
}

/// A message on its way to the only subscriber of a channel or a pattern: the [`Post`](tidegate_engine::Handler::Post) of a
/// [`Handler`](crate::Handler).
#[derive(Debug)]
pub struct ChannelPost {
    pub(super) kind: TopicKind,
    pub(super) name: TopicName,
    channel: Bytes,
    message: Bytes,
}

impl ChannelPost {
    /// The message as a push.
    pub(super) fn into_push(self) -> OutgoingReply {
        let Self { kind, name, channel, message } = self;
        let bulk = |bytes: Bytes| OutgoingReply::bulk(bytes);
        match kind {
            TopicKind::Channel => push([bulk(Bytes::from_static(b"message")), bulk(channel), bulk(message)]),
            TopicKind::Pattern => {
                let pattern = OutgoingReply::bulk(name.to_vec());
                push([bulk(Bytes::from_static(b"pmessage")), pattern, bulk(channel), bulk(message)])
            }
        }
    }
}

fn push<const PARTS: usize>(parts: [OutgoingReply; PARTS]) -> OutgoingReply {
    OutgoingReply::aggregate(AggregateKind::Push, parts)
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
        if let Some((name, subscribers)) = tables.channels.get_key_value(channel) {
            receivers += tables.send(TopicKind::Channel, name, *subscribers, channel, message);
        }
        for (pattern, subscribers) in &tables.patterns {
            if tables.globs.get(&**pattern).is_some_and(|glob| glob.matches(channel)) {
                receivers += tables.send(TopicKind::Pattern, pattern, *subscribers, channel, message);
            }
        }
        receivers
    }

    /// The shared name of a channel or pattern, with one subscriber more; and the group that it has to join, unless it is
    /// the first. `remote` is its connection. `None` for a new pattern that comes beyond `pattern_words_max` in all.
    pub(super) fn subscribe(
        &self,
        kind: TopicKind,
        name: &[u8],
        subscriber: SubscriberInfo,
        pattern_words_max: usize,
        remote: impl FnOnce() -> Remote<ChannelPost>,
    ) -> Option<(TopicName, Option<Group<C>>)> {
        let SubscriberInfo { client_id, version } = subscriber;
        // It is compiled before other loops have to wait.
        let glob = (kind == TopicKind::Pattern).then(|| Glob::new(name));
        let tables = &mut *self.tables();
        let Some((name, there)) = tables.of(kind).get_key_value(name).map(|(name, there)| (name.clone(), *there))
        else {
            let name = TopicName::from(name);
            if let Some(glob) = glob {
                let words = tables.pattern_words + Glob::words_of(name.len());
                if words > pattern_words_max {
                    return None;
                }
                tables.pattern_words = words;
                tables.globs.insert(name.clone(), glob);
            }
            tables.of(kind).insert(name.clone(), Subscribers::sole(client_id));
            tables.connections.entry(client_id).or_insert_with(|| (remote(), 0)).1 += 1;
            return Some((name, None));
        };
        let number = there.groups().unwrap_or_else(|| {
            let number = tables.groups.add(SubscriberGroups { sole: there.client_id(), ..SubscriberGroups::default() });
            tables.of(kind).insert(name.clone(), Subscribers::in_groups(number));
            number
        });
        let groups = tables.groups.of(number);
        groups.count += 1;
        let group = match version {
            Version::Resp2 => &mut groups.resp2,
            Version::Resp3 => &mut groups.resp3,
        };
        Some((name, Some(group.get_or_insert_with(|| Group::new(Slow::Shed)).clone())))
    }

    /// One subscriber less: the groups, if it is in one of them, of which the connection leaves both.
    pub(super) fn unsubscribe(&self, kind: TopicKind, name: &[u8], client_id: u64) -> [Option<Group<C>>; 2] {
        let tables = &mut *self.tables();
        let Some((name, there)) = tables.of(kind).get_key_value(name).map(|(name, there)| (name.clone(), *there))
        else {
            return [None, None];
        };
        let Some(number) = there.groups() else {
            if there.client_id() == Some(client_id) {
                tables.remove(kind, &name);
                tables.forget_sole(client_id);
            }
            return [None, None];
        };
        let groups = tables.groups.of(number);
        let was_sole = groups.sole == Some(client_id);
        let left = if was_sole {
            groups.sole = None;
            [None, None]
        } else {
            groups.count -= 1;
            [groups.resp2.clone(), groups.resp3.clone()]
        };
        let (sole, count) = (groups.sole, groups.count);
        if count == 0 {
            tables.groups.remove(number);
            match sole {
                Some(sole) => drop(tables.of(kind).insert(name, Subscribers::sole(sole))),
                None => tables.remove(kind, &name),
            }
        }
        if was_sole {
            tables.forget_sole(client_id);
        }
        left
    }

    /// The channels with subscribers that match a pattern.
    pub(super) fn active(&self, pattern: &[u8]) -> Vec<TopicName> {
        let glob = Glob::new(pattern);
        self.tables().channels.keys().filter(|name| glob.matches(name)).cloned().collect()
    }

    pub(super) fn subscriber_count(&self, channel: &[u8]) -> usize {
        let tables = self.tables();
        tables.channels.get(channel).map_or(0, |subscribers| tables.count(*subscribers))
    }

    pub(super) fn pattern_count(&self) -> usize {
        self.tables().patterns.len()
    }

    fn tables(&self) -> MutexGuard<'_, Tables<C>> {
        self.tables.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<C> Tables<C> {
    fn of(&mut self, kind: TopicKind) -> &mut HashMap<TopicName, Subscribers> {
        match kind {
            TopicKind::Channel => &mut self.channels,
            TopicKind::Pattern => &mut self.patterns,
        }
    }

    /// The last subscriber of a name has left.
    fn remove(&mut self, kind: TopicKind, name: &TopicName) {
        self.of(kind).remove(&**name);
        if kind == TopicKind::Pattern && self.globs.remove(&**name).is_some() {
            self.pattern_words -= Glob::words_of(name.len());
        }
    }

    /// A connection has a subscription without a group less.
    fn forget_sole(&mut self, client_id: u64) {
        if let Some((_, count)) = self.connections.get_mut(&client_id) {
            *count -= 1;
            if *count == 0 {
                self.connections.remove(&client_id);
            }
        }
    }

    fn count(&self, subscribers: Subscribers) -> usize {
        let groups = subscribers.groups().and_then(|number| self.groups.get(number));
        groups.map_or(1, |groups| groups.count + usize::from(groups.sole.is_some()))
    }
}

impl<C: Broadcast> Tables<C> {
    /// Sends a message, and returns how many subscribers there are.
    fn send(
        &self,
        kind: TopicKind,
        name: &TopicName,
        subscribers: Subscribers,
        channel: &[u8],
        message: &[u8],
    ) -> usize {
        let groups = subscribers.groups().and_then(|number| self.groups.get(number));
        let sole = groups.map_or_else(|| subscribers.client_id(), |groups| groups.sole);
        let post = || ChannelPost {
            kind,
            name: name.clone(),
            channel: Bytes::copy_from_slice(channel),
            message: Bytes::copy_from_slice(message),
        };
        if let Some((remote, _)) = sole.and_then(|client_id| self.connections.get(&client_id)) {
            // A connection that closes has no further message, and neither has one whose loop does not keep up.
            drop(remote.post(post()));
        }
        if let Some(SubscriberGroups { resp2, resp3, .. }) = groups {
            for (group, version) in [(resp2, Version::Resp2), (resp3, Version::Resp3)] {
                let Some(group) = group else { continue };
                // Bulk strings have no bytes that a codec refuses.
                if let Ok(push) = Encoded::new(&mut ServerCodec::default().with_version(version), post().into_push()) {
                    let _ = group.send(&Encoded::of(push.bytes().clone()));
                }
            }
        }
        self.count(subscribers)
    }
}

impl From<&[u8]> for TopicName {
    fn from(name: &[u8]) -> Self {
        let mut bytes = [0; SHORT_BYTES_MAX];
        Self(Arc::new(match bytes.get_mut(..name.len()) {
            Some(short) => {
                short.copy_from_slice(name);
                TopicBytes::Short(name.len() as u8, bytes)
            }
            None => TopicBytes::Long(name.into()),
        }))
    }
}

impl Deref for TopicName {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match &*self.0 {
            TopicBytes::Short(length, bytes) => &bytes[..usize::from(*length)],
            TopicBytes::Long(bytes) => bytes,
        }
    }
}

impl Borrow<[u8]> for TopicName {
    fn borrow(&self) -> &[u8] {
        self
    }
}

impl PartialEq for TopicName {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl Eq for TopicName {}

impl PartialOrd for TopicName {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for TopicName {
    fn cmp(&self, other: &Self) -> Ordering {
        (**self).cmp(other)
    }
}

/// As its bytes, since tables look for those.
impl Hash for TopicName {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (**self).hash(state);
    }
}

impl<C> Clone for Channels<C> {
    fn clone(&self) -> Self {
        Self { tables: self.tables.clone() }
    }
}

impl<C> Default for Channels<C> {
    fn default() -> Self {
        let tables = Tables {
            channels: HashMap::new(),
            patterns: HashMap::new(),
            globs: HashMap::new(),
            pattern_words: 0,
            groups: GroupTable::default(),
            connections: HashMap::new(),
        };
        Self { tables: Arc::new(Mutex::new(tables)) }
    }
}

impl<C> fmt::Debug for Channels<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Channels").finish_non_exhaustive()
    }
}
