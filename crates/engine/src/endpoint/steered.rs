//! Loops that share an address, and forward datagrams to each other: a datagram names the loop that it is for.
//!
//! The kernel steers most of them by the same rule ([`Steering`]). It cannot where a loop's socket was closed, since the
//! last socket of the group takes the place of that one, and where the system refuses the program.
//!
//! A forwarded datagram is copied, since memory of a loop stays there. Its loop takes it in without another look at the
//! number, so none goes in a circle. A loop that does not come to its mailbox gets no more than [`FORWARDED_MAX`] and
//! [`FORWARDED_BYTES_MAX`]; further ones are dropped and counted, as are those that come while the memory of their loop is
//! used up.

use std::net::SocketAddr;
use std::num::NonZeroU16;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use tidegate_buffer::{Ancillary, Datagram, Ecn, LocalAddress, Pool};
use tidegate_sys::{Steering, Token};

use crate::mailbox::{LoopMessage, Mailbox};

/// The loops with a socket at one address.
#[derive(Debug)]
pub(crate) struct SteeredLoops {
    steering: Steering,
    members: Box<[Member]>,
}

/// A loop's endpoint.
#[derive(Debug, Default)]
struct Member {
    inbox: OnceLock<(Arc<Mailbox>, Token)>,
    /// Datagrams on their way there, and their bytes.
    in_transit: AtomicUsize,
    in_transit_bytes: AtomicUsize,
}

impl Member {
    /// Counts a datagram as on its way, unless too many are.
    fn reserve(&self, bytes: usize) -> bool {
        let count = self.in_transit.fetch_add(1, Relaxed);
        let before = self.in_transit_bytes.fetch_add(bytes, Relaxed);
        let has_room = count < FORWARDED_MAX && before < FORWARDED_BYTES_MAX;
        if !has_room {
            self.release(1, bytes);
        }
        has_room
    }

    fn release(&self, count: usize, bytes: usize) {
        self.in_transit.fetch_sub(count, Relaxed);
        self.in_transit_bytes.fetch_sub(bytes, Relaxed);
    }
}

/// The place of a loop among them.
#[derive(Debug, Clone)]
pub(crate) struct SteeredPlace {
    loops: Arc<SteeredLoops>,
    number: usize,
}

/// Datagrams for another loop, in the order in which they came. Their places are free again when it is dropped.
pub(super) struct Forwarded {
    to: SteeredPlace,
    datagrams: Vec<ForwardedDatagram>,
}

/// A [`Datagram`] that leaves its loop.
struct ForwardedDatagram {
    payload: Bytes,
    source: SocketAddr,
    local: LocalAddress,
    ecn: Ecn,
    ttl: Option<u8>,
    segment_size: Option<NonZeroU16>,
    truncated: bool,
    ancillary: Option<Box<Ancillary>>,
}

impl SteeredLoops {
    pub(crate) fn new(steering: Steering, loops: usize) -> Arc<Self> {
        Arc::new(Self { steering, members: (0..loops).map(|_| Member::default()).collect() })
    }

    /// The place of a loop.
    pub(crate) fn place(self: &Arc<Self>, number: usize) -> SteeredPlace {
        SteeredPlace { loops: self.clone(), number }
    }
}

impl SteeredPlace {
    /// The endpoint of this loop takes datagrams from now on.
    pub(super) fn join(&self, mailbox: &Arc<Mailbox>, endpoint: Token) {
        if let Some(member) = self.loops.members.get(self.number) {
            // The loop has one endpoint at the address.
            let _ = member.inbox.set((mailbox.clone(), endpoint));
        }
    }

    /// The place of another loop that a datagram is for.
    pub(super) fn elsewhere(&self, payload: &[u8]) -> Option<Self> {
        let number = self.loops.steering.number(payload).filter(|number| *number != self.number)?;
        self.loops.members.get(number)?.inbox.get()?;
        Some(Self { loops: self.loops.clone(), number })
    }
}

/// The datagrams of a batch that are for other loops.
#[derive(Default)]
pub(super) struct Outgoing {
    batches: Vec<Forwarded>,
    /// Datagrams that were dropped, since too many are on their way.
    dropped: u64,
}

