//! The work: bursts of short responses, written as the HTTP/1.1 codec writes them, and discarded.

use std::hint::black_box;
use std::io::IoSlice;
use std::mem::MaybeUninit;

use tidegate_buffer::{Gathered, Outbound, Pool};

/// Writes as many responses as a client with deep pipelining makes a server queue at once. Values that the codec learns
/// at run time are opaque to the compiler here too.
pub(crate) fn write(queue: &mut Outbound, depth: usize) {
    for _ in 0..depth {
        let (date, [start, content_type, length, body]) = black_box((DATE, [START, CONTENT_TYPE, LENGTH, BODY]));
        queue.write_pieces((start, date, b"\r\nContent-Type: ", content_type, b"\r\nContent-Length: ", length, body));
    }
}

/// Sends all output to a simulated kernel that accepts everything at almost no cost.
pub(crate) fn send(queue: &mut Outbound) {
    queue.flush();
    while queue.has_flushed() {
        // An event loop has one such array. On the stack it is as cheap, and needs no unsafe code here.
        let mut parts = [const { MaybeUninit::<IoSlice<'_>>::uninit() }; PARTS];
        let taken: usize = match queue.gather(&mut parts, usize::MAX) {
            Gathered::Parts(parts) | Gathered::PartsBeforeFile(parts) => {
                black_box(parts).iter().map(|part| part.len()).sum()
            }
            other => unreachable!("there are only bytes in memory, not {other:?}"),
        };
        queue.advance(taken as u64);
    }
}

/// The length of a response.
pub(crate) fn response_bytes() -> usize {
    let mut queue = Outbound::new(&Pool::new());
    write(&mut queue, 1);
    queue.pending() as usize
}

/// The maximum number of parts of one gathering write.
pub(crate) const PARTS: usize = 1024;

/// A plaintext response as in benchmarks, in its pieces.
const START: &[u8] = b"HTTP/1.1 200 OK\r\nServer: tidegate\r\nDate: ";
const DATE: &[u8; 29] = b"Thu, 01 Jan 1970 00:00:00 GMT";
const CONTENT_TYPE: &[u8] = b"text/plain";
const LENGTH: &[u8] = b"13\r\n\r\n";
const BODY: &[u8] = b"Hello, World!";
