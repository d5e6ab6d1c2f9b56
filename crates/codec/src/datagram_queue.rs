//! `DatagramQueue`: datagrams that wait for their reader, at most so many bytes.

use std::collections::VecDeque;

use bytes::Bytes;

/// The datagrams of a session or a stream that were received and not read. A full queue drops its oldest datagram: of
/// datagrams, the newest one tells most.
///
/// ```
/// use tidegate::codec::DatagramQueue;
///
/// let mut queue = DatagramQueue::default();
/// for wave in [&b"ebb"[..], b"flow", b"slack"] {
///     queue.push(wave, 2 * (DatagramQueue::ENTRY_BYTES + 5));
/// }
/// assert_eq!(queue.pop().as_deref(), Some(&b"flow"[..]));
/// ```
#[derive(Debug, Default)]
pub struct DatagramQueue {
    datagrams: VecDeque<Bytes>,
    bytes: usize,
}

impl DatagramQueue {
    /// Bytes that a datagram counts for beside its own, so that empty ones have a bound.
    pub const ENTRY_BYTES: usize = size_of::<Bytes>();

    /// Adds a copy of a datagram: a view would keep the memory of its whole packet. Returns how many datagrams were dropped,
    /// so that the queue has at most `bytes_max` bytes; the new one is among them if it alone has more.
    pub fn push(&mut self, datagram: &[u8], bytes_max: usize) -> u64 {
        let bytes = datagram.len() + Self::ENTRY_BYTES;
        if bytes > bytes_max {
            return 1;
        }
        let mut dropped = 0;
        while self.bytes + bytes > bytes_max && self.pop().is_some() {
            dropped += 1;
        }
        self.bytes += bytes;
        self.datagrams.push_back(Bytes::copy_from_slice(datagram));
        dropped
    }

    /// The oldest datagram. An empty queue keeps no memory.
    pub fn pop(&mut self) -> Option<Bytes> {
        let datagram = self.datagrams.pop_front();
        match &datagram {
            Some(datagram) => self.bytes -= datagram.len() + Self::ENTRY_BYTES,
            None => self.datagrams = VecDeque::new(),
        }
        datagram
    }

    /// The bytes that count: those of the datagrams that wait, and [`ENTRY_BYTES`](Self::ENTRY_BYTES) for each.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Drops all datagrams. Returns how many there were.
    pub fn clear(&mut self) -> u64 {
        let dropped = self.datagrams.len() as u64;
        *self = Self::default();
        dropped
    }

    /// How many datagrams wait.
    #[must_use]
    pub fn len(&self) -> usize {
        self.datagrams.len()
    }

    /// Whether none waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.datagrams.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_queue_drops_its_oldest_datagrams() {
        let mut queue = DatagramQueue::default();
        let room = 3 * (DatagramQueue::ENTRY_BYTES + 1);
        for byte in 0..3 {
            assert_eq!(queue.push(&[byte], room), 0);
        }
        assert_eq!((queue.push(&[3], room), queue.len()), (1, 3));
        assert_eq!(queue.push(&[4; 3], room), 2, "a long one takes the place of two");
        assert_eq!((queue.pop().as_deref(), queue.pop().as_deref()), (Some(&[3][..]), Some(&[4; 3][..])));
        assert_eq!((queue.pop().is_none(), queue.is_empty(), queue.bytes()), (true, true, 0));
    }

    #[test]
    fn a_queue_counts_its_bytes_and_can_be_emptied() {
        let mut queue = DatagramQueue::default();
        queue.push(b"ebb", 1_000);
        queue.push(b"", 1_000);
        assert_eq!(queue.bytes(), 3 + 2 * DatagramQueue::ENTRY_BYTES);
        assert_eq!((queue.clear(), queue.bytes(), queue.len()), (2, 0, 0));
    }

    #[test]
    fn empty_datagrams_have_a_bound_and_one_that_is_too_long_keeps_the_others() {
        let mut queue = DatagramQueue::default();
        let dropped: u64 = (0..1000).map(|_| queue.push(&[], 10 * DatagramQueue::ENTRY_BYTES)).sum();
        assert_eq!((queue.len(), dropped), (10, 990));
        assert_eq!((queue.push(&[0; 1000], 1000), queue.len()), (1, 10));
    }
}
