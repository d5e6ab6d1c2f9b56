//! `EncodedAnswers`: answers of a loop in wire form, so that a query that comes again costs a copy.
//!
//! An answer is stored when the cache has it for the second time: a flood of names that are asked for once stores nothing.
//! It is used for nine tenths of its time, so that the cache, which knows when to look up again, is asked before its end.

use std::time::{Duration, Instant};

use foldhash::quality::RandomState;
use hashbrown::HashMap;

use super::query_handler::ClientQuery;
use super::{QueryParts, Response};
use crate::header::HEADER_BYTES;
use crate::limits::UDP_PAYLOAD_BYTES;
use crate::message_view::MessageView;
use crate::message_writer::EncodedMessage;
use crate::name::Name;
use crate::numbers::RecordType;

/// Answers by their questions.
#[derive(Debug)]
pub(super) struct EncodedAnswers {
    entries: HashMap<(Name, RecordType), EncodedAnswer, RandomState>,
    entries_max: usize,
}

#[derive(Debug)]
struct EncodedAnswer {
    /// A response without OPT, of at most a datagram's payload.
    message: Box<[u8]>,
    /// Where the TTLs are.
    ttls: Box<[u16]>,
    stored: Instant,
    lifetime: Duration,
}

impl EncodedAnswers {
    pub(super) fn new(entries_max: usize) -> Self {
        Self { entries: HashMap::default(), entries_max }
    }

    /// The response to a query, if it is there and fits.
    pub(super) fn get(&self, query: &ClientQuery<'_>) -> Option<EncodedMessage> {
        let question = query.question;
        let entry = self.entries.get(&(question.name.clone(), question.record_type))?;
        let age = query.now.saturating_duration_since(entry.stored);
        let edns = query.message.edns();
        let opt: &[u8] = if edns.is_some() { &OPT } else { &[] };
        let length = entry.message.len() + opt.len();
        if age >= entry.lifetime || query.bytes_max.is_some_and(|bytes_max| length > bytes_max) {
            return None;
        }
        let mut bytes = Vec::with_capacity(length);
        bytes.extend_from_slice(&entry.message);
        let header = query.message.header();
        bytes[..2].copy_from_slice(&header.id.to_be_bytes());
        bytes[FLAGS_AT] =
            bytes[FLAGS_AT] & !CHECKING_DISABLED | if header.checking_disabled { CHECKING_DISABLED } else { 0 };
        // The letters as the client has written them; the length is the same.
        let name = question.name.wire();
        bytes[HEADER_BYTES..HEADER_BYTES + name.len()].copy_from_slice(name);
        for at in entry.ttls.iter().map(|at| usize::from(*at)) {
            if let Some(field) = bytes.get_mut(at..).and_then(<[u8]>::first_chunk_mut::<4>) {
                let left = u32::from_be_bytes(*field).saturating_sub(age.as_secs() as u32);
                *field = left.to_be_bytes();
            }
        }
        if !opt.is_empty() {
            bytes.extend_from_slice(opt);
            if edns.is_some_and(|edns| edns.wants_dnssec) {
                bytes[entry.message.len() + DNSSEC_FLAGS_AT] |= DNSSEC_OK;
            }
            bytes[ADDITIONALS_AT..HEADER_BYTES].copy_from_slice(&1_u16.to_be_bytes());
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
        if self.entries.len() >= self.entries_max {
            // Those that are asked for come back with their next queries.
            self.entries.clear();
        }
        let entry = EncodedAnswer { message: message.to_vec().into(), ttls, stored: query.now, lifetime };
        self.entries.insert((query.question.name.clone(), query.question.record_type), entry);
    }
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
