//! `Agenda`: what is going to happen, by its time and, within that, in the order in which it was put there.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;
use std::io;
use std::time::Duration;

use tidegate_sys::Token;

use super::world::Place;

/// What is going to happen.
#[derive(Debug)]
pub(super) enum Event {
    /// Somebody wants to be connected.
    Knock { from: u64 },
    /// Connecting has come to an end.
    Decided { end: u64, outcome: Result<(), io::ErrorKind> },
    /// Bytes arrive.
    Data { to: u64, bytes: Vec<u8> },
    /// The peer sends no more. `joined` is told in one turn with the last bytes.
    Fin { to: u64, joined: bool },
    /// The stream is cut off.
    Reset { to: u64 },
    /// The other end has so many bytes.
    Acknowledged { end: u64, count: usize },
    /// A fault that held sending back is over.
    Unstalled { end: u64 },
    /// The send buffer is as large again as it was.
    Roomy { end: u64 },
    /// A send that was taken a while ago is told.
    SendDue { end: u64 },
    /// Nothing that was on its way can come any more.
    Cancelled { place: Place },
    /// What was held back for a while is told.
    Attend { place: Place },
    /// The last word on a socket is due.
    Closed { desk: usize, token: Token },
}

/// The events to come.
#[derive(Debug, Default)]
pub(super) struct Agenda {
    entries: BinaryHeap<Reverse<Entry>>,
    /// Counts events.
    number: u64,
}

#[derive(Debug)]
struct Entry {
    at: Duration,
    number: u64,
    event: Event,
}

impl Agenda {
    pub(super) fn put(&mut self, at: Duration, event: Event) {
        self.number += 1;
        self.entries.push(Reverse(Entry { at, number: self.number, event }));
    }

    /// When something happens next.
    pub(super) fn next_time(&self) -> Option<Duration> {
        self.entries.peek().map(|Reverse(entry)| entry.at)
    }

    /// What is due by then.
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
