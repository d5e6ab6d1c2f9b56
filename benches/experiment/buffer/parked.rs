//! `ParkedQueue` of both old designs: the entries that wait, in a queue of their own.
//!
//! It saves no memory. The published design has nothing like it, and the engine needs the type. The queue is boxed, since the
//! engine bounds the size of a stream that waits, and the queue of the array design is longer.

use super::Outbound;
use crate::entries::Part;

/// The bytes of an [`Outbound`] that waits for an unknown time.
#[derive(Debug)]
pub struct ParkedQueue(Box<Outbound>);

impl Outbound {
    /// Takes the bytes out, if all are flushed and only copies and views come before the last part. The queue is empty
    /// then, as if they were sent. `None`, and no change, for all other queues, and for an empty one.
    #[must_use]
    pub fn park(&mut self) -> Option<ParkedQueue> {
        if !self.is_parkable() {
            return None;
        }
        let mut parked = Self::new(self.pool_ref());
        parked.take_flushed(self);
        parked.flush();
        Some(ParkedQueue(Box::new(parked)))
    }

    fn is_parkable(&self) -> bool {
        let (mut flushed, mut ends, mut is_parkable) = (0, false, !self.is_empty());
        self.for_each_flushed(|part| {
            // A part of another kind is the last one.
            is_parkable &= !ends;
            ends = !matches!(part, Part::Copied { .. } | Part::Slice(_));
            flushed += part.len();
            is_parkable
        });
        is_parkable && flushed == self.pending()
    }
}

impl ParkedQueue {
    /// The queue again. Its bytes are flushed, and it counts written and sent bytes from zero.
    #[must_use]
    pub fn unpark(self) -> Outbound {
        *self.0
    }

    /// Bytes that wait.
    #[must_use]
    pub fn pending(&self) -> u64 {
        self.0.pending()
    }

    /// Bytes of memory that it keeps alive: see [`Outbound::memory_bytes`].
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        self.0.memory_bytes()
    }
}
