//! Received bytes, decoded, kept and released: `Input`, `Scratch`, `Slice` and `Pool`.

use bytes::Bytes;
use tidegate_buffer::{HEADROOM_BYTES, Input, Pool, RECEIVE_BYTES_MAX, SEGMENT_BYTES, Scratch, Slice};

use crate::support::bytes;

pub(crate) fn receive(scratch: &mut Scratch, bytes: &[u8]) -> Slice {
    scratch.space(bytes.len()).copy_from_slice(bytes);
    scratch.received(bytes.len())
}

/// Bytes that the pool has given out.
pub(crate) fn used(pool: &Pool) -> usize {
    pool.ledger().used()
}

#[test]
fn an_input_without_bytes_uses_no_memory() {
    let pool = Pool::new();
    let mut input = Input::new();
    assert_eq!((input.memory_bytes(), input.len(), input.bytes()), (0, 0, &b""[..]));
    input.append(pool.copy(b"bytes"), &pool);
    input.consume(5);
    input.compact(&pool);
    assert_eq!((input.memory_bytes(), used(&pool)), (0, 0));
    assert_eq!(&*input.take(0), b"");
    assert_eq!(used(&pool), 0);
}

#[test]
fn an_empty_input_becomes_a_view_of_received_bytes() {
    let pool = Pool::new();
    let mut scratch = Scratch::new(&pool);
    let mut input = Input::new();
    let received = receive(&mut scratch, b"GET / HTTP/1.1\r\n");
    let at = received.as_ptr();
    input.append(received, &pool);
    assert_eq!(input.bytes().as_ptr(), at);
}

#[test]
fn a_short_rest_is_put_before_the_next_received_bytes() {
    let pool = Pool::new();
    let mut scratch = Scratch::new(&pool);
    let short = [1, 100, 4_095].map(|rest| (rest, 1000));
    let shorter = [4_096, HEADROOM_BYTES - 1].map(|rest| (rest, rest));
    for (rest, length) in short.into_iter().chain(shorter) {
        let mut input = Input::new();
        input.append(receive(&mut scratch, &bytes(1, rest)), &pool);
        input.compact(&pool);
        let more = receive(&mut scratch, &bytes(2, length));
        let at = more.as_ptr();
        input.append(more, &pool);
        assert_eq!(input.bytes(), [bytes(1, rest), bytes(2, length)].concat());
        assert_eq!(input.bytes()[rest..].as_ptr(), at, "nothing that was received moves");
    }
}

#[test]
fn a_rest_as_long_as_the_headroom_or_longer_is_joined_elsewhere() {
    let pool = Pool::new();
    let mut scratch = Scratch::new(&pool);
    for rest in [HEADROOM_BYTES, HEADROOM_BYTES + 1, 60_000] {
        let mut input = Input::new();
        input.append(receive(&mut scratch, &bytes(1, rest)), &pool);
        input.compact(&pool);
        input.append(receive(&mut scratch, &bytes(2, 1000)), &pool);
        assert_eq!(input.bytes(), [bytes(1, rest), bytes(2, 1000)].concat());
    }
}

#[test]
fn a_message_that_trickles_in_is_not_copied_with_each_piece() {
    let pool = Pool::new();
    let mut scratch = Scratch::new(&pool);
    let mut input = Input::new();
    let before = pool.ledger().copied_bytes();
    for index in 0..16_000 {
        input.append(receive(&mut scratch, &bytes(index, 1)), &pool);
        input.compact(&pool);
    }
    assert_eq!(input.len(), 16_000);
    // Twice with each piece up to 4 KiB.
    let copied = pool.ledger().copied_bytes().zip(before).map_or(0, |(now, before)| now - before);
    assert!(copied < 18 << 20, "{copied} bytes were copied for 16,000");
}

