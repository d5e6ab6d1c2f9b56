//! The outbound queue: its output, the order, and the time.

use std::io::ErrorKind;

use bytes::Bytes;
use tidegate_buffer::{LINK_BYTES_MIN, LoadError, Outbound, Pool, SEGMENT_BYTES, Short, WritePosition};

use crate::support::{Call, PARTS, bytes, entries, file, gather, read, region, send, send_all};

/// A queue with every kind of entry in it, and its expected output.
fn mixed(pool: &Pool) -> (Outbound, Vec<u8>) {
    let mut queue = Outbound::new(pool);
    let (head, slice, shared) = (bytes(1, 40), bytes(2, LINK_BYTES_MIN), bytes(3, LINK_BYTES_MIN + 1));
    let (long, in_file) = (bytes(4, SEGMENT_BYTES + 100), bytes(5, 300));
    queue.write(&head);
    queue.link(pool.copy(&slice));
    queue.write(&head);
    queue.link_bytes(Bytes::from(shared.clone()));
    queue.write(&long);
    queue.link_file(region(&file(&in_file), 100, 150));
    queue.write(&head);
    let expected =
        [&head[..], &slice, &head, &shared, &long, &in_file[100..250], &head].into_iter().flatten().copied().collect();
    (queue, expected)
}

#[test]
fn written_bytes_come_out_in_order_however_small_the_calls() {
    let pool = Pool::new();
    for bytes_max in [1, 7, 64, 1000, 4096, usize::MAX] {
        let (mut queue, expected) = mixed(&pool);
        queue.flush();
        assert_eq!(send_all(&mut queue, bytes_max), expected, "{bytes_max} bytes a call");
        assert_eq!((queue.pending(), entries(&queue)), (0, 0));
    }
    assert_eq!(pool.ledger().used(), 0);
}

#[test]
fn the_front_is_a_view_where_shared_bytes_come_first() {
    let pool = Pool::new();
    let mut queue = Outbound::new(&pool);
    let (shared, copied) = (Bytes::from(bytes(3, LINK_BYTES_MIN + 10)), bytes(1, 40));
    queue.link_bytes(shared.clone());
    assert_eq!(queue.front_bytes(10), None, "nothing is flushed");
    queue.flush();
    queue.advance(5);
    let front = queue.front_bytes(100).unwrap();
    assert_eq!((front.as_ptr(), &front[..]), (shared[5..].as_ptr(), &shared[5..105]));
    assert_eq!(queue.front_bytes(usize::MAX).unwrap(), shared[5..]);
    queue.advance(shared.len() as u64 - 5);
    queue.write(&copied);
    queue.flush();
    assert_eq!(queue.front_bytes(100), None);
    assert_eq!(queue.front(), Some(&copied[..]));
}

#[test]
fn after_a_partial_write_the_next_gather_starts_at_the_right_byte() {
    let pool = Pool::new();
    let length = mixed(&pool).1.len();
    for split in 1..length {
        let (mut queue, expected) = mixed(&pool);
        queue.flush();
        // The kernel takes any count of the offered bytes; calls stop before a file, so several may be needed.
        let mut first = Vec::new();
        while first.len() < split {
            first.extend(send(&mut queue, split - first.len()));
        }
        assert_eq!(first, expected[..split]);
        assert_eq!(queue.sent(), WritePosition(split as u64));
        assert_eq!(send_all(&mut queue, usize::MAX), expected[split..], "split at {split}");
    }
}

#[test]
fn more_parts_than_one_array_holds_go_with_the_next_call() {
    let pool = Pool::new();
    let mut queue = Outbound::new(&pool);
    let body = Bytes::from(bytes(7, LINK_BYTES_MIN));
    for _ in 0..2 * PARTS + 100 {
        queue.link_bytes(body.clone());
    }
    queue.flush();
    let Call::Parts(parts) = gather(&queue, PARTS, usize::MAX) else { panic!("bytes are in memory") };
    assert_eq!(parts.len(), PARTS);
    // All of the first call but the last three bytes, then those before anything else.
    queue.advance((PARTS * LINK_BYTES_MIN - 3) as u64);
    let Call::Parts(parts) = gather(&queue, PARTS, usize::MAX) else { panic!("bytes are in memory") };
    assert_eq!(parts[0], body[LINK_BYTES_MIN - 3..]);
    assert!(parts[1..].iter().all(|part| *part == body));
    let rest = send_all(&mut queue, usize::MAX);
    assert_eq!(rest.len(), (PARTS + 100) * LINK_BYTES_MIN + 3);
}

