//! `ParkedQueue`: a queue that waits for its peer, in little memory.

use super::Outbound;
use crate::charge::Charge;
use crate::entries::{ENTRY_BYTES, NIL, Part};

/// The bytes of an [`Outbound`] that waits for an unknown time: copied bytes in memory of their size, and behind them at
/// most one linked part. The queue itself, its entries and its segments are gone.
///
/// ```
/// use tidegate::buffer::{Outbound, Pool};
///
/// let pool = Pool::new();
/// let mut queue = Outbound::new(&pool);
/// queue.write(b"a head");
/// queue.link_static(&[0; 4096]);
/// queue.flush();
/// queue.settle();
/// let parked = queue.park().expect("a short copy, and one linked part");
/// assert!(queue.is_empty() && pool.ledger().used() < 100);
/// let queue = parked.unpark();
/// assert_eq!((queue.pending(), queue.front()), (4102, Some(&b"a head"[..])));
/// ```
#[derive(Debug)]
pub struct ParkedQueue {
    copied: Box<[u8]>,
    /// Vacant if there is none.
    linked: Part,
    charge: Charge,
}

impl Outbound {
    /// Takes the bytes out of a queue that [has settled](Self::settle), if all are flushed and few copies come before at most one
    /// linked part. The queue is empty then, as if they were sent. `None`, and no change, for all other queues, and for an
    /// empty one.
    #[must_use]
    pub fn park(&mut self) -> Option<ParkedQueue> {
        let copied_bytes = self.parkable_bytes()?;
        let pool = self.pool.clone()?;
        let mut copied = Vec::with_capacity(copied_bytes);
        let mut linked = Part::Vacant;
        while self.list.head != NIL {
            let part = self.unlink_head();
            match part.bytes() {
                Some(bytes) if copied.len() + bytes.len() <= copied_bytes => copied.extend_from_slice(bytes),
                _ => linked = part,
            }
        }
        self.sent = self.written;
        let linked_bytes = if let Part::Bytes { charge, .. } = &linked { *charge as usize } else { 0 };
        let charge = pool.charge(ENTRY_BYTES + copied.len() + linked_bytes);
        Some(ParkedQueue { copied: copied.into(), linked, charge })
    }

    /// How many bytes are to be copied, if the queue can be parked.
    fn parkable_bytes(&self) -> Option<usize> {
        if self.is_empty() || self.list.unflushed != NIL {
            return None;
        }
        let entries = self.pool.as_ref()?.shared().entries.borrow();
        let (mut index, mut copied) = (self.list.head, 0);
        while index != NIL {
            let entry = entries.get(index);
            match &entry.part {
                part @ (Part::Copied { .. } | Part::Slice(_)) if copied + part.len() <= COPIED_BYTES_MAX => {
                    copied += part.len();
                }
                // A linked part is the last one.
                _ if entry.next != NIL => return None,
                _ => {}
            }
            index = entry.next;
        }
        Some(copied as usize)
    }
}

impl ParkedQueue {
    /// The queue again. Its bytes are flushed, and it counts written and sent bytes from zero.
    #[must_use]
    pub fn unpark(self) -> Outbound {
        let Self { copied, linked, charge } = self;
        let pool = charge.pool().clone();
        drop(charge);
        let mut queue = Outbound::new(&pool);
        if !copied.is_empty() {
            queue.link_shared(pool.copy(&copied));
        }
        queue.append_part(linked);
        queue.flush();
        queue
    }

    /// Bytes that wait.
    #[must_use]
    pub fn pending(&self) -> u64 {
        self.copied.len() as u64 + self.linked.len()
    }

    /// Bytes of memory that it keeps alive, as the ledger counts them.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        self.charge.bytes()
    }
}

/// More bytes are not worth a copy, and are not much beside their memory.
const COPIED_BYTES_MAX: u64 = 1024;

const _: () = assert!(size_of::<ParkedQueue>() <= 72);
