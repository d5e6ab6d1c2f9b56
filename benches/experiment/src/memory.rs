//! Bytes and allocations, as the counting allocator sees them.

use crate::ALLOCATOR;
use crate::queue::{Queue, Shared};

/// What a queue costs. Bytes are for one connection, its own struct included, except where the field says otherwise.
pub(crate) struct Memory {
    /// Before anything was sent.
    pub(crate) fresh: usize,
    /// After every connection has sent one burst, one connection after the other.
    pub(crate) idle: usize,
    /// What the thread keeps then for all its connections together, to be used again.
    pub(crate) thread: usize,
    /// With one burst pending on every connection, everything counted.
    pub(crate) pending: usize,
    /// Allocations of one burst on a connection that has sent some before.
    pub(crate) allocations: f64,
}

/// Runs the experiment. What a thread has once, as the array of parts, is not counted: it is 16 KiB in both designs
/// that have one.
pub(crate) fn measure<Q: Queue>(connections: usize) -> Memory {
    let mut shared = Shared::<Q>::new();
    let mut queues = Vec::with_capacity(connections);
    let before = heap();
    queues.extend((0..connections).map(|_| Q::new(&shared.of_queues)));
    let fresh = heap() - before;
    for queue in &mut queues {
        shared.burst(queue);
    }
    let with_thread = heap() - before;
    let allocations_before = allocations();
    for queue in queues.iter_mut().take(BURSTS_COUNTED) {
        shared.burst(queue);
    }
    let counted = BURSTS_COUNTED.min(connections);
    let allocations = (allocations() - allocations_before) as f64 / counted as f64;
    for queue in &mut queues {
        shared.push_burst(queue);
    }
    let pending = heap() - before;
    for queue in &mut queues {
        queue.flush(&mut shared.of_queues);
    }
    // What a connection has of its own goes when it is dropped; the rest is the thread's. A thread that had all of
    // this pending at once keeps more than it did above, so the same is done again from the start.
    drop((queues, shared));
    let thread = thread_after_bursts::<Q>(connections);
    let each = |bytes: usize| bytes.div_ceil(connections) + size_of::<Q>();
    Memory {
        fresh: each(fresh),
        idle: each(with_thread.saturating_sub(thread)),
        thread,
        pending: each(pending),
        allocations,
    }
}

fn thread_after_bursts<Q: Queue>(connections: usize) -> usize {
    let mut shared = Shared::<Q>::new();
    let before = heap();
    for _ in 0..connections {
        shared.burst(&mut Q::new(&shared.of_queues));
    }
    heap() - before
}

fn heap() -> usize {
    let stats = ALLOCATOR.stats();
    stats.bytes_allocated - stats.bytes_deallocated
}

fn allocations() -> usize {
    let stats = ALLOCATOR.stats();
    stats.allocations + stats.reallocations
}

const BURSTS_COUNTED: usize = 1_000;