#[test]
fn a_buffer_before_a_file_region_is_sent_before_it() {
    let pool = Pool::new();
    let mut queue = Outbound::new(&pool);
    queue.write(b"head");
    queue.link_file(region(&file(b"a file of bytes"), 2, 4));
    queue.write(b"tail");
    queue.flush();
    assert!(!queue.starts_with_file());
    assert_eq!(gather(&queue, PARTS, usize::MAX), Call::Parts(vec![b"head".to_vec()]));
    queue.advance(3);
    assert_eq!(gather(&queue, PARTS, usize::MAX), Call::Parts(vec![b"d".to_vec()]));
    queue.advance(1);
    assert!(queue.starts_with_file());
    assert_eq!(queue.front(), None);
    assert_eq!(gather(&queue, PARTS, usize::MAX), Call::File { offset: 2, length: 4 });
    queue.advance(3);
    assert_eq!(gather(&queue, PARTS, usize::MAX), Call::File { offset: 5, length: 1 });
    queue.advance(1);
    assert_eq!(queue.front(), Some(&b"tail"[..]));
}

#[test]
fn a_partial_write_across_a_file_region_ends_behind_it() {
    let pool = Pool::new();
    let mut queue = Outbound::new(&pool);
    queue.link_file(region(&file(b"0123456789"), 0, 10));
    queue.write(b"tail");
    queue.flush();
    queue.advance(12);
    assert_eq!(queue.front(), Some(&b"il"[..]));
}

#[test]
fn an_empty_file_region_is_nothing() {
    let mut queue = Outbound::new(&Pool::new());
    queue.link_file(region(&file(b""), 0, 0));
    queue.flush();
    assert_eq!(gather(&queue, PARTS, usize::MAX), Call::Nothing);
    assert!(!queue.has_flushed() && !queue.starts_with_file() && queue.is_empty());
    assert_eq!(queue.cost(), 0);
}

#[test]
fn a_file_shorter_than_its_region_is_an_error_and_the_queue_stays() {
    let mut queue = Outbound::new(&Pool::new());
    queue.link_file(region(&file(b"short"), 3, 10));
    queue.flush();
    assert!(queue.load_file(100, read).unwrap(), "two bytes are there");
    assert_eq!(send(&mut queue, 2), b"rt");
    let (pending, count) = (queue.pending(), entries(&queue));
    assert!(matches!(queue.load_file(100, read), Err(LoadError::Short)));
    assert_eq!((queue.pending(), entries(&queue)), (pending, count));
    assert!(queue.starts_with_file());
}

#[test]
fn a_file_that_cannot_be_read_is_an_error_and_the_queue_stays() {
    let mut queue = Outbound::new(&Pool::new());
    queue.link_file(region(&file(b"bytes"), 0, 5));
    queue.flush();
    let result = queue.load_file(100, |_, _| Err(ErrorKind::PermissionDenied.into()));
    assert!(matches!(result, Err(LoadError::Read(error)) if error.kind() == ErrorKind::PermissionDenied));
    assert_eq!(gather(&queue, PARTS, usize::MAX), Call::File { offset: 0, length: 5 });
}

