//! `Streams`: messages that a node publishes, and histories that it reads. `presence.rs` has the other streams.
//!
//! Histories with the same number of messages share a stream, which keeps so many of each subject. A stream that is not there
//! is created; one that is there keeps its configuration, as far as the server does. Each stream may refuse messages by itself:
//! `refusals.rs`.

use std::cell::RefCell;
use std::collections::{BTreeSet, HashMap, VecDeque};
use std::hash::{BuildHasher as _, RandomState};
use std::rc::{Rc, Weak};
use std::time::Duration;

use bytes::Bytes;
use tidegate_engine::{Position, task};
use tidegate_nats::{
    ApiError, Client, ClientError, Headers, JetStream, JetStreamError, OutgoingMessage as NatsMessage, ReplyFuture,
    Republish, StoredMessage, StreamConfig, StreamInfo,
};

use super::names::{Names, epoch_in, token_of};
use super::presence::PresenceRecords;
use super::refusals::{MemoryStream, StreamKind, creation_verdict, verdict_of};
use crate::broker::{History, HistoryBounds, HistoryEntry, OutgoingMessage};
use crate::broker_clock::BrokerClock;
use crate::broker_events::RequestEvents;
use crate::refusals::{Prober, Refusals, Verdict};

/// The streams of a prefix.
pub(super) struct Streams {
    pub(super) client: Client,
    pub(super) api: JetStream,
    pub(super) names: Rc<Names>,
    /// The epochs of the streams that are known to be there, by the number of messages.
    epochs: RefCell<HashMap<usize, StreamEpoch>>,
    /// The streams in memory that are known to be there.
    in_memory: RefCell<BTreeSet<MemoryStream>>,
    pub(super) records: RefCell<PresenceRecords>,
    /// The clock of the server that has the stream of kicks.
    pub(super) clock: RefCell<BrokerClock>,
    pub(super) refusals: Rc<Refusals<Weak<Self>>>,
}

/// The epoch of a stream.
#[derive(Clone, Copy)]
struct StreamEpoch {
    epoch: u64,
    /// It has stored a message of this connection.
    has_answered: bool,
}

impl Streams {
    pub(super) fn new(client: Client, names: Rc<Names>, events: Rc<RequestEvents>) -> Rc<Self> {
        let api = client.jetstream();
        Rc::new_cyclic(|streams: &Weak<Self>| Self {
            client,
            api,
            names,
            epochs: RefCell::default(),
            in_memory: RefCell::default(),
            records: RefCell::default(),
            clock: RefCell::default(),
            refusals: Refusals::new(streams.clone(), events),
        })
    }

    /// A new connection may be one to a server without these streams.
    pub(super) fn forget(&self) {
        self.epochs.borrow_mut().clear();
        self.in_memory.borrow_mut().clear();
    }

    /// Nothing answers a message to this stream: it is not there, or not yet.
    pub(super) fn forget_stream(&self, kind: StreamKind) {
        match kind {
            StreamKind::Histories(messages_max) => drop(self.epochs.borrow_mut().remove(&messages_max)),
            StreamKind::InMemory(stream) => drop(self.in_memory.borrow_mut().remove(&stream)),
        }
    }

    /// Publishes messages in order. `None` if one of them may not be published.
    pub(super) async fn publish(
        &self,
        room: &str,
        history: Option<HistoryBounds>,
        messages: Vec<OutgoingMessage>,
    ) -> Option<()> {
        let token = token_of(room);
        let mut kept = VecDeque::new();
        let mut is_sent = true;
        for message in messages {
            if let Some(lasts) = message.remembered_for {
                // It is there before the message arrives anywhere: a node that misses the message finds it.
                is_sent &= self.remember_kick(&token, &message.bytes, lasts).await;
            }
            if history.is_some() && message.is_kept {
                kept.push_back(message.bytes);
            } else {
                // The messages before it come first.
                is_sent &= self.store(&token, history, &mut kept).await?;
                is_sent &= self.client.publish(self.names.room(&token), message.bytes).is_ok();
            }
        }
        is_sent &= self.store(&token, history, &mut kept).await?;
        if history.is_none() {
            is_sent &= self.client.flush().await.is_ok();
        }
        is_sent.then_some(())
    }

