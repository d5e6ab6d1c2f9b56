//! One copy for several messages of a long batch: a [`Run`] of the pool.
//!
//! An escaping [`Input`](crate::Input) may not hand out views of the scratch: the application may keep them. Where it
//! takes a short message of a long batch, it copies that message together with the bytes behind it, and the messages
//! that it takes next are views of the same copy. The bound of an escaping input holds: a message never keeps more than
//! sixteen times its own bytes.
//!
//! A pool has one run at a time. It ends with the dispatch, before the scratch is used again: until then it keeps the
//! scratch, whose bytes therefore cannot change.

use crate::pool::{Pool, Run};
use crate::segment::{SEGMENT_BYTES, Segment};
use crate::slice::{DETACHED_PART, Slice};

/// A view of `count` bytes that lie in a scratch from `start` on, with `left` unread ones behind them, as
/// [`Slice::detach`] returns it.
#[inline]
pub(crate) fn detached(scratch: &Segment, start: usize, count: usize, left: usize) -> (Segment, usize) {
    let found = scratch.pool().run.borrow().as_ref().and_then(|run| run.find(scratch, start, count));
    found.unwrap_or_else(|| begin(scratch, start, count, left))
}

#[cold]
fn begin(scratch: &Segment, start: usize, count: usize, left: usize) -> (Segment, usize) {
    let length = run_bytes(count).min(count + left);
    if length < RUN_MESSAGES_MIN * count {
        let (segment, start, _) = Slice::new(scratch.clone(), start, count).detach().into_parts();
        return (segment, start);
    }
    let pool = Pool::of(scratch);
    let copy = pool.segment_for(length);
    copy.append(scratch.view(start, start + length));
    pool.begin_run(Run { source: scratch.clone(), start, copy: copy.clone() });
    (copy, 0)
}

/// The bytes that are copied with a first message of `count` bytes: as many as messages of this size may keep, at most
/// a segment of the recycled class, and no number for which a pool takes a segment of that class although it is larger.
fn run_bytes(count: usize) -> usize {
    match DETACHED_PART * count {
        all if all >= SEGMENT_BYTES => SEGMENT_BYTES,
        all => all.min(SEGMENT_BYTES / 2),
    }
}

/// A run for fewer messages costs more than it saves.
const RUN_MESSAGES_MIN: usize = 2;

#[cfg(test)]
mod tests {
    use crate::{Input, Pool, Scratch};

    /// An escaping input with `count` messages of `length` bytes, each filled with its number, in the scratch.
    fn batch(scratch: &mut Scratch, pool: &Pool, count: usize, length: usize) -> Input {
        let bytes: Vec<u8> = (0..count).flat_map(|number| vec![number as u8; length]).collect();
        scratch.space(bytes.len()).copy_from_slice(&bytes);
        let mut input = Input::new();
        input.set_escaping(true);
        input.append(scratch.received(bytes.len()), pool);
        input
    }

    #[test]
    fn messages_of_a_long_batch_are_views_of_few_copies() {
        for length in [8, 100, 165, 190, 253, 254, 300, 2_000, 4_000] {
            let pool = Pool::new();
            let mut scratch = Scratch::new(&pool);
            let count = 40_000 / length;
            let mut input = batch(&mut scratch, &pool, count, length);
            let before = pool.ledger().used();
            let kept: Vec<_> = (0..count).map(|_| input.take(length)).collect();
            for (number, message) in kept.iter().enumerate() {
                assert_eq!(**message, vec![number as u8; length], "message {number} of {length} bytes");
            }
            let bound = 16 * length + crate::slice::SHARED_BYTES;
            assert!(kept.iter().all(|message| message.segment().capacity() <= bound), "{length} bytes");
            let copies = pool.ledger().used() - before;
            // Apart from the overhead of a segment for each message.
            assert!(
                copies <= count * (length + 8) + 5_000 * (1 + count * length / 2_000),
                "{copies} for {length} bytes"
            );
        }
    }

    #[test]
    fn messages_of_other_lengths_share_a_copy_only_within_the_bound() {
        let pool = Pool::new();
        let mut scratch = Scratch::new(&pool);
        let mut input = batch(&mut scratch, &pool, 200, 200);
        let lengths = [200, 10, 190, 150, 50, 3, 197, 2_000, 600];
        let mut at = 0;
        for length in lengths.into_iter().cycle().take(90) {
            if length > input.len() {
                break;
            }
            let message = input.take(length);
            let expected: Vec<u8> = (at..at + length).map(|byte| (byte / 200) as u8).collect();
            assert_eq!(*message, *expected, "{length} bytes at {at}");
            assert!(message.segment().capacity() <= 16 * length + 24, "{length} bytes at {at}");
            at += length;
        }
        assert!(at > 10_000);
    }

    #[test]
    fn a_run_ends_with_the_dispatch_and_the_scratch_is_used_again() {
        let pool = Pool::new();
        let mut scratch = Scratch::new(&pool);
        let mut input = batch(&mut scratch, &pool, 100, 100);
        let idle = pool.ledger().used();
        let place = scratch.received(0).as_ptr();
        let kept = input.take(100);
        drop(input.take_all());
        assert!(pool.ledger().used() > idle);
        input.compact(&pool);
        assert_eq!(*kept, [0; 100]);
        drop(kept);
        assert_eq!(pool.ledger().used(), idle, "the copy is gone");
        assert_eq!(scratch.space(10).as_ptr(), place, "the scratch is free again");
    }

    #[test]
    fn messages_of_the_next_batch_are_not_those_of_the_last() {
        let pool = Pool::new();
        let mut scratch = Scratch::new(&pool);
        let mut first = batch(&mut scratch, &pool, 100, 100);
        let kept = first.take(100);
        // The connection is gone without the end of a dispatch.
        drop(first);
        scratch.space(10_000).fill(b'x');
        let mut second = Input::new();
        second.set_escaping(true);
        second.append(scratch.received(10_000), &pool);
        assert_eq!((&*kept, &*second.take(100)), (&[0; 100][..], &[b'x'; 100][..]));
    }

    #[test]
    fn bytes_that_are_decoded_in_place_are_not_those_of_an_earlier_copy() {
        let pool = Pool::new();
        let mut scratch = Scratch::new(&pool);
        let mut input = batch(&mut scratch, &pool, 100, 100);
        let kept = input.take(100);
        input.bytes_mut().expect("no other view of the unread bytes exists").fill(b'x');
        assert_eq!((&*kept, &*input.take(100)), (&[0; 100][..], &[b'x'; 100][..]));
    }

    #[test]
    fn a_run_does_not_keep_its_pool() {
        let pool = Pool::new();
        let mut scratch = Scratch::new(&pool);
        let mut input = batch(&mut scratch, &pool, 100, 100);
        drop(input.take(100));
        drop(input);
        drop(scratch);
        assert_eq!(pool.ledger().used(), 0);
    }
}
