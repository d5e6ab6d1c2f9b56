//! Bytes and allocations, as the counting allocator reports them.

use tidegate_buffer::{Outbound, Pool};

use crate::{ALLOCATOR, burst};

/// The costs of the queues of `connections` connections. Bytes are per connection, including the queue's struct, unless
/// the field says otherwise.
pub(crate) struct Memory {
    pub(crate) connections: usize,
    /// Before anything was sent.
    pub(crate) fresh: usize,
    /// After every connection has sent one burst, one after the other.
    pub(crate) idle: usize,
    /// With one pending burst on every connection, everything included.
    pub(crate) burst: usize,
    /// The memory that the thread keeps for reuse while its connections are idle, in total.
    pub(crate) thread: usize,
    /// Allocations per response, on warm connections.
    pub(crate) allocations: f64,
}

/// Runs the experiment. The thread's array of parts is not counted.
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
    // Dropping the connections frees their own memory; the rest is the thread's. A thread with all bursts pending at
    // once keeps more than above, so the measurement starts again from scratch.
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
