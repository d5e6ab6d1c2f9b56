//! `Entry`: a stored response.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use bytes::Bytes;
use tidegate_http1::{Fields, Status};

use crate::rules::facts::ResponseFacts;
use crate::rules::freshness::Freshness;
use crate::rules::vary::Selector;
use crate::rules::{Millis, date};

/// A stored response, shared by all loops.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) status: Status,
    pub(crate) fields: Fields,
    pub(crate) body: Bytes,
    pub(crate) selector: Selector,
    pub(crate) freshness: Freshness,
    /// Until then it replaces errors without asking the upstream again.
    replaces_errors_until: AtomicU64,
}

impl Entry {
    pub(crate) fn new(status: Status, fields: Fields, body: Bytes, selector: Selector, freshness: Freshness) -> Self {
        Self { status, fields, body, selector, freshness, replaces_errors_until: AtomicU64::new(0) }
    }

    /// Its bytes in memory without its key.
    pub(crate) fn bytes(&self) -> usize {
        ENTRY_BYTES + self.fields.bytes().len() + self.body.len() + self.selector.bytes()
    }

    pub(crate) fn field(&self, name: &str) -> Option<&[u8]> {
        self.fields.iter().find(|(found, _)| found.eq_ignore_ascii_case(name.as_bytes())).map(|(_, value)| value)
    }

    pub(crate) fn facts(&self) -> ResponseFacts<'_> {
        ResponseFacts::of(&self.fields, &[])
    }

    pub(crate) fn etag(&self) -> Option<&[u8]> {
        self.field("etag")
    }

    pub(crate) fn last_modified(&self) -> Option<&[u8]> {
        self.field("last-modified").filter(|value| date(value).is_some())
    }

    pub(crate) fn has_validator(&self) -> bool {
        self.facts().has_validator()
    }

    /// The upstream fails: for a moment requests get this in the place of the error, without asking it.
    pub(crate) fn replace_errors(&self, now: Millis) {
        self.replaces_errors_until.store(now + ERROR_PAUSE, Relaxed);
    }

    pub(crate) fn replaces_errors(&self, now: Millis) -> bool {
        now < self.replaces_errors_until.load(Relaxed) && self.freshness.may_replace_error(now)
    }
}

/// An allocation, its counts, and the places in the table and the queues.
const ENTRY_BYTES: usize = 256;

/// How long an upstream that has failed is left alone, in milliseconds.
const ERROR_PAUSE: u64 = 1000;