/// A spare block may be longer than the requested length: the input keeps it all the same.
#[test]
fn a_message_that_trickles_into_a_spare_block_is_not_copied_with_each_piece() {
    let pool = Pool::new();
    let mut scratch = Scratch::new(&pool);
    let mut input = Input::new();
    drop(pool.segment_for(67_000));
    input.append(pool.copy(&bytes(1, 30_000)), &pool);
    let before = pool.ledger().copied_bytes();
    for index in 0..375 {
        input.append(receive(&mut scratch, &bytes(index, 8)), &pool);
        input.compact(&pool);
    }
    assert_eq!(input.len(), 33_000);
    let copied = pool.ledger().copied_bytes().zip(before).map_or(0, |(now, before)| now - before);
    assert!(copied < 100_000, "{copied} bytes were copied for 33,000");
}

#[test]
fn a_reservation_is_kept_until_the_rest_comes() {
    for (length, spare) in [(30_000, None), (40_000, Some(90_000)), (50_001, None), (60_007, Some(135_000))] {
        let pool = Pool::new();
        let mut input = Input::new();
        spare.into_iter().for_each(|bytes| drop(pool.segment_for(bytes)));
        input.append(pool.copy(&bytes(1, length)), &pool);
        let total = 2 * length + 256;
        input.reserve(total, &pool);
        assert!(input.memory_bytes() >= total);
        let place = input.bytes().as_ptr();
        input.compact(&pool);
        assert_eq!(input.bytes().as_ptr(), place, "{length} bytes, with a spare block of {spare:?}");
    }
}

#[test]
fn the_headroom_serves_once_for_each_receive() {
    let pool = Pool::new();
    let mut scratch = Scratch::new(&pool);
    let (mut first, mut second) = (Input::new(), Input::new());
    first.append(pool.copy(b"first "), &pool);
    second.append(pool.copy(b"second "), &pool);
    let received = receive(&mut scratch, b"bytes");
    first.append(received.clone(), &pool);
    second.append(received, &pool);
    assert_eq!((first.bytes(), second.bytes()), (&b"first bytes"[..], &b"second bytes"[..]));
}

#[test]
fn a_message_in_many_pieces_is_copied_a_linear_number_of_times() {
    let pool = Pool::new();
    let mut input = Input::new();
    let (mut moves, mut at) = (0, input.bytes().as_ptr());
    for index in 0..10_000 {
        input.append(pool.copy(&bytes(index, 100)), &pool);
        if input.bytes().as_ptr() != at {
            (moves, at) = (moves + 1, input.bytes().as_ptr());
        }
    }
    assert_eq!(input.len(), 1_000_000);
    assert!(moves < 25, "{moves} moves for a megabyte in pieces of 100 bytes");
    assert!(input.memory_bytes() <= 2 * input.len());
}

#[test]
fn unread_bytes_compact_into_memory_of_their_size() {
    let pool = Pool::new();
    let mut scratch = Scratch::new(&pool);
    for left in [1, 7, 100, 1500, 3500, 10_000] {
        let mut input = Input::new();
        input.append(receive(&mut scratch, &bytes(3, 20_000)), &pool);
        input.consume(20_000 - left);
        input.compact(&pool);
        assert_eq!(input.bytes(), &bytes(3, 20_000)[20_000 - left..]);
        assert!(input.memory_bytes() < left * 4 / 3 + 8, "{} bytes held for {left}", input.memory_bytes());
        let own = input.bytes().as_ptr();
        input.compact(&pool);
        assert_eq!(input.bytes().as_ptr(), own, "settled bytes stay");
    }
}

#[test]
fn a_segment_too_large_for_the_unread_bytes_is_released() {
    let pool = Pool::new();
    let mut input = Input::new();
    input.append(pool.copy(&bytes(1, 100_000)), &pool);
    input.consume(45_000);
    input.compact(&pool);
    assert!(input.memory_bytes() >= 100_000, "a copy of the rest is not worth it");
    input.consume(54_990);
    input.compact(&pool);
    assert_eq!((input.bytes(), input.memory_bytes()), (&bytes(1, 100_000)[99_990..], 16));
}

