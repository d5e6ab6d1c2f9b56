//! Kicks: those that arrive, and those that this node has missed.
//!
//! A message is delivered at most once, and a kick that is lost leaves a client connected that may not be. So the broker
//! remembers the last kick of each room for a while, and a presence reply has it: after the first member of a room, after a
//! reconnect, and with each renewal. A node executes a remembered kick unless
//!
//! - it has seen this kick, or a newer one;
//! - it has published the kick itself, and so has closed its members then;
//! - its first present member entered after the kick.
//!
//! Ages are durations, one of the broker's clock and one of this node's: the clocks may differ. A kick is judged by its age
//! once, and known by its number afterwards: a step of the broker's clock between two replies changes nothing. A node that
//! was away does not know which of its members entered before the kick and which after: it closes all of them.

use std::time::{Duration, Instant};

use bytes::Bytes;
use tidegate_engine::{NodeId, Position, RoomDelivery};

use super::{Node, Output, Ticket};
use crate::broker::RoomName;
use crate::envelope::{Content, Envelope};

/// The kicks of a room.
#[derive(Debug, Default)]
pub(super) struct RoomKicks {
    /// When the first of the present members entered.
    entered_at: Option<Instant>,
    /// The last kick that this node has seen, executed or not. Few rooms have one.
    last: Option<Box<SeenKick>>,
}

#[derive(Debug)]
struct SeenKick {
    origin: NodeId,
    number: u64,
    at: Instant,
    /// A kick that the broker has reported since, and that is older or concerns no member.
    judged: Option<(NodeId, u64)>,
}

impl RoomKicks {
    /// The first member has entered.
    pub(super) fn entered(&mut self, now: Instant) {
        self.entered_at = Some(now);
    }

    fn seen(&mut self, origin: NodeId, number: u64, at: Instant) {
        self.last = Some(Box::new(SeenKick { origin, number, at, judged: None }));
    }

    /// This node publishes a kick, and has closed its members: kicks before it concern none of them. Members may enter before it
    /// returns, so its arrival says nothing.
    fn published(&mut self, origin: NodeId, number: u64, at: Instant) {
        match &mut self.last {
            // The last one remains known: its message may still arrive.
            Some(last) => last.at = last.at.max(at),
            None => self.seen(origin, number, at),
        }
    }

    /// A kick that the broker remembers concerns no member. Its message is executed nevertheless if it arrives.
    fn judged(&mut self, envelope: &Envelope, at: Instant) {
        let Envelope { origin, number, .. } = *envelope;
        if self.is_last(envelope) {
            return;
        }
        match &mut self.last {
            // The time of the last one remains: the broker may report that one again.
            Some(last) => last.judged = Some((origin, number)),
            None => self.seen(origin, number, at),
        }
    }

    /// Whether this kick was the last one, from the broker's memory or as a message.
    fn is_last(&self, envelope: &Envelope) -> bool {
        self.last.as_deref().is_some_and(|last| (last.origin, last.number) == (envelope.origin, envelope.number))
    }

    /// Whether a kick of this age at that time concerns members that have not been closed by it.
    fn is_missed(&self, envelope: &Envelope, age: Duration, read_at: Instant) -> bool {
        let is_newer = |last: &SeenKick| {
            let kick = (envelope.origin, envelope.number);
            (last.origin, last.number) != kick
                && last.judged != Some(kick)
                && age < read_at.saturating_duration_since(last.at)
        };
        self.entered_at.is_some_and(|entered_at| age <= read_at.saturating_duration_since(entered_at))
            && self.last.as_deref().is_none_or(is_newer)
    }
}

impl Node {
    /// This node publishes a kick.
    pub(super) fn publishes_kick(&mut self, name: &RoomName, number: u64, now: Instant) {
        if let Some(room) = self.rooms.get_mut(name) {
            room.kicks.published(self.id, number, now);
        }
    }

    /// The members of a room are closed, whether its history is being read or not: messages behind the kick do not concern
    /// them. The sender has closed its own.
    pub(super) fn kicked(&mut self, name: &RoomName, position: Option<Position>, envelope: Envelope, now: Instant) {
        if position.is_some() {
            // No history has one.
            self.counts.foreign += 1;
            return;
        }
        // A presence reply may overtake the message.
        if envelope.origin != self.id && !self.rooms.get(name).is_some_and(|room| room.kicks.is_last(&envelope)) {
            self.execute_kick(name, envelope, now);
        }
    }

    /// A kick that the broker remembers.
    pub(super) fn remembered_kick(
        &mut self,
        ticket: u64,
        name: &RoomName,
        (age, read_at): (Duration, Instant),
        bytes: &Bytes,
        now: Instant,
    ) {
        let Some(Ticket::Presence(..)) = self.tickets.get(&ticket) else { return };
        let envelope = Envelope::parse(bytes).ok().filter(Envelope::is_kick);
        let Some(envelope) = envelope else {
            self.counts.foreign += 1;
            return;
        };
        let Some(room) = self.rooms.get_mut(name).filter(|room| room.feed.is_some()) else { return };
        if envelope.origin == self.id {
            return;
        }
        if room.kicks.is_missed(&envelope, age, read_at) {
            self.counts.late_kicks += 1;
            self.execute_kick(name, envelope, now);
        } else {
            // The next reply has it again: its age is smaller then if the broker's clock was set back meanwhile.
            room.kicks.judged(&envelope, read_at.checked_sub(age).unwrap_or(read_at));
        }
    }

    fn execute_kick(&mut self, name: &RoomName, envelope: Envelope, now: Instant) {
        let Envelope { origin, number, content: Content::Message(message) } = envelope else { return };
        if let Some(room) = self.rooms.get_mut(name) {
            room.kicks.seen(origin, number, now);
        }
        self.counts.delivered += 1;
        let delivery = RoomDelivery { position: None, origin, message };
        self.outputs.push_back(Output::Deliver(name.clone(), delivery));
    }
}
