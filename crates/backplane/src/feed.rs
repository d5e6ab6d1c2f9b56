//! `Feed`: the order of one room's messages on this node.
//!
//! | state | messages |
//! |---|---|
//! | `Subscribing` | none arrive |
//! | `Waiting` | are buffered, until a history read may be sent |
//! | `Reading` | are buffered, until the history arrives |
//! | `Live` | are delivered |
//!
//! Invariant: the messages between two gaps have offsets that grow by one, in one epoch.
//!
//! A node may have a hundred thousand feeds, so a feed is small: `FEED_BYTES_MAX`.
//!
//! A buffered message that came before the read was sent is in the history, or was trimmed from it, or is one that the broker
//! has never given an offset: so it is dropped in any case. A message that came later continues the history.

use std::collections::VecDeque;
use std::hash::{DefaultHasher, Hasher as _};
use std::time::Duration;

use bytes::Bytes;
use tidegate_engine::{MessageForm, NodeId, Position, RoomDelivery, RoomMessage};

use crate::broker::History;
use crate::counts::BackplaneCounts;
use crate::envelope::{Content, Envelope, NoEnvelope};
use crate::limits::NodeLimits;

/// The order of one room's messages.
#[derive(Debug)]
pub(crate) struct Feed {
    is_ordered: bool,
    state: FeedState,
    /// The room has been opened.
    is_open: bool,
    has_overflowed: bool,
    /// A message has been delivered as it arrived since the last read: no message that the history had is under way any more.
    has_caught_up: bool,
    /// The members know that no messages arrive.
    is_down: bool,
    /// Reads that have failed, one after the other.
    failed_reads: u8,
    /// The position of the last message that was delivered or skipped.
    position: Option<Position>,
    /// The last message that was delivered: whether a history continues it.
    last: Option<LastMessage>,
    /// The read that is under way in the state `Reading`.
    read: u64,
    /// Present while messages wait: most rooms never have one.
    buffer: Option<Box<FeedBuffer>>,
}

const _: () = assert!(size_of::<Feed>() <= FEED_BYTES_MAX);

/// Messages that wait for the history.
#[derive(Debug, Default)]
struct FeedBuffer {
    messages: VecDeque<Incoming>,
    bytes: usize,
    /// So many of them came before the read was sent.
    before_read: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FeedState {
    Subscribing,
    Waiting,
    Reading,
    Live,
}

/// A message that was delivered: its offset, and a hash of its sender and of its number there. Another message at this offset
/// has another hash, but for one in 2^64.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct LastMessage {
    offset: u64,
    hash: u64,
}

#[derive(Debug)]
struct Incoming {
    position: Option<Position>,
    /// The offset of the message before it, if offsets do not grow by one.
    previous: Option<u64>,
    origin: NodeId,
    number: u64,
    message: RoomMessage,
}

/// An event for the room, or a request of the feed.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum FeedEvent {
    /// The history is to be read.
    Read,
    Opened(Option<Position>, Vec<RoomDelivery>),
    Deliver(RoomDelivery),
    Gap(Option<Position>),
    /// Messages arrive again.
    Up,
    Down,
}

/// The surroundings of a call.
pub(crate) struct FeedContext<'a> {
    pub(crate) limits: &'a NodeLimits,
    pub(crate) counts: &'a mut BackplaneCounts,
    pub(crate) events: &'a mut Vec<FeedEvent>,
}

impl Feed {
    pub(crate) fn new(is_ordered: bool) -> Self {
        Self {
            is_ordered,
            state: FeedState::Subscribing,
            is_open: false,
            has_overflowed: false,
            has_caught_up: false,
            is_down: false,
            failed_reads: 0,
            position: None,
            last: None,
            read: 0,
            buffer: None,
        }
    }

    /// The broker has confirmed the subscription.
    pub(crate) fn subscribed(&mut self, cx: &mut FeedContext<'_>) {
        if self.state != FeedState::Subscribing {
            return;
        }
        cx.counts.resubscribes += u64::from(self.is_open);
        if self.is_ordered {
            return self.read(cx);
        }
        self.state = FeedState::Live;
        if self.is_open {
            self.gap(None, 0, cx);
            self.report_up(cx);
        } else {
            self.is_open = true;
            cx.events.push(FeedEvent::Opened(None, Vec::new()));
        }
    }