#[test]
fn compacted_bytes_survive_the_next_receive() {
    let pool = Pool::new();
    let mut scratch = Scratch::new(&pool);
    let mut inputs: Vec<_> = (0..100).map(|_| Input::new()).collect();
    for round in 0..5 {
        for (index, input) in inputs.iter_mut().enumerate() {
            input.append(receive(&mut scratch, &bytes(index, 30)[round * 6..round * 6 + 6]), &pool);
            input.compact(&pool);
        }
    }
    for (index, input) in inputs.iter_mut().enumerate() {
        assert_eq!(*input.take_all(), bytes(index, 30));
    }
}

#[test]
fn the_scratch_is_reused_while_no_view_exists() {
    let pool = Pool::new();
    let mut scratch = Scratch::new(&pool);
    let at = scratch.space(10).as_ptr();
    for index in 0..10 {
        drop(receive(&mut scratch, &bytes(index, 1000)));
        assert_eq!(scratch.space(10).as_ptr(), at);
    }
    let before = used(&pool);
    let kept = receive(&mut scratch, b"kept").slice(1..3);
    assert_ne!(scratch.space(10).as_ptr(), at, "a view of it exists");
    scratch.space(10).fill(0);
    assert_eq!(&*kept, b"ep");
    assert_eq!(used(&pool), 2 * before);
    drop(kept);
    assert_eq!(used(&pool), before);
    scratch.release();
    assert_eq!(used(&pool), 0);
}

#[test]
fn a_scratch_gives_no_more_space_than_the_largest_receive() {
    let mut scratch = Scratch::new(&Pool::new());
    assert_eq!(scratch.space(usize::MAX).len(), RECEIVE_BYTES_MAX);
    scratch.space(RECEIVE_BYTES_MAX).fill(7);
    assert_eq!(*scratch.received(RECEIVE_BYTES_MAX), [7; RECEIVE_BYTES_MAX]);
}

#[test]
#[should_panic(expected = "received 11 bytes in a space of 10")]
fn bytes_of_another_connection_in_the_scratch_do_not_show() {
    let mut scratch = Scratch::new(&Pool::new());
    drop(receive(&mut scratch, b"a secret of somebody else"));
    scratch.space(10);
    let _ = scratch.received(11);
}

#[test]
fn a_hundred_bytes_never_pin_a_scratch() {
    let pool = Pool::new();
    let mut scratch = Scratch::new(&pool);
    let received = receive(&mut scratch, &bytes(1, 10_000));
    let at = received.as_ptr();
    let kept = received.slice(50..150).detach();
    drop(received);
    assert_eq!(*kept, bytes(1, 10_000)[50..150]);
    assert_eq!(scratch.space(1).as_ptr(), at);
    scratch.release();
    assert!(used(&pool) < 200, "{} bytes kept for a hundred", used(&pool));
}

#[test]
fn a_view_of_a_sixteenth_of_its_segment_is_kept_and_a_smaller_one_copied() {
    let pool = Pool::new();
    let whole = pool.copy(&[1; 16_000]);
    assert_eq!(whole.slice(..1000).detach().as_ptr(), whole.as_ptr());
    assert_ne!(whole.slice(..999).detach().as_ptr(), whole.as_ptr());
    let nothing = whole.slice(5..5).detach();
    drop(whole);
    assert!(nothing.is_empty());
    assert!(used(&pool) < 64, "nothing pins nothing");
}

#[test]
fn a_slice_of_a_slice_is_that_part_of_it() {
    let slice = Pool::new().copy(b"0123456789");
    assert_eq!(&*slice.slice(2..=4), b"234");
    assert_eq!(&*slice.slice(..3), b"012");
    assert_eq!(&*slice.slice(3..).slice(1..2), b"4");
    let mut rest = slice.slice(8..);
    rest.advance(1);
    assert_eq!((&*rest, rest.len()), (&b"9"[..], 1));
    rest.advance(1);
    assert!(rest.is_empty());
    assert_eq!(slice.slice(1..4).to_bytes(), Bytes::from_static(b"123"));
}

