//! The members of nodes, and the kicks that the server remembers: two streams in memory with the last message of each subject.
//!
//! A stream that was deleted answers nothing: the node creates it again, and sends the unanswered records again.
//!
//! **The clock of kicks.** In a cluster each stream has a server of its own, and the servers' clocks differ. So a node stores
//! a message of its own in the kick stream before it reads kicks: the time of that message is a sample of the clock that dates
//! them.

use std::collections::HashMap;
use std::rc::Rc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use tidegate_engine::{NodeId, task};
use tidegate_nats::{ClientError, OutgoingMessage as NatsMessage, PublishOptions, ReplyFuture, StoredMessage};

use super::names::token_of;
use super::refusals::{MemoryStream, StreamKind, publish_verdict, verdict_of};
use super::streams::{PUBLISH_TIMEOUT, STORE_AGAIN_AFTER, Streams};
use crate::broker::{Lease, PresenceUpdate};
use crate::refusals::Verdict;
use crate::{envelope, presence_list};

/// A kick that the server has, of a room in a request.
pub(super) struct RememberedKick {
    /// The place of the room in the request.
    pub(super) place: usize,
    pub(super) age: Duration,
    pub(super) read_at: Instant,
    pub(super) bytes: Bytes,
}

/// The presence requests whose members are being recorded.
#[derive(Debug, Default)]
pub(super) struct PresenceRecords {
    last: u64,
    /// The latest request of each room, by its token.
    requests: HashMap<String, u64>,
}

impl Streams {
    /// Records the members of this node, tells other nodes, and reads theirs. Kicks are read even if no lists can be: their
    /// stream may be on another server.
    pub(super) async fn presence(
        self: &Rc<Self>,
        node: NodeId,
        lease: Duration,
        rooms: Vec<PresenceUpdate>,
        reads: bool,
    ) -> (Option<Vec<Vec<Lease>>>, Vec<RememberedKick>) {
        let streams = self.clone();
        let clock = reads.then(|| task::spawn(async move { streams.sample_kick_clock(node).await }));
        let (mut lists, mut tokens) = (Vec::new(), Vec::new());
        for update in rooms {
            let token = token_of(&update.room);
            if let Some(message) = update.message {
                // At most once, as each message without position: the lists that are read later say the same.
                let message = self.fitting(message, envelope::HEAD_BYTES + presence_list::HEAD_BYTES);
                let _ = self.client.publish(self.names.room(&token), message);
            }
            lists.push((token.clone(), self.fitting(update.list.unwrap_or_default(), presence_list::HEAD_BYTES)));
            tokens.push(token);
        }
        let is_recorded = self.record(node, lease, lists).await;
        let has_kicks = match clock {
            Some(sample) => sample.await.unwrap_or(false),
            None => false,
        };
        let has_lists = reads && is_recorded;
        if !(has_lists || has_kicks) {
            return (None, Vec::new());
        }
        let rooms_each = tokens.len().div_ceil(READS_MAX).max(1);
        let read = |(number, tokens): (usize, &[String])| {
            let (streams, tokens) = (self.clone(), tokens.to_vec());
            let (first, has) = (number * rooms_each, (has_lists, has_kicks));
            task::spawn(async move { streams.read_rooms(first, &tokens, (node, lease), has).await })
        };
        let runs: Vec<_> = tokens.chunks(rooms_each).enumerate().map(read).collect();
        let (mut leases, mut kicks) = (has_lists.then(Vec::new), Vec::new());
        for run in runs {
            let (of_rooms, kicks_of_rooms) = run.await.unwrap_or_default();
            kicks.extend(kicks_of_rooms);
            leases = leases.zip(of_rooms).map(|(leases, of_rooms)| [leases, of_rooms].concat());
        }
        (leases, kicks)
    }

    /// A list as it is, or without the names behind its head if the server takes no message of its length.
    fn fitting(&self, list: Bytes, head: usize) -> Bytes {
        let is_too_long = self.client.server_info().is_some_and(|info| list.len() as u64 > info.max_payload);
        if is_too_long { list.slice(..head.min(list.len())) } else { list }
    }

    /// Stores the members of this node in rooms. Returns whether the server has all of them.
    async fn record(&self, node: NodeId, lease: Duration, lists: Vec<(String, Bytes)>) -> bool {
        let number = self.records.borrow_mut().begin(&lists);
        let tokens: Vec<_> = lists.iter().map(|(token, _)| token.clone()).collect();
        let is_recorded = self.record_lists(number, node, lease, lists).await.is_some();
        self.records.borrow_mut().end(number, &tokens);
        is_recorded
    }

