//! Loops that share an address, and forward datagrams to each other: a datagram names the loop that it is for.
//!
//! The kernel steers most of them by the same rule ([`Steering`]). It cannot where a loop's socket was closed, since the
//! last socket of the group takes the place of that one, and where the system refuses the program.
//!
//! A forwarded datagram is copied, since memory of a loop stays there. Its loop takes it in without another look at the
//! number, so none goes in a circle. A loop that does not come to its mailbox gets no more than [`FORWARDED_MAX`] and
//! [`FORWARDED_BYTES_MAX`]; further ones are dropped and counted, as are those that come while the memory of their loop is
//! used up.
//!
//! The endpoints of a protocol with sessions may have predecessors in other processes, whose datagrams this one receives
//! (`predecessors.rs`), and a successor that sends it the datagrams of its sessions (`server/session_groups.rs`).

use std::fmt;
use std::net::SocketAddr;
use std::num::NonZeroU16;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use tidegate_buffer::{Ancillary, Datagram, Ecn, LocalAddress, Pool};
use tidegate_codec::EndpointGeneration;
use tidegate_sys::message_pipe::MESSAGE_BYTES_MAX;
use tidegate_sys::{Steering, Token};

use super::predecessors::Predecessors;
use super::relayed;
use crate::mailbox::{LoopMessage, Mailbox, MailboxError};

/// The endpoints of the sockets at one address.
#[derive(Debug)]
pub(crate) struct SteeredLoops {
    steering: Option<Steering>,
    members: Box<[Member]>,
    generations: Option<Generations>,
}

/// The generation of these endpoints, and those before it.
pub(crate) struct Generations {
    own: Arc<dyn EndpointGeneration>,
    predecessors: Predecessors,
    /// A predecessor receives until this server runs.
    is_waiting: bool,
}

impl Generations {
    pub(crate) fn new(own: Arc<dyn EndpointGeneration>, predecessors: Option<Predecessors>) -> Self {
        let is_waiting = predecessors.is_some();
        Self { own, predecessors: predecessors.unwrap_or_default(), is_waiting }
    }
}

impl fmt::Debug for Generations {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Generations").field("number", &self.own.number()).finish_non_exhaustive()
    }
}

/// Where a datagram goes.
pub(super) enum DatagramRoute {
    /// To the endpoint that has received it.
    Here,
    /// To another one of this process.
    Endpoint(SteeredPlace),
    /// To one of an earlier generation, by its number among these.
    Predecessor(usize),
}

/// The endpoint of a socket.
#[derive(Debug, Default)]
struct Member {
    inbox: OnceLock<(Arc<Mailbox>, Token)>,
    /// Datagrams of a successor that were dropped, and that the endpoint has not counted yet.
    dropped: AtomicU64,
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

/// The place of an endpoint among them.
#[derive(Debug, Clone)]
pub(crate) struct SteeredPlace {
    loops: Arc<SteeredLoops>,
    number: usize,
}

/// Datagrams for another loop, in the order in which they came. Their places are free again when it is dropped.
pub(super) struct Forwarded {
    to: SteeredPlace,
    datagrams: Vec<ForwardedDatagram>,
    /// A successor has received them.
    is_of_successor: bool,
}

/// A [`Datagram`] that leaves its loop.
pub(super) struct ForwardedDatagram {
    pub(super) payload: Bytes,
    pub(super) source: SocketAddr,
    pub(super) local: LocalAddress,
    pub(super) ecn: Ecn,
    pub(super) ttl: Option<u8>,
    pub(super) segment_size: Option<NonZeroU16>,
    pub(super) truncated: bool,
    pub(super) ancillary: Option<Box<Ancillary>>,
}

/// Has an endpoint receive from its socket, or stop. It is done when this is dropped.
pub(super) struct SwitchReceiving {
    pub(super) on: bool,
    _done: Sender<()>,
}

impl SteeredLoops {
    pub(crate) fn new(steering: Option<Steering>, places: usize, generations: Option<Generations>) -> Arc<Self> {
        Arc::new(Self { steering, members: (0..places).map(|_| Member::default()).collect(), generations })
    }

    /// Their generation, and those before it.
    pub(crate) fn generation(&self) -> Option<(&Arc<dyn EndpointGeneration>, &Predecessors)> {
        self.generations.as_ref().map(|generations| (&generations.own, &generations.predecessors))
    }

    pub(crate) fn places(&self) -> usize {
        self.members.len()
    }

    /// Has all endpoints receive from their sockets, or stop. Returns a receiver, whose other ends are gone when all have done
    /// so.
    pub(crate) fn switch_receiving(&self, on: bool) -> Receiver<()> {
        let (done, receiver) = channel();
        for (mailbox, token) in self.members.iter().filter_map(|member| member.inbox.get()) {
            let switch = SwitchReceiving { on, _done: done.clone() };
            // One for each handover. A mailbox that does not take it is of a loop that has ended, and receives nothing.
            let _ = mailbox.send_beyond_bound(LoopMessage::Post { token: *token, post: Box::new(switch) });
        }
        receiver
    }

