//! `Exemplar`: a request whose trace is recorded, beside the bucket of the histogram that counts it.
//!
//! A series keeps one exemplar for each bucket that is written, the latest one. Memory for them is there once the series has
//! a request whose trace is recorded.

use std::fmt::Write as _;
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::histogram::{LATENCY_BUCKETS, bucket_of};

/// The trace and the span of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TraceIds {
    /// The id of the trace.
    pub trace: [u8; 16],
    /// The id of the span.
    pub span: [u8; 8],
}

/// One event of a histogram whose trace is recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Exemplar {
    ids: TraceIds,
    took: Duration,
    /// Since the epoch of Unix.
    at: Duration,
}

impl Exemplar {
    /// An event that took so long and ended now.
    #[must_use]
    pub fn now(ids: TraceIds, took: Duration) -> Self {
        Self { ids, took, at: SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default() }
    }

    /// The ids of the trace and the span.
    #[must_use]
    pub fn ids(&self) -> TraceIds {
        self.ids
    }

    /// How long the event took.
    #[must_use]
    pub fn took(&self) -> Duration {
        self.took
    }

    /// The text behind a sample in OpenMetrics.
    pub(crate) fn write(&self, text: &mut String) {
        text.push_str(" # {trace_id=\"");
        push_hex(text, &self.ids.trace);
        text.push_str("\",span_id=\"");
        push_hex(text, &self.ids.span);
        let _ = write!(text, "\"}} {} {}.{:03}", self.took.as_secs_f64(), self.at.as_secs(), self.at.subsec_millis());
    }
}

fn push_hex(text: &mut String, bytes: &[u8]) {
    for byte in bytes {
        let _ = write!(text, "{byte:02x}");
    }
}

/// The exemplars of one histogram. Its loop writes them; a reader of the metrics holds the lock for the copy of one array.
#[derive(Debug, Default)]
pub(crate) struct Exemplars(OnceLock<Box<Mutex<ExemplarSlots>>>);

/// The latest exemplar of each bucket that is written.
pub(crate) type ExemplarSlots = [Option<Exemplar>; SLOTS];

impl Exemplars {
    #[cold]
    pub(crate) fn add(&self, exemplar: Exemplar) {
        let slots = self.0.get_or_init(Box::default);
        let slot = slot_of(bucket_of(exemplar.took));
        slots.lock().unwrap_or_else(PoisonError::into_inner)[slot] = Some(exemplar);
    }

    /// Adds those that are later than the ones of `all`.
    pub(crate) fn merge_into(&self, all: &mut ExemplarSlots) {
        let Some(slots) = self.0.get() else { return };
        let own = *slots.lock().unwrap_or_else(PoisonError::into_inner);
        for (sum, own) in all.iter_mut().zip(own) {
            if own.map(|exemplar| exemplar.at) > sum.map(|exemplar| exemplar.at) {
                *sum = own;
            }
        }
    }
}

/// The place of a bucket's exemplar: every other bound is written, so a written bucket has two of the histogram's.
pub(crate) const fn slot_of(bucket: usize) -> usize {
    bucket.div_ceil(2)
}

const SLOTS: usize = slot_of(LATENCY_BUCKETS - 1) + 1;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::histogram::LatencySnapshot;

    const IDS: TraceIds = TraceIds { trace: [0xab; 16], span: [7; 8] };

    #[test]
    fn an_exemplar_is_within_its_written_bucket() {
        for micros in [0, 15, 16, 23, 24, 31, 32, 1000, 1 << 23, 1 << 24, 1 << 40] {
            let took = Duration::from_micros(micros);
            let slot = slot_of(bucket_of(took));
            let bound = LatencySnapshot::bound(2 * slot);
            assert!(bound.is_none_or(|bound| took < bound), "{micros}");
            let before = slot.checked_sub(1).and_then(|before| LatencySnapshot::bound(2 * before));
            assert!(before.is_none_or(|before| took >= before), "{micros}");
        }
    }

    #[test]
    fn the_latest_exemplar_stays() {
        let (one, other) = (Exemplars::default(), Exemplars::default());
        let took = Duration::from_millis(1);
        let early = Exemplar { ids: IDS, took, at: Duration::from_secs(1) };
        let late = Exemplar { at: Duration::from_secs(2), ..early };
        one.add(late);
        other.add(early);
        let mut all = ExemplarSlots::default();
        one.merge_into(&mut all);
        other.merge_into(&mut all);
        assert_eq!(all.iter().flatten().collect::<Vec<_>>(), [&late]);
    }

    #[test]
    fn the_text_is_that_of_openmetrics() {
        let exemplar =
            Exemplar { ids: IDS, took: Duration::from_micros(1500), at: Duration::from_millis(1_700_000_000_042) };
        let mut text = String::new();
        exemplar.write(&mut text);
        let ids = format!("trace_id=\"{}\",span_id=\"{}\"", "ab".repeat(16), "07".repeat(8));
        assert_eq!(text, format!(" # {{{ids}}} 0.0015 1700000000.042"));
    }
}
