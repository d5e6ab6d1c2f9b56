//! `Entry`: a stored response.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};

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
    /// An upstream has made it, and not a function of this server.
    pub(crate) is_forwarded: bool,
    /// The fields of a hit within this second, which most hits share.
    hit_fields: Mutex<HitFields>,
    /// Until then the upstream is not asked again.
    upstream_rests_until: AtomicU64,
}

impl Entry {
    pub(crate) fn new(
        status: Status,
        fields: Fields,
        body: Bytes,
        selector: Selector,
        freshness: Freshness,
        is_forwarded: bool,
    ) -> Self {
        Self {
            status,
            fields,
            body,
            selector,
            freshness,
            is_forwarded,
            hit_fields: Mutex::default(),
            upstream_rests_until: AtomicU64::new(0),
        }
    }

    /// The fields of a hit at a time, by `make` unless the last hit had the same age and lifetime.
    #[inline]
    pub(crate) fn hit_fields(&self, now: Millis, make: impl FnOnce() -> Fields) -> Fields {
        let second = (self.freshness.age(now) / 1000, self.freshness.ttl(now));
        let mut fields = self.hit_fields.lock().unwrap_or_else(PoisonError::into_inner);
        if fields.second != Some(second) {
            *fields = HitFields { second: Some(second), fields: make().into_shared() };
        }
        fields.fields.clone()
    }

    /// Its bytes in memory without its key.
    pub(crate) fn bytes(&self) -> usize {
        // The fields are there twice once there was a hit.
        ENTRY_BYTES + 2 * self.fields.bytes().len() + self.body.len() + self.selector.bytes()
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

    /// The upstream fails: for a moment requests that may get this do not ask it.
    pub(crate) fn leave_upstream_alone(&self, now: Millis) {
        self.upstream_rests_until.store(now + ERROR_PAUSE, Relaxed);
    }

    pub(crate) fn leaves_upstream_alone(&self, now: Millis) -> bool {
        now < self.upstream_rests_until.load(Relaxed)
    }

    pub(crate) fn replaces_errors(&self, now: Millis) -> bool {
        self.leaves_upstream_alone(now) && self.freshness.may_replace_error(now)
    }
}

/// The fields of a hit, for an age and a lifetime in seconds.
#[derive(Debug, Default)]
struct HitFields {
    second: Option<(u64, i64)>,
    fields: Fields,
}

/// An allocation, its counts, and the places in the table and the queues.
const ENTRY_BYTES: usize = 512;

/// How long an upstream that has failed is left alone, in milliseconds.
const ERROR_PAUSE: u64 = 1000;
