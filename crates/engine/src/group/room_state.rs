//! `RoomState`: those present in a room, and its history with positions.
//!
//! Invariant: the offsets of the history end at `last`, and between two of them none is left out, except where a message was
//! too long to be kept: `forgotten` is the offset of the newest message that is not kept.

use std::collections::{BTreeMap, VecDeque};
use std::hash::{BuildHasher as _, RandomState};

use bytes::Bytes;
use tidegate_codec::Encoded;

use super::Member;
use super::backplane::{NodeId, Position};
use super::room::RoomLimits;
use super::subscriber::{RoomNotice, SubscriberEntry};

pub(super) struct RoomState<C, P> {
    /// The last messages, oldest first.
    messages: VecDeque<KeptMessage<C>>,
    history_bytes: usize,
    epoch: u64,
    /// The offset of the last message; 0 before the first one.
    last: u64,
    forgotten: u64,
    /// Messages that members of this process were sent.
    pub(super) messages_sent: u64,
    /// By the number of the visit, so in the order in which they came.
    pub(super) present: BTreeMap<u64, P>,
    pub(super) visits: u64,
    /// The members on other nodes, in the order of their numbers.
    pub(super) elsewhere: Vec<(NodeId, RemoteMembers<P>)>,
    /// New messages reach the members. Otherwise the backplane has not confirmed the subscription.
    pub(super) is_open: bool,
    /// Members that get the history once it is read, by the number of their visits.
    pub(super) waiting: BTreeMap<u64, WaitingMember>,
    /// Members that are no connections, by the number of their visits.
    pub(super) subscribers: BTreeMap<u64, SubscriberEntry>,
}

/// A message of the history.
struct KeptMessage<C> {
    offset: u64,
    /// For connections; empty if it has no encoding.
    encoded: Encoded<C>,
    /// For subscribers: as the application has published it.
    plain: Option<Bytes>,
}

impl<C> KeptMessage<C> {
    fn len(&self) -> usize {
        self.encoded.len().max(self.plain.as_ref().map_or(0, Bytes::len))
    }
}

/// The members on another node.
pub(super) struct RemoteMembers<P> {
    pub(super) count: usize,
    pub(super) names: Vec<P>,
}

/// A member that entered before the history was read.
pub(super) struct WaitingMember {
    pub(super) member: Member,
    /// It has seen the messages up to this one.
    pub(super) after: Option<Position>,
}

impl<C, P> RoomState<C, P> {
    pub(super) fn new(is_open: bool) -> Self {
        Self {
            messages: VecDeque::new(),
            history_bytes: 0,
            epoch: 0,
            last: 0,
            forgotten: 0,
            messages_sent: 0,
            present: BTreeMap::new(),
            visits: 0,
            elsewhere: Vec::new(),
            is_open,
            waiting: BTreeMap::new(),
            subscribers: BTreeMap::new(),
        }
    }

    pub(super) fn count(&self) -> usize {
        self.elsewhere.iter().fold(self.present.len(), |sum, (_, node)| sum.saturating_add(node.count))
    }

    /// Those present, of this node first.
    pub(super) fn everyone(&self) -> impl Iterator<Item = &P> {
        self.elsewhere.iter().rev().flat_map(|(_, node)| &node.names).chain(self.present.values())
    }

    /// The position of the last message.
    pub(super) fn position(&self) -> Option<Position> {
        (self.last > 0).then_some(Position { epoch: self.epoch, offset: self.last })
    }

    /// The position of a message that this process sends, in an epoch of its own.
    pub(super) fn next_position(&mut self) -> Position {
        if self.last == 0 {
            self.epoch = RandomState::new().hash_one(0);
        }
        Position { epoch: self.epoch, offset: self.last + 1 }
    }

    /// Adds the message with this position to the history.
    pub(super) fn remember(
        &mut self,
        position: Position,
        encoded: &Encoded<C>,
        plain: Option<&Bytes>,
        limits: &RoomLimits,
    ) {
        (self.epoch, self.last) = (position.epoch, position.offset);
        let message = KeptMessage { offset: position.offset, encoded: encoded.clone(), plain: plain.cloned() };
        if limits.history_max == 0 || message.len() > limits.history_bytes_max {
            self.forgotten = position.offset;
            return;
        }
        self.history_bytes += message.len();
        self.messages.push_back(message);
        while self.messages.len() > limits.history_max || self.history_bytes > limits.history_bytes_max {
            let Some(oldest) = self.messages.pop_front() else { break };
            self.history_bytes -= oldest.len();
            self.forgotten = self.forgotten.max(oldest.offset);
        }
    }

    /// Nothing before the message after this position is kept.
    pub(super) fn forget_before(&mut self, position: Option<Position>) {
        self.messages.clear();
        self.history_bytes = 0;
        (self.epoch, self.last) = position.map_or((0, 0), |position| (position.epoch, position.offset));
        self.forgotten = self.last;
    }

    pub(super) fn history(&self) -> impl Iterator<Item = Encoded<C>> + '_ {
        self.messages.iter().map(|message| message.encoded.clone())
    }

    /// The messages after a position, if all of them are kept.
    pub(super) fn history_after(&self, after: Position) -> Option<impl Iterator<Item = Encoded<C>> + '_> {
        self.has_all_after(after).then(|| {
            let missing = self.messages.iter().filter(move |message| message.offset > after.offset);
            missing.map(|message| message.encoded.clone())
        })
    }

    /// Whether all messages after a position are kept.
    pub(super) fn has_all_after(&self, after: Position) -> bool {
        let is_complete = after.epoch == self.epoch && (self.forgotten..=self.last).contains(&after.offset);
        is_complete && self.last > 0
    }

    /// The messages after an offset for a subscriber.
    pub(super) fn notices_after(&self, offset: u64) -> impl Iterator<Item = RoomNotice> + '_ {
        let epoch = self.epoch;
        self.messages.iter().filter(move |message| message.offset > offset).filter_map(move |message| {
            let position = Some(Position { epoch, offset: message.offset });
            Some(RoomNotice::Message { bytes: message.plain.clone()?, position })
        })
    }

    /// The position after which the history begins.
    pub(super) fn position_before_history(&self) -> Option<Position> {
        let first = self.messages.front().map_or(self.last, |message| message.offset - 1);
        self.position().map(|position| Position { offset: first, ..position })
    }

    #[cfg(test)]
    pub(super) fn history_bytes(&self) -> usize {
        self.history_bytes
    }
}