#[test]
fn ranges_outside_a_slice_are_refused() {
    let slice = Pool::new().copy(b"0123456789");
    let part = slice.slice(2..5);
    for refused in [
        std::panic::catch_unwind(|| Pool::new().copy(b"x").slice(..2)),
        std::panic::catch_unwind(|| Pool::new().copy(b"x").slice(..=usize::MAX)),
        std::panic::catch_unwind(|| Pool::new().copy(b"x").slice(2..)),
    ] {
        assert!(refused.is_err());
    }
    assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| part.slice(..4))).is_err(), "not beyond a view");
    assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| part.clone().advance(4))).is_err());
}

#[test]
#[should_panic(expected = "segments are at most 4 GiB")]
fn a_segment_beyond_4_gib_is_refused_before_it_is_allocated() {
    let _ = Pool::new().segment_for(usize::MAX);
}

#[test]
fn segments_are_sized_for_their_content() {
    let pool = Pool::new();
    for (wanted, capacity) in [(0, 0), (1, 8), (100, 104), (3000, 3000), (4000, SEGMENT_BYTES), (5001, 5008)] {
        let segment = pool.segment_for(wanted);
        assert_eq!((segment.capacity(), segment.filled(), segment.is_unique()), (capacity, 0, true));
    }
    assert_eq!(used(&pool), 0);
}

#[test]
fn a_segment_lives_as_long_as_a_view_of_it_even_when_the_pool_is_gone() {
    let pool = Pool::new();
    let slice = pool.copy(&bytes(1, SEGMENT_BYTES));
    let (part, other) = (slice.slice(4000..), slice.clone());
    drop(slice);
    drop(pool);
    drop(other);
    assert_eq!(*part, bytes(1, SEGMENT_BYTES)[4000..]);
}

#[test]
fn a_pool_keeps_a_quarter_of_a_mib_and_trims_by_half() {
    let pool = Pool::new();
    let segments: Vec<_> = (0..500).map(|_| pool.segment()).collect();
    assert_eq!(used(&pool), 500 * 4096);
    drop(segments);
    assert_eq!((used(&pool), pool.spare_bytes()), (0, 256 * 1024));
    pool.trim();
    assert_eq!(pool.spare_bytes(), 128 * 1024);
    let again = pool.segment();
    assert_eq!(pool.spare_bytes(), 128 * 1024 - 4096);
    drop(again);
    assert_eq!(pool.spare_bytes(), 128 * 1024);
}

#[test]
fn long_blocks_are_used_again_and_few_are_kept() {
    let pool = Pool::new();
    let place = |length| pool.copy(&vec![7; length]).as_ptr();
    let first = place(64 * 1024);
    assert_eq!(place(64 * 1024), first);
    assert_eq!(place(60 * 1024), first, "a block may be an eighth longer");
    assert_ne!(place(50 * 1024), first);
    assert_ne!(place(70 * 1024), first);
    let many: Vec<_> = (0..100).map(|_| pool.copy(&vec![7; 64 * 1024])).collect();
    drop(many);
    assert!((900 * 1024..=1024 * 1024).contains(&pool.spare_bytes()), "{} bytes are kept", pool.spare_bytes());
    drop(pool.copy(&vec![7; 200 * 1024]));
    assert!(pool.spare_bytes() <= 1024 * 1024, "longer ones are not kept");
    pool.trim();
    assert_eq!((used(&pool), pool.spare_bytes()), (0, 0));
}

#[test]
fn the_ledger_knows_when_the_budget_is_used_up() {
    let pool = Pool::new();
    pool.ledger().set_budget(2 * 4096);
    let first = pool.segment();
    assert!(!pool.ledger().is_exhausted());
    let second = pool.segment();
    assert!(pool.ledger().is_exhausted());
    drop(first);
    assert!(!pool.ledger().is_exhausted());
    drop(second);
}

#[test]
fn a_small_message_that_escapes_does_not_keep_the_scratch() {
    let pool = Pool::new();
    let mut scratch = Scratch::new(&pool);
    let at = scratch.space(1).as_ptr();
    // In a short batch, at the end of a long one, and behind a rest of the batch before.
    for (batch, rest) in [(100, 0), (60_000, 0), (300, 10), (60_000, 10)] {
        let mut input = Input::new();
        input.set_escaping(true);
        input.append(pool.copy(&bytes(2, rest)), &pool);
        input.append(receive(&mut scratch, &bytes(1, batch)), &pool);
        input.consume(rest + batch - 100);
        let kept = input.take(100);
        assert!(input.is_empty());
        drop(input);
        assert_eq!(scratch.space(1).as_ptr(), at, "{batch} behind {rest}");
        assert_eq!(*kept, bytes(1, batch)[batch - 100..]);
    }
}

