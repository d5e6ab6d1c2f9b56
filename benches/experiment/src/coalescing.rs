//! Ours: responses are encoded straight into segments that belong to the queue, one entry for each segment.

use std::io::IoSlice;
use std::mem::MaybeUninit;

use tidegate_buffer::{Gathered, Outbound, Pool};

use crate::queue::{PARTS, Queue, write_vectored};

pub(crate) struct Coalescing {
    queue: Outbound,
}

impl Queue for Coalescing {
    const NAME: &'static str = "coalescing (ours)";

    type Shared = Pool;

    fn new(pool: &Pool) -> Self {
        Self { queue: Outbound::new(pool) }
    }

    fn push(&mut self, _: &mut Pool, response: &[u8]) {
        self.queue.write(response);
    }

    fn flush(&mut self, _: &mut Pool) {
        self.queue.flush();
        // An event loop has one such array. On the stack it costs as little, and needs no unsafe code here.
        let mut parts = [const { MaybeUninit::<IoSlice<'_>>::uninit() }; PARTS];
        if let Gathered::Parts(parts) = self.queue.gather(&mut parts, usize::MAX) {
            let written = write_vectored(parts);
            self.queue.advance(written as u64);
        }
        assert!(self.queue.is_empty(), "a burst fits into one gathering write");
    }
}
