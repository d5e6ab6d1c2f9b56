//! `Streams`: messages that a node publishes, and histories that it reads. `presence.rs` has the other streams.
//!
//! Histories with the same number of messages share a stream, which keeps so many of each subject. A stream that is not there
//! is created; one that is there keeps its configuration, as far as the server does.

use std::cell::RefCell;
use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasher as _, RandomState};
use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use tidegate_engine::{Position, task};
use tidegate_nats::{
    ApiError, Client, ClientError, Headers, JetStream, JetStreamError, OutgoingMessage as NatsMessage, ReplyFuture,
    Republish, StoredMessage, StreamConfig, StreamInfo,
};

use super::names::{Names, epoch_in, token_of};
use super::presence::PresenceRecords;
use crate::broker::{History, HistoryBounds, HistoryEntry, OutgoingMessage};
use crate::broker_clock::BrokerClock;

/// The streams of a prefix.
pub(super) struct Streams {
    pub(super) client: Client,
    pub(super) api: JetStream,
    pub(super) names: Rc<Names>,
    /// The epochs of the streams that are known to be there, by the number of messages.
    epochs: RefCell<HashMap<usize, StreamEpoch>>,
    pub(super) has_leases: RefCell<bool>,
    pub(super) records: RefCell<PresenceRecords>,
    has_kicks: RefCell<bool>,
    /// The clock of the server that has the stream of kicks.
    pub(super) clock: RefCell<BrokerClock>,
}

/// The epoch of a stream.
#[derive(Clone, Copy)]
struct StreamEpoch {
    epoch: u64,
    /// It has stored a message of this connection.
    has_answered: bool,
}

impl Streams {
    pub(super) fn new(client: Client, names: Rc<Names>) -> Self {
        let api = client.jetstream();
        Self {
            client,
            api,
            names,
            epochs: RefCell::default(),
            has_leases: RefCell::default(),
            records: RefCell::default(),
            has_kicks: RefCell::default(),
            clock: RefCell::default(),
        }
    }

    /// A new connection may be one to a server without these streams.
    pub(super) fn forget(&self) {
        self.epochs.borrow_mut().clear();
        self.has_leases.replace(false);
        self.has_kicks.replace(false);
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
        let give_up_at = task::now() + PUBLISH_TIMEOUT;
        let mut are_stored = true;
        while !messages.is_empty() {
            let StreamEpoch { epoch, has_answered } = self.epoch(messages_max).await?;
            let subject = Bytes::from(self.names.store(messages_max, epoch, token));
            let count = if has_answered || !are_stored { messages.len() } else { 1 };
            let send = |bytes: &Bytes| {
                self.client.request_with(NatsMessage::new(subject.clone(), bytes.clone()), PUBLISH_TIMEOUT)
            };
            let replies: Vec<ReplyFuture> = messages.iter().take(count).map(send).collect();
            let mut unanswered = 0;
            for reply in replies {
                let reply = reply.await;
                if let Err(ClientError::NoResponders) = reply {
                    unanswered += 1;
                    continue;
                }
                // One before it that nothing has answered would come too late.
                are_stored &= unanswered == 0 && reply.is_ok_and(|reply| is_acknowledged(&reply.payload));
                unanswered = 0;
            }
            messages.drain(..count - unanswered);
            if unanswered == 0 {
                if are_stored {
                    self.has_answered(messages_max, epoch);
                }
                continue;
            }
            self.epochs.borrow_mut().remove(&messages_max);
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

    /// Stores the last kick of a room. Returns `false` if there is a stream that has not stored it.
    async fn remember_kick(&self, token: &str, kick: &Bytes, lasts: Duration) -> bool {
        let give_up_at = task::now() + PUBLISH_TIMEOUT;
        while self.has_stream(&self.has_kicks, (self.names.kick_stream(), self.names.kick("*")), lasts).await {
            let kick = NatsMessage::new(self.names.kick(token), kick.clone());
            match self.client.request_with(kick, PUBLISH_TIMEOUT).await {
                // As in `store`.
                Err(ClientError::NoResponders) if task::now() < give_up_at => {
                    self.has_kicks.replace(false);
                    task::sleep(STORE_AGAIN_AFTER).await;
                }
                reply => return reply.is_ok_and(|reply| is_acknowledged(&reply.payload)),
            }
        }
        true
    }

    /// The history of a room from a position on.
    pub(super) async fn history(&self, room: &str, bounds: HistoryBounds, from: Option<Position>) -> Option<History> {
        let token = token_of(room);
        let info = self.stream(bounds.messages_max).await?;
        let epoch = epoch_of(&info)?;
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

    /// The state of the stream of histories, which is created unless it is there.
    async fn stream(&self, messages_max: usize) -> Option<StreamInfo> {
        let name = self.names.history_stream(messages_max);
        let info = match self.api.info(&name).await {
            Err(error) if error.err_code() == Some(ApiError::STREAM_NOT_FOUND) => {
                self.create(messages_max).await.ok()?
            }
            info => info.ok()?,
        };
        let epoch = epoch_of(&info)?;
        let mut epochs = self.epochs.borrow_mut();
        let known = epochs.entry(messages_max).or_insert(StreamEpoch { epoch, has_answered: false });
        if known.epoch != epoch {
            *known = StreamEpoch { epoch, has_answered: false };
        }
        Some(info)
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
            None => Some(StreamEpoch { epoch: epoch_of(&self.stream(messages_max).await?)?, has_answered: false }),
        }
    }

    /// Makes sure that there is a stream in memory with the last message of each subject.
    pub(super) async fn has_stream(
        &self,
        is_known: &RefCell<bool>,
        (name, subjects): (String, String),
        lasts: Duration,
    ) -> bool {
        if *is_known.borrow() {
            return true;
        }
        let config = StreamConfig {
            max_msgs_per_subject: 1,
            ..StreamConfig::new(name, [subjects]).in_memory().with_max_age(lasts)
        };
        let is_there = self.create_or_read(&config).await.is_ok();
        is_known.replace(is_there);
        is_there
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

/// Whether the payload is the acknowledgement of a stream, and no error.
pub(super) fn is_acknowledged(payload: &Bytes) -> bool {
    payload.starts_with(b"{\"stream\"")
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
