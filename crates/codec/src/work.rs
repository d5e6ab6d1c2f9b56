//! `work`: an estimate of the work of a thread's codecs and parsers, in nanoseconds.
//!
//! Most messages cost as much as their bytes. Compression, decompression and parsing cost a hundred times that, and a few
//! bytes of a peer may cause much of it. So code that does such work adds an estimate here, and an event loop compares: it
//! ends the dispatch of a connection, or a part of its turn, whose work has reached a bound. An estimate needs no clock, so
//! the bound is the same in a simulation, where time stands still within a turn.
//!
//! The sum belongs to the thread, as an event loop does.

use std::cell::Cell;

thread_local! {
    static NANOS: Cell<u64> = const { Cell::new(0) };
}

/// Adds an estimate of work that was done, in nanoseconds.
///
/// ```
/// use tidegate::codec::work::{self, Work};
///
/// let work = Work::begin();
/// work::add(1_500);
/// assert_eq!(work.nanos(), 1_500);
/// ```
#[inline]
pub fn add(nanos: u64) {
    NANOS.set(NANOS.get().wrapping_add(nanos));
}

/// A point from which on work is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Work(u64);

impl Work {
    /// Now.
    #[inline]
    #[must_use]
    pub fn begin() -> Self {
        Self(NANOS.get())
    }

    /// The work that this thread has done since then, in nanoseconds.
    #[inline]
    #[must_use]
    pub fn nanos(self) -> u64 {
        NANOS.get().wrapping_sub(self.0)
    }
}