#[test]
fn a_file_is_loaded_in_bounded_pieces_that_keep_its_place() {
    let pool = Pool::new();
    let in_file = bytes(9, 10_000);
    for bytes_max in [0, 1, 999, 4096, 10_000, 20_000] {
        let mut queue = Outbound::new(&pool);
        queue.write(b"head");
        queue.link_file(region(&file(&in_file), 1, 9_000));
        queue.write(b"tail");
        queue.flush();
        assert!(!queue.load_file(bytes_max, read).unwrap(), "memory comes first");
        let mut sent = send(&mut queue, usize::MAX);
        while queue.starts_with_file() && sent.len() < 3_000 {
            assert!(queue.load_file(bytes_max, read).unwrap());
            let piece = queue.front().unwrap();
            assert!(piece.len() <= bytes_max.max(1));
            let length = piece.len();
            sent.extend(send(&mut queue, length));
        }
        sent.extend(send_all(&mut queue, usize::MAX));
        assert_eq!(sent, [b"head", &in_file[1..9_001], b"tail"].concat());
    }
    assert_eq!(pool.ledger().used(), 0);
}

#[test]
fn a_file_that_was_loaded_whole_may_be_the_last_entry() {
    let mut queue = Outbound::new(&Pool::new());
    queue.link_file(region(&file(b"bytes"), 0, 5));
    queue.flush();
    assert!(queue.load_file(5, read).unwrap());
    assert!(!queue.starts_with_file());
    queue.write(b" more");
    queue.flush();
    assert_eq!(send_all(&mut queue, usize::MAX), b"bytes more");
}

#[test]
fn the_bytes_of_one_call_are_bounded() {
    let pool = Pool::new();
    let (mut queue, _) = mixed(&pool);
    queue.flush();
    for bytes_max in [0, 1, 39, 40, 41, 2000, 3000] {
        let Call::Parts(parts) = gather(&queue, PARTS, bytes_max) else { panic!("bytes are in memory") };
        assert_eq!(parts.iter().map(Vec::len).sum::<usize>(), bytes_max.max(1));
        assert!(parts.iter().all(|part| !part.is_empty()));
    }
}

#[test]
fn the_parts_of_one_call_are_bounded() {
    let (mut queue, _) = mixed(&Pool::new());
    queue.flush();
    assert_eq!(gather(&queue, 0, usize::MAX), Call::Nothing);
    for parts_max in 1..4 {
        assert!(matches!(gather(&queue, parts_max, usize::MAX), Call::Parts(parts) if parts.len() == parts_max));
    }
}

#[test]
fn a_resumed_flush_does_not_send_later_writes() {
    let mut queue = Outbound::new(&Pool::new());
    queue.write(b"flushed");
    queue.flush();
    queue.write(b" later");
    assert_eq!(send(&mut queue, 3), b"flu");
    queue.write(b" and later");
    assert_eq!(send(&mut queue, usize::MAX), b"shed");
    assert_eq!(gather(&queue, PARTS, usize::MAX), Call::Nothing);
    assert!(!queue.has_flushed() && !queue.is_empty());
    queue.flush();
    assert_eq!(send(&mut queue, usize::MAX), b" later and later");
}

#[test]
fn a_flush_between_any_two_writes_is_a_boundary() {
    let pool = Pool::new();
    for boundary in 0..6 {
        let mut queue = Outbound::new(&pool);
        let (mut before, mut all) = (0, Vec::new());
        for index in 0..6 {
            if index == boundary {
                queue.flush();
                before = all.len();
            }
            let piece = bytes(index, if index % 2 == 0 { 50 } else { LINK_BYTES_MIN });
            queue.link(pool.copy(&piece));
            all.extend(piece);
        }
        assert_eq!(send_all(&mut queue, 1000), all[..before]);
        assert_eq!(gather(&queue, PARTS, usize::MAX), Call::Nothing);
        queue.flush();
        assert_eq!(send_all(&mut queue, 1000), all[before..]);
    }
}

#[test]
fn a_flush_of_nothing_is_nothing() {
    let mut queue = Outbound::default();
    queue.flush();
    queue.write(b"");
    queue.flush();
    assert!(!queue.has_flushed());
    queue.write(b"x");
    assert!(!queue.has_flushed(), "the earlier flush has passed");
}