    /// Delivers the datagrams in a message of a successor. Returns whether the endpoint is there.
    pub(crate) fn deliver(self: &Arc<Self>, place: usize, message: &Bytes) -> bool {
        let Some(member) = self.members.get(place) else { return false };
        let Some((mailbox, token)) = member.inbox.get() else { return false };
        let mut datagrams = relayed::decode(message);
        let came = datagrams.len();
        datagrams.retain(|datagram| member.reserve(datagram.payload.len()));
        let count = datagrams.len();
        if count == 0 {
            member.dropped.fetch_add(came as u64, Relaxed);
            return true;
        }
        let forwarded = Forwarded { to: self.place(place), datagrams, is_of_successor: true };
        let sent = mailbox.send(LoopMessage::Post { token: *token, post: Box::new(forwarded) });
        let dropped = if sent.is_ok() { came - count } else { came };
        member.dropped.fetch_add(dropped as u64, Relaxed);
        !matches!(sent, Err(MailboxError::Ended(_)))
    }

    /// The place of an endpoint.
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

    /// Whether the endpoint waits until a predecessor has stopped receiving.
    pub(super) fn is_waiting(&self) -> bool {
        self.loops.generations.as_ref().is_some_and(|generations| generations.is_waiting)
    }

    /// Whether sessions of this endpoint outlast the server.
    pub(super) fn has_generation(&self) -> bool {
        self.loops.generations.is_some()
    }

    /// Where a datagram that has come to this endpoint goes.
    pub(super) fn route(&self, payload: &[u8]) -> DatagramRoute {
        let Some(Generations { own, predecessors, .. }) = &self.loops.generations else {
            let number = self.loops.steering.and_then(|steering| steering.number(payload));
            return number.map_or(DatagramRoute::Here, |number| self.route_to(number));
        };
        match own.endpoint_of(payload) {
            Some(place) if place.generation == own.number() => self.route_to(place.place.into()),
            Some(place) => predecessors.find(place).map_or(DatagramRoute::Here, DatagramRoute::Predecessor),
            None => DatagramRoute::Here,
        }
    }

    /// To another endpoint of this process, if it is there.
    fn route_to(&self, number: usize) -> DatagramRoute {
        let is_there = || self.loops.members.get(number).is_some_and(|member| member.inbox.get().is_some());
        if number == self.number || !is_there() {
            return DatagramRoute::Here;
        }
        DatagramRoute::Endpoint(Self { loops: self.loops.clone(), number })
    }

    /// The datagrams of a successor that were dropped since the last call.
    pub(super) fn take_dropped(&self) -> u64 {
        self.loops.members.get(self.number).map_or(0, |member| member.dropped.swap(0, Relaxed))
    }
}

/// The datagrams of a batch that are for other endpoints.
#[derive(Default)]
pub(super) struct Outgoing {
    batches: Vec<Forwarded>,
    /// Those for predecessors, by the number of their endpoint.
    relayed: Vec<Relayed>,
    counts: OutgoingCounts,
}

/// Datagrams for an endpoint of an earlier generation.
struct Relayed {
    to: usize,
    message: Vec<u8>,
    count: u64,
}

/// The counts of datagrams for other endpoints.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) struct OutgoingCounts {
    pub(super) forwarded: u64,
    pub(super) to_predecessor: u64,
    /// Too many are on their way.
    pub(super) dropped: u64,
}

impl Outgoing {
    /// Puts a datagram among those for a predecessor of the endpoint at `from`.
    pub(super) fn relay(&mut self, from: &SteeredPlace, to: usize, datagram: &Datagram) {
        if datagram.truncated {
            self.counts.dropped += 1;
            return;
        }
        let place = self.relayed.iter().position(|relayed| relayed.to == to);
        let place = place.unwrap_or_else(|| {
            self.relayed.push(Relayed { to, message: Vec::new(), count: 0 });
            self.relayed.len() - 1
        });
        let relayed = &mut self.relayed[place];
        relayed::encode(datagram, &mut relayed.message);
        relayed.count += 1;
        if relayed.message.len() > RELAYED_BYTES {
            let relayed = self.relayed.swap_remove(place);
            self.send_relayed(from, &relayed);
        }
    }

    fn send_relayed(&mut self, from: &SteeredPlace, relayed: &Relayed) {
        let Some(Generations { own, predecessors, .. }) = &from.loops.generations else { return };
        let is_sent = predecessors.send(relayed.to, &relayed.message, |place| own.on_gone(place));
        let counter = if is_sent { &mut self.counts.to_predecessor } else { &mut self.counts.dropped };
        *counter += relayed.count;
    }