#[test]
fn a_large_message_that_escapes_is_shared() {
    let pool = Pool::new();
    let mut scratch = Scratch::new(&pool);
    let mut input = Input::new();
    input.set_escaping(true);
    let received = receive(&mut scratch, &bytes(1, 10_000));
    let at = received.as_ptr();
    input.append(received, &pool);
    let kept = input.take(9_000);
    assert_eq!(kept.as_ptr(), at);
    assert_eq!(*kept, bytes(1, 10_000)[..9_000]);
}

#[test]
fn the_messages_of_a_short_batch_that_escapes_share_one_copy() {
    let pool = Pool::new();
    let mut scratch = Scratch::new(&pool);
    let mut input = Input::new();
    input.set_escaping(true);
    let batch = receive(&mut scratch, &bytes(1, 1600));
    let before = used(&pool);
    input.append(batch, &pool);
    let one_copy = used(&pool) - before;
    assert!(one_copy < 1600 + 64, "right-sized");
    let kept: Vec<_> = (0..16).map(|_| input.take(100)).collect();
    assert_eq!(used(&pool) - before, one_copy);
    assert_eq!(kept[3].as_ptr(), kept[0].as_ptr().wrapping_add(300));
    assert_eq!(*kept[15], bytes(1, 1600)[1500..]);
}

#[test]
fn a_few_bytes_of_a_small_batch_that_escapes_do_not_keep_it() {
    let pool = Pool::new();
    let mut scratch = Scratch::new(&pool);
    let mut input = Input::new();
    input.set_escaping(true);
    for length in [0, 1, 20] {
        let batch = receive(&mut scratch, &bytes(1, 400));
        let before = used(&pool);
        input.append(batch, &pool);
        let kept = input.take(length);
        assert_eq!(*kept, bytes(1, length));
        input.consume(400 - length);
        input.compact(&pool);
        assert!(used(&pool) - before <= length + 64, "{} for {length}", used(&pool) - before);
    }
}

#[test]
fn an_input_that_does_not_escape_copies_nothing() {
    let pool = Pool::new();
    let mut scratch = Scratch::new(&pool);
    let mut input = Input::new();
    input.set_escaping(true);
    input.set_escaping(false);
    let received = receive(&mut scratch, &bytes(1, 50));
    let at = received.as_ptr();
    input.append(received, &pool);
    assert_eq!(input.take(1).as_ptr(), at);
}

#[test]
fn whether_an_input_escapes_stays_whatever_happens_to_its_bytes() {
    let pool = Pool::new();
    let mut scratch = Scratch::new(&pool);
    for on in [false, true] {
        let mut input = Input::new();
        input.set_escaping(on);
        let stays = |input: &Input, after: &str| assert_eq!(input.is_escaping(), on, "{after}");
        input.compact(&pool);
        stays(&input, "settled without bytes");
        input.append(receive(&mut scratch, &bytes(1, 50_000)), &pool);
        stays(&input, "a view");
        input.consume(49_990);
        input.compact(&pool);
        stays(&input, "settled");
        input.append(receive(&mut scratch, &bytes(2, 50_000)), &pool);
        stays(&input, "put before");
        input.compact(&pool);
        input.append(pool.copy(&bytes(3, 1000)), &pool);
        input.append(pool.copy(&bytes(4, 1000)), &pool);
        stays(&input, "grown, and grown in place");
        let expected = [&bytes(1, 50_000)[49_990..], &bytes(2, 50_000), &bytes(3, 1000), &bytes(4, 1000)].concat();
        assert_eq!((input.len(), input.bytes()), (expected.len(), &expected[..]));
        assert_eq!(*input.take_all(), expected);
        assert!(input.is_empty() && input.bytes().is_empty());
        stays(&input, "all taken");
        input.compact(&pool);
        stays(&input, "settled empty");
        assert_eq!((input.len(), input.memory_bytes()), (0, 0));
        let taken = std::mem::take(&mut input);
        stays(&taken, "taken");
        assert!(!input.is_escaping(), "off by default");
    }
}

