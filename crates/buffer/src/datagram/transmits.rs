//! `Transmits`: datagrams that wait to be sent.
//!
//! The list is bounded in number and in bytes. A full list drops its oldest datagram for a new one, and counts it: the
//! newest state of a protocol is worth more than an old one, and a peer that must not lose anything retransmits.
//! The ledger has all memory of the list.

use std::collections::VecDeque;

use super::{Payload, Transmit};
use crate::charge::Charge;
use crate::pool::Pool;

/// Datagrams that wait to be sent, oldest first. The buffers of those that were sent are spare memory of the pool, which all
/// lists of a loop share.
///
/// ```
/// use tidegate::codec::{Pool, Transmit, Transmits};
///
/// let mut transmits = Transmits::new(&Pool::new()).with_limits(2, 1024);
/// let destination = "192.0.2.7:5300".parse()?;
/// for text in ["one", "two", "three"] {
///     let mut buffer = transmits.buffer();
///     buffer.extend_from_slice(text.as_bytes());
///     transmits.push(Transmit::new(buffer, destination));
/// }
/// // The third has displaced the first.
/// assert_eq!((transmits.len(), transmits.dropped()), (2, 1));
/// assert_eq!(transmits.pop().map(|oldest| oldest.payload.to_vec()), Some(b"two".to_vec()));
/// # Ok::<(), std::net::AddrParseError>(())
/// ```
#[derive(Debug)]
pub struct Transmits {
    queue: VecDeque<Transmit>,
    pool: Pool,
    charge: Charge,
    /// The payloads in the queue.
    payload_bytes: usize,
    count_max: u32,
    bytes_max: u32,
    dropped: u64,
}

impl Transmits {
    /// An empty list in the ledger of `pool`, for at most 1,024 datagrams or runs, and 4 MiB.
    #[must_use]
    pub fn new(pool: &Pool) -> Self {
        Self {
            queue: VecDeque::new(),
            pool: pool.clone(),
            charge: pool.charge(0),
            payload_bytes: 0,
            count_max: COUNT_MAX,
            bytes_max: BYTES_MAX,
            dropped: 0,
        }
    }

    /// Sets the bounds: the number of datagrams or runs, and the sum of their payloads in bytes. A list takes at least
    /// one datagram, however long it is.
    #[must_use]
    pub fn with_limits(mut self, count_max: u32, bytes_max: u32) -> Self {
        (self.count_max, self.bytes_max) = (count_max.max(1), bytes_max);
        self
    }

    /// An empty buffer for a payload, with the memory of one that was sent, if there is one.
    #[must_use]
    pub fn buffer(&mut self) -> Vec<u8> {
        self.pool.spare_buffers().borrow_mut().pop().unwrap_or_default()
    }

    /// Appends a datagram. Where there is no room, the oldest ones are dropped, and counted.
    pub fn push(&mut self, transmit: Transmit) {
        let bytes = transmit.payload.len();
        while self.queue.len() >= self.count_max as usize
            || (self.payload_bytes + bytes > self.bytes_max as usize && !self.queue.is_empty())
        {
            let Some(oldest) = self.pop() else { break };
            self.dropped += oldest.count() as u64;
            self.recycle(oldest.payload);
        }
        if self.queue.capacity() == 0 {
            self.queue = self.pool.spare_transmits().take();
            self.queue.reserve(QUEUE_MIN);
        }
        self.payload_bytes += bytes;
        self.charge.resize(self.charge.bytes() + cost(&transmit));
        self.queue.push_back(transmit);
    }

    /// Puts a datagram back before all others: the kernel has no room for it.
    pub fn push_back_oldest(&mut self, transmit: Transmit) {
        self.payload_bytes += transmit.payload.len();
        self.charge.resize(self.charge.bytes() + cost(&transmit));
        self.queue.push_front(transmit);
    }

    /// Removes the first `bytes` bytes of the oldest run, which were sent.
    ///
    /// # Panics
    /// If it has fewer bytes.
    pub fn advance_oldest(&mut self, bytes: usize) {
        if let Some(oldest) = self.queue.front_mut() {
            let before = cost(oldest);
            oldest.payload.advance(bytes);
            self.payload_bytes -= bytes;
            self.charge.resize(self.charge.bytes() - before + cost(oldest));
        }
    }

