//! What the queues have in common: the work they do, and who takes the bytes.

use std::hint::black_box;
use std::io::IoSlice;

/// An outbound queue of one connection.
pub(crate) trait Queue: Sized {
    /// What it is called.
    const NAME: &'static str;

    /// What the connections of a thread share.
    type Shared: Default;

    /// An empty queue.
    fn new(shared: &Self::Shared) -> Self;

    /// Encodes a response into the queue.
    fn push(&mut self, shared: &mut Self::Shared, response: &[u8]);

    /// Sends all of it with gathering writes.
    fn flush(&mut self, shared: &mut Self::Shared);
}

/// A thread with its connections.
pub(crate) struct Shared<Q: Queue> {
    pub(crate) of_queues: Q::Shared,
}

impl<Q: Queue> Shared<Q> {
    pub(crate) fn new() -> Self {
        Self { of_queues: Q::Shared::default() }
    }

    /// As many responses as a client with deep pipelining makes a server queue at once.
    pub(crate) fn push_burst(&mut self, queue: &mut Q) {
        for _ in 0..BURST {
            queue.push(&mut self.of_queues, black_box(RESPONSE));
        }
    }

    /// The same, sent.
    pub(crate) fn burst(&mut self, queue: &mut Q) {
        self.push_burst(queue);
        queue.flush(&mut self.of_queues);
    }
}

/// A kernel that takes all it is offered, and costs next to nothing.
pub(crate) fn write_vectored(parts: &[IoSlice<'_>]) -> usize {
    black_box(parts).iter().map(|part| part.len()).sum()
}

/// The memory of an array of parts, used again for other parts.
pub(crate) fn recycle<'b>(mut parts: Vec<IoSlice<'_>>) -> Vec<IoSlice<'b>> {
    parts.clear();
    // Collecting in place keeps the memory, and no element is ever looked at.
    parts.into_iter().map(|_| unreachable!("the array was cleared")).collect()
}

/// Responses in a burst.
pub(crate) const BURST: usize = 256;

/// As many parts as one gathering write takes.
pub(crate) const PARTS: usize = 1024;

/// A plaintext response as benchmarks ask for it.
pub(crate) const RESPONSE: &[u8] = b"HTTP/1.1 200 OK\r\n\
    Server: tidegate\r\n\
    Date: Thu, 01 Jan 1970 00:00:00 GMT\r\n\
    Content-Type: text/plain\r\n\
    Content-Length: 13\r\n\
    \r\n\
    Hello, World!";