#[test]
fn empty_messages_leave_nothing_behind() {
    let pool = Pool::new();
    let mut queue = Outbound::new(&pool);
    for _ in 0..1000 {
        queue.write(b"");
        queue.link(pool.copy(b""));
        queue.link_bytes(Bytes::new());
        drop(queue.writer(100));
        queue.writer(100).put(b"");
        queue.flush();
    }
    assert_eq!((queue.cost(), pool.ledger().used(), queue.written()), (0, 0, WritePosition(0)));
}

#[test]
fn a_flood_of_empty_cursors_into_a_stuck_queue_costs_two_entries() {
    let pool = Pool::new();
    let mut queue = Outbound::new(&pool);
    queue.write(b"x");
    queue.flush();
    for length in 0..1000 {
        drop(queue.writer(length * 4));
        queue.flush();
    }
    // One in the segment of the first entry; one in a fresh segment, when more room was asked for than that has.
    assert!(entries(&queue) <= 3, "{} entries", entries(&queue));
}

#[test]
fn a_write_position_counts_the_bytes_up_to_it() {
    let pool = Pool::new();
    let (mut queue, expected) = mixed(&pool);
    let all = WritePosition(expected.len() as u64);
    assert_eq!((queue.written(), queue.sent()), (all, WritePosition(0)));
    queue.flush();
    send(&mut queue, 41);
    assert_eq!((queue.written(), queue.sent()), (all, WritePosition(41)));
    send_all(&mut queue, usize::MAX);
    assert_eq!((queue.written(), queue.sent()), (all, all));
    queue.write(b"more");
    assert_eq!(queue.written(), WritePosition(all.0 + 4));
}

#[test]
fn bytes_are_counted_as_soon_as_they_are_linked_and_not_before() {
    let pool = Pool::new();
    let mut queue = Outbound::new(&pool);
    let mut written = 0;
    for (index, length) in [1, LINK_BYTES_MIN, 30, SEGMENT_BYTES, LINK_BYTES_MIN - 1].into_iter().enumerate() {
        queue.link(pool.copy(&bytes(index, length)));
        written += length as u64;
        assert_eq!((queue.pending(), queue.written()), (written, WritePosition(written)));
        assert_eq!(queue.cost(), written + (entries(&queue) * tidegate_buffer::ENTRY_BYTES) as u64);
    }
    let mut cursor = queue.writer(10);
    cursor.put(b"0123456789");
    drop(cursor);
    assert_eq!(queue.pending(), written + 10);
}

#[test]
fn progress_inside_one_large_entry_shows() {
    let mut queue = Outbound::new(&Pool::new());
    queue.link_bytes(Bytes::from(vec![1; 1_000_000]));
    queue.flush();
    for sent in 1..=100 {
        assert_eq!(send(&mut queue, 10_000).len(), 10_000);
        assert_eq!(queue.sent(), WritePosition(sent * 10_000));
    }
}

#[test]
#[should_panic(expected = "5 bytes sent of 4")]
fn more_than_the_waiting_bytes_cannot_have_been_sent() {
    let mut queue = Outbound::new(&Pool::new());
    queue.write(b"four");
    queue.flush();
    queue.advance(5);
}

#[test]
fn cleared_bytes_are_never_sent_and_the_queue_stays_usable() {
    let pool = Pool::new();
    let (mut queue, _) = mixed(&pool);
    queue.flush();
    send(&mut queue, 50);
    queue.clear();
    assert_eq!((queue.cost(), queue.sent(), queue.written()), (0, WritePosition(50), WritePosition(50)));
    assert_eq!(gather(&queue, PARTS, usize::MAX), Call::Nothing);
    queue.write(b"again");
    assert_eq!(gather(&queue, PARTS, usize::MAX), Call::Nothing, "the flush is cleared too");
    queue.flush();
    assert_eq!(send(&mut queue, usize::MAX), b"again");
    assert_eq!(queue.sent(), WritePosition(55));
}