    /// As in `store`, a request without an answer is sent again, unless a later request has recorded the room since.
    async fn record_lists(
        &self,
        number: u64,
        node: NodeId,
        lease: Duration,
        mut lists: Vec<(String, Bytes)>,
    ) -> Option<()> {
        let give_up_at = task::now() + PUBLISH_TIMEOUT;
        let kind = StreamKind::InMemory(MemoryStream::Leases);
        loop {
            self.has_stream(MemoryStream::Leases, lease).await.then_some(())?;
            lists.retain(|(token, _)| self.records.borrow().is_latest(token, number));
            let send = |(token, list): &(String, Bytes)| {
                let record = NatsMessage::new(self.names.lease(token, node), list.clone());
                self.client.request_with(record, PUBLISH_TIMEOUT)
            };
            let replies: Vec<ReplyFuture> = lists.iter().map(send).collect();
            let mut unanswered = Vec::new();
            for (list, reply) in lists.into_iter().zip(replies) {
                match reply.await {
                    Err(ClientError::NoResponders) => unanswered.push(list),
                    reply => {
                        let verdict = verdict_of(reply);
                        let is_taken = verdict == Verdict::Taken;
                        self.refusals.note(kind, &Some(lease), list.1.len(), verdict);
                        is_taken.then_some(())?;
                    }
                }
            }
            if unanswered.is_empty() {
                return Some(());
            }
            lists = unanswered;
            self.forget_stream(kind);
            if task::now() >= give_up_at {
                return None;
            }
            task::sleep(STORE_AGAIN_AFTER).await;
        }
    }

    /// Samples the clock that dates kicks. Returns `false` without a sample: the clock may have been set since the last one, and a
    /// kick is judged once. The next request reads it.
    async fn sample_kick_clock(&self, node: NodeId) -> bool {
        let sent_at = task::now();
        let stored = self.api.publish(self.names.kick_clock(node), Bytes::new(), PublishOptions::new()).await;
        let received_at = task::now();
        let verdict = stored.as_ref().map_or_else(publish_verdict, |_| Verdict::Taken);
        self.refusals.note(StreamKind::InMemory(MemoryStream::Kicks), &None, 0, verdict);
        let Ok(ack) = stored else { return false };
        let Ok(message) = self.api.message(&self.names.kick_stream(), ack.sequence).await else { return false };
        let Some(time) = time_of(&message) else { return false };
        self.clock.borrow_mut().sample(time, sent_at, received_at);
        true
    }

    /// The members of all nodes in rooms, one room after the other, and their kicks, as far as there are lists and kicks. `first`
    /// is the place of the first room in the request. No lists if one of them cannot be read.
    async fn read_rooms(
        &self,
        first: usize,
        tokens: &[String],
        (node, lease): (NodeId, Duration),
        (has_lists, has_kicks): (bool, bool),
    ) -> (Option<Vec<Vec<Lease>>>, Vec<RememberedKick>) {
        let (mut leases, mut kicks) = (has_lists.then(Vec::new), Vec::new());
        for (place, token) in (first..).zip(tokens) {
            if let Some(lists) = &mut leases {
                match self.leases(token, node, lease).await {
                    Some(list) => lists.push(list),
                    None => leases = None,
                }
            }
            if has_kicks {
                let kick = self.kick(token).await;
                kicks.extend(kick.map(|(age, read_at, bytes)| RememberedKick { place, age, read_at, bytes }));
            }
        }
        (leases, kicks)
    }

    /// The last kick of a room, and its age at the time that is returned.
    async fn kick(&self, token: &str) -> Option<(Duration, Instant, Bytes)> {
        let kick = self.api.last_message(&self.names.kick_stream(), &self.names.kick(token)).await.ok()?;
        let read_at = task::now();
        let age = self.clock.borrow().age(time_of(&kick)?, read_at)?;
        Some((age, read_at, kick.payload))
    }

