//! `Schedule`: which stream sends next. Streams of one urgency take turns; those of a lower one come before all others.
//! A stream that waits for the window of the session is in a list of its own, and keeps its place.

use super::streams::{NONE, URGENCIES};

/// The links of the entries in a list.
pub(super) trait Links {
    fn next(&self, index: u32) -> u32;

    fn set_next(&mut self, index: u32, next: u32);

    /// Takes note that a list no longer has the entry, if its stream is closed; returns whether it is.
    fn unlist_closed(&mut self, index: u32) -> bool;
}

#[derive(Debug, Default)]
pub(super) struct Schedule {
    ready: [List; URGENCIES],
    stalled: [List; URGENCIES],
    /// The lists of `ready` that are not empty, as bits.
    occupied: u8,
}

const _: () = assert!(URGENCIES <= u8::BITS as usize);

#[derive(Debug, Clone, Copy)]
struct List {
    head: u32,
    tail: u32,
}

impl Default for List {
    fn default() -> Self {
        Self { head: NONE, tail: NONE }
    }
}

impl List {
    fn push(&mut self, links: &mut impl Links, index: u32) {
        links.set_next(index, NONE);
        match self.tail {
            NONE => self.head = index,
            tail => links.set_next(tail, index),
        }
        self.tail = index;
    }

    fn pop(&mut self, links: &impl Links) -> Option<u32> {
        let index = self.head;
        if index == NONE {
            return None;
        }
        self.head = links.next(index);
        if self.head == NONE {
            self.tail = NONE;
        }
        Some(index)
    }

    /// Removes the entries of closed streams.
    fn remove_closed(&mut self, links: &mut impl Links) {
        let mut before = std::mem::take(self);
        while let Some(index) = before.pop(links) {
            if !links.unlist_closed(index) {
                self.push(links, index);
            }
        }
    }

    /// Puts all of `other` in front.
    fn prepend(&mut self, links: &mut impl Links, other: &mut Self) {
        if other.head == NONE {
            return;
        }
        links.set_next(other.tail, self.head);
        if self.tail == NONE {
            self.tail = other.tail;
        }
        self.head = other.head;
        *other = Self::default();
    }
}

impl Schedule {
    pub(super) fn push_ready(&mut self, links: &mut impl Links, index: u32, urgency: usize) {
        self.ready[urgency].push(links, index);
        self.occupied |= 1 << urgency;
    }

    /// Adds a stream in front of all others of its urgency.
    pub(super) fn push_ready_first(&mut self, links: &mut impl Links, index: u32, urgency: usize) {
        let mut first = List::default();
        first.push(links, index);
        self.ready[urgency].prepend(links, &mut first);
        self.occupied |= 1 << urgency;
    }

    /// A stream whose bytes wait for the window of the session.
    pub(super) fn push_stalled(&mut self, links: &mut impl Links, index: u32, urgency: usize) {
        self.stalled[urgency].push(links, index);
    }

    /// The session has a window again.
    pub(super) fn resume_stalled(&mut self, links: &mut impl Links) {
        for (urgency, (ready, stalled)) in self.ready.iter_mut().zip(&mut self.stalled).enumerate() {
            ready.prepend(links, stalled);
            self.occupied |= u8::from(ready.head != NONE) << urgency;
        }
    }

    /// Removes the entries of closed streams from all lists.
    pub(super) fn remove_closed(&mut self, links: &mut impl Links) {
        for (urgency, list) in self.ready.iter_mut().enumerate() {
            list.remove_closed(links);
            self.occupied = self.occupied & !(1 << urgency) | u8::from(list.head != NONE) << urgency;
        }
        for list in &mut self.stalled {
            list.remove_closed(links);
        }
    }

    #[inline]
    pub(super) fn has_ready(&self) -> bool {
        self.occupied != 0
    }

    /// The next stream, and the urgency of the list that it was in.
    pub(super) fn pop_ready(&mut self, links: &impl Links) -> Option<(u32, usize)> {
        let urgency = self.occupied.trailing_zeros() as usize;
        let list = self.ready.get_mut(urgency)?;
        let index = list.pop(links)?;
        if list.head == NONE {
            self.occupied &= !(1 << urgency);
        }
        Some((index, urgency))
    }
}
