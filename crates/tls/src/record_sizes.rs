//! `RecordSizes`: how many plain bytes each record that we send has.

/// Small records at the beginning of a long response, so that the peer can begin to read when the first packet arrives;
/// then the longest, which cost the least.
#[derive(Debug)]
pub(crate) struct RecordSizes {
    /// Plain bytes that were sent in small records since the queue was last short.
    small_bytes: u32,
    /// The bytes that wait now fit into few packets.
    is_short: bool,
}

impl RecordSizes {
    pub(crate) const fn new() -> Self {
        Self { small_bytes: 0, is_short: false }
    }

    /// Records follow for `pending` bytes.
    pub(crate) fn begin(&mut self, pending: u64) {
        self.is_short = pending <= SHORT_BYTES_MAX;
        if self.is_short {
            // The peer gets all of it at once, and the connection may be idle before and after it.
            self.small_bytes = 0;
        }
    }

    /// How many plain bytes the next record has at most.
    pub(crate) fn next_bytes_max(&self) -> usize {
        if self.is_short || self.small_bytes >= SMALL_BYTES_MAX { RECORD_BYTES_MAX } else { SMALL_RECORD_BYTES }
    }

    /// The next record had so many.
    pub(crate) fn sent(&mut self, bytes: usize) {
        if !self.is_short && self.small_bytes < SMALL_BYTES_MAX {
            self.small_bytes += bytes as u32;
        }
    }
}

/// The most plain bytes of a record (RFC 8446 §5.1).
const RECORD_BYTES_MAX: usize = 16 * 1024;

/// The plain bytes of a record that fits into one TCP segment of 1,460 bytes.
const SMALL_RECORD_BYTES: usize = 1_369;

/// So many bytes of a long response are sent in small records: about the bytes of a TCP connection's first round trips.
const SMALL_BYTES_MAX: u32 = 64 * 1024;

/// So many bytes or fewer are sent at once, in as few records as possible.
const SHORT_BYTES_MAX: u64 = 8 * 1024;

#[cfg(test)]
mod tests {
    use super::*;

    /// The lengths of the records of a flush of so many bytes.
    fn flush(sizes: &mut RecordSizes, mut bytes: usize) -> Vec<usize> {
        let mut records = Vec::new();
        sizes.begin(bytes as u64);
        while bytes > 0 {
            let record = sizes.next_bytes_max().min(bytes);
            sizes.sent(record);
            records.push(record);
            bytes -= record;
        }
        records
    }

    #[test]
    fn a_long_response_begins_with_small_records_and_goes_on_with_long_ones() {
        let mut sizes = RecordSizes::new();
        let records = flush(&mut sizes, 1 << 20);
        let small = records.iter().take_while(|bytes| **bytes == SMALL_RECORD_BYTES).count();
        assert_eq!(small, 48);
        assert!(records[small..records.len() - 1].iter().all(|bytes| *bytes == RECORD_BYTES_MAX));
        assert_eq!(flush(&mut sizes, 40_000), [16_384, 16_384, 7_232]);
    }

    #[test]
    fn a_short_flush_is_one_record_and_begins_anew() {
        let mut sizes = RecordSizes::new();
        flush(&mut sizes, 100_000);
        assert_eq!(flush(&mut sizes, 8_192), [8_192]);
        assert_eq!(flush(&mut sizes, 20_000)[0], SMALL_RECORD_BYTES);
    }
}
