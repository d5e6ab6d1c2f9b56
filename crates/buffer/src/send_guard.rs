//! `SendGuard`: memory that a kernel reads while a send is in flight.

use bytes::Bytes;

use crate::entries::Part;
use crate::outbound::Outbound;
use crate::segment::Segment;

/// Keeps [gathered](Outbound::gather) parts in place and unchanged, even if the queue is cleared or dropped: a driver
/// with sends in flight holds it until the kernel has completed them.
///
/// ```
/// use tidegate::codec::{Outbound, Pool};
///
/// let pool = Pool::new();
/// let mut queue = Outbound::new(&pool);
/// queue.write(b"ebb");
/// queue.flush();
/// let lent = queue.lend(1);
/// queue.clear();
/// assert!(pool.ledger().used() > 0, "it is there still");
/// drop((lent, queue));
/// assert_eq!(pool.ledger().used(), 0);
/// ```
#[derive(Debug, Default)]
pub struct SendGuard(#[expect(dead_code, reason = "it is held, and not looked at")] GuardState);

#[derive(Debug, Default)]
#[expect(dead_code, reason = "it is held, and not looked at")]
enum GuardState {
    #[default]
    Nothing,
    /// Most sends are of one part, and need no memory of their own for this.
    One(PartOwner),
    Many(Box<[PartOwner]>),
}

/// The owner of the memory of one part.
#[derive(Debug)]
#[expect(dead_code, reason = "it is held, and not looked at")]
enum PartOwner {
    Segment(Segment),
    Bytes(Bytes),
}

impl Outbound {
    /// Holds the memory of the first `parts` parts, as [`gather`](Self::gather) counts them. Pieces of files have none.
    #[must_use]
    pub fn lend(&self, parts: usize) -> SendGuard {
        let mut held = Vec::new();
        let mut only = None;
        self.for_each_flushed(|part| {
            match owner_of(part) {
                Some(part) if parts == 1 => only = Some(part),
                Some(part) => held.push(part),
                None => {}
            }
            only.is_none() && held.len() < parts
        });
        SendGuard(match only {
            Some(only) => GuardState::One(only),
            None if held.is_empty() => GuardState::Nothing,
            None => GuardState::Many(held.into()),
        })
    }
}

fn owner_of(part: &Part) -> Option<PartOwner> {
    match part {
        Part::Copied { segment, start, end } if start != end => Some(PartOwner::Segment(segment.clone())),
        Part::Slice(slice) if !slice.is_empty() => Some(PartOwner::Segment(slice.segment().clone())),
        Part::Bytes { bytes, .. } if !bytes.is_empty() => Some(PartOwner::Bytes(bytes.clone())),
        _ => None,
    }
}