    /// The members of all nodes.
    async fn leases(&self, token: &str, node: NodeId, lease: Duration) -> Option<Vec<Lease>> {
        let mut messages = self.api.history(self.names.lease_stream(), self.names.leases(token), 0);
        let mut records = Vec::new();
        while let Some(message) = messages.next().await.ok()? {
            let Some(id) = node_of(&message.subject) else { continue };
            records.push((id, time_of(&message), message.payload));
        }
        // The server's time is that of the own record, which is new.
        let now = records.iter().find(|(id, ..)| *id == node).and_then(|(_, at, _)| *at);
        let left = |at: Option<Duration>| match (now, at) {
            (Some(now), Some(at)) => left_of(lease, now, at),
            _ => lease,
        };
        let leases = records.into_iter().filter(|(.., list)| !list.is_empty());
        let leases = leases.map(|(node, at, list)| Lease { node, left: left(at), list });
        Some(leases.filter(|lease| !lease.left.is_zero()).collect())
    }
}

/// How long a record of this time lasts. One that is more than a lease ahead comes from a clock that was set back since: the server
/// keeps it until the clock shows that time again. Others that are ahead are newer than the own record.
fn left_of(lease: Duration, now: Duration, at: Duration) -> Duration {
    if at > now.saturating_add(lease) { Duration::ZERO } else { lease.saturating_sub(now.saturating_sub(at)) }
}

impl PresenceRecords {
    fn begin(&mut self, lists: &[(String, Bytes)]) -> u64 {
        self.last += 1;
        self.requests.extend(lists.iter().map(|(token, _)| (token.clone(), self.last)));
        self.last
    }

    fn is_latest(&self, token: &str, number: u64) -> bool {
        self.requests.get(token) == Some(&number)
    }

    fn end(&mut self, number: u64, tokens: &[String]) {
        for token in tokens {
            if self.is_latest(token, number) {
                self.requests.remove(token);
            }
        }
    }
}

fn node_of(subject: &[u8]) -> Option<NodeId> {
    let node = std::str::from_utf8(subject.rsplit(|byte| *byte == b'.').next()?).ok()?;
    Some(NodeId(u128::from_str_radix(node, 16).ok()?.to_be_bytes()))
}

/// When the server has stored a message, since some day in the past: `2026-11-27T09:06:05.123456789Z`.
fn time_of(message: &StoredMessage) -> Option<Duration> {
    let text = message.headers.as_ref()?.last_value("Nats-Time-Stamp")?;
    time_from(std::str::from_utf8(text).ok()?)
}

fn time_from(text: &str) -> Option<Duration> {
    let (date, time) = text.strip_suffix('Z')?.split_once('T')?;
    let numbers = |text: &str, mark| text.split(mark).map(|part| part.parse::<u64>().ok()).collect::<Option<Vec<_>>>();
    let [year, month @ 1..=12, day] = numbers(date, '-')?[..] else { return None };
    let (time, fraction) = time.split_once('.').unwrap_or((time, "0"));
    let [hour, minute, second] = numbers(time, ':')?[..] else { return None };
    // Days of the proleptic calendar, with years that begin in March (Hinnant, "chrono-compatible low-level date algorithms").
    let (year, month) = if month > 2 { (year, month - 3) } else { (year.checked_sub(1)?, month + 9) };
    let days = year * 365 + year / 4 - year / 100 + year / 400 + (month * 153 + 2) / 5 + day;
    let nanos: u32 = format!("{fraction:0<9}").get(..9)?.parse().ok()?;
    Some(Duration::new(days * 86_400 + hour * 3600 + minute * 60 + second, nanos))
}

/// Rooms of a presence request that are read at a time.
const READS_MAX: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_of_a_clock_that_was_set_back_lasts_no_longer() {
        let [lease, now] = [30, 10_000].map(Duration::from_secs);
        for (at, left) in [(9_000, 0), (9_970, 0), (9_980, 10), (10_000, 30), (10_020, 30), (10_031, 0), (13_600, 0)] {
            assert_eq!(left_of(lease, now, Duration::from_secs(at)), Duration::from_secs(left), "{at}");
        }
    }

    #[test]
    fn times_have_the_difference_that_clocks_have() {
        let seconds = |from, to| time_from(to).unwrap() - time_from(from).unwrap();
        assert_eq!(seconds("2024-02-28T23:59:59Z", "2024-03-01T00:00:00.5Z"), Duration::from_millis(86_401_500));
        assert_eq!(seconds("2026-12-31T23:59:59.9Z", "2027-01-01T00:00:00Z"), Duration::from_millis(100));
        for text in ["", "2026-13-01T00:00:00Z", "2026-01-01T00:00Z", "2026-01-01T00:00:00", "x-y-zT0:0:0Z"] {
            assert_eq!(time_from(text), None, "{text}");
        }
    }
}
