//! Messages of this node on their way to the broker: one request of a room at a time, with all messages that wait for it. So
//! the messages of one sender keep their order, but for those of a request without a reply: the next request takes another
//! connection, and the broker may execute it first.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use tidegate_engine::{BackplaneFull, MessageForm, RoomMessage};

use super::{Node, Output, Ticket};
use crate::broker::{BrokerRequest, HistoryBounds, OutgoingMessage, RoomName};
use crate::envelope::{Content, Envelope};

/// The messages of a room that wait for the broker.
#[derive(Debug, Default)]
pub(super) struct PublishQueue {
    history: Option<HistoryBounds>,
    waiting: VecDeque<OutgoingMessage>,
    is_publishing: bool,
}

impl Node {
    /// Publishes a message to the members of all nodes. `history` are the bounds of the room, if it is ordered.
    ///
    /// # Errors
    /// [`BackplaneFull`] if as many messages wait as may, or the name is too long.
    pub fn publish(
        &mut self,
        name: &RoomName,
        history: Option<HistoryBounds>,
        message: RoomMessage,
        now: Instant,
    ) -> Result<(), BackplaneFull> {
        let limits = &self.limits;
        let is_full = self.counts.queued_messages >= limits.queued_messages_max as u64
            || self.queued_bytes.saturating_add(message.bytes.len()) > limits.queued_bytes_max;
        if is_full || name.len() > limits.room_name_bytes_max {
            self.counts.refused += 1;
            return Err(BackplaneFull);
        }
        let number = self.next_number();
        self.sent.sent(number, now);
        let is_kept = history.is_some() && !message.is_announcement;
        let remembered_for = (message.form == MessageForm::Kick).then_some(self.limits.kick_lease);
        let envelope = Envelope { origin: self.id, number, content: Content::Message(message) };
        let bytes = envelope.to_bytes();
        self.counts.queued_messages += 1;
        self.queued_bytes += bytes.len();
        let room = self.rooms.entry(name.clone()).or_default();
        let queue = room.queue.get_or_insert_default();
        queue.history = history;
        queue.waiting.push_back(OutgoingMessage { bytes, is_kept, remembered_for });
        if remembered_for.is_some() {
            self.publishes_kick(name, number, now);
        }
        self.publish_next(name);
        Ok(())
    }

    /// Bytes of the messages that wait for a request to the broker.
    #[must_use]
    pub fn queued_bytes(&self) -> usize {
        self.queued_bytes
    }

    pub(super) fn next_number(&mut self) -> u64 {
        self.last_number += 1;
        self.last_number
    }

    fn publish_next(&mut self, name: &RoomName) {
        let Some(queue) = self.rooms.get_mut(name).and_then(|room| room.queue.as_mut()) else { return };
        if queue.is_publishing || queue.waiting.is_empty() {
            return;
        }
        let mut bytes = 0;
        let mut messages = Vec::new();
        let fits = |bytes: usize, next: &OutgoingMessage| bytes == 0 || bytes + next.bytes.len() <= BATCH_BYTES_MAX;
        while messages.len() < BATCH_MESSAGES_MAX
            && queue.waiting.front().is_some_and(|next| fits(bytes, next))
            && let Some(message) = queue.waiting.pop_front()
        {
            bytes += message.bytes.len();
            messages.push(message);
        }
        queue.is_publishing = true;
        let history = queue.history;
        self.queued_bytes -= bytes;
        let (ticket, count) = (self.last_ticket + 1, messages.len() as u64);
        self.last_ticket = ticket;
        self.tickets.insert(ticket, Ticket::Publish(name.clone(), count));
        let epoch = self.epoch(ticket);
        let request = BrokerRequest::Publish { ticket, room: name.clone(), history, epoch, messages };
        self.outputs.push_back(Output::BrokerRequest(request));
    }

    /// A number that no other node and no other request has, as far as randomness goes.
    fn epoch(&self, ticket: u64) -> u64 {
        let (high, low) = self.id.0.split_at(8);
        let half = |half: &[u8]| half.iter().fold(0, |number: u64, byte| number << 8 | u64::from(*byte));
        // The finalizer of splitmix64 spreads the ticket over all bits.
        let mut mixed = half(high) ^ half(low).wrapping_add(ticket.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    pub(super) fn published(&mut self, name: &RoomName, count: u64, is_confirmed: bool) {
        self.counts.queued_messages -= count;
        *(if is_confirmed { &mut self.counts.published } else { &mut self.counts.unconfirmed }) += count;
        if let Some(room) = self.rooms.get_mut(name)
            && let Some(queue) = &mut room.queue
        {
            queue.is_publishing = false;
            if queue.waiting.is_empty() {
                room.queue = None;
            }
        }
        self.publish_next(name);
        self.remove_if_unused(name);
    }
}

/// When the last messages were published, for the lag.
#[derive(Debug, Default)]
pub(super) struct SentMessages(VecDeque<(u64, Instant)>);

impl SentMessages {
    fn sent(&mut self, number: u64, now: Instant) {
        if self.0.len() >= SENT_MAX {
            self.0.pop_front();
        }
        self.0.push_back((number, now));
    }

    /// How long ago a message was published that has returned.
    pub(super) fn returned(&mut self, number: u64, now: Instant) -> Option<Duration> {
        let place = self.0.binary_search_by_key(&number, |(number, _)| *number).ok()?;
        let (_, at) = self.0.remove(place)?;
        Some(now.saturating_duration_since(at))
    }
}

/// Messages of one request.
const BATCH_MESSAGES_MAX: usize = 64;
/// Bytes of these, unless one message has more.
const BATCH_BYTES_MAX: usize = 256 << 10;
/// Messages whose time is remembered.
const SENT_MAX: usize = 256;