#[test]
fn a_cursor_may_get_more_than_it_asked_for() {
    let pool = Pool::new();
    let mut queue = Outbound::new(&pool);
    let pieces: Vec<_> =
        [3, SEGMENT_BYTES, 0, 5000, 1, 2 * SEGMENT_BYTES, 17].map(|length| bytes(length, length)).into();
    let mut cursor = queue.writer(10);
    for piece in &pieces {
        cursor.put(piece);
    }
    drop(cursor);
    queue.flush();
    assert_eq!(send_all(&mut queue, usize::MAX), pieces.concat());
    assert_eq!(pool.ledger().used(), 0);
}

#[test]
fn a_cursor_is_contiguous_for_its_requested_length() {
    let mut queue = Outbound::new(&Pool::new());
    for length in [1, SEGMENT_BYTES - 10, 100, SEGMENT_BYTES, 5] {
        queue.writer(length).put(&bytes(length, length));
        queue.flush();
        let Call::Parts(parts) = gather(&queue, PARTS, usize::MAX) else { panic!("bytes are in memory") };
        assert_eq!(*parts.last().unwrap(), bytes(length, length));
    }
}

#[test]
fn pieces_of_any_length_are_written_as_they_are() {
    let bytes = bytes(0, 200);
    for length in 0..=130 {
        let mut queue = Outbound::new(&Pool::new());
        queue.write_pieces((&bytes[..length], b"|", &bytes[200 - length..], b""));
        queue.write_pieces((&bytes[..length / 2], &bytes[length / 2..length]));
        queue.flush();
        let (first, last) = (&bytes[..length], &bytes[200 - length..]);
        let expected = [first, b"|", last, first].concat();
        assert_eq!(send_all(&mut queue, usize::MAX), expected, "pieces of {length} bytes");
    }
}

#[test]
#[cfg_attr(any(tidegate_queue = "array", tidegate_queue = "linked"), ignore = "it is about our layout")]
fn pieces_waste_little_of_a_segment() {
    for length in [100, 700, 1_020, 1_400, 2_000] {
        let pool = Pool::new();
        let mut queue = Outbound::new(&pool);
        let piece = bytes(length, length);
        let all = 200 * (length + 2);
        for _ in 0..200 {
            queue.write_pieces((&piece[..], b"\r\n"));
        }
        let least = all.div_ceil(SEGMENT_BYTES);
        assert!(entries(&queue) <= least + least / 15 + 1, "{} entries for {all} bytes", entries(&queue));
    }
}

#[test]
fn short_pieces_are_written_up_to_their_length_wherever_a_segment_ends() {
    let bytes = bytes(0, SEGMENT_BYTES);
    for before in SEGMENT_BYTES - 32..=SEGMENT_BYTES {
        for length in 0..=9 {
            let mut queue = Outbound::new(&Pool::new());
            queue.write(&bytes[..before]);
            queue.write_pieces((Short::new(*b"12345678", length), b"|", Short::new(*b"abcdefgh", length)));
            queue.flush();
            let kept = length.min(8);
            let expected = [&bytes[..before], &b"12345678"[..kept], b"|", &b"abcdefgh"[..kept]].concat();
            assert_eq!(send_all(&mut queue, usize::MAX), expected, "{length} bytes behind {before}");
        }
    }
    let (pool, nothing) = (Pool::new(), Short::new(*b"12345678", 0));
    let mut queue = Outbound::new(&pool);
    queue.write_pieces((nothing, nothing));
    assert_eq!((queue.cost(), pool.ledger().used()), (0, 0));
}

#[test]
fn pieces_longer_than_a_segment_are_written_all_the_same() {
    let long = bytes(0, SEGMENT_BYTES);
    let mut queue = Outbound::new(&Pool::new());
    queue.write_pieces((b"<", &long[..], &long[..], b">"));
    queue.flush();
    assert_eq!(send_all(&mut queue, usize::MAX), [b"<", &long[..], &long, b">"].concat());
}

#[test]
fn pieces_without_bytes_leave_nothing_behind() {
    let pool = Pool::new();
    let mut queue = Outbound::new(&pool);
    for _ in 0..100 {
        queue.write_pieces((b"", b""));
        queue.flush();
    }
    assert_eq!((queue.cost(), pool.ledger().used(), queue.written()), (0, 0, WritePosition(0)));
}