    /// The connection is lost.
    pub(crate) fn down(&mut self, cx: &mut FeedContext<'_>) {
        self.report_down(cx);
        (self.state, self.has_caught_up) = (FeedState::Subscribing, false);
        self.clear_buffer();
    }

    /// The broker refuses the subscription.
    pub(crate) fn refused(&mut self, cx: &mut FeedContext<'_>) {
        self.open_empty(cx);
        self.down(cx);
    }

    /// Opens the room without its history, so that its members learn that no messages arrive.
    fn open_empty(&mut self, cx: &mut FeedContext<'_>) {
        if !std::mem::replace(&mut self.is_open, true) {
            cx.events.push(FeedEvent::Opened(None, Vec::new()));
        }
    }

    fn report_down(&mut self, cx: &mut FeedContext<'_>) {
        if self.is_open && !std::mem::replace(&mut self.is_down, true) {
            cx.events.push(FeedEvent::Down);
        }
    }

    fn report_up(&mut self, cx: &mut FeedContext<'_>) {
        self.is_down = false;
        cx.events.push(FeedEvent::Up);
    }

    /// Messages may be lost although the connection lasts.
    pub(crate) fn overflowed(&mut self, cx: &mut FeedContext<'_>) {
        match self.state {
            FeedState::Live if self.is_ordered => self.read(cx),
            FeedState::Live => self.gap(None, 0, cx),
            FeedState::Reading => self.has_overflowed = true,
            FeedState::Subscribing | FeedState::Waiting => {}
        }
    }

    /// The read is sent with this ticket: returns the first message that is wanted.
    pub(crate) fn read_sent(&mut self, ticket: u64) -> Option<Position> {
        (self.state, self.read) = (FeedState::Reading, ticket);
        if let Some(buffer) = &mut self.buffer {
            buffer.before_read = buffer.messages.len();
        }
        // Where offsets are sparse, the position may be one of another room's messages.
        let from =
            self.position.map(|last| Position { offset: self.last.map_or(last.offset, |last| last.offset), ..last });
        from.filter(|from| self.is_open && from.offset > 0)
    }

    /// Whether the feed still wants a read that it has asked for.
    pub(crate) fn wants_read(&self) -> bool {
        self.state == FeedState::Waiting
    }

    pub(crate) fn message(
        &mut self,
        (position, previous): (Option<Position>, Option<u64>),
        envelope: Envelope,
        cx: &mut FeedContext<'_>,
    ) {
        let Content::Message(message) = envelope.content else { return };
        if self.is_ordered && position.is_none() != message.is_announcement {
            cx.counts.foreign += 1;
            return;
        }
        let position = position.filter(|_| self.is_ordered);
        let incoming = Incoming { position, previous, origin: envelope.origin, number: envelope.number, message };
        match self.state {
            FeedState::Subscribing => {}
            FeedState::Live => self.accept(incoming, cx),
            FeedState::Waiting | FeedState::Reading => self.buffer(incoming, cx),
        }
    }

    /// A message while the feed is live.
    fn accept(&mut self, incoming: Incoming, cx: &mut FeedContext<'_>) {
        let Some(position) = incoming.position else { return self.deliver(incoming, cx) };
        let previous = incoming.previous.unwrap_or(position.offset.saturating_sub(1));
        let is_next = match self.position {
            None => previous == 0,
            Some(last) if last.epoch == position.epoch => {
                if position.offset <= last.offset {
                    cx.counts.duplicates += 1;
                    if self.has_gone_back(&incoming, position.offset) {
                        self.read(cx);
                    }
                    return;
                }
                previous <= last.offset
            }
            Some(_) => false,
        };
        if is_next {
            self.has_caught_up = true;
            return self.deliver(incoming, cx);
        }
        self.buffer(incoming, cx);
        self.read(cx);
    }

    /// Whether a message whose offset was delivered before shows that the broker has lost messages and gives their offsets
    /// again, with the same connection: a master that was a replica for a while, for example. After a read, messages that the
    /// history had may still arrive.
    fn has_gone_back(&self, incoming: &Incoming, offset: u64) -> bool {
        match self.last {
            Some(last) if last.offset == offset => incoming.last(offset) != last,
            _ => self.has_caught_up,
        }
    }

