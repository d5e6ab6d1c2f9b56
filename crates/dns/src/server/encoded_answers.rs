//! `EncodedAnswers`: answers of a loop in wire form, so that a query that comes again costs a copy.
//!
//! An answer is stored when the cache has it for the second time: a flood of names that are asked for once stores nothing.
//! It is used for nine tenths of its time, so that the cache, which knows when to look up again, is asked before its end.

use std::hash::BuildHasher;
use std::time::{Duration, Instant};

use foldhash::quality::RandomState;
use hashbrown::HashTable;

use super::query_handler::ClientQuery;
use super::{QueryParts, Response};
use crate::edns::{OPTION_HEADER_BYTES, PADDING, RESPONSE_BLOCK_BYTES};
use crate::header::HEADER_BYTES;
use crate::limits::UDP_PAYLOAD_BYTES;
use crate::message_view::MessageView;
use crate::message_writer::EncodedMessage;
use crate::name::NAME_BYTES_MAX;

/// Answers by their questions.
#[derive(Debug)]
pub(super) struct EncodedAnswers {
    entries: HashTable<EncodedAnswer>,
    hasher: RandomState,
    entries_max: usize,
}

#[derive(Debug)]
struct EncodedAnswer {
    question: QuestionKey<Box<[u8]>>,
    /// A response without OPT, of at most a datagram's payload.
    message: Box<[u8]>,
    /// Where the TTLs are.
    ttls: Box<[u16]>,
    stored: Instant,
    lifetime: Duration,
}

/// A question in wire form, its name in lower case. A compressed name, which no message needs, is another key than that name.
#[derive(Debug, PartialEq, Eq)]
struct QuestionKey<T>(T);

impl<'a> QuestionKey<&'a [u8]> {
    /// The key of a question in wire form, in the memory of `buffer`; `None` without a question.
    fn of(question: &[u8], buffer: &'a mut [u8; QUESTION_BYTES_MAX]) -> Option<Self> {
        let name_bytes = question.len().checked_sub(TYPE_AND_CLASS_BYTES)?;
        let key = buffer.get_mut(..question.len())?;
        key.copy_from_slice(question);
        // Lengths of labels are no letters, but types may be.
        key[..name_bytes].make_ascii_lowercase();
        Some(Self(key))
    }
}

impl EncodedAnswers {
    pub(super) fn new(entries_max: usize) -> Self {
        Self { entries: HashTable::new(), hasher: RandomState::default(), entries_max }
    }

    /// The response to a query, if it is there and fits.
    pub(super) fn get(
        &self,
        query: &MessageView<'_>,
        bytes_max: Option<usize>,
        now: Instant,
    ) -> Option<EncodedMessage> {
        let (question, mut buffer) = (query.question_wire(), [0; QUESTION_BYTES_MAX]);
        let key = QuestionKey::of(question, &mut buffer)?;
        let entry = self.entries.find(self.hasher.hash_one(key.0), |entry| *entry.question.0 == *key.0)?;
        let age = now.saturating_duration_since(entry.stored);
        let edns = query.edns();
        let opt: &[u8] = if edns.is_some() { &OPT } else { &[] };
        let length = entry.message.len() + opt.len();
        if age >= entry.lifetime || bytes_max.is_some_and(|bytes_max| length > bytes_max) {
            return None;
        }
        let mut bytes = Vec::with_capacity(length);
        bytes.extend_from_slice(&entry.message);
        let header = query.header();
        bytes[..2].copy_from_slice(&header.id.to_be_bytes());
        bytes[FLAGS_AT] =
            bytes[FLAGS_AT] & !CHECKING_DISABLED | if header.checking_disabled { CHECKING_DISABLED } else { 0 };
        // The letters as the client has written them; the length is the same.
        bytes[HEADER_BYTES..HEADER_BYTES + question.len()].copy_from_slice(question);
        let seconds = age.as_secs() as u32;
        for at in entry.ttls.iter().map(|at| usize::from(*at)).filter(|_| seconds > 0) {
            if let Some(field) = bytes.get_mut(at..).and_then(<[u8]>::first_chunk_mut::<4>) {
                *field = u32::from_be_bytes(*field).saturating_sub(seconds).to_be_bytes();
            }
        }
        if !opt.is_empty() {
            bytes.extend_from_slice(opt);
            if edns.is_some_and(|edns| edns.wants_dnssec) {
                bytes[entry.message.len() + DNSSEC_FLAGS_AT] |= DNSSEC_OK;
            }
            bytes[ADDITIONALS_AT..HEADER_BYTES].copy_from_slice(&1_u16.to_be_bytes());
            if bytes_max.is_none() && edns.is_some_and(|edns| edns.is_padded()) {
                pad(&mut bytes, entry.message.len() + OPT.len());
            }
        }
        Some(EncodedMessage::from_checked(bytes))
    }