    pub(super) fn push(&mut self, to: SteeredPlace, datagram: &Datagram) {
        let Some(member) = to.loops.members.get(to.number) else { return };
        if !member.reserve(datagram.payload.len()) {
            self.counts.dropped += 1;
            return;
        }
        let place = self.batches.iter().position(|batch| batch.to.number == to.number);
        let place = place.unwrap_or_else(|| {
            self.batches.push(Forwarded { to, datagrams: Vec::new(), is_of_successor: false });
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

    /// Sends them.
    pub(super) fn send(mut self, from: Option<&SteeredPlace>) -> OutgoingCounts {
        for batch in std::mem::take(&mut self.batches) {
            let (to, count) = (batch.to.clone(), batch.count());
            let Some((mailbox, token)) = to.loops.members.get(to.number).and_then(|member| member.inbox.get()) else {
                continue;
            };
            let message = LoopMessage::Post { token: *token, post: Box::new(batch) };
            let is_sent = mailbox.send(message).is_ok();
            let counter = if is_sent { &mut self.counts.forwarded } else { &mut self.counts.dropped };
            *counter += count;
        }
        for relayed in std::mem::take(&mut self.relayed) {
            if let Some(from) = from {
                self.send_relayed(from, &relayed);
            }
        }
        self.counts
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

    pub(super) fn is_of_successor(&self) -> bool {
        self.is_of_successor
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

/// A message for a predecessor is sent once it is longer.
const RELAYED_BYTES: usize = 48 * 1024;

const _: () = assert!(RELAYED_BYTES + (64 + 1) * 1024 <= MESSAGE_BYTES_MAX);

#[cfg(test)]
mod tests {
    use tidegate_sys::{Wake, Waker};

    use super::*;
    use crate::limits::MAILBOX_MESSAGES_MAX;

    /// The waker of a loop that hangs.
    struct HangingLoop;

    impl Wake for HangingLoop {
        fn wake(&self) {}
    }

    /// An endpoint of a loop that hangs, and the loop's mailbox.
    fn hanging() -> (Arc<SteeredLoops>, Arc<Mailbox>) {
        let (loops, mailbox) = (SteeredLoops::new(None, 1, None), Mailbox::new(Waker::new(Arc::new(HangingLoop))));
        loops.place(0).join(&mailbox, TOKEN);
        (loops, mailbox)
    }

    const TOKEN: Token = Token { slot: 0, generation: 0 };

    #[test]
    fn a_full_mailbox_loses_no_switch() {
        let (loops, mailbox) = hanging();
        let message = || LoopMessage::Post { token: TOKEN, post: Box::new(()) };
        for _ in 0..MAILBOX_MESSAGES_MAX {
            assert!(mailbox.send(message()).is_ok());
        }
        assert!(matches!(mailbox.send(message()), Err(MailboxError::Full(_))));
        let stopped = loops.switch_receiving(false);
        assert!(matches!(stopped.try_recv(), Err(std::sync::mpsc::TryRecvError::Empty)), "the loop has not stopped");
        drop(mailbox.collect());
        assert!(matches!(stopped.try_recv(), Err(std::sync::mpsc::TryRecvError::Disconnected)));
    }

    #[test]
    fn messages_of_a_successor_are_bounded_with_their_datagrams() {
        let ((loops, mailbox), pool) = (hanging(), Pool::new());
        let mut message = Vec::new();
        relayed::encode(&Datagram::new(pool.copy(b"ebb"), SocketAddr::from(([127, 0, 0, 1], 1))), &mut message);
        let message = Bytes::from(message);
        for _ in 0..FORWARDED_MAX + 5 {
            assert!(loops.deliver(0, &message));
        }
        assert_eq!(mailbox.collect().len(), FORWARDED_MAX);
        assert_eq!(loops.place(0).take_dropped(), 5);
        assert!(loops.deliver(0, &message), "there is room again");
    }

    #[test]
    fn datagrams_under_way_to_a_loop_are_bounded_by_number_and_by_bytes() {
        let steering = Steering { only_if: None, xor_offset: None, offset: 0, mask: 1 };
        let (loops, pool) = (SteeredLoops::new(Some(steering), 2, None), Pool::new());
        let source = SocketAddr::from(([127, 0, 0, 1], 1));
        for (length, fits) in [(60_000, FORWARDED_BYTES_MAX.div_ceil(60_000)), (10, FORWARDED_MAX)] {
            let datagram = Datagram::new(pool.copy(&vec![7; length]), source);
            let mut outgoing = Outgoing::default();
            for _ in 0..fits + 3 {
                outgoing.push(loops.place(1), &datagram);
            }
            assert_eq!((outgoing.batches[0].count(), outgoing.counts.dropped), (fits as u64, 3));
            // The other loop has room of its own.
            outgoing.push(loops.place(0), &datagram);
            assert_eq!(outgoing.counts.dropped, 3);
            let taken = outgoing.batches.swap_remove(0).into_datagrams(&pool);
            assert_eq!(taken.map(|datagram| datagram.payload.len()).sum::<usize>(), length * fits);
            drop(outgoing);
            for member in &loops.members {
                assert_eq!((member.in_transit.load(Relaxed), member.in_transit_bytes.load(Relaxed)), (0, 0));
            }
        }
    }
}
