//! Records: where one ends, and where the plain bytes lie that rustls has decrypted.

use std::ops::Range;

/// The plain bytes of a record. rustls 0.23 decrypts them in place, behind the record's header, and returns a copy; so
/// the filter looks for the place, and compares the two ends of the copy with it.
pub(crate) struct Opened {
    length: usize,
    /// All of a short record; the two ends of a long one.
    sample: [u8; 2 * SAMPLE_BYTES],
}

impl Opened {
    pub(crate) fn new(payload: &[u8]) -> Self {
        let mut sample = [0; 2 * SAMPLE_BYTES];
        if payload.len() <= sample.len() {
            sample[..payload.len()].copy_from_slice(payload);
        } else {
            sample[..SAMPLE_BYTES].copy_from_slice(&payload[..SAMPLE_BYTES]);
            sample[SAMPLE_BYTES..].copy_from_slice(&payload[payload.len() - SAMPLE_BYTES..]);
        }
        Self { length: payload.len(), sample }
    }

    /// All bytes, of a short record.
    pub(crate) fn all(&self) -> Option<&[u8]> {
        self.sample.get(..self.length)
    }

    /// Where the bytes lie in `records`, the last of which is the one that was decrypted.
    pub(crate) fn find(&self, records: &[u8]) -> Option<Range<usize>> {
        let mut first = 0;
        loop {
            let end = first + record_bytes(&records[first..])?;
            if end < records.len() {
                first = end;
                continue;
            }
            let range = first + HEADER_BYTES..first + HEADER_BYTES + self.length;
            let is_there = Self::new(records.get(range.clone())?).sample == self.sample;
            return is_there.then_some(range);
        }
    }
}

/// The length of the first record, header included, as soon as its header is there (RFC 8446 §5.1).
pub(crate) fn record_bytes(wire: &[u8]) -> Option<usize> {
    let [_, _, _, high, low] = wire.first_chunk::<HEADER_BYTES>()?;
    Some(HEADER_BYTES + usize::from(u16::from_be_bytes([*high, *low])))
}

const HEADER_BYTES: usize = 5;

const SAMPLE_BYTES: usize = 32;