    /// Stores a response that the cache had.
    pub(super) fn insert(&mut self, query: &ClientQuery<'_>, response: &Response) {
        let records = response.answers.iter().chain(&response.authorities);
        let Some(ttl) = records.map(|record| record.ttl).min() else { return };
        let lifetime = Duration::from_secs(u64::from(ttl)) * 9 / 10;
        let parts = QueryParts { has_edns: false, ..QueryParts::of(&query.message) };
        let message = parts.encode(response, None);
        if lifetime.is_zero() || self.entries_max == 0 || message.len() + OPT.len() > usize::from(UDP_PAYLOAD_BYTES) {
            return;
        }
        let Ok(view) = MessageView::parse(&message) else { return };
        let ttls = view.answers().chain(view.authorities()).map(|record| record.ttl_at() as u16).collect();
        let mut buffer = [0; QUESTION_BYTES_MAX];
        let Some(key) = QuestionKey::of(view.question_wire(), &mut buffer) else { return };
        if self.entries.len() >= self.entries_max {
            // Those that are asked for come back with their next queries.
            self.entries.clear();
        }
        let hash = self.hasher.hash_one(key.0);
        if let Ok(old) = self.entries.find_entry(hash, |entry| *entry.question.0 == *key.0) {
            old.remove();
        }
        let question = QuestionKey(key.0.into());
        let entry = EncodedAnswer { question, message: message.to_vec().into(), ttls, stored: query.now, lifetime };
        self.entries.insert_unique(hash, entry, |entry| self.hasher.hash_one(&*entry.question.0));
    }
}

/// Adds padding to the OPT record, which ends at `end` without options.
fn pad(bytes: &mut Vec<u8>, end: usize) {
    let padded = (end + OPTION_HEADER_BYTES).next_multiple_of(RESPONSE_BLOCK_BYTES);
    // The message is no longer than a datagram's payload, so the lengths fit.
    let (options, padding) = ((padded - end) as u16, (padded - end - OPTION_HEADER_BYTES) as u16);
    bytes[end - 2..end].copy_from_slice(&options.to_be_bytes());
    bytes.extend_from_slice(&PADDING.to_be_bytes());
    bytes.extend_from_slice(&padding.to_be_bytes());
    bytes.resize(padded, 0);
}

/// An OPT record without options (RFC 6891 §6.1.2).
const OPT: [u8; 11] = {
    let [high, low] = UDP_PAYLOAD_BYTES.to_be_bytes();
    [0, 0, 41, high, low, 0, 0, 0, 0, 0, 0]
};
/// The byte of the OPT record with DO, which a response repeats (RFC 3225 §3).
const DNSSEC_FLAGS_AT: usize = 7;
const DNSSEC_OK: u8 = 0x80;
/// The byte of the header with CD.
const FLAGS_AT: usize = 3;
const CHECKING_DISABLED: u8 = 0x10;
/// The count of additional records.
const ADDITIONALS_AT: usize = 10;
const TYPE_AND_CLASS_BYTES: usize = 4;
const QUESTION_BYTES_MAX: usize = NAME_BYTES_MAX + TYPE_AND_CLASS_BYTES;
