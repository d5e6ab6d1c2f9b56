//! `EventQueue`: scheduled events, ordered by time and, at the same time, by the order in which they were added.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use tidegate_sys::Token;

use super::datagram_sockets::Packet;
use super::world::SocketRef;

/// A scheduled event.
#[derive(Debug)]
pub(super) enum Event {
    /// A connection request arrives at its host.
    Syn { from: u64 },
    /// A connect succeeds or fails.
    ConnectDone { end: u64, outcome: Result<(), io::ErrorKind> },
    /// Bytes arrive.
    Data { to: u64, bytes: Vec<u8> },
    /// A datagram arrives at its host.
    Datagram { packet: Box<Packet> },
    /// A report that a port has no datagram socket arrives.
    PortUnreachable { source: SocketAddr, destination: SocketAddr },
    /// A fault that blocked sending datagrams ends.
    DatagramRoom { socket: u64 },
    /// The peer's FIN arrives. If `joined`, the driver reports it in the same turn as the last bytes.
    Fin { to: u64, joined: bool },
    /// The stream is reset.
    Reset { to: u64 },
    /// The other end acknowledges `count` bytes.
    Acknowledged { end: u64, count: usize },
    /// A fault that blocked sending ends.
    Unstalled { end: u64 },
    /// The send buffer returns to its full size.
    BufferRestored { end: u64 },
    /// The completion of a late send is due.
    SendDue { end: u64 },
    /// A cancelled receive or accept can no longer complete.
    Cancelled { place: SocketRef },
    /// The driver polls a socket whose completion was delayed.
    Poll { place: SocketRef },
    /// The completion of a close is due.
    Closed { driver: usize, token: Token },
    /// A late wake-up reaches its loop.
    WakeUp { driver: usize },
}

/// The scheduled events.
#[derive(Debug, Default)]
pub(super) struct EventQueue {
    entries: BinaryHeap<Reverse<Entry>>,
    /// How many events were added so far.
    number: u64,
}

#[derive(Debug)]
struct Entry {
    at: Duration,
    number: u64,
    event: Event,
}

impl EventQueue {
    pub(super) fn put(&mut self, at: Duration, event: Event) {
        self.number += 1;
        self.entries.push(Reverse(Entry { at, number: self.number, event }));
    }

    /// The time of the next event.
    pub(super) fn next_time(&self) -> Option<Duration> {
        self.entries.peek().map(|Reverse(entry)| entry.at)
    }

    /// The next event, if it is due by then.
    pub(super) fn pop(&mut self, by: Duration) -> Option<Event> {
        self.next_time().filter(|at| *at <= by)?;
        self.entries.pop().map(|Reverse(entry)| entry.event)
    }
}

impl Ord for Entry {
    fn cmp(&self, other: &Self) -> Ordering {
        (self.at, self.number).cmp(&(other.at, other.number))
    }
}

impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Entry {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Entry {}
