//! Bytes and allocations, as the counting allocator sees them.

use tidegate_buffer::{Outbound, Pool};

use crate::{ALLOCATOR, burst};

/// What the queues of so many connections cost. Bytes are for one connection, its queue's own struct included, except
/// where the field says otherwise.
pub(crate) struct Memory {
    pub(crate) connections: usize,
    /// Before anything was sent.
    pub(crate) fresh: usize,
    /// After every connection has sent one burst, one connection after the other.
    pub(crate) idle: usize,
    /// With one burst waiting on every connection, everything counted.
    pub(crate) burst: usize,
    /// What the thread keeps when its connections are idle, for all of them together, to be used again.
    pub(crate) thread: usize,
    /// Allocations for each response, on connections that have sent some before.
    pub(crate) allocations: f64,
}

/// Runs the experiment. The array of parts that a thread has once is not counted.
pub(crate) fn measure(connections: usize, depth: usize) -> Memory {
    let pool = Pool::new();
    let mut queues = Vec::with_capacity(connections);
    let before = heap();
    queues.extend((0..connections).map(|_| Outbound::new(&pool)));
    let fresh = heap() - before;
    for queue in &mut queues {
        burst::write(queue, depth);
        burst::send(queue);
    }
    let with_thread = heap() - before;
    let allocations_before = allocations();
    for queue in queues.iter_mut().take(CONNECTIONS_COUNTED) {
        burst::write(queue, depth);
        burst::send(queue);
    }
    let counted = CONNECTIONS_COUNTED.min(connections) * depth;
    let allocations = (allocations() - allocations_before) as f64 / counted as f64;
    for queue in &mut queues {
        burst::write(queue, depth);
    }
    let waiting = heap() - before;
    // What a connection has of its own goes when it is dropped; the rest is the thread's. A thread that had all of
    // this waiting at once keeps more than it did above, so the same is done again from the start.
    drop((queues, pool));
    let thread = thread_after_bursts(connections, depth);
    let each = |bytes: usize| bytes.div_ceil(connections) + size_of::<Outbound>();
    Memory {
        connections,
        fresh: each(fresh),
        idle: each(with_thread.saturating_sub(thread)),
        burst: each(waiting),
        thread,
        allocations,
    }
}

fn thread_after_bursts(connections: usize, depth: usize) -> usize {
    let pool = Pool::new();
    let before = heap();
    for _ in 0..connections {
        let mut queue = Outbound::new(&pool);
        burst::write(&mut queue, depth);
        burst::send(&mut queue);
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

const CONNECTIONS_COUNTED: usize = 1_000;
