//! The outbound queue's memory: its cost, its sharing, and its release, once.

use std::panic::{AssertUnwindSafe, catch_unwind};

use bytes::Bytes;
use tidegate_buffer::{
    ENTRY_BYTES, LARGE_SEGMENT_BYTES, LINK_BYTES_MIN, Outbound, Pool, RECEIVE_BYTES_MAX, SEGMENT_BYTES, Scratch,
};

use crate::support::{Call, PARTS, bytes, entries, file, gather, read, region, send, send_all};

/// Something that puts bytes into a queue.
type Write<'a> = dyn Fn(&mut Outbound) + 'a;

/// The charge of a segment of `capacity` bytes.
fn segment_cost(pool: &Pool, capacity: usize) -> usize {
    let before = pool.ledger().used();
    let segment = pool.segment_for(capacity);
    let cost = pool.ledger().used() - before;
    drop(segment);
    cost
}

#[test]
#[cfg_attr(tidegate_queue = "array", ignore = "it is about memory outside of the connection")]
fn an_empty_queue_uses_no_heap() {
    let pool = Pool::new();
    let mut queue = Outbound::new(&pool);
    assert!(size_of_val(&queue) <= 40);
    assert_eq!((pool.ledger().used(), pool.spare_bytes()), (0, 0));
    queue.write(b"something");
    queue.flush();
    send_all(&mut queue, usize::MAX);
    assert_eq!((pool.ledger().used(), queue.cost()), (0, 0));
    pool.trim();
    assert_eq!(pool.spare_bytes(), 0, "the rest belongs to the pool, and goes");
}