    /// Stores messages in order. Returns whether all of them are stored; `None` if there is no stream.
    ///
    /// A server reports a stream that another node creates before the stream has its subjects, and until then nothing answers a
    /// message. So the first message to a stream goes alone, and is sent again: no later message overtakes it. A stream that
    /// was deleted answers none of the messages that follow: they go to a new one.
    async fn store(&self, token: &str, history: Option<HistoryBounds>, messages: &mut VecDeque<Bytes>) -> Option<bool> {
        let messages_max = history.map_or(0, |history| history.messages_max);
        let kind = StreamKind::Histories(messages_max);
        let give_up_at = task::now() + PUBLISH_TIMEOUT;
        let mut are_stored = true;
        while !messages.is_empty() {
            let StreamEpoch { epoch, has_answered } = self.epoch(messages_max).await?;
            let subject = Bytes::from(self.names.store(messages_max, epoch, token));
            let count = if has_answered || !are_stored { messages.len() } else { 1 };
            let send = |bytes: &Bytes| {
                self.client.request_with(NatsMessage::new(subject.clone(), bytes.clone()), PUBLISH_TIMEOUT)
            };
            let replies: Vec<(usize, ReplyFuture)> =
                messages.iter().take(count).map(|bytes| (bytes.len(), send(bytes))).collect();
            let mut unanswered = 0;
            for (length, reply) in replies {
                let reply = reply.await;
                if let Err(ClientError::NoResponders) = reply {
                    unanswered += 1;
                    continue;
                }
                let verdict = verdict_of(reply);
                // One before it that nothing has answered would come too late.
                are_stored &= unanswered == 0 && verdict == Verdict::Taken;
                self.refusals.note(kind, &None, length, verdict);
                unanswered = 0;
            }
            messages.drain(..count - unanswered);
            if unanswered == 0 {
                if are_stored {
                    self.has_answered(messages_max, epoch);
                }
                continue;
            }
            self.forget_stream(kind);
            if task::now() >= give_up_at {
                return Some(false);
            }
            task::sleep(STORE_AGAIN_AFTER).await;
        }
        Some(are_stored)
    }

    fn has_answered(&self, messages_max: usize, epoch: u64) {
        let mut epochs = self.epochs.borrow_mut();
        if let Some(known) = epochs.get_mut(&messages_max).filter(|known| known.epoch == epoch) {
            known.has_answered = true;
        }
    }

    /// Stores the last kick of a room. Returns `false` if JetStream has not stored it; `true` without JetStream.
    async fn remember_kick(&self, token: &str, kick: &Bytes, lasts: Duration) -> bool {
        let give_up_at = task::now() + PUBLISH_TIMEOUT;
        let kind = StreamKind::InMemory(MemoryStream::Kicks);
        while self.has_stream(MemoryStream::Kicks, lasts).await {
            let message = NatsMessage::new(self.names.kick(token), kick.clone());
            match self.client.request_with(message, PUBLISH_TIMEOUT).await {
                // As in `store`.
                Err(ClientError::NoResponders) if task::now() < give_up_at => {
                    self.forget_stream(kind);
                    task::sleep(STORE_AGAIN_AFTER).await;
                }
                reply => {
                    let verdict = verdict_of(reply);
                    let is_stored = verdict == Verdict::Taken;
                    self.refusals.note(kind, &Some(lasts), kick.len(), verdict);
                    return is_stored;
                }
            }
        }
        !self.refusals.has(kind)
    }

    /// The history of a room from a position on.
    pub(super) async fn history(&self, room: &str, bounds: HistoryBounds, from: Option<Position>) -> Option<History> {
        let token = token_of(room);
        let (info, epoch) = self.stream(bounds.messages_max).await?;
        let first = from.filter(|from| from.epoch == epoch).map_or(0, |from| from.offset);
        let stream = self.names.history_stream(bounds.messages_max);
        let mut messages =
            self.api.history(stream, self.names.store(bounds.messages_max, epoch, &token), first.max(1) - 1);
        let mut entries = BoundedEntries::new(bounds, first);
        while let Some(message) = messages.next().await.ok()? {
            entries.push(message);
        }
        Some(entries.into_history(epoch, info.state.last_seq))
    }

    /// The state and the epoch of the stream of histories.
    async fn stream(&self, messages_max: usize) -> Option<(StreamInfo, u64)> {
        let found = self.find_stream(messages_max).await;
        found.map_err(|verdict| self.refusals.note(StreamKind::Histories(messages_max), &None, 0, verdict)).ok()
    }

    /// The state and the epoch of the stream of histories, which is created unless it is there; or the verdict of its absence.
    pub(super) async fn find_stream(&self, messages_max: usize) -> Result<(StreamInfo, u64), Verdict> {
        let name = self.names.history_stream(messages_max);
        let info = match self.api.info(&name).await {
            Err(error) if error.err_code() == Some(ApiError::STREAM_NOT_FOUND) => self.create(messages_max).await,
            info => info,
        };
        let info = info.map_err(|error| creation_verdict(StreamKind::Histories(messages_max), &error))?;
        let foreign =
            || Verdict::Refused(format!("the subjects of the stream {name} are those of another program").into());
        let epoch = epoch_of(&info).ok_or_else(foreign)?;
        let mut epochs = self.epochs.borrow_mut();
        let known = epochs.entry(messages_max).or_insert(StreamEpoch { epoch, has_answered: false });
        if known.epoch != epoch {
            *known = StreamEpoch { epoch, has_answered: false };
        }
        Ok((info, epoch))
    }

