//! Before: two growing arrays in every connection, as in Netty before its change #2693.
//!
//! Entries lie in a circular array, and a second array takes the parts of a gathering write. Both begin with four
//! elements, as there, and grow by doubling; neither shrinks before the connection ends.

use std::collections::VecDeque;
use std::io::IoSlice;

use bytes::{Buf, Bytes};

use crate::linked::Arena;
use crate::queue::{Queue, recycle, write_vectored};

pub(crate) struct Array {
    entries: VecDeque<Entry>,
    parts: Vec<IoSlice<'static>>,
    flushed: usize,
    pending: u64,
}

struct Entry {
    message: Bytes,
    /// What was counted when it was added, and is counted back when it was sent.
    pending: u32,
}

impl Array {
    fn gather_and_write(&mut self) -> usize {
        let mut parts = recycle(std::mem::take(&mut self.parts));
        parts.extend(self.entries.iter().take(self.flushed).map(|entry| IoSlice::new(&entry.message)));
        let written = write_vectored(&parts);
        self.parts = recycle(parts);
        written
    }

    fn advance(&mut self, mut count: usize) {
        while count > 0 {
            let Some(entry) = self.entries.front_mut() else { return };
            let length = entry.message.len();
            if count < length {
                return entry.message.advance(count);
            }
            count -= length;
            self.pending -= u64::from(entry.pending);
            self.flushed -= 1;
            self.entries.pop_front();
        }
    }
}

impl Queue for Array {
    const NAME: &'static str = "arrays (before)";

    type Shared = Arena;

    fn new(_: &Arena) -> Self {
        let (entries, parts) = (VecDeque::with_capacity(INITIAL), Vec::with_capacity(INITIAL));
        Self { entries, parts, flushed: 0, pending: 0 }
    }

    fn push(&mut self, arena: &mut Arena, response: &[u8]) {
        let message = arena.message(response);
        let pending = message.len() as u32;
        self.entries.push_back(Entry { message, pending });
        self.pending += u64::from(pending);
    }

    fn flush(&mut self, _: &mut Arena) {
        self.flushed = self.entries.len();
        while self.flushed > 0 {
            let written = self.gather_and_write();
            self.advance(written);
        }
    }
}

const INITIAL: usize = 4;