    fn deliver(&mut self, incoming: Incoming, cx: &mut FeedContext<'_>) {
        if let Some(position) = incoming.position {
            self.position = incoming.position;
            self.last = Some(incoming.last(position.offset));
        }
        cx.counts.delivered += 1;
        let Incoming { position, origin, message, .. } = incoming;
        cx.events.push(FeedEvent::Deliver(RoomDelivery { position, origin, message }));
    }

    fn buffer(&mut self, incoming: Incoming, cx: &FeedContext<'_>) {
        let buffer = self.buffer.get_or_insert_default();
        buffer.bytes += incoming.message.bytes.len();
        buffer.messages.push_back(incoming);
        if buffer.messages.len() > cx.limits.buffered_messages_max || buffer.bytes > cx.limits.buffered_bytes_max {
            self.clear_buffer();
            self.has_overflowed = true;
        }
    }

    fn clear_buffer(&mut self) {
        self.buffer = None;
        self.has_overflowed = false;
    }

    fn read(&mut self, cx: &mut FeedContext<'_>) {
        (self.state, self.has_caught_up) = (FeedState::Waiting, false);
        cx.events.push(FeedEvent::Read);
    }

    fn gap(&mut self, position: Option<Position>, lost: u64, cx: &mut FeedContext<'_>) {
        cx.counts.gaps += 1;
        cx.counts.lost = cx.counts.lost.saturating_add(lost);
        (self.position, self.last) = (position, None);
        cx.events.push(FeedEvent::Gap(position));
    }

    fn is_reading(&self, ticket: u64) -> bool {
        self.state == FeedState::Reading && self.read == ticket
    }

    /// The history could not be read. Returns after which pause it is tried again, if it was the read of this ticket.
    ///
    /// The members of an open room learn of it, and those of another one after a while: a broker may refuse reads for good.
    pub(crate) fn read_failed(&mut self, ticket: u64, cx: &mut FeedContext<'_>) -> Option<Duration> {
        if !self.is_reading(ticket) {
            return None;
        }
        self.state = FeedState::Waiting;
        let pause = READ_AGAIN_AFTER * (1 << u32::from(self.failed_reads).min(DOUBLINGS_MAX));
        self.failed_reads = self.failed_reads.saturating_add(1);
        if self.failed_reads >= FAILED_READS_SILENT_MAX {
            self.open_empty(cx);
        }
        self.report_down(cx);
        Some(pause)
    }

    pub(crate) fn history(&mut self, ticket: u64, history: History, cx: &mut FeedContext<'_>) {
        if !self.is_reading(ticket) {
            return;
        }
        self.failed_reads = 0;
        let History { position, entries, after } = history;
        let entries: Vec<_> =
            entries.into_iter().map(|entry| FeedEntry::of(entry.offset, &entry.bytes, cx.counts)).collect();
        let was_open = std::mem::replace(&mut self.is_open, true);
        if was_open {
            self.continue_with(position, after, entries, cx);
            self.report_up(cx);
        } else {
            self.last = entries.last().and_then(|entry| Some(entry.content.as_ref()?.last(entry.offset)));
            self.position = position;
            let deliveries = entries.into_iter().filter_map(|entry| entry.delivery(position?.epoch)).collect();
            cx.events.push(FeedEvent::Opened(position, deliveries));
        }
        self.state = FeedState::Live;
        self.take_buffer(cx);
    }

    /// Continues after the last position with a history. `complete_after` is the offset after which it has all messages, if
    /// offsets do not grow by one.
    fn continue_with(
        &mut self,
        top: Option<Position>,
        complete_after: Option<u64>,
        entries: Vec<FeedEntry>,
        cx: &mut FeedContext<'_>,
    ) {
        let Some(top) = top else {
            if self.position.is_some() {
                self.gap(None, 0, cx);
            }
            return;
        };
        let is_dense = complete_after.is_none();
        let first = entries.first().map_or(top.offset, |entry| entry.offset.saturating_sub(1));
        let complete_after = complete_after.unwrap_or(first);
        let continues = self.position.is_none_or(|last| last.epoch == top.epoch);
        let position = self.position.filter(|_| continues).map_or(0, |last| last.offset);
        if continues && (top.offset < position || self.is_replaced(&entries, complete_after)) {
            // The broker has lost messages that were delivered, as a replica that became the master: which of the others were
            // delivered is unknown.
            return self.gap(Some(top), 0, cx);
        }
        // Where offsets are sparse, none of the room's messages is between the last one and the position. If the last one is not
        // in the history any more, it may have been replaced.
        let is_verified = self.last.is_none_or(|last| entries.iter().any(|entry| entry.offset == last.offset));
        if !continues || complete_after > position || !is_verified {
            let lost = if continues && is_dense { complete_after.saturating_sub(position) } else { 0 };
            self.gap((complete_after > 0).then_some(Position { offset: complete_after, ..top }), lost, cx);
        }
        let missing: Vec<_> = entries.into_iter().filter(|entry| entry.offset > position.max(complete_after)).collect();
        cx.counts.recovered += missing.len() as u64;
        for entry in missing {
            let position = Position { epoch: top.epoch, offset: entry.offset };
            self.position = Some(position);
            if let Some(entry) = entry.content {
                self.deliver(Incoming { position: Some(position), ..entry }, cx);
            }
        }
        self.position = Some(top);
    }