    async fn create(&self, messages_max: usize) -> Result<StreamInfo, JetStreamError> {
        let names = &self.names;
        let subjects = names.store(messages_max, RandomState::new().hash_one(messages_max), "*");
        let config = StreamConfig {
            max_msgs_per_subject: i64::try_from(messages_max).unwrap_or(i64::MAX),
            republish: Some(Republish {
                src: subjects.clone(),
                dest: names.room("{{wildcard(1)}}"),
                headers_only: false,
            }),
            ..StreamConfig::new(names.history_stream(messages_max), [subjects]).with_max_age(UNUSED)
        };
        // Another node may be faster.
        self.create_or_read(&config).await
    }

    async fn create_or_read(&self, config: &StreamConfig) -> Result<StreamInfo, JetStreamError> {
        match self.api.create(config).await {
            Err(error) if error.err_code() == Some(ApiError::STREAM_NAME_EXISTS) => self.api.info(&config.name).await,
            result => result,
        }
    }

    /// The epoch of the stream of histories.
    async fn epoch(&self, messages_max: usize) -> Option<StreamEpoch> {
        let known = self.epochs.borrow().get(&messages_max).copied();
        match known {
            Some(known) => Some(known),
            None => Some(StreamEpoch { epoch: self.stream(messages_max).await?.1, has_answered: false }),
        }
    }

    /// Makes sure that there is a stream in memory. Returns `false` if there is none.
    pub(super) async fn has_stream(&self, stream: MemoryStream, lasts: Duration) -> bool {
        let ensured = self.ensure_stream(stream, lasts).await;
        ensured.map_err(|verdict| self.refusals.note(StreamKind::InMemory(stream), &Some(lasts), 0, verdict)).is_ok()
    }

    /// Makes sure that there is a stream in memory; or returns the verdict of its absence.
    pub(super) async fn ensure_stream(&self, stream: MemoryStream, lasts: Duration) -> Result<(), Verdict> {
        if self.in_memory.borrow().contains(&stream) {
            return Ok(());
        }
        let (name, subjects) = match stream {
            MemoryStream::Leases => (self.names.lease_stream(), self.names.leases("*")),
            MemoryStream::Kicks => (self.names.kick_stream(), self.names.kick("*")),
        };
        let config = StreamConfig {
            max_msgs_per_subject: 1,
            ..StreamConfig::new(name, [subjects]).in_memory().with_max_age(lasts)
        };
        let created = self.create_or_read(&config).await;
        created.map_err(|error| creation_verdict(StreamKind::InMemory(stream), &error))?;
        self.in_memory.borrow_mut().insert(stream);
        Ok(())
    }
}

impl Prober for Weak<Streams> {
    type Part = StreamKind;
    /// How long the messages of a stream last that is created; none for histories, and for a stream that is there.
    type Target = Option<Duration>;

    async fn probe(&self, kind: StreamKind, lasts: Option<Duration>) -> Verdict {
        match self.upgrade() {
            Some(streams) => streams.probe(kind, lasts).await.unwrap_or_else(|verdict| verdict),
            None => Verdict::Unknown,
        }
    }
}

impl Streams {
    /// Creates the stream unless it is there, and stores a message that no room has.
    async fn probe(&self, kind: StreamKind, lasts: Option<Duration>) -> Result<Verdict, Verdict> {
        if let (StreamKind::InMemory(stream), Some(lasts)) = (kind, lasts) {
            self.ensure_stream(stream, lasts).await?;
        }
        let subject = match kind {
            StreamKind::Histories(messages_max) => {
                let (_, epoch) = self.find_stream(messages_max).await?;
                self.names.store_probe(messages_max, epoch)
            }
            StreamKind::InMemory(MemoryStream::Leases) => self.names.lease_probe(),
            StreamKind::InMemory(MemoryStream::Kicks) => self.names.kick_probe(),
        };
        let reply = self.client.request_with(NatsMessage::new(subject, Bytes::new()), PUBLISH_TIMEOUT).await;
        if let Err(ClientError::NoResponders) = reply {
            self.forget_stream(kind);
            // A stream that nothing needs, and that is not there, refuses nothing.
            if lasts.is_none() && matches!(kind, StreamKind::InMemory(_)) {
                return Ok(Verdict::Taken);
            }
        }
        Ok(verdict_of(reply))
    }
}