    /// Removes the oldest datagram.
    pub fn pop(&mut self) -> Option<Transmit> {
        let transmit = self.queue.pop_front()?;
        self.payload_bytes -= transmit.payload.len();
        self.charge.resize(self.charge.bytes() - cost(&transmit));
        Some(transmit)
    }

    /// Takes the memory of a payload that was sent, if a later one can use it.
    pub fn recycle(&mut self, payload: Payload) {
        if let Payload::Buffer(mut buffer) = payload
            && (1..=SPARE_BUFFER_BYTES_MAX).contains(&buffer.capacity())
        {
            let mut spare = self.pool.spare_buffers().borrow_mut();
            if spare.len() < SPARE_BUFFERS_MAX {
                buffer.clear();
                spare.push(buffer);
            }
        }
    }

    /// Releases the memory of an empty list: that of a batch is spare memory of the pool, and serves the next list.
    pub fn release_memory(&mut self) {
        if self.queue.is_empty() && self.queue.capacity() > 0 {
            let queue = std::mem::take(&mut self.queue);
            let mut spare = self.pool.spare_transmits().borrow_mut();
            if (spare.capacity()..=SPARE_QUEUE_MAX).contains(&queue.capacity()) {
                *spare = queue;
            }
        }
    }

    /// Drops all datagrams, and counts them.
    pub fn drop_all(&mut self) {
        while let Some(oldest) = self.pop() {
            self.dropped += oldest.count() as u64;
        }
        self.queue = VecDeque::new();
    }

    /// Memory that the datagrams occupy, in bytes: that of their payloads, wherever it is, and of the list.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        self.payload_bytes + self.queue.len() * TRANSMIT_ENTRY_BYTES
    }

    /// The oldest datagram.
    #[must_use]
    pub fn oldest(&self) -> Option<&Transmit> {
        self.queue.front()
    }

    /// The datagrams, oldest first.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &Transmit> {
        self.queue.iter()
    }

    /// The number of datagrams or runs.
    #[must_use]
    pub fn len(&self) -> usize {
        self.queue.len()
    }

    /// Whether no datagram waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// The sum of the payloads, in bytes.
    #[must_use]
    pub fn payload_bytes(&self) -> usize {
        self.payload_bytes
    }

    /// How many more datagrams or runs the list takes before it drops the oldest, if they have no more than `bytes_each`
    /// bytes each. An endpoint that can wait with its datagrams stops at zero, and continues in a later turn.
    #[must_use]
    pub fn room(&self, bytes_each: usize) -> usize {
        let count = (self.count_max as usize).saturating_sub(self.queue.len());
        let bytes = (self.bytes_max as usize).saturating_sub(self.payload_bytes);
        count.min(bytes.checked_div(bytes_each).unwrap_or(count))
    }

    /// The number of datagrams that the list has dropped, those of runs counted one by one.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        self.dropped
    }
}

/// The memory that a waiting datagram is charged for.
fn cost(transmit: &Transmit) -> usize {
    let ancillary = transmit.ancillary.as_ref().map_or(0, |ancillary| ancillary.memory_bytes());
    TRANSMIT_ENTRY_BYTES + transmit.payload.outside_bytes() + ancillary
}

/// The ledger's charge for a waiting datagram, beside its payload.
pub const TRANSMIT_ENTRY_BYTES: usize = size_of::<Transmit>();

const _: () = assert!(size_of::<Transmits>() <= 88);

const COUNT_MAX: u32 = 1024;
const BYTES_MAX: u32 = 4 * 1024 * 1024;

/// The first memory of a list: datagrams of a small batch.
const QUEUE_MIN: usize = 16;

/// The capacity of a queue that is kept for reuse: a batch of a driver.
const SPARE_QUEUE_MAX: usize = 64;