    /// Whether the last message that was delivered is another one in the history, or is missing where the history has all.
    fn is_replaced(&self, entries: &[FeedEntry], complete_after: u64) -> bool {
        let Some(last) = self.last else { return false };
        match entries.iter().find(|entry| entry.offset == last.offset) {
            Some(FeedEntry { content: Some(entry), .. }) => entry.last(last.offset) != last,
            Some(_) => false,
            None => complete_after < last.offset,
        }
    }

    /// Delivers the messages that came while the history was read.
    fn take_buffer(&mut self, cx: &mut FeedContext<'_>) {
        let has_overflowed = self.has_overflowed;
        let FeedBuffer { messages: mut buffer, before_read: before, .. } = *self.buffer.take().unwrap_or_default();
        self.clear_buffer();
        let is_covered = |incoming: &Incoming, top: Option<Position>| match (incoming.position, top) {
            (Some(position), Some(top)) => position.epoch == top.epoch && position.offset <= top.offset,
            _ => false,
        };
        // An announcement before a message of the history would come too late.
        let covered =
            buffer.iter().rposition(|incoming| is_covered(incoming, self.position)).map_or(0, |last| last + 1);
        for (place, incoming) in buffer.drain(..).enumerate() {
            if place < before && incoming.position.is_some() {
                cx.counts.impossible += u64::from(!is_covered(&incoming, self.position));
            } else if place < covered {
                // In the history.
            } else if self.state == FeedState::Live {
                self.accept(incoming, cx);
            } else {
                self.buffer(incoming, cx);
            }
        }
        if has_overflowed && self.state == FeedState::Live {
            self.read(cx);
        }
    }
}

impl Incoming {
    fn last(&self, offset: u64) -> LastMessage {
        let mut hasher = DefaultHasher::new();
        hasher.write(&self.origin.0);
        hasher.write_u64(self.number);
        LastMessage { offset, hash: hasher.finish() }
    }
}

/// A message of the history, without content if no node has sent it.
struct FeedEntry {
    offset: u64,
    content: Option<Incoming>,
}

impl FeedEntry {
    fn of(offset: u64, bytes: &Bytes, counts: &mut BackplaneCounts) -> Self {
        let content = match Envelope::parse(bytes) {
            Ok(Envelope { origin, number, content: Content::Message(message) })
                if message.form != MessageForm::Kick =>
            {
                Some(Incoming { position: None, previous: None, origin, number, message })
            }
            Ok(_) | Err(NoEnvelope::Foreign) => {
                counts.foreign += 1;
                None
            }
            Err(NoEnvelope::OtherVersion) => {
                counts.other_versions += 1;
                None
            }
        };
        Self { offset, content }
    }

    fn delivery(self, epoch: u64) -> Option<RoomDelivery> {
        let Incoming { origin, message, .. } = self.content?;
        Some(RoomDelivery { position: Some(Position { epoch, offset: self.offset }), origin, message })
    }
}

/// The pause before a history that could not be read is read again. It doubles with each failure.
const READ_AGAIN_AFTER: Duration = Duration::from_millis(200);
/// The longest pause is eight times as long.
const DOUBLINGS_MAX: u32 = 3;
/// After so many failures the members of a room learn that its history cannot be read.
const FAILED_READS_SILENT_MAX: u8 = 5;
/// Bytes of a feed.
const FEED_BYTES_MAX: usize = 72;