impl Outgoing {
    pub(super) fn push(&mut self, to: SteeredPlace, datagram: &Datagram) {
        let Some(member) = to.loops.members.get(to.number) else { return };
        if !member.reserve(datagram.payload.len()) {
            self.dropped += 1;
            return;
        }
        let place = self.batches.iter().position(|batch| batch.to.number == to.number);
        let place = place.unwrap_or_else(|| {
            self.batches.push(Forwarded { to, datagrams: Vec::new() });
            self.batches.len() - 1
        });
        self.batches[place].datagrams.push(ForwardedDatagram {
            payload: datagram.payload.to_bytes(),
            source: datagram.source,
            local: datagram.local,
            ecn: datagram.ecn,
            ttl: datagram.ttl,
            segment_size: datagram.segment_size,
            truncated: datagram.truncated,
            ancillary: datagram.ancillary.clone(),
        });
    }

    /// Sends them. Returns how many were forwarded, and how many dropped.
    pub(super) fn send(self) -> (u64, u64) {
        let (mut forwarded, mut dropped) = (0, self.dropped);
        for batch in self.batches {
            let (to, count) = (batch.to.clone(), batch.count());
            let Some((mailbox, token)) = to.loops.members.get(to.number).and_then(|member| member.inbox.get()) else {
                continue;
            };
            let message = LoopMessage::Post { token: *token, post: Box::new(batch) };
            let counter = if mailbox.send(message).is_ok() { &mut forwarded } else { &mut dropped };
            *counter += count;
        }
        (forwarded, dropped)
    }
}

impl Forwarded {
    /// The datagrams in memory of the loop that they are for.
    pub(super) fn into_datagrams(mut self, pool: &Pool) -> impl Iterator<Item = Datagram> {
        self.release();
        let datagrams = std::mem::take(&mut self.datagrams);
        let pool = pool.clone();
        datagrams.into_iter().map(move |sent| Datagram {
            local: sent.local,
            ecn: sent.ecn,
            ttl: sent.ttl,
            segment_size: sent.segment_size,
            truncated: sent.truncated,
            ancillary: sent.ancillary,
            ..Datagram::new(pool.copy(&sent.payload), sent.source)
        })
    }

    pub(super) fn count(&self) -> u64 {
        self.datagrams.len() as u64
    }

    fn release(&self) {
        if let Some(member) = self.to.loops.members.get(self.to.number) {
            let bytes = self.datagrams.iter().map(|datagram| datagram.payload.len()).sum();
            member.release(self.datagrams.len(), bytes);
        }
    }
}

impl Drop for Forwarded {
    fn drop(&mut self) {
        self.release();
    }
}

/// Datagrams on their way to a loop.
const FORWARDED_MAX: usize = 1024;

/// Their bytes. The last one may exceed it.
const FORWARDED_BYTES_MAX: usize = 1024 * 1024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn datagrams_under_way_to_a_loop_are_bounded_by_number_and_by_bytes() {
        let steering = Steering { only_if: None, xor_offset: None, offset: 0, mask: 1 };
        let (loops, pool) = (SteeredLoops::new(steering, 2), Pool::new());
        let source = SocketAddr::from(([127, 0, 0, 1], 1));
        for (length, fits) in [(60_000, FORWARDED_BYTES_MAX.div_ceil(60_000)), (10, FORWARDED_MAX)] {
            let datagram = Datagram::new(pool.copy(&vec![7; length]), source);
            let mut outgoing = Outgoing::default();
            for _ in 0..fits + 3 {
                outgoing.push(loops.place(1), &datagram);
            }
            assert_eq!((outgoing.batches[0].count(), outgoing.dropped), (fits as u64, 3));
            // The other loop has room of its own.
            outgoing.push(loops.place(0), &datagram);
            assert_eq!(outgoing.dropped, 3);
            let taken = outgoing.batches.swap_remove(0).into_datagrams(&pool);
            assert_eq!(taken.map(|datagram| datagram.payload.len()).sum::<usize>(), length * fits);
            drop(outgoing);
            for member in &loops.members {
                assert_eq!((member.in_transit.load(Relaxed), member.in_transit_bytes.load(Relaxed)), (0, 0));
            }
        }
    }
}