#[test]
#[cfg_attr(any(tidegate_queue = "array", tidegate_queue = "linked"), ignore = "it is about our layout")]
fn a_few_bytes_alone_compact_into_memory_of_their_size() {
    let pool = Pool::new();
    let mut scratch = Scratch::new(&pool);
    scratch.space(RECEIVE_BYTES_MAX).fill(b'x');
    let received = scratch.received(1000);
    let before = pool.ledger().used();
    let writes: [(&str, usize, &Write<'_>); 2] = [
        ("copied", 200, &|queue| queue.write(&[b'x'; 200])),
        ("linked", 1000, &|queue| queue.link_shared(received.clone())),
    ];
    for (what, length, write) in writes {
        let mut queue = Outbound::new(&pool);
        write(&mut queue);
        queue.compact();
        queue.flush();
        queue.compact();
        let (settled, lent) = (pool.ledger().used() - before, queue.lend(1));
        assert_eq!(settled, segment_cost(&pool, length) + queue.cost() as usize - length, "{what}");
        queue.compact();
        assert_eq!(pool.ledger().used() - before, settled, "{what}: it is where it is");
        queue.write(b"more");
        queue.flush();
        let all = [&vec![b'x'; length][..], b"more"].concat();
        assert_eq!(send_all(&mut queue, usize::MAX), all, "{what}");
        drop(lent);
        assert_eq!(pool.ledger().used(), before, "{what}");
    }
}

#[test]
fn large_shared_or_unflushed_bytes_are_not_compacted() {
    let pool = Pool::new();
    let writes: [(&str, &Write<'_>); 5] = [
        ("nothing", &|_| ()),
        ("much", &|queue| queue.write(&[b'x'; 300])),
        ("shared bytes", &|queue| queue.link_bytes(Bytes::from(vec![7; LINK_BYTES_MIN]))),
        ("a file", &|queue| queue.link_file(region(&file(b"shore"), 0, 5))),
        ("with more to come", &|queue| {
            queue.write(b"some");
            queue.flush();
            queue.link_static(&[b'x'; LINK_BYTES_MIN]);
        }),
    ];
    for (what, write) in writes {
        let mut queue = Outbound::new(&pool);
        write(&mut queue);
        if what != "with more to come" {
            queue.flush();
        }
        let before = pool.ledger().used();
        queue.compact();
        assert_eq!(pool.ledger().used(), before, "{what}");
    }
}

#[test]
#[cfg_attr(any(tidegate_queue = "array", tidegate_queue = "linked"), ignore = "it is about our layout")]
fn heads_that_wait_between_linked_bodies_leave_their_page() {
    let pool = Pool::new();
    for more in [false, true] {
        let mut queue = Outbound::new(&pool);
        let mut expected = Vec::new();
        for _ in 0..4 {
            queue.write(&[b'h'; 130]);
            queue.link_static(&[b'b'; LINK_BYTES_MIN]);
            expected.extend([[b'h'; 130].as_slice(), &[b'b'; LINK_BYTES_MIN]].concat());
        }
        queue.flush();
        queue.advance(100);
        expected.drain(..100);
        let lent = queue.lend(9);
        queue.shrink();
        drop(lent);
        let used = pool.ledger().used();
        assert!(used < segment_cost(&pool, 420) + 9 * ENTRY_BYTES + 8, "{used}");
        queue.shrink();
        assert_eq!(pool.ledger().used(), used, "bytes that have left stay in place");
        if more {
            queue.write(&[b'm'; 100]);
            queue.flush();
            expected.extend([b'm'; 100]);
        }
        assert_eq!(send_all(&mut queue, usize::MAX), expected);
        drop(queue);
        assert_eq!(pool.ledger().used(), 0);
    }
}

#[test]
#[cfg_attr(any(tidegate_queue = "array", tidegate_queue = "linked"), ignore = "it is about our layout")]
fn a_settled_queue_costs_its_entries_and_little_beside_its_bytes() {
    let pool = Pool::new();
    for (what, sent, copied, entries) in [("head and body", 0, 2_000, 2), ("body", 2_000, 0, 1)] {
        let mut queue = Outbound::new(&pool);
        queue.write(&[b'h'; 2_000]);
        queue.link_static(&[b'b'; LINK_BYTES_MIN]);
        queue.flush();
        queue.advance(sent);
        let before = pool.ledger().used();
        assert!(before > SEGMENT_BYTES, "{what}: the rest of the page is there for later writes");
        queue.settle();
        let memory = if copied > 0 { segment_cost(&pool, copied) } else { 0 };
        assert_eq!(pool.ledger().used(), memory + entries * ENTRY_BYTES, "{what}");
        queue.settle();
        assert_eq!(pool.ledger().used(), memory + entries * ENTRY_BYTES, "{what}: it is where it is");
        queue.write(b"more");
        let mut expected = [vec![b'h'; copied], vec![b'b'; LINK_BYTES_MIN]].concat();
        assert_eq!(queue.pending(), expected.len() as u64 + 4);
        queue.settle();
        queue.flush();
        expected.extend(b"more");
        assert_eq!(send_all(&mut queue, usize::MAX), expected, "{what}");
        drop(queue);
        assert_eq!(pool.ledger().used(), 0, "{what}");
    }
}

#[test]
#[cfg_attr(any(tidegate_queue = "array", tidegate_queue = "linked"), ignore = "it is about our layout")]
fn views_of_few_received_bytes_leave_their_segment_when_a_queue_settles() {
    let pool = Pool::new();
    for (parts, leaves) in [(1, true), (4, false)] {
        let mut scratch = Scratch::new(&pool);
        scratch.space(RECEIVE_BYTES_MAX).fill(b'x');
        let received = scratch.received(RECEIVE_BYTES_MAX);
        drop(scratch);
        let mut queue = Outbound::new(&pool);
        for part in 0..parts {
            queue.link_shared(received.slice(part * 16_384..(part + 1) * 16_384));
        }
        drop(received);
        queue.flush();
        let before = pool.ledger().used();
        queue.settle();
        let after = pool.ledger().used();
        assert_eq!(after < before, leaves, "{parts} parts");
        assert!(!leaves || after < 16_384 + 200, "{after} bytes");
        assert_eq!(send_all(&mut queue, usize::MAX), vec![b'x'; parts * 16_384]);
        drop(queue);
        assert_eq!(pool.ledger().used(), 0);
    }
}

#[test]
#[cfg_attr(any(tidegate_queue = "array", tidegate_queue = "linked"), ignore = "it is about our layout")]
fn bytes_that_fill_most_of_their_page_stay_when_a_queue_settles() {
    let pool = Pool::new();
    let mut queue = Outbound::new(&pool);
    queue.write(&[b'x'; SEGMENT_BYTES * 3 / 4 + 1]);
    queue.flush();
    let (before, place) = (pool.ledger().used(), queue.front().map(<[u8]>::as_ptr));
    queue.settle();
    assert_eq!((pool.ledger().used(), queue.front().map(<[u8]>::as_ptr)), (before, place));
}

#[test]
fn full_pages_and_bytes_in_many_entries_are_not_compacted() {
    let pool = Pool::new();
    let writes: [(&str, &Write<'_>); 3] = [
        ("nothing", &|_| ()),
        ("much", &|queue| queue.write(&[b'x'; SEGMENT_BYTES / 3])),
        ("many entries", &|queue| {
            for _ in 0..20 {
                queue.write(b"a head");
                queue.link_static(&[b'x'; LINK_BYTES_MIN]);
            }
        }),
    ];
    for (what, write) in writes {
        let mut queue = Outbound::new(&pool);
        write(&mut queue);
        queue.flush();
        let before = pool.ledger().used();
        queue.shrink();
        assert_eq!(pool.ledger().used(), before, "{what}");
    }
}

#[test]
fn a_queue_without_a_pool_is_one_by_default() {
    let mut queue = Outbound::default();
    queue.link_bytes(Bytes::from(vec![7; LINK_BYTES_MIN]));
    queue.flush();
    assert_eq!(send_all(&mut queue, usize::MAX), [7; LINK_BYTES_MIN]);
}

#[test]
fn the_first_pool_that_is_attached_stays() {
    let (first, second) = (Pool::new(), Pool::new());
    let mut queue = Outbound::default();
    queue.attach(&first);
    queue.attach(&second);
    queue.write(b"bytes");
    assert_eq!((first.ledger().used() > 0, second.ledger().used()), (true, 0));
}

#[test]
fn ten_thousand_queues_share_one_slice_and_each_pays_for_an_entry() {
    let pool = Pool::new();
    let one_segment = segment_cost(&pool, 1024);
    let news = pool.copy(&bytes(1, 1024));
    assert_eq!(pool.ledger().used(), one_segment);
    let mut queues: Vec<_> = (0..10_000).map(|_| Outbound::new(&pool)).collect();
    for queue in &mut queues {
        queue.link_shared(news.clone());
        queue.flush();
    }
    drop(news);
    assert_eq!(pool.ledger().used(), one_segment + 10_000 * ENTRY_BYTES);
    assert_eq!((queues[0].memory_bytes(), queues[0].pending()), (one_segment + ENTRY_BYTES, 1024));
    let at = queues[0].front().map(<[u8]>::as_ptr);
    assert!(queues.iter().all(|queue| queue.front().map(<[u8]>::as_ptr) == at), "no queue has a copy");
    for queue in &mut queues[1..] {
        queue.advance(1024);
    }
    assert_eq!(pool.ledger().used(), one_segment + ENTRY_BYTES);
    assert_eq!(send_all(&mut queues[0], 100), bytes(1, 1024));
    assert_eq!(pool.ledger().used(), 0);
}

#[test]
fn shared_bytes_are_linked_however_short_and_empty_ones_add_nothing() {
    let pool = Pool::new();
    let mut queue = Outbound::new(&pool);
    let whole = pool.copy(&bytes(2, 60_000));
    queue.link_shared(whole.slice(7..7));
    assert_eq!((entries(&queue), queue.written().0, queue.memory_bytes()), (0, 0, 0));
    queue.link_shared(whole.slice(..1));
    queue.write(b"own");
    queue.link_shared(whole.slice(1..2));
    queue.write(b"own");
    queue.flush();
    assert_eq!(queue.front().map(<[u8]>::as_ptr), Some(whole.as_ptr()));
    let before = pool.ledger().used();
    drop(whole);
    assert_eq!(pool.ledger().used(), before, "it is kept alive");
    let mut through = Outbound::new(&pool);
    through.take_flushed(&mut queue);
    through.flush();
    let expected = [&bytes(2, 1)[..], b"own", &bytes(2, 2)[1..], b"own"].concat();
    assert_eq!(send_all(&mut through, usize::MAX), expected);
    assert_eq!(pool.ledger().used(), 0);
}

#[test]
#[cfg_attr(any(tidegate_queue = "array", tidegate_queue = "linked"), ignore = "it is about our layout")]
fn head_linked_body_head_linked_body_share_one_segment() {
    let pool = Pool::new();
    let mut queue = Outbound::new(&pool);
    let body = Bytes::from(bytes(1, LINK_BYTES_MIN));
    for _ in 0..4 {
        queue.write(b"HTTP/1.1 200 OK\r\n\r\n");
        queue.link_bytes(body.clone());
    }
    // Four heads, four bodies, and the rest of the segment.
    assert_eq!(entries(&queue), 9);
    let linked = 4 * LINK_BYTES_MIN + 9 * ENTRY_BYTES;
    assert_eq!(pool.ledger().used(), segment_cost(&pool, SEGMENT_BYTES) + linked, "one segment for all heads");
}

#[test]
#[cfg_attr(any(tidegate_queue = "array", tidegate_queue = "linked"), ignore = "it is about our layout")]
fn bodies_one_behind_the_other_leave_no_rests_between_them() {
    let pool = Pool::new();
    let mut queue = Outbound::new(&pool);
    queue.write(b"head");
    for _ in 0..10 {
        queue.link_bytes(Bytes::from(vec![1; LINK_BYTES_MIN]));
    }
    assert_eq!(entries(&queue), 12);
}

#[test]
#[cfg_attr(any(tidegate_queue = "array", tidegate_queue = "linked"), ignore = "it is about our layout")]
fn heads_and_bodies_of_several_flushes_share_one_segment() {
    let pool = Pool::new();
    let mut queue = Outbound::new(&pool);
    for _ in 0..4 {
        queue.write(b"head");
        queue.link_bytes(Bytes::from(vec![1; LINK_BYTES_MIN]));
        queue.flush();
    }
    assert_eq!(entries(&queue), 9);
    assert_eq!(pool.ledger().used(), segment_cost(&pool, SEGMENT_BYTES) + 4 * LINK_BYTES_MIN + 9 * ENTRY_BYTES);
}

#[test]
fn small_flushes_into_a_stuck_queue_share_a_segment() {
    let pool = Pool::new();
    let mut queue = Outbound::new(&pool);
    for _ in 0..30 {
        queue.write(&[1; 100]);
        queue.flush();
    }
    assert_eq!(entries(&queue), 30);
    assert_eq!(pool.ledger().used(), segment_cost(&pool, SEGMENT_BYTES) + 30 * ENTRY_BYTES);
}

#[test]
#[cfg_attr(any(tidegate_queue = "array", tidegate_queue = "linked"), ignore = "it is about our layout")]
fn small_flushes_through_a_second_queue_share_a_segment_too() {
    let pool = Pool::new();
    let (mut above, mut below) = (Outbound::new(&pool), Outbound::new(&pool));
    let mut expected = Vec::new();
    for index in 0..30 {
        let piece = bytes(index, 100);
        above.write(&piece);
        above.flush();
        below.take_flushed(&mut above);
        below.flush();
        expected.extend(piece);
    }
    assert_eq!(above.cost(), 0);
    assert_eq!(pool.ledger().used(), segment_cost(&pool, SEGMENT_BYTES) + entries(&below) * ENTRY_BYTES);
    assert_eq!(send_all(&mut below, 333), expected);
}

#[test]
#[cfg_attr(any(tidegate_queue = "array", tidegate_queue = "linked"), ignore = "it is about our layout")]
fn small_is_copied_and_large_is_linked() {
    let pool = Pool::new();
    let mut queue = Outbound::new(&pool);
    let (small, large) = (Bytes::from(vec![1; LINK_BYTES_MIN - 1]), Bytes::from(vec![2; LINK_BYTES_MIN]));
    let slice = pool.copy(&large);
    queue.link_bytes(small.clone());
    queue.flush();
    assert_ne!(queue.front().unwrap().as_ptr(), small.as_ptr());
    send_all(&mut queue, usize::MAX);
    queue.link_bytes(large.clone());
    queue.flush();
    assert_eq!(queue.front().unwrap().as_ptr(), large.as_ptr());
    send_all(&mut queue, usize::MAX);
    queue.link(slice.clone());
    queue.flush();
    assert_eq!(queue.front().unwrap().as_ptr(), slice.as_ptr());
}

#[test]
#[cfg_attr(any(tidegate_queue = "array", tidegate_queue = "linked"), ignore = "it is about our layout")]
fn many_small_writes_are_one_entry() {
    let mut queue = Outbound::new(&Pool::new());
    for _ in 0..SEGMENT_BYTES / 8 {
        queue.write(b"12345678");
    }
    assert_eq!(entries(&queue), 1);
}

#[test]
fn writes_after_a_flush_do_not_change_bytes_being_sent() {
    let mut queue = Outbound::new(&Pool::new());
    queue.write(b"in flight");
    queue.flush();
    let Call::Parts(before) = gather(&queue, PARTS, usize::MAX) else { panic!("bytes are in memory") };
    let at = queue.front().unwrap().as_ptr();
    for _ in 0..1000 {
        queue.write(b"something else");
    }
    assert_eq!(gather(&queue, PARTS, usize::MAX), Call::Parts(before));
    assert_eq!(queue.front().unwrap().as_ptr(), at);
}

#[test]
fn bytes_are_charged_whole_to_their_only_holder_until_the_last_of_them_is_sent() {
    let pool = Pool::new();
    let mut queue = Outbound::new(&pool);
    queue.link_bytes(Bytes::from(vec![1; 10_000]));
    queue.flush();
    assert_eq!(pool.ledger().used(), 10_000 + ENTRY_BYTES);
    queue.advance(9_999);
    assert_eq!(pool.ledger().used(), 10_000 + ENTRY_BYTES, "the memory is still there");
    queue.advance(1);
    assert_eq!(pool.ledger().used(), 0);
}

#[test]
fn shared_bytes_are_charged_to_each_queue_and_static_bytes_to_none() {
    let pool = Pool::new();
    let (mut queue, mut other) = (Outbound::new(&pool), Outbound::new(&pool));
    let mut body = Bytes::from(vec![1; 20_000]);
    queue.link_bytes(body.split_to(10_000));
    other.link_bytes(body);
    queue.link_static(&[0; 10_000]);
    assert_eq!(pool.ledger().used(), 20_000 + 3 * ENTRY_BYTES);
    queue.flush();
    other.take_flushed(&mut queue);
    assert_eq!(pool.ledger().used(), 20_000 + 3 * ENTRY_BYTES);
    assert_eq!(other.memory_bytes(), pool.ledger().used());
    drop(other);
    assert_eq!(pool.ledger().used(), 0);
}

#[test]
fn a_view_of_little_of_its_segment_is_copied_so_that_it_does_not_pin_it() {
    let pool = Pool::new();
    let (mut scratch, mut queue) = (Scratch::new(&pool), Outbound::new(&pool));
    for length in [LINK_BYTES_MIN, RECEIVE_BYTES_MAX / 5] {
        scratch.space(RECEIVE_BYTES_MAX).fill(7);
        queue.link(scratch.received(length));
    }
    scratch.release();
    assert!(pool.ledger().used() < RECEIVE_BYTES_MAX, "{} bytes are held", pool.ledger().used());
    assert_eq!(pool.ledger().used(), queue.memory_bytes());
}

#[test]
#[cfg_attr(any(tidegate_queue = "array", tidegate_queue = "linked"), ignore = "it is about our layout")]
fn pages_and_segments_go_back_after_a_burst() {
    let pool = Pool::new();
    let mut queues: Vec<_> = (0..1000).map(|_| Outbound::new(&pool)).collect();
    let body = Bytes::from(vec![1; LINK_BYTES_MIN]);
    for queue in &mut queues {
        for _ in 0..20 {
            queue.write(b"head");
            queue.link_bytes(body.clone());
        }
        queue.flush();
    }
    let full = pool.spare_bytes();
    assert!(full > 1000 * 40 * ENTRY_BYTES);
    for queue in &mut queues {
        send_all(queue, usize::MAX);
    }
    assert_eq!(pool.ledger().used(), 0);
    // A page of entries and a quarter of a MiB of segments.
    assert!(pool.spare_bytes() <= 4096 + 256 * 1024, "{} bytes are kept", pool.spare_bytes());
    // The queues are still there, and hold nothing: trimming halves the kept memory until none is left.
    for _ in 0..8 {
        pool.trim();
    }
    assert_eq!(pool.spare_bytes(), 0);
    queues[500].write(b"and it goes on");
    assert_eq!(queues[500].pending(), 14);
}

#[test]
#[cfg_attr(tidegate_queue = "linked", ignore = "its pages go back together")]
fn one_connection_keeps_a_page_that_others_have_left_and_no_more() {
    let pool = Pool::new();
    let mut queues: Vec<_> = (0..1000).map(|_| Outbound::new(&pool)).collect();
    for queue in &mut queues {
        queue.link_bytes(Bytes::from(vec![1; LINK_BYTES_MIN]));
    }
    queues.truncate(1);
    pool.trim();
    assert!(pool.spare_bytes() <= 4096);
    assert_eq!(queues[0].pending(), LINK_BYTES_MIN as u64);
}

#[test]
fn vacant_entries_are_used_before_a_new_page_is_taken() {
    let pool = Pool::new();
    let body = Bytes::from(vec![1; LINK_BYTES_MIN]);
    let mut queues: Vec<_> = (0..1000).map(|_| Outbound::new(&pool)).collect();
    for queue in &mut queues {
        queue.link_bytes(body.clone());
    }
    let full = pool.spare_bytes();
    for round in 2..7 {
        // Holes in every page, none of which becomes empty.
        for queue in queues.iter_mut().step_by(round) {
            queue.clear();
        }
        for queue in queues.iter_mut().step_by(round) {
            queue.link_bytes(body.clone());
        }
        assert_eq!(pool.spare_bytes(), full);
    }
}

#[test]
fn a_loaded_piece_of_a_file_is_given_back_when_it_was_sent() {
    let pool = Pool::new();
    let mut queue = Outbound::new(&pool);
    queue.link_file(region(&file(&bytes(1, 10_000)), 0, 10_000));
    queue.flush();
    assert_eq!(pool.ledger().used(), ENTRY_BYTES, "a region costs its entry");
    for _ in 0..10 {
        assert!(queue.load_file(1_000, read).unwrap());
        assert!(pool.ledger().used() < 1_100 + 2 * ENTRY_BYTES);
        send(&mut queue, 1_000);
    }
    assert_eq!((pool.ledger().used(), queue.cost()), (0, 0));
}

#[test]
fn a_queue_keeps_its_pool_alive() {
    let mut queue = Outbound::new(&Pool::new());
    queue.write(b"bytes");
    queue.link_bytes(Bytes::from(vec![1; LINK_BYTES_MIN]));
    queue.flush();
    assert_eq!(send_all(&mut queue, usize::MAX).len(), 5 + LINK_BYTES_MIN);
}

#[test]
#[cfg_attr(any(tidegate_queue = "array", tidegate_queue = "linked"), ignore = "it is about our layout")]
fn a_record_has_a_segment_that_the_pool_recycles() {
    let pool = Pool::new();
    let mut queue = Outbound::new(&pool);
    let mut places = Vec::new();
    for round in 0..3 {
        let written = queue.write_with(16 * 1024 + 64, |space| {
            places.push(space.as_ptr());
            space.fill(round);
            Ok::<_, ()>(space.len())
        });
        assert_eq!(written, Ok(16 * 1024 + 64));
        queue.flush();
        assert_eq!(queue.front().map(<[u8]>::len), Some(16 * 1024 + 64), "in one piece");
        assert!(pool.ledger().used() < 17 * 1024, "{} bytes are held", pool.ledger().used());
        queue.advance(queue.pending());
        assert_eq!(pool.ledger().used(), 0);
    }
    assert!(places.iter().all(|place| *place == places[0]), "the same warm memory");
    assert!(pool.spare_bytes() > 16 * 1024);
    pool.trim();
    pool.trim();
    assert!(pool.spare_bytes() < 4 * 1024, "{} bytes are spare", pool.spare_bytes());
}

#[test]
#[cfg_attr(any(tidegate_queue = "array", tidegate_queue = "linked"), ignore = "it is about our layout")]
fn a_short_write_into_a_large_space_keeps_no_large_segment() {
    let pool = Pool::new();
    let mut queue = Outbound::new(&pool);
    queue.link_static(&[1; LINK_BYTES_MIN]);
    let before = pool.ledger().used();
    for length in [LARGE_SEGMENT_BYTES, 100_000] {
        let written = queue.write_with(length, |space| {
            space[..100].fill(2);
            Ok::<_, ()>(100)
        });
        assert_eq!(written, Ok(100));
    }
    assert_eq!(queue.write_with(LARGE_SEGMENT_BYTES, |_| Err("refused")), Err("refused"));
    assert_eq!(queue.write_with(LARGE_SEGMENT_BYTES, |_| Ok::<_, ()>(0)), Ok(0));
    let used = pool.ledger().used() - before;
    assert!(used < 1_000, "{used} bytes are held for 200");
    queue.flush();
    assert_eq!(send_all(&mut queue, usize::MAX), [&[1; LINK_BYTES_MIN][..], &[2; 200]].concat());
    assert_eq!(pool.ledger().used(), 0);
}

#[test]
#[cfg_attr(any(tidegate_queue = "array", tidegate_queue = "linked"), ignore = "it is about our layout")]
fn an_empty_queue_in_which_nothing_is_written_holds_nothing() {
    let pool = Pool::new();
    let mut queue = Outbound::new(&pool);
    for length in [0, 100, LARGE_SEGMENT_BYTES, 100_000] {
        assert_eq!(queue.write_with(length, |_| Err(())), Err(()));
        assert_eq!(queue.write_with(length, |_| Ok::<_, ()>(0)), Ok(0));
        assert!(queue.is_empty() && pool.ledger().used() == 0, "a space of {length}");
        let panicked = catch_unwind(AssertUnwindSafe(|| {
            let _ = queue.write_with(length, |space| Ok::<_, ()>(space.len() + 1));
        }));
        assert!(panicked.is_err());
        assert!(queue.is_empty() && pool.ledger().used() == 0, "a space of {length} after a panic");
    }
}

#[test]
fn refused_writes_leave_no_entries_in_a_queue_with_bytes() {
    let pool = Pool::new();
    for flush in [false, true] {
        for length in [0, 1, 3_000, SEGMENT_BYTES, SEGMENT_BYTES + 1, LARGE_SEGMENT_BYTES, 40_000] {
            let mut queue = Outbound::new(&pool);
            queue.write(&[1; 2_000]);
            if flush {
                queue.flush();
            }
            let (cost, used) = (queue.cost(), pool.ledger().used());
            for _ in 0..10 {
                assert_eq!(queue.write_with(length, |_| Err(())), Err(()));
                assert_eq!(queue.write_with(length, |_| Ok::<_, ()>(0)), Ok(0));
            }
            assert_eq!((queue.cost(), pool.ledger().used()), (cost, used), "{length} bytes, flushed: {flush}");
            queue.write(&[2; 3_000]);
            queue.flush();
            let mut sent = Vec::new();
            while let Some(front) = queue.front() {
                let length = front.len();
                sent.extend_from_slice(front);
                queue.advance(length as u64);
            }
            assert_eq!(sent, [[1; 2_000].as_slice(), &[2; 3_000]].concat());
        }
    }
    assert_eq!(pool.ledger().used(), 0);
}

#[test]
fn short_writes_in_long_spaces_share_segments() {
    for flush in [false, true] {
        for length in [300, 4_000, SEGMENT_BYTES, SEGMENT_BYTES + 1, LARGE_SEGMENT_BYTES, 40_000] {
            let pool = Pool::new();
            let mut queue = Outbound::new(&pool);
            queue.write(b"head");
            let mut expected = b"head".to_vec();
            for round in 0..200_u8 {
                let written = queue.write_with(length, |space| {
                    space[..60].fill(round);
                    Ok::<_, ()>(60)
                });
                assert_eq!(written, Ok(60));
                expected.extend([round; 60]);
                if flush {
                    queue.flush();
                }
            }
            queue.flush();
            let used = pool.ledger().used();
            assert!(used < 4 * expected.len(), "{used} bytes for {} in {length}, {flush}", expected.len());
            let mut sent = Vec::new();
            while let Some(front) = queue.front() {
                let length = front.len();
                sent.extend_from_slice(front);
                queue.advance(length as u64);
            }
            assert_eq!(sent, expected);
            assert_eq!(pool.ledger().used(), 0);
        }
    }
}

#[test]
#[cfg_attr(any(tidegate_queue = "array", tidegate_queue = "linked"), ignore = "it is about our layout")]
fn a_space_is_at_most_a_large_segment_for_a_quarter_of_its_bytes() {
    for length in [SEGMENT_BYTES + 1, LARGE_SEGMENT_BYTES / 4 + 1, 10_000, LARGE_SEGMENT_BYTES, 100_000] {
        for written in [1, 1_014, 1_100, 4_000, 4_056, 25_000, length] {
            let pool = Pool::new();
            let mut queue = Outbound::new(&pool);
            let written = written.min(length);
            assert_eq!(queue.write_with(length, |_| Ok::<_, ()>(written)), Ok(written));
            let used = pool.ledger().used();
            assert!(used <= 4 * written + 200, "{used} bytes for {written} in a space of {length}");
        }
    }
}
