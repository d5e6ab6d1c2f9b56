//! Reading from the streams of an endpoint's protocol, and writing to them.

use std::mem::MaybeUninit;
use std::os::unix::fs::FileExt;

use bytes::Bytes;
use tidegate_buffer::{Gathered, Outbound, Pool, Slice};
use tidegate_codec::{ReadEnd, StreamEndpoint, StreamNumber};

use crate::limits::FILE_PIECE_BYTES;

/// Reads a piece of a stream.
pub(super) fn read(endpoint: &mut impl StreamEndpoint, pool: &Pool, number: StreamNumber) -> (Slice, ReadEnd) {
    read_behind(&[], endpoint, pool, number)
}

/// The same behind bytes that were read before.
pub(super) fn read_behind(
    first: &[u8],
    endpoint: &mut impl StreamEndpoint,
    pool: &Pool,
    number: StreamNumber,
) -> (Slice, ReadEnd) {
    let mut end = ReadEnd::Blocked;
    let filled = pool.fill(READ_BYTES, |space| {
        let (before, space) = space.split_at_mut(first.len());
        before.copy_from_slice(first);
        let (count, found) = endpoint.read(number, space);
        end = found;
        Ok::<_, std::convert::Infallible>(first.len() + count)
    });
    match filled {
        Ok(bytes) => (bytes, end),
        Err(never) => match never {},
    }
}

/// The result of a stream's turn to write.
#[derive(Default)]
pub(super) struct Written {
    /// The queue is empty.
    pub(super) is_all: bool,
    /// The protocol takes no more.
    pub(super) is_blocked: bool,
    /// A file could not be read.
    pub(super) is_broken: bool,
    /// The end of the stream was written as well.
    pub(super) has_ended: bool,
}

impl Written {
    pub(super) fn all() -> Self {
        Self { is_all: true, ..Self::default() }
    }

    /// The protocol has taken so many bytes, and takes no more. The rest waits for the peer, for an unknown time.
    pub(super) fn blocked(queue: &mut Outbound, taken: usize) -> Self {
        queue.advance(taken as u64);
        queue.settle();
        Self { is_blocked: true, ..Self::default() }
    }

    /// The bytes of a queue that nothing sends are dropped, as if they were sent.
    pub(super) fn dropped(queue: &mut Outbound) -> Self {
        queue.advance(queue.pending());
        Self::all()
    }
}

/// Writes from a queue, at most as much as one turn takes.
pub(super) fn write(endpoint: &mut impl StreamEndpoint, number: StreamNumber, queue: &mut Outbound) -> Written {
    let mut left = WRITE_BYTES;
    while left > 0 && queue.has_flushed() {
        let Some(front) = queue.front() else {
            let read = queue.load_file(FILE_PIECE_BYTES, |region, bytes| region.file.read_at(bytes, region.offset));
            match read {
                Ok(true) => continue,
                _ => return Written { is_broken: true, is_all: true, ..Written::default() },
            }
        };
        let length = front.len().min(left);
        let shared = if length >= SHARED_BYTES_MIN { queue.front_bytes(length) } else { None };
        let (length, written) = match shared.or_else(|| gather_short(queue, length)) {
            Some(bytes) => (bytes.len(), endpoint.write_bytes(number, bytes)),
            None => (length, endpoint.write(number, &front[..length])),
        };
        match written {
            Ok(taken) if taken < length => return Written::blocked(queue, taken),
            Ok(taken) => {
                queue.advance(taken as u64);
                left = left.saturating_sub(taken);
            }
            Err(_) => return Written::dropped(queue),
        }
    }
    Written { is_all: !queue.has_flushed(), ..Written::default() }
}

/// The bytes of a short queue in one piece: the protocol keeps each piece that is written apart. `None` if the queue is
/// longer, or has one piece, whose length is `first`.
fn gather_short(queue: &Outbound, first: usize) -> Option<Bytes> {
    if queue.pending() > GATHERED_BYTES_MAX as u64 || queue.pending() == first as u64 {
        return None;
    }
    let mut parts = [const { MaybeUninit::uninit() }; GATHERED_PARTS_MAX];
    let Gathered::Parts(parts) = queue.gather(&mut parts, GATHERED_BYTES_MAX) else { return None };
    (parts.len() > 1).then(|| {
        let mut bytes = Vec::with_capacity(parts.iter().map(|part| part.len()).sum());
        parts.iter().for_each(|part| bytes.extend_from_slice(part));
        Bytes::from(bytes)
    })
}

/// A stream is read in pieces of this many bytes, which are one large segment of the pool.
const READ_BYTES: usize = 16 * 1024;

/// Shared bytes of this length are passed on without a copy. Shorter ones are cheaper to copy, and a short view would keep
/// much memory.
const SHARED_BYTES_MIN: usize = 2 * 1024;

/// A stream writes so many bytes in its turn.
const WRITE_BYTES: usize = 16 * 1024;

/// A queue of so many bytes, in so many pieces, is gathered into one piece.
const GATHERED_BYTES_MAX: usize = 1024;
const GATHERED_PARTS_MAX: usize = 8;