/// Buffers that are kept for reuse: two batches of a driver.
const SPARE_BUFFERS_MAX: usize = 128;
/// A longer buffer is not kept.
const SPARE_BUFFER_BYTES_MAX: usize = 4 * 1024;

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;
    use std::num::NonZeroU16;

    use super::*;

    fn transmit(length: usize, capacity: usize) -> Transmit {
        let mut buffer = Vec::with_capacity(capacity);
        buffer.resize(length, 7);
        Transmit::new(buffer, SocketAddr::from(([192, 0, 2, 7], 5300)))
    }

    #[test]
    fn the_ledger_has_all_memory_of_a_list_and_gets_it_back() {
        let pool = Pool::new();
        let mut transmits = Transmits::new(&pool);
        assert_eq!(pool.ledger().used(), 0);
        for _ in 0..200 {
            transmits.push(transmit(10, 100));
        }
        assert_eq!(pool.ledger().used(), 200 * (TRANSMIT_ENTRY_BYTES + 100));
        while let Some(oldest) = transmits.pop() {
            transmits.recycle(oldest.payload);
        }
        assert_eq!(pool.ledger().used(), 0, "spare memory costs nothing");
        assert_eq!(pool.spare_bytes(), SPARE_BUFFERS_MAX * 100);
        assert_eq!(transmits.buffer().capacity(), 100);
        transmits.release_memory();
        pool.trim();
        assert_eq!(pool.spare_bytes(), 0);
        transmits.push(transmit(10, 100));
        drop(transmits);
        assert_eq!(pool.ledger().used(), 0);
    }

    #[test]
    fn lists_of_a_loop_have_one_queue_in_turn_and_a_long_one_is_not_kept() {
        let pool = Pool::new();
        let mut lists = [Transmits::new(&pool), Transmits::new(&pool)];
        let mut fill = |list: usize, count| {
            (0..count).for_each(|_| lists[list].push(transmit(1, 0)));
            while lists[list].pop().is_some() {}
            lists[list].release_memory();
            pool.spare_bytes()
        };
        assert_eq!(fill(0, 64), 64 * TRANSMIT_ENTRY_BYTES);
        assert_eq!(fill(1, 3), 64 * TRANSMIT_ENTRY_BYTES, "the second list had the queue of the first");
        assert_eq!(fill(1, 65), 0);
        assert_eq!(fill(0, 1), QUEUE_MIN * TRANSMIT_ENTRY_BYTES);
        assert_eq!(pool.ledger().used(), 0);
    }

    #[test]
    fn a_full_list_drops_the_oldest_and_counts_the_datagrams_of_runs() {
        let mut transmits = Transmits::new(&Pool::new()).with_limits(3, 100);
        let run = Transmit { segment_size: NonZeroU16::new(10), ..transmit(35, 35) };
        transmits.push(run);
        transmits.push(transmit(20, 20));
        transmits.push(transmit(40, 40));
        assert_eq!((transmits.len(), transmits.payload_bytes(), transmits.dropped()), (3, 95, 0));
        assert_eq!((transmits.room(1), transmits.room(100)), (0, 0));
        transmits.push(transmit(5, 5));
        assert_eq!((transmits.len(), transmits.payload_bytes(), transmits.dropped()), (3, 65, 4));
        transmits.push(transmit(90, 90));
        assert_eq!((transmits.len(), transmits.payload_bytes(), transmits.dropped()), (2, 95, 6));
        transmits.push(transmit(1_000, 1_000));
        assert_eq!((transmits.len(), transmits.payload_bytes(), transmits.dropped()), (1, 1_000, 8), "at least one");
    }

    #[test]
    fn a_datagram_that_is_put_back_is_the_oldest_again() {
        let mut transmits = Transmits::new(&Pool::new());
        transmits.push(transmit(1, 1));
        transmits.push(transmit(2, 2));
        let oldest = transmits.pop().expect("there are two");
        transmits.push_back_oldest(oldest);
        let lengths: Vec<_> = transmits.iter().map(|transmit| transmit.payload.len()).collect();
        assert_eq!((lengths, transmits.payload_bytes()), (vec![1, 2], 3));
    }

    #[test]
    fn room_is_bounded_by_number_and_by_bytes() {
        let mut transmits = Transmits::new(&Pool::new()).with_limits(10, 100);
        assert_eq!([0, 1, 50, 101].map(|bytes| transmits.room(bytes)), [10, 10, 2, 0]);
        transmits.push(transmit(60, 60));
        assert_eq!([0, 4, 50].map(|bytes| transmits.room(bytes)), [9, 9, 0]);
    }
}