#[test]
fn only_flushed_parts_are_taken() {
    let pool = Pool::new();
    let (mut from, mut expected) = mixed(&pool);
    let mut to = Outbound::new(&pool);
    to.write(b"before ");
    to.flush();
    from.flush();
    from.write(b"not flushed");
    to.take_flushed(&mut from);
    assert_eq!((from.sent(), from.pending()), (WritePosition(expected.len() as u64), 11));
    assert_eq!(to.pending(), 7 + expected.len() as u64);
    assert_eq!(send_all(&mut to, usize::MAX), b"before ", "taken bytes wait for a flush here");
    to.flush();
    assert_eq!(send_all(&mut to, 100), expected);
    from.flush();
    to.take_flushed(&mut from);
    assert_eq!(entries(&from), 0);
    to.flush();
    expected = send_all(&mut to, 100);
    assert_eq!(expected, b"not flushed");
    assert_eq!(pool.ledger().used(), 0);
}

#[test]
fn bytes_may_be_taken_from_a_queue_of_another_pool() {
    let (here, there) = (Pool::new(), Pool::new());
    let (mut from, expected) = mixed(&there);
    from.flush();
    let mut to = Outbound::new(&here);
    to.take_flushed(&mut from);
    assert_eq!(from.cost(), 0);
    to.flush();
    assert_eq!(send_all(&mut to, 500), expected);
    assert_eq!((here.ledger().used(), there.ledger().used()), (0, 0));
}

#[test]
fn cursors_of_two_queues_that_share_a_segment_do_not_overwrite_each_other() {
    let pool = Pool::new();
    let (mut first, mut second) = (Outbound::new(&pool), Outbound::new(&pool));
    first.write(b"taken;");
    first.flush();
    // Leaves an entry at the end of the very segment that the next line shares, and keeps it in the queue.
    first.link_file(region(&file(b"file;"), 0, 5));
    second.take_flushed(&mut first);
    let (mut one, mut two) = (first.writer(1), second.writer(1));
    one.put(b"first one");
    two.put(b"second");
    one.put(b" goes on");
    drop(one);
    two.put(b" as well");
    drop(two);
    first.write(b"!");
    first.flush();
    second.flush();
    assert_eq!(send_all(&mut first, usize::MAX), b"file;first one goes on!");
    assert_eq!(send_all(&mut second, usize::MAX), b"taken;second as well");
    assert_eq!(pool.ledger().used(), 0);
}

#[test]
fn a_cursor_that_was_forgotten_leaves_the_queue_as_it_was() {
    let pool = Pool::new();
    let mut queue = Outbound::new(&pool);
    for _ in 0..3 {
        let mut cursor = queue.writer(100);
        cursor.put(b"never committed");
        std::mem::forget(cursor);
        queue.flush();
        queue.link_file(region(&file(b"bytes"), 0, 5));
        queue.flush();
        assert!(queue.starts_with_file() && queue.load_file(3, read).unwrap());
        queue.write(b" more");
        queue.flush();
        assert_eq!(send_all(&mut queue, usize::MAX), b"bytes more");
    }
    assert_eq!(pool.ledger().used(), 0);
}

#[test]
fn an_unused_cursor_before_a_file_region_does_not_hide_it() {
    let pool = Pool::new();
    let (mut from, mut to) = (Outbound::new(&pool), Outbound::new(&pool));
    from.write(b"taken");
    from.flush();
    drop(from.writer(10));
    to.take_flushed(&mut from);
    // The rest of the segment now belongs to `to`, so it cannot be carried over the link.
    to.write(b" on");
    from.write(b"");
    drop(from.writer(SEGMENT_BYTES));
    from.link_file(region(&file(b"bytes"), 0, 5));
    from.flush();
    assert!(from.starts_with_file());
    assert!(from.load_file(100, read).unwrap());
    assert_eq!(send_all(&mut from, usize::MAX), b"bytes");
}