/// The last messages of a history, within its bounds.
struct BoundedEntries {
    bounds: HistoryBounds,
    first: u64,
    entries: VecDeque<HistoryEntry>,
    bytes: usize,
    /// The offset of the newest message that was left out.
    left_out: u64,
}

impl BoundedEntries {
    fn new(bounds: HistoryBounds, first: u64) -> Self {
        Self { bounds, first, entries: VecDeque::new(), bytes: 0, left_out: 0 }
    }

    fn push(&mut self, message: StoredMessage) {
        self.bytes += message.payload.len();
        self.entries.push_back(HistoryEntry { offset: message.sequence, bytes: message.payload });
        while self.entries.len() > self.bounds.messages_max || self.bytes > self.bounds.bytes_max {
            let Some(oldest) = self.entries.pop_front() else { break };
            self.bytes -= oldest.bytes.len();
            self.left_out = oldest.offset;
        }
    }

    /// The server removes the oldest message where there are too many: so if there are fewer, none was removed since the first
    /// one that was wanted. It may remove some while they are read; then more than the bound have been read, or the first is
    /// not the one that was wanted.
    fn into_history(self, epoch: u64, last_of_stream: u64) -> History {
        let begin = self.entries.front().map_or(0, |entry| entry.offset);
        let is_whole = self.entries.len() < self.bounds.messages_max || begin == self.first;
        let after = match self.left_out {
            0 if is_whole => self.first.saturating_sub(1),
            0 => begin.saturating_sub(1),
            left_out => left_out,
        };
        let last = self.entries.back().map_or(0, |entry| entry.offset).max(last_of_stream);
        let position = (last > 0).then_some(Position { epoch, offset: last });
        History { position, entries: self.entries.into(), after: Some(after) }
    }
}

/// The position of a message that a stream has published, and the room's offset before it.
pub(super) fn place_of(headers: &Headers) -> Option<(Position, u64)> {
    let number = |name| std::str::from_utf8(headers.last_value(name)?).ok()?.parse::<u64>().ok();
    let epoch = epoch_in(std::str::from_utf8(headers.last_value("Nats-Subject")?).ok()?)?;
    let offset = number("Nats-Sequence")?;
    Some((Position { epoch, offset }, number("Nats-Last-Sequence")?))
}

/// A stream that was deleted and created again has another one.
fn epoch_of(info: &StreamInfo) -> Option<u64> {
    epoch_in(info.config.subjects.first()?)
}

/// How long a stream may take to store a message.
pub(super) const PUBLISH_TIMEOUT: Duration = Duration::from_secs(5);
/// The pause before a message that nothing has answered is sent again.
pub(super) const STORE_AGAIN_AFTER: Duration = Duration::from_millis(50);
/// A message lasts so long in a stream: a week.
const UNUSED: Duration = Duration::from_secs(7 * 24 * 3600);

#[cfg(test)]
mod tests {
    use super::*;

    fn entries(bounds: (usize, usize), first: u64, sequences: &[u64]) -> (Option<u64>, Vec<u64>) {
        let bounds = HistoryBounds { messages_max: bounds.0, bytes_max: bounds.1 };
        let mut entries = BoundedEntries::new(bounds, first);
        for sequence in sequences {
            let (subject, payload) = (Bytes::from("s"), Bytes::from("four"));
            entries.push(StoredMessage { subject, sequence: *sequence, headers: None, payload });
        }
        let history = entries.into_history(7, 50);
        assert_eq!(history.position, Some(Position { epoch: 7, offset: 50 }));
        (history.after, history.entries.iter().map(|entry| entry.offset).collect())
    }

    #[test]
    fn a_history_says_after_which_offset_it_is_complete() {
        for (bounds, first, sequences, after, kept) in [
            // Nothing was removed yet.
            ((3, 99), 0, &[][..], 0, &[][..]),
            ((3, 99), 0, &[5, 9], 0, &[5, 9]),
            // Messages before these may have been removed.
            ((3, 99), 0, &[5, 9, 11], 4, &[5, 9, 11]),
            ((3, 99), 2, &[5, 9, 11], 4, &[5, 9, 11]),
            // The one that was wanted is there.
            ((3, 99), 5, &[5, 9, 11], 4, &[5, 9, 11]),
            // Some were removed while they were read.
            ((3, 99), 5, &[5, 9, 11, 12], 5, &[9, 11, 12]),
            // Too many bytes.
            ((3, 8), 5, &[5, 9, 11], 5, &[9, 11]),
        ] {
            assert_eq!(entries(bounds, first, sequences), (Some(after), kept.to_vec()), "{bounds:?} {sequences:?}");
        }
    }
}