#[test]
fn a_long_message_that_escapes_is_copied_a_linear_number_of_times() {
    let pool = Pool::new();
    let mut scratch = Scratch::new(&pool);
    let mut input = Input::new();
    input.set_escaping(true);
    let (mut moves, mut at) = (0, input.bytes().as_ptr());
    for index in 0..10_000 {
        input.append(receive(&mut scratch, &bytes(index, 100)), &pool);
        input.compact(&pool);
        if input.bytes().as_ptr() != at {
            (moves, at) = (moves + 1, input.bytes().as_ptr());
        }
    }
    assert_eq!(input.len(), 1_000_000);
    assert!(moves < 80, "{moves} moves for a megabyte in pieces of 100 bytes");
}

/// Decodes a frame in place, as a filter does: `length` bytes between a header and a trailer of `edge` bytes.
fn open(wire: &mut Input, plain: &mut Input, edge: usize, length: usize, pool: &Pool) {
    wire.bytes_mut().expect("nothing else shows these bytes")[edge..edge + length]
        .iter_mut()
        .for_each(|byte| *byte ^= 1);
    wire.move_to(edge..edge + length, plain, pool);
    wire.consume(edge);
}

#[test]
fn frames_are_decoded_in_place_although_views_of_earlier_ones_live() {
    let pool = Pool::new();
    let mut scratch = Scratch::new(&pool);
    let (mut wire, mut plain, mut kept) = (Input::new(), Input::new(), Vec::new());
    let before = pool.ledger().copied_bytes();
    let received = bytes(1, 60_000);
    wire.append(receive(&mut scratch, &received), &pool);
    let at = wire.bytes().as_ptr();
    for frame in 0..6 {
        open(&mut wire, &mut plain, 10, 9_980, &pool);
        assert_eq!(plain.bytes().as_ptr(), at.wrapping_add(frame * 10_000 + 10));
        assert!(plain.bytes_mut().is_some(), "a filter above can decode in place as well");
        kept.push(plain.take_all());
    }
    assert!(wire.is_empty());
    for (view, frame) in kept.iter().zip(received.chunks(10_000)) {
        assert!(view.iter().eq(frame[10..9_990].iter().map(|byte| byte ^ 1).collect::<Vec<_>>().iter()));
    }
    assert_eq!(pool.ledger().copied_bytes(), before, "nothing was copied");
}

#[test]
fn bytes_with_another_view_are_not_exclusive_and_are_copied_once() {
    let pool = Pool::new();
    let mut scratch = Scratch::new(&pool);
    let received = receive(&mut scratch, &bytes(1, 3_000));
    let (mut first, mut second) = (Input::new(), Input::new());
    first.append(received.clone(), &pool);
    assert!(first.bytes_mut().is_none(), "the view itself lives");
    second.append(received, &pool);
    assert!(first.bytes_mut().is_none() && second.bytes_mut().is_none());
    let before = pool.ledger().copied_bytes();
    first.make_mut(&pool).fill(0);
    first.make_mut(&pool).fill(1);
    assert_eq!(second.bytes(), bytes(1, 3_000));
    assert_eq!(first.bytes(), [1; 3_000]);
    let copied = pool.ledger().copied_bytes().zip(before).map(|(now, before)| now - before);
    assert!(copied.is_none_or(|copied| copied == 3_000), "{copied:?} bytes copied");
    assert!(second.bytes_mut().is_some(), "it is the only view now");
}

#[test]
fn a_view_that_outlives_its_scratch_counts() {
    let pool = Pool::new();
    let mut scratch = Scratch::new(&pool);
    let received = receive(&mut scratch, &bytes(1, 100));
    let kept = received.clone();
    let mut input = Input::new();
    input.append(received, &pool);
    // The scratch takes other memory, so that two holders are left: the input and the view.
    scratch.space(1);
    assert!(input.bytes_mut().is_none());
    drop(kept);
    assert!(input.bytes_mut().is_some());
    drop(scratch);
    assert!(input.bytes_mut().is_some());
}

#[test]
fn bytes_that_join_exclusive_ones_may_have_other_views() {
    let pool = Pool::new();
    let mut scratch = Scratch::new(&pool);
    let mut input = Input::new();
    input.append(pool.copy(b"rest"), &pool);
    assert!(input.bytes_mut().is_some());
    let received = receive(&mut scratch, b" and more");
    let kept = received.clone();
    input.append(received, &pool);
    assert!(input.bytes_mut().is_none(), "put before bytes that have another view");
    input.make_mut(&pool).make_ascii_uppercase();
    assert_eq!((input.bytes(), &*kept), (&b"REST AND MORE"[..], &b" and more"[..]));
    input.consume(input.len());
    input.append(kept.clone(), &pool);
    assert!(input.bytes_mut().is_none(), "a view of them");
}

#[test]
#[should_panic(expected = "1..4 of 3 bytes")]
fn a_range_beyond_the_unread_bytes_is_refused() {
    let pool = Pool::new();
    let mut input = Input::new();
    input.append(pool.copy(b"ebb"), &pool);
    input.move_to(1..4, &mut Input::new(), &pool);
}

#[test]
fn an_empty_input_is_exclusive_whatever_views_its_segment_has() {
    let pool = Pool::new();
    let mut input = Input::new();
    input.append(pool.copy(b"ebb"), &pool);
    let kept = input.take_all();
    assert_eq!(input.bytes_mut(), Some(&mut [][..]));
    let used = pool.ledger().used();
    assert!(input.make_mut(&pool).is_empty());
    assert_eq!((pool.ledger().used(), &*kept), (used, &b"ebb"[..]));
}

#[test]
fn a_scratch_needs_no_headroom() {
    let pool = Pool::new();
    for room in [1, 8, 99, 3_500, 16_856] {
        let mut scratch = Scratch::with_room(&pool, 0, room);
        let mut input = Input::new();
        input.append(pool.copy(b"rest "), &pool);
        input.append(receive(&mut scratch, &bytes(1, room)), &pool);
        input.compact(&pool);
        assert_eq!(input.take(5), pool.copy(b"rest "));
        assert_eq!(input.take_all(), pool.copy(&bytes(1, room)));
        input.append(receive(&mut scratch, &bytes(2, room)), &pool);
        assert!(input.bytes_mut().is_some());
        scratch.release();
        let kept = input.take(1);
        input.append(pool.copy(b"more"), &pool);
        assert!(input.bytes_mut().is_some() || room == 1);
        assert_eq!(*kept, bytes(2, room)[..1]);
        assert_eq!(input.bytes(), [&bytes(2, room)[1..], b"more"].concat());
        drop((scratch, input, kept));
    }
    assert_eq!(used(&pool), 0);
}

#[test]
fn a_filled_space_keeps_memory_for_written_bytes_and_none_after_an_error() {
    let pool = Pool::new();
    for length in [0, 1, 100, SEGMENT_BYTES, 5000, 16 * 1024, 100_000] {
        for count in [0, length / 10, length / 2, length] {
            let filled = pool.fill(length, |space| {
                assert_eq!(space.len(), length);
                space[..count].fill(7);
                Ok::<_, ()>(count)
            });
            let filled = filled.expect("nothing fails");
            assert!(filled.len() == count && filled.iter().all(|byte| *byte == 7), "{count} of {length}");
            assert!(used(&pool) <= 4 * count + 1024, "{count} of {length}: {}", used(&pool));
            drop(filled);
            assert_eq!(pool.fill(length, |_| Err("it fails")).err(), Some("it fails"));
            assert_eq!(used(&pool), 0);
        }
    }
}

#[test]
#[should_panic(expected = "a scratch has at most 1 GiB")]
fn a_scratch_whose_length_overflows_is_refused() {
    let _ = Scratch::with_room(&Pool::new(), usize::MAX, 100);
}
